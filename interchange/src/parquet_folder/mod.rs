//! Folders of Parquet files as `gputrace export --format parquet` writes them, read back.
//!
//! What is read is the same recording: rows in their own order, names, headers and losses. Whatever of it is missing,
//! damaged or changed is said, as with a recording.

pub mod layout;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gputrace_trace::beneath::{self, Kind};
use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::tables::TABLE_NAMES;
use gputrace_trace::{Loss, Process, Recording, parallel};

use crate::import::ImportError;
use layout::{DERIVED, ENDING, FACTS_FILE, FORMAT, Facts, ProcessFacts, VERSION, key};
use table::{About, ReadTable};

/// Whether a file is Parquet, by its first bytes.
pub fn is_parquet(head: &[u8]) -> bool {
    head.starts_with(b"PAR1")
}

/// Whether a folder is one of these: it says so itself, or has tables of ours in it.
pub fn is_folder(folder: &Path) -> bool {
    let says_so = beneath::read(&folder.join(FACTS_FILE))
        .is_ok_and(|text| text.windows(FORMAT.len()).any(|part| part == FORMAT.as_bytes()));
    says_so
        || TABLE_NAMES.iter().any(|table| {
            files_of(&folder.join(table))
                .first()
                .is_some_and(|file| About::of(file).is_ok_and(|about| about.is_ours()))
        })
}

/// The bytes of all tables in a folder.
pub fn bytes(folder: &Path) -> u64 {
    let files = TABLE_NAMES.iter().flat_map(|table| files_of(&folder.join(table)));
    files.map(|path| beneath::bytes(&path)).sum()
}

/// The folder that a path is a part of: a file of it, or one of its tables.
pub fn folder_around(path: &Path) -> Option<&Path> {
    let mut folder = path.parent()?;
    // A table's file lies one deep, what the analysis adds two.
    for _ in 0..3 {
        // A relative path may have no more of itself than its name.
        let here = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        if beneath::is_file(&here.join(FACTS_FILE)) && is_folder(here) {
            return Some(here);
        }
        folder = folder.parent()?;
    }
    None
}

/// The Parquet files in a folder, by name.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = beneath::entries(folder)
        .into_iter()
        .flatten()
        .filter(|entry| entry.stat.kind == Kind::File)
        .map(|entry| entry.path)
        .filter(|path| path.extension().is_some_and(|end| end == ENDING))
        .collect();
    files.sort();
    files
}

/// Reads a folder into a recording.
///
/// # Errors
/// When it is of a newer version, or nothing in it can be read.
pub fn import(folder: &Path, done_bytes: &AtomicU64) -> Result<Recording, ImportError> {
    let mut recording = Recording {
        path: folder.to_owned(),
        ..Recording::default()
    };
    let mut facts = match read_facts(folder)? {
        Ok(facts) => facts,
        Err(why) => {
            recording.losses.push(Loss {
                what: format!("{FACTS_FILE} {why}"),
                count: Some(1),
                affects: "command, hosts, devices and the recording's own losses".to_owned(),
            });
            facts_of_files(folder)
        }
    };
    recording.manifest = facts.manifest;
    recording.losses.append(&mut facts.losses);
    recording.notes = facts.notes;
    recording.unaligned = facts.unaligned;
    recording.clocks = facts.clocks;
    let hosts = facts.hosts.into_iter().map(|host| (host, true));
    let all: Vec<(ProcessFacts, bool)> = facts
        .processes
        .into_iter()
        .map(|process| (process, false))
        .chain(hosts)
        .collect();
    read_processes(folder, &mut recording, all, done_bytes);
    tell_of_others(folder, &mut recording);
    Ok(recording)
}

/// `recording.json`, or why there is none to read.
fn read_facts(folder: &Path) -> Result<Result<Facts, String>, ImportError> {
    let path = folder.join(FACTS_FILE);
    let text = match beneath::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Err("is missing".to_owned()));
        }
        Err(error) if beneath::refused(&error).is_some() => return Ok(Err(format!("is left out: {error}"))),
        Err(error) => return Err(ImportError::new(&path, format!("cannot be read: {error}"))),
    };
    match serde_json::from_slice::<Facts>(&text) {
        Ok(facts) if facts.format != FORMAT => Ok(Err(format!("is of another format ({:?})", facts.format))),
        Ok(facts) if facts.version.major > VERSION.major => Err(ImportError::new(
            &path,
            format!(
                "format {}.{} is newer than this gputrace reads ({}.x): update gputrace",
                facts.version.major, facts.version.minor, VERSION.major
            ),
        )),
        Ok(mut facts) => {
            // Names of files come from outside: none leads out of the folder.
            let is_name =
                |process: &ProcessFacts| !process.file.contains(['/', '\\']) && process.file != "..";
            facts.processes.retain(is_name);
            facts.hosts.retain(is_name);
            Ok(Ok(facts))
        }
        Err(error) => Ok(Err(format!("is damaged ({error})"))),
    }
}

