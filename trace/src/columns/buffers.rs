//! Buffers of a message: where each lies in the file, whether they are as they were written, and what is in them.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use arrow_ipc::{BodyCompressionMethod, CompressionType, RecordBatch};
use zstd::bulk::Decompressor;

use crate::column::Raw;
use crate::names::NameId;
use crate::seal;

/// A dictionary that is larger is not for a first look.
const MOST_DICTIONARY_BYTES: usize = 1 << 28;

/// Why a file can't be read by columns; the whole of it may be read all the same.
#[derive(Debug)]
pub struct Unusual(pub String);

impl Unusual {
    pub(super) fn new(what: impl Display) -> Self {
        Self(what.to_string())
    }
}

impl From<io::Error> for Unusual {
    fn from(error: io::Error) -> Self {
        Self::new(error)
    }
}

/// Where a buffer lies in the file.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    offset: u64,
    bytes: usize,
    is_packed: bool,
}

/// A message's body, and what its checksum has to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyCheck {
    pub offset: u64,
    pub bytes: u64,
    /// What the checksum begins with, and the checksum; `None` in a file without.
    pub sums: Option<(u64, u64)>,
}

impl BodyCheck {
    /// Checks that `body` is as it was written.
    pub fn hold(&self, body: &[u8]) -> Result<(), Unusual> {
        match self.sums {
            Some((seed, sum)) if seal::checksum(body, seed) != sum => {
                Err(Unusual::new("a checksum does not match"))
            }
            _ => Ok(()),
        }
    }
}

/// A column of a batch: which of its values are there, and its values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    nulls: bool,
    validity: Piece,
    values: Piece,
}

/// Where a buffer of a batch lies.
fn piece(batch: &RecordBatch<'_>, number: usize, body: u64, body_bytes: u64) -> Result<Piece, Unusual> {
    let buffers = batch.buffers().ok_or(Unusual::new("a batch without buffers"))?;
    if number >= buffers.len() {
        return Err(Unusual::new("a batch with too few buffers"));
    }
    let is_packed = match batch.compression() {
        None => false,
        Some(packing)
            if packing.codec() == CompressionType::ZSTD
                && packing.method() == BodyCompressionMethod::BUFFER =>
        {
            true
        }
        Some(_) => return Err(Unusual::new("packed by something else than zstd")),
    };
    let buffer = buffers.get(number);
    let offset = u64::try_from(buffer.offset()).map_err(Unusual::new)?;
    let bytes = u64::try_from(buffer.length()).map_err(Unusual::new)?;
    if offset.checked_add(bytes).is_none_or(|end| end > body_bytes) {
        return Err(Unusual::new("a buffer that lies outside its message"));
    }
    Ok(Piece {
        offset: body + offset,
        bytes: usize::try_from(bytes).map_err(Unusual::new)?,
        is_packed,
    })
}

/// Where a column of a batch lies.
pub(super) fn column_of(
    batch: &RecordBatch<'_>,
    number: usize,
    rows: usize,
    body: u64,
    body_bytes: u64,
) -> Result<Column, Unusual> {
    let nodes = batch.nodes().ok_or(Unusual::new("a batch without columns"))?;
    if number >= nodes.len() || nodes.get(number).length() != rows as i64 {
        return Err(Unusual::new("a column of another length than its batch"));
    }
    Ok(Column {
        nulls: nodes.get(number).null_count() != 0,
        validity: piece(batch, 2 * number, body, body_bytes)?,
        values: piece(batch, 2 * number + 1, body, body_bytes)?,
    })
}

/// Memory that one batch after another is unpacked in.
pub(super) struct Unpacker {
    zstd: Decompressor<'static>,
    /// The file from `from` on.
    bytes: Vec<u8>,
    from: u64,
    values: Vec<u8>,
    validity: Vec<u8>,
}

impl Unpacker {
    pub fn new() -> Result<Self, Unusual> {
        Ok(Self {
            zstd: Decompressor::new()?,
            bytes: Vec::new(),
            from: 0,
            values: Vec::new(),
            validity: Vec::new(),
        })
    }

    /// Reads a batch's body, and checks it.
    pub fn read(&mut self, file: &File, check: &BodyCheck) -> Result<(), Unusual> {
        self.from = check.offset;
        self.bytes
            .resize(usize::try_from(check.bytes).map_err(Unusual::new)?, 0);
        file.read_exact_at(&mut self.bytes, check.offset)?;
        check.hold(&self.bytes)
    }

