//! docs/formats.md has each table with its columns.

use std::collections::BTreeMap;

use arrow_schema::DataType;
use gputrace_trace::Table;
use gputrace_trace::table::TableVisitor;
use gputrace_trace::tables::{TABLE_NAMES, Tables};

/// Columns with their types in the document's words.
type Columns = Vec<(String, String)>;

/// A type in the document's words.
fn word(of: &DataType) -> &'static str {
    match of {
        DataType::UInt8 => "uint8",
        DataType::UInt16 => "uint16",
        DataType::UInt32 => "uint32",
        DataType::UInt64 => "uint64",
        DataType::Int32 => "int32",
        DataType::Int64 => "int64",
        DataType::Float64 => "float64",
        DataType::Dictionary(..) => "dictionary(int32, utf8)",
        other => panic!("a column of type {other}"),
    }
}

struct Schemas(BTreeMap<String, Columns>);

impl TableVisitor for Schemas {
    fn table<T: Table>(&mut self, _: &T) {
        let schema = T::schema();
        let columns = schema.fields().iter().map(|field| {
            let nullable = if field.is_nullable() { ", nullable" } else { "" };
            (
                field.name().clone(),
                format!("{}{nullable}", word(field.data_type())),
            )
        });
        self.0.insert(T::NAME.to_owned(), columns.collect());
    }
}

/// The tables of the document: a heading each, and below it a row a column.
fn documented(text: &str) -> BTreeMap<String, Columns> {
    let mut tables: BTreeMap<String, Columns> = BTreeMap::new();
    let mut table = None;
    for line in text.lines() {
        if line.starts_with('#') {
            let name = line
                .strip_prefix("#### `")
                .and_then(|rest| rest.strip_suffix('`'));
            table = name.filter(|name| TABLE_NAMES.contains(name));
            if let Some(name) = table {
                tables.entry(name.to_owned()).or_default();
            }
            continue;
        }
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        if let (Some(name), Some(column), Some(of)) = (table, cells.next(), cells.next())
            && let Some(column) = column.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'))
        {
            // Nanoseconds are 64 bits like others.
            let of = of.replace(", ns", "");
            tables
                .entry(name.to_owned())
                .or_default()
                .push((column.to_owned(), of));
        }
    }
    tables
}

#[test]
fn every_column_stands_in_the_document() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/formats.md");
    let found = documented(&std::fs::read_to_string(path).unwrap());
    let mut schemas = Schemas(BTreeMap::new());
    Tables::default().visit(&mut schemas);
    assert_eq!(schemas.0.len(), TABLE_NAMES.len());
    for (table, columns) in &schemas.0 {
        assert_eq!(found.get(table), Some(columns), "docs/formats.md: {table}");
    }
}
