//! What a thread is doing in NCCL.

use super::records::Call;

/// What a thread is doing in NCCL.
#[derive(Default)]
pub(crate) struct State {
    /// The plan of the kernel that is being launched; 0 outside.
    pub(super) launching: u64,
    /// The plan of the last kernel launch, until its operations have been told.
    pub(super) plan: u64,
    /// The stream of that launch.
    pub(super) stream: u64,
    /// Whether a kernel was launched on this thread since the group began.
    pub(super) launched: bool,
    /// The group of calls that is open, whose number CUPTI has; 0 outside.
    pub(super) group: u64,
    /// Whether calls of that group are captured into a CUDA graph.
    pub(super) captured: bool,
    /// What the user calls, by NVTX.
    pub(super) calls: Calls,
}

/// The calls of a thread.
#[derive(Default)]
pub(crate) struct Calls {
    /// Open ranges of NCCL's domain.
    pub(super) depth: u32,
    /// The call that is going on, with the depth of its range, and whether it is told of by NVTX alone.
    pub(super) current: Option<(Call, u32, bool)>,
    /// The plan that this thread's launches carry because of a range, with the depth of that; 0 for none.
    pub(super) plan: u64,
    pub(super) plan_depth: u32,
    /// Groups that are open, and the plan of the outermost, where NCCL does not tell of launches.
    pub(super) groups: u32,
    pub(super) group_plan: u64,
    /// Calls of the open group, where NCCL does not say itself which operation is of which.
    pub(super) pending: Vec<Call>,
}

impl Calls {
    /// The call that is going on, if it is on that communicator.
    pub(super) fn current(&self, communicator: u64) -> Option<Call> {
        self.current
            .map(|(call, ..)| call)
            .filter(|call| call.communicator == communicator)
    }

    /// The plan that a range gave.
    pub(super) fn plan(&self) -> u64 {
        if self.plan != 0 {
            self.plan
        } else {
            self.group_plan
        }
    }

    /// The call of an operation, where that is not said: the one that is going on, or the first of the group that is on
    /// the same communicator and of so many bytes.
    pub(super) fn find(&mut self, communicator: u64, function: &[u8], bytes: u64) -> Option<Call> {
        let is_transfer = matches!(function, b"Send" | b"Recv");
        let fits = |call: &Call| {
            call.communicator == communicator
                && call.bytes == bytes
                && (call.function.name().as_bytes() == function
                    || is_transfer && call.function.is_made_of_transfers())
        };
        if let Some((call, ..)) = self.current.filter(|(call, ..)| fits(call)) {
            return Some(call);
        }
        let place = self.pending.iter().position(fits)?;
        // The transfers of an all-to-all are many; others are one operation each.
        if self.pending[place].function.is_made_of_transfers() {
            Some(self.pending[place])
        } else {
            Some(self.pending.remove(place))
        }
    }
}
