//! A recording process by process: what holds for all of it is read first, and each process when it is asked for. So the whole
//! need not be in memory at once.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use super::{
    Loss, NOT_CLOSED, OpenError, Process, Recording, Segments, cannot_read, check_version, process_folders,
    segment_of,
};
use crate::beneath;
use crate::clock_steps::{self, HostOffsets};
use crate::json_file::{Json, read_json};
use crate::manifest::{FORMAT, MANIFEST_FILE, Manifest, ProcessHeader};
use crate::parallel;
use crate::tables::TABLE_NAMES;

/// A recording that is read process by process.
#[derive(Debug)]
pub struct Pieces {
    /// The recording without its processes: manifest, and what was lost or is to be noted of the whole.
    base: Recording,
    groups: Vec<Group>,
    offsets: HostOffsets,
}

/// One process: its folders, of which there are several where a recording was kept below a size.
#[derive(Debug)]
struct Group {
    folder: String,
    folders: Vec<PathBuf>,
    header: ProcessHeader,
    /// Of another recording.
    is_stranger: bool,
}

/// A process that was read.
#[derive(Debug, Default)]
pub struct Piece {
    /// A recording of this process alone, with the losses and notes that are its own; without a process where it belongs to another
    /// recording.
    pub recording: Recording,
    /// How many of its folders were written by an earlier version, without checksums.
    pub unchecked: usize,
    /// Whether its clock was set while it ran, or differs from that of others on its host.
    pub was_set: bool,
}

