//! Checksums: how damage to a recording's files is seen.
//!
//! Each message of a table's file ends its metadata with a seal: what the message is a part of, its place there, and a
//! checksum (XXH3, 64 bits) of the whole message. Readers of Arrow pass over it, since a flatbuffer's reader does not look
//! behind the flatbuffer. JSON files end with a member `checksum`. This finds damage by chance; it is no protection against
//! somebody who means to deceive, who can compute checksums too.

use std::hash::{BuildHasher, Hasher, RandomState};

use arrow_ipc::{Message, MessageHeader};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

use crate::time::now;

/// The key of a file's schema metadata under which the table's name stands.
pub const NAME_KEY: &str = "gputrace.table";

/// Bytes of a seal, a multiple of what messages are aligned to.
const SEAL_BYTES: usize = 40;
/// What a seal begins with.
const MAGIC: [u8; 4] = *b"gts1";
/// Bytes in front of a message's metadata: the marker and the metadata's length.
pub(crate) const PREFIX_BYTES: usize = 8;

/// Which process wrote a file, and as which part of what it wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// A number drawn at random once for each process: `process` of its header.
    pub process: u64,
    /// The part: 0, and with `--max-size` 1, 2, ...
    pub segment: u32,
}

impl Identity {
    /// That of a new process, in its first part.
    #[must_use]
    pub fn random() -> Self {
        Self {
            process: random_id(),
            segment: 0,
        }
    }
}

/// A random number that is not 0. Two processes draw the same with a chance of 1 in 2^64.
#[must_use]
pub fn random_id() -> u64 {
    // The standard library's keys are random; a forked child has its parent's, and another id.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_i64(now().0);
    hasher.finish().max(1)
}

/// An id as it stands in JSON.
#[must_use]
pub fn id_text(id: u64) -> String {
    format!("{id:016x}")
}

/// What bytes are known by, 32 hexadecimal digits (XXH3, 128 bits).
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

/// The id of such a text.
#[must_use]
pub fn parse_id(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}

/// What stands at the end of a message's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    /// The message's number in its file.
    pub number: u32,
    /// How many messages with names were before it: names of later batches mean nothing without all of them.
    pub dictionaries: u32,
    pub identity: Identity,
    /// How many rows were before it.
    pub rows: u64,
}

impl Seal {
    /// That of a file's first message.
    pub(crate) fn first(identity: Identity) -> Self {
        Self {
            number: 0,
            dictionaries: 0,
            identity,
            rows: 0,
        }
    }

    /// Becomes that of the next message, behind one of this kind with so many rows.
    pub(crate) fn advance(&mut self, kind: MessageHeader, rows: u64) {
        self.number = self.number.wrapping_add(1);
        self.dictionaries += u32::from(kind == MessageHeader::DictionaryBatch);
        self.rows = self.rows.saturating_add(rows);
    }

