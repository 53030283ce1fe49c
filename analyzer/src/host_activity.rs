//! What a host thread was doing during given stretches of time.

use std::collections::BTreeMap;

use gputrace_trace::{Interner, NameId, Process};
use rustc_hash::FxHashMap;

/// The innermost thing that a thread was doing, as far as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// Waiting for other ranks in an operation of the host (Gloo, MPI, a barrier).
    WaitingForPeers(NameId),
    /// Getting the next batch.
    DataLoading(NameId),
    /// A call that waits for the GPU.
    Synchronization(NameId),
    /// Another call of CUDA; with the row of the call.
    Call(NameId, u32),
    /// A range of the program.
    Range(NameId),
    /// An operator of the framework.
    Operator(NameId),
    /// Nothing that is recorded.
    Nothing,
}

impl Activity {
    /// In words, for a breakdown.
    pub(crate) fn text(self, names: &Interner) -> String {
        match self {
            Self::WaitingForPeers(name) => format!("peers: {}", names.get(name)),
            Self::DataLoading(name) => format!("data loading: {}", names.get(name)),
            Self::Synchronization(name) => format!("synchronization: {}", names.get(name)),
            Self::Call(name, _) => format!("call: {}", names.get(name)),
            Self::Range(name) => format!("range: {}", names.get(name)),
            Self::Operator(name) => format!("operator: {}", names.get(name)),
            Self::Nothing => "nothing recorded".to_owned(),
        }
    }
}

/// What a name says of an interval on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Meaning {
    loads_data: bool,
    waits_for_peers: bool,
    synchronizes: bool,
}

fn meaning(name: &str) -> Meaning {
    let lower = name.to_ascii_lowercase();
    Meaning {
        // PyTorch's "enumerate(DataLoader)#...__next__", and what people call their own ranges.
        loads_data: lower.contains("dataloader")
            || lower.contains("datapipe")
            || lower.contains("data_load")
            || lower.contains("data load")
            || lower.contains("load batch")
            || lower.contains("load_batch"),
        waits_for_peers: lower.starts_with("gloo:")
            || lower.starts_with("mpi:")
            || name.starts_with("MPI_")
            || lower.starts_with("c10d::barrier")
            || lower == "nccl:barrier"
            || lower.starts_with("ncclcomminit"),
        synchronizes: (name.starts_with("cu") || name.starts_with("hip")) && lower.contains("synchronize"),
    }
}

/// Which table an interval is from. Of two that begin and end together, the later one here is the inner one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Range,
    Operator,
    Call,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    start: i64,
    end: i64,
    name: NameId,
    source: Source,
    row: u32,
    meaning: Meaning,
}

/// Sorted, disjoint stretches of time, and where the last look at them was: intervals come nearly in order.
struct Stretches<'a> {
    all: &'a [(i64, i64)],
    near: usize,
}

impl Stretches<'_> {
    /// Whether an interval overlaps any of them.
    #[inline]
    fn overlap(&mut self, start: i64, end: i64) -> bool {
        // The first that ends after the interval's start.
        let is_first = |place: usize| {
            (place == 0 || self.all[place - 1].1 <= start)
                && self.all.get(place).is_none_or(|stretch| stretch.1 > start)
        };
        if !is_first(self.near) {
            self.near = if self.near < self.all.len() && is_first(self.near + 1) {
                self.near + 1
            } else {
                self.all.partition_point(|(_, stretch_end)| *stretch_end <= start)
            };
        }
        self.all
            .get(self.near)
            .is_some_and(|(stretch_start, _)| *stretch_start < end)
    }
}

/// Calls `visit` with every recorded interval of the process: its thread, table, row, name, start and end.
fn each_interval(process: &Process, mut visit: impl FnMut(u32, Source, u32, NameId, i64, i64)) {
    let tables = &process.tables;
    let calls = &tables.api_calls;
    for (index, row) in (0..calls.start_ns.len()).zip(0u32..) {
        let start = calls.start_ns[index].0;
        let end = start.saturating_add(calls.duration_ns[index].0);
        visit(
            calls.thread[index],
            Source::Call,
            row,
            calls.name[index],
            start,
            end,
        );
    }
    let operators = &tables.operators;
    for (index, row) in (0..operators.start_ns.len()).zip(0u32..) {
        let start = operators.start_ns[index].0;
        let end = start.saturating_add(operators.duration_ns[index].0);
        visit(
            operators.thread[index],
            Source::Operator,
            row,
            operators.name[index],
            start,
            end,
        );
    }
    let markers = &tables.markers;
    for (index, row) in (0..markers.start_ns.len()).zip(0u32..) {
        if let Some(duration) = markers.duration_ns[index] {
            let start = markers.start_ns[index].0;
            let end = start.saturating_add(duration.0);
            visit(
                markers.thread[index],
                Source::Range,
                row,
                markers.name[index],
                start,
                end,
            );
        }
    }
}

