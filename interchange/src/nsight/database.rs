//! The SQLite file: opened for reading alone, its tables and columns, and the cells of a row.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gputrace_trace::beneath;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use super::losses::Wrong;
use super::opened;

/// Texts longer than this are cut: the longest names of C++ have some thousand characters.
const LONGEST_TEXT: usize = 64 * 1024;

/// Why a file can't be opened.
pub(super) enum Open {
    Unreadable(String),
    NotSqlite,
    Damaged(String),
}

/// An open database and what is in it.
pub(super) struct Database {
    pub(super) connection: Connection,
    /// By name in small letters, as are the columns: SQL's names are the same in any. With the file's own spelling.
    tables: BTreeMap<String, (String, BTreeSet<String>)>,
    /// What has the name of a table and is code: views and virtual tables, in small letters.
    pub(super) views: BTreeSet<String>,
    /// Tables whose columns could not be read.
    pub(super) unreadable: Vec<String>,
    /// The file is damaged, and was read in spite of that.
    pub(super) damaged: Option<String>,
    /// What lies beside the file and would have to be applied to it: the export was cut short.
    pub(super) unfinished: Option<String>,
    /// More rows no table of a file of this size can hold. Damaged pages can point to each other, so that some kilobytes
    /// read as more rows than there is memory.
    pub(super) most_rows: u64,
    pub(super) file_bytes: u64,
}

/// A row is four bytes at least: its place in its page, its length and its number.
const LEAST_ROW_BYTES: u64 = 4;

/// SQLite's virtual machine takes some ten steps for a row of the schema. No export has this many tables.
const MOST_SCHEMA_STEPS: u64 = 16 << 20;

