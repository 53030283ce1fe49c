//! An optimizer that goes over its tensors one by one.

use super::seen::{Advice, Seen, sum};
use crate::facts::Facts;
use crate::operators::nesting::NONE;
use crate::units::duration;

/// So many operations in one step of an optimizer are a loop over tensors.
const MANY: u64 = 100;
/// From this share of operations for many tensors at once on it is none.
const AT_ONCE: f64 = 0.5;

/// PyTorch's range around an optimizer's step (torch/optim/optimizer.py): "Optimizer.step#AdamW.step".
pub(super) fn is_step(name: &str) -> bool {
    name.starts_with("Optimizer.step#")
}

/// Operators that take lists of tensors.
fn takes_lists(name: &str) -> bool {
    name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_")
}

/// A step of an optimizer.
#[derive(Clone, Copy)]
struct Step {
    thread: u32,
    start: i64,
    end: i64,
}

pub(super) fn advice(seen: &Seen<'_>) -> Option<Advice> {
    let (steps, name) = steps(seen)?;
    let calls = &seen.process.tables.api_calls;
    let (mut all, mut at_once, mut time_ns) = (0u64, 0u64, 0i64);
    let mut first = None;
    for one in seen.launched {
        let operation = seen.operation(one);
        let Some(call) = operation.call(calls) else {
            continue;
        };
        let after = steps.partition_point(|step| (step.thread, step.start) <= (call.thread, call.start));
        let inside = steps[..after]
            .last()
            .is_some_and(|step| step.thread == call.thread && call.start < step.end);
        if !inside {
            continue;
        }
        all += 1;
        time_ns = time_ns.saturating_add(operation.end - operation.start);
        let in_list = one.operator != NONE
            && seen
                .operators_around(one.operator)
                .any(|place| takes_lists(seen.operator_name(place)));
        at_once += u64::from(in_list);
        first = first.or(Some(operation));
    }
    let count = steps.len() as u64;
    if all < MANY * count || at_once as f64 >= AT_ONCE * all as f64 {
        return None;
    }
    let first = first?;
    let host_ns = sum(steps.iter().map(|step| step.end - step.start));
    let mean = |ns: i64| duration(ns / i64::try_from(count).unwrap_or(1));
    Some(Advice {
        about: format!("optimizer {name}"),
        facts: Facts::OptimizerLoop {
            name: name.to_owned(),
            steps: count,
            operations: all,
            time_ns,
            host_ns,
        },
        text: "The optimizer goes over its tensors one by one: foreach=True or fused=True launches a few kernels for all of them".to_owned(),
        evidence: format!(
            "a step of {} launches {} operations, takes {} on the host and {} of GPU time",
            name.trim_start_matches("Optimizer.step#"),
            all / count,
            mean(host_ns),
            mean(time_ns)
        ),
        operations: Vec::new(),
        host: steps.iter().map(|step| (step.thread, step.start, step.end)).collect(),
        is_sure: false,
        seen: ("kernel", seen.operation_name(first), first.start),
    })
}

/// The steps of optimizers, by thread and start, and what the first is called. They are operators or ranges, by PyTorch's version.
fn steps<'a>(seen: &Seen<'a>) -> Option<(Vec<Step>, &'a str)> {
    let (operators, markers) = (&seen.process.tables.operators, &seen.process.tables.markers);
    let nesting = &seen.by.operators;
    let of_operators = nesting.places().filter_map(|place| {
        let row = nesting.row(place);
        let step = Step {
            thread: nesting.thread(place),
            start: nesting.start(place),
            end: nesting.end(place),
        };
        is_step(seen.names.get(operators.name[row])).then_some((step, operators.name[row]))
    });
    let of_ranges = (0..markers.start_ns.len()).filter_map(|row| {
        let start = markers.start_ns[row].0;
        let step = Step {
            thread: markers.thread[row],
            start,
            end: start.saturating_add(markers.duration_ns[row]?.0),
        };
        is_step(seen.names.get(markers.name[row])).then_some((step, markers.name[row]))
    });
    let mut steps: Vec<_> = of_operators.collect();
    if steps.is_empty() {
        steps = of_ranges.collect();
    }
    steps.sort_by_key(|(step, _)| (step.thread, step.start));
    let name = steps.first()?.1;
    Some((
        steps.into_iter().map(|(step, _)| step).collect(),
        seen.names.get(name),
    ))
}
