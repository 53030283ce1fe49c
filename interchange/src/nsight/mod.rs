//! SQLite exports of Nsight Systems (`nsys export --type sqlite`), read into a recording.
//!
//! The tables and columns that are present decide what is read, not the version: exports are "lazy", so that a table
//! without rows is absent, and columns came and went over the years. Each process with CUDA work becomes one process of
//! the recording. Rows that can't be used are counted, by what is wrong with them, in the recording's losses; what is
//! left alone on purpose stands in its notes.

mod calls;
mod database;
mod diagnostics;
mod environment;
mod gpu;
mod graphs;
mod losses;
mod markers;
mod opened;
mod processes;
mod rank;
mod rows;
mod strings;
mod target;
mod version;

use std::path::Path;

use gputrace_trace::manifest::{Manifest, ProcessHeader};
use gputrace_trace::{DurationNs, Loss, Process, Recording, TimeNs};

use crate::import::ImportError;
use crate::limits::Memory;
use database::{Database, Open};
use rows::Import;

/// Whether a file's first bytes are those of an SQLite database.
#[must_use]
pub fn is_sqlite(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(b"SQLite format 3\0")
}

/// Reads an Nsight Systems export into a recording, one process for each that used CUDA.
///
/// `progress` is given, now and then, the number of rows read so far and about how many there are. Nothing is written, not
/// even beside the file.
///
/// # Errors
/// When the file can't be read, is no SQLite database, is none that Nsight Systems exported, or has no CUDA work in it.
pub fn import(path: &Path, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Recording, ImportError> {
    let refuse = |wrong: String| ImportError::new(path, wrong);
    let database = match Database::open(path) {
        Ok(database) => database,
        Err(Open::Unreadable(wrong)) => return Err(refuse(format!("cannot be read: {wrong}"))),
        Err(Open::NotSqlite) => {
            return Err(refuse(
                "no SQLite database: `nsys export --type sqlite REPORT.nsys-rep` makes one of a report"
                    .to_owned(),
            ));
        }
        Err(Open::Damaged(wrong)) => {
            return Err(refuse(format!(
                "an SQLite database so damaged that not even its list of tables can be read ({wrong}): export it again \
                 with `nsys export --type sqlite REPORT.nsys-rep`"
            )));
        }
    };
    if !version::is_export(&database) {
        return Err(refuse(version::no_export(&database)));
    }

    let version = version::read(&database);
    let memory = Memory::default();
    let mut import = Import::new(&database, version.offset_ns(), progress, &memory);
    version.say(&mut import.notes);
    gpu::read(&mut import);
    graphs::read(&mut import);
    calls::read(&mut import);
    if import.processes.is_empty() {
        return Err(refuse(no_cuda(&import)));
    }
    markers::read(&mut import);
    if let Some(why) = import.too_much.take() {
        return Err(refuse(why));
    }
    import.say_if_names_had_no_room();
    let environment = environment::read(&mut import);
    let target = target::read(&mut import, &environment);
    let ranks = rank::find(&mut import, &environment, path);
    diagnostics::read(&mut import);
    version::say_what_is_unused(&mut import);
    progress(import.rows, import.rows);

    let Import {
        names,
        notes,
        losses,
        processes,
        ..
    } = import;
    let file = path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    );
    let started_ns = version.started_ns.unwrap_or(0);
    let mut recording = Recording {
        path: path.to_owned(),
        manifest: Manifest {
            device: "imported".to_owned(),
            state: "complete".to_owned(),
            host: target.host.clone(),
            command: environment.command.clone(),
            environment: environment.shown(),
            started_ns,
            ..Manifest::new()
        },
        names,
        losses: losses
            .into_losses()
            .into_iter()
            .map(|loss| Loss {
                what: format!("{file}: {}", loss.what),
                ..loss
            })
            .collect(),
        notes: notes.into_iter().map(|note| format!("{file}: {note}")).collect(),
        ..Recording::default()
    };
    for (index, mut found) in processes.into_list().into_iter().enumerate() {
        found.tables.shrink();
        let rank = ranks.get(index).cloned().unwrap_or_default();
        let header = ProcessHeader {
            host: target.host.clone(),
            pid: found.pid(),
            command: target.commands.get(&found.key).cloned().unwrap_or_default(),
            started_ns,
            ended_ns: last_end(&found.tables).map(|time| time.0),
            rank: rank.rank,
            world_size: rank.world_size,
            local_rank: rank.local_rank,
            rank_source: rank.source,
            driver_version: target.driver_version,
            devices: target.devices_of(found.pid()),
            ..ProcessHeader::new()
        };
        recording.processes.push(Process {
            folder: found.folder,
            header,
            tables: found.tables,
        });
    }
    recording.manifest.ended_ns = recording
        .processes
        .iter()
        .filter_map(|process| process.header.ended_ns)
        .max();
    recording.sort_processes();
    Ok(recording)
}

/// Why an export without any process that used CUDA is refused.
fn no_cuda(import: &Import<'_>) -> String {
    match import.losses.first_words() {
        Some(wrong) => format!(
            "no row of its CUDA tables can be used ({wrong}): export it again with `nsys export --type sqlite`"
        ),
        None => "no CUDA work in it: was it recorded with --trace=cuda?".to_owned(),
    }
}

/// The end of the last thing that a process or its devices did.
fn last_end(tables: &gputrace_trace::tables::Tables) -> Option<TimeNs> {
    let last = |starts: &[TimeNs], durations: &[DurationNs]| {
        starts
            .iter()
            .zip(durations)
            .map(|(start, duration)| *start + *duration)
            .max()
    };
    [
        last(&tables.kernels.start_ns, &tables.kernels.duration_ns),
        last(&tables.copies.start_ns, &tables.copies.duration_ns),
        last(&tables.memsets.start_ns, &tables.memsets.duration_ns),
        last(&tables.api_calls.start_ns, &tables.api_calls.duration_ns),
    ]
    .into_iter()
    .flatten()
    .max()
}
