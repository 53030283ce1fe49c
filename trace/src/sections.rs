//! Files of sections: an Arrow IPC file in which each row is a piece of something larger, packed, with a checksum over the whole file.
//! Partial analyses are such files.

use std::collections::HashMap;
use std::io::{self, Cursor, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{LargeBinaryBuilder, StringBuilder, UInt32Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use xxhash_rust::xxh3::xxh3_64;

use crate::beneath;
use crate::seal::PREFIX_BYTES;
use crate::stream::{CONTINUATION, Unpacked, quietly};

/// Under this key of the schema's metadata stands the checksum, behind [`MARK`]: XXH3 of the file, taken with zeros in its place.
const CHECKSUM_KEY: &str = "gputrace.checksum";
/// What an Arrow file begins with.
const MAGIC: &[u8] = b"ARROW1";
const MARK: &[u8] = b"gputrace-xxh3:";
const DIGITS: usize = 16;

/// One piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// What it is of: the folder of a process, or nothing.
    pub of: String,
    /// Its rank, where that is known.
    pub rank: Option<u32>,
    /// What it is.
    pub name: String,
    /// The piece itself.
    pub data: Vec<u8>,
}

/// What a file of sections holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// What is said of the whole, by key.
    pub about: HashMap<String, String>,
    /// In the order in which they were written.
    pub all: Vec<Section>,
}

fn schema(about: HashMap<String, String>) -> Arc<Schema> {
    let fields = vec![
        Field::new("of", DataType::Utf8, false),
        Field::new("rank", DataType::UInt32, true),
        Field::new("section", DataType::Utf8, false),
        Field::new("data", DataType::LargeBinary, false),
    ];
    Arc::new(Schema::new(fields).with_metadata(about))
}

fn other(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        error => io::Error::other(error),
    }
}

/// Where the digits of the checksum stand.
fn places(bytes: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = bytes[from..]
        .windows(MARK.len())
        .position(|window| window == MARK)
    {
        from += at + MARK.len();
        if from + DIGITS <= bytes.len() {
            found.push(from);
        }
    }
    found
}

/// Checks what Arrow takes on trust: that the blocks that the footer names lie in the file, and what each asks for.
fn check_blocks(bytes: &[u8]) -> Result<(), String> {
    const TAIL: usize = 10;
    let (front, tail) = bytes
        .split_last_chunk::<TAIL>()
        .ok_or("too short for an Arrow file")?;
    let length = i32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
    let start = usize::try_from(length)
        .ok()
        .and_then(|length| front.len().checked_sub(length));
    let footer = &front[start.ok_or("a footer that is longer than the file")?..];
    let footer = arrow_ipc::root_as_footer(footer).map_err(|error| format!("footer: {error}"))?;
    if footer.dictionaries().is_some_and(|blocks| !blocks.is_empty()) {
        return Err("dictionaries, which no such file has".to_owned());
    }
    let mut unpacked = Unpacked::default();
    for block in footer.recordBatches().into_iter().flatten() {
        let outside = "a block that lies outside the file";
        let number = |number: i64| usize::try_from(number).map_err(|_| outside);
        let (from, head) = (number(block.offset())?, number(block.metaDataLength().into())?);
        let end = from
            .checked_add(head)
            .zip(Some(number(block.bodyLength())?))
            .and_then(|(start, body)| start.checked_add(body));
        let message = end.and_then(|end| front.get(from..end)).ok_or(outside)?;
        // So the body begins where the checks of buffers take it to begin.
        let said = message
            .get(4..8)
            .and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        let said = said.map_or(0, u32::from_le_bytes) as usize;
        if message.first_chunk() != Some(&CONTINUATION) || said.saturating_add(PREFIX_BYTES) != head {
            return Err("a block that begins with no message".to_owned());
        }
        unpacked.check(message)?;
    }
    Ok(())
}

