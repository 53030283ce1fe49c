//! The jobs: processes of one user that belong together, and the recording that they write.

pub mod process;
pub mod saved;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::PathBuf;

use gputrace_trace::daemon::{JobKey, Mode};
use gputrace_trace::json_file::{Json, read_json};
use gputrace_trace::manifest::{LossEntry, MANIFEST_FILE, Manifest, ProcessHeader};
use gputrace_trace::options::CollectorOptions;
use gputrace_trace::recording::is_simulated;
use gputrace_trace::seal::{id_text, random_id};

use crate::alive::Alive;
use crate::clock::now_ns;
use crate::history::History;
use crate::metrics::times::Times;
use crate::nodes::ranks::Ranks;
use crate::peer::user_name;
use crate::triggers::fired::Fired;
use crate::triggers::watch::Watch;
use process::{Gone, Process};
use saved::{SavedJob, SavedProcess};

/// How the loss of what the ring removed ends.
const LEFT: &str = "which left the ring";
/// Findings of a job that are remembered.
const MOST_FIRED: usize = 256;

/// How a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Some of its processes are connected.
    Running,
    /// They are, and nothing goes on.
    Hung,
    /// None of its processes is connected, and not all are gone: their connections were lost, or the daemon was away.
    Waiting,
    /// All have left.
    Ended,
    /// All are gone, and the last of them did not say so.
    Died,
}

impl State {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Hung => "hung",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
            Self::Died => "died",
        }
    }
}

/// Whether a file is being written: it is written once at a time, as it is by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writing {
    /// No.
    #[default]
    None,
    /// It is.
    Once,
    /// It is, and is to be written again.
    Again,
}

impl Writing {
    /// It is to be written. Says whether that is to be begun.
    #[must_use]
    pub fn begin(&mut self) -> bool {
        let begins = *self == Self::None;
        *self = if begins { Self::Once } else { Self::Again };
        begins
    }

    /// It was written. Says whether it is to be again.
    #[must_use]
    pub fn end(&mut self) -> bool {
        std::mem::take(self) == Self::Again
    }
}

/// A job.
pub struct Job {
    /// Its name.
    pub id: String,
    /// Whose it is.
    pub uid: u32,
    /// That user's name.
    pub user: String,
    /// What its processes have in common.
    pub key: JobKey,
    /// How much of it is recorded.
    pub mode: Mode,
    /// Its lowest process number.
    pub pid: u32,
    /// When its first process joined.
    pub started_ns: i64,
    /// When its last process went.
    pub ended_ns: Option<i64>,
    /// Its recording's folder.
    pub folder: PathBuf,
    /// What the recording says of itself.
    pub manifest: Manifest,
    /// Its processes, by their folders.
    pub processes: BTreeMap<String, Process>,
    /// Segments that left its ring, and their rows.
    pub removed: (u64, u64),
    /// Files of those whose rows were not counted.
    pub uncounted: u64,
    /// Whether what is to leave its ring is being removed just now.
    pub is_trimmed: bool,
    /// Its steps.
    pub history: History,
    /// Its ranks on other nodes.
    pub ranks: Ranks,
    /// Sums of them.
    pub times: Times,
    /// What it is watched for.
    pub watch: Watch,
    /// What was found, the last ones.
    pub fired: VecDeque<Fired>,
    /// Whether it hangs, as far as is known.
    pub hangs: bool,
    /// Steps there were when it was last written down ([`Self::saved`]).
    pub saved_steps: u64,
    /// Whether that failed.
    pub is_unsaved: bool,
    /// As long as its folder is being made: who waits for that.
    pub unanswered: Option<Vec<u64>>,
    /// Whether its manifest is being written.
    pub manifest_writing: Writing,
    /// Whether it is being written down.
    pub saved_writing: Writing,
    /// Steps there were when kernels of one were last recorded, in mode "sampled".
    pub sampled: u64,
}

