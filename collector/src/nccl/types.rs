//! NCCL's names for what it does, and for what with.

/// Operations that have a payload, by NCCL's schema numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Function {
    AllGather = 4,
    AllReduce = 5,
    Broadcast = 6,
    ReduceScatter = 7,
    Reduce = 8,
    Send = 9,
    Recv = 10,
    AlltoAll = 16,
    Gather = 17,
    Scatter = 18,
}

impl Function {
    const ALL: [Self; 10] = [
        Self::AllGather,
        Self::AllReduce,
        Self::Broadcast,
        Self::ReduceScatter,
        Self::Reduce,
        Self::Send,
        Self::Recv,
        Self::AlltoAll,
        Self::Gather,
        Self::Scatter,
    ];

    pub(super) fn from_schema(schema: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|function| *function as u64 == schema)
    }

    /// NCCL's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllGather => "AllGather",
            Self::AllReduce => "AllReduce",
            Self::Broadcast => "Broadcast",
            Self::ReduceScatter => "ReduceScatter",
            Self::Reduce => "Reduce",
            Self::Send => "Send",
            Self::Recv => "Recv",
            Self::AlltoAll => "AlltoAll",
            Self::Gather => "Gather",
            Self::Scatter => "Scatter",
        }
    }

    /// Whether NCCL makes sends and receives of it.
    pub(crate) fn is_made_of_transfers(self) -> bool {
        matches!(self, Self::AlltoAll | Self::Gather | Self::Scatter)
    }

    /// Whether [`super::Call::end`] is a root.
    pub(crate) fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter
        )
    }

    /// Whether [`super::Call::end`] is a peer.
    pub(crate) fn has_peer(self) -> bool {
        matches!(self, Self::Send | Self::Recv)
    }

    /// Whether it reduces.
    pub(super) fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }
}

/// Bytes of one element of a data type by NCCL's name for it; 0 for one that is not known.
pub(crate) fn datatype_bytes(name: &str) -> u64 {
    match name {
        "ncclInt8" | "ncclUint8" | "ncclFloat8e4m3" | "ncclFloat8e5m2" => 1,
        "ncclFloat16" | "ncclBfloat16" => 2,
        "ncclInt32" | "ncclUint32" | "ncclFloat32" => 4,
        "ncclInt64" | "ncclUint64" | "ncclFloat64" => 8,
        _ => 0,
    }
}
