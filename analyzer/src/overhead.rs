//! What recording added to the steps: the difference between steps that were recorded and steps that were not, where the
//! recording was switched off on alternate blocks of steps (`--measure-overhead`).
//!
//! Blocks are runs of steps that lie in an active window, or in none. A block's time is the median of its steps'. The block
//! times are fitted by least squares with a constant, a linear drift over the run and one more term for recorded blocks, which
//! is the difference; its interval is Student's, at 95 %.

use std::collections::BTreeMap;

use gputrace_trace::{Interner, Process};
use serde::{Deserialize, Serialize};

use crate::pauses::{Pauses, active_windows};
use crate::statistics::median;
use crate::steps;

/// What recording added, by blocks of steps with and without it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordingOverhead {
    /// Ranks whose blocks are averaged.
    pub processes: usize,
    /// Blocks that were compared; the first of the run is not.
    pub blocks: usize,
    /// Steps in recorded blocks of one process.
    pub steps_on: usize,
    /// Steps in blocks that were not.
    pub steps_off: usize,
    /// A step without recording: the mean over its blocks.
    pub step_off_ns: f64,
    /// What recording adds to a step.
    pub difference_ns: f64,
    /// The interval of that, at 95 %.
    pub difference_low_ns: f64,
    /// Its upper end.
    pub difference_high_ns: f64,
    /// The same over a step without recording.
    pub relative: f64,
    /// Lower end of the interval, over a step without recording.
    pub relative_low: f64,
    /// Upper end.
    pub relative_high: f64,
}

/// A run of steps, recorded or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Block {
    is_on: bool,
    steps: usize,
    time_ns: f64,
}

/// The blocks of a process; empty where no window was switched off.
pub(crate) fn blocks(process: &Process, names: &Interner) -> Vec<Block> {
    let active = active_windows(process, names);
    if active.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(bool, Vec<i64>)> = Vec::new();
    for step in steps::windows(process, &Pauses::default(), names) {
        // The window that begins at this step or before it.
        let place = active.partition_point(|(start, _)| *start <= step.start);
        let before = place.checked_sub(1).map(|place| active[place]);
        let after = active.get(place);
        let is_on = before.is_some_and(|(_, end)| end >= step.end);
        let is_off = before.is_none_or(|(_, end)| end <= step.start)
            && after.is_none_or(|(start, _)| *start >= step.end);
        if !is_on && !is_off {
            // Switched in the midst of it: neither.
            continue;
        }
        let time = step.end.saturating_sub(step.start);
        match found.last_mut() {
            Some((last, times)) if *last == is_on => times.push(time),
            _ => found.push((is_on, vec![time])),
        }
    }
    found
        .into_iter()
        .map(|(is_on, mut times)| Block {
            is_on,
            steps: times.len(),
            time_ns: median(&mut times),
        })
        .collect()
}

/// Student's t of so many degrees of freedom that 97.5 % of the distribution lie below.
fn student_975(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004, 2.262_157,
        2.228_139,
    ];
    if let Some(value) = freedom.checked_sub(1).and_then(|place| TABLE.get(place)) {
        return *value;
    }
    // Cornish and Fisher's expansion from the normal distribution's 1.96 (Abramowitz and Stegun 26.7.5).
    let (z, n) = (1.959_963_985_f64, freedom as f64);
    let z2 = z * z;
    z + z * (z2 + 1.0) / (4.0 * n)
        + z * ((5.0 * z2 + 16.0) * z2 + 3.0) / (96.0 * n * n)
        + z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / (384.0 * n * n * n)
}

