//! NCCL's events on their way to the writer: the fields of their records.

/// An operation that NCCL has enqueued. Texts are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) start_ns: i64,
    pub(crate) duration_ns: i64,
    pub(crate) communicator: u64,
    pub(crate) rank: u32,
    pub(crate) sequence: Option<u64>,
    pub(crate) function: u64,
    pub(crate) datatype: u64,
    pub(crate) count: u64,
    pub(crate) root: Option<i32>,
    pub(crate) peer: Option<i32>,
    pub(crate) algorithm: Option<u64>,
    pub(crate) protocol: Option<u64>,
    pub(crate) channels: u8,
    pub(crate) warps: u8,
    pub(crate) plan: Option<u64>,
}

const HAS_SEQUENCE: u64 = 1 << 16;
const HAS_ROOT: u64 = 1 << 17;
const HAS_PEER: u64 = 1 << 18;

impl Operation {
    pub(super) fn fields(&self) -> [u64; 12] {
        let mut what = u64::from(self.channels) | u64::from(self.warps) << 8 | u64::from(self.rank) << 32;
        what |= if self.sequence.is_some() { HAS_SEQUENCE } else { 0 };
        what |= if self.root.is_some() { HAS_ROOT } else { 0 };
        what |= if self.peer.is_some() { HAS_PEER } else { 0 };
        let end = self.root.or(self.peer).unwrap_or_default();
        [
            what,
            self.start_ns.cast_unsigned(),
            self.duration_ns.cast_unsigned(),
            self.communicator,
            self.sequence.unwrap_or_default(),
            self.function,
            self.datatype,
            self.count,
            u64::from(end.cast_unsigned()),
            // No text that is there has number 0, and no plan.
            self.algorithm.unwrap_or_default(),
            self.protocol.unwrap_or_default(),
            self.plan.unwrap_or_default(),
        ]
    }

    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Self {
        let what = fields[0];
        let end = (fields[8] as u32).cast_signed();
        let there = |field: u64| (field != 0).then_some(field);
        Self {
            start_ns: fields[1].cast_signed(),
            duration_ns: fields[2].cast_signed(),
            communicator: fields[3],
            rank: (what >> 32) as u32,
            sequence: (what & HAS_SEQUENCE != 0).then_some(fields[4]),
            function: fields[5],
            datatype: fields[6],
            count: fields[7],
            root: (what & HAS_ROOT != 0).then_some(end),
            peer: (what & HAS_PEER != 0).then_some(end),
            algorithm: there(fields[9]),
            protocol: there(fields[10]),
            channels: what as u8,
            warps: (what >> 8) as u8,
            plan: there(fields[11]),
        }
    }
}

/// A communicator that was set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Communicator {
    pub(crate) created_ns: i64,
    pub(crate) communicator: u64,
    pub(crate) name: Option<u64>,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) nodes: u32,
    /// The plugin interface's version by which NCCL told.
    pub(crate) profiler_version: u32,
}

impl Communicator {
    pub(super) fn fields(&self) -> [u64; 5] {
        [
            self.created_ns.cast_unsigned(),
            self.communicator,
            self.name.unwrap_or_default(),
            u64::from(self.rank) | u64::from(self.ranks) << 32,
            u64::from(self.nodes) | u64::from(self.profiler_version) << 32,
        ]
    }

    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Self {
        Self {
            created_ns: fields[0].cast_signed(),
            communicator: fields[1],
            name: (fields[2] != 0).then_some(fields[2]),
            rank: fields[3] as u32,
            ranks: (fields[3] >> 32) as u32,
            nodes: fields[4] as u32,
            profiler_version: (fields[4] >> 32) as u32,
        }
    }
}
