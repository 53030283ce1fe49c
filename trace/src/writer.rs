//! Writing a process's tables: batches of Arrow IPC, appended whole or not at all.
//!
//! A batch that the disk refuses is kept and tried again, since the batches after it build on its dictionary; rows
//! that come meanwhile wait up to a bound and are then counted as lost. A reader sees whole batches and a cut tail.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::io::{self, IoSlice};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use arrow_buffer::Buffer;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{DictionaryHandling, IpcWriteOptions, StreamEncoder};
use arrow_schema::ArrowError;

use crate::body;
use crate::column::Dictionary;
use crate::names::Interner;
use crate::private_file::PrivateFile;
use crate::table::{Dictionaries, Table};
use crate::tables::{LossRow, TableWriters};
use crate::time::now;

/// Rows that make a batch full: it is written without waiting for the second to end.
pub const BATCH_ROWS: usize = 16 * 1024;
/// Rows that wait at most while the disk refuses a batch; those after them are lost and counted.
pub const WAITING_ROWS: usize = 4 * BATCH_ROWS;
/// Buffers that are written with one call (Linux takes up to 1024).
const SLICES: usize = 256;

/// Tables of what stands for the whole of a process: each segment begins with their rows, so that it can be read alone.
pub const STANDING_TABLES: [&str; 4] = ["contexts", "streams", "communicators", "graph_nodes"];
/// Rows of such a table that are repeated, at the most.
const STANDING_ROWS: usize = 1 << 16;

/// Writes one table's file.
pub struct TableWriter<T: Table> {
    rows: T,
    dictionaries: Dictionaries,
    encoder: Option<StreamEncoder>,
    file: PrivateFile,
    /// Encoded bytes that are not on the disk yet.
    waiting: VecDeque<Buffer>,
    rows_encoded: u64,
    bytes_written: u64,
    lost_rows: u64,
    /// Rows of a table of [`STANDING_TABLES`], for the segments to come.
    standing: T,
}