    /// Unpacks a column of so many rows, each of so many bytes; of names, `numbers` has what their dictionary's are.
    pub fn unpack<'a>(
        &'a mut self,
        rows: usize,
        width: usize,
        numbers: &'a [NameId],
        column: &Column,
    ) -> Result<Raw<'a>, Unusual> {
        let Self {
            zstd,
            bytes,
            from,
            values,
            validity,
        } = self;
        let mut one = |piece: Piece, least: usize, into: &mut Vec<u8>| {
            let start = usize::try_from(piece.offset - *from).unwrap_or(usize::MAX);
            let packed = start
                .checked_add(piece.bytes)
                .and_then(|end| bytes.get(start..end))
                .unwrap_or_default();
            unpack_piece(zstd, packed, piece.is_packed, least, into)
        };
        one(column.values, rows * width, values)?;
        if column.nulls {
            one(column.validity, rows.div_ceil(8), validity)?;
        }
        Ok(Raw {
            values,
            validity: column.nulls.then_some(validity.as_slice()),
            numbers,
        })
    }
}

/// Unpacks a buffer of so many bytes, or some more, of which those are kept.
fn unpack_piece(
    zstd: &mut Decompressor<'_>,
    bytes: &[u8],
    is_packed: bool,
    least: usize,
    into: &mut Vec<u8>,
) -> Result<(), Unusual> {
    /// Buffers are padded to some multiple of bytes.
    const PADDING: usize = 64;
    let short = || Unusual::new("a buffer that is too short");
    into.clear();
    if least == 0 {
        return Ok(());
    }
    let mut plain = bytes;
    if is_packed {
        let (head, packed) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
        plain = packed;
        // The unpacked length, or -1 where they are not packed after all.
        let length = i64::from_le_bytes(*head);
        if length != -1 {
            let length = usize::try_from(length).map_err(Unusual::new)?;
            if !(least..=least + PADDING).contains(&length) {
                return Err(short());
            }
            into.resize(length, 0);
            let unpacked = zstd.decompress_to_buffer(packed, into.as_mut_slice())?;
            if unpacked != length {
                return Err(short());
            }
            into.truncate(least);
            return Ok(());
        }
    }
    into.extend_from_slice(plain.get(..least).ok_or_else(short)?);
    Ok(())
}

/// Calls `each` with every string of a dictionary.
pub(super) fn read_strings(
    file: &File,
    batch: &RecordBatch<'_>,
    check: BodyCheck,
    mut each: impl FnMut(&str),
) -> Result<(), Unusual> {
    let (body, body_bytes) = (check.offset, check.bytes);
    let count = usize::try_from(batch.length()).map_err(Unusual::new)?;
    if body_bytes > MOST_DICTIONARY_BYTES as u64 || count > MOST_DICTIONARY_BYTES / 4 {
        return Err(Unusual::new("a dictionary that is too large"));
    }
    if count == 0 {
        return Ok(());
    }
    let mut zstd = Decompressor::new()?;
    let mut bytes = vec![0; usize::try_from(body_bytes).map_err(Unusual::new)?];
    file.read_exact_at(&mut bytes, body)?;
    check.hold(&bytes)?;
    let mut buffer = |number: usize, least: Option<usize>| {
        let piece = piece(batch, number, body, body_bytes)?;
        let start = usize::try_from(piece.offset - body).map_err(Unusual::new)?;
        let packed = &bytes[start..start + piece.bytes];
        let mut unpacked = Vec::new();
        unpack_piece(
            &mut zstd,
            packed,
            piece.is_packed,
            least.unwrap_or(0),
            &mut unpacked,
        )?;
        Ok::<_, Unusual>(unpacked)
    };
    let offsets = buffer(1, Some((count + 1) * 4))?;
    let offsets: Vec<usize> = (offsets.as_chunks().0.iter())
        .map(|bytes| usize::try_from(i32::from_le_bytes(*bytes)).unwrap_or(usize::MAX))
        .collect();
    let last = offsets.last().copied().unwrap_or(0);
    if last > MOST_DICTIONARY_BYTES {
        return Err(Unusual::new("a dictionary that is too large"));
    }
    let text = buffer(2, Some(last))?;
    for pair in offsets.windows(2) {
        let text = text
            .get(pair[0]..pair[1])
            .and_then(|text| std::str::from_utf8(text).ok());
        each(text.ok_or(Unusual::new("a damaged dictionary"))?);
    }
    Ok(())
}
