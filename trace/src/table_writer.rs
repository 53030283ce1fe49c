//! Writing one table's file: batches of Arrow IPC, appended whole or not at all.
//!
//! A batch that the disk refuses is kept and tried again, since the batches after it build on its dictionary; rows
//! that come meanwhile wait up to a bound and are then counted as lost. A reader sees whole batches and a cut tail.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{DictionaryHandling, IpcWriteOptions, StreamEncoder};
use arrow_schema::ArrowError;

use crate::body;
use crate::column::Dictionary;
use crate::names::Interner;
use crate::private_file::{Files, PrivateFile};
use crate::seal::{Identity, PREFIX_BYTES, Sealer};
use crate::table::{Dictionaries, Holds, Table};

/// Rows that make a batch full: it is written without waiting for the second to end.
pub const BATCH_ROWS: usize = 16 * 1024;
/// Rows that wait at most while the disk refuses a batch; those after them are lost and counted.
pub const WAITING_ROWS: usize = 4 * BATCH_ROWS;
/// Buffers that are written with one call (Linux takes up to 1024).
const SLICES: usize = 256;

/// Rows of a table of [`Holds::Standing`] that are repeated in each segment, at the most.
const STANDING_ROWS: usize = 1 << 16;

/// Writes one table's file.
pub struct TableWriter<T: Table> {
    rows: T,
    dictionaries: Dictionaries,
    encoder: Option<StreamEncoder>,
    sealer: Sealer,
    file: PrivateFile,
    /// Encoded bytes that are not on the disk yet.
    waiting: VecDeque<Buffer>,
    /// Rows in them.
    waiting_rows: u64,
    rows_encoded: u64,
    bytes_written: u64,
    lost_rows: u64,
    /// Rows of a table of [`Holds::Standing`], for the segments to come.
    standing: T,
}

impl<T: Table> TableWriter<T> {
    /// A writer of `folder/NAME.arrows`; the file appears with the first batch. `files`: who makes it; `identity`: whose file it is.
    #[must_use]
    pub fn new(files: &Arc<dyn Files>, folder: &Path, identity: Identity) -> Self {
        Self {
            rows: T::default(),
            dictionaries: Vec::new(),
            encoder: None,
            sealer: Sealer::new(T::NAME, identity),
            file: PrivateFile::new(Arc::clone(files), folder.join(format!("{}.arrows", T::NAME))),
            waiting: VecDeque::new(),
            waiting_rows: 0,
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
        if T::HOLDS == Holds::Standing {
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
                self.waiting
                    .push_back(sealed_without_rows(&encoder.encode(&none)?, &mut self.sealer)?);
            }
            self.waiting
                .extend(body.finish(rows, &mut self.sealer).map(Buffer::from_vec));
            self.rows_encoded += rows as u64;
            self.waiting_rows += rows as u64;
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
        self.waiting_rows = 0;
        Ok(())
    }
}

/// The messages of a stream's piece but for batches of rows, each sealed.
fn sealed_without_rows(pieces: &[Buffer], sealer: &mut Sealer) -> Result<Buffer, ArrowError> {
    let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    let broken = || ArrowError::IpcError("a message that arrow wrote is not understood".to_owned());
    let mut sealed = Vec::with_capacity(all.len() + 256);
    let mut rest = all.as_slice();
    while let Some(prefix) = rest.first_chunk::<PREFIX_BYTES>() {
        let metadata = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize;
        let (head, behind) = rest
            .split_at_checked(PREFIX_BYTES + metadata)
            .ok_or_else(broken)?;
        let message = arrow_ipc::root_as_message(&head[PREFIX_BYTES..]).map_err(|_| broken())?;
        let body = usize::try_from(message.bodyLength()).map_err(|_| broken())?;
        let (body, others) = behind.split_at_checked(body).ok_or_else(broken)?;
        let kind = message.header_type();
        if kind != arrow_ipc::MessageHeader::RecordBatch {
            let mut head = head.to_vec();
            sealer.seal(&mut head, body, kind, 0);
            sealed.append(&mut head);
            sealed.extend_from_slice(body);
        }
        rest = others;
    }
    Ok(Buffer::from_vec(sealed))
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
    /// From now on writes into another folder, where nothing of this table is yet: the process's next segment. Rows that are not
    /// encoded go there; those that are and that the disk has refused are lost.
    fn begin_segment(&mut self, files: &Arc<dyn Files>, folder: &Path, segment: u32);
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

    fn begin_segment(&mut self, files: &Arc<dyn Files>, folder: &Path, segment: u32) {
        // What stands is encoded anew, and so kept anew for the next.
        let mut rows = std::mem::take(&mut self.standing);
        for row in 0..self.rows.len() {
            rows.push(self.rows.row(row));
        }
        let lost_rows = self.lost_rows + self.waiting_rows;
        let mut identity = self.sealer.identity();
        identity.segment = segment;
        *self = Self::new(files, folder, identity);
        self.rows = rows;
        self.lost_rows = lost_rows;
    }
}
