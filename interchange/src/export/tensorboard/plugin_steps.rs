//! Where torch-tb-profiler 0.4.3 sees the steps of a file.
//!
//! The plugin does not take the steps' ranges as they stand: a step lasts until the last operation that was launched inside
//! its range has ended, the next one begins there, and the last is left out where it seems cut short. What of a file counts
//! for which step follows from that, and a step that is left no time at all loses the whole file (the plugin divides by its
//! length). So the exporter works the same out beforehand. Times are nanoseconds.

/// A call that the plugin takes for a launch, with what ran for it on devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaunchCall {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// Start of the first operation, end of the last one, and how many; nothing for a call that launched nothing.
    pub(super) operations: Option<(i64, i64, u64)>,
}

/// The steps as the plugin has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PluginSteps {
    /// By place in the list that was given: start and end. A step whose end is its start must not be written.
    pub(super) steps: Vec<(i64, i64)>,
    /// How many of them, from the first on, the plugin shows.
    pub(super) shown: usize,
}

/// `ranges` are the steps' ranges and `calls` the calls of the host, both by start; `ends` are the ends of operations that no
/// call inside any step launched.
pub(super) fn plugin_steps(ranges: &[(i64, i64)], calls: &[LaunchCall], ends: &[i64]) -> PluginSteps {
    let mut on_device: Vec<Option<(i64, i64, u64)>> = vec![None; ranges.len()];
    let mut calls = calls.iter().peekable();
    for (range, found) in ranges.iter().zip(&mut on_device) {
        while let Some(call) = calls.next_if(|call| call.start_ns < range.1 || call.end_ns <= range.1) {
            let is_inside = call.start_ns >= range.0 && call.end_ns <= range.1;
            let Some((start, end, count)) = call.operations.filter(|_| is_inside) else {
                continue;
            };
            *found = Some(match *found {
                None => (start, end, count),
                Some((first, last, before)) => (first.min(start), last.max(end), before + count),
            });
        }
    }
    let mut shown = PluginSteps {
        steps: ranges.to_vec(),
        shown: ranges.len(),
    };
    if on_device.iter().all(Option::is_none) {
        return shown;
    }
    let mut before = ranges[0].0;
    if let Some((first, _, _)) = on_device[0] {
        let earlier = ends.iter().copied().filter(|end| *end < first);
        before = earlier.fold(before, i64::max);
    }
    for (step, found) in shown.steps.iter_mut().zip(&on_device) {
        let start = before.max(step.0);
        let last = found.map_or(step.1, |(_, last, _)| last.max(step.1));
        *step = (start, last.max(start));
        before = step.1;
    }
    let count = |place: usize| on_device[place].map_or(0, |(_, _, count)| count);
    if let Some(last) = (0..ranges.len()).rev().find(|place| count(*place) > 0) {
        // 0.8 times as many as before, in whole numbers.
        let is_short = last > 0 && count(last - 1) * 4 > count(last) * 5;
        shown.shown = if is_short { last } else { last + 1 };
    }
    shown
}

/// Which of the steps can be written so that each is left some time, by place.
pub(super) fn writable_steps(ranges: &[(i64, i64)], calls: &[LaunchCall], ends: &[i64]) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..ranges.len()).collect();
    loop {
        let left: Vec<(i64, i64)> = kept.iter().map(|place| ranges[*place]).collect();
        let steps = plugin_steps(&left, calls, ends).steps;
        let before = kept.len();
        let mut steps = steps.iter();
        kept.retain(|_| steps.next().is_some_and(|(start, end)| end > start));
        if kept.len() == before {
            return kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start_ns: i64, end_ns: i64, operations: Option<(i64, i64, u64)>) -> LaunchCall {
        LaunchCall {
            start_ns,
            end_ns,
            operations,
        }
    }

    #[test]
    fn steps_last_until_their_operations_have_ended() {
        let calls = [
            call(10, 20, Some((30, 150, 1))),
            call(110, 120, Some((150, 260, 1))),
            call(130, 131, None),
        ];
        let steps = plugin_steps(&[(0, 100), (100, 200)], &calls, &[]);
        assert_eq!(steps.steps, [(0, 150), (150, 260)]);
        assert_eq!(steps.shown, 2);
    }

    #[test]
    fn what_ends_before_the_first_steps_operations_delays_it() {
        let calls = [call(10, 20, Some((30, 50, 1)))];
        let steps = plugin_steps(&[(0, 100)], &calls, &[25, 30, 60]);
        assert_eq!(steps.steps, [(25, 100)]);
    }

    #[test]
    fn without_launches_the_ranges_stand() {
        let steps = plugin_steps(
            &[(0, 100), (100, 200)],
            &[call(90, 110, Some((120, 130, 1)))],
            &[],
        );
        assert_eq!(steps.steps, [(0, 100), (100, 200)]);
        assert_eq!(plugin_steps(&[], &[], &[1]), PluginSteps::default());
    }

    #[test]
    fn a_last_step_with_few_operations_is_left_out() {
        let calls = [
            call(10, 20, Some((30, 50, 5))),
            call(110, 120, Some((130, 150, 4))),
        ];
        assert_eq!(plugin_steps(&[(0, 100), (100, 200)], &calls, &[]).shown, 2);
        let calls = [
            call(10, 20, Some((30, 50, 9))),
            call(110, 120, Some((130, 150, 7))),
        ];
        assert_eq!(plugin_steps(&[(0, 100), (100, 200)], &calls, &[]).shown, 1);
        assert_eq!(plugin_steps(&[(0, 100), (100, 200)], &calls[..1], &[]).shown, 1);
    }

    #[test]
    fn a_step_without_any_time_is_not_written() {
        // The second launches nothing, and ends before the first one's operations do.
        let calls = [
            call(10, 20, Some((30, 300, 1))),
            call(210, 220, Some((300, 400, 1))),
        ];
        let ranges = [(0, 100), (100, 200), (200, 310)];
        assert_eq!(plugin_steps(&ranges, &calls, &[]).steps[1], (300, 300));
        assert_eq!(writable_steps(&ranges, &calls, &[]), [0, 2]);
        assert_eq!(writable_steps(&[(5, 5)], &[], &[]), [0usize; 0]);
    }
}
