//! Active windows of a schedule, each of which is a profile of its own.

use std::collections::BTreeSet;

use gputrace_trace::{Derived, Recording};

use crate::export::layout::{Layout, Slice, Source, first_moment_ns};

/// What the collector calls a window in which it kept everything.
const ACTIVE: &str = "active";

/// The repeats of a recording's schedule; one, where there was none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::export) struct Spans {
    /// By repeat: when the first process began it, nanoseconds since the epoch. No two are equal.
    pub(in crate::export) stamps_ns: Vec<i64>,
    /// By process and repeat: when it began it itself.
    starts_ns: Vec<Vec<i64>>,
}

impl Spans {
    /// The repeats that anything happened in: of a part of a recording the times of all repeats are still known.
    pub(in crate::export) fn of(recording: &Recording, derived: &Derived) -> Self {
        let mut spans = Self::of_windows(recording);
        if spans.count() == 1 {
            return spans;
        }
        let mut is_used = vec![false; spans.count()];
        for number in 0..recording.processes.len() {
            let layout = Layout::new(recording, derived, number);
            for slice in layout.rows.iter().flat_map(|row| &row.slices) {
                if slice.source() != Source::Window {
                    is_used[spans.span_of(&layout, slice)] = true;
                }
            }
        }
        if !is_used.contains(&true) {
            is_used[0] = true;
        }
        for all in spans.starts_ns.iter_mut().chain([&mut spans.stamps_ns]) {
            let mut used = is_used.iter();
            all.retain(|_| used.next() == Some(&true));
        }
        spans
    }

    fn of_windows(recording: &Recording) -> Self {
        let active = recording.names.find(ACTIVE);
        // By process: number and start of each repeat.
        let found: Vec<Vec<(u64, i64)>> = recording
            .processes
            .iter()
            .map(|process| {
                let windows = &process.tables.windows;
                (0..windows.start_ns.len())
                    .filter(|row| Some(windows.what[*row]) == active)
                    .filter_map(|row| Some((windows.repeat[row]?, windows.start_ns[row].0)))
                    .collect()
            })
            .collect();
        let repeats: BTreeSet<u64> = found.iter().flatten().map(|(repeat, _)| *repeat).collect();
        if repeats.len() < 2 {
            return Self {
                stamps_ns: vec![first_moment_ns(recording).unwrap_or(0).max(0)],
                starts_ns: Vec::new(),
            };
        }
        let begun = |windows: &[(u64, i64)], repeat: u64| {
            let of_repeat = windows.iter().filter(|(number, _)| *number == repeat);
            of_repeat.map(|(_, start)| *start).min()
        };
        let mut stamps_ns: Vec<i64> = Vec::with_capacity(repeats.len());
        for repeat in &repeats {
            let first = found.iter().filter_map(|windows| begun(windows, *repeat)).min();
            let after = stamps_ns.last().map_or(0, |last| last + 1);
            stamps_ns.push(first.unwrap_or(0).max(after));
        }
        let starts_ns = found
            .iter()
            .map(|windows| {
                let own = repeats.iter().map(|repeat| begun(windows, *repeat));
                own.zip(&stamps_ns)
                    .map(|(own, stamp)| own.unwrap_or(*stamp))
                    .collect()
            })
            .collect();
        Self { stamps_ns, starts_ns }
    }

    /// How many there are.
    pub(in crate::export) fn count(&self) -> usize {
        self.stamps_ns.len()
    }

    /// In which of them a slice is: an operation in that of its call, so that both are in one file.
    pub(in crate::export) fn span_of(&self, layout: &Layout<'_>, slice: &Slice) -> usize {
        if self.count() == 1 {
            return 0;
        }
        let launch = match slice.source().is_launched() {
            true => layout.launch(layout.correlation(slice)),
            false => None,
        };
        let begins = launch.map_or(slice.start_ns, |launch| launch.start_ns);
        self.place(layout.number, begins)
    }

    /// In which of them something of a process begins: the last that had begun, or the first.
    pub(in crate::export) fn place(&self, process: usize, time_ns: i64) -> usize {
        let starts = self.starts_ns.get(process).unwrap_or(&self.stamps_ns);
        starts
            .partition_point(|start| *start <= time_ns)
            .saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::tables::Window;
    use gputrace_trace::{DurationNs, Process, Table, TimeNs};

    use super::*;

    fn recording(windows: &[&[(u64, i64)]]) -> Recording {
        let mut recording = Recording::default();
        let what = recording.names.intern(ACTIVE);
        for windows in windows {
            let mut process = Process::default();
            for (repeat, start) in *windows {
                process.tables.windows.push(Window {
                    start_ns: TimeNs(*start),
                    duration_ns: DurationNs(10),
                    what,
                    repeat: Some(*repeat),
                    ..Window::default()
                });
            }
            recording.processes.push(process);
        }
        recording
    }

    #[test]
    fn each_repeat_is_a_span_of_all_workers() {
        // The second process missed the first window.
        let spans = Spans::of_windows(&recording(&[&[(0, 100), (1, 200)], &[(1, 195)]]));
        assert_eq!(spans.stamps_ns, [100, 195]);
        let places = |process| [90, 100, 196, 200, 900].map(|time| spans.place(process, time));
        assert_eq!(places(0), [0, 0, 0, 1, 1]);
        assert_eq!(places(1), [0, 0, 1, 1, 1]);
    }

    #[test]
    fn repeats_without_events_are_none() {
        let mut recording = recording(&[&[(0, 100), (1, 200), (2, 300)]]);
        let copies = &mut recording.processes[0].tables.copies;
        for time in [110, 310] {
            copies.push(gputrace_trace::tables::Copy {
                start_ns: TimeNs(time),
                ..gputrace_trace::tables::Copy::default()
            });
        }
        let spans = Spans::of(&recording, &Derived::default());
        assert_eq!(spans.stamps_ns, [100, 300]);
        assert_eq!([110, 210, 310].map(|time| spans.place(0, time)), [0, 0, 1]);
    }

    #[test]
    fn without_repeats_there_is_one() {
        for windows in [&[(3, 50)][..], &[]] {
            let spans = Spans::of(&recording(&[windows]), &Derived::default());
            assert_eq!((spans.count(), spans.place(0, 1), spans.place(0, 999)), (1, 0, 0));
        }
    }
}
