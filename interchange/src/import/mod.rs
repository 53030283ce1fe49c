//! Opening whatever a path is: a recording, trace files of other tools, a folder of them.

mod error;
mod progress;

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use gputrace_trace::beneath::{self, Kind as Found};
use gputrace_trace::{Loss, Recording};

pub use error::ImportError;
pub(crate) use progress::Arrive;
pub use progress::Progress;

use crate::{kineto, nsight, parquet_folder};

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Recording,
    ParquetFolder,
    Trace { from_folder: bool },
    Sqlite { from_folder: bool },
}

/// How trace files end in folders.
const TRACE_ENDINGS: &[&str] = &[".json", ".json.gz", ".json.zst", ".sqlite"];
/// Folders in folders in folders are looked into, no deeper.
const DEPTH: usize = 3;
/// How files end that only Nsight Systems itself reads.
const REPORT_ENDINGS: &[&str] = &["nsys-rep", "qdrep"];

fn unread_report(path: &Path) -> ImportError {
    ImportError::new(
        path,
        format!(
            "an Nsight Systems report, which only its own tools read: export it with \
             `nsys export --type sqlite {}` and give the .sqlite file",
            path.display()
        ),
    )
}

fn is_report(path: &Path) -> bool {
    let ending = path
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    REPORT_ENDINGS.contains(&ending.as_str())
}

fn has_file(folder: &Path, name: &str) -> bool {
    beneath::is_file(&folder.join(name))
}

/// The recording that a path is a part of: one process of it, or one of its files.
fn recording_around(path: &Path) -> Option<&Path> {
    use gputrace_trace::manifest::{MANIFEST_FILE, PROCESS_FILE};
    let name = path.file_name()?.to_string_lossy();
    let is_ours = |folder: &&Path| has_file(folder, PROCESS_FILE) || has_file(folder, MANIFEST_FILE);
    let around = if beneath::is_folder(path) {
        let is_process = has_file(path, PROCESS_FILE) && !has_file(path, MANIFEST_FILE);
        is_process.then(|| path.parent()).flatten()
    } else if name == MANIFEST_FILE || name == PROCESS_FILE || name.ends_with(".arrows") {
        let folder = path.parent().filter(is_ours)?;
        Some(if name == MANIFEST_FILE {
            folder
        } else {
            folder.parent()?
        })
    } else {
        None
    };
    // A relative path may have no more of itself than its name.
    around.map(|folder| {
        if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        }
    })
}

/// What lies in a folder.
#[derive(Default)]
struct Contents {
    traces: Vec<PathBuf>,
    /// With exports of them.
    recordings: Vec<(PathBuf, Kind)>,
    reports: Vec<PathBuf>,
    /// Called like traces, and neither files nor folders: pipes, links to nothing.
    others: Vec<PathBuf>,
    /// Links that are not followed.
    lead_out: Vec<PathBuf>,
    /// Folders that lie too deep to be looked into.
    too_deep: usize,
    /// Folders that were looked into: links can lead to one many times.
    seen: HashSet<PathBuf>,
}

/// Whether a folder is one of our recordings.
fn is_recording(folder: &Path) -> bool {
    use gputrace_trace::manifest::{MANIFEST_FILE, PROCESS_FILE};
    let has_process = || {
        beneath::entries(folder).is_ok_and(|entries| {
            let mut folders = entries.iter().filter(|entry| entry.stat.kind == Found::Folder);
            folders.any(|entry| beneath::exists(&entry.path.join(PROCESS_FILE)))
        })
    };
    beneath::exists(&folder.join(MANIFEST_FILE)) || has_process()
}

/// What a folder is as a whole: nothing where it is one with recordings and traces in it.
fn kind_of_folder(folder: &Path) -> Option<Kind> {
    if is_recording(folder) {
        Some(Kind::Recording)
    } else {
        parquet_folder::is_folder(folder).then_some(Kind::ParquetFolder)
    }
}

