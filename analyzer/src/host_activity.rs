//! What a host thread was doing during given stretches of time.

use std::collections::BTreeMap;

use gputrace_trace::{Interner, NameId, Process};

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

/// Calls `visit` with every recorded interval of the process that overlaps one of the stretches.
fn each_interval(
    process: &Process,
    stretches: &[(i64, i64)],
    thread: Option<u32>,
    mut visit: impl FnMut(Source, u32, NameId, i64, i64),
) {
    let mut stretches = Stretches {
        all: stretches,
        near: 0,
    };
    let tables = &process.tables;
    let wanted = |on: u32| thread.is_none_or(|thread| thread == on);
    let calls = &tables.api_calls;
    for (index, row) in (0..calls.start_ns.len()).zip(0u32..) {
        let start = calls.start_ns[index].0;
        let end = start.saturating_add(calls.duration_ns[index].0);
        if wanted(calls.thread[index]) && stretches.overlap(start, end) {
            visit(Source::Call, row, calls.name[index], start, end);
        }
    }
    let operators = &tables.operators;
    for (index, row) in (0..operators.start_ns.len()).zip(0u32..) {
        let start = operators.start_ns[index].0;
        let end = start.saturating_add(operators.duration_ns[index].0);
        if wanted(operators.thread[index]) && stretches.overlap(start, end) {
            visit(Source::Operator, row, operators.name[index], start, end);
        }
    }
    let markers = &tables.markers;
    for (index, row) in (0..markers.start_ns.len()).zip(0u32..) {
        let Some(duration) = markers.duration_ns[index] else {
            continue;
        };
        let start = markers.start_ns[index].0;
        let end = start.saturating_add(duration.0);
        if wanted(markers.thread[index]) && stretches.overlap(start, end) {
            visit(Source::Range, row, markers.name[index], start, end);
        }
    }
}

/// What a thread was doing in each of some sorted, disjoint stretches of time: calls `visit` with a stretch's number and
/// the parts of it, in order, that together are the stretch.
pub(crate) fn activities(
    process: &Process,
    names: &Interner,
    thread: u32,
    stretches: &[(i64, i64)],
    mut visit: impl FnMut(usize, Activity, i64, i64),
) {
    let mut meanings: BTreeMap<NameId, Meaning> = BTreeMap::new();
    let mut intervals: Vec<Interval> = Vec::new();
    each_interval(
        process,
        stretches,
        Some(thread),
        |source, row, name, start, end| {
            let meaning = *meanings.entry(name).or_insert_with(|| meaning(names.get(name)));
            intervals.push(Interval {
                start,
                end,
                name,
                source,
                row,
                meaning,
            });
        },
    );
    // An outer interval comes before those that it encloses. Of equal ones the order must not be that of the file.
    intervals.sort_by(|a, b| {
        let key = |interval: &Interval| (interval.start, std::cmp::Reverse(interval.end), interval.source);
        key(a)
            .cmp(&key(b))
            .then_with(|| names.get(a.name).cmp(names.get(b.name)))
    });
    let mut open: Vec<Interval> = Vec::new();
    let mut reached = i64::MIN;
    let mut next_stretch = 0;
    let mut emit = |open: &[Interval], from: i64, to: i64| {
        while let Some(&(start, end)) = stretches.get(next_stretch) {
            let (begin, finish) = (start.max(from), end.min(to));
            if begin < finish {
                visit(next_stretch, innermost(open), begin, finish);
            }
            if end > to {
                break;
            }
            next_stretch += 1;
        }
    };
    for interval in intervals {
        while let Some(last) = open.last().copied().filter(|last| last.end <= interval.start) {
            if last.end > reached {
                emit(&open, reached, last.end);
                reached = last.end;
            }
            open.pop();
        }
        if interval.start > reached {
            emit(&open, reached, interval.start);
            reached = interval.start;
        }
        open.push(interval);
    }
    while let Some(last) = open.last().copied() {
        if last.end > reached {
            emit(&open, reached, last.end);
            reached = last.end;
        }
        open.pop();
    }
    emit(&[], reached, i64::MAX);
}

/// The activity of a thread that is in all of the open intervals, the last the innermost.
fn innermost(open: &[Interval]) -> Activity {
    let outer = |wanted: fn(&Meaning) -> bool| open.iter().rev().find(|interval| wanted(&interval.meaning));
    let Some(last) = open.last() else {
        return Activity::Nothing;
    };
    if let Some(interval) = outer(|meaning| meaning.waits_for_peers) {
        return Activity::WaitingForPeers(interval.name);
    }
    if last.source == Source::Call && last.meaning.synchronizes {
        return Activity::Synchronization(last.name);
    }
    if let Some(interval) = outer(|meaning| meaning.loads_data) {
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
    each_interval(process, stretches, None, |_, _, _, start, end| {
        covered.push((start, end));
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
            1,
            &[(120, 320), (590, 1200)],
            |stretch, activity, from, to| {
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
    fn silence_is_of_all_threads() {
        let mut names = Interner::default();
        let process = process(&mut names);
        assert_eq!(silent(&process, &[(900, 1100), (4990, 5100)]), [(5000, 5100)]);
    }
}
