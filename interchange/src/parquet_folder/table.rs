//! Reading one table's file.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, Schema};
use gputrace_trace::beneath::{self, Refused};
use gputrace_trace::names::Interner;
use gputrace_trace::table::{Table, TableVisitorMut};
use gputrace_trace::tables::Tables;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::KeyValue;

use super::layout::{FORMAT, RANK, ROW, VERSION, column_from_file, key};

/// Rows that are taken at a time.
const BATCH_ROWS: usize = 32 * 1024;

/// What a file says of itself.
pub struct About {
    metadata: Vec<KeyValue>,
    /// Its rows.
    pub rows: u64,
}

impl About {
    /// Reads the end of a file, where it says these things.
    pub fn of(path: &Path) -> Result<Self, String> {
        let file = beneath::open(path).map_err(|error| format!("cannot be read: {error}"))?;
        let found = guarded(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
        Ok(Self::in_metadata(&found))
    }

    fn in_metadata(found: &ArrowReaderMetadata) -> Self {
        let file = found.metadata().file_metadata();
        Self {
            metadata: file.key_value_metadata().cloned().unwrap_or_default(),
            rows: u64::try_from(file.num_rows()).unwrap_or(0),
        }
    }

    /// What stands under a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.metadata.iter().find(|entry| entry.key == key)?;
        found.value.as_deref()
    }

    /// Whether an exporter of ours wrote it.
    pub fn is_ours(&self) -> bool {
        self.get(key::FORMAT) == Some(FORMAT)
    }

    fn is_newer(&self) -> bool {
        let major = self
            .get(key::VERSION)
            .and_then(|version| version.split('.').next());
        major
            .and_then(|major| major.parse().ok())
            .is_some_and(|major: u32| major > VERSION.major)
    }
}

/// A damaged file is read by a library that may take what it says for granted: then it is said to be damaged, too.
fn guarded<T, E: std::fmt::Display>(read: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    let one_line = |error: &dyn std::fmt::Display| {
        let text = error.to_string();
        format!("is damaged ({})", text.lines().next().unwrap_or_default())
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(one_line(&error)),
        Err(_) => Err("is damaged".to_owned()),
    }
}

/// A table's file, unpacked.
pub struct ReadTable {
    table: &'static str,
    batches: Vec<RecordBatch>,
    /// Why the rest of it was not read.
    wrong: Option<String>,
}

/// More rows than this no table of ours has in a file of this size: a row has its time and its number at least.
fn most_rows(file: &std::fs::File) -> u64 {
    const LEAST: u64 = 1 << 20;
    const A_BYTE: u64 = 64;
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    LEAST.max(bytes.saturating_mul(A_BYTE))
}

