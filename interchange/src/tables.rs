//! Tables as files: Parquet and CSV.

use std::io::{self, Write};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// Writes a table as Parquet (zstd, with statistics).
///
/// # Errors
/// When `out` refuses.
pub fn parquet_to(out: impl Write + Send, table: &RecordBatch) -> io::Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut writer = ArrowWriter::try_new(out, table.schema(), Some(properties)).map_err(io::Error::other)?;
    writer.write(table).map_err(io::Error::other)?;
    writer.close().map_err(io::Error::other)?;
    Ok(())
}

/// Writes a table as CSV with a line of headings. Null is an empty field.
///
/// # Errors
/// When `out` refuses.
pub fn csv_to(out: impl Write, table: &RecordBatch) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let schema = table.schema();
    writer.write_record(schema.fields().iter().map(|field| field.name()))?;
    for row in 0..table.num_rows() {
        writer.write_record(table.columns().iter().map(|column| field(column, row)))?;
    }
    writer.flush()
}

fn field(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return String::new();
    }
    match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        // Tables of an analysis have no others; a new one shows as what it is.
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, StringArray};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    fn table() -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([
            ("rank", Arc::new(Int64Array::from(vec![Some(0), None])) as _, true),
            (
                "name",
                Arc::new(StringArray::from(vec!["a<b, \"c\">", "plain"])) as _,
                true,
            ),
            (
                "share",
                Arc::new(Float64Array::from(vec![Some(0.5), None])) as _,
                true,
            ),
        ])
        .unwrap()
    }

    #[test]
    fn parquet_is_read_back_as_it_was() {
        let mut file = tempfile::tempfile().unwrap();
        parquet_to(&mut file, &table()).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
        assert_eq!(batches, [table()]);
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let mut text = Vec::new();
        csv_to(&mut text, &table()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "rank,name,share\n0,\"a<b, \"\"c\"\">\",0.5\n,plain,\n");
    }
}
