//! Training steps as the program's own ranges have them on the host, and what is known of a step on a device.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use gputrace_trace::measures::Measures;
use gputrace_trace::step_names::step_word;
use gputrace_trace::{Interner, Process, TimeNs};
use serde::{Deserialize, Serialize};

use crate::measures::Sums;
use crate::parts::Parts;
use crate::pauses::Pauses;

/// One step on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepAnalysis {
    /// The range's text.
    pub name: String,
    /// Start of the first operation that was launched in it.
    pub start_ns: TimeNs,
    /// Start of the first operation that was launched in the next step; the last end of what was launched in this one where
    /// none follows.
    pub end_ns: TimeNs,
    /// Whether the step was guessed from a pattern; never, where ranges name it.
    pub detected: bool,
    /// End minus start.
    pub duration_ns: i64,
    /// Start of its range on the host; null where no range names it.
    pub host_start_ns: Option<TimeNs>,
    /// From there to the start of the next step's range, or to the end of its own where none follows; null likewise.
    pub host_duration_ns: Option<i64>,
    /// Whether it took much longer or shorter than the others: see [`StepSummary`].
    pub outlier: bool,
    /// Whether it is one of the slow first ones, which are left out of means.
    pub warm_up: bool,
    /// Floating-point operations of the operators that the host began in it, as far as their work is known; null where that is
    /// of none.
    pub flops: Option<u64>,
    /// Those of the forward and backward pass over what the device can do at most in the step's time (model FLOP utilization);
    /// null where that is not known.
    pub mfu: Option<f64>,
    /// The same with what was recomputed (hardware FLOP utilization).
    pub hfu: Option<f64>,
    /// The device's measures within the step.
    #[serde(flatten)]
    pub measures: Measures,
    /// What the step is made of; the parts sum to `duration_ns`.
    pub parts: Parts,
}

/// A step's time: on the host as its ranges have it, or on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) number: u64,
    pub(crate) thread: u32,
    #[serde(with = "crate::word::shared")]
    pub(crate) name: Arc<str>,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Its time on the host; `None` of one that no range names.
    pub(crate) host: Option<(i64, i64)>,
}

/// The number in a step's name: "step 12", "ProfilerStep#12", "iteration 3". `None` for other names.
#[must_use]
pub fn step_number(name: &str) -> Option<u64> {
    step_word_and_number(name).map(|(_, number)| number)
}

/// Who calls steps so, and the number.
fn step_word_and_number(name: &str) -> Option<(&'static str, u64)> {
    let (word, number) = step_word(name.as_bytes())?;
    Some((word.text(), number?))
}

/// The steps of a process on the host, by start. Where steps are called by several words (PyTorch's "ProfilerStep#3" around the
/// program's "step 3") those of the word with most time count: it is the outer one, or that of more steps.
///
/// A step lasts until the thread's next one, but not into a pause in recording after it.
pub(crate) fn windows(process: &Process, pauses: &Pauses, names: &Interner) -> Vec<Window> {
    let markers = &process.tables.markers;
    let mut words: BTreeMap<&str, (i64, Vec<Window>)> = BTreeMap::new();
    let found = (0..markers.start_ns.len()).filter_map(|index| {
        let name = names.get(markers.name[index]);
        let start = markers.start_ns[index].0;
        let end = start.saturating_add(markers.duration_ns[index]?.0);
        let (word, number) = step_word_and_number(name)?;
        let window = Window {
            number,
            thread: markers.thread[index],
            name: Arc::from(name),
            start,
            end: end.max(start),
            host: None,
        };
        Some((word, window))
    });
    for (word, window) in found {
        let (time, windows) = words.entry(word).or_default();
        *time = time.saturating_add(window.end.saturating_sub(window.start));
        windows.push(window);
    }
    // Of equal ones the profiler's.
    let most = words
        .into_iter()
        .max_by_key(|(word, (time, _))| (*time, *word == "profilerstep"));
    let mut windows = most.map(|(_, (_, windows))| windows).unwrap_or_default();
    windows.sort_by(|a, b| {
        let key = |window: &Window| (window.start, window.end, window.number, window.thread);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    // Two of one thread that begin together are one and the same: the longer comes last and stays.
    let mut begun = HashSet::new();
    windows.reverse();
    windows.retain(|window| begun.insert((window.thread, window.start)));
    windows.reverse();
    // What is launched between two ranges belongs to the first.
    let mut next_on_thread: HashMap<u32, i64> = HashMap::new();
    for window in windows.iter_mut().rev() {
        if let Some(next) = next_on_thread.insert(window.thread, window.start) {
            let pause = pauses.first_between(window.start, next);
            window.end = pause.map_or(next, |pause| pause.start.max(window.end));
        }
        window.host = Some((window.start, window.end));
    }
    windows
}

/// The measures of each step on one device, in its windows there.
pub(crate) fn steps(windows: &[Window], sums: &Sums) -> Vec<StepAnalysis> {
    let steps = windows.iter().map(|window| {
        let measures = sums.within(window.start, window.end);
        StepAnalysis {
            name: window.name.to_string(),
            start_ns: TimeNs(window.start),
            end_ns: TimeNs(window.end),
            detected: window.host.is_none(),
            duration_ns: window.end - window.start,
            host_start_ns: window.host.map(|(start, _)| TimeNs(start)),
            host_duration_ns: window.host.map(|(start, end)| end - start),
            outlier: false,
            warm_up: false,
            flops: None,
            mfu: None,
            hfu: None,
            parts: Parts::of(&measures, window.end - window.start),
            measures,
        }
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_known_by_their_names() {
        assert_eq!(step_number("step 12"), Some(12));
        assert_eq!(step_number("ProfilerStep#7"), Some(7));
        assert_eq!(step_number("Iteration 3"), Some(3));
        assert_eq!(step_number("step"), None);
        assert_eq!(step_number("forward 3"), None);
        assert_eq!(step_number("optimizer.step 3"), None);
    }
}