    fn bytes(&self) -> [u8; SEAL_BYTES - 8] {
        let mut bytes = [0; SEAL_BYTES - 8];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.dictionaries.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.identity.segment.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.rows.to_le_bytes());
        bytes[24..].copy_from_slice(&self.identity.process.to_le_bytes());
        bytes
    }

    /// The seal in a message's head (prefix and metadata), unchecked.
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        let (_, seal) = head
            .get(PREFIX_BYTES..)?
            .split_last_chunk::<SEAL_BYTES>()
            .filter(|(_, seal)| seal[..4] == MAGIC)?;
        let word = |at: usize| u32::from_le_bytes([seal[at], seal[at + 1], seal[at + 2], seal[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Some(Self {
            number: word(4),
            dictionaries: word(8),
            identity: Identity {
                process: long(24),
                segment: word(12),
            },
            rows: long(16),
        })
    }
}

/// What the checksums of a table's file begin with.
pub(crate) fn table_seed(table: &str) -> u64 {
    xxh3_64(table.as_bytes())
}

/// What a message's checksum begins with, by its head. The head is hashed first, so that a reader of heads alone can check a
/// body later.
pub(crate) fn head_seed(head: &[u8], table_seed: u64) -> u64 {
    xxh3_64_with_seed(&head[..head.len().saturating_sub(8)], table_seed)
}

/// A message's checksum: of its body, behind what [`head_seed`] gives.
pub(crate) fn checksum(body: &[u8], head_seed: u64) -> u64 {
    xxh3_64_with_seed(body, head_seed)
}

/// Whether a message's body and its head are as they were written. The head has a seal.
pub(crate) fn is_whole(head: &[u8], body: &[u8], table_seed: u64) -> bool {
    stored_checksum(head) == Some(checksum(body, head_seed(head, table_seed)))
}

/// The checksum in a head that has a seal.
pub(crate) fn stored_checksum(head: &[u8]) -> Option<u64> {
    head.last_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Seals the messages of one file, one after the other.
pub(crate) struct Sealer {
    table_seed: u64,
    next: Seal,
}

impl Sealer {
    pub(crate) fn new(table: &str, identity: Identity) -> Self {
        Self {
            table_seed: table_seed(table),
            next: Seal::first(identity),
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        self.next.identity
    }

    /// Puts the seal behind the metadata of a message with `rows` rows (0: one that is no batch of rows). `head`: the
    /// message's prefix and metadata, padded.
    pub(crate) fn seal(&mut self, head: &mut Vec<u8>, body: &[u8], kind: MessageHeader, rows: u64) {
        head.extend_from_slice(&self.next.bytes());
        head.extend_from_slice(&[0; 8]);
        let metadata = (head.len() - PREFIX_BYTES) as u32;
        head[4..PREFIX_BYTES].copy_from_slice(&metadata.to_le_bytes());
        let sum = checksum(body, head_seed(head, self.table_seed));
        let end = head.len();
        head[end - 8..].copy_from_slice(&sum.to_le_bytes());
        self.next.advance(kind, rows);
    }
}

/// The table that a schema says its file holds.
pub(crate) fn table_of(message: &Message<'_>) -> Option<String> {
    let metadata = message.header_as_schema()?.custom_metadata()?;
    let mut pairs = metadata.iter();
    let name = pairs.find(|pair| pair.key() == Some(NAME_KEY))?;
    name.value().map(str::to_owned)
}

/// What stands before the digits of a JSON file's checksum.
const JSON_KEY: &[u8] = b"\"checksum\": \"";
const JSON_DIGITS: usize = 16;
const JSON_END: &[u8] = b"\"\n}\n";

/// Adds the member `checksum` to the text of a JSON object. `name`: what the checksum is bound to, the file's name for one.
pub fn seal_json(text: &mut Vec<u8>, name: &str) {
    let open = text.trim_ascii_end();
    let open = open.strip_suffix(b"}").unwrap_or(open).trim_ascii_end().len();
    text.truncate(open);
    text.extend_from_slice(if text.ends_with(b"{") { b"\n  " } else { b",\n  " });
    text.extend_from_slice(JSON_KEY);
    let checksum = xxh3_64_with_seed(text, xxh3_64(name.as_bytes()));
    text.extend_from_slice(id_text(checksum).as_bytes());
    text.extend_from_slice(JSON_END);
}

/// Whether the checksum of a JSON file is that of its text and of this name; `None` where it has none.
#[must_use]
pub fn check_json(text: &[u8], name: &str) -> Option<bool> {
    let digits_at = text.len().checked_sub(JSON_DIGITS + JSON_END.len())?;
    let (before, after) = text.split_at(digits_at);
    let is_sealed = before.ends_with(JSON_KEY) && after.ends_with(JSON_END);
    is_sealed.then(|| {
        let checksum = xxh3_64_with_seed(before, xxh3_64(name.as_bytes()));
        &after[..JSON_DIGITS] == id_text(checksum).as_bytes()
    })
}
