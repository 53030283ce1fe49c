//! Some columns of a table's file, batch after batch: for a first look at a large recording.
//!
//! Reading a whole table takes memory for every value in it, and touching that memory is most of what opening a large recording
//! costs. Here the columns that are wanted are unpacked, of one batch at a time, into memory that is used again. What is read is
//! what our own writer writes; anything else is [`Unusual`], and the table is to be read as a whole.

mod buffers;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{channel, sync_channel};

use arrow_ipc::{Message, MessageHeader, Schema, Type};
use arrow_schema::DataType;

pub use self::buffers::Unusual;
use self::buffers::{BodyCheck, Column, Unpacker, column_of, read_strings};
use crate::beneath;
use crate::names::{Interner, NameId};
use crate::seal::NAME_KEY;
use crate::seal::{self, Seal};
use crate::stream::{self, quietly};
use crate::table::Table;

/// A message's header is looked for in so many bytes first.
const HEADER_BYTES: usize = 4096;
/// No header is longer.
const MOST_HEADER_BYTES: usize = 1 << 20;

/// So many batches wait for who looks at them.
const AHEAD: usize = 2;

/// Checks that messages have checksums and follow each other.
#[derive(Debug, Default)]
struct Order {
    /// The seal of the last message; none in a file without.
    last: Option<Seal>,
    messages: u64,
}

impl Order {
    /// What has to be checked of a message's body, by its head.
    fn follow(&mut self, head: &[u8], offset: u64, bytes: u64, table: &str) -> Result<BodyCheck, Unusual> {
        let seal = Seal::of(head);
        let is_next = match (&self.last, &seal) {
            (None, None) => true,
            (None, Some(seal)) => self.messages == 0 && seal.number == 0,
            (Some(last), Some(seal)) => {
                seal.identity == last.identity && last.number.checked_add(1) == Some(seal.number)
            }
            (Some(_), None) => false,
        };
        if !is_next {
            return Err(Unusual::new("a message out of its place"));
        }
        self.messages += 1;
        self.last = seal;
        let sum = seal.and_then(|_| seal::stored_checksum(head));
        Ok(BodyCheck {
            offset,
            bytes,
            sums: sum.map(|sum| (seal::head_seed(head, seal::table_seed(table)), sum)),
        })
    }
}

/// A column that is wanted.
#[derive(Debug)]
struct Wanted {
    /// Its place in our table.
    ours: usize,
    /// Its place in the file.
    theirs: usize,
    width: usize,
    /// The dictionary of a column of names.
    dictionary: Option<i64>,
    numbers: Vec<NameId>,
}

#[derive(Debug)]
struct Batch {
    rows: usize,
    check: BodyCheck,
    /// In the order of what is wanted.
    columns: Vec<Column>,
}

/// A table's file of which some columns are read.
#[derive(Debug)]
pub struct ColumnFile<T> {
    file: Option<File>,
    wanted: Vec<Wanted>,
    batches: Vec<Batch>,
    rows: usize,
    table: std::marker::PhantomData<fn() -> T>,
}

