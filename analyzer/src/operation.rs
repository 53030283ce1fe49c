//! One operation of a device.

use gputrace_trace::tables::ApiCalls;

use crate::calls::Call;
use crate::kinds::{Kind, KindFrom};
use crate::operation_name::Name;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    /// Row in its table: kernels, copies, memsets or launches of graphs.
    pub(crate) row: u32,
    /// The call that launched it, as a row of the table of calls; [`NO_CALL`] where that is not recorded.
    pub(crate) call: u32,
    pub(crate) name: Name,
    pub(crate) kind: Kind,
    pub(crate) kind_from: KindFrom,
}

/// No row: the call is not recorded.
pub(crate) const NO_CALL: u32 = u32::MAX;

impl Operation {
    /// The call that launched it.
    #[inline]
    pub(crate) fn call(&self, calls: &ApiCalls) -> Option<Call> {
        (self.call != NO_CALL).then(|| Call::of(self.call, calls))
    }
}
