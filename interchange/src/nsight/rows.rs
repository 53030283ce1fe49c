//! Rows of the export's tables to rows of ours: what every table's reader shares.

use gputrace_trace::tables::Tables;
use gputrace_trace::{DurationNs, Interner, NameId, TimeNs};

use super::database::{Cells, Database, words_of};
use super::losses::{LossCounts, Wrong};
use super::processes::Processes;
use super::strings::Strings;
use crate::limits::{Memory, Share};

/// Times from here on are no times: 73 years.
const TIME_LIMIT: i64 = 1 << 61;
/// Rows between two calls of the progress function.
const PROGRESS_ROWS: u64 = 1 << 16;
/// And, for each process, between two looks at what is held: each has all tables, which take a while to add up.
const ROWS_A_PROCESS: u64 = 4;

/// A table that is read row by row.
pub(super) struct Wanted {
    pub(super) table: &'static str,
    /// Columns without which a row says nothing.
    pub(super) needed: &'static [&'static str],
    /// Columns that may be null in a row, or absent from the table.
    pub(super) optional: &'static [&'static str],
    /// Which numbers its rows touch.
    pub(super) affects: &'static str,
}

/// An import while it runs.
pub(super) struct Import<'a> {
    pub(super) database: &'a Database,
    pub(super) strings: Strings<'a>,
    pub(super) names: Interner,
    pub(super) processes: Processes,
    pub(super) losses: LossCounts,
    pub(super) notes: Vec<String>,
    /// Threads that NVTX names, by global id.
    pub(super) thread_names: Vec<(i64, NameId)>,
    /// Rows read so far.
    pub(super) rows: u64,
    /// The epoch's time of the file's time 0.
    start_ns: i64,
    progress: &'a (dyn Fn(u64, u64) + Sync),
    /// About how many rows all tables have.
    all_rows: u64,
    /// What it may take, and why it was stopped where it took more.
    memory: Share<'a>,
    file_bytes: u64,
    /// The row at which it is looked at next.
    next_look: u64,
    pub(super) too_much: Option<String>,
    /// The process of rows that name none, once it was looked for.
    only_process: Option<Option<i64>>,
}

impl<'a> Import<'a> {
    pub(super) fn new(
        database: &'a Database,
        start_ns: i64,
        progress: &'a (dyn Fn(u64, u64) + Sync),
        memory: &'a Memory,
    ) -> Self {
        let mut losses = LossCounts::default();
        if let Some(wrong) = &database.damaged {
            losses.lose(
                format!("the file is cut or damaged ({wrong}): what can still be found in it was read"),
                None,
                "everything",
            );
        }
        for table in &database.unreadable {
            losses.lose(
                format!("table {} is damaged and was not read", one_line(table)),
                None,
                "everything in it",
            );
        }
        if let Some(beside) = &database.unfinished {
            losses.lose(
                format!("{beside} lies beside the file: the export was not finished; only what is in the file was read"),
                None,
                "everything",
            );
        }
        Self {
            database,
            strings: Strings::new(database),
            names: Interner::default(),
            processes: Processes::default(),
            losses,
            notes: Vec::new(),
            thread_names: Vec::new(),
            rows: 0,
            start_ns,
            progress,
            all_rows: database.about_rows(),
            memory: memory.share(),
            file_bytes: database.file_bytes,
            next_look: PROGRESS_ROWS,
            too_much: None,
            only_process: None,
        }
    }

