//! Which stretch of time the picture shows.

use std::collections::BTreeMap;

use gputrace_interchange::export::layout::first_moment_ns;
use gputrace_trace::derived::{Derived, DerivedStep};
use gputrace_trace::{Process, Recording};

use super::text::duration;

/// What the picture of the timeline shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// The step of median duration; without steps, everything.
    #[default]
    MedianStep,
    /// The steps from the first number to the second, both counted.
    Steps(u64, u64),
    /// Nanoseconds from the recording's first event, the second not in it.
    Range(i64, i64),
}

/// One GPU of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The process's place in the recording.
    pub process: usize,
    /// Device index within the process.
    pub device: u32,
    /// Where the stretch begins.
    pub from_ns: i64,
}

/// A stretch of time, on each GPU.
#[derive(Debug)]
pub struct Stretch {
    /// What it is.
    pub words: String,
    /// How long it is.
    pub length_ns: i64,
    /// The GPUs, by process and index.
    pub places: Vec<Place>,
    /// Whether each GPU's begins with its own step, because their times can't be set side by side.
    pub is_apart: bool,
}

/// A process's GPUs, each with its first operation's start and its last one's end.
fn devices(process: &Process) -> BTreeMap<u32, (i64, i64)> {
    let mut devices: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let tables = &process.tables;
    macro_rules! take {
        ($($table:ident),*) => {$(
            let table = &tables.$table;
            for ((device, start), duration) in table.device.iter().zip(&table.start_ns).zip(&table.duration_ns) {
                let end = start.0.saturating_add(duration.0);
                let span = devices.entry(*device).or_insert((start.0, end));
                *span = (span.0.min(start.0), span.1.max(end));
            }
        )*};
    }
    take!(kernels, copies, memsets, graph_launches);
    devices
}

/// Steps by what tells them apart: their number, or else their place on the device.
fn numbered<'a>(
    steps: impl Iterator<Item = &'a DerivedStep>,
) -> impl Iterator<Item = (u64, &'a DerivedStep)> {
    (0u64..)
        .zip(steps)
        .map(|(place, step)| (step.number.unwrap_or(place), step))
}

fn steps_of(derived: &Derived, process: usize, device: u32) -> impl Iterator<Item = &DerivedStep> {
    let steps = derived
        .processes
        .get(process)
        .map_or(&[][..], |process| &process.steps);
    steps.iter().filter(move |step| step.device == device)
}

/// The step whose duration, the mean over the GPUs, is the median. Those that stand out are left aside where there are others.
fn median_step(derived: &Derived, places: &[(usize, u32)]) -> Option<u64> {
    let mut durations: BTreeMap<u64, (i128, i128, bool)> = BTreeMap::new();
    for (process, device) in places {
        for (number, step) in numbered(steps_of(derived, *process, *device)) {
            let sum = durations.entry(number).or_default();
            sum.0 += i128::from(step.end_ns) - i128::from(step.start_ns);
            sum.1 += 1;
            sum.2 |= step.outlier;
        }
    }
    let any = durations.values().any(|(.., outlier)| !outlier);
    let mut means: Vec<(i128, u64)> = durations
        .into_iter()
        .filter(|(_, (.., outlier))| !any || !outlier)
        .map(|(number, (sum, count, _))| (sum / count.max(1), number))
        .collect();
    means.sort_unstable();
    means.get(means.len() / 2).map(|(_, number)| *number)
}

/// What is to be shown of a recording. `None` where no GPU did anything in it.
pub fn stretch(recording: &Recording, derived: &Derived, shown: Shown) -> Option<Stretch> {
    let spans: Vec<((usize, u32), (i64, i64))> = recording
        .processes
        .iter()
        .enumerate()
        .flat_map(|(place, process)| {
            devices(process)
                .into_iter()
                .map(move |(device, span)| ((place, device), span))
        })
        .collect();
    let places: Vec<(usize, u32)> = spans.iter().map(|(place, _)| *place).collect();
    let steps = match shown {
        Shown::MedianStep => median_step(derived, &places).map(|number| (number, number)),
        Shown::Steps(first, last) => Some((first, last)),
        Shown::Range(..) => None,
    };
    let windows: Vec<Option<(i64, i64)>> = match (shown, steps) {
        (Shown::Range(from, to), _) => {
            let origin = first_moment_ns(recording).unwrap_or(0);
            vec![Some((origin.saturating_add(from), origin.saturating_add(to))); places.len()]
        }
        (_, Some((first, last))) => places
            .iter()
            .map(|(process, device)| {
                let steps = numbered(steps_of(derived, *process, *device));
                let steps: Vec<&DerivedStep> = steps
                    .filter(|(number, _)| (first..=last).contains(number))
                    .map(|(_, step)| step)
                    .collect();
                let from = steps.iter().map(|step| step.start_ns).min()?;
                Some((from, steps.iter().map(|step| step.end_ns).max()?))
            })
            .collect(),
        (_, None) => spans.iter().map(|(_, span)| Some(*span)).collect(),
    };
    let from = windows.iter().flatten().map(|(from, _)| *from).min()?;
    let mut to = windows.iter().flatten().map(|(_, to)| *to).max()?;
    if let Shown::Range(..) = shown {
        // An open end is that of the last operation.
        to = to
            .min(spans.iter().map(|(_, (_, end))| *end).max()?)
            .max(from.saturating_add(1));
    }
    let longest = windows
        .iter()
        .flatten()
        .map(|(from, to)| to.saturating_sub(*from))
        .max()?;
    let is_apart = places.len() > 1
        && !matches!(shown, Shown::Range(..))
        && (recording.unaligned.is_some() || to.saturating_sub(from) > longest.saturating_mul(3));
    let length_ns = if is_apart {
        longest
    } else {
        to.saturating_sub(from)
    }
    .max(1);
    let places = places
        .iter()
        .zip(&windows)
        .filter_map(|((process, device), window)| {
            let own = window.map(|(from, _)| from);
            Some(Place {
                process: *process,
                device: *device,
                from_ns: if is_apart { own? } else { from },
            })
        })
        .collect();
    let words = match (shown, steps) {
        (Shown::Range(from, _), _) => {
            format!(
                "{} from {} after the first event",
                duration(length_ns),
                duration(from)
            )
        }
        (_, Some((first, last))) if first < last => format!("steps {first} to {last}"),
        (Shown::MedianStep, Some((step, _))) => format!("step {step}, the one of median duration"),
        (_, Some((step, _))) => format!("step {step}"),
        (_, None) => "the whole recording, which has no steps".to_owned(),
    };
    Some(Stretch {
        words,
        length_ns,
        places,
        is_apart,
    })
}
