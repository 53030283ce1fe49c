//! Parquet: a file for each table and process, for DuckDB, pandas, Polars and Spark, and to be read back.
//!
//! Rows are sorted by time, with statistics for it, so that readers skip what they are not asked for. Points in time are
//! plain 64-bit integers, nanoseconds since the epoch: Parquet's own type for those is refused by Spark, and cut to
//! microseconds by others. `docs/parquet.md` has every column.

mod derived;
mod file;

use std::io;

use gputrace_trace::derived::{Derived, DerivedProcess};
use gputrace_trace::table::{Table, TableVisitor};
use gputrace_trace::tables::TABLE_NAMES;
use gputrace_trace::{Process, Recording};

use super::ExportSummary;
use super::files::Files;
use crate::parquet_folder::layout::{DERIVED, ENDING, FACTS_FILE, FORMAT, Facts, VERSION, key};
use file::Owner;

/// Writes `recording` into a folder, table by table.
///
/// # Errors
/// When the folder refuses.
pub fn export_parquet(
    recording: &Recording,
    derived: &Derived,
    files: &mut dyn Files,
) -> io::Result<ExportSummary> {
    let facts = Facts::of(recording);
    files.file(FACTS_FILE, &mut |out| {
        let mut text = serde_json::to_vec_pretty(&facts)?;
        text.push(b'\n');
        out.write_all(&text)
    })?;
    let processes = recording.processes.iter().map(|process| (process, false));
    let hosts = recording.hosts.iter().map(|process| (process, true));
    let all: Vec<(&Process, bool)> = processes.chain(hosts).collect();
    let common = common_metadata(recording);
    let mut summary = ExportSummary::default();
    // Readers are told of tables by their folders: one without rows is there too, once.
    let mut without_rows: Vec<&str> = TABLE_NAMES.to_vec();
    for (process, _) in &all {
        for (table, rows) in process.tables.row_counts() {
            summary.events_in += rows as u64;
            if rows > 0 {
                without_rows.retain(|name| *name != table);
            }
        }
    }
    for (place, ((process, is_host), facts)) in all
        .iter()
        .zip(facts.processes.iter().chain(&facts.hosts))
        .enumerate()
    {
        let none = DerivedProcess::default();
        let derived = match is_host {
            true => &none,
            false => derived.processes.get(place).unwrap_or(&none),
        };
        let mut tables = Tables {
            recording,
            files: &mut *files,
            owner: Owner {
                rank: process.header.rank,
                process: &process.folder,
                communicates: &derived.communicates,
                launched_by: &derived.launched_by,
                metadata: metadata(&common, process, *is_host),
            },
            file: &facts.file,
            and_empty: if place == 0 { &without_rows } else { &[] },
            rows: 0,
            result: Ok(()),
        };
        process.tables.visit(&mut tables);
        tables.result?;
        summary.events_out += tables.rows;
        let Tables { owner, files, .. } = tables;
        write_derived(process, derived, &owner, &facts.file, place == 0, files)?;
    }
    let about = |table: &str| {
        let mut metadata = common.clone();
        metadata.push((key::TABLE, table.to_owned()));
        metadata
    };
    files.file(&format!("{DERIVED}/collectives/all.{ENDING}"), &mut |out| {
        derived::write_collectives(derived, &about("collectives"), out)
    })?;
    files.file(&format!("{DERIVED}/devices/all.{ENDING}"), &mut |out| {
        derived::write_devices(recording, &about("devices"), out)
    })?;
    Ok(summary)
}

/// What is true of every file.
fn common_metadata(recording: &Recording) -> Vec<(&'static str, String)> {
    vec![
        (key::FORMAT, FORMAT.to_owned()),
        (key::VERSION, format!("{}.{}", VERSION.major, VERSION.minor)),
        (key::DEVICE, recording.manifest.device.clone()),
        (key::SIMULATED, recording.is_simulated().to_string()),
    ]
}

/// What is true of every file of a process, without its table.
fn metadata(
    common: &[(&'static str, String)],
    process: &Process,
    is_host: bool,
) -> Vec<(&'static str, String)> {
    let mut metadata = common.to_vec();
    metadata.push((key::PROCESS, process.folder.clone()));
    metadata.push((key::HOST, is_host.to_string()));
    if let Some(rank) = process.header.rank {
        metadata.push((key::RANK, rank.to_string()));
    }
    metadata
}

/// Writes each table of a process.
struct Tables<'a> {
    recording: &'a Recording,
    files: &'a mut dyn Files,
    owner: Owner<'a>,
    file: &'a str,
    /// Tables that are written though they have no rows.
    and_empty: &'a [&'a str],
    rows: u64,
    result: io::Result<()>,
}

impl TableVisitor for Tables<'_> {
    fn table<T: Table>(&mut self, table: &T) {
        self.write(&file::Written {
            name: T::NAME,
            schema: T::schema(),
            columns: table.columns(),
            rows: table.len(),
        });
    }
}

impl Tables<'_> {
    fn write(&mut self, table: &file::Written<'_>) {
        if self.result.is_err() || table.rows == 0 && !self.and_empty.contains(&table.name) {
            return;
        }
        let (owner, names) = (&mut self.owner, &self.recording.names);
        owner.metadata.push((key::TABLE, table.name.to_owned()));
        let path = format!("{}/{}.{ENDING}", table.name, self.file);
        self.result = self
            .files
            .file(&path, &mut |out| file::write_table(table, names, owner, out));
        owner.metadata.pop();
        self.rows += table.rows as u64;
    }
}

/// Writes what the analysis knows of one process. A table without rows is written once.
fn write_derived(
    process: &Process,
    derived: &DerivedProcess,
    owner: &Owner<'_>,
    file: &str,
    is_first: bool,
    files: &mut dyn Files,
) -> io::Result<()> {
    let about = |table: &str| {
        let mut metadata = owner.metadata.clone();
        metadata.push((key::TABLE, table.to_owned()));
        Owner { metadata, ..*owner }
    };
    let path = |table: &str| format!("{DERIVED}/{table}/{file}.{ENDING}");
    if is_first || !derived.steps.is_empty() {
        files.file(&path("steps"), &mut |out| {
            derived::write_steps(&derived.steps, &about("steps"), out)
        })?;
    }
    if is_first || !derived.parts.is_empty() {
        files.file(&path("parts"), &mut |out| {
            derived::write_parts(process, &derived.parts, &about("parts"), out)
        })?;
    }
    if is_first || !derived.gaps.is_empty() {
        files.file(&path("gaps"), &mut |out| {
            derived::write_gaps(&derived.gaps, &about("gaps"), out)
        })?;
    }
    Ok(())
}