    /// Gives each row of a table to `row`; what it can't use is counted, and so is what can't be read.
    pub(super) fn read(
        &mut self,
        wanted: &Wanted,
        mut row: impl FnMut(&mut Self, &Cells<'_>) -> Result<(), Wrong>,
    ) {
        if self.too_much.is_some() {
            return;
        }
        let database = self.database;
        let Wanted { table, affects, .. } = *wanted;
        if !database.has(table) {
            if database.views.contains(&table.to_ascii_lowercase()) {
                self.losses.lose(
                    format!("{table} is a view or a virtual table, which no export has: it was not read"),
                    None,
                    affects,
                );
            }
            return;
        }
        let absent: Vec<&str> = wanted
            .needed
            .iter()
            .copied()
            .filter(|column| !database.has_column(table, column))
            .collect();
        if !absent.is_empty() {
            let rows = database.count(table);
            if rows != Some(0) {
                let absent = absent.join(", ");
                self.losses.lose(
                    format!("{table} has no column {absent}: its rows were not read"),
                    rows,
                    affects,
                );
            }
            return;
        }
        let columns: Vec<&str> = wanted.needed.iter().chain(wanted.optional).copied().collect();
        let first = self.rows;
        let end = self.read_rows(&database.select(table, &columns), wanted, &mut row);
        if self.rows - first >= database.most_rows {
            self.losses.lose(
                format!("{table} has more rows than a file of this size can hold: it is damaged, and was not read to its end"),
                None,
                affects,
            );
        }
        if let Err(error) = end {
            let read = self.rows - first;
            self.losses.lose(
                format!(
                    "{table} could not be read past its row {read} ({}): the file is cut or damaged",
                    words_of(&error)
                ),
                None,
                affects,
            );
        }
    }

    fn read_rows(
        &mut self,
        select: &str,
        wanted: &Wanted,
        row: &mut impl FnMut(&mut Self, &Cells<'_>) -> Result<(), Wrong>,
    ) -> rusqlite::Result<()> {
        let database = self.database;
        let mut statement = database.connection.prepare(select)?;
        let mut rows = statement.query([])?;
        let mut after_empty = false;
        while let Some(found) = rows.next()? {
            self.rows += 1;
            if self.rows.is_multiple_of(PROGRESS_ROWS) {
                (self.progress)(self.rows, self.all_rows.max(self.rows));
            }
            if self.rows >= self.next_look && !self.look() {
                return Ok(());
            }
            let cells = Cells {
                row: found,
                needed: wanted.needed.len(),
            };
            // SQLite reads zeros past the end of a file: rows without any value, and before those that are whole again one
            // that is half zeros.
            let empty = matches!(cells.integer(0), Ok(None));
            let torn = after_empty && !empty && database.damaged.is_some();
            after_empty = empty;
            let end = if torn { Err(Wrong::Torn) } else { row(self, &cells) };
            if let Err(wrong) = end {
                self.losses.count(wanted.table, wrong, wanted.affects);
            }
        }
        Ok(())
    }

    /// Looks whether what is held may be held, and lets names take no more than what may still come.
    fn look(&mut self) -> bool {
        let held = self.processes.bytes() + self.names.bytes() + self.strings.bytes();
        match self.memory.check(held as u64, self.file_bytes) {
            Ok(room) => self.names.limit(usize::try_from(room).unwrap_or(usize::MAX)),
            Err(error) => self.too_much = Some(error.to_string()),
        }
        let processes = self.processes.list().len() as u64;
        self.next_look = self.rows + PROGRESS_ROWS.max(processes * ROWS_A_PROCESS);
        self.too_much.is_none()
    }

    /// Names that found no memory are told of.
    pub(super) fn say_if_names_had_no_room(&mut self) {
        let refused = self.names.take_refused();
        if refused > 0 {
            self.losses.lose(
                "names for which there was no memory, told as \"(too many names)\"".to_owned(),
                Some(refused),
                "whatever is told apart by names",
            );
        }
    }

    /// A time of the file.
    pub(super) fn time(&self, ns: i64) -> Result<TimeNs, Wrong> {
        let possible = 0..TIME_LIMIT;
        let time = ns.saturating_add(self.start_ns);
        if possible.contains(&ns) && possible.contains(&time) {
            Ok(TimeNs(time))
        } else {
            Err(Wrong::Time)
        }
    }

    /// A start and a length of a start and an end of the file.
    pub(super) fn span(&self, start: i64, end: i64) -> Result<(TimeNs, DurationNs), Wrong> {
        let start_ns = self.time(start)?;
        let end_ns = self.time(end)?;
        if end < start {
            return Err(Wrong::Backwards);
        }
        Ok((start_ns, end_ns - start_ns))
    }

    /// The tables of the process that a global id of a process or a thread belongs to.
    pub(super) fn tables(&mut self, global: Option<i64>) -> Result<&mut Tables, Wrong> {
        let global = match global {
            Some(global) => global,
            None => self.only_process().ok_or(Wrong::Process)?,
        };
        // Process 0 is the kernel's idle task, and what a field of zeros says.
        if (global >> 24) & 0xff_ffff == 0 {
            return Err(Wrong::Process);
        }
        Ok(self.processes.of(global))
    }

    /// The process that made CUDA calls, where only one did: old tables of device work name none.
    fn only_process(&mut self) -> Option<i64> {
        let database = self.database;
        *self.only_process.get_or_insert_with(|| {
            let mut only = None;
            let mut several = false;
            let columns = ["globalTid"];
            let end = database.each("CUPTI_ACTIVITY_KIND_RUNTIME", &columns, |cells| {
                if let Ok(Some(global)) = cells.integer(0) {
                    let key = global >> 24;
                    several |= only.is_some_and(|known| known != key);
                    only = Some(key);
                }
            });
            only.filter(|_| end.is_ok() && !several).map(|key| key << 24)
        })
    }
}

/// A number of the file as the type of its column.
pub(super) fn narrow<T: TryFrom<i64>>(value: i64) -> Result<T, Wrong> {
    T::try_from(value).map_err(|_| Wrong::Range)
}

/// As [`narrow`], for a number that may be absent.
pub(super) fn maybe<T: TryFrom<i64>>(value: Option<i64>) -> Result<Option<T>, Wrong> {
    value.map(narrow).transpose()
}

/// The thread that a global id names.
pub(super) fn thread_of(global: i64) -> u32 {
    (global & 0xff_ffff) as u32
}

/// The first line of a text of the file, cut to what a note can hold.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