/// What each of some threads was doing in each of its stretches of time (sorted and disjoint): calls `visit` with the
/// thread, a stretch's number and the parts of it, in order, that together are the stretch.
pub(crate) fn activities(
    process: &Process,
    names: &Interner,
    stretches: &BTreeMap<u32, Vec<(i64, i64)>>,
    mut visit: impl FnMut(u32, usize, Activity, i64, i64),
) {
    let mut meanings: FxHashMap<NameId, Meaning> = FxHashMap::default();
    let mut threads: FxHashMap<u32, (Stretches<'_>, Vec<Interval>)> = stretches
        .iter()
        .map(|(thread, all)| (*thread, (Stretches { all, near: 0 }, Vec::new())))
        .collect();
    each_interval(process, |thread, source, row, name, start, end| {
        let Some((stretches, intervals)) = threads.get_mut(&thread) else {
            return;
        };
        if start < end && stretches.overlap(start, end) {
            let meaning = *meanings.entry(name).or_insert_with(|| meaning(names.get(name)));
            intervals.push(Interval {
                start,
                end,
                name,
                source,
                row,
                meaning,
            });
        }
    });
    for (&thread, stretches) in stretches {
        let mut intervals = threads
            .remove(&thread)
            .map_or_else(Vec::new, |(_, intervals)| intervals);
        // An outer interval comes before those that it encloses. Of equal ones the order must not be that of the file.
        intervals.sort_by(|a, b| {
            let key =
                |interval: &Interval| (interval.start, std::cmp::Reverse(interval.end), interval.source);
            key(a)
                .cmp(&key(b))
                .then_with(|| names.get(a.name).cmp(names.get(b.name)))
        });
        sweep(&intervals, stretches, |stretch, activity, from, to| {
            visit(thread, stretch, activity, from, to);
        });
    }
}

/// Open intervals in the order in which they began. One that has ended is dropped when it comes to the top.
#[derive(Default)]
struct Open<'a>(Vec<&'a Interval>);

impl<'a> Open<'a> {
    /// The one that began last of those that have not ended.
    fn top(&mut self, now: i64) -> Option<&'a Interval> {
        while self.0.last().is_some_and(|interval| interval.end <= now) {
            self.0.pop();
        }
        self.0.last().copied()
    }
}

/// Goes through the (sorted) intervals of a thread.
fn sweep(intervals: &[Interval], stretches: &[(i64, i64)], mut visit: impl FnMut(usize, Activity, i64, i64)) {
    let (mut open, mut peers, mut loading) = (Open::default(), Open::default(), Open::default());
    let mut coming = intervals.iter().peekable();
    let mut next_stretch = 0;
    let mut reached = i64::MIN;
    while next_stretch < stretches.len() {
        let tops = [open.top(reached), peers.top(reached), loading.top(reached)];
        // Nothing changes before the next one begins or one of these ends.
        let ends = tops.iter().flatten().map(|interval| interval.end);
        let to = ends
            .chain(coming.peek().map(|next| next.start))
            .min()
            .unwrap_or(i64::MAX);
        while let Some(&(start, end)) = stretches.get(next_stretch) {
            let (begin, finish) = (start.max(reached), end.min(to));
            if begin < finish {
                visit(next_stretch, innermost(tops), begin, finish);
            }
            if end > to {
                break;
            }
            next_stretch += 1;
        }
        reached = to;
        while let Some(next) = coming.next_if(|next| next.start <= reached) {
            open.0.push(next);
            if next.meaning.waits_for_peers {
                peers.0.push(next);
            }
            if next.meaning.loads_data {
                loading.0.push(next);
            }
        }
    }
}

/// The activity of a thread, by the innermost of all open intervals, of those that wait for peers and of those that load
/// data.
fn innermost([last, peers, loading]: [Option<&Interval>; 3]) -> Activity {
    let Some(last) = last else {
        return Activity::Nothing;
    };
    if let Some(interval) = peers {
        return Activity::WaitingForPeers(interval.name);
    }
    if last.source == Source::Call && last.meaning.synchronizes {
        return Activity::Synchronization(last.name);
    }
    if let Some(interval) = loading {
        return Activity::DataLoading(interval.name);
    }
    match last.source {
        Source::Call => Activity::Call(last.name, last.row),
        Source::Range => Activity::Range(last.name),
        Source::Operator => Activity::Operator(last.name),
    }
}

