//! What goes to the disk, and when.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gputrace_trace::clock_reading::clock_snapshot;
use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::place::remove_process_folder;
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter};

use crate::complain::complain;
use crate::{config, cost, header};

/// How often rows are written that fill no batch.
const WRITE: Duration = Duration::from_millis(950);
/// How often the header is written although nothing in it changed but what recording has cost: a killed process leaves that.
const HEADER: Duration = Duration::from_secs(10);

/// Says in a header which rows were written.
fn set_rows(header: &mut ProcessHeader, rows: Vec<(&'static str, u64)>) {
    header.rows = rows
        .into_iter()
        .map(|(table, rows)| (table.to_owned(), rows))
        .collect();
}

/// A process's files, and what is to go into them.
pub(super) struct Disk {
    pub(super) writer: ProcessWriter,
    pub(super) header: ProcessHeader,
    pub(super) header_changed: bool,
    header_written: Instant,
    /// When rows were last written that filled no batch; `None` before the first.
    written: Option<Instant>,
    has_complained: bool,
    /// The folder of the first segment.
    first_folder: PathBuf,
    /// Which segment is written now.
    segment: u32,
    /// Rows and bytes of the segments before.
    before: (u64, u64),
    /// Whether there is a place for the files.
    is_open: bool,
}

impl Disk {
    /// `is_open`: whether there is a place for the files already.
    pub(super) fn new(writer: ProcessWriter, header: ProcessHeader, is_open: bool) -> Self {
        Self {
            is_open,
            first_folder: writer.folder().to_owned(),
            writer,
            header,
            header_changed: true,
            header_written: Instant::now(),
            written: None,
            has_complained: false,
            segment: 0,
            before: (0, 0),
        }
    }

    /// Whether rows of events were written.
    pub(super) fn has_written(&self) -> bool {
        self.written.is_some()
    }

    /// Writes what is due. `left_out`: rows that were left out so far, by table.
    pub(super) fn write(&mut self, left_out: &BTreeMap<&'static str, u64>) {
        if !self.is_open {
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
            self.count_cost(left_out);
            let written = self.write_header();
            self.complain(written);
        }
    }

    fn write_header(&mut self) -> io::Result<()> {
        let files = std::sync::Arc::clone(self.writer.files());
        header::write(&*files, self.writer.folder(), &mut self.header)
    }

    /// Begins new files when those that are written hold enough.
    fn begin_segment_if_due(&mut self) {
        if let Some(most) = config::options().segment_bytes
            && self.writer.totals().1 >= most
        {
            self.begin_segment();
        }
    }

    /// Begins new files.
    pub(super) fn begin_segment(&mut self) {
        let (rows, bytes) = self.writer.totals();
        let closed_folder = self.writer.folder().to_owned();
        let next = self.segment_folder(self.segment + 1);
        match self.writer.begin_segment(&next) {
            Ok(rows_by_table) => {
                self.before.0 += rows;
                self.before.1 += bytes;
                let mut closed = self.header.clone();
                set_rows(&mut closed, rows_by_table);
                header::close(&mut closed);
                let written = header::write(&**self.writer.files(), &closed_folder, &mut closed);
                self.complain(written);
                self.has_begun_segment(self.segment + 1);
            }
            Err(error) => self.complain(Err(error)),
        }
    }

    fn has_begun_segment(&mut self, segment: u32) {
        self.segment = segment;
        self.writer.sign(&mut self.header);
        self.writer.tables.clocks.push(clock_snapshot());
        self.header_changed = true;
    }

    /// Rows and bytes of all segments.
    pub(super) fn totals(&mut self) -> (u64, u64) {
        let (rows, bytes) = self.writer.totals();
        (self.before.0 + rows, self.before.1 + bytes)
    }

    /// Which segment is written.
    pub(super) fn segment(&self) -> u32 {
        self.segment
    }

    /// There is a place for the files: a new one, whatever became of the last.
    ///
    /// # Errors
    /// When the place can't be made.
    pub(super) fn open(&mut self, segment: u32) -> io::Result<()> {
        let folder = self.segment_folder(segment);
        self.writer.files().make_folder(&folder)?;
        if segment > self.segment {
            let (rows, bytes) = self.writer.totals();
            self.writer.leave_segment(&folder, segment);
            self.before.0 += rows;
            self.before.1 += bytes;
            self.has_begun_segment(segment);
        }
        self.is_open = true;
        self.header_changed = true;
        Ok(())
    }

    /// There is none, until there is again.
    pub(super) fn shut(&mut self) {
        self.is_open = false;
    }

    /// The folder of a segment: NAME, then NAME.1, NAME.2, ...
    fn segment_folder(&self, segment: u32) -> PathBuf {
        let mut folder = self.first_folder.clone().into_os_string();
        if segment > 0 {
            folder.push(format!(".{segment}"));
        }
        folder.into()
    }

    /// Brings the counts that only this thread knows up to date.
    fn count_cost(&mut self, left_out: &BTreeMap<&'static str, u64>) {
        self.header.left_out = left_out
            .iter()
            .map(|(table, rows)| ((*table).to_owned(), *rows))
            .collect();
        let (rows, bytes) = self.totals();
        cost::on_disk(rows, bytes);
        cost::own_thread();
    }

    /// Whether there are rows of events: those about the recording itself are no reason to hurry.
    fn has_events(&mut self) -> bool {
        let mut any = false;
        self.writer.tables.each(&mut |table| {
            any |=
                table.pending() > 0 && !matches!(table.name(), "clocks" | "contexts" | "streams" | "losses");
        });
        any
    }

    /// Writes tables that hold at least so many rows.
    pub(super) fn rows_written(&mut self, at_least: usize) {
        if !self.is_open {
            return;
        }
        let refused = self.writer.names.take_refused();
        self.writer
            .lose("names beyond the memory for names", refused, "names");
        let written = self.writer.flush(at_least.max(1));
        self.complain(written);
        for (table, count) in self.writer.take_lost_rows() {
            self.writer.lose(
                &format!("rows of {table} that the disk had no room for"),
                count,
                table,
            );
        }
    }

    fn complain(&mut self, written: io::Result<()>) {
        if let Err(error) = written
            && !self.has_complained
        {
            self.has_complained = true;
            self.header
                .notes
                .push(format!("the recording could not always be written: {error}"));
            complain(&format!("{}: {error}", self.writer.folder().display()));
        }
    }

    /// Says in the header why nothing more is written; it is not closed, so that the rest counts as missing.
    pub(super) fn give_up(&mut self, why: &str) {
        self.header.notes.push(why.to_owned());
        let written = self.write_header();
        self.complain(written);
    }

    /// Takes away what was written.
    pub(super) fn remove(&self) {
        for folder in (0..=self.segment).map(|segment| self.segment_folder(segment)) {
            // The recorder may have removed the oldest.
            if let Err(error) = remove_process_folder(&folder)
                && error.kind() != io::ErrorKind::NotFound
            {
                complain(&format!("{}: {error}", folder.display()));
            }
        }
    }

    /// Writes all there is, for the end of the process.
    pub(super) fn close(&mut self, left_out: &BTreeMap<&'static str, u64>) {
        if !self.is_open {
            return;
        }
        match self.writer.close() {
            Ok(rows) => {
                set_rows(&mut self.header, rows);
                header::close(&mut self.header);
            }
            Err(error) => self
                .header
                .notes
                .push(format!("the recording could not be closed: {error}")),
        }
        self.count_cost(left_out);
        if let Err(error) = self.write_header() {
            complain(&format!("{}: {error}", self.writer.folder().display()));
        }
    }
}
