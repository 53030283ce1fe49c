//! Reading one table's file, whole or while it grows.
//!
//! Arrow's stream decoder is only given whole messages: the framing is read here first, so that a file cut at any
//! byte gives every batch before the cut, and a file that grows can be read again from where it ended.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Once;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;

/// What stands before each message's metadata since Arrow 0.15.
pub(crate) const CONTINUATION: [u8; 4] = [0xff; 4];

/// How a table's file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// With Arrow's end mark: the process closed it.
    Closed,
    /// On a message's boundary, without the end mark: the process was killed, or still writes.
    Open,
    /// Within a message: so many bytes are there of one that is not whole.
    Cut(u64),
    /// With something that is no Arrow message; the text says what is wrong.
    Damaged(String),
}

/// Reads a table's file from front to back, and again as it grows.
pub struct StreamFile {
    path: PathBuf,
    decoder: StreamDecoder,
    /// Up to here whole messages were decoded.
    offset: u64,
    end: StreamEnd,
}

/// A message's size from its framing: `None` when the bytes are too few to tell.
enum Frame {
    Message { bytes: usize, rows: u64 },
    End,
}

fn frame(bytes: &[u8]) -> Result<Option<Frame>, String> {
    let Some((head, rest)) = bytes.split_first_chunk::<8>() else {
        return Ok(None);
    };
    if head[..4] != CONTINUATION {
        return Err("no message mark where one must be".to_owned());
    }
    let metadata_bytes = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if metadata_bytes == 0 {
        return Ok(Some(Frame::End));
    }
    if metadata_bytes > 1 << 28 {
        return Err(format!("a message header of {metadata_bytes} bytes"));
    }
    let Some(metadata) = rest.get(..metadata_bytes) else {
        return Ok(None);
    };
    let message = arrow_ipc::root_as_message(metadata).map_err(|error| format!("message header: {error}"))?;
    let Ok(body_bytes) = usize::try_from(message.bodyLength()) else {
        return Err("a message of negative length".to_owned());
    };
    let rows = message.header_as_record_batch().map_or(0, |batch| batch.length());
    let bytes = 8usize.saturating_add(metadata_bytes).saturating_add(body_bytes);
    Ok(Some(Frame::Message {
        bytes,
        rows: u64::try_from(rows).unwrap_or(0),
    }))
}

/// A compressed buffer that says it unpacks to more than this is damaged: a batch has some thousand rows.
const BUFFER_BYTES: i64 = 1 << 31;
/// A batch that says it has more rows than this is damaged: a writer takes some thousand. Columns that it has not take memory
/// in ours all the same.
pub(crate) const BATCH_ROWS: i64 = 1 << 20;

/// Checks what Arrow takes on trust: where a whole message's buffers lie in it, and how much memory they ask for.
fn check_buffers(message: &[u8]) -> Result<(), String> {
    let metadata_bytes = match message.first_chunk::<8>() {
        Some(head) => u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize,
        None => return Ok(()),
    };
    let (Some(metadata), Some(body)) = (
        message.get(8..8 + metadata_bytes),
        message.get(8 + metadata_bytes..),
    ) else {
        return Ok(());
    };
    let header = arrow_ipc::root_as_message(metadata).map_err(|error| format!("message header: {error}"))?;
    let batch = header
        .header_as_record_batch()
        .or_else(|| header.header_as_dictionary_batch()?.data());
    let Some(batch) = batch else {
        return Ok(());
    };
    if !(0..=BATCH_ROWS).contains(&batch.length()) {
        return Err(format!("a batch of {} rows", batch.length()));
    }
    let Some(buffers) = batch.buffers() else {
        return Ok(());
    };
    for buffer in buffers {
        let bytes = usize::try_from(buffer.offset())
            .ok()
            .zip(usize::try_from(buffer.length()).ok())
            .and_then(|(offset, length)| body.get(offset..offset.checked_add(length)?))
            .ok_or("a buffer that lies outside its message")?;
        // Before the packed bytes stands the unpacked length, or -1 where they are not packed after all.
        if let (Some(_), Some(length)) = (batch.compression(), bytes.first_chunk::<8>()) {
            let length = i64::from_le_bytes(*length);
            if !(-1..=BUFFER_BYTES).contains(&length) {
                return Err(format!("a buffer of {length} bytes"));
            }
        }
    }
    Ok(())
}

