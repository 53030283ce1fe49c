//! The modelled devices: what they are, their memory, their streams and how time passes on them.

pub(crate) mod busy;
pub(crate) mod links;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod pool;
mod stream;
pub(crate) mod traffic;

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

pub(crate) use stream::{
    Event, EventRecord, Stream, all_streams, arithmetic_done, forget_stream, register_stream,
};

use crate::config::config;

/// The name of every device; "Simulated" first, so that nobody takes its figures for a real GPU's.
pub(crate) fn name() -> String {
    format!("Simulated H200 (1/{} speed)", config().scale)
}

/// Streaming multiprocessors.
pub(crate) const MULTIPROCESSORS: u32 = 132;
/// Compute capability.
pub(crate) const COMPUTE_CAPABILITY: (i32, i32) = (9, 0);

/// A device's UUID: "simgpu" and its index.
pub(crate) fn uuid(device: u32) -> [u8; 16] {
    let mut uuid = *b"simgpu\0\0\0\0\0\0\0\0\0\0";
    uuid[12..].copy_from_slice(&device.to_be_bytes());
    uuid
}

/// A device's PCI bus; its domain, device and function are 0.
pub(crate) fn pci_bus(device: u32) -> u32 {
    0x10 + device
}

/// A device's place on PCI as CUDA writes it.
pub(crate) fn pci_bus_id(device: u32) -> String {
    format!("0000:{:02X}:00.0", pci_bus(device))
}

/// The device at a place on PCI: `[domain:]bus:device[.function]` in hexadecimal.
pub(crate) fn device_at(text: &str) -> Option<u32> {
    let (numbers, function) = text.split_once('.').unwrap_or((text, "0"));
    let hexadecimal = |text: &str| u32::from_str_radix(text.trim(), 16).ok();
    let numbers: Vec<u32> = numbers.split(':').map(hexadecimal).collect::<Option<_>>()?;
    let (bus, slot) = match numbers.as_slice() {
        [0, bus, slot] | [bus, slot] => (*bus, *slot),
        _ => return None,
    };
    let at = |device: &u32| pci_bus(*device) == bus && slot == 0 && hexadecimal(function) == Some(0);
    (0..config().devices).find(at)
}

/// What a kernel takes.
#[derive(Clone, Copy, Default)]
pub(crate) struct KernelResources {
    /// A thread.
    pub(crate) registers: u16,
    /// A thread.
    pub(crate) local_bytes: u32,
    /// A block.
    pub(crate) static_shared_bytes: u32,
    /// A block, by the launch.
    pub(crate) dynamic_shared_bytes: u32,
}

/// What an operation is, as CUPTI describes it.
#[derive(Clone)]
pub(crate) enum OpKind {
    Kernel {
        name: &'static CStr,
        grid: [u32; 3],
        block: [u32; 3],
        resources: KernelResources,
    },
    Copy {
        /// CUpti_ActivityMemcpyKind: 1 HtoD, 2 DtoH, 8 DtoD, 9 HtoH, 10 PtoP.
        copy_kind: u8,
        /// CUpti_ActivityMemoryKind: 1 pageable, 2 pinned, 3 device.
        source_kind: u8,
        destination_kind: u8,
        asynchronous: bool,
        bytes: u64,
        /// Source and destination device of a peer copy.
        peers: Option<(u32, u32)>,
    },
    Memset {
        bytes: u64,
        value: u32,
        asynchronous: bool,
    },
}

/// An operation with its true times; 0 what is not known yet.
pub(crate) struct CompletedOp {
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    /// Of the stream.
    pub(crate) priority: i32,
    pub(crate) correlation: u32,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// Whether it ended later than modelled, because the CPU could not keep up.
    pub(crate) stretched: bool,
    pub(crate) kind: OpKind,
    pub(crate) graph: Option<GraphPlace>,
}

/// One launch of a graph.
pub(crate) struct GraphRun {
    /// CUPTI's ids.
    pub(crate) graph: u32,
    pub(crate) correlation: u32,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    /// Operations that are not done.
    left: AtomicUsize,
    start_ns: AtomicI64,
    end_ns: AtomicI64,
    /// What CUPTI knows it by while it runs; 0 if it is not recorded as a whole.
    pub(crate) ticket: AtomicU64,
}

impl GraphRun {
    /// A launch on a stream of a graph with so many operations.
    pub(crate) fn new(graph: u32, correlation: u32, stream: &Stream, operations: usize) -> Arc<Self> {
        Arc::new(Self {
            graph,
            correlation,
            device: stream.device,
            context: stream.context,
            stream: stream.id,
            left: AtomicUsize::new(operations),
            start_ns: AtomicI64::new(i64::MAX),
            end_ns: AtomicI64::new(0),
            ticket: AtomicU64::new(0),
        })
    }

    /// One of its operations is done. Gives whether that was the last.
    pub(crate) fn done(&self, op: &CompletedOp) -> bool {
        self.start_ns.fetch_min(op.start_ns, Ordering::Relaxed);
        self.end_ns.fetch_max(op.end_ns, Ordering::Relaxed);
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// From the first operation's start to the last one's end; 0 where that is not known yet.
    pub(crate) fn times_ns(&self) -> (i64, i64) {
        let start_ns = match self.start_ns.load(Ordering::Relaxed) {
            i64::MAX => 0,
            start_ns => start_ns,
        };
        let is_done = self.left.load(Ordering::Acquire) == 0;
        (
            start_ns,
            if is_done {
                self.end_ns.load(Ordering::Relaxed)
            } else {
                0
            },
        )
    }
}

/// Which node of which launch of a graph an operation is.
#[derive(Clone)]
pub(crate) struct GraphPlace {
    pub(crate) run: Arc<GraphRun>,
    /// CUPTI's id of the node.
    pub(crate) node: u64,
}

/// Computes an operation: gets the start on the device and gives the modelled end.
pub(crate) type Work = Box<dyn FnOnce(i64) -> i64 + Send>;

/// An operation to run.
pub(crate) struct Submission {
    pub(crate) correlation: u32,
    pub(crate) kind: OpKind,
    pub(crate) work: Work,
    pub(crate) graph: Option<GraphPlace>,
}
