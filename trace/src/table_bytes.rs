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
