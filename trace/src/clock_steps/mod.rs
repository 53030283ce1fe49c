//! Undoing steps of the clock: what was stamped after one is moved to where it would be without.
//!
//! Stamps are `CLOCK_REALTIME`, which an administrator or NTP may set while a program runs. The `clocks` table has it beside
//! `CLOCK_BOOTTIME`, about once a second. Both are slewed alike, so their difference changes by steps alone; one of
//! [`LEAST_STEP_NS`] or more is undone:
//!
//! - Between which two readings it happened is known. When in between is found in the order of rows: rows of one thread, or of
//!   one stream of a device, are written in the order in which things ended, so the step is where the next row's end lies off
//!   by as much as the clock was set. The one with the most rows in that second says it for all. (Of several threads rows come
//!   a buffer at a time: each thread's has its own place where it shows.)
//! - A row that began before the step and ended after it has a duration that is wrong by as much; that is mended too.
//! - A thread or stream whose rows are further apart than the clock was set back does not show where that was: a row within
//!   that of the step may then be off by as much. One that shows nothing at all goes by the others of its table.
//! - All processes of a host get the timeline of the earliest reading among them.
//!
//! GPU times are CUPTI's, which brings them to this clock by itself: near a step they are as good as it made them.

use std::collections::HashMap;

use crate::column::Column;
use crate::names::NameId;
use crate::process::Process;
use crate::tables::{Clocks, Tables};
use crate::time::{DurationNs, TimeNs};

/// Steps below are left: no number of an analysis would change by them.
pub const LEAST_STEP_NS: i64 = 1_000_000;
/// How exactly the clocks of one reading belong together (see [`crate::clock_reading::clock_snapshot`]).
const READING_NS: i64 = 50_000;
/// A reading that is off by more was not interrupted: the clock was set, and set again.
const MOST_INTERRUPTED_NS: i64 = 100_000_000;
/// A host's processes whose clocks differ by more do not share a boot: one has a time namespace of its own.
const MOST_NS: i64 = 86_400_000_000_000;

/// A step that was undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, on the timeline without it.
    pub time_ns: i64,
    /// By how much the clock was set: forward where positive.
    pub by_ns: i64,
}

/// Real time less the time since boot, for each reading; `None` for one that was interrupted between its clocks.
fn offsets(clocks: &Clocks) -> Vec<Option<i64>> {
    let raw: Vec<i64> = (0..clocks.realtime_ns.len())
        .map(|row| {
            let steady = match clocks.boottime_ns[row] {
                0 => clocks.monotonic_ns[row],
                boottime => boottime,
            };
            clocks.realtime_ns[row].0.saturating_sub(steady)
        })
        .collect();
    let differ = |a: i64, b: i64| a.saturating_sub(b).saturating_abs() >= LEAST_STEP_NS;
    (0..raw.len())
        .map(|row| {
            let off = |last: i64| raw[row].saturating_sub(last).saturating_abs();
            let alone = row > 0
                && off(raw[row - 1]) < MOST_INTERRUPTED_NS
                && raw
                    .get(row + 1)
                    .is_some_and(|next| differ(raw[row], raw[row - 1]) && !differ(*next, raw[row - 1]));
            (!alone).then_some(raw[row])
        })
        .collect()
}

/// A step between two readings.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Real time of the last reading before.
    before_ns: i64,
    /// What passed until the reading after it.
    length_ns: i64,
    by_ns: i64,
}

impl Gap {
    /// The reading after the step, by the clock as it was set before.
    fn after_ns(&self) -> i64 {
        self.before_ns.saturating_add(self.length_ns)
    }

    /// Whether something with this stamp can have been before the step.
    fn can_be_before(&self, stamp: i64) -> bool {
        stamp <= self.after_ns().saturating_add(READING_NS)
    }

    /// Whether it can have been after.
    fn can_be_after(&self, stamp: i64) -> bool {
        stamp
            >= self
                .before_ns
                .saturating_add(self.by_ns)
                .saturating_sub(READING_NS)
    }
}