/// What the files say of themselves, where `recording.json` is gone.
fn facts_of_files(folder: &Path) -> Facts {
    let mut found: BTreeMap<String, (ProcessFacts, bool)> = BTreeMap::new();
    let mut device = String::new();
    for table in TABLE_NAMES {
        for path in files_of(&folder.join(table)) {
            let Ok(about) = About::of(&path) else { continue };
            if !about.is_ours() {
                continue;
            }
            let file = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if let Some(word) = about.get(key::DEVICE) {
                word.clone_into(&mut device);
            }
            let (process, _) = found.entry(file.clone()).or_insert_with(|| {
                let mut header = ProcessHeader::new();
                header.rank = about.get(key::RANK).and_then(|rank| rank.parse().ok());
                // Whether it closed its files is not known, and nothing speaks against it.
                header.ended_ns = Some(0);
                let process = ProcessFacts {
                    folder: about.get(key::PROCESS).unwrap_or(&file).to_owned(),
                    file,
                    header,
                    rows: BTreeMap::new(),
                };
                (process, about.get(key::HOST) == Some("true"))
            });
            process.rows.insert((*table).to_owned(), about.rows);
        }
    }
    let mut facts = Facts::default();
    facts.manifest.device = device;
    facts.manifest.state = "rebuilt".to_owned();
    for (process, is_host) in found.into_values() {
        let to = if is_host {
            &mut facts.hosts
        } else {
            &mut facts.processes
        };
        to.push(process);
    }
    facts
        .processes
        .sort_by_key(|process| process.header.rank.unwrap_or(u32::MAX));
    facts
}

/// Reads the tables of all processes, on all cores.
fn read_processes(
    folder: &Path,
    recording: &mut Recording,
    all: Vec<(ProcessFacts, bool)>,
    done_bytes: &AtomicU64,
) {
    let jobs: Vec<(usize, &'static str, PathBuf)> = all
        .iter()
        .enumerate()
        .flat_map(|(place, (process, _))| {
            let path = |table: &str| folder.join(table).join(format!("{}.{ENDING}", process.file));
            TABLE_NAMES.iter().map(move |table| (place, *table, path(table)))
        })
        .filter(|(place, table, path)| beneath::exists(path) || all[*place].0.rows.contains_key(*table))
        .collect();
    let mut processes: Vec<Process> = all
        .iter()
        .map(|(facts, _)| Process {
            folder: facts.folder.clone(),
            header: facts.header.clone(),
            ..Process::default()
        })
        .collect();
    let mut kernel_rows: Vec<Option<Vec<i64>>> = vec![None; all.len()];
    let read = |index: usize| ReadTable::read(&jobs[index].2, jobs[index].1);
    parallel::in_order(jobs.len(), read, |index, read| {
        let (place, table, path) = &jobs[index];
        done_bytes.fetch_add(beneath::bytes(path), Ordering::Relaxed);
        let expected = all[*place].0.rows.get(*table).copied().unwrap_or(0);
        let name = &all[*place].0.folder;
        let (rows, wrong) = match read {
            Ok(read) => read.append_to(&mut processes[*place].tables, &mut recording.names),
            Err(wrong) => (Vec::new(), Some(wrong)),
        };
        let count = rows.len() as u64;
        if let Some(wrong) = wrong {
            recording.losses.push(Loss {
                what: format!("{name}: {table} {wrong}"),
                count: expected.checked_sub(count).filter(|lost| *lost > 0),
                affects: (*table).to_owned(),
            });
        } else if count != expected {
            recording.losses.push(Loss {
                what: format!("{name}: {count} rows of {table} where {expected} were written"),
                count: Some(expected.abs_diff(count)),
                affects: (*table).to_owned(),
            });
        }
        let are_all = count == expected && rows.iter().zip(0..).all(|(row, place)| *row == place);
        if *table == "kernels" && !are_all {
            kernel_rows[*place] = Some(rows);
        }
    });
    for ((process, (_, is_host)), rows) in processes.into_iter().zip(all).zip(kernel_rows) {
        let mut process = process;
        if let Some(rows) = rows {
            find_kernels_again(&mut process, &rows);
        }
        process.tables.shrink();
        if is_host {
            recording.hosts.push(process);
        } else {
            recording.processes.push(process);
        }
    }
}

/// Collectives name their kernels by row: where rows are gone, the others have new numbers. `rows` has the old ones, in order.
fn find_kernels_again(process: &mut Process, rows: &[i64]) {
    for kernel in &mut process.tables.collectives.kernel {
        *kernel = kernel
            .and_then(|row| i64::try_from(row).ok())
            .and_then(|row| rows.binary_search(&row).ok())
            .map(|place| place as u64);
    }
}

/// What lies beside the tables that this version knows.
fn tell_of_others(folder: &Path, recording: &mut Recording) {
    let Ok(entries) = beneath::entries(folder) else {
        return;
    };
    let mut others: Vec<String> = entries
        .into_iter()
        .filter(|entry| entry.stat.kind == Kind::Folder && !files_of(&entry.path).is_empty())
        .map(|entry| entry.path)
        .map(|path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| name != DERIVED && !TABLE_NAMES.contains(&name.as_str()))
        .collect();
    others.sort();
    if !others.is_empty() {
        recording.notes.push(format!(
            "tables of a newer version ignored: {}",
            others.join(", ")
        ));
    }
}