impl Pieces {
    /// Looks at the recording in folder `path`: its manifest, and each process's header and clocks.
    ///
    /// # Errors
    /// When `path` is no recording, is of a newer major version, or can't be read.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
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
        let folders = process_folders(path).map_err(|error| cannot_read(path, &error))?;
        let mut base = Recording {
            path: path.to_owned(),
            ..Recording::default()
        };
        base.take_manifest(&folders)?;
        base.lose_what_leads_out(path);
        let heads = parallel::map(folders.len(), |index| head(&folders[index]));
        let heads: Vec<Process> = heads.into_iter().collect::<Result<_, _>>()?;
        let offsets = HostOffsets::of(&heads);
        let known = base.known_recordings(&heads);
        let is_known = |header: &ProcessHeader| {
            let id = &header.recording;
            known
                .as_ref()
                .is_none_or(|known| id.is_empty() || known.contains(id))
        };
        let mut parts: Vec<(Process, PathBuf)> = heads.into_iter().zip(folders.iter().cloned()).collect();
        parts.sort_by(|(a, _), (b, _)| segment_of(&a.folder).cmp(&segment_of(&b.folder)));
        let mut groups: Vec<Group> = Vec::new();
        for (head, folder) in parts {
            let name = segment_of(&head.folder).0.to_owned();
            match groups.last_mut().filter(|last| last.folder == name) {
                Some(last) => {
                    last.folders.push(folder);
                    last.header = head.header;
                }
                None => groups.push(Group {
                    folder: name,
                    folders: vec![folder],
                    is_stranger: !is_known(&head.header),
                    header: head.header,
                }),
            }
        }
        base.lose_missing(&groups);
        if base.manifest.state == "rebuilt" {
            let own = groups.iter().filter(|group| !group.is_stranger);
            let mut own: Vec<&ProcessHeader> = own.map(|group| &group.header).collect();
            own.retain(|header| !header.is_host());
            own.sort_by_key(|header| header.rank.unwrap_or(u32::MAX));
            base.rebuild_manifest(&own);
        }
        base.redact();
        Ok(Self {
            base,
            groups,
            offsets,
        })
    }

    /// The recording without its processes.
    #[must_use]
    pub fn base(&self) -> &Recording {
        &self.base
    }

    /// How many processes there are, those of recorders among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there is no process.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The header of the process at `place`, as its last folder has it.
    #[must_use]
    pub fn header(&self, place: usize) -> &ProcessHeader {
        &self.groups[place].header
    }

    /// Whether the process at `place` is of another recording: [`Pieces::read`] gives none of it but a loss.
    #[must_use]
    pub fn is_stranger(&self, place: usize) -> bool {
        self.groups[place].is_stranger
    }

    /// Whether the process at `place` is no rank: a recorder's own, or one of another recording. What is said of it stands with the
    /// whole.
    #[must_use]
    pub fn is_of_whole(&self, place: usize) -> bool {
        self.header(place).is_host() || self.is_stranger(place)
    }

    /// The places of its ranks' processes.
    pub fn of_ranks(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(|place| !self.is_of_whole(*place))
    }

    /// The recording with the processes at `places`, and whether clocks were set.
    fn read_all(self, places: &[usize], tables: &[&str]) -> Result<(Recording, bool), OpenError> {
        let read = parallel::map(places.len(), |index| self.read(places[index], tables));
        let read: Vec<Piece> = read.into_iter().collect::<Result<_, _>>()?;
        let was_set = read.iter().any(|piece| piece.was_set);
        let unchecked = read.iter().map(|piece| piece.unchecked).sum();
        let note = unchecked_note(unchecked, self.folder_count());
        let mut recording = self.into_base();
        recording.notes.extend(note);
        recording.absorb_all(read.into_iter().map(|piece| piece.recording));
        Ok((recording, was_set))
    }

    /// The name of the folder of the process at `place`.
    #[must_use]
    pub fn folder(&self, place: usize) -> &str {
        &self.groups[place].folder
    }

    /// The files that the process at `place` consists of, by their folders.
    #[must_use]
    pub fn folders(&self, place: usize) -> &[PathBuf] {
        &self.groups[place].folders
    }

    /// Reads some tables of the process at `place`.
    ///
    /// # Errors
    /// When its files can't be read.
    pub fn read(&self, place: usize, tables: &[&str]) -> Result<Piece, OpenError> {
        let group = &self.groups[place];
        let mut piece = Piece::default();
        for folder in &group.folders {
            let mut part = Recording::default();
            piece.unchecked += usize::from(part.read_process(folder, tables)?);
            piece.recording.absorb(part);
        }
        let part = &mut piece.recording;
        if group.is_stranger {
            let gone = std::mem::take(&mut part.processes).into_iter();
            for process in gone.chain(std::mem::take(&mut part.hosts)) {
                let counts = process.tables.row_counts();
                part.lose(
                    format!("{} is of another recording, and was left out", process.folder),
                    Some(counts.iter().map(|(_, rows)| *rows as u64).sum()),
                    "everything of that process",
                );
            }
            return Ok(piece);
        }
        part.join_segments();
        part.compare_with_manifest(&self.base.manifest, tables);
        for process in part.processes.iter_mut().chain(&mut part.hosts) {
            for step in clock_steps::undo(process, &self.offsets) {
                part.notes.push(clock_steps::note(&process.folder, step));
                piece.was_set = true;
            }
            if !self.base.manifest.options.keep_arguments {
                process.header.redact();
            }
        }
        Ok(piece)
    }

    /// How many folders the processes have.
    #[must_use]
    pub fn folder_count(&self) -> usize {
        self.groups.iter().map(|group| group.folders.len()).sum()
    }

    /// The recording without its processes.
    #[must_use]
    pub fn into_base(self) -> Recording {
        self.base
    }
}

/// What is to be said where so many of a recording's folders are without checksums.
#[must_use]
pub fn unchecked_note(unchecked: usize, folders: usize) -> Option<String> {
    (unchecked > 0).then(|| {
        format!(
            "{unchecked} of {folders} process folders were written by an earlier gputrace, without checksums: damage that \
             leaves them readable cannot be seen"
        )
    })
}