/// The first step that the readings show.
fn first_gap(clocks: &Clocks) -> Option<Gap> {
    let offsets = offsets(clocks);
    let mut before: Option<(usize, i64)> = None;
    for (row, offset) in offsets.iter().enumerate() {
        let Some(offset) = *offset else { continue };
        match before {
            Some((last, base)) if offset.saturating_sub(base).saturating_abs() >= LEAST_STEP_NS => {
                let by_ns = offset.saturating_sub(base);
                let before_ns = clocks.realtime_ns[last].0;
                let length_ns = clocks.realtime_ns[row]
                    .0
                    .saturating_sub(before_ns)
                    .saturating_sub(by_ns);
                // Readings that do not follow each other tell nothing.
                return (length_ns >= 0).then_some(Gap {
                    before_ns,
                    length_ns,
                    by_ns,
                });
            }
            // The base stays, so that small steps add up.
            Some((_, base)) => before = Some((row, base)),
            None => before = Some((row, offset)),
        }
    }
    None
}

/// Times and durations of a table's rows.
struct Times<'a> {
    starts: &'a mut Vec<TimeNs>,
    durations: Option<Durations<'a>>,
    /// The rows of each thread or stream, in their order.
    lanes: Vec<Vec<u32>>,
}

/// Where in a lane a step shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before this place of the lane.
    At(usize),
    /// All rows lie before the step.
    AllBefore,
    /// All rows lie after it.
    AllAfter,
    /// All before or all after: the lane alone does not tell.
    Unknown,
}

/// Columns by which rows belong to a thread or a stream.
const LANES: [&str; 5] = ["thread", "device", "context", "stream", "name"];

/// The rows of each thread, or stream, or counter.
fn lanes(names: &[&str], columns: &[&mut dyn Column], rows: usize) -> Vec<Vec<u32>> {
    let by_name = names.contains(&"value");
    let mut keys: Vec<(u64, u64)> = vec![(0, 0); rows];
    for (name, column) in names.iter().zip(columns) {
        if !LANES.contains(name) || *name == "name" && !by_name {
            continue;
        }
        let mix = |key: &mut (u64, u64), value: u64| {
            // Two series, so that what is different stays different.
            key.0 = (key.0 ^ value)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
            key.1 = key.1.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(value);
        };
        if let Some(values) = column.downcast_ref::<Vec<u32>>() {
            keys.iter_mut()
                .zip(values)
                .for_each(|(key, value)| mix(key, u64::from(*value) + 1));
        } else if let Some(values) = column.downcast_ref::<Vec<Option<u32>>>() {
            let number = |value: &Option<u32>| value.map_or(0, |value| u64::from(value) + 1);
            keys.iter_mut()
                .zip(values)
                .for_each(|(key, value)| mix(key, number(value)));
        } else if let Some(values) = column.downcast_ref::<Vec<NameId>>() {
            keys.iter_mut()
                .zip(values)
                .for_each(|(key, value)| mix(key, u64::from(value.number()) + 1));
        }
    }
    let mut places: HashMap<(u64, u64), usize> = HashMap::new();
    let mut lanes: Vec<Vec<u32>> = Vec::new();
    for (row, key) in (0..).zip(keys) {
        let place = *places.entry(key).or_insert_with(|| {
            lanes.push(Vec::new());
            lanes.len() - 1
        });
        lanes[place].push(row);
    }
    lanes
}