impl<T: Table> ColumnFile<T> {
    /// The file at `path`, which need not exist, with the columns of these names. The strings of its columns of names find their
    /// place in `names`. Whole batches are read, as many as there are now.
    ///
    /// # Errors
    /// When it is not as our own writer leaves a file, or can't be read.
    pub fn open(path: &Path, columns: &[&str], names: &mut Interner) -> Result<Self, Unusual> {
        let mut opened = Self {
            file: None,
            wanted: Vec::new(),
            batches: Vec::new(),
            rows: 0,
            table: std::marker::PhantomData,
        };
        let file = match beneath::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(opened),
            file => file?,
        };
        let bytes = file.metadata()?.len();
        let mut at = 0;
        let mut header = Vec::new();
        let mut order = Order::default();
        while at < bytes {
            let Some(header_bytes) = read_header(&file, at, bytes, &mut header)? else {
                break;
            };
            if header_bytes == 0 {
                break;
            }
            let message = arrow_ipc::root_as_message(&header[8..]).map_err(Unusual::new)?;
            let body_bytes = u64::try_from(message.bodyLength()).map_err(Unusual::new)?;
            let body = at + header.len() as u64;
            let Some(next) = body.checked_add(body_bytes).filter(|next| *next <= bytes) else {
                break;
            };
            let check = order.follow(&header, body, body_bytes, T::NAME)?;
            opened.take(&file, &message, check, columns, names)?;
            at = next;
        }
        opened.file = Some(file);
        Ok(opened)
    }

    fn take(
        &mut self,
        file: &File,
        message: &Message<'_>,
        check: BodyCheck,
        columns: &[&str],
        names: &mut Interner,
    ) -> Result<(), Unusual> {
        let (body, body_bytes) = (check.offset, check.bytes);
        match message.header_type() {
            MessageHeader::Schema => {
                check.hold(&[])?;
                let schema = message.header_as_schema().ok_or(Unusual::new("no schema"))?;
                self.wanted = wanted::<T>(&schema, columns)?;
            }
            MessageHeader::DictionaryBatch => {
                let batch = message
                    .header_as_dictionary_batch()
                    .ok_or(Unusual::new("no dictionary"))?;
                let Some(data) = batch.data() else {
                    return Err(Unusual::new("a dictionary of nothing"));
                };
                let mut wanted = self.wanted.iter_mut();
                let Some(column) = wanted.find(|wanted| wanted.dictionary == Some(batch.id())) else {
                    return Ok(());
                };
                if !batch.isDelta() && !column.numbers.is_empty() {
                    return Err(Unusual::new("a dictionary that replaces another"));
                }
                read_strings(file, &data, check, |text| {
                    column.numbers.push(names.intern(text));
                })?;
            }
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or(Unusual::new("no batch"))?;
                if self.wanted.is_empty() {
                    return Err(Unusual::new("a batch before the schema"));
                }
                let rows = usize::try_from(batch.length()).map_err(Unusual::new)?;
                if rows as i64 > stream::BATCH_ROWS {
                    return Err(Unusual::new(format!("a batch of {rows} rows")));
                }
                let place = |wanted: &Wanted| column_of(&batch, wanted.theirs, rows, body, body_bytes);
                let columns: Result<Vec<Column>, Unusual> = self.wanted.iter().map(place).collect();
                self.batches.push(Batch {
                    rows,
                    check,
                    columns: columns?,
                });
                self.rows += rows;
            }
            other => return Err(Unusual::new(format!("a message of another kind ({})", other.0))),
        }
        Ok(())
    }

    /// How many rows its whole batches have.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Calls `visit` with each batch and its first row's number: a table in which only the columns that are wanted have values.
    /// Of a file with more than a few another thread unpacks them meanwhile.
    ///
    /// # Errors
    /// When a batch is damaged or can't be read. `visit` saw those before it.
    pub fn each(&self, mut visit: impl FnMut(usize, &T)) -> Result<(), Unusual>
    where
        T: Send,
    {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut first = 0;
        let mut visit = |table: &T, batch: &Batch| {
            visit(first, table);
            first += batch.rows;
        };
        if self.batches.len() <= AHEAD {
            let mut unpacker = Unpacker::new()?;
            let mut table = T::default();
            for batch in &self.batches {
                self.fill(&mut table, &mut unpacker, file, batch)?;
                visit(&table, batch);
            }
            return Ok(());
        }
        // Memory of batches that were seen is used again: touching new memory costs more than unpacking.
        let (unpacked, batches) = sync_channel(AHEAD);
        let (seen, again) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut unpacker = Unpacker::new();
                for batch in &self.batches {
                    let filled = match &mut unpacker {
                        Ok(unpacker) => {
                            let mut table = again.try_recv().unwrap_or_default();
                            self.fill(&mut table, unpacker, file, batch).map(|()| table)
                        }
                        Err(wrong) => Err(Unusual::new(&wrong.0)),
                    };
                    let is_last = filled.is_err();
                    if unpacked.send(filled).is_err() || is_last {
                        break;
                    }
                }
            });
            for (batch, filled) in self.batches.iter().zip(batches) {
                let table: T = filled?;
                visit(&table, batch);
                // Nobody needs it where all are unpacked.
                drop(seen.send(table));
            }
            Ok(())
        })
    }

    fn fill(
        &self,
        table: &mut T,
        unpacker: &mut Unpacker,
        file: &File,
        batch: &Batch,
    ) -> Result<(), Unusual> {
        unpacker.read(file, &batch.check)?;
        for (wanted, column) in self.wanted.iter().zip(&batch.columns) {
            let raw = unpacker.unpack(batch.rows, wanted.width, &wanted.numbers, column)?;
            if !table.fill(wanted.ours, &raw) {
                return Err(Unusual::new("a name that its dictionary does not have"));
            }
        }
        Ok(())
    }
}