/// A process's header and clocks.
fn head(folder: &Path) -> Result<Process, OpenError> {
    let mut part = Recording::default();
    part.read_process(folder, &["clocks"])?;
    let mut all = part.processes.into_iter().chain(part.hosts);
    Ok(all.next().unwrap_or_default())
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
    /// after that is mended by all tables together, and where it is of several hosts, whose clocks are compared by all of it.
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
        let mut hosts = recording.processes.iter().map(|process| &process.header.host);
        let first = hosts.next();
        if was_set || hosts.any(|host| Some(host) != first) {
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

    /// The recording with the processes of some ranks alone, which is said in its notes; those of its recorders are there as ever.
    ///
    /// # Errors
    /// As [`Recording::open`], and when it has none of these ranks.
    pub fn open_ranks(path: &Path, ranks: &[u32]) -> Result<Self, OpenError> {
        let pieces = Pieces::open(path)?;
        let of_ranks: Vec<usize> = pieces.of_ranks().collect();
        let is_wanted = |place: &usize| {
            let rank = pieces.header(*place).rank;
            rank.is_some_and(|rank| ranks.contains(&rank))
        };
        let mut places: Vec<usize> = of_ranks.iter().copied().filter(is_wanted).collect();
        let (here, all) = (places.len(), of_ranks.len());
        if here == 0 {
            return Err(OpenError(format!(
                "{}: it has none of these ranks",
                path.display()
            )));
        }
        places.extend((0..pieces.len()).filter(|place| pieces.header(*place).is_host()));
        places.sort_unstable();
        let (mut recording, _) = pieces.read_all(&places, TABLE_NAMES)?;
        recording.notes.push(format!(
            "{here} of {all} ranks are read here: nothing is compared with the others"
        ));
        Ok(recording)
    }

    /// Some tables, and whether clocks were set.
    fn open_some(path: &Path, tables: &[&str]) -> Result<(Self, bool), OpenError> {
        let pieces = Pieces::open(path)?;
        let all: Vec<usize> = (0..pieces.len()).collect();
        pieces.read_all(&all, tables)
    }

    /// Reads the manifest, and those of other recorders of the same folder.
    fn take_manifest(&mut self, folders: &[PathBuf]) -> Result<(), OpenError> {
        let path = self.path.join(MANIFEST_FILE);
        match read_json::<Manifest>(&path).map_err(|error| cannot_read(&path, &error))? {
            Json::Read(manifest) if manifest.format == FORMAT => {
                check_version(&path, manifest.version)?;
                self.losses.clone_from(&manifest.losses);
                self.notes.clone_from(&manifest.notes);
                if manifest.state == "recording" {
                    self.lose(
                        format!("{MANIFEST_FILE} {NOT_CLOSED}"),
                        Some(1),
                        "exit status, and whatever is still to come",
                    );
                }
                self.manifest = manifest;
            }
            found => {
                if folders.is_empty() {
                    return Err(OpenError(format!(
                        "{}: not a gputrace recording: it has neither a {MANIFEST_FILE} nor a process folder; \
                         `gputrace record -- COMMAND` makes one",
                        self.path.display()
                    )));
                }
                let why = match found {
                    Json::Missing => "is missing (the recorder was killed)".to_owned(),
                    Json::Read(manifest) => format!("is of another format ({:?})", manifest.format),
                    Json::Damaged(error) => format!("is damaged ({error})"),
                };
                self.notes
                    .push(format!("{MANIFEST_FILE} {why}; rebuilt from the process folders"));
                self.losses.push(Loss {
                    what: format!("{MANIFEST_FILE} {}", why.split(" (").next().unwrap_or_default()),
                    count: Some(1),
                    affects: "command, exit status and the recorder's own notes".to_owned(),
                });
                self.manifest = Manifest {
                    state: "rebuilt".to_owned(),
                    ..Manifest::new()
                };
            }
        }
        self.absorb_manifests(&path)
    }

    /// Says which processes the manifest names that are not there.
    fn lose_missing(&mut self, groups: &[Group]) {
        let found: HashSet<&str> = groups.iter().map(|group| group.folder.as_str()).collect();
        let missing: BTreeMap<String, u64> = self
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
            self.lose(
                format!("{folder}: the process folder is missing, with its rows"),
                Some(rows),
                "everything of that process, and whatever compares or sums ranks",
            );
        }
    }
}
