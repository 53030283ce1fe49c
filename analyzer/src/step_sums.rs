//! What a device did in each of its steps, by name: what a comparison of two runs is made of.

use gputrace_trace::NameId;
use rustc_hash::FxHashMap;

use crate::cause::Cause;
use crate::idle_causes::GapParts;
use crate::kinds::Kind;
use crate::operation_name::Name;
use crate::operations::Operation;
use crate::operators::Attributions;
use crate::steps::Window;

/// The longest step whose operations are kept in their order: to find kernels that have another name in another run.
const MOST_IN_ORDER: usize = 20_000;

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

impl StepSums {
    /// Of (sorted, whole) operations and gaps of a device with these steps, which follow each other.
    pub(crate) fn new(
        attributions: &Attributions<'_>,
        operations: &[Operation],
        windows: &[Window],
        gaps: &[GapParts],
    ) -> Self {
        let (know_operators, know_modules) = attributions.know();
        let mut sums = Self {
            idle: vec![[0; Cause::ALL.len()]; windows.len()],
            ..Self::default()
        };
        let mut places: FxHashMap<Key, usize> = FxHashMap::default();
        let typical = typical(windows);
        let mut in_order = Vec::new();
        let mut step = Steps::new(windows);
        for operation in operations {
            let Some(step) = step.at(operation.start) else {
                continue;
            };
            let duration = operation.end - operation.start;
            let mut add = |key: Key| {
                let place = *places.entry(key).or_insert_with(|| {
                    sums.sums.push((key, Vec::new()));
                    sums.sums.len() - 1
                });
                let steps = &mut sums.sums[place].1;
                match steps.last_mut() {
                    Some((last, count, total)) if *last == step => {
                        *count += 1;
                        *total = total.saturating_add(duration);
                    }
                    _ => steps.push((step, 1, duration)),
                }
            };
            add(Key::Operation(operation.name, operation.kind));
            let (operator, module) = match know_operators || know_modules {
                true => attributions.around(operation.call),
                false => (None, None),
            };
            if know_operators {
                add(Key::Operator(operator));
            }
            if know_modules {
                add(Key::Module(module));
            }
            if typical == Some(step) && in_order.len() <= MOST_IN_ORDER {
                in_order.push(InOrder {
                    name: operation.name,
                    operator,
                    duration_ns: duration,
                });
            }
        }
        let mut step = Steps::new(windows);
        for gap in gaps {
            // A step begins with an operation, so a gap lies in one step.
            if let Some(step) = step.at(gap.start_ns) {
                let causes = sums.idle[step as usize].iter_mut().zip(gap.parts);
                causes.for_each(|(sum, part)| *sum += part);
            }
        }
        sums.typical = typical
            .filter(|_| in_order.len() <= MOST_IN_ORDER)
            .map(|step| (step, in_order));
        sums
    }
}

/// The step of median length.
fn typical(windows: &[Window]) -> Option<u32> {
    let mut order: Vec<u32> = (0..).zip(windows).map(|(place, _)| place).collect();
    order.sort_by_key(|place| {
        let window = &windows[*place as usize];
        (window.end - window.start, *place)
    });
    order.get(order.len() / 2).copied()
}

/// Finds the step of moments that come in order.
struct Steps<'a> {
    windows: &'a [Window],
    next: usize,
}

impl<'a> Steps<'a> {
    fn new(windows: &'a [Window]) -> Self {
        Self { windows, next: 0 }
    }

    fn at(&mut self, moment: i64) -> Option<u32> {
        while self
            .windows
            .get(self.next)
            .is_some_and(|window| window.start <= moment)
        {
            self.next += 1;
        }
        let step = self.next.checked_sub(1)?;
        (moment < self.windows[step].end).then(|| u32::try_from(step).unwrap_or(u32::MAX))
    }
}