/// Reads a message's header with the eight bytes before it into `header`: how many bytes it has, nothing where the file ends in it.
fn read_header(file: &File, at: u64, bytes: u64, header: &mut Vec<u8>) -> Result<Option<usize>, Unusual> {
    let left = usize::try_from(bytes - at).unwrap_or(usize::MAX);
    header.resize(HEADER_BYTES.min(left), 0);
    file.read_exact_at(header, at)?;
    let Some(head) = header.first_chunk::<8>() else {
        return Ok(None);
    };
    if head[..4] != stream::CONTINUATION {
        return Err(Unusual::new("no message mark where one must be"));
    }
    let header_bytes = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if header_bytes > MOST_HEADER_BYTES {
        return Err(Unusual::new(format!("a message header of {header_bytes} bytes")));
    }
    let whole = 8 + header_bytes;
    if whole > left {
        return Ok(None);
    }
    if whole > header.len() {
        header.resize(whole, 0);
        file.read_exact_at(header, at)?;
    }
    header.truncate(whole);
    Ok(Some(header_bytes))
}

/// Where the columns that are wanted stand. All columns of our tables lie in two buffers each, which makes the others easy to
/// pass over.
fn wanted<T: Table>(schema: &Schema<'_>, columns: &[&str]) -> Result<Vec<Wanted>, Unusual> {
    let fields = schema.fields().ok_or(Unusual::new("a schema without columns"))?;
    for field in fields {
        let is_plain = match field.dictionary() {
            Some(dictionary) => dictionary.indexType().is_none_or(|index| index.bitWidth() == 32),
            None => matches!(field.type_type(), Type::Int | Type::FloatingPoint),
        };
        if !is_plain {
            return Err(Unusual::new("a column that is neither a number nor a name"));
        }
    }
    // Arrow's own words for the types: it panics on some damage.
    let theirs = quietly(|| arrow_ipc::convert::fb_to_schema(*schema))
        .map_err(|_| Unusual::new("a damaged schema"))?;
    if theirs
        .metadata()
        .get(NAME_KEY)
        .is_some_and(|name| name != T::NAME)
    {
        return Err(Unusual::new("it holds another table"));
    }
    let ours = T::schema();
    let find = |name: &&str| {
        let (place, field) = ours
            .column_with_name(name)
            .ok_or(Unusual::new(format!("no column {name}")))?;
        let (at, found) = theirs
            .column_with_name(name)
            .ok_or(Unusual::new(format!("it has no column {name}")))?;
        if found.data_type() != field.data_type() {
            return Err(Unusual::new(format!(
                "column {name} has type {}",
                found.data_type()
            )));
        }
        let is_name = matches!(field.data_type(), DataType::Dictionary(..));
        let dictionary = fields.get(at).dictionary().map(|dictionary| dictionary.id());
        Ok(Wanted {
            ours: place,
            theirs: at,
            width: field.data_type().primitive_width().unwrap_or(size_of::<i32>()),
            dictionary: dictionary.filter(|_| is_name),
            numbers: Vec::new(),
        })
    };
    columns.iter().map(find).collect()
}
