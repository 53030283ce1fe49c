//! What rows stand for.

/// What a row stands for; rows are in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKey {
    /// Times at which the process recorded, or was kept from it.
    Windows,
    /// A host thread's calls, ranges, operators and enqueued collectives, which nest.
    Thread(u32),
    /// Python functions of a thread: they overlap its operators.
    Python(u32),
    /// Start/end ranges of a thread: they don't nest with its calls.
    Ranges(u32),
    /// What NCCL's proxy did on a thread.
    Proxy(u32),
    /// What happened on the host on no thread that is known, and waits on a device that is not known.
    NoThread,
    /// A stream's operations.
    Stream {
        /// Device index within the process.
        device: u32,
        /// CUPTI's context id.
        context: u32,
        /// CUPTI's stream id.
        stream: u32,
    },
    /// CUDA graphs as wholes, by the stream that they were launched into.
    Graphs {
        /// Device of the first node.
        device: u32,
        /// CUPTI's context id.
        context: u32,
        /// CUPTI's stream id.
        stream: u32,
    },
    /// The host's waits for a stream, or for a whole device.
    StreamWaits {
        /// Device index within the process.
        device: u32,
        /// CUPTI's context id.
        context: u32,
        /// CUPTI's stream id; none for the device as a whole.
        stream: Option<u32>,
    },
    /// A channel of NCCL's kernels.
    Channel {
        /// NCCL's communicator hash.
        communicator: u64,
        /// The channel.
        channel: u8,
    },
    /// CUPTI's own work on a thread, as far as that is known.
    Overhead(Option<u32>),
}

impl RowKey {
    /// The device that it is on.
    #[must_use]
    pub fn device(self) -> Option<u32> {
        match self {
            Self::Stream { device, .. } | Self::Graphs { device, .. } | Self::StreamWaits { device, .. } => {
                Some(device)
            }
            _ => None,
        }
    }

    /// Whether slices may lie within each other.
    pub(super) fn nests(self) -> bool {
        matches!(
            self,
            Self::Windows
                | Self::Thread(_)
                | Self::Python(_)
                | Self::Ranges(_)
                | Self::Proxy(_)
                | Self::Channel { .. }
        )
    }
}
