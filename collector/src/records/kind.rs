//! `CUpti_ActivityKind`: the kinds of records that are known here.

/// Makes a constant of each kind, and the list of all.
macro_rules! kinds {
    ($($(#[$doc:meta])* $NAME:ident = $number:literal,)*) => {
        $( $(#[$doc])* pub const $NAME: u32 = $number; )*

        /// All of them. Each has a row in [`crate::kinds::KINDS`].
        pub const ALL: &[u32] = &[$( $NAME ),*];
    };
}

kinds! {
    /// Copy.
    MEMCPY = 1,
    /// Memset.
    MEMSET = 2,
    /// Kernel, when kernels are serialised.
    KERNEL = 3,
    /// Driver call.
    DRIVER = 4,
    /// Runtime call.
    RUNTIME = 5,
    /// Device.
    DEVICE = 8,
    /// Context.
    CONTEXT = 9,
    /// Kernel.
    CONCURRENT_KERNEL = 10,
    /// CUPTI's own work.
    OVERHEAD = 17,
    /// Copy between devices.
    MEMCPY2 = 22,
    /// A module that was loaded.
    MODULE = 27,
    /// An event that was recorded on a stream.
    CUDA_EVENT = 36,
    /// Stream.
    STREAM = 37,
    /// Waiting.
    SYNCHRONIZATION = 38,
    /// An id of ours joined to a call.
    EXTERNAL_CORRELATION = 39,
    /// Allocation or free.
    MEMORY2 = 49,
    /// A memory pool that was made, trimmed or destroyed.
    MEMORY_POOL = 50,
    /// A CUDA graph as a whole.
    GRAPH_TRACE = 51,
    /// Code that was compiled, or found in the cache, at run time.
    JIT = 52,
}