enum Durations<'a> {
    All(&'a mut Vec<DurationNs>),
    Some(&'a mut Vec<Option<DurationNs>>),
}

impl<'a> Times<'a> {
    fn of(names: &[&str], columns: Vec<&'a mut dyn Column>) -> Option<Self> {
        let rows = columns
            .iter()
            .find_map(|column| Some(column.downcast_ref::<Vec<TimeNs>>()?.len()))?;
        let lanes = lanes(names, &columns, rows);
        let (mut starts, mut durations) = (None, None);
        for column in columns {
            // The first of each: further ones are of parts of a row.
            if starts.is_none() && column.downcast_ref::<Vec<TimeNs>>().is_some() {
                starts = column.downcast_mut();
            } else if durations.is_none() && column.downcast_ref::<Vec<DurationNs>>().is_some() {
                durations = column.downcast_mut().map(Durations::All);
            } else if durations.is_none() && column.downcast_ref::<Vec<Option<DurationNs>>>().is_some() {
                durations = column.downcast_mut().map(Durations::Some);
            }
        }
        Some(Self {
            starts: starts?,
            durations,
            lanes,
        })
    }

    fn duration(&self, row: usize) -> i64 {
        match &self.durations {
            Some(Durations::All(durations)) => durations[row].0,
            Some(Durations::Some(durations)) => durations[row].map_or(0, |duration| duration.0),
            None => 0,
        }
    }

    fn lengthen(&mut self, row: usize, by: i64) {
        let longer = |duration: &mut DurationNs| duration.0 = duration.0.saturating_add(by);
        match &mut self.durations {
            Some(Durations::All(durations)) => longer(&mut durations[row]),
            Some(Durations::Some(durations)) => {
                if let Some(duration) = &mut durations[row] {
                    longer(duration);
                }
            }
            None => {}
        }
    }

    fn end(&self, row: usize) -> i64 {
        self.starts[row].0.saturating_add(self.duration(row))
    }

    fn end_at(&self, lane: &[u32], place: usize) -> i64 {
        self.end(lane[place] as usize)
    }

    /// The ends between which the step lies if it lies before a row: those of the row before and of the row. `None` where one
    /// of them cannot be where it would be.
    fn around(&self, lane: &[u32], place: usize, gap: Gap) -> Option<(i64, i64)> {
        let (mut last, mut next) = (self.end_at(lane, place - 1), self.end_at(lane, place));
        if !gap.can_be_before(last) || !gap.can_be_after(next) {
            return None;
        }
        if gap.by_ns > 0 {
            // The readings lie in between, so that the step shows where few rows are. (Set back, the clock ran through the
            // same moments twice, and a reading's place among the rows is not known.)
            last = last.max(gap.before_ns);
            next = next.min(gap.after_ns().saturating_add(gap.by_ns));
        }
        Some((last, next))
    }

    /// The place in a lane that the step lies at, and when that was (by the clock as it was set before), somewhere between two
    /// moments. `near`: where it is known to be from another lane; without it only a place that shows it is taken.
    fn pivot(&self, lane: &[u32], gap: Gap, near: Option<i64>) -> Option<(Place, (i64, i64))> {
        // Not knowing the moment: how much straighter the ends run with the step there. Knowing it: the least time from row
        // to row around it, so that a table whose rows are further apart than the clock was set back goes on as evenly as
        // it can.
        let worth = |(last, next): (i64, i64)| {
            let step = next.saturating_sub(last);
            let passed = step.saturating_sub(gap.by_ns);
            let Some(near) = near else {
                return step.saturating_abs().saturating_sub(passed.saturating_abs());
            };
            let after = next.saturating_sub(gap.by_ns);
            let off = last.saturating_sub(near).max(near.saturating_sub(after)).max(0);
            passed.saturating_abs().saturating_add(off).saturating_neg()
        };
        let rows = lane.len();
        let inside = (1..rows).filter_map(|place| {
            let around = self.around(lane, place, gap)?;
            let worth = worth(around);
            (near.is_some() || worth > 0).then_some((worth, Place::At(place), around))
        });
        // Or all rows lie after the step, or before: then none shows it.
        let whole = near.filter(|_| rows > 0).and_then(|near| {
            let earliest_after = near.saturating_add(gap.by_ns).saturating_sub(READING_NS);
            let all_after = self.end_at(lane, 0) >= earliest_after;
            let all_before = self.end_at(lane, rows - 1) <= near.saturating_add(READING_NS);
            let place = match (all_before, all_after) {
                (true, true) => Place::Unknown,
                (true, false) => Place::AllBefore,
                (false, true) => Place::AllAfter,
                (false, false) => return None,
            };
            let around = (near, near.saturating_add(gap.by_ns));
            Some((gap.by_ns.saturating_abs().saturating_neg(), place, around))
        });
        inside
            .chain(whole)
            .max_by_key(|(worth, ..)| *worth)
            .map(|(_, place, (last, next))| (place, (last, next.saturating_sub(gap.by_ns))))
    }

    /// Rows of a lane whose end lies between the readings, and so can say when the step was.
    fn rows_inside(&self, lane: &[u32], gap: Gap) -> usize {
        (0..lane.len())
            .map(|place| self.end_at(lane, place))
            .filter(|&end| end >= gap.before_ns && end <= gap.after_ns().saturating_add(gap.by_ns.max(0)))
            .count()
    }

    /// Which rows come after the step in their order, where the clock was set back and stamps alone do not tell.
    fn rows_after(&self, gap: Gap, moment: i64) -> Vec<bool> {
        let mut after = vec![false; self.starts.len()];
        let places: Vec<(&Vec<u32>, Option<Place>)> = self
            .lanes
            .iter()
            .map(|lane| (lane, self.pivot(lane, gap, Some(moment)).map(|(place, _)| place)))
            .collect();
        // The lane with the most rows there says for those that show nothing from which row of the table on it is later.
        let shown = places.iter().filter_map(|(lane, place)| match place {
            Some(Place::At(place)) => Some((self.rows_inside(lane, gap), lane[*place])),
            _ => None,
        });
        let in_table = shown.max().map(|(_, row)| row);
        for (lane, place) in places {
            let first = match place {
                Some(Place::At(place)) => place,
                Some(Place::AllAfter) => 0,
                Some(Place::Unknown) => {
                    let is_before = |row: &u32| in_table.is_none_or(|first| *row < first);
                    lane.partition_point(is_before)
                }
                Some(Place::AllBefore) | None => lane.len(),
            };
            for &row in &lane[first..] {
                after[row as usize] = true;
            }
        }
        after
    }

    /// Undoes the step; `moment`: when it was, by the clock as it was set before.
    fn undo(&mut self, gap: Gap, moment: i64) {
        let in_order = (gap.by_ns < 0).then(|| self.rows_after(gap, moment));
        for row in 0..self.starts.len() {
            let (start, end) = (self.starts[row].0, self.end(row));
            let is_after = |stamp: i64| match (gap.can_be_before(stamp), gap.can_be_after(stamp)) {
                (true, false) => false,
                (false, true) => true,
                // Neither reading allows it: a device's stamps can run ahead of the clock, by what waits in its queue. Set
                // forward, the clock left out the moments in between, and the stamp is of the side that it is nearer to.
                (false, false) => {
                    let ahead = stamp.saturating_sub(gap.after_ns());
                    ahead > gap.before_ns.saturating_add(gap.by_ns).saturating_sub(stamp)
                }
                // Set forward, the clock left out the moments after the step.
                (true, true) if gap.by_ns > 0 => stamp > moment,
                (true, true) => in_order.as_ref().is_some_and(|after| after[row]),
            };
            if !is_after(end) {
                continue;
            }
            // Of two readings of a start the one that makes the shorter row, if that is not negative.
            let began_after = if gap.by_ns > 0 {
                is_after(start)
            } else {
                !gap.can_be_before(start) || end >= start && gap.can_be_after(start)
            };
            if began_after {
                self.starts[row] = TimeNs(start.saturating_sub(gap.by_ns));
            } else {
                self.lengthen(row, gap.by_ns.saturating_neg());
            }
        }
    }
}

/// When the step was, by the clock as it was set before, from whichever table has the most rows there.
fn locate(tables: &mut Tables, gap: Gap) -> i64 {
    let mut best: Option<(usize, (i64, i64))> = None;
    let mut each = |visit: &mut dyn FnMut(&Times<'_>)| {
        tables.each_columns(&mut |name, names, columns| {
            if name != "clocks"
                && let Some(times) = Times::of(names, columns)
            {
                visit(&times);
            }
        });
    };
    each(&mut |times| {
        for lane in &times.lanes {
            let rows = times.rows_inside(lane, gap);
            if best.is_none_or(|(most, _)| rows > most)
                && let Some((_, around)) = times.pivot(lane, gap, None)
            {
                best = Some((rows, around));
            }
        }
    });
    // Nothing that shows it happened meanwhile, so any moment does.
    let (last, next) = best.map_or((gap.before_ns, gap.after_ns()), |(_, around)| around);
    if gap.by_ns < 0 {
        return i64::midpoint(last, next);
    }
    // Set forward, the clock left moments out: those without any stamp, of starts as of ends.
    let next = next.saturating_add(gap.by_ns);
    let mut stamps = vec![last, next];
    each(&mut |times| {
        let inside = |stamp: &i64| *stamp > last && *stamp < next;
        let starts = times.starts.iter().map(|start| start.0);
        stamps.extend(starts.filter(inside));
        stamps.extend((0..times.starts.len()).map(|row| times.end(row)).filter(inside));
    });
    stamps.sort_unstable();
    stamps
        .windows(2)
        .max_by_key(|pair| pair[1].saturating_sub(pair[0]))
        .map_or(last, |pair| pair[0])
}

/// Undoes all steps that a process's readings show.
fn undo_in(process: &mut Process) -> Vec<Step> {
    let mut steps = Vec::new();
    // Each round takes one away, at the latest between the last two readings.
    for _ in 0..process.tables.clocks.realtime_ns.len() {
        let Some(gap) = first_gap(&process.tables.clocks) else {
            break;
        };
        let moment = locate(&mut process.tables, gap);
        process.tables.each_columns(&mut |name, names, mut columns| {
            for column in &mut columns {
                if let Some(stamps) = column.downcast_mut::<Vec<Option<TimeNs>>>() {
                    let mut known: Vec<TimeNs> = stamps.iter().flatten().copied().collect();
                    let mut times = Times {
                        lanes: vec![(0..).take(known.len()).collect()],
                        starts: &mut known,
                        durations: None,
                    };
                    times.undo(gap, moment);
                    for (stamp, mended) in stamps.iter_mut().flatten().zip(known) {
                        *stamp = mended;
                    }
                }
            }
            if name != "clocks"
                && let Some(mut times) = Times::of(names, columns)
            {
                times.undo(gap, moment);
            }
        });
        // Readings are in their order.
        let mut after = false;
        for time in &mut process.tables.clocks.realtime_ns {
            if after {
                time.0 = time.0.saturating_sub(gap.by_ns);
            }
            after |= time.0 == gap.before_ns;
        }
        if let Some(ended_ns) = &mut process.header.ended_ns {
            *ended_ns = ended_ns.saturating_sub(gap.by_ns);
        }
        steps.push(Step {
            time_ns: moment,
            by_ns: gap.by_ns,
        });
    }
    steps
}

/// By host and boot: how far real time is ahead of the time since boot, by the earliest reading of any of its processes.
#[derive(Debug, Default)]
pub(crate) struct HostOffsets(HashMap<Boot, (i64, i64)>);

/// A host, and which boot of it where that is known.
type Boot = (String, Option<String>);

fn boot(process: &Process) -> Boot {
    (process.header.host.clone(), process.header.boot_id.clone())
}

impl HostOffsets {
    /// Of processes with their headers and clocks.
    pub(crate) fn of<'a>(processes: impl IntoIterator<Item = &'a Process>) -> Self {
        let mut hosts: HashMap<Boot, (i64, i64)> = HashMap::new();
        for process in processes {
            if let Some(offset) = first_offset(process) {
                let boottime = process.tables.clocks.boottime_ns[0];
                let known = hosts.entry(boot(process)).or_insert((boottime, offset));
                if boottime < known.0 {
                    *known = (boottime, offset);
                }
            }
        }
        Self(hosts)
    }
}