/// Fits `y = a + b * place + c * is_on` and gives `c` with half the width of its interval; `None` where that is not defined.
fn difference(blocks: &[Block]) -> Option<(f64, f64)> {
    let n = blocks.len();
    let freedom = n.checked_sub(3).filter(|&freedom| freedom >= 1)?;
    let mean_of = |values: &[f64]| values.iter().sum::<f64>() / n as f64;
    let centred = |values: Vec<f64>| -> Vec<f64> {
        let mean = mean_of(&values);
        values.into_iter().map(|value| value - mean).collect()
    };
    let times = centred(blocks.iter().map(|block| block.time_ns).collect());
    let places = centred((0..n).map(|place| place as f64).collect());
    let on = centred(
        blocks
            .iter()
            .map(|block| f64::from(u8::from(block.is_on)))
            .collect(),
    );
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (pp, po, oo) = (
        product(&places, &places),
        product(&places, &on),
        product(&on, &on),
    );
    let (pt, ot) = (product(&places, &times), product(&on, &times));
    let determinant = pp * oo - po * po;
    if determinant <= f64::EPSILON * pp * oo {
        return None;
    }
    let drift = (pt * oo - ot * po) / determinant;
    let added = (ot * pp - pt * po) / determinant;
    let rest: f64 = (0..n)
        .map(|block| (times[block] - drift * places[block] - added * on[block]).powi(2))
        .sum();
    let error = (rest / freedom as f64 * pp / determinant).sqrt();
    Some((added, student_975(freedom) * error))
}

/// What recording added to the steps; `None` where it was not switched off and on, or not often enough to tell.
pub(crate) fn overhead<'a>(blocks: impl Iterator<Item = &'a [Block]>) -> Option<RecordingOverhead> {
    let all: Vec<&[Block]> = blocks.filter(|blocks| blocks.len() > 1).collect();
    let first = all.first()?;
    // Ranks wait for each other, so their blocks are the same ones: those that begin alike are averaged.
    let mut sums: BTreeMap<usize, (Block, f64)> = BTreeMap::new();
    let mut processes = 0u32;
    for blocks in &all {
        if blocks.len() != first.len() || blocks.iter().zip(*first).any(|(a, b)| a.is_on != b.is_on) {
            continue;
        }
        processes += 1;
        for (place, block) in blocks.iter().enumerate().skip(1) {
            sums.entry(place).or_insert_with(|| (block.clone(), 0.0)).1 += block.time_ns;
        }
    }
    let blocks: Vec<Block> = sums
        .into_values()
        .map(|(block, sum)| Block {
            time_ns: sum / f64::from(processes),
            ..block
        })
        .collect();
    let (difference_ns, half) = difference(&blocks)?;
    let count = |is_on: bool| -> (usize, f64, usize) {
        let some = blocks.iter().filter(|block| block.is_on == is_on);
        some.fold((0, 0.0, 0), |(steps, sum, blocks), block| {
            (steps + block.steps, sum + block.time_ns, blocks + 1)
        })
    };
    let (steps_off, off_sum, off_blocks) = count(false);
    let step_off_ns = off_sum / off_blocks as f64;
    let relative = |value: f64| value / step_off_ns;
    Some(RecordingOverhead {
        processes: processes as usize,
        blocks: blocks.len(),
        steps_on: count(true).0,
        steps_off,
        step_off_ns,
        difference_ns,
        difference_low_ns: difference_ns - half,
        difference_high_ns: difference_ns + half,
        relative: relative(difference_ns),
        relative_low: relative(difference_ns - half),
        relative_high: relative(difference_ns + half),
    })
}

#[cfg(test)]
mod tests {
    use gputrace_trace::tables::{Marker, Window};
    use gputrace_trace::{DurationNs, Table, TimeNs};

    use super::*;

    /// A process of blocks of so many steps, recorded in turns, whose step times `time` gives by number.
    fn process(blocks: usize, each: usize, names: &mut Interner, time: impl Fn(usize) -> i64) -> Process {
        let mut process = Process::default();
        let mut at = 1_000_000;
        for block in 0..blocks {
            let begun = at;
            for step in block * each..(block + 1) * each {
                process.tables.markers.push(Marker {
                    start_ns: TimeNs(at),
                    duration_ns: Some(DurationNs(time(step))),
                    name: names.intern(&format!("step {step}")),
                    ..Marker::default()
                });
                at += time(step);
            }
            if block % 2 == 0 {
                process.tables.windows.push(Window {
                    start_ns: TimeNs(begun),
                    duration_ns: DurationNs(at - begun),
                    what: names.intern("active"),
                    ..Window::default()
                });
            }
        }
        process
    }

