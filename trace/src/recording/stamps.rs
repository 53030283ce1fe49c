//! Stamps that cannot be: in recordings without checksums damage shows where a row lies hours outside its process's life.

use crate::manifest::ProcessHeader;
use crate::table::{Table, TableVisitorMut};
use crate::tables::{Clocks, Tables};
use crate::time::{DurationNs, TimeNs};

/// How far outside a row may lie: host and device clocks, and ranges that began before the collector did.
const SLACK_NS: i64 = 3_600_000_000_000;

/// From when to when a process's rows may lie, both included.
pub(crate) struct Life {
    first: i64,
    last: i64,
}

impl Life {
    /// Of the process of this header. `written_ns`: when its files were last written to, for one that did not say when it ended.
    pub fn of(header: &ProcessHeader, written_ns: i64, clocks: &Clocks) -> Self {
        if header.started_ns <= 0 {
            return Self {
                first: i64::MIN,
                last: i64::MAX,
            };
        }
        let mut life = Self {
            first: header.started_ns.saturating_sub(SLACK_NS),
            last: header
                .ended_ns
                .unwrap_or(written_ns)
                .max(header.started_ns)
                .saturating_add(SLACK_NS),
        };
        // A clock that was set is no damage: its readings say where it has been.
        for reading in &clocks.realtime_ns {
            life.first = life.first.min(reading.0.saturating_sub(SLACK_NS));
            life.last = life.last.max(reading.0.saturating_add(SLACK_NS));
        }
        life
    }

    /// Takes out the rows that lie outside, and gives how many by table.
    pub fn leave_out_impossible(&self, tables: &mut Tables) -> Vec<(&'static str, u64)> {
        let mut look = Look {
            life: self,
            left_out: Vec::new(),
        };
        tables.visit_mut(&mut look);
        look.left_out
    }

    fn has(&self, stamp: i64) -> bool {
        (self.first..=self.last).contains(&stamp)
    }
}

struct Look<'a> {
    life: &'a Life,
    left_out: Vec<(&'static str, u64)>,
}

impl TableVisitorMut for Look<'_> {
    fn table<T: Table>(&mut self, table: &mut T) {
        let columns = table.columns();
        // The first of each: further ones are of parts of a row.
        let Some(starts) = columns
            .iter()
            .find_map(|column| column.downcast_ref::<Vec<TimeNs>>())
        else {
            return;
        };
        let durations = columns
            .iter()
            .find_map(|column| column.downcast_ref::<Vec<DurationNs>>());
        let is_possible = |row: usize| {
            let start = starts[row].0;
            let duration = durations.map_or(0, |durations| durations[row].0);
            self.life.has(start) && start.checked_add(duration).is_some_and(|end| self.life.has(end))
        };
        let all = table.len();
        if (0..all).all(is_possible) {
            return;
        }
        let kept: Vec<u32> = (0..all)
            .filter(|&row| is_possible(row))
            .map(|row| row as u32)
            .collect();
        self.left_out.push((T::NAME, (all - kept.len()) as u64));
        *table = table.pick(&kept);
    }
}