fn first_offset(process: &Process) -> Option<i64> {
    offsets(&process.tables.clocks).into_iter().flatten().next()
}

/// Undoes the steps of a process's clock, and moves it to the timeline of its host. Returns what was undone.
pub(crate) fn undo(process: &mut Process, hosts: &HostOffsets) -> Vec<Step> {
    let mut undone = undo_in(process);
    // Time since boot goes on whatever happens to the clock.
    let base = hosts.0.get(&boot(process)).map(|(_, offset)| *offset);
    if let Some((offset, base)) = first_offset(process).zip(base) {
        let by_ns = offset.saturating_sub(base);
        if (LEAST_STEP_NS..=MOST_NS).contains(&by_ns.saturating_abs()) {
            let time_ns = process.header.started_ns.saturating_sub(by_ns);
            process.tables.shift(DurationNs(by_ns.saturating_neg()));
            process.header.started_ns = time_ns;
            process.header.ended_ns = process.header.ended_ns.map(|ended| ended.saturating_sub(by_ns));
            undone.push(Step { time_ns, by_ns });
        }
    }
    undone
}

/// The note of a step.
pub(crate) fn note(folder: &str, step: Step) -> String {
    let direction = if step.by_ns > 0 { "forward" } else { "back" };
    format!(
        "{folder}: the clock was set {direction} by {:.3} s; times are given as if it had not been",
        step.by_ns.unsigned_abs() as f64 / 1e9
    )
}

#[cfg(test)]
mod tests;
