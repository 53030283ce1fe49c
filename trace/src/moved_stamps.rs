//! Stamps of one clock as another would have made them.

use crate::alignment::{Alignment, Course};
use crate::process::Process;
use crate::time::{DurationNs, TimeNs};

impl Alignment {
    /// Moves all stamps of a process to those of its clock's reference, by the clock that its header names.
    pub fn align(&self, process: &mut Process) {
        let clock = process.header.clock;
        if let Some(clock) = clock.and_then(|clock| self.clocks.get(clock as usize)) {
            move_stamps(process, &clock.course);
        }
    }
}

/// Moves all stamps of a process, which were made by a clock of this course, to the reference's.
fn move_stamps(process: &mut Process, course: &Course) {
    if course.knots.is_empty() {
        return;
    }
    let moved = |stamp: i64| course.to_reference(stamp);
    process.tables.each_columns(&mut |_, _, columns| {
        let mut columns = columns.into_iter();
        let mut starts: Option<Vec<i64>> = None;
        // What lasts from the row's time on; columns of times come before those of durations.
        let mut lasts = true;
        for column in columns.by_ref() {
            if let Some(times) = column.downcast_mut::<Vec<TimeNs>>() {
                let before: Vec<i64> = times.iter().map(|time| time.0).collect();
                times.iter_mut().for_each(|time| time.0 = moved(time.0));
                starts.get_or_insert(before);
            } else if let Some(times) = column.downcast_mut::<Vec<Option<TimeNs>>>() {
                times.iter_mut().flatten().for_each(|time| time.0 = moved(time.0));
            } else if let Some(starts) = starts.as_ref().filter(|_| lasts) {
                let longer = |(duration, start): (&mut DurationNs, &i64)| {
                    let length = moved(start.saturating_add(duration.0)).saturating_sub(moved(*start));
                    // Set back in between, the clock does not say how long it took.
                    duration.0 = if duration.0 >= 0 { length.max(0) } else { length };
                };
                if let Some(durations) = column.downcast_mut::<Vec<DurationNs>>() {
                    durations.iter_mut().zip(starts).for_each(longer);
                    lasts = false;
                } else if let Some(durations) = column.downcast_mut::<Vec<Option<DurationNs>>>() {
                    let known = durations.iter_mut().zip(starts);
                    known
                        .filter_map(|(duration, start)| Some((duration.as_mut()?, start)))
                        .for_each(longer);
                    lasts = false;
                }
            }
        }
    });
    let header = &mut process.header;
    header.started_ns = moved(header.started_ns);
    header.ended_ns = header.ended_ns.map(moved);
}