/// What one line of an error, a loss or a note can hold of SQLite's own words.
pub(super) fn words_of(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(code, text) => text.clone().unwrap_or_else(|| code.to_string()),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// A file's `file:` URI. `immutable` keeps SQLite from locking, from journals and from any file beside this one.
fn uri(path: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    let mut uri = String::from("file:");
    // A relative path is taken as it is; "//host" would be read as a host's name.
    let bytes = path.as_os_str().as_bytes();
    if bytes.starts_with(b"//") {
        uri.push_str("//");
    }
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            // Writing to a string never fails.
            other => drop(write!(uri, "%{other:02X}")),
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    uri
}

/// The name of a table or column between quotes.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Database {
    pub(super) fn open(path: &Path) -> Result<Self, Open> {
        let unreadable = |error: std::io::Error| Open::Unreadable(error.to_string());
        if beneath::is_folder(path) {
            return Err(Open::Unreadable("it is a folder".to_owned()));
        }
        let file = beneath::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        let name = opened::name(&file)
            .ok_or_else(|| Open::Unreadable("SQLite takes no open file here".to_owned()))?;
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(uri(&name), flags)
            .map_err(|error| Open::Unreadable(words_of(&error)))?;
        // The file is another's: its schema gets to run nothing, and its pages are checked as they are read.
        let harden = "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA query_only = ON;";
        connection
            .execute_batch(harden)
            .map_err(|error| not_open(&error))?;
        let mut database = Self {
            connection,
            tables: BTreeMap::new(),
            views: BTreeSet::new(),
            unreadable: Vec::new(),
            damaged: None,
            unfinished: unfinished(path),
            most_rows: bytes / LEAST_ROW_BYTES,
            file_bytes: bytes,
        };
        database
            .limit_steps(Some(MOST_SCHEMA_STEPS))
            .map_err(|error| not_open(&error))?;
        match database.read_tables() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
                database.damaged = Some(words_of(&error));
                database.tables.clear();
                database.unreadable.clear();
                // Unless told that the schema may be wrong, SQLite reads nothing of a file that is shorter than it says.
                let read = database
                    .connection
                    .execute_batch("PRAGMA writable_schema = ON;")
                    .and_then(|()| database.read_tables());
                read.map_err(|error| not_open(&error))?;
            }
            read => read.map_err(|error| not_open(&error))?,
        }
        database.limit_steps(None).map_err(|error| not_open(&error))?;
        Ok(database)
    }

    /// Ends statements after so many steps of SQLite's virtual machine, all of them together. Reading the schema is SQLite's
    /// own statement, which can't be given a `LIMIT`, and damaged pages can point to each other without an end.
    fn limit_steps(&self, most: Option<u64>) -> rusqlite::Result<()> {
        const STEPS_A_CALL: u16 = 4096;
        let Some(most) = most else {
            return self.connection.progress_handler(0, None::<fn() -> bool>);
        };
        let mut left = most;
        self.connection.progress_handler(
            STEPS_A_CALL.into(),
            Some(move || {
                left = left.saturating_sub(u64::from(STEPS_A_CALL));
                left == 0
            }),
        )
    }

    /// Real tables alone: a view or a virtual table is code, and no export has one.
    fn read_tables(&mut self) -> rusqlite::Result<()> {
        let mut names = Vec::new();
        {
            let mut statement = self
                .connection
                .prepare("SELECT name, type = 'table' AND rootpage > 0 FROM sqlite_master WHERE type IN ('table', 'view')")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if let ValueRef::Text(name) = row.get_ref(0)? {
                    let name = String::from_utf8_lossy(name).into_owned();
                    if row.get_ref(1)? == ValueRef::Integer(1) {
                        names.push(name);
                    } else {
                        self.views.insert(name.to_ascii_lowercase());
                    }
                }
            }
        }
        for name in names {
            match self.read_columns(&name) {
                Ok(columns) => drop(self.tables.insert(name.to_ascii_lowercase(), (name, columns))),
                Err(_) => self.unreadable.push(name),
            }
        }
        Ok(())
    }

    fn read_columns(&self, table: &str) -> rusqlite::Result<BTreeSet<String>> {
        let mut columns = BTreeSet::new();
        let mut statement = self
            .connection
            .prepare(&format!("PRAGMA table_info({})", quoted(table)))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let ValueRef::Text(name) = row.get_ref(1)? {
                columns.insert(String::from_utf8_lossy(name).to_ascii_lowercase());
            }
        }
        Ok(columns)
    }

    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(&table.to_ascii_lowercase())
    }

    pub(super) fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables
            .get(&table.to_ascii_lowercase())
            .is_some_and(|(_, columns)| columns.contains(&column.to_ascii_lowercase()))
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.values().map(|(name, _)| name.as_str())
    }

    pub(super) fn is_empty(&self, table: &str) -> bool {
        let query = format!("SELECT 1 FROM {} LIMIT 1", quoted(table));
        self.connection
            .query_row(&query, [], |_| Ok(()))
            .is_err_and(|error| error == rusqlite::Error::QueryReturnedNoRows)
    }

    /// How many rows, where that can be counted.
    pub(super) fn count(&self, table: &str) -> Option<u64> {
        let rows = format!("SELECT 1 FROM {} LIMIT {}", quoted(table), self.most_rows);
        let query = format!("SELECT count(*) FROM ({rows})");
        let count: i64 = self.connection.query_row(&query, [], |row| row.get(0)).ok()?;
        u64::try_from(count).ok()
    }

    /// The greatest row numbers of all tables together: found without reading the tables, and the number of rows unless some
    /// were deleted.
    pub(super) fn about_rows(&self) -> u64 {
        let greatest = |table: &str| -> Option<u64> {
            let query = format!("SELECT max(rowid) FROM {}", quoted(table));
            let greatest: Option<i64> = self.connection.query_row(&query, [], |row| row.get(0)).ok()?;
            u64::try_from(greatest?).ok()
        };
        self.tables().filter_map(greatest).fold(0, u64::saturating_add)
    }

    /// The statement that reads `columns` of `table` in the order in which they were written; a column that the table
    /// has not is null in every row.
    pub(super) fn select(&self, table: &str, columns: &[&str]) -> String {
        let list: Vec<String> = columns
            .iter()
            .map(|column| {
                if self.has_column(table, column) {
                    quoted(column)
                } else {
                    "NULL".to_owned()
                }
            })
            .collect();
        let (list, most) = (list.join(", "), self.most_rows);
        format!("SELECT {list} FROM {} ORDER BY rowid LIMIT {most}", quoted(table))
    }

    /// Each row of a small table, as far as it can be read; nothing where the table is absent.
    pub(super) fn each(
        &self,
        table: &str,
        columns: &[&str],
        row: impl FnMut(&Cells<'_>),
    ) -> rusqlite::Result<()> {
        self.each_by(&self.select(table, columns), table, row)
    }

    /// Each row of a table that has one of `values` in the first of `columns`; nothing where that column is absent.
    pub(super) fn each_with(
        &self,
        table: &str,
        columns: &[&str],
        values: &[i64],
        row: impl FnMut(&Cells<'_>),
    ) -> rusqlite::Result<()> {
        let Some(first) = columns.first().filter(|first| self.has_column(table, first)) else {
            return Ok(());
        };
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        // The bound is of the rows that are looked at, not of those that are found.
        let select = self.select(table, columns);
        let filtered = format!(
            "SELECT * FROM ({select}) WHERE {} IN ({})",
            quoted(first),
            values.join(", ")
        );
        self.each_by(&filtered, table, row)
    }

    fn each_by(&self, select: &str, table: &str, mut row: impl FnMut(&Cells<'_>)) -> rusqlite::Result<()> {
        if !self.has(table) {
            return Ok(());
        }
        let mut statement = self.connection.prepare(select)?;
        let mut rows = statement.query([])?;
        while let Some(found) = rows.next()? {
            row(&Cells {
                row: found,
                needed: 0,
            });
        }
        Ok(())
    }
}

fn not_open(error: &rusqlite::Error) -> Open {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Open::NotSqlite,
        Some(ErrorCode::DatabaseCorrupt) => Open::Damaged(words_of(error)),
        Some(ErrorCode::OperationInterrupted) => Open::Damaged("its list of tables has no end".to_owned()),
        _ => Open::Unreadable(words_of(error)),
    }
}

/// The journal or log that an export which was cut short leaves beside the file.
fn unfinished(path: &Path) -> Option<String> {
    ["-journal", "-wal"].into_iter().find_map(|ending| {
        let mut name = path.file_name()?.to_os_string();
        name.push(ending);
        let beside = path.with_file_name(name);
        (beneath::bytes(&beside) > 0).then(|| {
            let name = beside.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        })
    })
}

/// The cells of a row: first the columns that a row needs, then those that may be null.
pub(super) struct Cells<'a> {
    pub(super) row: &'a Row<'a>,
    /// How many of the first columns are needed.
    pub(super) needed: usize,
}

