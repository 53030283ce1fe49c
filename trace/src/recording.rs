//! Opening a recording: whatever of it is left is read, and what is missing is said.

mod process;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::clock_steps;
pub use crate::manifest::LossEntry as Loss;
use crate::manifest::{FORMAT, MANIFEST_FILE, Manifest, PROCESS_FILE, ProcessHeader, VERSION, Version};
use crate::names::Interner;
use crate::parallel;
use crate::tables::{TABLE_NAMES, Tables};

/// Why a path can't be opened as a recording. One line: the file, what is wrong, what to do.
#[derive(Debug)]
pub struct OpenError(String);

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

/// The folders of each process, in the order of their rows.
pub type Segments = Vec<Vec<PathBuf>>;

/// One process of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// The name of its folder.
    pub folder: String,
    /// Its header; defaults where `process.json` could not be read.
    pub header: ProcessHeader,
    /// Its events. Names are numbers in [`Recording::names`].
    pub tables: Tables,
}

/// A whole recording in memory, from our own folder or made by an importer.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Where it was read from.
    pub path: PathBuf,
    /// The manifest, rebuilt where it was missing.
    pub manifest: Manifest,
    /// Processes, by rank and then by folder.
    pub processes: Vec<Process>,
    /// What recorders sampled of their hosts and devices: no ranks.
    pub hosts: Vec<Process>,
    /// The strings of all tables.
    pub names: Interner,
    /// Everything that was lost, while recording and on reading.
    pub losses: Vec<Loss>,
    /// What was ignored, rebuilt or not recorded, in sentences.
    pub notes: Vec<String>,
    /// Why stamps of different processes have no time zero in common, where the source has none to give.
    pub unaligned: Option<String>,
}

/// A JSON file of the recording: what it says, or why it says nothing.
enum Json<T> {
    Read(T),
    Missing,
    Damaged(String),
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Json<T>> {
    // Opening a pipe would wait for somebody to write into it.
    if path.exists() && !path.is_file() {
        return Ok(Json::Damaged("it is no file".to_owned()));
    }
    match fs::read(path) {
        Ok(bytes) => Ok(match serde_json::from_slice(&bytes) {
            Ok(value) => Json::Read(value),
            Err(error) => Json::Damaged(error.to_string()),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Json::Missing),
        Err(error) => Err(error),
    }
}

const NOT_CLOSED: &str = "is not closed: its recorder still runs, or was killed";
const NOT_WHOLE: &str = "of a batch that is not whole";
const WITHOUT_CLOSING: &str = "ended without closing its files";
const NO_END_MARK: &str = "without an end mark";

/// Whether a loss says no more than that files were not closed: of a recording that still grows it is none.
#[must_use]
pub fn is_unclosed(loss: &Loss) -> bool {
    let endings = [NOT_CLOSED, NOT_WHOLE, WITHOUT_CLOSING, NO_END_MARK];
    endings.iter().any(|ending| loss.what.ends_with(ending))
}

fn check_version(path: &Path, version: Version) -> Result<(), OpenError> {
    if version.major > VERSION.major {
        return Err(OpenError(format!(
            "{}: recording format {}.{} is newer than this gputrace reads ({}.x): update gputrace",
            path.display(),
            version.major,
            version.minor,
            VERSION.major
        )));
    }
    Ok(())
}

/// The process that a folder's name belongs to, and which part of it: `NAME` is part 0, then come `NAME.1`, `NAME.2`, ...
#[must_use]
pub fn segment_of(name: &str) -> (&str, u64) {
    match name.rsplit_once('.') {
        Some((process, number)) if !process.is_empty() => match number.parse() {
            Ok(number) => (process, number),
            Err(_) => (name, 0),
        },
        _ => (name, 0),
    }
}

/// The folders of a recording's processes, sorted by name: those with a header or a table in them. What begins with a dot
/// is on its way out.
///
/// # Errors
/// When the folder can't be read.
pub fn process_folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(path)? {
        let folder = entry?.path();
        let hidden = folder
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_process = !hidden
            && folder.is_dir()
            && (folder.join(PROCESS_FILE).exists()
                || fs::read_dir(&folder)?.filter_map(Result::ok).any(|file| {
                    file.path()
                        .extension()
                        .is_some_and(|extension| extension == "arrows")
                }));
        if is_process {
            folders.push(folder);
        }
    }
    folders.sort();
    Ok(folders)
}

/// The manifests of a recording, `manifest.json` first: recorders that share a folder have one each.
///
/// # Errors
/// When the folder can't be read.
pub fn manifest_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name == MANIFEST_FILE || name.starts_with("manifest-") && name.ends_with(".json") {
            files.push(path.join(name.as_ref()));
        }
    }
    files.sort_by_key(|file| {
        (
            file.file_name().is_none_or(|name| name != MANIFEST_FILE),
            file.clone(),
        )
    });
    Ok(files)
}

