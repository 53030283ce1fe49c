//! What is known of a device when advice is looked for, and what advice is.

use gputrace_trace::{Interner, Process};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::kinds::Kind;
use crate::measures::ratio;
use crate::operations::Operation;
use crate::operators::branches::Branches;
use crate::operators::launched::Launched;
use crate::operators::launched_by::LaunchedBy;
use crate::operators::nesting::NONE;
use crate::operators::peaks::Peaks;
use crate::operators::products::{ProductAnalysis, Worked};
use crate::word::Word;

/// What takes less than this share of a device's time is not worth looking at.
const LEAST_SHARE: f64 = 0.02;

/// Something that a device's operators could do better.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Advice {
    /// What it is about, without figures: what is told of several devices is one finding.
    pub(crate) about: String,
    pub(crate) facts: Facts,
    pub(crate) text: String,
    /// The figures of this device.
    pub(crate) evidence: String,
    /// The operations that would take less.
    pub(crate) operations: Vec<Better>,
    /// Host time that would be gone: thread, start and end.
    pub(crate) host: Vec<(u32, i64, i64)>,
    /// Whether all of that is surely saved; else it is at most that, and perhaps nothing.
    pub(crate) is_sure: bool,
    /// "kernel" or "host", its name and when: one place where it can be seen.
    #[serde(deserialize_with = "crate::word::known_seen")]
    pub(crate) seen: (Word, String, i64),
}

/// An operation that would take less.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Better {
    pub(crate) kind: Kind,
    /// Its row in the table of its kind.
    pub(crate) row: u32,
    /// What it takes.
    pub(crate) work_ns: i64,
    /// What it would take at best.
    pub(crate) at_best_ns: i64,
}

impl Better {
    pub(super) fn of(operation: &Operation, at_best_ns: i64) -> Self {
        Self {
            kind: operation.kind,
            row: operation.row,
            work_ns: operation.end - operation.start,
            at_best_ns,
        }
    }

    /// What would be saved of it.
    pub(crate) fn saved_ns(&self) -> i64 {
        self.work_ns.saturating_sub(self.at_best_ns)
    }
}

/// What is known of a device when advice is looked for.
pub(in crate::operators) struct Seen<'a> {
    pub(in crate::operators) process: &'a Process,
    pub(in crate::operators) names: &'a Interner,
    pub(in crate::operators) by: &'a LaunchedBy<'a>,
    /// By start.
    pub(in crate::operators) operations: &'a [Operation],
    /// Those of them whose launch is recorded.
    pub(in crate::operators) launched: &'a [Launched],
    pub(in crate::operators) branches: &'a Branches<2>,
    pub(in crate::operators) worked: &'a Worked,
    /// With the numbers of their sizes.
    pub(in crate::operators) products: &'a [(u32, ProductAnalysis)],
    pub(in crate::operators) peaks: Option<Peaks>,
    /// Sum of durations of all operations.
    pub(in crate::operators) all_ns: i64,
    /// Most memory that was held at once, and all that the device has.
    pub(in crate::operators) memory: Option<(u64, u64)>,
}

impl<'a> Seen<'a> {
    pub(super) fn operation(&self, launched: &Launched) -> &'a Operation {
        &self.operations[launched.place as usize]
    }

    /// What operators launched whose work is of the size with this number.
    pub(super) fn of_size(&self, size: u32) -> impl Iterator<Item = &'a Operation> {
        let launched = self.launched.iter();
        launched
            .filter(move |one| self.size(one.operator) == Some(size))
            .map(|one| self.operation(one))
    }

    /// The size of the work that the operator at a place is a part of.
    fn size(&self, operator: u32) -> Option<u32> {
        let number = self.branches.places.binary_search(&operator).ok()?;
        self.worked.size_of(number)
    }

    /// The name of an operator.
    pub(super) fn operator_name(&self, place: u32) -> &'a str {
        let row = self.by.operators.row(place);
        self.names.get(self.process.tables.operators.name[row])
    }

    /// The operators around the one at a place, itself first.
    pub(super) fn operators_around(&self, place: u32) -> impl Iterator<Item = u32> {
        let first = (place != NONE).then_some(place);
        std::iter::successors(first, |place| self.by.operators.parent(*place))
    }

    pub(super) fn operation_name(&self, operation: &Operation) -> String {
        operation.name.text(self.names).into_owned()
    }

    /// A time over that of all operations, if it is worth looking at.
    pub(super) fn share(&self, time_ns: i64) -> Option<f64> {
        ratio(time_ns, self.all_ns).filter(|share| *share >= LEAST_SHARE)
    }
}

/// The sum of some times; damaged recordings have times of many years.
pub(super) fn sum(times: impl Iterator<Item = i64>) -> i64 {
    times.fold(0, i64::saturating_add)
}

/// "12.3 %".
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The longest of some operations.
pub(super) fn longest<'a>(operations: impl Iterator<Item = &'a Operation>) -> Option<&'a Operation> {
    operations.max_by_key(|operation| {
        (
            operation.end - operation.start,
            std::cmp::Reverse(operation.start),
        )
    })
}
