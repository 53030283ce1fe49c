//! When a process was not recorded: between windows, where recording was switched off and on again.

use gputrace_trace::{Interner, Process};

use crate::intervals::{Interval, IntervalSet};

/// The windows in which a process was recorded, by start; none where it was recorded throughout.
pub(crate) fn active_windows(process: &Process, names: &Interner) -> Vec<(i64, i64)> {
    let windows = &process.tables.windows;
    let mut active: Vec<(i64, i64)> = (0..windows.start_ns.len())
        .filter(|&row| names.get(windows.what[row]) == "active")
        .map(|row| {
            let start = windows.start_ns[row].0;
            (start, start.saturating_add(windows.duration_ns[row].0))
        })
        .collect();
    active.sort_unstable();
    active
}

/// The time between a process's windows. What ran then is not known: it is neither busy nor idle.
#[derive(Debug, Default)]
pub(crate) struct Pauses(IntervalSet);

impl Pauses {
    pub(crate) fn of(process: &Process, names: &Interner) -> Self {
        Self::between(&active_windows(process, names))
    }

    /// The time between windows that come sorted by start.
    pub(crate) fn between(active: &[(i64, i64)]) -> Self {
        let Some((first, _)) = active.first() else {
            return Self::default();
        };
        let last = active.iter().map(|(_, end)| *end).max().unwrap_or(*first);
        Self(IntervalSet::union_of_sorted(active.iter().copied()).gaps_within(*first, last))
    }

    #[cfg(test)]
    pub(crate) fn without_operations_ns(&self, busy: &IntervalSet, start: i64, end: i64) -> i64 {
        if self.0.as_slice().is_empty() {
            return 0;
        }
        self.0.intersection(&busy.gaps_within(start, end)).length_ns()
    }

    /// The pauses in which nothing ran that was recorded all the same (what began in a window is recorded to its end).
    pub(crate) fn without_operations(&self, busy: &IntervalSet) -> IntervalSet {
        let pauses = self.0.as_slice();
        let Some((first, last)) = pauses.first().zip(pauses.last()) else {
            return IntervalSet::default();
        };
        self.0.intersection(&busy.gaps_within(first.start, last.end))
    }

    /// The parts of `[from, to)` outside the pauses, in order.
    pub(crate) fn recorded(&self, from: i64, to: i64) -> impl Iterator<Item = (i64, i64)> + '_ {
        let pauses = self.0.as_slice();
        let mut next = pauses.partition_point(|pause| pause.end <= from);
        let mut at = from;
        std::iter::from_fn(move || {
            while at < to {
                let pause = pauses.get(next).filter(|pause| pause.start < to);
                let begun = at;
                let end = pause.map_or(to, |pause| pause.start);
                at = pause.map_or(to, |pause| pause.end);
                next += 1;
                if end > begun {
                    return Some((begun, end));
                }
            }
            None
        })
    }

    /// The first pause that begins after `from` and before `to`.
    pub(crate) fn first_between(&self, from: i64, to: i64) -> Option<Interval> {
        let pauses = self.0.as_slice();
        let first = pauses.partition_point(|pause| pause.start <= from);
        pauses.get(first).copied().filter(|pause| pause.start < to)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::tables::Window;
    use gputrace_trace::{DurationNs, Table, TimeNs};

    use super::*;

    fn pauses(windows: &[(i64, i64)]) -> Pauses {
        let (mut process, mut names) = (Process::default(), Interner::default());
        for (start, end) in windows {
            process.tables.windows.push(Window {
                start_ns: TimeNs(*start),
                duration_ns: DurationNs(end - start),
                what: names.intern("active"),
                ..Window::default()
            });
        }
        process.tables.windows.push(Window {
            start_ns: TimeNs(0),
            duration_ns: DurationNs(1_000),
            what: names.intern("taken by another profiler"),
            ..Window::default()
        });
        Pauses::of(&process, &names)
    }

    #[test]
    fn what_lies_between_windows_is_a_pause() {
        let pauses = pauses(&[(50, 60), (10, 20), (80, 90)]);
        assert_eq!(
            pauses.recorded(0, 100).collect::<Vec<_>>(),
            [(0, 20), (50, 60), (80, 100)]
        );
        assert_eq!(pauses.recorded(25, 45).count(), 0);
        assert_eq!(pauses.recorded(25, 55).collect::<Vec<_>>(), [(50, 55)]);
        assert_eq!(pauses.recorded(52, 58).collect::<Vec<_>>(), [(52, 58)]);
        assert_eq!(pauses.recorded(15, 60).collect::<Vec<_>>(), [(15, 20), (50, 60)]);
        let first = pauses.first_between(12, 100).expect("a pause");
        assert_eq!((first.start, first.end), (20, 50));
        assert_eq!(pauses.first_between(20, 60), None);
        // An operation that began in the first window ran until 25.
        let busy = IntervalSet::union_of([(12, 25), (52, 60), (85, 88)]);
        assert_eq!(pauses.without_operations_ns(&busy, 12, 88), 25 + 20);
    }

    #[test]
    fn without_windows_there_are_no_pauses() {
        let pauses = pauses(&[]);
        assert_eq!(pauses.recorded(0, 100).collect::<Vec<_>>(), [(0, 100)]);
        assert_eq!(pauses.first_between(0, 100), None);
    }
}