/// The parts of sorted, disjoint stretches in which no thread of the process does anything that is recorded.
pub(crate) fn silent(process: &Process, stretches: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut covered: Vec<(i64, i64)> = Vec::new();
    let mut near = Stretches {
        all: stretches,
        near: 0,
    };
    each_interval(process, |_, _, _, _, start, end| {
        if near.overlap(start, end) {
            covered.push((start, end));
        }
    });
    let covered = crate::intervals::IntervalSet::union_of(covered);
    let mut silent = Vec::new();
    for &(start, end) in stretches {
        for gap in covered.gaps_within(start, end).as_slice() {
            silent.push((gap.start, gap.end));
        }
    }
    silent
}

#[cfg(test)]
mod tests {
    use gputrace_trace::tables::{ApiCall, Marker, Operator};
    use gputrace_trace::{DurationNs, Table, TimeNs};

    use super::*;

    fn process(names: &mut Interner) -> Process {
        let mut process = Process::default();
        let time = |start: i64, end: i64| (TimeNs(start), DurationNs(end - start));
        for (name, start, end) in [("ProfilerStep#1", 0, 1000), ("backward", 100, 400)] {
            let (start_ns, duration_ns) = time(start, end);
            process.tables.markers.push(Marker {
                start_ns,
                duration_ns: Some(duration_ns),
                name: names.intern(name),
                thread: 1,
                ..Marker::default()
            });
        }
        for (name, start, end) in [
            ("aten::mm", 150, 300),
            ("enumerate(DataLoader)#__next__", 600, 800),
        ] {
            let (start_ns, duration_ns) = time(start, end);
            process.tables.operators.push(Operator {
                start_ns,
                duration_ns,
                name: names.intern(name),
                thread: 1,
            });
        }
        for (name, start, end, thread) in [
            ("cudaMalloc", 200, 250, 1),
            ("cudaStreamSynchronize", 650, 700, 1),
            ("cudaLaunchKernel", 0, 5000, 2),
        ] {
            let (start_ns, duration_ns) = time(start, end);
            process.tables.api_calls.push(ApiCall {
                start_ns,
                duration_ns,
                name: names.intern(name),
                thread,
                ..ApiCall::default()
            });
        }
        process
    }

    #[test]
    fn each_stretch_is_told_apart_into_what_the_thread_did() {
        let mut names = Interner::default();
        let process = process(&mut names);
        let mut found = Vec::new();
        activities(
            &process,
            &names,
            &BTreeMap::from([(1, vec![(120, 320), (590, 1200)])]),
            |_, stretch, activity, from, to| {
                found.push((stretch, activity.text(&names), from, to));
            },
        );
        let expected = [
            (0, "range: backward", 120, 150),
            (0, "operator: aten::mm", 150, 200),
            (0, "call: cudaMalloc", 200, 250),
            (0, "operator: aten::mm", 250, 300),
            (0, "range: backward", 300, 320),
            (1, "range: ProfilerStep#1", 590, 600),
            (1, "data loading: enumerate(DataLoader)#__next__", 600, 650),
            (1, "synchronization: cudaStreamSynchronize", 650, 700),
            (1, "data loading: enumerate(DataLoader)#__next__", 700, 800),
            (1, "range: ProfilerStep#1", 800, 1000),
            (1, "nothing recorded", 1000, 1200),
        ];
        let found: Vec<(usize, &str, i64, i64)> = found
            .iter()
            .map(|(stretch, text, from, to)| (*stretch, text.as_str(), *from, *to))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_interval_that_ended_before_what_began_in_it_is_over() {
        let mut names = Interner::default();
        let mut process = Process::default();
        for (name, start, end) in [("gloo:barrier", 10, 40), ("forward", 30, 100)] {
            process.tables.markers.push(Marker {
                start_ns: TimeNs(start),
                duration_ns: Some(DurationNs(end - start)),
                name: names.intern(name),
                thread: 1,
                ..Marker::default()
            });
        }
        let mut found = Vec::new();
        activities(
            &process,
            &names,
            &BTreeMap::from([(1, vec![(0, 120)])]),
            |_, _, activity, from, to| {
                found.push((activity.text(&names), from, to));
            },
        );
        let expected = [
            ("nothing recorded", 0, 10),
            ("peers: gloo:barrier", 10, 30),
            ("peers: gloo:barrier", 30, 40),
            ("range: forward", 40, 100),
            ("nothing recorded", 100, 120),
        ];
        let found: Vec<(&str, i64, i64)> = found
            .iter()
            .map(|(text, from, to)| (text.as_str(), *from, *to))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn silence_is_of_all_threads() {
        let mut names = Interner::default();
        let process = process(&mut names);
        assert_eq!(silent(&process, &[(900, 1100), (4990, 5100)]), [(5000, 5100)]);
    }
}
