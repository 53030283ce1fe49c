//! Reading one table's file, whole or while it grows.
//!
//! Arrow's stream decoder is only given whole messages that are as they were written ([`crate::seal`]): the framing is read
//! here first, so that a file cut at any byte gives every batch before the cut, and a file that grows can be read again from
//! where it ended. Behind a damaged batch reading goes on with the next message that is whole and of this file.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Once;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::MessageHeader;
use arrow_ipc::reader::StreamDecoder;

use crate::beneath;
use crate::seal::{self, Identity, PREFIX_BYTES, Seal};

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

/// A stretch of a file that was passed over, since it is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What is wrong.
    pub what: String,
    /// Rows that are missing for it; 0 where it is something that does not belong there.
    pub rows: u64,
}

/// Whether a file's messages have checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// The file's first message says.
    #[default]
    AsFound,
    /// They must have.
    Required,
    /// They must have, and be those of this process.
    Of(Identity),
}

/// The checks of a file that is being read.
enum State {
    /// Nothing was read yet.
    Unknown,
    /// The messages have no checksums.
    Unchecked,
    Checked {
        table_seed: u64,
        /// The seal that the next message must have.
        next: Seal,
    },
}

/// Reads a table's file from front to back, and again as it grows.
pub struct StreamFile {
    path: PathBuf,
    decoder: StreamDecoder,
    unpacked: Unpacked,
    checks: Checks,
    state: State,
    /// Up to here whole messages were decoded.
    offset: u64,
    end: StreamEnd,
    damage: Vec<Damage>,
}

/// A message by its framing.
struct Framed {
    /// Bytes of the prefix and the metadata.
    head: usize,
    /// Bytes in all.
    bytes: usize,
    /// Rows of a batch, 0 for anything else.
    rows: u64,
    kind: MessageHeader,
}

enum Frame {
    Message(Framed),
    End,
}

/// The message that `bytes` begin with: `None` when they are too few to tell.
fn frame(bytes: &[u8]) -> Result<Option<Frame>, String> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    if prefix[..4] != CONTINUATION {
        return Err("no message mark where one must be".to_owned());
    }
    let metadata_bytes = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize;
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
    let head = PREFIX_BYTES.saturating_add(metadata_bytes);
    Ok(Some(Frame::Message(Framed {
        head,
        bytes: head.saturating_add(body_bytes),
        rows: u64::try_from(rows).unwrap_or(0),
        kind: message.header_type(),
    })))
}

/// A compressed buffer that says it unpacks to more than this is damaged: a batch has some thousand rows.
const BUFFER_BYTES: i64 = 1 << 31;
/// A batch that says it has more rows than this is damaged: a writer takes some thousand. Columns that it has not take memory
/// in ours all the same.
pub(crate) const BATCH_ROWS: i64 = 1 << 20;

/// A file may unpack to so many times its size.
pub const UNPACKED_TIMES: u64 = 250;

/// How much memory the messages of a file ask for: a few bytes can unpack to any number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unpacked {
    packed: u64,
    unpacked: u64,
}

impl Unpacked {
    /// What is unpacked in any case.
    const ALWAYS: u64 = 1 << 31;

    /// Checks one more message of the file.
    pub(crate) fn check(&mut self, message: &[u8]) -> Result<(), String> {
        self.packed += message.len() as u64;
        self.unpacked = self.unpacked.saturating_add(check_buffers(message)?);
        if self.unpacked > Self::ALWAYS.max(self.packed.saturating_mul(UNPACKED_TIMES)) {
            return Err(format!(
                "{} bytes that would unpack to {}",
                self.packed, self.unpacked
            ));
        }
        Ok(())
    }
}

/// Checks what Arrow takes on trust: where a whole message's buffers lie in it, and how much memory they ask for, which it gives.
fn check_buffers(message: &[u8]) -> Result<u64, String> {
    let metadata_bytes = match message.first_chunk::<8>() {
        Some(head) => u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize,
        None => return Ok(0),
    };
    let (Some(metadata), Some(body)) = (
        message.get(8..8 + metadata_bytes),
        message.get(8 + metadata_bytes..),
    ) else {
        return Ok(0);
    };
    let header = arrow_ipc::root_as_message(metadata).map_err(|error| format!("message header: {error}"))?;
    let batch = header
        .header_as_record_batch()
        .or_else(|| header.header_as_dictionary_batch()?.data());
    let Some(batch) = batch else {
        return Ok(0);
    };
    if !(0..=BATCH_ROWS).contains(&batch.length()) {
        return Err(format!("a batch of {} rows", batch.length()));
    }
    let Some(buffers) = batch.buffers() else {
        return Ok(0);
    };
    let mut unpacked: u64 = 0;
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
            unpacked = unpacked.saturating_add(u64::try_from(length).unwrap_or(0));
        }
    }
    Ok(unpacked)
}