    fn overhead_of(process: &Process, names: &Interner) -> Option<RecordingOverhead> {
        overhead(std::iter::once(blocks(process, names).as_slice()))
    }

    #[test]
    fn a_constant_difference_is_found_through_a_drift() {
        let mut names = Interner::default();
        // Each step takes 1 ms and 100 ns more than the one before; recorded ones 5 us more.
        let time = |step: usize| {
            1_000_000 + 100 * step as i64 + if (step / 5).is_multiple_of(2) { 5_000 } else { 0 }
        };
        let process = process(11, 5, &mut names, time);
        let found = overhead_of(&process, &names).expect("enough blocks");
        assert_eq!((found.processes, found.blocks), (1, 10));
        assert_eq!((found.steps_on, found.steps_off), (25, 25));
        assert!((found.difference_ns - 5_000.0).abs() < 1e-3, "{found:?}");
        assert!(found.difference_low_ns <= 5_000.1 && found.difference_high_ns >= 4_999.9);
        assert!((found.relative - 0.005).abs() < 1e-4, "{found:?}");
    }

    #[test]
    fn the_interval_is_that_of_a_hand_worked_fit() {
        let blocks: Vec<Block> = [
            (true, 12.0),
            (false, 10.0),
            (true, 14.0),
            (false, 9.0),
            (true, 13.0),
            (false, 11.0),
        ]
        .map(|(is_on, time_ns)| Block {
            is_on,
            steps: 1,
            time_ns,
        })
        .into();
        let (added, half) = difference(&blocks).expect("defined");
        // y = 9.25 + 0.25 place + 3.25 on leaves residuals -0.5, 0.5, 1, -1, -0.5, 0.5, whose squares sum to 3: with three
        // degrees of freedom a variance of 1. The term's own factor is 17.5 / (17.5 * 1.5 - 1.5 * 1.5).
        assert!((added - 3.25).abs() < 1e-9, "{added}");
        assert!(
            (half - 3.182_446 * (17.5f64 / 24.0).sqrt()).abs() < 1e-9,
            "{half}"
        );
    }

    #[test]
    fn steps_that_were_switched_in_are_neither() {
        let mut names = Interner::default();
        let mut process = process(7, 4, &mut names, |_| 1000);
        // The last window begins in the midst of its first step.
        let last = process.tables.windows.start_ns.len() - 1;
        process.tables.windows.start_ns[last].0 += 500;
        process.tables.windows.duration_ns[last].0 -= 500;
        let found = blocks(&process, &names);
        assert_eq!(
            found.iter().map(|block| block.steps).collect::<Vec<_>>(),
            [4, 4, 4, 4, 4, 4, 3]
        );
    }

    #[test]
    fn too_few_blocks_tell_nothing() {
        let mut names = Interner::default();
        assert_eq!(overhead_of(&process(4, 5, &mut names, |_| 1000), &names), None);
        assert_eq!(overhead_of(&Process::default(), &names), None);
        assert!(overhead_of(&process(5, 5, &mut names, |_| 1000), &names).is_some());
    }

    #[test]
    fn student_s_t_is_what_tables_say() {
        for (freedom, t) in [
            (1, 12.7062),
            (5, 2.5706),
            (11, 2.2010),
            (20, 2.0860),
            (60, 2.0003),
            (1000, 1.9623),
        ] {
            assert!(
                (student_975(freedom) - t).abs() < 2e-4,
                "{freedom}: {}",
                student_975(freedom)
            );
        }
    }
}
