//! Steps on a device: what was launched in them, from the first operation of each to the first of the next.

use std::collections::BTreeSet;

use gputrace_trace::tables::ApiCalls;
use rustc_hash::FxHashMap;

use crate::operations::Operation;
use crate::pauses::Pauses;
use crate::steps::Window;

/// A time in which a call is in one step.
type Stretch = (i64, i64, u32);

/// What was launched in a step on a device.
struct Launched {
    /// The first operation in the order of launches: when it was launched, and when it began. What was launched later on another
    /// stream may well have begun before it.
    first: (i64, i64),
    /// The last end.
    until: i64,
}

/// In which of a process's steps calls are.
pub(crate) struct HostSteps<'a> {
    windows: &'a [Window],
    /// By window, the first one of its step: ranges of several threads that have one number and overlap are one step.
    step: Vec<u32>,
    /// By first window of a step: the step's time on the host.
    time: FxHashMap<u32, (i64, i64)>,
    /// By thread that has steps of its own: when which window is open.
    of_thread: FxHashMap<u32, Vec<Stretch>>,
    /// Of any thread: when which window is open, and of several the one that began last.
    of_any: Vec<Stretch>,
}

impl<'a> HostSteps<'a> {
    /// Of windows by start.
    pub(crate) fn new(windows: &'a [Window]) -> Self {
        let mut steps = Self {
            windows,
            step: Vec::with_capacity(windows.len()),
            time: FxHashMap::default(),
            of_thread: FxHashMap::default(),
            of_any: open_last(windows),
        };
        let mut last_of_number: FxHashMap<u64, u32> = FxHashMap::default();
        for (place, window) in (0u32..).zip(windows) {
            let before = last_of_number.get(&window.number).copied();
            let overlaps = |first: &u32| window.start < steps.time[first].1;
            let first = before.filter(overlaps).unwrap_or(place);
            last_of_number.insert(window.number, first);
            let time = steps.time.entry(first).or_insert((window.start, window.end));
            time.1 = time.1.max(window.end);
            steps.step.push(first);
            let own = steps.of_thread.entry(window.thread).or_default();
            own.push((window.start, window.end, place));
        }
        steps
    }

    /// The window in which a call of the thread at `at` is, and for how long that holds; `None` where it is in no step. A
    /// thread's own ranges come before those of others.
    fn around(&self, thread: u32, at: i64) -> Option<Stretch> {
        let among = |stretches: &Vec<Stretch>| {
            let after = stretches.partition_point(|(start, ..)| *start <= at);
            let stretch = stretches[..after].last().copied();
            stretch.filter(|(_, end, _)| at < *end)
        };
        let Some(own) = self.of_thread.get(&thread) else {
            return among(&self.of_any);
        };
        // Its own next range may begin any time.
        let at_once = |(.., place): Stretch| (at, at.saturating_add(1), place);
        among(own).or_else(|| among(&self.of_any).map(at_once))
    }

    /// The windows of the steps on a device, of its operations by start; `None` where the call of none of them is recorded.
    pub(crate) fn on_device(
        &self,
        operations: &[Operation],
        calls: &ApiCalls,
        pauses: &Pauses,
    ) -> Option<Vec<Window>> {
        // By first window of a step.
        let mut launched: FxHashMap<u32, Launched> = FxHashMap::default();
        let mut any = false;
        // Operations follow each other mostly as they were launched.
        let mut last: Option<(u32, Stretch)> = None;
        for operation in operations {
            let Some(call) = operation.call(calls) else {
                continue;
            };
            any = true;
            let holds = |(thread, (start, end, _)): &(u32, Stretch)| {
                *thread == call.thread && (*start..*end).contains(&call.start)
            };
            if !last.as_ref().is_some_and(holds) {
                last = self
                    .around(call.thread, call.start)
                    .map(|found| (call.thread, found));
            }
            if let Some((_, (.., window))) = last {
                let step = self.step[window as usize];
                let first = (call.start, operation.start);
                let of_step = launched.entry(step).or_insert(Launched {
                    first,
                    until: operation.end,
                });
                of_step.first = of_step.first.min(first);
                of_step.until = of_step.until.max(operation.end);
            }
        }
        any.then(|| self.windows_of(launched, pauses))
    }

    fn windows_of(&self, launched: FxHashMap<u32, Launched>, pauses: &Pauses) -> Vec<Window> {
        let mut steps: Vec<(u32, Launched)> = launched.into_iter().collect();
        steps.sort_unstable_by_key(|(step, _)| *step);
        let mut begun = i64::MIN;
        let mut windows: Vec<Window> = Vec::with_capacity(steps.len());
        for (step, Launched { first, until }) in steps {
            let host = self.time[&step];
            // No step begins before the one before it.
            begun = begun.max(first.1);
            if let Some(before) = windows.last_mut() {
                let host_before = before.host.map_or(host.0, |(start, _)| start);
                before.end = match pauses.first_between(host_before, host.0) {
                    Some(_) => before.end.min(begun),
                    None => begun,
                };
            }
            windows.push(Window {
                start: begun,
                end: until.max(begun),
                host: Some(host),
                ..self.windows[step as usize].clone()
            });
        }
        windows
    }
}

/// When which of the windows is open; of several the one that began last.
fn open_last(windows: &[Window]) -> Vec<Stretch> {
    let mut edges: Vec<(i64, bool, u32)> = (0u32..)
        .zip(windows)
        .filter(|(_, window)| window.start < window.end)
        .flat_map(|(place, window)| [(window.start, true, place), (window.end, false, place)])
        .collect();
    edges.sort_unstable();
    let mut open: BTreeSet<u32> = BTreeSet::new();
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut since = i64::MIN;
    for (at, begins, place) in edges {
        if let Some(last) = open.last().filter(|_| since < at) {
            stretches.push((since, at, *last));
        }
        since = at;
        if begins {
            open.insert(place);
        } else {
            open.remove(&place);
        }
    }
    stretches
}