/// Reads each process's folder into a recording of its own, on all cores.
fn read_processes(folders: &[PathBuf], tables: &[&str]) -> Vec<Result<Recording, OpenError>> {
    parallel::map(folders.len(), |index| {
        let mut part = Recording::default();
        part.read_process(&folders[index], tables).map(|()| part)
    })
}

impl Recording {
    /// Opens the recording in folder `path`.
    ///
    /// Whole batches are read from every file, however it ends; what a killed process, a cut or a damaged file cost
    /// stands in [`Recording::losses`].
    ///
    /// # Errors
    /// When `path` is no recording, is of a newer major version, or can't be read.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_tables(path, TABLE_NAMES)
    }

    /// The same, of each process only some tables: for a look at a recording that still grows.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn open_tables(path: &Path, tables: &[&str]) -> Result<Self, OpenError> {
        Self::open_some(path, tables).map(|(recording, _)| recording)
    }

    /// The recording without some of its tables, and the folders of each of its processes, in the order of their rows: for a look
    /// at those tables that does not take all of them into memory. `None` where its clocks were set, since what was stamped
    /// after that is mended by all tables together.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn open_without(path: &Path, tables: &[&str]) -> Result<Option<(Self, Segments)>, OpenError> {
        let others: Vec<&str> = TABLE_NAMES
            .iter()
            .copied()
            .filter(|name| !tables.contains(name))
            .collect();
        let (recording, was_set) = Self::open_some(path, &others)?;
        if was_set {
            return Ok(None);
        }
        let mut folders: Vec<(String, u64, PathBuf)> = process_folders(path)
            .map_err(|error| OpenError(format!("{}: cannot be read: {error}", path.display())))?
            .into_iter()
            .map(|folder| {
                let name = folder
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let (process, part) = segment_of(&name);
                (process.to_owned(), part, folder)
            })
            .collect();
        folders.sort();
        let of_each = recording
            .processes
            .iter()
            .map(|process| {
                let own = folders.iter().filter(|(name, ..)| *name == process.folder);
                own.map(|(.., folder)| folder.clone()).collect()
            })
            .collect();
        Ok(Some((recording, of_each)))
    }

    /// Some tables, and whether clocks were set.
    fn open_some(path: &Path, tables: &[&str]) -> Result<(Self, bool), OpenError> {
        let cannot_read =
            |what: &Path, error: io::Error| OpenError(format!("{}: cannot be read: {error}", what.display()));
        if !path.exists() {
            return Err(OpenError(format!("{}: no such file or folder", path.display())));
        }
        if !path.is_dir() {
            return Err(OpenError(format!(
                "{}: not a gputrace recording: a recording is a folder with a {MANIFEST_FILE} in it",
                path.display()
            )));
        }
        let manifest_path = path.join(MANIFEST_FILE);
        let manifest =
            read_json::<Manifest>(&manifest_path).map_err(|error| cannot_read(&manifest_path, error))?;
        let folders = process_folders(path).map_err(|error| cannot_read(path, error))?;
        let mut recording = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        match manifest {
            Json::Read(manifest) if manifest.format == FORMAT => {
                check_version(&manifest_path, manifest.version)?;
                recording.losses.clone_from(&manifest.losses);
                recording.notes.clone_from(&manifest.notes);
                if manifest.state == "recording" {
                    recording.lose(
                        format!("{MANIFEST_FILE} {NOT_CLOSED}"),
                        Some(1),
                        "exit status, and whatever is still to come",
                    );
                }
                recording.manifest = manifest;
            }
            found => {
                if folders.is_empty() {
                    return Err(OpenError(format!(
                        "{}: not a gputrace recording: it has neither a {MANIFEST_FILE} nor a process folder; \
                         `gputrace record -- COMMAND` makes one",
                        path.display()
                    )));
                }
                let why = match found {
                    Json::Missing => "is missing (the recorder was killed)".to_owned(),
                    Json::Read(manifest) => format!("is of another format ({:?})", manifest.format),
                    Json::Damaged(error) => format!("is damaged ({error})"),
                };
                recording
                    .notes
                    .push(format!("{MANIFEST_FILE} {why}; rebuilt from the process folders"));
                recording.losses.push(Loss {
                    what: format!("{MANIFEST_FILE} {}", why.split(" (").next().unwrap_or_default()),
                    count: Some(1),
                    affects: "command, exit status and the recorder's own notes".to_owned(),
                });
                recording.manifest = Manifest {
                    state: "rebuilt".to_owned(),
                    ..Manifest::new()
                };
            }
        }
        recording.absorb_manifests(&manifest_path)?;
        for part in read_processes(&folders, tables) {
            recording.absorb(part?);
        }
        let missing: Vec<(String, u64)> = recording
            .manifest
            .rows
            .iter()
            .filter(|(folder, _)| {
                !folders.iter().any(|found| {
                    let name = found.file_name().unwrap_or_default().to_string_lossy();
                    segment_of(&name).0 == folder.as_str()
                })
            })
            .map(|(folder, tables)| {
                let rows = tables.values().fold(0u64, |all, rows| all.saturating_add(*rows));
                (folder.clone(), rows)
            })
            .collect();
        for (folder, rows) in missing {
            recording.lose(
                format!("{folder}: the process folder is missing, with its rows"),
                Some(rows),
                "everything of that process, and whatever compares or sums ranks",
            );
        }
        recording.join_segments();
        let all = recording.processes.iter_mut().chain(&mut recording.hosts);
        let steps = clock_steps::undo(all);
        for (folder, step) in &steps {
            recording.notes.push(clock_steps::note(folder, *step));
        }
        recording.sort_processes();
        if recording.manifest.state == "rebuilt" {
            recording.rebuild_manifest();
        }
        Ok((recording, !steps.is_empty()))
    }

    /// Takes in the manifests of other recorders that wrote into the same folder.
    fn absorb_manifests(&mut self, own: &Path) -> Result<(), OpenError> {
        let cannot_read =
            |path: &Path, error: io::Error| OpenError(format!("{}: cannot be read: {error}", path.display()));
        let files = manifest_files(&self.path).map_err(|error| cannot_read(&self.path, error))?;
        for path in files.into_iter().filter(|path| path != own) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            match read_json::<Manifest>(&path).map_err(|error| cannot_read(&path, error))? {
                Json::Read(other) if other.format == FORMAT => {
                    check_version(&path, other.version)?;
                    self.losses.extend(other.losses.iter().cloned());
                    self.notes.extend(other.notes.iter().cloned());
                    if other.state == "recording" {
                        self.lose(
                            format!("{name} {NOT_CLOSED}"),
                            Some(1),
                            "exit status, and whatever is still to come",
                        );
                    }
                    if self.manifest.state == "rebuilt" {
                        // A recorder's own word on the run is better than what headers tell.
                        self.manifest = other;
                    } else {
                        self.manifest.absorb(other);
                    }
                }
                Json::Read(_) | Json::Damaged(_) => {
                    self.lose(
                        format!("{name} is damaged"),
                        Some(1),
                        "notes of one of the recorders",
                    );
                }
                Json::Missing => {}
            }
        }
        Ok(())
    }

    /// Takes in the processes of another recording of the same run, and whatever it says.
    pub fn absorb(&mut self, other: Self) {
        let numbers = self.names.absorb(&other.names);
        for mut process in other.processes {
            process.tables.renumber(&numbers);
            self.processes.push(process);
        }
        for mut host in other.hosts {
            host.tables.renumber(&numbers);
            self.hosts.push(host);
        }
        self.sort_processes();
        self.losses.extend(other.losses);
        self.notes.extend(other.notes);
    }

    /// Puts the parts of each process together that a recording kept below a size consists of.
    fn join_segments(&mut self) {
        for all in [&mut self.processes, &mut self.hosts] {
            all.sort_by(|a, b| segment_of(&a.folder).cmp(&segment_of(&b.folder)));
            let mut joined: Vec<Process> = Vec::with_capacity(all.len());
            for part in all.drain(..) {
                let process = segment_of(&part.folder).0.to_owned();
                match joined.last_mut().filter(|last| last.folder == process) {
                    Some(last) => {
                        last.tables.append(part.tables);
                        // The last part's header is the latest; what earlier ones noted has been taken in.
                        let rows = std::mem::take(&mut last.header.rows);
                        last.header = part.header;
                        for (table, rows) in rows {
                            *last.header.rows.entry(table).or_default() += rows;
                        }
                    }
                    None => joined.push(Process {
                        folder: process,
                        ..part
                    }),
                }
            }
            *all = joined;
        }
    }

    /// Puts the processes in their order: by rank, and then by folder.
    pub fn sort_processes(&mut self) {
        self.processes.sort_by(|a, b| {
            (a.header.rank.unwrap_or(u32::MAX), &a.folder)
                .cmp(&(b.header.rank.unwrap_or(u32::MAX), &b.folder))
        });
    }

    /// Whether the GPUs were simulated.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.manifest.device == "sim"
            || self
                .processes
                .iter()
                .flat_map(|process| &process.header.devices)
                .any(is_simulated)
    }

    fn lose(&mut self, what: String, count: Option<u64>, affects: &str) {
        self.losses.push(Loss {
            what,
            count,
            affects: affects.to_owned(),
        });
    }

    fn rebuild_manifest(&mut self) {
        let headers = || self.processes.iter().map(|process| &process.header);
        let simulated = headers().flat_map(|header| &header.devices).any(is_simulated);
        let started_ns = headers()
            .map(|header| header.started_ns)
            .filter(|&start| start > 0)
            .min()
            .unwrap_or(0);
        let host = headers()
            .map(|header| header.host.clone())
            .find(|host| !host.is_empty())
            .unwrap_or_default();
        // Where no header says which GPUs there were, they may have been simulated ones.
        let any_known = headers().any(|header| !header.devices.is_empty());
        let command = headers()
            .map(|header| header.command.clone())
            .find(|command| !command.is_empty());
        let manifest = &mut self.manifest;
        let device = match (simulated, any_known) {
            (true, _) => "sim",
            (false, true) => "cuda",
            (false, false) => "unknown",
        };
        device.clone_into(&mut manifest.device);
        manifest.started_ns = started_ns;
        manifest.host = host;
        manifest.command = command.unwrap_or_default();
    }
}

/// Whether a device is a stand-in.
#[must_use]
pub fn is_simulated(device: &crate::manifest::Device) -> bool {
    device.name.starts_with("Simulated")
}
