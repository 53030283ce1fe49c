//! What the nodes of a job's graph are, and what they are made of.

use gputrace_trace::{Interner, NameId, Process};
use rustc_hash::FxHashMap;

use super::dag::{Builder, Node};
use crate::host_activity::Activity;
use crate::operations::{Name, Operation, ProcessOperations};

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    /// The host at work between two calls.
    Host,
    /// A call of CUDA.
    Call,
    /// The end of a call that waited for the GPU.
    Blocked,
    /// A kernel that computes.
    Compute,
    /// A collective's or transfer's time on the wire; of a kernel that is matched with no other rank's all of it.
    Communication,
    /// A copy.
    Copy,
    /// A memset.
    Memset,
    /// A rank comes to a collective.
    Arrival,
    /// All ranks have come.
    Meeting,
}

impl Part {
    /// Whether it is an operation of the device, whole or its end.
    pub(crate) fn is_operation(self) -> bool {
        matches!(
            self,
            Self::Compute | Self::Communication | Self::Copy | Self::Memset
        )
    }

    /// The word for it in what programs read.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Call | Self::Blocked => "call",
            Self::Compute => "kernel",
            Self::Communication | Self::Arrival | Self::Meeting => "transfer",
            Self::Copy => "copy",
            Self::Memset => "memset",
        }
    }

    /// Whether it is the host's work, and no waiting.
    pub(crate) fn is_host_work(self) -> bool {
        matches!(self, Self::Host | Self::Call)
    }

    /// Whether it is what a rank does itself on its device.
    pub(crate) fn is_device_work(self) -> bool {
        matches!(self, Self::Compute | Self::Copy | Self::Memset)
    }

    /// Whether it is what a rank does itself: neither waiting nor a transfer.
    pub(crate) fn is_own(self) -> bool {
        self.is_host_work() || self.is_device_work()
    }
}

/// What a node is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Label {
    /// An operation, by its name.
    Operation(Name),
    /// A collective, by its place in the job's list of names and communicators.
    Collective(u32),
    /// A call.
    Call(NameId),
    /// The host's work, by what the thread was doing.
    Host(Activity),
    /// Nothing that needs a name.
    None,
}

/// Which step a node belongs to where it belongs to none.
pub(crate) const NO_STEP: u32 = u32::MAX;

/// What is known of a node beside its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What {
    pub(crate) part: Part,
    /// Whose: a place in the job's list of devices.
    pub(crate) device: u16,
    /// The place of its step among the job's.
    pub(crate) step: u32,
    pub(crate) label: Label,
    /// Row in its table: of calls, or of its kind of operation.
    pub(crate) row: u32,
    /// What its work depends on beside its name: of a kernel its launch's dimensions as a number, of a copy, memset or collective
    /// its bytes (up to 4 GB).
    pub(crate) size: u32,
}

/// A step of the job in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Its place among the job's steps.
    pub(crate) step: u32,
}

/// What is to be looked at of one process.
pub(crate) struct Source<'a> {
    pub(crate) process: &'a Process,
    pub(crate) operations: &'a ProcessOperations,
    pub(crate) names: &'a Interner,
    /// The chosen steps on each device's operations' launches, by start.
    pub(crate) windows: Vec<Window>,
    /// Whether the windows are of the host (by ranges) or of the device (found in its operations).
    pub(crate) on_host: bool,
    /// By device of the process what was launched in them, where they are of the host and calls are recorded.
    pub(crate) on_devices: FxHashMap<u32, Vec<Window>>,
    /// From the first of them to the last's end.
    pub(crate) span: (i64, i64),
    /// By device of the process: its place in the job's list.
    pub(crate) places: FxHashMap<u32, u16>,
    /// Kernels (device and row) that meet those of other ranks.
    pub(crate) meeting: &'a FxHashMap<(u32, u32), u32>,
}

/// How many operations were placed by which rule, and what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    /// Without a recorded launch.
    pub(crate) without_launch: u64,
    /// Placed by time alone.
    pub(crate) in_time: u64,
    /// Explained by other ranks, by time alone.
    pub(crate) hidden: u64,
    /// Waits that the recorded times contradict.
    pub(crate) contradicted: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.without_launch += other.without_launch;
        self.in_time += other.in_time;
        self.hidden += other.hidden;
        self.contradicted += other.contradicted;
    }
}

/// By kernel (device and row): its arrival and its end.
pub(crate) type MeetingParts = FxHashMap<(u32, u32), (Node, Node)>;

/// The nodes of one process while they are made.
#[derive(Default)]
pub(crate) struct Nodes {
    pub(crate) builder: Builder,
    pub(crate) what: Vec<What>,
    /// When each ended, as recorded.
    pub(crate) ends: Vec<i64>,
    /// Of the kernels that meet others.
    pub(crate) parts: MeetingParts,
    pub(crate) counts: Counts,
}

impl Nodes {
    pub(crate) fn add(&mut self, what: What, work: i64, end: i64) -> Node {
        self.what.push(what);
        self.ends.push(end);
        self.builder.add(work, 0)
    }

    pub(crate) fn end(&self, node: Node) -> i64 {
        self.ends[node as usize]
    }
}

/// An operation that is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) device: u32,
    /// What waits for its launch: itself, or its arrival.
    pub(crate) begin: Node,
    /// What is over with it.
    pub(crate) end: Node,
    /// When it was launched, where that is known and in the span.
    pub(crate) called: Option<i64>,
}

/// By stream (device, context, stream): its operations by start, as places in the list of all.
pub(crate) type Streams = FxHashMap<(u32, u32, u32), Vec<u32>>;

/// The step of a moment.
pub(crate) fn step_at(windows: &[Window], at: i64) -> u32 {
    let after = windows.partition_point(|window| window.start <= at);
    match after.checked_sub(1).map(|place| windows[place]) {
        Some(window) if at < window.end => window.step,
        _ => NO_STEP,
    }
}
