//! Writing a process's tables, into a folder of their own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::manifest::ProcessHeader;
use crate::names::Interner;
pub use crate::private_file::{Files, OwnFiles, make_folder};
use crate::seal::Identity;
pub use crate::table_writer::{AnyTableWriter, BATCH_ROWS, TableWriter, WAITING_ROWS};
use crate::tables::{LossRow, TableWriters};
use crate::time::now;

/// Writes all tables of one process.
pub struct ProcessWriter {
    /// The strings of all tables.
    pub names: Interner,
    /// The tables.
    pub tables: TableWriters,
    files: Arc<dyn Files>,
    folder: PathBuf,
    identity: Identity,
    lost: u64,
}

impl ProcessWriter {
    /// Makes the process's folder and a writer into it, as a process that nobody has seen before: see [`Self::sign`].
    ///
    /// # Errors
    /// When the folder can't be made or exists already.
    pub fn create(folder: &Path) -> io::Result<Self> {
        make_folder(folder)?;
        Ok(Self::in_folder(OwnFiles::shared(), folder, Identity::random()))
    }

    /// A writer into a folder that [`Files::make_folder`] has made. It is large, so make it where the stack is.
    #[must_use]
    pub fn in_folder(files: Arc<dyn Files>, folder: &Path, identity: Identity) -> Self {
        Self {
            names: Interner::default(),
            tables: TableWriters::new(&files, folder, identity),
            files,
            folder: folder.to_owned(),
            identity,
            lost: 0,
        }
    }

    /// Says in a header which process, segment and folder it is written for: before it is first written, and after each
    /// [`Self::begin_segment`].
    pub fn sign(&self, header: &mut ProcessHeader) {
        self.identity.sign(&self.folder, header);
    }

    /// The process's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Who makes the files.
    #[must_use]
    pub fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// Writes every table that holds at least `rows` rows (0: all that hold any).
    ///
    /// # Errors
    /// The first refusal of the disk; the other tables are tried all the same.
    pub fn flush(&mut self, rows: usize) -> io::Result<()> {
        let names = &self.names;
        let mut result = Ok(());
        self.tables.each(&mut |table| {
            if table.pending() >= rows {
                keep_first(&mut result, table.flush(names));
            }
        });
        result
    }

    /// Writes all there is and the end marks, for the end of the process: rows pushed later would begin a second
    /// stream that no reader expects.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn close(&mut self) -> io::Result<Vec<(&'static str, u64)>> {
        let names = &self.names;
        let mut result = Ok(());
        self.tables
            .each(&mut |table| keep_first(&mut result, table.close(names)));
        result.map(|()| self.rows_encoded())
    }

    /// Closes the files and begins new ones in another folder, which is made; the strings stay. Gives the rows of the files
    /// that were closed.
    ///
    /// # Errors
    /// When the disk refuses the last rows, or the folder can't be made: then everything goes on in the old files. Once the
    /// folder is there nothing fails any more: a file whose end mark the disk refuses has all its rows without it.
    pub fn begin_segment(&mut self, folder: &Path) -> io::Result<Vec<(&'static str, u64)>> {
        // First whatever may be refused, as long as there is a way back.
        self.flush(1)?;
        self.files.make_folder(folder)?;
        let rows = self.rows_encoded();
        // From the first end mark on nothing more may be written into the old files.
        drop(self.close());
        self.leave_segment(folder, self.identity.segment + 1);
        Ok(rows)
    }

    /// Goes on in another folder, which is there, without a word to the old files, which may be out of reach: rows that wait go
    /// along, those that the old files have refused are lost and counted. `segment`: its number, which is above the old one.
    pub fn leave_segment(&mut self, folder: &Path, segment: u32) {
        let files = &self.files;
        self.tables
            .each(&mut |table| table.begin_segment(files, folder, segment));
        folder.clone_into(&mut self.folder);
        self.identity.segment = segment;
    }

    /// How much was noted as missing so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Notes that something is missing; nothing when `count` is 0.
    pub fn lose(&mut self, what: &str, count: u64, affects: &str) {
        if count > 0 {
            self.lost = self.lost.saturating_add(count);
            let row = LossRow {
                time_ns: now(),
                what: self.names.intern_own(what),
                count,
                affects: self.names.intern_own(affects),
            };
            self.tables.losses.push(row);
        }
    }

    /// Rows encoded so far, by table; tables without rows are left out.
    pub fn rows_encoded(&mut self) -> Vec<(&'static str, u64)> {
        let mut rows = Vec::new();
        self.tables.each(&mut |table| {
            if table.rows_encoded() > 0 {
                rows.push((table.name(), table.rows_encoded()));
            }
        });
        rows
    }

    /// Rows encoded and bytes on the disk so far, of all tables.
    pub fn totals(&mut self) -> (u64, u64) {
        let mut totals = (0, 0);
        self.tables.each(&mut |table| {
            totals.0 += table.rows_encoded();
            totals.1 += table.bytes_written();
        });
        totals
    }

    /// Rows lost since the last call because the disk refused, by table.
    pub fn take_lost_rows(&mut self) -> Vec<(&'static str, u64)> {
        let mut lost = Vec::new();
        self.tables.each(&mut |table| {
            let count = table.take_lost_rows();
            if count > 0 {
                lost.push((table.name(), count));
            }
        });
        lost
    }
}

fn keep_first(result: &mut io::Result<()>, next: io::Result<()>) {
    if result.is_ok() {
        *result = next;
    }
}
