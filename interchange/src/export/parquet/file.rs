//! One table of one process as a Parquet file.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use gputrace_trace::TimeNs;
use gputrace_trace::column::{Column, Dictionary};
use gputrace_trace::derived::LaunchedBy;
use gputrace_trace::names::Interner;
use gputrace_trace::table::Dictionaries;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::parquet_folder::layout::{COMMUNICATES, DEMANGLED, PROCESS, RANK, ROW, column_to_file};

/// Rows of a row group: what readers skip as a whole and hand to one thread. DuckDB's own groups are as large.
pub const GROUP_ROWS: usize = 120 * 1024;
/// A row group's strings, of which there are few kinds: beyond this a writer would repeat each with every row.
const DICTIONARY_BYTES: usize = 256 << 20;

/// Which process the rows are of.
pub struct Owner<'a> {
    /// Its rank in the job.
    pub rank: Option<u32>,
    /// Its folder in the recording.
    pub process: &'a str,
    /// By row of its kernels: whether the kernel communicates; empty where that is not known.
    pub communicates: &'a [bool],
    /// By row of its kernels: who launched it.
    pub launched_by: &'a LaunchedBy,
    /// The file's own metadata.
    pub metadata: Vec<(&'static str, String)>,
}

/// The first column that holds points in time: rows are sorted by it.
fn time_column(columns: &[&dyn Column]) -> Option<(usize, Vec<u32>)> {
    for (index, column) in columns.iter().enumerate() {
        if let Some(times) = column.downcast_ref::<Vec<TimeNs>>() {
            return Some((index, order(times)));
        }
        if let Some(times) = column.downcast_ref::<Vec<Option<TimeNs>>>() {
            return Some((index, order(times)));
        }
    }
    None
}

/// The numbers of rows in the order of their times; those of one time in their own order. Nothing where they are in order
/// already.
fn order<T: Ord + Copy>(times: &[T]) -> Vec<u32> {
    if times.is_sorted() {
        return Vec::new();
    }
    let mut rows: Vec<u32> = (0..).take(times.len()).collect();
    rows.sort_by_key(|&row| times[row as usize]);
    rows
}

/// Columns that only grow, or that hardly any two rows share: differences are smaller than any dictionary of them.
fn is_of_differences(name: &str, of: &DataType) -> bool {
    *of == DataType::Int64 || matches!(name, "correlation" | "id")
}

/// How files are written; `time` is the column that rows are sorted by.
pub fn properties(
    schema: &Schema,
    time: Option<usize>,
    metadata: &[(&'static str, String)],
) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).unwrap_or_default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        // Within a row group only time is looked for.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(
            metadata
                .iter()
                .map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()))
                .collect(),
        ));
    for field in schema.fields() {
        let path = || ColumnPath::from(field.name().as_str());
        if is_of_differences(field.name(), field.data_type()) {
            properties = properties
                .set_column_dictionary_enabled(path(), false)
                .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED);
        }
    }
    if let Some(time) = time {
        let name = schema.field(time).name().as_str();
        properties = properties
            .set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Page)
            .set_sorting_columns(Some(vec![SortingColumn {
                column_idx: i32::try_from(time).unwrap_or_default(),
                descending: false,
                nulls_first: true,
            }]));
    }
    properties.build()
}

/// Rank, process and row.
const COLUMNS_IN_FRONT: usize = 3;

/// Columns that stand in front of every table's; those of events have the row's number too.
pub fn owner_fields() -> Vec<Field> {
    vec![
        Field::new(RANK, DataType::Int32, true),
        Field::new(PROCESS, name_type(), false),
    ]
}

fn name_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

pub fn owner_columns(owner: &Owner<'_>, rows: usize) -> Vec<ArrayRef> {
    let rank = owner.rank.and_then(|rank| i32::try_from(rank).ok());
    let process = StringArray::from(vec![owner.process]);
    let places = Int32Array::from(vec![0; rows]);
    vec![
        Arc::new(Int32Array::from(vec![rank; rows])),
        Arc::new(DictionaryArray::<Int32Type>::new(places, Arc::new(process))),
    ]
}

fn file_schema(table: &str, columns: &Schema) -> SchemaRef {
    let mut fields = owner_fields();
    fields.push(Field::new(ROW, DataType::Int64, false));
    for field in columns.fields() {
        fields.push(Field::new(
            column_to_file(field.name()),
            field.data_type().clone(),
            field.is_nullable(),
        ));
    }
    if table == "kernels" {
        fields.push(Field::new(DEMANGLED, name_type(), false));
        fields.push(Field::new(COMMUNICATES, DataType::Boolean, true));
        for (name, _) in LaunchedBy::default().columns() {
            fields.push(Field::new(name, name_type(), true));
        }
    }
    Arc::new(Schema::new(fields))
}