impl Cells<'_> {
    fn value(&self, index: usize) -> Result<ValueRef<'_>, Wrong> {
        self.row.get_ref(index).map_err(|_| Wrong::Type)
    }

    /// The integer in column `index`.
    pub(super) fn integer(&self, index: usize) -> Result<Option<i64>, Wrong> {
        match self.value(index)? {
            ValueRef::Integer(value) => Ok(Some(value)),
            ValueRef::Null => Ok(None),
            _ => Err(Wrong::Type),
        }
    }

    /// The needed columns, all of them integers.
    pub(super) fn needed<const N: usize>(&self) -> Result<[i64; N], Wrong> {
        debug_assert_eq!(N, self.needed);
        let mut values = [0; N];
        for (index, value) in values.iter_mut().enumerate() {
            *value = self.integer(index)?.ok_or(Wrong::Null)?;
        }
        Ok(values)
    }

    /// The first columns after the needed ones, all of them integers or null.
    pub(super) fn optional<const N: usize>(&self) -> Result<[Option<i64>; N], Wrong> {
        let mut values = [None; N];
        for (index, value) in values.iter_mut().enumerate() {
            *value = self.integer(self.needed + index)?;
        }
        Ok(values)
    }

    /// The text in column `index`, what is no UTF-8 in it replaced.
    pub(super) fn text(&self, index: usize) -> Result<Option<Cow<'_, str>>, Wrong> {
        match self.value(index)? {
            ValueRef::Text(bytes) => {
                let bytes = bytes.get(..LONGEST_TEXT).unwrap_or(bytes);
                Ok(Some(String::from_utf8_lossy(bytes)))
            }
            ValueRef::Null => Ok(None),
            _ => Err(Wrong::Type),
        }
    }

    /// The number in column `index`, whole or not.
    pub(super) fn number(&self, index: usize) -> Result<Option<f64>, Wrong> {
        match self.value(index)? {
            ValueRef::Integer(value) => Ok(Some(value as f64)),
            ValueRef::Real(value) => Ok(Some(value)),
            ValueRef::Null => Ok(None),
            _ => Err(Wrong::Type),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_escapes_what_a_uri_reads_as_its_own() {
        assert_eq!(
            uri(Path::new("/a b/c?d#e%.sqlite")),
            "file:/a%20b/c%3Fd%23e%25.sqlite?mode=ro&immutable=1"
        );
        assert_eq!(uri(Path::new("//x/y")), "file:////x/y?mode=ro&immutable=1");
        assert_eq!(
            uri(Path::new("r\u{e9}sum\u{e9}.db")),
            "file:r%C3%A9sum%C3%A9.db?mode=ro&immutable=1"
        );
    }
}