thread_local! {
    /// Whether a panic of this thread is expected, and will be told as a loss.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Catches a panic of `work` without a word on stderr.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    QUIET.set(false);
    result
}

impl StreamFile {
    /// A reader at the front of the file.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            decoder: StreamDecoder::new(),
            offset: 0,
            end: StreamEnd::Open,
        }
    }

    /// How the file ended at the last read.
    #[must_use]
    pub fn end(&self) -> &StreamEnd {
        &self.end
    }

    /// The batches that were appended since the last read.
    ///
    /// # Errors
    /// When the file can't be read. A damaged file is no error: see [`Self::end`].
    pub fn read(&mut self) -> io::Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        self.read_each(|batch| {
            batches.push(batch);
            true
        })?;
        Ok(batches)
    }

    /// The same, each batch as soon as it is unpacked, while `take` wants more.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_each(&mut self, mut take: impl FnMut(RecordBatch) -> bool) -> io::Result<()> {
        if matches!(self.end, StreamEnd::Closed | StreamEnd::Damaged(_)) {
            return Ok(());
        }
        let bytes = read_from(&self.path, self.offset)?;
        let buffer = Buffer::from_vec(bytes);
        let mut at = 0;
        loop {
            let rest = &buffer[at..];
            match frame(rest) {
                Ok(Some(Frame::End)) => self.end = StreamEnd::Closed,
                Ok(Some(Frame::Message { bytes, .. })) if bytes <= rest.len() => {
                    let mut message = buffer.slice_with_length(at, bytes);
                    let decoded = match self.decode(&mut message) {
                        Ok(batch) => batch,
                        Err(wrong) => {
                            self.end = StreamEnd::Damaged(wrong);
                            break;
                        }
                    };
                    at += bytes;
                    self.offset += bytes as u64;
                    if decoded.is_none_or(&mut take) {
                        continue;
                    }
                }
                Ok(_) if rest.is_empty() => self.end = StreamEnd::Open,
                Ok(_) => self.end = StreamEnd::Cut(rest.len() as u64),
                Err(wrong) => self.end = StreamEnd::Damaged(wrong),
            }
            break;
        }
        Ok(())
    }

    /// Decodes one whole message: a batch, or `None` for a schema or a dictionary.
    fn decode(&mut self, message: &mut Buffer) -> Result<Option<RecordBatch>, String> {
        check_buffers(message)?;
        let decoder = &mut self.decoder;
        // Arrow panics on some damage to schemas and lengths. A decoder that did is never used again: the caller
        // stops at the first error.
        let decoded = quietly(|| {
            let mut batch = None;
            while !message.is_empty() {
                if let Some(decoded) = decoder.decode(message).map_err(|error| error.to_string())? {
                    batch = Some(decoded);
                }
            }
            Ok(batch)
        });
        decoded.unwrap_or_else(|_| Err("a message that Arrow cannot decode".to_owned()))
    }
}

/// Counts the rows of a growing file from the messages' headers alone, decoding nothing.
#[derive(Clone, Debug, Default)]
pub struct RowCounter {
    offset: u64,
    /// Rows of the whole batches seen so far.
    pub rows: u64,
}

impl RowCounter {
    /// Reads on from where the last call ended.
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn read(&mut self, path: &Path) -> io::Result<u64> {
        let bytes = read_from(path, self.offset)?;
        let mut at = 0;
        while let Ok(Some(Frame::Message { bytes: length, rows })) = frame(&bytes[at..]) {
            if at + length > bytes.len() {
                break;
            }
            at += length;
            self.rows = self.rows.saturating_add(rows);
        }
        self.offset += at as u64;
        Ok(self.rows)
    }
}

fn read_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
