//! Opening a recording: whatever of it is left is read, and what is missing is said.

pub(crate) mod header;
mod process;
pub(crate) mod stamps;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::beneath::{self, Kind};
use crate::clock_steps;
use crate::json_file::{Json, read_json};
pub use crate::manifest::LossEntry as Loss;
use crate::manifest::{FORMAT, MANIFEST_FILE, Manifest, PROCESS_FILE, VERSION, Version};
use crate::names::Interner;
use crate::parallel;
pub use crate::process::Process;
use crate::tables::TABLE_NAMES;

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

fn cannot_read(what: &Path, error: &io::Error) -> OpenError {
    OpenError(format!("{}: cannot be read: {error}", what.display()))
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
    for entry in beneath::entries(path)? {
        let folder = entry.path;
        let is_process = !is_hidden(&folder)
            && entry.stat.kind == Kind::Folder
            && (beneath::exists(&folder.join(PROCESS_FILE))
                || beneath::entries(&folder)?.iter().any(|file| {
                    file.path
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

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The manifests of a recording, `manifest.json` first: recorders that share a folder have one each.
///
/// # Errors
/// When the folder can't be read.
pub fn manifest_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in beneath::entries(path)? {
        let name = entry.path.file_name().unwrap_or_default();
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

/// Reads each process's folder into a recording of its own, on all cores; gives with each whether it has no checksums.
fn read_processes(folders: &[PathBuf], tables: &[&str]) -> Vec<Result<(Recording, bool), OpenError>> {
    parallel::map(folders.len(), |index| {
        let mut part = Recording::default();
        part.read_process(&folders[index], tables)
            .map(|is_unchecked| (part, is_unchecked))
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
            .map_err(|error| cannot_read(path, &error))?
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
                let first = folders.partition_point(|(name, ..)| *name < process.folder);
                let own = folders[first..]
                    .iter()
                    .take_while(|(name, ..)| *name == process.folder);
                own.map(|(.., folder)| folder.clone()).collect()
            })
            .collect();
        Ok(Some((recording, of_each)))
    }

    /// Some tables, and whether clocks were set.
    fn open_some(path: &Path, tables: &[&str]) -> Result<(Self, bool), OpenError> {
        beneath::name_if_none(path);
        match beneath::stat(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError(format!("{}: no such file or folder", path.display())));
            }
            Err(error) if beneath::refused(&error).is_some() => return Err(cannot_read(path, &error)),
            _ => {}
        }
        if !beneath::is_folder(path) {
            return Err(OpenError(format!(
                "{}: not a gputrace recording: a recording is a folder with a {MANIFEST_FILE} in it",
                path.display()
            )));
        }
        let manifest_path = path.join(MANIFEST_FILE);
        let manifest =
            read_json::<Manifest>(&manifest_path).map_err(|error| cannot_read(&manifest_path, &error))?;
        let folders = process_folders(path).map_err(|error| cannot_read(path, &error))?;
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
        recording.lose_what_leads_out(path);
        let mut unchecked = 0;
        let mut parts = Vec::new();
        for part in read_processes(&folders, tables) {
            let (part, is_unchecked) = part?;
            unchecked += usize::from(is_unchecked);
            parts.push(part);
        }
        recording.absorb_all(parts);
        if unchecked > 0 {
            recording.notes.push(format!(
                "{unchecked} of {} process folders were written by an earlier gputrace, without checksums: damage that \
                 leaves them readable cannot be seen",
                folders.len()
            ));
        }
        recording.leave_out_strangers();
        let found: HashSet<String> = folders
            .iter()
            .map(|folder| {
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                segment_of(&name).0.to_owned()
            })
            .collect();
        let missing: Vec<(String, u64)> = recording
            .manifest
            .rows
            .iter()
            .filter(|(folder, _)| !found.contains(folder.as_str()))
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
        recording.compare_with_manifest(tables);
        let all = recording.processes.iter_mut().chain(&mut recording.hosts);
        let steps = clock_steps::undo(all);
        for (folder, step) in &steps {
            recording.notes.push(clock_steps::note(folder, *step));
        }
        recording.sort_processes();
        if recording.manifest.state == "rebuilt" {
            recording.rebuild_manifest();
        }
        recording.redact();
        Ok((recording, !steps.is_empty()))
    }

    /// Links in the recording's folder may be those of processes.
    fn lose_what_leads_out(&mut self, path: &Path) {
        let mut links: Vec<PathBuf> = beneath::entries(path)
            .into_iter()
            .flatten()
            .filter(|entry| entry.stat.kind == Kind::LeadsOut && !is_hidden(&entry.path))
            .map(|entry| entry.path)
            .collect();
        links.sort();
        for link in links {
            let name = link.file_name().unwrap_or_default().to_string_lossy();
            self.lose(
                format!("{name}: {}", beneath::Refused::LeadsOut),
                Some(1),
                "everything of a process, if it is one's folder",
            );
        }
    }

    /// Takes in the manifests of other recorders that wrote into the same folder.
    fn absorb_manifests(&mut self, own: &Path) -> Result<(), OpenError> {
        let files = manifest_files(&self.path).map_err(|error| cannot_read(&self.path, &error))?;
        for path in files.into_iter().filter(|path| path != own) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            match read_json::<Manifest>(&path).map_err(|error| cannot_read(&path, &error))? {
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
                        // A recorder's own word on the run is better than what headers tell. Which recordings it is made of
                        // stood in the one that is gone.
                        self.manifest = Manifest {
                            recording: String::new(),
                            ..other
                        };
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
        self.absorb_all([other]);
    }

    /// The same of many.
    pub fn absorb_all(&mut self, others: impl IntoIterator<Item = Self>) {
        for other in others {
            let numbers = self.names.take_in(other.names);
            let renumbered = |mut process: Process| {
                if let Some(numbers) = &numbers {
                    process.tables.renumber(numbers);
                }
                process
            };
            self.processes.extend(other.processes.into_iter().map(renumbered));
            self.hosts.extend(other.hosts.into_iter().map(renumbered));
            self.losses.extend(other.losses);
            self.notes.extend(other.notes);
        }
        self.sort_processes();
    }

    /// Leaves out processes of other recordings; where none is of this one, the manifest is the stranger.
    fn leave_out_strangers(&mut self) {
        let known: Vec<&String> = self
            .manifest
            .merged
            .iter()
            .chain(Some(&self.manifest.recording))
            .filter(|id| !id.is_empty())
            .collect();
        if known.is_empty() {
            return;
        }
        let is_known = |process: &Process| {
            let id = &process.header.recording;
            id.is_empty() || known.contains(&id)
        };
        let mut all = self.processes.iter().chain(&self.hosts).peekable();
        if all.peek().is_some() && !all.any(is_known) {
            self.manifest = Manifest {
                state: "rebuilt".to_owned(),
                ..Manifest::new()
            };
            self.lose(
                format!("{MANIFEST_FILE} is of another recording"),
                Some(1),
                "command, exit status and the recorder's own notes",
            );
            return;
        }
        let mut strangers: Vec<Process> = Vec::new();
        for all in [&mut self.processes, &mut self.hosts] {
            let (own, others) = std::mem::take(all).into_iter().partition(is_known);
            *all = own;
            strangers.extend::<Vec<Process>>(others);
        }
        for process in strangers {
            let counts = process.tables.row_counts();
            self.lose(
                format!("{} is of another recording, and was left out", process.folder),
                Some(counts.iter().map(|(_, rows)| *rows as u64).sum()),
                "everything of that process",
            );
        }
    }

    /// What the recorder could read at the end against what is there now. More is none the worse: a process may have outlived
    /// its recorder.
    fn compare_with_manifest(&mut self, tables: &[&str]) {
        let mut missing = Vec::new();
        for process in self.processes.iter().chain(&self.hosts) {
            let Some(counted) = self.manifest.rows.get(&process.folder) else {
                continue;
            };
            for (table, read) in process.tables.row_counts() {
                let counted = counted.get(table).copied().unwrap_or(0);
                let is_told = || {
                    let mut losses = self.losses.iter();
                    losses.any(|loss| loss.affects == table && loss.what.starts_with(&process.folder))
                };
                if tables.contains(&table) && counted > read as u64 && !is_told() {
                    missing.push((process.folder.clone(), table, read as u64, counted));
                }
            }
        }
        for (folder, table, read, counted) in missing {
            self.lose(
                format!(
                    "{folder}/{table}.arrows: {read} rows, of which there were {counted} when it was recorded"
                ),
                Some(counted - read),
                table,
            );
        }
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

    /// Hides what looks like a secret in command lines and variables, unless the recorder was told to keep it: recordings of
    /// earlier versions, and traces of others, have it in them.
    pub fn redact(&mut self) {
        if self.manifest.options.keep_arguments {
            return;
        }
        self.manifest.redact();
        for process in self.processes.iter_mut().chain(&mut self.hosts) {
            process.header.redact();
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
