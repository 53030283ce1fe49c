//! What a device did in each of its steps, by name: what a comparison of two runs is made of.

use rustc_hash::FxHashMap;

use crate::by_step::{GapParts, InOrder, Key, StepSums};
use crate::cause::Cause;
use crate::operation::Operation;
use crate::operators::Attributions;
use crate::steps::Window;

/// The longest step whose operations are kept in their order: to find kernels that have another name in another run.
const MOST_IN_ORDER: usize = 20_000;

/// Of (sorted, whole) operations and gaps of a device with these steps, which follow each other.
pub(crate) fn step_sums(
    attributions: &Attributions<'_>,
    operations: &[Operation],
    windows: &[Window],
    gaps: &[GapParts],
) -> StepSums {
    let (know_operators, know_modules) = attributions.know();
    let mut sums = StepSums {
        idle: vec![[0; Cause::ALL.len()]; windows.len()],
        ..StepSums::default()
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
