//! A communicator as NCCL hands it back to us.

/// One communicator; NCCL gets its address as the context. Never freed: NCCL may use it late, and there are few.
pub(super) struct Context {
    pub(super) communicator: u64,
    pub(super) rank: u32,
    /// Of the plugin's interface.
    pub(super) version: u32,
    /// The mask of the NCCL that made it.
    pub(super) mask: usize,
}
