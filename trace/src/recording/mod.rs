//! Opening a recording: whatever of it is left is read, and what is missing is said.

pub(crate) mod header;
mod manifests;
mod pieces;
mod process;
pub(crate) mod stamps;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::alignment::{Alignment, HostClock};
use crate::beneath::{self, Kind};
pub use crate::manifest::LossEntry as Loss;
use crate::manifest::{Manifest, PROCESS_FILE, VERSION, Version};
use crate::names::Interner;
use crate::parallel;
pub use crate::process::Process;
pub use manifests::manifest_files;
pub use pieces::{Piece, Pieces, unchecked_note};

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
    /// How the clocks stand that stamped it, where there are several and stamps were moved to one: see [`Recording::align`].
    pub clocks: Option<Alignment>,
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

/// A host's name as it stands in names of folders and files: what is neither a letter, a digit nor a dash is an underscore.
#[must_use]
pub fn host_in_names(host: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    host.replace(|letter| !is_plain(letter), "_")
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

impl Recording {
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

    /// Takes in the processes of another recording of the same run, and whatever it says.
    pub fn absorb(&mut self, other: Self) {
        self.absorb_all([other]);
    }

    /// The same of many.
    pub fn absorb_all(&mut self, others: impl IntoIterator<Item = Self>) {
        for mut other in others {
            if self.clocks != other.clocks {
                // Each counts from a clock of its own: they are compared anew.
                self.forget_clocks();
                other.forget_clocks();
            }
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

    fn forget_clocks(&mut self) {
        self.clocks = None;
        for process in self.processes.iter_mut().chain(&mut self.hosts) {
            process.header.clock = None;
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

    /// Moves the stamps of all processes to those of the clocks' references, by the clocks that their headers name. What is
    /// sampled of a host goes with the first of its clocks.
    pub fn align(&mut self, alignment: Alignment) {
        for host in &mut self.hosts {
            let named = |clock: &HostClock| clock.host == host.header.host;
            let place = alignment.clocks.iter().position(named);
            host.header.clock = place.and_then(|place| u32::try_from(place).ok());
        }
        let all = self.processes.iter_mut().chain(&mut self.hosts);
        let mut all: Vec<Mutex<&mut Process>> = all.map(Mutex::new).collect();
        parallel::map(all.len(), |place| {
            alignment.align(&mut all[place].lock().unwrap_or_else(PoisonError::into_inner));
        });
        all.clear();
        self.clocks = Some(alignment);
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

    /// What the GPUs are, for programs: "cuda", "sim" or "imported"; "unknown" where nothing is left that says.
    #[must_use]
    pub fn device(&self) -> &str {
        if self.is_simulated() {
            "sim"
        } else {
            &self.manifest.device
        }
    }

    fn lose(&mut self, what: String, count: Option<u64>, affects: &str) {
        self.losses.push(Loss {
            what,
            count,
            affects: affects.to_owned(),
        });
    }
}

/// Whether a device is a stand-in.
#[must_use]
pub fn is_simulated(device: &crate::manifest::Device) -> bool {
    device.name.starts_with("Simulated")
}