/// The same of all messages of a stream that is in memory.
pub(crate) fn check_stream(bytes: &[u8]) -> Result<(), String> {
    let (mut rest, mut unpacked) = (bytes, Unpacked::default());
    while let Some(Frame::Message(framed)) = frame(rest)? {
        let message = rest.get(..framed.bytes);
        unpacked.check(message.ok_or("a message that is not whole")?)?;
        rest = &rest[framed.bytes..];
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
            unpacked: Unpacked::default(),
            checks: Checks::AsFound,
            state: State::Unknown,
            offset: 0,
            end: StreamEnd::Open,
            damage: Vec::new(),
        }
    }

    /// The same, of which it is known whether it must have checksums.
    #[must_use]
    pub fn with_checks(path: &Path, checks: Checks) -> Self {
        Self {
            checks,
            ..Self::new(path)
        }
    }

    /// The file that is read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the messages that were read had checksums.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        matches!(self.state, State::Checked { .. })
    }

    /// What was passed over since the last call.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damage)
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
        let buffer = Buffer::from_vec(read_from(&self.path, self.offset)?);
        let mut at = 0;
        loop {
            let rest = &buffer[at..];
            let wrong = match frame(rest) {
                Ok(Some(Frame::Message(framed))) if framed.bytes <= rest.len() => {
                    match self.check(&framed, &rest[..framed.bytes]) {
                        Ok(()) => {
                            let mut message = buffer.slice_with_length(at, framed.bytes);
                            let decoded = match self.decode(&mut message) {
                                Ok(batch) => batch,
                                Err(wrong) => {
                                    self.end = StreamEnd::Damaged(wrong);
                                    break;
                                }
                            };
                            at += framed.bytes;
                            self.offset += framed.bytes as u64;
                            if decoded.is_none_or(&mut take) {
                                continue;
                            }
                            break;
                        }
                        Err(wrong) => StreamEnd::Damaged(wrong),
                    }
                }
                Ok(Some(Frame::End)) => match self.check_end(rest.len() - PREFIX_BYTES) {
                    Ok(()) => {
                        self.end = StreamEnd::Closed;
                        break;
                    }
                    Err(wrong) => StreamEnd::Damaged(wrong),
                },
                Ok(_) if rest.is_empty() => {
                    self.end = StreamEnd::Open;
                    break;
                }
                Ok(_) => StreamEnd::Cut(rest.len() as u64),
                // What a file system puts where it lost data.
                Err(_) if rest.iter().all(|byte| *byte == 0) => StreamEnd::Cut(rest.len() as u64),
                Err(wrong) => StreamEnd::Damaged(wrong),
            };
            let Some((skipped, seal)) = self.next_whole(rest) else {
                self.end = wrong;
                break;
            };
            let what = match wrong {
                StreamEnd::Damaged(what) => what,
                _ => "a message that is not whole".to_owned(),
            };
            if let Err(wrong) = self.pass_over(what, seal) {
                self.end = StreamEnd::Damaged(wrong);
                break;
            }
            at += skipped;
            self.offset += skipped as u64;
        }
        Ok(())
    }

    /// Whether a message is as it was written, and in its place.
    fn check(&mut self, framed: &Framed, message: &[u8]) -> Result<(), String> {
        let (head, body) = message.split_at(framed.head);
        let seal = Seal::of(head);
        if let State::Unknown = self.state {
            self.state = match (seal, self.checks) {
                (None, Checks::AsFound) => State::Unchecked,
                (None, _) => return Err("it has no checksums, and was written with them".to_owned()),
                (Some(seal), checks) => {
                    let table = arrow_ipc::root_as_message(&head[PREFIX_BYTES..])
                        .ok()
                        .and_then(|message| seal::table_of(&message));
                    let identity = match checks {
                        Checks::Of(identity) => identity,
                        Checks::AsFound | Checks::Required => seal.identity,
                    };
                    State::Checked {
                        table_seed: seal::table_seed(&table.unwrap_or_default()),
                        next: Seal::first(identity),
                    }
                }
            };
        }
        let State::Checked { table_seed, next } = &mut self.state else {
            return match seal {
                None => Ok(()),
                Some(_) => Err("it has checksums in its middle and none at its beginning".to_owned()),
            };
        };
        let seal = seal.ok_or("a message without a checksum")?;
        if !seal::is_whole(head, body, *table_seed) {
            return Err("a checksum does not match".to_owned());
        }
        if seal.identity != next.identity {
            return Err("it was written by another process, or as another part of this one".to_owned());
        }
        if seal != *next {
            return Err("a batch is missing, or not in its place".to_owned());
        }
        next.advance(framed.kind, framed.rows);
        Ok(())
    }

    /// Whether an end mark may stand where one stands, with so many bytes behind it.
    fn check_end(&self, behind: usize) -> Result<(), String> {
        match self.state {
            State::Unknown if self.checks != Checks::AsFound => {
                Err("an end mark and nothing before it".to_owned())
            }
            State::Checked { .. } if behind > 0 => Err(format!("{behind} bytes behind the end mark")),
            _ => Ok(()),
        }
    }

    /// Where in `rest`, which does not begin with what must be there, the next message lies that is whole and of this file, and
    /// its seal.
    fn next_whole(&self, rest: &[u8]) -> Option<(usize, Seal)> {
        /// Bytes that are hashed for each byte of the file, at the most: a file may be made to look like many messages.
        const MOST_HASHED: usize = 4;
        let State::Checked { table_seed, next } = &self.state else {
            return None;
        };
        // Without the schema nothing can be decoded.
        if next.number == 0 {
            return None;
        }
        let mut left = rest.len().saturating_mul(MOST_HASHED);
        for at in (0..rest.len()).filter(|&at| rest[at..].starts_with(&CONTINUATION)) {
            let Ok(Some(Frame::Message(framed))) = frame(&rest[at..]) else {
                continue;
            };
            let Some(message) = rest[at..].get(..framed.bytes) else {
                continue;
            };
            let (head, body) = message.split_at(framed.head);
            let Some(seal) = Seal::of(head) else { continue };
            let is_later = seal.number >= next.number && seal.rows >= next.rows;
            if seal.identity != next.identity || !is_later {
                continue;
            }
            left = left.checked_sub(framed.bytes)?;
            if seal::is_whole(head, body, *table_seed) {
                return Some((at, seal));
            }
        }
        None
    }

    /// Goes on behind damage, with the message of this seal.
    fn pass_over(&mut self, what: String, seal: Seal) -> Result<(), String> {
        let State::Checked { next, .. } = &mut self.state else {
            return Err(what);
        };
        if seal.dictionaries != next.dictionaries {
            return Err(format!("{what}, and names of later rows with it"));
        }
        self.damage.push(Damage {
            what,
            rows: seal.rows - next.rows,
        });
        *next = seal;
        Ok(())
    }

    /// Decodes one whole message: a batch, or `None` for a schema or a dictionary.
    fn decode(&mut self, message: &mut Buffer) -> Result<Option<RecordBatch>, String> {
        self.unpacked.check(message)?;
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

/// Whose file it is, by its first message's seal, if that has one.
///
/// # Errors
/// When the file can't be read.
pub fn identity_of(path: &Path) -> io::Result<Option<Identity>> {
    /// A schema takes less.
    const FIRST_BYTES: u64 = 1 << 16;
    let mut bytes = Vec::new();
    beneath::open(path)?.take(FIRST_BYTES).read_to_end(&mut bytes)?;
    let Ok(Some(Frame::Message(framed))) = frame(&bytes) else {
        return Ok(None);
    };
    Ok(bytes
        .get(..framed.head)
        .and_then(Seal::of)
        .map(|seal| seal.identity))
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
        while let Ok(Some(Frame::Message(framed))) = frame(&bytes[at..]) {
            if framed.bytes > bytes.len() - at {
                break;
            }
            at += framed.bytes;
            self.rows = self.rows.saturating_add(framed.rows);
        }
        self.offset += at as u64;
        Ok(self.rows)
    }
}

fn read_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = beneath::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod unpacked_tests {
    use super::Unpacked;

    #[test]
    fn a_file_may_unpack_to_two_gib_or_250_times_its_size() {
        let asks = |packed, unpacked| Unpacked { packed, unpacked }.check(&[]).is_ok();
        assert!(asks(10, 1 << 31) && !asks(10, (1 << 31) + 1));
        assert!(asks(1 << 30, 250 << 30) && !asks(1 << 30, (250 << 30) + 1));
    }
}
