//! What goes to the disk, and when.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::time::clock_snapshot;
use gputrace_trace::writer::BATCH_ROWS;

use super::Sink;
use crate::{config, cost, header, session};

/// How often rows are written that fill no batch.
const WRITE: Duration = Duration::from_millis(950);
/// How often the header is written although nothing in it changed but what recording has cost: a killed process leaves that.
const HEADER: Duration = Duration::from_secs(10);

/// Says in a header which rows were written.
pub(super) fn set_rows(header: &mut ProcessHeader, rows: Vec<(&'static str, u64)>) {
    header.rows = rows
        .into_iter()
        .map(|(table, rows)| (table.to_owned(), rows))
        .collect();
}

impl Sink {
    /// Writes what is due.
    pub(super) fn write(&mut self) {
        if self.is_unwanted {
            return;
        }
        let due = self
            .written
            .map_or_else(|| self.has_events(), |written| written.elapsed() >= WRITE);
        if due {
            self.rows_written(0);
            self.written = Some(Instant::now());
        } else {
            self.rows_written(BATCH_ROWS);
        }
        self.begin_segment_if_due();
        if self.header_changed || self.header_written.elapsed() >= HEADER {
            self.header_changed = false;
            self.header_written = Instant::now();
            self.count_cost();
            let written = header::write(self.writer.folder(), &mut self.header);
            self.complain_of_disk(written);
        }
    }

    /// Begins new files when those that are written hold enough.
    pub(super) fn begin_segment_if_due(&mut self) {
        let Some(most) = config::get().options.segment_bytes else {
            return;
        };
        let (rows, bytes) = self.writer.totals();
        if bytes < most {
            return;
        }
        let closed_folder = self.writer.folder().to_owned();
        let next = self.segment_folder(self.segment + 1);
        match self.writer.begin_segment(&next) {
            Ok(rows_by_table) => {
                self.before.0 += rows;
                self.before.1 += bytes;
                let mut closed = self.header.clone();
                set_rows(&mut closed, rows_by_table);
                header::close(&mut closed);
                let written = header::write(&closed_folder, &mut closed);
                self.complain_of_disk(written);
                self.segment += 1;
                self.writer.tables.clocks.push(clock_snapshot());
                self.header_changed = true;
            }
            Err(error) => self.complain_of_disk(Err(error)),
        }
    }

    /// The folder of a segment: NAME, then NAME.1, NAME.2, ...
    pub(super) fn segment_folder(&self, segment: u32) -> PathBuf {
        let mut folder = self.first_folder.clone().into_os_string();
        if segment > 0 {
            folder.push(format!(".{segment}"));
        }
        folder.into()
    }

    /// Brings the counts that only this thread knows up to date.
    pub(super) fn count_cost(&mut self) {
        let left_out = self.gate.left_out().iter();
        self.header.left_out = left_out
            .map(|(table, rows)| ((*table).to_owned(), *rows))
            .collect();
        let (rows, bytes) = self.writer.totals();
        cost::on_disk(self.before.0 + rows, self.before.1 + bytes);
        cost::own_thread();
    }

    /// Whether there are rows of events: those about the recording itself are no reason to hurry.
    pub(super) fn has_events(&mut self) -> bool {
        let mut any = false;
        self.writer.tables.each(&mut |table| {
            any |=
                table.pending() > 0 && !matches!(table.name(), "clocks" | "contexts" | "streams" | "losses");
        });
        any
    }

    /// Writes tables that hold at least so many rows.
    pub(super) fn rows_written(&mut self, at_least: usize) {
        let refused = self.writer.names.take_refused();
        self.writer
            .lose("names beyond the memory for names", refused, "names");
        let written = self.writer.flush(at_least.max(1));
        self.complain_of_disk(written);
        for (table, count) in self.writer.take_lost_rows() {
            self.writer.lose(
                &format!("rows of {table} that the disk had no room for"),
                count,
                table,
            );
        }
    }

    pub(super) fn complain_of_disk(&mut self, written: io::Result<()>) {
        if let Err(error) = written
            && !self.disk_complained
        {
            self.disk_complained = true;
            self.header
                .notes
                .push(format!("the recording could not always be written: {error}"));
            session::complain(&format!("{}: {error}", self.writer.folder().display()));
        }
    }
}
