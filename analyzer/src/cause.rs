//! Causes of idle time.

/// Why a device was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The launching thread did something else.
    HostLate,
    /// From the launch call to the operation's start.
    LaunchLatency,
    /// The stream waited for an event of another.
    EventWait,
    /// The launching thread waited for other ranks.
    PeerWait,
    /// The launching thread waited for room in a stream's queue.
    QueueFull,
    /// No thread did anything that is recorded.
    NothingSubmitted,
    /// The launch call is not recorded.
    Unknown,
}

impl Cause {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::HostLate,
        Self::LaunchLatency,
        Self::EventWait,
        Self::PeerWait,
        Self::QueueFull,
        Self::NothingSubmitted,
        Self::Unknown,
    ];

    /// The word for it in an analysis.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    pub(crate) const NAMES: [&str; 7] = [
        "host_late",
        "launch_latency",
        "event_wait",
        "peer_wait",
        "queue_full",
        "nothing_submitted",
        "unknown",
    ];
}
