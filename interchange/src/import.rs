//! Opening whatever a path is: a recording, trace files of other tools, a folder of them.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use gputrace_trace::Recording;

use crate::{kineto, nsight};

/// Why a path can't be opened. One line: the file, what is wrong, what to do.
#[derive(Debug)]
pub struct ImportError(String);

impl ImportError {
    pub(crate) fn new(path: &Path, wrong: impl fmt::Display) -> Self {
        Self(format!("{}: {wrong}", path.display()))
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ImportError {}

/// How far reading is: for a progress bar, from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of all files.
    pub total_bytes: AtomicU64,
    /// Bytes read so far.
    pub done_bytes: AtomicU64,
}

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Recording,
    Trace { from_folder: bool },
    Sqlite,
}

/// How trace files end in folders.
const TRACE_ENDINGS: &[&str] = &[".json", ".json.gz", ".json.zst", ".sqlite"];

/// Whether a folder is one of our recordings.
fn is_recording(folder: &Path) -> bool {
    use gputrace_trace::manifest::{MANIFEST_FILE, PROCESS_FILE};
    let has_process = || {
        std::fs::read_dir(folder).is_ok_and(|entries| {
            entries
                .filter_map(Result::ok)
                .any(|entry| entry.path().join(PROCESS_FILE).exists())
        })
    };
    folder.join(MANIFEST_FILE).exists() || has_process()
}

/// The trace files in a folder and its sub-folders, by name; hidden ones are not looked at.
fn files_in(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_ascii_lowercase();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            if depth > 0 {
                files_in(&path, depth - 1, found)?;
            }
        } else if TRACE_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
    Ok(())
}

fn first_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(16).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a file is, by its first bytes and, for what only Nsight Systems itself reads, by its name.
fn kind_of_file(path: &Path, from_folder: bool) -> Result<Kind, ImportError> {
    let ending = path
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    if matches!(ending.as_str(), "nsys-rep" | "qdrep") {
        return Err(ImportError::new(
            path,
            format!(
                "an Nsight Systems report, which only its own tools read: export it with \
                 `nsys export --type sqlite {}` and give the .sqlite file",
                path.display()
            ),
        ));
    }
    let head =
        first_bytes(path).map_err(|error| ImportError::new(path, format!("cannot be read: {error}")))?;
    Ok(if nsight::is_sqlite(&head) {
        Kind::Sqlite
    } else {
        Kind::Trace { from_folder }
    })
}

/// All that the paths stand for.
fn expand(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Kind)>, ImportError> {
    let mut inputs: Vec<(PathBuf, Kind)> = Vec::new();
    for path in paths {
        if !path.exists() {
            return Err(ImportError::new(path, "no such file or folder"));
        }
        if !path.is_dir() {
            inputs.push((path.clone(), kind_of_file(path, false)?));
            continue;
        }
        if is_recording(path) {
            inputs.push((path.clone(), Kind::Recording));
            continue;
        }
        let mut files = Vec::new();
        files_in(path, 3, &mut files)
            .map_err(|error| ImportError::new(path, format!("cannot be read: {error}")))?;
        if files.is_empty() {
            // A folder with nothing in it that we know: the recording's own words say best what is missing.
            inputs.push((path.clone(), Kind::Recording));
        }
        for file in files {
            let kind = kind_of_file(&file, true)?;
            inputs.push((file, kind));
        }
    }
    // A file that was named and also lies in a folder that was named is one file.
    let mut seen = std::collections::HashSet::new();
    inputs.retain(|(path, _)| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    Ok(inputs)
}

/// Opens paths as one run: recordings, trace files and folders of them.
///
/// # Errors
/// When one can't be read or is nothing that this version knows, or two of them hold the same rank.
pub fn open(paths: &[PathBuf], progress: &Progress) -> Result<Recording, ImportError> {
    use std::sync::atomic::Ordering;
    let inputs = expand(paths)?;
    let total: u64 = inputs
        .iter()
        .filter(|(_, kind)| *kind != Kind::Recording)
        .filter_map(|(path, _)| std::fs::metadata(path).ok())
        .map(|metadata| metadata.len())
        .sum();
    progress.total_bytes.store(total, Ordering::Relaxed);
    let mut recordings = Vec::new();
    let mut traces = Vec::new();
    for (path, kind) in &inputs {
        match kind {
            Kind::Recording => {
                let recording = Recording::open(path).map_err(|error| ImportError(error.to_string()))?;
                recordings.push((path.clone(), recording));
            }
            Kind::Trace { from_folder } => traces.push(kineto::Source {
                path: path.clone(),
                from_folder: *from_folder,
            }),
            Kind::Sqlite => {
                let before = progress.done_bytes.load(Ordering::Relaxed);
                let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
                let recording = nsight::import(path, &|rows, of| {
                    let part = u128::from(bytes) * u128::from(rows) / u128::from(of.max(1));
                    let part = u64::try_from(part).unwrap_or(bytes);
                    progress.done_bytes.store(before + part, Ordering::Relaxed);
                })?;
                progress.done_bytes.store(before + bytes, Ordering::Relaxed);
                recordings.push((path.clone(), recording));
            }
        }
    }
    if !traces.is_empty() {
        let recording = kineto::import(&traces, progress)?;
        if recording.processes.is_empty() {
            let named = paths.first().cloned().unwrap_or_default();
            let why = recording.losses.first().map(|loss| loss.what.clone());
            let why = why
                .or_else(|| recording.notes.first().cloned())
                .unwrap_or_default();
            return Err(ImportError::new(&named, format!("no trace in it ({why})")));
        }
        recordings.push((traces[0].path.clone(), recording));
    }
    let mut recordings = recordings.into_iter();
    let Some((mut first_path, mut whole)) = recordings.next() else {
        return Err(ImportError("no path was given".to_owned()));
    };
    for (path, other) in recordings {
        let ranks = |recording: &Recording| -> Vec<u32> {
            recording
                .processes
                .iter()
                .filter_map(|process| process.header.rank)
                .collect()
        };
        let known = ranks(&whole);
        if let Some(rank) = ranks(&other).into_iter().find(|rank| known.contains(rank)) {
            return Err(ImportError::new(
                &path,
                format!(
                    "holds rank {rank}, as {} does: they are two runs; analyse one at a time",
                    first_path.display()
                ),
            ));
        }
        whole.absorb(other);
        first_path = path;
    }
    if let [only] = paths {
        whole.path.clone_from(only);
    } else {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        whole.path = PathBuf::from(names.join(" "));
    }
    Ok(whole)
}