impl<T: Table> TableWriter<T> {
    /// A writer of `folder/NAME.arrows`; the file appears with the first batch.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            rows: T::default(),
            dictionaries: Vec::new(),
            encoder: None,
            file: PrivateFile::new(folder.join(format!("{}.arrows", T::NAME))),
            waiting: VecDeque::new(),
            rows_encoded: 0,
            bytes_written: 0,
            lost_rows: 0,
            standing: T::default(),
        }
    }

    /// Appends a row, in memory. A row that finds no room (the disk refuses, see the module's text) is lost and counted.
    #[inline]
    pub fn push(&mut self, row: T::Row) {
        if self.rows.len() >= WAITING_ROWS {
            self.lost_rows += 1;
        } else {
            self.rows.push(row);
        }
    }

    fn encode(&mut self, names: &Interner) -> Result<(), ArrowError> {
        let rows = self.rows.len();
        if STANDING_TABLES.contains(&T::NAME) {
            let room = STANDING_ROWS.saturating_sub(self.standing.len());
            for row in 0..self.rows.len().min(room) {
                self.standing.push(self.rows.row(row));
            }
        }
        let is_first = self.encoder.is_none();
        if is_first {
            let options = IpcWriteOptions::default()
                .try_with_compression(Some(CompressionType::ZSTD))?
                .with_dictionary_handling(DictionaryHandling::Delta);
            self.encoder = Some(StreamEncoder::try_new_with_options(&T::schema(), options)?);
        }
        body::with(|body| {
            let strings =
                |dictionaries: &Dictionaries| dictionaries.iter().map(Dictionary::len).sum::<usize>();
            let known = strings(&self.dictionaries);
            self.rows.write_rows(&mut self.dictionaries, names, body);
            // arrow writes the schema, and what is new in the dictionaries, for a batch without rows.
            if let Some(encoder) = &mut self.encoder
                && (is_first || strings(&self.dictionaries) != known)
            {
                let none = T::default().take_batch(&mut self.dictionaries, names)?;
                self.waiting.push_back(without_rows(&encoder.encode(&none)?)?);
            }
            self.waiting.extend(body.finish(rows).map(Buffer::from_vec));
            self.rows_encoded += rows as u64;
            Ok(())
        })
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        while !self.waiting.is_empty() {
            // A batch is some dozen buffers: one call writes them all.
            let slices: Vec<IoSlice<'_>> = self
                .waiting
                .iter()
                .take(SLICES)
                .map(|buffer| IoSlice::new(buffer))
                .collect();
            match self.file.write_vectored(&slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.bytes_written += written as u64;
                    consume(&mut self.waiting, written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The messages of a stream's piece but for batches of rows.
fn without_rows(pieces: &[Buffer]) -> Result<Buffer, ArrowError> {
    let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    let broken = || ArrowError::IpcError("a message that arrow wrote is not understood".to_owned());
    let mut kept = Vec::with_capacity(all.len());
    let mut rest = all.as_slice();
    while let Some(head) = rest.first_chunk::<8>() {
        let metadata = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let message = rest
            .get(8..8 + metadata)
            .and_then(|metadata| arrow_ipc::root_as_message(metadata).ok())
            .ok_or_else(broken)?;
        let body = usize::try_from(message.bodyLength()).map_err(|_| broken())?;
        let (message, others) = match rest.split_at_checked(8 + metadata + body) {
            Some((bytes, others)) => ((message.header_type(), bytes), others),
            None => return Err(broken()),
        };
        if message.0 != arrow_ipc::MessageHeader::RecordBatch {
            kept.extend_from_slice(message.1);
        }
        rest = others;
    }
    Ok(Buffer::from_vec(kept))
}

/// Takes `bytes` off the front of what waits.
fn consume(waiting: &mut VecDeque<Buffer>, mut bytes: usize) {
    while let Some(front) = waiting.front_mut() {
        if bytes < front.len() {
            front.advance(bytes);
            return;
        }
        bytes -= front.len();
        waiting.pop_front();
    }
}

/// A table's writer, whichever the table.
pub trait AnyTableWriter {
    /// The table's name.
    fn name(&self) -> &'static str;
    /// Rows pushed and not yet encoded.
    fn pending(&self) -> usize;
    /// Rows encoded so far: all that were pushed but for the pending and the lost.
    fn rows_encoded(&self) -> u64;
    /// Bytes on the disk so far.
    fn bytes_written(&self) -> u64;
    /// Rows lost since the last call, which sets the count back to 0.
    fn take_lost_rows(&mut self) -> u64;
    /// Writes all pending rows as one batch.
    ///
    /// # Errors
    /// When the disk refuses; the batch is kept for the next call.
    fn flush(&mut self, names: &Interner) -> io::Result<()>;
    /// Flushes, then writes Arrow's end-of-stream mark. Only for the end of the process.
    ///
    /// # Errors
    /// As [`Self::flush`].
    fn close(&mut self, names: &Interner) -> io::Result<()>;
    /// From now on writes into another folder, where nothing of this table is yet.
    fn begin_segment(&mut self, folder: &Path);
}

impl<T: Table> AnyTableWriter for TableWriter<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn pending(&self) -> usize {
        self.rows.len()
    }

    fn rows_encoded(&self) -> u64 {
        self.rows_encoded
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    fn take_lost_rows(&mut self) -> u64 {
        std::mem::take(&mut self.lost_rows)
    }

    fn flush(&mut self, names: &Interner) -> io::Result<()> {
        // What the disk refused comes first; until it is written nothing more is encoded, so memory stays bounded.
        self.write_waiting()?;
        if !self.rows.is_empty() {
            self.encode(names).map_err(io::Error::other)?;
        }
        self.write_waiting()
    }

    fn close(&mut self, names: &Interner) -> io::Result<()> {
        self.flush(names)?;
        if let Some(encoder) = self.encoder.take() {
            self.waiting.extend(encoder.finish().map_err(io::Error::other)?);
        }
        self.write_waiting()
    }

    fn begin_segment(&mut self, folder: &Path) {
        // What stands is encoded anew, and so kept anew for the next.
        let mut rows = std::mem::take(&mut self.standing);
        for row in 0..self.rows.len() {
            rows.push(self.rows.row(row));
        }
        let lost_rows = self.lost_rows;
        *self = Self::new(folder);
        self.rows = rows;
        self.lost_rows = lost_rows;
    }
}

/// Writes all tables of one process.
pub struct ProcessWriter {
    /// The strings of all tables.
    pub names: Interner,
    /// The tables.
    pub tables: TableWriters,
    folder: PathBuf,
}

impl ProcessWriter {
    /// Makes the process's folder and a writer into it.
    ///
    /// # Errors
    /// When the folder can't be made or exists already.
    pub fn create(folder: &Path) -> io::Result<Self> {
        make_folder(folder)?;
        Ok(Self {
            names: Interner::default(),
            tables: TableWriters::new(folder),
            folder: folder.to_owned(),
        })
    }

    /// The process's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
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
        make_folder(folder)?;
        let rows = self.rows_encoded();
        // From the first end mark on nothing more may be written into the old files.
        drop(self.close());
        self.tables.each(&mut |table| table.begin_segment(folder));
        folder.clone_into(&mut self.folder);
        Ok(rows)
    }

    /// Notes that something is missing; nothing when `count` is 0.
    pub fn lose(&mut self, what: &str, count: u64, affects: &str) {
        if count > 0 {
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

/// Makes a process's folder.
fn make_folder(folder: &Path) -> io::Result<()> {
    std::fs::create_dir(folder)?;
    // Whatever the program's mask: we must be able to write into it, and readers to look.
    let mode = std::fs::metadata(folder)?.permissions().mode();
    if mode & 0o700 != 0o700 {
        std::fs::set_permissions(folder, Permissions::from_mode(mode | 0o700))?;
    }
    Ok(())
}

fn keep_first(result: &mut io::Result<()>, next: io::Result<()>) {
    if result.is_ok() {
        *result = next;
    }
}
