//! The categories of events: Kineto's, and a few for what it does not know.

macro_rules! categories {
    ($($(#[$doc:meta])* $category:ident = $name:literal,)*) => {
        /// What kind of event it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Category {
            $($(#[$doc])* $category,)*
        }

        /// The names of all, in order.
        pub(crate) const CATEGORY_NAMES: &[&str] = &[$($name,)*];
    };
}

categories! {
    Kernel = "kernel",
    Copy = "gpu_memcpy",
    Memset = "gpu_memset",
    GraphLaunch = "graph_launch",
    Runtime = "cuda_runtime",
    Driver = "cuda_driver",
    Operator = "cpu_op",
    PythonFrame = "python_function",
    /// NVTX ranges, and collectives as they are enqueued.
    Annotation = "user_annotation",
    /// NVTX marks.
    Mark = "cpu_instant_event",
    Synchronization = "cuda_sync",
    Overhead = "overhead",
    Compilation = "compilation",
    ProxyStep = "nccl_proxy",
    Channel = "nccl_channel",
    Memory = "memory",
    MemoryPool = "memory_pool",
    /// What had not ended when the recording did.
    Unfinished = "unfinished",
    /// When the process recorded.
    Window = "recording",
    /// From the analysis: a collective on its communicator's track.
    Collective = "collective",
    /// From the analysis: waiting for other ranks, and transferring.
    CollectivePhase = "collective_phase",
    /// From the analysis: training steps.
    Step = "step",
    /// From the analysis: why a device executed nothing.
    Idle = "idle",
    /// From the analysis: what the time of the steps was spent on, one thing at a time, over all ranks.
    CriticalPath = "critical_path",
    /// What is true of the recording as a whole.
    About = "about",
}

impl Category {
    /// Its number among interned categories.
    #[inline]
    pub(super) fn iid(self) -> u64 {
        self as u64 + 1
    }
}
