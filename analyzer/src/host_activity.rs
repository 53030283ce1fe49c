//! What a host thread was doing during given stretches of time.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gputrace_trace::{Interner, NameId, Process};
use rustc_hash::FxHashMap;

use crate::alike;
use crate::intervals::IntervalSet;

/// The innermost thing that a thread was doing, as far as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// Nobody looked: there was too much to look at.
    NotLookedInto,
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
            Self::NotLookedInto => "not looked into".to_owned(),
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

/// A stretch of time in which a device waited for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stretch {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Whose it is: the device's place, and the gap's.
    pub(crate) device: u32,
    pub(crate) gap: u32,
}

/// Of each thing that a thread did so many stretches are told in the mean. Devices that one thread launches for wait for the
/// same things, and a file can have as many devices as things.
const MOST_TOLD: usize = 16;
/// And so many in any case.
const LEAST_TOLD: usize = 1 << 20;

/// What each of some threads was doing in each of its stretches of time (those of one device are disjoint): calls `visit` with
/// a stretch and the parts of it, in order, that together are the stretch. Whether all of them were told.
pub(crate) fn activities(
    process: &Process,
    names: &Interner,
    stretches: &mut BTreeMap<u32, Vec<Stretch>>,
    mut visit: impl FnMut(&Stretch, Activity, i64, i64),
) -> bool {
    let mut meanings: FxHashMap<NameId, Meaning> = FxHashMap::default();
    let mut together: FxHashMap<u32, Vec<(i64, i64)>> = FxHashMap::default();
    for (thread, stretches) in &mut *stretches {
        stretches.sort_unstable();
        let union = IntervalSet::union_of_sorted(stretches.iter().map(|one| (one.start, one.end)));
        let plain = union.as_slice().iter().map(|one| (one.start, one.end));
        together.insert(*thread, plain.collect());
    }
    let mut threads: FxHashMap<u32, (Stretches<'_>, Vec<Interval>)> = together
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
    let all = threads
        .values()
        .map(|(_, intervals)| intervals.len())
        .sum::<usize>();
    let asked = stretches.values().map(Vec::len).sum::<usize>();
    let mut room = MOST_TOLD.saturating_mul(all + asked).saturating_add(LEAST_TOLD);
    for (thread, stretches) in &*stretches {
        let (together, mut intervals) = threads
            .remove(thread)
            .map_or_else(Default::default, |(together, intervals)| {
                (together.all, intervals)
            });
        // An outer interval comes before those that it encloses. Of equal ones the order must not be that of the file.
        let key = |interval: &Interval| (interval.start, std::cmp::Reverse(interval.end), interval.source);
        intervals.sort_by_key(key);
        let text = |name| Cow::Borrowed(names.get(name));
        alike::sort(&mut intervals, |a, b| key(a) == key(b), |one| one.name, text);
        let mut next = 0;
        let mut open: Vec<&Stretch> = Vec::new();
        sweep(&intervals, together, |activity, from, to| {
            open.retain(|stretch| stretch.end > from);
            while let Some(stretch) = stretches.get(next).filter(|stretch| stretch.start < to) {
                open.push(stretch);
                next += 1;
            }
            room = room.saturating_sub(open.len());
            if room > 0 {
                for stretch in &open {
                    let (from, to) = (from.max(stretch.start), to.min(stretch.end));
                    if from < to {
                        visit(stretch, activity, from, to);
                    }
                }
            }
            room > 0
        });
    }
    room > 0
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

/// Goes through the (sorted) intervals of a thread, as far as they are in (sorted, disjoint) stretches and `visit` wants more.
fn sweep(
    intervals: &[Interval],
    stretches: &[(i64, i64)],
    mut visit: impl FnMut(Activity, i64, i64) -> bool,
) {
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
            if begin < finish && !visit(innermost(tops), begin, finish) {
                return;
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

/// When no thread of a process does anything that is recorded, in some stretches of time.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// When any does.
    covered: IntervalSet,
    /// By interval of that: the long silences before it, from the first on.
    long: Vec<i64>,
    least_ns: i64,
}

impl Silence {
    /// In those stretches; silences shorter than `least_ns` are none.
    pub(crate) fn of(process: &Process, stretches: impl Iterator<Item = (i64, i64)>, least_ns: i64) -> Self {
        let stretches = IntervalSet::union_of(stretches);
        let plain = stretches.as_slice().iter().map(|one| (one.start, one.end));
        let stretches: Vec<(i64, i64)> = plain.collect();
        let mut near = Stretches {
            all: &stretches,
            near: 0,
        };
        let mut covered: Vec<(i64, i64)> = Vec::new();
        if !stretches.is_empty() {
            each_interval(process, |_, _, _, _, start, end| {
                if near.overlap(start, end) {
                    covered.push((start, end));
                }
            });
        }
        let covered = IntervalSet::union_of(covered);
        let mut sum = 0;
        let long = covered.as_slice().windows(2).map(|pair| {
            let length = pair[1].start - pair[0].end;
            sum += if length >= least_ns { length } else { 0 };
            sum
        });
        Self {
            long: std::iter::once(0).chain(long).collect(),
            covered,
            least_ns,
        }
    }

    /// How long it was in `[from, to)`, which is in one of the stretches.
    pub(crate) fn within(&self, from: i64, to: i64) -> i64 {
        let covered = self.covered.as_slice();
        let first = covered.partition_point(|one| one.end <= from);
        let after = covered.partition_point(|one| one.start < to);
        let if_long = |length: i64| if length >= self.least_ns { length } else { 0 };
        if first >= after {
            return if_long(to - from);
        }
        let last = after - 1;
        if_long(covered[first].start - from) + self.long[last] - self.long[first]
            + if_long(to - covered[last].end)
    }
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
                ..Operator::default()
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

    /// What thread 1 did in stretches, which are of one device each.
    fn told(process: &Process, names: &Interner, stretches: &[(i64, i64)]) -> Vec<(u32, String, i64, i64)> {
        let asked = (0..).zip(stretches).map(|(device, (start, end))| Stretch {
            start: *start,
            end: *end,
            device,
            gap: 0,
        });
        let mut found = Vec::new();
        let mut stretches = BTreeMap::from([(1, asked.collect())]);
        let all = activities(process, names, &mut stretches, |stretch, activity, from, to| {
            found.push((stretch.device, activity.text(names), from, to));
        });
        assert!(all);
        found.sort_by_key(|(device, _, from, _)| (*device, *from));
        found
    }

    fn plain(found: &[(u32, String, i64, i64)]) -> Vec<(u32, &str, i64, i64)> {
        let plain = found
            .iter()
            .map(|(device, text, from, to)| (*device, text.as_str(), *from, *to));
        plain.collect()
    }

    #[test]
    fn each_stretch_is_told_apart_into_what_the_thread_did() {
        let mut names = Interner::default();
        let process = process(&mut names);
        let found = told(&process, &names, &[(120, 320), (590, 1200)]);
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
        assert_eq!(plain(&found), expected);
    }

    #[test]
    fn devices_that_wait_together_are_told_what_each_would_be_told_alone() {
        let mut names = Interner::default();
        let process = process(&mut names);
        let stretches = [
            (0, 1300),
            (120, 260),
            (120, 320),
            (210, 220),
            (255, 700),
            (1000, 1001),
            (5000, 5001),
        ];
        let together = told(&process, &names, &stretches);
        for (device, stretch) in (0..).zip(stretches) {
            let alone = told(&process, &names, &[stretch]);
            let of_device = together.iter().filter(|told| told.0 == device).cloned();
            let alone = alone
                .into_iter()
                .map(|(_, text, from, to)| (device, text, from, to));
            assert_eq!(of_device.collect::<Vec<_>>(), alone.collect::<Vec<_>>());
        }
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
        let found = told(&process, &names, &[(0, 120)]);
        let expected = [
            (0, "nothing recorded", 0, 10),
            (0, "peers: gloo:barrier", 10, 30),
            (0, "peers: gloo:barrier", 30, 40),
            (0, "range: forward", 40, 100),
            (0, "nothing recorded", 100, 120),
        ];
        assert_eq!(plain(&found), expected);
    }

    #[test]
    fn silence_is_of_all_threads() {
        let mut names = Interner::default();
        let of_both = process(&mut names);
        let silence = |least: i64| Silence::of(&of_both, [(900, 1100), (4990, 5100)].into_iter(), least);
        assert_eq!(
            (silence(1).within(900, 1100), silence(1).within(4990, 5100)),
            (0, 100)
        );
        assert_eq!(
            (silence(100).within(4990, 5100), silence(101).within(4990, 5100)),
            (100, 0)
        );
        // Three calls: silences before, between and after them, of which one is short.
        let mut process = Process::default();
        for (start, length) in [(100, 50), (155, 45), (300, 10)] {
            process.tables.api_calls.push(ApiCall {
                start_ns: TimeNs(start),
                duration_ns: DurationNs(length),
                ..ApiCall::default()
            });
        }
        let silence = Silence::of(&process, [(0, 1000)].into_iter(), 10);
        assert_eq!(silence.within(0, 1000), 100 + 100 + 690);
        let parts = [(95, 305), (210, 220), (110, 120)].map(|(from, to)| silence.within(from, to));
        assert_eq!(parts, [100, 10, 0]);
    }
}
