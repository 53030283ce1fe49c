//! Training steps, from the program's own ranges, or from the pattern that its operations repeat.

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_trace::measures::Measures;
use gputrace_trace::step_names::step_word;
use gputrace_trace::{Interner, Process, TimeNs};
use serde::Serialize;

use crate::measures::Sums;
use crate::parts::Parts;
use crate::pauses::Pauses;
use crate::statistics::{Distribution, nearest_rank};

/// One step on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepAnalysis {
    /// The range's text.
    pub name: String,
    /// Start of the range.
    pub start_ns: TimeNs,
    /// Start of the next step's range, or the end of this one where none follows.
    pub end_ns: TimeNs,
    /// Whether the step was guessed from a pattern; never, where ranges name it.
    pub detected: bool,
    /// End minus start.
    pub duration_ns: i64,
    /// Whether it took much longer or shorter than the others: see [`StepSummary`].
    pub outlier: bool,
    /// The device's measures within the step.
    #[serde(flatten)]
    pub measures: Measures,
    /// What the step is made of; the parts sum to `duration_ns`.
    pub parts: Parts,
}

/// All steps of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSummary {
    /// How many.
    pub count: usize,
    /// Whether they were guessed from a pattern.
    pub detected: bool,
    /// Their durations.
    #[serde(flatten)]
    pub durations: Distribution,
    /// Standard deviation of their durations (of a sample: over count - 1); 0 of one step.
    pub standard_deviation_ns: f64,
    /// Steps whose duration is further from the median than three times 1.4826 times the median of such distances (what three
    /// standard deviations are where most steps are alike), and than 5 % of the median.
    pub outliers: Vec<String>,
}

/// A step's window on the host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    pub(crate) number: u64,
    pub(crate) thread: u32,
    pub(crate) name: String,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) detected: bool,
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

/// The steps of a process, by start. Where steps are called by several words (PyTorch's "ProfilerStep#3" around the
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
            name: name.to_owned(),
            start,
            end: end.max(start),
            detected: false,
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
    // The device works on a step after the host has left its range, so a step lasts until the next begins.
    let mut next_on_thread: HashMap<u32, i64> = HashMap::new();
    for window in windows.iter_mut().rev() {
        if let Some(next) = next_on_thread.insert(window.thread, window.start) {
            let pause = pauses.first_between(window.start, next);
            window.end = pause.map_or(next, |pause| pause.start.max(window.end));
        }
    }
    windows
}

/// The measures of each step on one device.
pub(crate) fn steps(windows: &[Window], sums: &Sums) -> Vec<StepAnalysis> {
    let steps = windows.iter().map(|window| {
        let measures = sums.within(window.start, window.end);
        StepAnalysis {
            name: window.name.clone(),
            start_ns: TimeNs(window.start),
            end_ns: TimeNs(window.end),
            detected: window.detected,
            duration_ns: window.end - window.start,
            outlier: false,
            parts: Parts::of(&measures, window.end - window.start),
            measures,
        }
    });
    steps.collect()
}

/// Marks the outliers among the steps, and sums them up; `None` without steps.
pub(crate) fn summary(steps: &mut [StepAnalysis]) -> Option<StepSummary> {
    if steps.is_empty() {
        return None;
    }
    let mut durations: Vec<i64> = steps.iter().map(|step| step.duration_ns).collect();
    let distribution = Distribution::of(&mut durations);
    let median = distribution.p50_ns;
    let mut distances: Vec<i64> = durations
        .iter()
        .map(|duration| (duration - median).abs())
        .collect();
    distances.sort_unstable();
    let typical = nearest_rank(&distances, 50) as f64 * 1.4826;
    for step in &mut *steps {
        let distance = (step.duration_ns - median).abs() as f64;
        step.outlier = distance > 3.0 * typical && distance > 0.05 * median as f64;
    }
    let mean = durations.iter().map(|duration| *duration as f64).sum::<f64>() / durations.len() as f64;
    let squares: f64 = durations
        .iter()
        .map(|duration| (*duration as f64 - mean).powi(2))
        .sum();
    Some(StepSummary {
        count: steps.len(),
        detected: steps.iter().any(|step| step.detected),
        durations: distribution,
        standard_deviation_ns: if steps.len() > 1 {
            (squares / (steps.len() - 1) as f64).sqrt()
        } else {
            0.0
        },
        outliers: steps
            .iter()
            .filter(|step| step.outlier)
            .map(|step| step.name.clone())
            .collect(),
    })
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

    #[test]
    fn a_step_apart_from_the_others_is_an_outlier() {
        let step = |index: i64, duration_ns: i64| StepAnalysis {
            name: format!("step {index}"),
            start_ns: TimeNs(index * 1000),
            end_ns: TimeNs(index * 1000 + duration_ns),
            detected: false,
            duration_ns,
            outlier: false,
            measures: Measures::default(),
            parts: Parts::default(),
        };
        let mut steps: Vec<StepAnalysis> = [100, 102, 98, 101, 99, 250]
            .into_iter()
            .enumerate()
            .map(|(index, length)| step(index as i64, length))
            .collect();
        let summary = summary(&mut steps).unwrap();
        assert_eq!(summary.outliers, ["step 5"]);
        assert_eq!(
            (summary.count, summary.durations.mean_ns, summary.durations.p50_ns),
            (6, 125, 100)
        );
        // Sample standard deviation of 100, 102, 98, 101, 99, 250: mean 125, squares 18760 over 5.
        assert!((summary.standard_deviation_ns - (18_760.0_f64 / 5.0).sqrt()).abs() < 1e-9);
    }
}