impl Job {
    /// A job that is new: its folder is still to be made ([`crate::keep::task::Task::Make`]).
    #[must_use]
    pub fn begin(
        id: String,
        uid: u32,
        key: JobKey,
        pid: u32,
        mode: Mode,
        options: CollectorOptions,
        host: &str,
        jobs: &std::path::Path,
    ) -> Self {
        let folder = jobs.join(&id);
        let started_ns = now_ns();
        let manifest = Manifest {
            recording: id_text(random_id()),
            state: "recording".to_owned(),
            launch: key.scheduler.clone(),
            options,
            device: "unknown".to_owned(),
            host: host.to_owned(),
            started_ns,
            notes: vec![format!(
                "recorded by a daemon, in mode {}: of each process the last moments alone are kept",
                mode.name()
            )],
            ..Manifest::new()
        };
        let saved = SavedJob {
            job: id,
            uid,
            key,
            mode,
            pid,
            started_ns,
            ..SavedJob::default()
        };
        Self {
            unanswered: Some(Vec::new()),
            manifest_writing: Writing::Once,
            ..Self::with(saved, uid.to_string(), folder, manifest)
        }
    }

    /// A job that was there before the daemon.
    ///
    /// # Errors
    /// When its folder is gone.
    pub fn found(saved: SavedJob, jobs: &std::path::Path) -> io::Result<Self> {
        let folder = jobs.join(&saved.job);
        if !fs::symlink_metadata(&folder)?.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        gputrace_trace::beneath::name_if_none(&folder);
        let mut manifest = match read_json::<Manifest>(&folder.join(MANIFEST_FILE))? {
            Json::Read(manifest) => manifest,
            Json::Missing | Json::Damaged(_) => Manifest {
                recording: saved.recording.clone(),
                state: "recording".to_owned(),
                device: "unknown".to_owned(),
                started_ns: saved.started_ns,
                ..Manifest::new()
            },
        };
        // This one is told anew with each write.
        manifest.losses.retain(|loss| !loss.what.ends_with(LEFT));
        let user = user_name(saved.uid);
        Ok(Self::with(saved, user, folder, manifest))
    }

    fn with(saved: SavedJob, user: String, folder: PathBuf, manifest: Manifest) -> Self {
        let now = now_ns();
        let processes = saved.processes.into_iter().map(|saved| {
            let mut process = Process::new(saved.folder.clone(), saved.pid, now);
            process.totals.rank = saved.rank;
            process.totals.world_size = saved.world_size;
            process.totals.steps = saved.all_steps;
            process.told_steps = saved.told_steps;
            process.alive = Alive::written(saved.pid, saved.started);
            if saved.gone {
                process.gone = Some((now, if saved.died { Gone::Died } else { Gone::Left }));
            }
            (saved.folder, process)
        });
        Self {
            id: saved.job,
            uid: saved.uid,
            user,
            key: saved.key,
            mode: saved.mode,
            pid: saved.pid,
            started_ns: saved.started_ns,
            ended_ns: saved.ended_ns,
            folder,
            manifest,
            processes: processes.collect(),
            removed: saved.removed,
            uncounted: saved.uncounted,
            is_trimmed: false,
            history: History::after(saved.steps),
            ranks: Ranks::default(),
            times: Times::default(),
            watch: Watch::default(),
            fired: VecDeque::new(),
            hangs: false,
            saved_steps: saved.steps,
            is_unsaved: false,
            unanswered: None,
            manifest_writing: Writing::None,
            saved_writing: Writing::None,
            sampled: saved.steps,
        }
    }

    /// What is to be found again of it.
    #[must_use]
    pub fn saved(&self) -> SavedJob {
        let processes = self.processes.values().map(|process| SavedProcess {
            folder: process.folder.clone(),
            pid: process.pid,
            started: process.alive.started(),
            rank: process.totals.rank,
            world_size: process.totals.world_size,
            told_steps: process.told_steps,
            all_steps: process.totals.steps,
            gone: process.gone.is_some(),
            died: process.gone.is_some_and(|(_, how)| how == Gone::Died),
        });
        SavedJob {
            job: self.id.clone(),
            uid: self.uid,
            key: self.key.clone(),
            mode: self.mode,
            pid: self.pid,
            started_ns: self.started_ns,
            recording: self.manifest.recording.clone(),
            steps: self.history.steps(),
            ended_ns: self.ended_ns,
            processes: processes.collect(),
            removed: self.removed,
            uncounted: self.uncounted,
        }
    }

