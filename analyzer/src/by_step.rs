//! What a device did in each of its steps, as it is kept.

use gputrace_trace::NameId;

use crate::cause::Cause;
use crate::kinds::Kind;
use crate::operation_name::Name;

/// A gap's parts by cause, in the order of [`Cause::ALL`]; they sum to its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GapParts {
    pub(crate) start_ns: i64,
    pub(crate) parts: [i64; Cause::ALL.len()],
}

/// What took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Operations of one name and kind.
    Operation(Name, Kind),
    /// What an operator launched itself; `None` is what no operator launched.
    Operator(Option<NameId>),
    /// The same of modules.
    Module(Option<NameId>),
}

/// What a key took in the steps in which it was there: step, how many operations, the sum of their durations.
pub(crate) type InSteps = Vec<(u32, u32, i64)>;

/// One operation of a step, in the order in which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InOrder {
    pub(crate) name: Name,
    /// The operator that launched it.
    pub(crate) operator: Option<NameId>,
    pub(crate) duration_ns: i64,
}

/// The steps of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepSums {
    /// By what took time, in the order in which it was met.
    pub(crate) sums: Vec<(Key, InSteps)>,
    /// By step: idle time by cause.
    pub(crate) idle: Vec<[i64; Cause::ALL.len()]>,
    /// The step of median length, and what ran in it; `None` where that is too much.
    pub(crate) typical: Option<(u32, Vec<InOrder>)>,
}
