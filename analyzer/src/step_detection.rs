//! Steps where no range names them: a training loop launches the same operations again and again.

use std::sync::Arc;

use gputrace_trace::TimeNs;
use gputrace_trace::step_detection::{Ran, find};

use crate::operations::Operation;
use crate::steps::Window;

/// Guesses the steps of a device from its (sorted) operations: see [`find`].
pub(crate) fn detect(operations: &[Operation]) -> Vec<Window> {
    let ran = |operation: &Operation| Ran {
        stream: operation.stream,
        name: operation.name,
        start: TimeNs(operation.start),
        end: TimeNs(operation.end),
    };
    let Some(anchor) = find(operations, ran) else {
        return Vec::new();
    };
    let begins = |operation: &&Operation| operation.stream == anchor.stream && operation.name == anchor.name;
    let starts: Vec<i64> = operations
        .iter()
        .filter(begins)
        .map(|operation| operation.start)
        .collect();
    let last_end = operations
        .iter()
        .map(|operation| operation.end)
        .max()
        .unwrap_or(0);
    (0u64..)
        .zip(&starts)
        .map(|(number, &start)| Window {
            number,
            thread: 0,
            name: Arc::from(format!("step {number} (detected)")),
            start,
            end: starts.get(number as usize + 1).copied().unwrap_or(last_end),
            host: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use gputrace_trace::NameId;

    use super::*;
    use crate::kinds::{Kind, KindFrom};
    use crate::operations::Name;

    fn run(names: &[u32], idle_before: &dyn Fn(u32) -> i64) -> Vec<Operation> {
        let mut at = 0;
        names
            .iter()
            .map(|&name| {
                at += idle_before(name);
                let start = at;
                at += 10;
                Operation {
                    start,
                    end: at,
                    context: 1,
                    stream: 7,
                    correlation: 0,
                    row: 0,
                    call: crate::operations::NO_CALL,
                    name: Name::Kernel(NameId::new(name)),
                    kind: Kind::Compute,
                    kind_from: KindFrom::Record,
                }
            })
            .collect()
    }

    #[test]
    fn what_repeats_is_a_step_that_begins_after_the_longest_idle_time() {
        // A step is forward 1 2 2 2 3, backward 4 5 5 5 6; the host is away before 1.
        let step = [1, 2, 2, 2, 3, 4, 5, 5, 5, 6];
        let names: Vec<u32> = [6].into_iter().chain(step.repeat(4)).collect();
        let operations = run(&names, &|name| if name == 1 { 100 } else { 0 });
        let windows = detect(&operations);
        let starts: Vec<i64> = windows.iter().map(|window| window.start).collect();
        assert_eq!(starts, [110, 310, 510, 710]);
        assert_eq!(windows[3].end, 810);
        assert!(windows.iter().all(|window| window.host.is_none()));
    }

    #[test]
    fn what_does_not_repeat_has_no_steps() {
        let names: Vec<u32> = (0..50).collect();
        assert!(detect(&run(&names, &|_| 0)).is_empty());
        assert!(detect(&run(&[1; 50], &|_| 0)).is_empty());
        assert!(detect(&[]).is_empty());
    }
}