    /// What the recording's manifest says now.
    #[must_use]
    pub fn whole_manifest(&self) -> Manifest {
        let mut manifest = self.manifest.clone();
        if self.removed.0 > 0 {
            let uncounted = match self.uncounted {
                0 => String::new(),
                files => format!(", without {files} files that were too large to count or unreadable"),
            };
            manifest.losses.push(LossEntry {
                what: format!(
                    "rows of the {} oldest segments{uncounted}, {LEFT}",
                    self.removed.0
                ),
                count: Some(self.removed.1),
                affects: "everything before what is left".to_owned(),
            });
        }
        manifest
    }

    /// Takes from a process's header what the manifest says of the whole. Says whether that was new.
    pub fn learn(&mut self, header: &ProcessHeader) -> bool {
        let manifest = &mut self.manifest;
        let device = match header.devices.first() {
            Some(device) if is_simulated(device) => "sim",
            Some(_) => "cuda",
            None => &manifest.device,
        };
        if manifest.device == device && !manifest.command.is_empty() {
            return false;
        }
        manifest.device = device.to_owned();
        if manifest.command.is_empty() {
            manifest.command.clone_from(&header.command);
            manifest.environment.clone_from(&header.environment);
        }
        true
    }

    /// Its processes that are connected.
    pub fn live(&self) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(|process| process.is_connected())
    }

    /// How it is.
    #[must_use]
    pub fn state(&self) -> State {
        if self.live().next().is_some() {
            return if self.hangs { State::Hung } else { State::Running };
        }
        if self.processes.values().any(|process| process.gone.is_none()) {
            return State::Waiting;
        }
        let last = self
            .processes
            .values()
            .filter_map(|process| process.gone)
            .max_by_key(|gone| gone.0);
        match last {
            Some((_, Gone::Died)) => State::Died,
            _ => State::Ended,
        }
    }

    /// Ranks of the whole job, where that is known.
    #[must_use]
    pub fn world_size(&self) -> Option<u32> {
        self.processes
            .values()
            .filter_map(|process| process.totals.world_size)
            .max()
    }

    /// The rank of a process: what it said, or its place among the job's processes.
    #[must_use]
    pub fn rank_of(&self, folder: &str) -> u32 {
        let said = self.processes.get(folder).and_then(|process| process.totals.rank);
        said.unwrap_or_else(|| {
            let place = self.processes.keys().position(|name| name == folder);
            u32::try_from(place.unwrap_or(0)).unwrap_or(u32::MAX)
        })
    }

    /// Notes a finding.
    pub fn note(&mut self, fired: Fired) {
        if self.fired.len() == MOST_FIRED {
            self.fired.pop_front();
        }
        self.fired.push_back(fired);
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::json_file::write_json;

    use super::*;

    #[test]
    fn what_is_being_written_is_written_once_more_however_often_it_changes() {
        let mut writing = Writing::default();
        assert!(writing.begin());
        assert!(!writing.begin() && !writing.begin());
        assert!(writing.end() && !writing.end());
    }

    #[test]
    fn what_left_the_ring_is_told_once_by_the_next_daemon_too() {
        let place = tempfile::tempdir().expect("a folder");
        let (options, mode) = (CollectorOptions::default(), Mode::Steps);
        let mut job = Job::begin(
            "j".to_owned(),
            0,
            JobKey::default(),
            1,
            mode,
            options,
            "here",
            place.path(),
        );
        fs::create_dir(&job.folder).expect("made");
        job.removed = (2, 10);
        write_json(&job.folder.join(MANIFEST_FILE), &job.whole_manifest()).expect("written");
        let mut job = Job::found(job.saved(), place.path()).expect("found");
        job.removed = (3, 15);
        let losses = job.whole_manifest().losses;
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert_eq!(losses[0].count, Some(15));
    }
}
