//! Training steps, from the program's own ranges.

use std::collections::HashMap;

use gputrace_trace::{Interner, Process};
use serde::Serialize;

use crate::measures::{Measures, clip};
use crate::operations::Operation;

/// One step on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepAnalysis {
    /// The range's text.
    pub name: String,
    /// Start of the range.
    pub start_ns: i64,
    /// Start of the next step's range, or the end of this one where none follows.
    pub end_ns: i64,
    /// Whether the step was guessed from a pattern; never, where ranges name it.
    pub detected: bool,
    /// The device's measures within the step.
    #[serde(flatten)]
    pub measures: Measures,
}

/// A step's window on the host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    pub(crate) number: u64,
    thread: u32,
    name: String,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// The number in a step's name: "step 12", "ProfilerStep#12", "iteration 3". `None` for other names.
#[must_use]
pub fn step_number(name: &str) -> Option<u64> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (word, number) = name.split_at(name.len() - digits);
    let word = word
        .trim_end_matches([' ', '#', '_', ':', '='])
        .to_ascii_lowercase();
    matches!(word.as_str(), "step" | "profilerstep" | "iteration" | "iter").then(|| number.parse().ok())?
}

/// The steps of a process, by start.
pub(crate) fn windows(process: &Process, names: &Interner) -> Vec<Window> {
    let markers = &process.tables.markers;
    let mut windows: Vec<Window> = (0..markers.start_ns.len())
        .filter_map(|index| {
            let name = names.get(markers.name[index]);
            let start = markers.start_ns[index].0;
            let end = start.saturating_add(markers.duration_ns[index]?.0);
            Some(Window {
                number: step_number(name)?,
                thread: markers.thread[index],
                name: name.to_owned(),
                start,
                end: end.max(start),
            })
        })
        .collect();
    windows.sort_by_key(|window| (window.start, window.end));
    // The device works on a step after the host has left its range, so a step lasts until the next begins.
    let mut next_on_thread: HashMap<u32, i64> = HashMap::new();
    for window in windows.iter_mut().rev() {
        if let Some(next) = next_on_thread.insert(window.thread, window.start) {
            window.end = next;
        }
    }
    windows
}

/// The measures of each step on one device.
pub(crate) fn steps(windows: &[Window], operations: &[Operation]) -> Vec<StepAnalysis> {
    // Up to each operation, the latest end: with it the operations of a window are found without passing over all.
    let latest_ends: Vec<i64> = operations
        .iter()
        .scan(i64::MIN, |latest, operation| {
            *latest = operation.end.max(*latest);
            Some(*latest)
        })
        .collect();
    windows
        .iter()
        .map(|window| {
            let first = latest_ends.partition_point(|end| *end < window.start);
            let after = operations.partition_point(|operation| operation.start < window.end);
            let near = &operations[first.min(after)..after];
            StepAnalysis {
                name: window.name.clone(),
                start_ns: window.start,
                end_ns: window.end,
                detected: false,
                measures: Measures::of(&clip(near, window.start, window.end)),
            }
        })
        .collect()
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