impl Sections {
    /// Writes the file.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut about = self.about.clone();
        let mark = String::from_utf8_lossy(MARK);
        about.insert(CHECKSUM_KEY.to_owned(), format!("{mark}{}", "0".repeat(DIGITS)));
        let schema = schema(about);
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::ZSTD))
            .map_err(other)?;
        let mut bytes = Vec::new();
        let mut writer = FileWriter::try_new_with_options(&mut bytes, &schema, options).map_err(other)?;
        // A batch for each thing that sections are of: readers need not unpack all at once.
        for sections in self.all.chunk_by(|a, b| a.of == b.of) {
            let (mut of, mut rank) = (StringBuilder::new(), UInt32Builder::new());
            let (mut name, mut data) = (StringBuilder::new(), LargeBinaryBuilder::new());
            for section in sections {
                of.append_value(&section.of);
                rank.append_option(section.rank);
                name.append_value(&section.name);
                data.append_value(&section.data);
            }
            let columns: Vec<ArrayRef> = vec![
                Arc::new(of.finish()),
                Arc::new(rank.finish()),
                Arc::new(name.finish()),
                Arc::new(data.finish()),
            ];
            let batch = RecordBatch::try_new(schema.clone(), columns).map_err(other)?;
            writer.write(&batch).map_err(other)?;
        }
        writer.finish().map_err(other)?;
        drop(writer);
        // In the middle of packed data the mark stands with a chance of 1 in 2^112 a byte.
        let places = places(&bytes);
        let checksum = format!("{:016x}", xxh3_64(&bytes));
        for place in places {
            bytes[place..place + DIGITS].copy_from_slice(checksum.as_bytes());
        }
        out.write_all(&bytes)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it can't be read; with [`io::ErrorKind::InvalidData`] when it is no file of sections or is damaged.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::read_some(path, |_| true)
    }

    /// The same of sections with some names alone.
    ///
    /// # Errors
    /// As [`Sections::read`].
    pub fn read_some(path: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Self> {
        let mut file = beneath::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no file"));
        }
        // Before all of it is read: it may be anything.
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(&mut file, MAGIC.len() as u64), &mut bytes)?;
        if bytes != MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no Arrow file"));
        }
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Self::parse(bytes, wanted)
    }

    fn parse(mut bytes: Vec<u8>, wanted: impl Fn(&str) -> bool) -> io::Result<Self> {
        let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        if !bytes.starts_with(MAGIC) {
            return Err(damaged("no Arrow file"));
        }
        let places = places(&bytes);
        let said = places
            .first()
            .map(|place| bytes[*place..*place + DIGITS].to_vec());
        let said = said.ok_or_else(|| damaged("no file with a checksum of gputrace in it"))?;
        for place in &places {
            if bytes[*place..*place + DIGITS] != said {
                return Err(damaged("damaged"));
            }
            bytes[*place..*place + DIGITS].fill(b'0');
        }
        if format!("{:016x}", xxh3_64(&bytes)).as_bytes() != said {
            return Err(damaged("damaged: its checksum is that of other bytes"));
        }
        check_blocks(&bytes).map_err(|why| damaged(&format!("damaged: {why}")))?;
        // Arrow panics on some damage to schemas and lengths.
        quietly(|| Self::decode(bytes, wanted))
            .unwrap_or_else(|_| Err(damaged("damaged: Arrow cannot decode it")))
    }

    /// Of an Arrow file whose blocks lie in it.
    fn decode(bytes: Vec<u8>, wanted: impl Fn(&str) -> bool) -> io::Result<Self> {
        let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let invalid = |error: ArrowError| damaged(&error.to_string());
        let reader = FileReader::try_new(Cursor::new(bytes), None).map_err(invalid)?;
        let mut about = reader.schema().metadata().clone();
        about.remove(CHECKSUM_KEY);
        if reader.schema().as_ref() != schema(reader.schema().metadata().clone()).as_ref() {
            return Err(damaged("an Arrow file with other columns"));
        }
        let mut all = Vec::new();
        for batch in reader {
            let batch = batch.map_err(invalid)?;
            let (of, name) = (
                batch.column(0).as_string::<i32>(),
                batch.column(2).as_string::<i32>(),
            );
            let rank = batch.column(1).as_primitive::<UInt32Type>();
            let data = batch.column(3).as_binary::<i64>();
            for row in (0..batch.num_rows()).filter(|row| wanted(name.value(*row))) {
                all.push(Section {
                    of: of.value(row).to_owned(),
                    rank: rank.is_valid(row).then(|| rank.value(row)),
                    name: name.value(row).to_owned(),
                    data: data.value(row).to_vec(),
                });
            }
        }
        Ok(Self { about, all })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sections() -> Sections {
        let section = |of: &str, rank, name: &str, length: u8| Section {
            of: of.to_owned(),
            rank,
            name: name.to_owned(),
            data: (0..length).collect(),
        };
        Sections {
            about: [("version".to_owned(), "1".to_owned())].into(),
            all: vec![
                section("", None, "base", 200),
                section("rank0", Some(0), "alone", 100),
                section("rank0", Some(0), "kernels", 0),
                section("rank7", Some(7), "alone", 3),
            ],
        }
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        sections().write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Sections::parse(bytes(), |_| true).unwrap(), sections());
        assert_eq!(bytes(), bytes());
        assert!(Sections::parse(Vec::new(), |_| true).is_err());
    }

    /// Gives bytes the checksum that they have.
    fn seal(bytes: &mut [u8]) {
        let places = places(bytes);
        for place in &places {
            bytes[*place..*place + DIGITS].fill(b'0');
        }
        let checksum = format!("{:016x}", xxh3_64(bytes));
        for place in places {
            bytes[place..place + DIGITS].copy_from_slice(checksum.as_bytes());
        }
    }

    #[test]
    fn lengths_of_a_footer_are_not_trusted() {
        // Blocks of the footer: 24 bytes each, of which the last 8 are the body's length.
        let whole = bytes();
        let footer = i32::from_le_bytes(whole[whole.len() - 10..][..4].try_into().unwrap());
        let start = whole.len() - 10 - usize::try_from(footer).unwrap();
        let mut refused = 0;
        for place in (start..whole.len() - 18).step_by(4) {
            for length in [-1i64, i64::MIN, i64::MAX, 1 << 40] {
                let mut bytes = whole.clone();
                bytes[place..place + 8].copy_from_slice(&length.to_le_bytes());
                seal(&mut bytes);
                refused += usize::from(Sections::parse(bytes, |_| true).is_err());
            }
        }
        assert!(refused > 0);
    }

    proptest! {
        #[test]
        fn what_is_sealed_again_ends_with_an_answer(
            places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = bytes();
            for (place, byte) in places {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            seal(&mut bytes);
            let _ = Sections::parse(bytes, |_| true);
        }

        #[test]
        fn damage_is_seen(place: prop::sample::Index, bit in 0..8u32, cut: Option<prop::sample::Index>) {
            let mut bytes = bytes();
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            prop_assert!(Sections::parse(bytes, |_| true).is_err());
        }
    }
}
