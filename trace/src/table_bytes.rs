//! Tables as sections of a file: each one an Arrow IPC stream.

use std::io::{self, Cursor};

use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;

use crate::names::Interner;
use crate::stream::{BATCH_ROWS, check_stream, quietly};
use crate::table::{Dictionaries, Table, TableVisitorMut};
use crate::tables::Tables;

const MOST_ROWS: usize = BATCH_ROWS as usize;

struct Write<'a> {
    names: &'a Interner,
    made: Vec<(&'static str, Result<Vec<u8>, ArrowError>)>,
}

impl TableVisitorMut for Write<'_> {
    fn table<T: Table>(&mut self, table: &mut T) {
        if table.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        let mut dictionaries = Dictionaries::default();
        let batch = table.take_batch(&mut dictionaries, self.names);
        let written = batch.and_then(|batch| {
            let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema())?;
            // No batch has more rows than readers take.
            for from in (0..batch.num_rows()).step_by(MOST_ROWS) {
                writer.write(&batch.slice(from, MOST_ROWS.min(batch.num_rows() - from)))?;
            }
            writer.finish()
        });
        self.made.push((T::NAME, written.map(|()| bytes)));
    }
}

/// Takes all rows out of tables, each table that has any as bytes.
///
/// # Errors
/// When Arrow refuses one.
pub fn to_bytes(tables: &mut Tables, names: &Interner) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let mut write = Write {
        names,
        made: Vec::new(),
    };
    tables.visit_mut(&mut write);
    let made = write.made.into_iter();
    made.map(|(name, bytes)| Ok((name, bytes.map_err(io::Error::other)?)))
        .collect()
}

/// Appends the rows of a table that [`to_bytes`] made.
///
/// # Errors
/// When the bytes are no such table.
pub fn from_bytes(tables: &mut Tables, name: &str, bytes: &[u8], names: &mut Interner) -> io::Result<()> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("table {name}: {why}"));
    check_stream(bytes).map_err(wrong)?;
    // Arrow panics on some damage to schemas and lengths.
    let read = quietly(|| StreamReader::try_new(Cursor::new(bytes), None)?.collect::<Result<Vec<_>, _>>());
    let batches = read.unwrap_or_else(|_| Err(ArrowError::IpcError("Arrow cannot decode it".to_owned())));
    for batch in batches.map_err(|error| wrong(error.to_string()))? {
        match tables.append_batch(name, &batch, names) {
            Some(Ok(_)) => {}
            Some(Err(why)) => return Err(wrong(why)),
            None => return Err(wrong("there is none of this name".to_owned())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TimeNs;
    use crate::tables::Marker;

    fn made(rows: u32) -> Vec<u8> {
        let (mut tables, mut names) = (Tables::default(), Interner::default());
        for row in 0..rows {
            let name = names.intern(&format!("step {}", row % 7));
            tables.markers.push(Marker {
                start_ns: TimeNs(i64::from(row)),
                name,
                ..Marker::default()
            });
        }
        let all = to_bytes(&mut tables, &names).expect("bytes");
        all.into_iter().next().expect("a table").1
    }

    fn read(bytes: &[u8]) -> io::Result<usize> {
        let (mut tables, mut names) = (Tables::default(), Interner::default());
        from_bytes(&mut tables, "markers", bytes, &mut names)?;
        Ok(tables.markers.start_ns.len())
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(read(&made(20)).expect("a table"), 20);
        assert!(
            from_bytes(
                &mut Tables::default(),
                "kernels",
                &made(20),
                &mut Interner::default()
            )
            .is_err()
        );
        assert!(
            from_bytes(
                &mut Tables::default(),
                "nothing",
                &made(20),
                &mut Interner::default()
            )
            .is_err()
        );
        assert!(read(&[]).is_err());
    }

    /// Lengths and offsets that ask for memory or reach beyond the bytes.
    #[test]
    fn numbers_in_it_are_not_trusted() {
        let whole = made(20);
        for place in (0..whole.len() - 8).step_by(4) {
            for number in [-1i64, i64::MIN, i64::MAX, 1 << 40, 1 << 31] {
                let mut bytes = whole.clone();
                bytes[place..place + 8].copy_from_slice(&number.to_le_bytes());
                // Any answer is one; what is accepted has no more rows than were written, or fewer.
                if let Ok(rows) = read(&bytes) {
                    assert!(rows <= 20, "{rows} rows of 20, with {number} at {place}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn damage_ends_with_an_answer(
            places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut: Option<prop::sample::Index>,
        ) {
            let mut bytes = made(20);
            for (place, byte) in places {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            let _ = read(&bytes);
        }
    }
}