impl Contents {
    /// Looks into a folder and its sub-folders, by name; hidden ones are not looked at.
    fn look(&mut self, folder: &Path, depth: usize) -> std::io::Result<()> {
        if !self.seen.insert(folder.canonicalize()?) {
            return Ok(());
        }
        let mut entries = beneath::entries(folder)?;
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        for beneath::Entry { path, stat } in entries {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .to_ascii_lowercase();
            if name.starts_with('.') {
                continue;
            }
            if stat.kind == Found::LeadsOut {
                self.lead_out.push(path);
            } else if stat.kind == Found::Folder {
                if let Some(kind) = kind_of_folder(&path) {
                    self.recordings.push((path, kind));
                } else if depth > 0 {
                    self.look(&path, depth - 1)?;
                } else {
                    self.too_deep += 1;
                }
            } else if TRACE_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                if stat.kind == Found::File {
                    self.traces.push(path);
                } else {
                    self.others.push(path);
                }
            } else if is_report(&path) {
                self.reports.push(path);
            }
        }
        Ok(())
    }
}

fn first_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    beneath::open(path)?.take(16).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a file is, by its first bytes and, for what only Nsight Systems itself reads, by its name.
fn kind_of_file(path: &Path, from_folder: bool) -> Result<Kind, ImportError> {
    if is_report(path) {
        return Err(unread_report(path));
    }
    // A pipe can be read once; no database comes through one.
    if !beneath::is_file(path) {
        return Ok(Kind::Trace { from_folder });
    }
    let head =
        first_bytes(path).map_err(|error| ImportError::new(path, format!("cannot be read: {error}")))?;
    if parquet_folder::is_parquet(&head) {
        return Err(ImportError::new(
            path,
            "a Parquet file alone: give a folder that `gputrace export --format parquet` wrote",
        ));
    }
    Ok(if nsight::is_sqlite(&head) {
        Kind::Sqlite { from_folder }
    } else {
        Kind::Trace { from_folder }
    })
}