impl ReadTable {
    /// Reads a file; the error says what is wrong with it, to follow its name.
    pub fn read(path: &Path, table: &'static str) -> Result<Self, String> {
        let file = beneath::open(path).map_err(|error| match beneath::refused(&error) {
            Some(Refused::Special) => "is no file".to_owned(),
            None if error.kind() == std::io::ErrorKind::NotFound => "is missing".to_owned(),
            _ => format!("cannot be read: {error}"),
        })?;
        let most = most_rows(&file);
        let found = guarded(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
        let about = About::in_metadata(&found);
        if about.is_newer() {
            return Err("is of a newer version: update gputrace".to_owned());
        }
        if let Some(other) = about.get(key::TABLE).filter(|other| *other != table) {
            return Err(format!("is another table: {other}"));
        }
        // Whoever rewrote a file may have left out how we want to see its columns.
        let (schema, columns) = wanted_schema(table, found.schema());
        let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
        let reader = guarded(|| {
            let metadata = ArrowReaderMetadata::try_new(found.metadata().clone(), options)?;
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
            let columns = columns.iter().map(String::as_str);
            let wanted = ProjectionMask::columns(reader.parquet_schema(), columns);
            reader.with_projection(wanted).with_batch_size(BATCH_ROWS).build()
        });
        let mut reader =
            reader.map_err(|wrong| wrong.replacen("is damaged", "has columns of other types", 1))?;
        let mut batches = Vec::new();
        let mut rows = 0;
        loop {
            match guarded(|| reader.next().transpose()) {
                Ok(Some(_)) if rows >= most => {
                    let wrong = "has more rows than a file of its size can hold; what follows was not read";
                    return Ok(Self {
                        table,
                        batches,
                        wrong: Some(wrong.to_owned()),
                    });
                }
                Ok(Some(batch)) => {
                    rows += batch.num_rows() as u64;
                    batches.push(batch);
                }
                Ok(None) => break,
                Err(wrong) => {
                    return Ok(Self {
                        table,
                        batches,
                        wrong: Some(format!("{wrong}; what follows was not read")),
                    });
                }
            }
        }
        Ok(Self {
            table,
            batches,
            wrong: None,
        })
    }

    /// Appends the rows in their own order: gives their numbers, and why there are no more.
    pub fn append_to(self, tables: &mut Tables, names: &mut Interner) -> (Vec<i64>, Option<String>) {
        let mut append = Append {
            read: self,
            names,
            rows: Vec::new(),
        };
        tables.visit_mut(&mut append);
        (append.rows, append.read.wrong)
    }
}

/// Our own types for the columns that a file has, and which of them are the recording's.
fn wanted_schema(table: &str, found: &Schema) -> (Schema, Vec<String>) {
    struct Wanted<'a> {
        table: &'a str,
        found: &'a Schema,
        fields: Vec<Field>,
        columns: Vec<String>,
    }
    impl TableVisitorMut for Wanted<'_> {
        fn table<T: Table>(&mut self, _: &mut T) {
            if T::NAME == self.table {
                self.add(&T::schema());
            }
        }
    }
    impl Wanted<'_> {
        fn add(&mut self, ours: &Schema) {
            for field in self.found.fields() {
                let name = field.name();
                let known = ours.field_with_name(column_from_file(name)).ok();
                let known = known.filter(|_| name != RANK);
                if known.is_some() || name == ROW {
                    self.columns.push(name.clone());
                }
                let kind = known.map_or_else(|| field.data_type(), Field::data_type);
                self.fields
                    .push(Field::new(name, kind.clone(), field.is_nullable()));
            }
        }
    }
    let mut wanted = Wanted {
        table,
        found,
        fields: Vec::new(),
        columns: Vec::new(),
    };
    Tables::default().visit_mut(&mut wanted);
    (Schema::new(wanted.fields), wanted.columns)
}

struct Append<'a> {
    read: ReadTable,
    names: &'a mut Interner,
    rows: Vec<i64>,
}

/// A batch with the recording's own columns only, and the numbers of its rows.
fn own_columns(batch: &RecordBatch) -> Result<(RecordBatch, Vec<i64>), String> {
    let rows = batch
        .column_by_name(ROW)
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
        .filter(|column| column.null_count() == 0)
        .ok_or_else(|| format!("has no column {ROW}"))?;
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        if field.name() == ROW {
            continue;
        }
        let name = column_from_file(field.name());
        fields.push(Field::new(name, column.data_type().clone(), true));
        columns.push(column.clone());
    }
    let own =
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|error| error.to_string())?;
    Ok((own, rows.values().to_vec()))
}

impl TableVisitorMut for Append<'_> {
    fn table<T: Table>(&mut self, table: &mut T) {
        if T::NAME != self.read.table {
            return;
        }
        let mut read = T::default();
        let rows: usize = self.read.batches.iter().map(RecordBatch::num_rows).sum();
        read.reserve(rows);
        self.rows.reserve(rows);
        // Each is let go of when its rows are taken.
        for batch in std::mem::take(&mut self.read.batches) {
            let taken = own_columns(&batch).and_then(|(own, rows)| {
                check_nulls::<T>(&own)?;
                read.append_batch(&own, self.names)?;
                self.rows.extend(rows);
                Ok(())
            });
            if let Err(wrong) = taken {
                self.read.wrong = Some(wrong);
                break;
            }
        }
        // They lie sorted by time, and were recorded in the order of their numbers.
        if !self.rows.is_sorted() {
            let mut order: Vec<u32> = (0..).take(self.rows.len()).collect();
            order.sort_by_key(|&place| self.rows[place as usize]);
            read = read.pick(&order);
            self.rows.sort_unstable();
        }
        *table = read;
    }
}

/// A column that has a value in every row of ours has one here.
fn check_nulls<T: Table>(batch: &RecordBatch) -> Result<(), String> {
    for field in T::schema().fields() {
        if let Some(column) = batch.column_by_name(field.name())
            && !field.is_nullable()
            && column.null_count() > 0
        {
            return Err(format!("has rows without {}", field.name()));
        }
    }
    Ok(())
}