/// Kernels' names as their authors wrote them, by the dictionary of the names that they have.
#[derive(Default)]
struct Demangled {
    texts: Vec<String>,
    written: Option<ArrayRef>,
}

impl Demangled {
    fn column(&mut self, names: &ArrayRef) -> Option<ArrayRef> {
        let names = names.as_any().downcast_ref::<DictionaryArray<Int32Type>>()?;
        let texts = names.values().as_any().downcast_ref::<StringArray>()?;
        for index in self.texts.len()..texts.len() {
            self.texts
                .push(crate::export::words::kernel_name(texts.value(index)));
            self.written = None;
        }
        let texts = &self.texts;
        let values = self
            .written
            .get_or_insert_with(|| Arc::new(StringArray::from_iter_values(texts)))
            .clone();
        Some(Arc::new(DictionaryArray::<Int32Type>::new(
            names.keys().clone(),
            values,
        )))
    }
}

/// A table of any kind.
pub struct Written<'a> {
    /// Its name.
    pub name: &'static str,
    /// The names and types of its columns.
    pub schema: SchemaRef,
    /// The columns.
    pub columns: Vec<&'a dyn Column>,
    /// How many rows each has.
    pub rows: usize,
}

/// Writes all rows of a table, sorted by time. Beside the table itself memory goes to one row group, and to 4 bytes a row
/// where the rows are not in order.
///
/// # Errors
/// When `out` refuses.
pub fn write_table(
    table: &Written<'_>,
    names: &Interner,
    owner: &Owner<'_>,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let schema = file_schema(table.name, &table.schema);
    let (time, order) = match time_column(&table.columns) {
        Some((index, order)) => (Some(COLUMNS_IN_FRONT + index), order),
        None => (None, Vec::new()),
    };
    let properties = properties(&schema, time, &owner.metadata);
    let mut writer = ArrowWriter::try_new(out, schema.clone(), Some(properties)).map_err(io::Error::other)?;
    let mut dictionaries = Dictionaries::default();
    dictionaries.resize_with(table.columns.len(), Default::default);
    let mut demangled = Demangled::default();
    let is_of_kernels = table.name == "kernels";
    let launched_by = owner
        .launched_by
        .columns()
        .map(|(name, column)| match column.len() == table.rows {
            true => (name, Cow::Borrowed(column)),
            false => (
                name,
                Cow::Owned(if is_of_kernels {
                    vec![None; table.rows]
                } else {
                    Vec::new()
                }),
            ),
        });
    let mut launched_by_dictionaries: [Dictionary; 3] = Default::default();
    for group in groups(table.rows) {
        let rows: Vec<u32> = if order.is_empty() {
            group.filter_map(|row| u32::try_from(row).ok()).collect()
        } else {
            order[group].to_vec()
        };
        let picked: Vec<ArrayRef> = table
            .columns
            .iter()
            .zip(&mut dictionaries)
            .map(|(column, dictionary)| column.pick(&rows, dictionary, names))
            .collect();
        let mut columns = owner_columns(owner, rows.len());
        columns.push(Arc::new(Int64Array::from_iter_values(
            rows.iter().map(|&row| i64::from(row)),
        )));
        let named = table.schema.index_of("name").ok().filter(|_| is_of_kernels);
        let demangled = named.and_then(|place| demangled.column(&picked[place]));
        columns.extend(picked);
        if is_of_kernels {
            columns.extend(demangled);
            let communicates = rows
                .iter()
                .map(|&row| owner.communicates.get(row as usize).copied());
            columns.push(Arc::new(communicates.collect::<BooleanArray>()));
            for ((_, column), dictionary) in launched_by.iter().zip(&mut launched_by_dictionaries) {
                columns.push(column.pick(&rows, dictionary, names));
            }
        }
        let batch = RecordBatch::try_new(schema.clone(), columns).map_err(io::Error::other)?;
        writer.write(&batch).map_err(io::Error::other)?;
    }
    writer.close().map_err(io::Error::other)?;
    Ok(())
}

/// The rows of each row group.
fn groups(rows: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows)
        .step_by(GROUP_ROWS)
        .map(move |start| start..rows.min(start + GROUP_ROWS))
}