/// All that the paths stand for; what was left out is added to the losses.
fn expand(paths: &[PathBuf], losses: &mut Vec<Loss>) -> Result<Vec<(PathBuf, Kind)>, ImportError> {
    let mut inputs: Vec<(PathBuf, Kind)> = Vec::new();
    for path in paths {
        let is_input = path.as_os_str() == "-" && !path.exists();
        let path = if is_input {
            &PathBuf::from("/dev/stdin")
        } else {
            path
        };
        beneath::name_if_none(path);
        match beneath::stat(path) {
            Err(error) if beneath::refused(&error).is_some() => return Err(ImportError::new(path, error)),
            Err(_) => return Err(ImportError::new(path, "no such file or folder")),
            Ok(_) => {}
        }
        if let Some(folder) = recording_around(path) {
            return Err(ImportError::new(
                path,
                format!("a part of a recording: give its folder, {}", folder.display()),
            ));
        }
        if let Some(folder) = parquet_folder::folder_around(path) {
            return Err(ImportError::new(
                path,
                format!(
                    "a part of a Parquet export: give its folder, {}",
                    folder.display()
                ),
            ));
        }
        if !beneath::is_folder(path) {
            inputs.push((path.clone(), kind_of_file(path, false)?));
            continue;
        }
        if let Some(kind) = kind_of_folder(path) {
            inputs.push((path.clone(), kind));
            continue;
        }
        let mut contents = Contents::default();
        contents
            .look(path, DEPTH)
            .map_err(|error| ImportError::new(path, format!("cannot be read: {error}")))?;
        let Contents {
            traces,
            recordings,
            reports,
            others,
            lead_out,
            too_deep,
            ..
        } = contents;
        if too_deep > 0 {
            losses.push(Loss {
                what: format!(
                    "{}: folders more than {DEPTH} deep, not looked into",
                    path.display()
                ),
                count: Some(too_deep as u64),
                affects: "ranks, if their traces lie there".to_owned(),
            });
        }
        if let Some(first) = lead_out.first() {
            losses.push(Loss {
                what: format!(
                    "{}: links that lead out of the folder are not followed ({}): name what they lead to as well",
                    path.display(),
                    first.strip_prefix(path).unwrap_or(first).display()
                ),
                count: Some(lead_out.len() as u64),
                affects: "ranks, if their traces lie there".to_owned(),
            });
        }
        if traces.is_empty() && recordings.is_empty() {
            if let Some(report) = reports.first() {
                return Err(unread_report(report));
            }
            // A folder with nothing in it that we know: the recording's own words say best what is missing.
            inputs.push((path.clone(), Kind::Recording));
        }
        for other in others {
            losses.push(left_out(&other, "it is a link to nothing, or no file"));
        }
        // A report beside its own export is read through that.
        let exported: HashSet<_> = traces.iter().map(|trace| trace.file_stem()).collect();
        for report in reports
            .iter()
            .filter(|report| !exported.contains(&report.file_stem()))
        {
            losses.push(left_out(
                report,
                "only Nsight Systems' own tools read it (nsys export --type sqlite)",
            ));
        }
        inputs.extend(recordings);
        for file in traces {
            match kind_of_file(&file, true) {
                Ok(kind) => inputs.push((file, kind)),
                Err(error) => losses.push(left_out_by(&error)),
            }
        }
    }
    // A file that was named and also lies in a folder that was named is one file.
    let mut seen = HashSet::new();
    inputs.retain(|(path, _)| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    Ok(inputs)
}

/// The same, of a file whose reading failed: the error names it.
fn left_out_by(error: &ImportError) -> Loss {
    Loss {
        what: format!("left out: {error}"),
        count: Some(1),
        affects: "the ranks of that file".to_owned(),
    }
}

/// A file of a folder that is no part of the run.
fn left_out(path: &Path, why: &str) -> Loss {
    Loss {
        what: format!("{}: left out: {why}", path.display()),
        count: Some(1),
        affects: "the ranks of that file".to_owned(),
    }
}

/// The recordings of our own that paths stand for, where they stand for nothing else and nothing is left out: those can be read
/// process by process. `None` for all else, and where a path is none of all.
#[must_use]
pub fn own_recordings(paths: &[PathBuf]) -> Option<Vec<PathBuf>> {
    let mut losses = Vec::new();
    let inputs = expand(paths, &mut losses).ok()?;
    let own = inputs.iter().all(|(_, kind)| *kind == Kind::Recording);
    let all: Vec<PathBuf> = inputs.into_iter().map(|(path, _)| path).collect();
    (own && losses.is_empty() && !all.is_empty()).then_some(all)
}

/// What is noted of a file that lies beside traces in a folder and is none, when it was read by its name and refused with this line.
/// `None` if it was named by the user, or looks like a trace: then it is lost.
#[must_use]
pub fn beside_note(paths: &[PathBuf], file: &Path, line: &str) -> Option<String> {
    let is_named = paths.iter().any(|path| path == file);
    kineto::beside_note(file, line).filter(|_| !is_named)
}

/// The trace files that paths stand for, where they stand for nothing else and nothing is left out: those can be read apart, if each
/// tells its rank. `None` for all else.
#[must_use]
pub fn files(paths: &[PathBuf]) -> Option<Vec<PathBuf>> {
    let mut losses = Vec::new();
    let inputs = expand(paths, &mut losses).ok()?;
    let is_file = |(path, kind): &(PathBuf, Kind)| {
        matches!(kind, Kind::Trace { .. } | Kind::Sqlite { .. }) && beneath::is_file(path)
    };
    let all_files = inputs.iter().all(is_file);
    let all: Vec<PathBuf> = inputs.into_iter().map(|(path, _)| path).collect();
    (all_files && losses.is_empty()).then_some(all)
}

/// Opens paths as one run: recordings, trace files and folders of them.
///
/// # Errors
/// When one can't be read or is nothing that this version knows, or two of them hold the same rank.
pub fn open(paths: &[PathBuf], progress: &Progress) -> Result<Recording, ImportError> {
    use std::sync::atomic::Ordering;
    let mut losses = Vec::new();
    let inputs = expand(paths, &mut losses)?;
    let total: u64 = inputs
        .iter()
        .map(|(path, kind)| match kind {
            Kind::Recording => 0,
            Kind::ParquetFolder => parquet_folder::bytes(path),
            _ => beneath::bytes(path),
        })
        .sum();
    progress.total_bytes.store(total, Ordering::Relaxed);
    let mut recordings = Vec::new();
    let mut traces = Vec::new();
    for (path, kind) in &inputs {
        match kind {
            Kind::Recording => {
                let recording = Recording::open(path).map_err(|error| ImportError::of(error.to_string()))?;
                recordings.push((path.clone(), recording));
            }
            Kind::ParquetFolder => {
                recordings.push((path.clone(), parquet_folder::import(path, &progress.done_bytes)?));
            }
            Kind::Trace { from_folder } => traces.push(kineto::Source {
                path: path.clone(),
                from_folder: *from_folder,
            }),
            Kind::Sqlite { from_folder } => {
                let before = progress.done_bytes.load(Ordering::Relaxed);
                let bytes = beneath::bytes(path);
                let imported = nsight::import(path, &|rows, of| {
                    let part = u128::from(bytes) * u128::from(rows) / u128::from(of.max(1));
                    let part = u64::try_from(part).unwrap_or(bytes);
                    progress.done_bytes.store(before + part, Ordering::Relaxed);
                });
                progress.done_bytes.store(before + bytes, Ordering::Relaxed);
                match imported {
                    Ok(recording) => recordings.push((path.clone(), recording)),
                    Err(error) if *from_folder => losses.push(left_out_by(&error)),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    if !traces.is_empty() {
        let recording = kineto::import(&traces, progress)?;
        if recording.processes.is_empty() && recordings.is_empty() {
            let named = paths.first().cloned().unwrap_or_default();
            let why = recording.losses.first().map(|loss| loss.what.clone());
            let why = why
                .or_else(|| recording.notes.first().cloned())
                .unwrap_or_default();
            return Err(ImportError::new(&named, format!("no trace in it ({why})")));
        }
        recordings.push((traces[0].path.clone(), recording));
    }
    for (_, recording) in &mut recordings {
        recording.redact();
    }
    // An export without the start of its session has a time zero of its own.
    let without_zero = recordings
        .iter()
        .any(|(_, recording)| recording.manifest.device == "imported" && recording.manifest.started_ns == 0);
    let unaligned =
        (recordings.len() > 1 && without_zero).then(|| "a file does not say when its time begins".to_owned());
    let mut recordings = recordings.into_iter();
    let Some((mut first_path, mut whole)) = recordings.next() else {
        let named = paths.first().cloned().unwrap_or_default();
        let why = losses.first().map(|loss| loss.what.clone()).unwrap_or_default();
        return Err(ImportError::new(&named, format!("no trace in it ({why})")));
    };
    whole.losses.extend(losses);
    whole.unaligned = whole.unaligned.or(unaligned);
    let ranks = |recording: &Recording| -> Vec<u32> {
        let processes = recording.processes.iter();
        processes.filter_map(|process| process.header.rank).collect()
    };
    let mut known: HashSet<u32> = ranks(&whole).into_iter().collect();
    let mut others = Vec::new();
    for (path, other) in recordings {
        if let Some(rank) = ranks(&other).into_iter().find(|rank| known.contains(rank)) {
            let mut error = ImportError::new(
                &path,
                format!(
                    "holds rank {rank}, as {} does: they are two runs; analyse one at a time",
                    first_path.display()
                ),
            );
            error.of_several_runs = true;
            return Err(error);
        }
        known.extend(ranks(&other));
        others.push(other);
        first_path = path;
    }
    whole.absorb_all(others);
    if let [only] = paths {
        whole.path.clone_from(only);
    } else {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        whole.path = PathBuf::from(names.join(" "));
    }
    Ok(whole)
}
