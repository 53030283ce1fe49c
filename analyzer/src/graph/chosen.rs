//! Which steps of a job are followed over its ranks.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::dag::Node;
use super::nodes::Window;
use super::rows::Carried;
use crate::steps;

/// Between the ranges of steps that follow each other lies at most this: more was not recorded.
const LONGEST_PAUSE_NS: i64 = 1_000_000_000;

/// A step of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its number, by its name.
    pub(crate) number: u64,
    pub(crate) name: String,
    /// Whether it begins where the one before it ends: nothing was left unrecorded in between.
    pub(crate) follows: bool,
    /// The last operation of each stream in it.
    pub(super) last: Vec<Node>,
    /// When its first operation began, since the origin.
    pub(super) begin: i64,
}

/// What the steps of a process are.
pub(crate) struct ProcessSteps<'a> {
    /// Those of the host, where ranges name them; else those of a device.
    pub(crate) windows: &'a [steps::Window],
    pub(crate) on_host: bool,
    /// Those of the devices, where they are what the host launched in its steps.
    pub(crate) devices: Option<&'a BTreeMap<u32, Vec<steps::Window>>>,
    /// The devices that have operations.
    pub(crate) used: &'a [u32],
    /// Its kernels and calls.
    pub(crate) rows: u64,
    /// Of which steps it has rows for the graph.
    pub(crate) carried: &'a Carried,
}

/// Which steps are looked at.
pub(crate) struct Chosen {
    pub(super) steps: Vec<Step>,
    pub(super) left_out: usize,
    /// Whether there are steps; else all of the recording is one.
    pub(super) by_steps: bool,
}

impl Chosen {
    /// The windows of a process's steps among them.
    pub(super) fn windows(&self, steps: &ProcessSteps<'_>) -> Vec<Window> {
        if !self.by_steps {
            return vec![Window {
                start: i64::MIN,
                end: i64::MAX,
                step: 0,
            }];
        }
        self.among(steps.windows)
    }

    /// Those of the windows that are of chosen steps.
    pub(super) fn among(&self, windows: &[steps::Window]) -> Vec<Window> {
        let places: FxHashMap<u64, u32> = self.steps.iter().map(|step| step.number).zip(0..).collect();
        let windows = windows.iter().filter_map(|window| {
            Some(Window {
                start: window.start,
                end: window.end,
                step: *places.get(&window.number)?,
            })
        });
        windows.collect()
    }
}

/// Why no steps are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFollowed {
    /// There is none, or one has more rows than are replayed.
    NoneFits,
    /// Some would fit, but the processes have no rows of them: they say that their job has more ranks than are here.
    NotCarried,
}

/// The steps that all processes with operations have, as many as fit: those with the chosen numbers, or all. If not all fit, the
/// first ones after the warm-up.
pub(crate) fn choose(
    steps_of: &[ProcessSteps<'_>],
    chosen: Option<(u64, u64)>,
    most_rows: u64,
) -> Result<Chosen, NotFollowed> {
    let rows: u64 = steps_of.iter().map(|steps| steps.rows).sum();
    let used: Vec<&ProcessSteps<'_>> = steps_of.iter().filter(|steps| !steps.used.is_empty()).collect();
    let mut common: Option<BTreeSet<u64>> = None;
    for steps in &used {
        let numbers: BTreeSet<u64> = steps.windows.iter().map(|window| window.number).collect();
        common = Some(match common {
            None => numbers,
            Some(common) => common.intersection(&numbers).copied().collect(),
        });
    }
    let mut numbers: Vec<u64> = common.ok_or(NotFollowed::NoneFits)?.into_iter().collect();
    if let Some((first, last)) = chosen {
        numbers.retain(|number| (first..=last).contains(number));
        if numbers.is_empty() {
            return Err(NotFollowed::NoneFits);
        }
    }
    if numbers.is_empty() {
        if rows > most_rows {
            return Err(NotFollowed::NoneFits);
        }
        if used.iter().any(|steps| *steps.carried != Carried::All) {
            return Err(NotFollowed::NotCarried);
        }
        let step = Step {
            number: 0,
            name: "the whole run".to_owned(),
            follows: false,
            last: Vec::new(),
            begin: i64::MAX,
        };
        return Ok(Chosen {
            steps: vec![step],
            left_out: 0,
            by_steps: false,
        });
    }
    // In the order in which they ran, which need not be that of their numbers.
    let first = used.first().ok_or(NotFollowed::NoneFits)?;
    let wanted: BTreeSet<u64> = numbers.iter().copied().collect();
    let mut windows: Vec<&steps::Window> = first
        .windows
        .iter()
        .filter(|window| wanted.contains(&window.number))
        .collect();
    windows.sort_by_key(|window| window.start);
    windows.dedup_by_key(|window| window.number);
    let a_step = (rows / windows.len().max(1) as u64).max(1);
    if a_step > most_rows {
        return Err(NotFollowed::NoneFits);
    }
    let fits = usize::try_from(most_rows / a_step).unwrap_or(usize::MAX).max(2);
    let all = windows.len();
    if all > fits {
        // The first is the warm-up.
        windows.drain(..1);
        windows.truncate(fits);
    }
    windows.retain(|window| used.iter().all(|steps| steps.carried.has(window.number)));
    if windows.is_empty() {
        return Err(NotFollowed::NotCarried);
    }
    let left_out = all - windows.len();
    let follows = |place: usize| {
        place > 0 && windows[place].start <= windows[place - 1].end.saturating_add(LONGEST_PAUSE_NS)
    };
    let steps = (0..windows.len()).map(|place| Step {
        number: windows[place].number,
        name: windows[place].name.to_string(),
        follows: follows(place),
        last: Vec::new(),
        begin: i64::MAX,
    });
    Ok(Chosen {
        steps: steps.collect(),
        left_out,
        by_steps: true,
    })
}
