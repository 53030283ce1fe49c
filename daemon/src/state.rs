//! Everything that the daemon knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gputrace_trace::manifest::MANIFEST_FILE;
use rustix::fs::FlockOperation;

use crate::caller::Caller;
use crate::devices::Devices;
use crate::jobs::saved::{self, SavedJob, Shelf};
use crate::jobs::{Job, State as JobState, Writing};
use crate::keep::disk::Disk;
use crate::keep::large::remove_unfinished;
use crate::keep::library::{Library, names_in};
use crate::keep::task::{Noted, Task};
use crate::names::is_recording_name;
use crate::nodes::others::Others;
use crate::peer::{GROUP, Peer, group_number};
use crate::posts::Posts;
use crate::settings::Settings;
use crate::tls;
use crate::triggers::fired::Held;
use crate::webhook::Address;
use crate::windows::window::Window;

/// Sums over the daemon's life.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Callers that were turned away or cut off.
    pub dropped: u64,
    /// Processes that wanted to join and were not let in: each time that they did.
    pub refused: u64,
    /// Packets that were not understood.
    pub nonsense: u64,
    /// Jobs whose rings were removed when their time was over.
    pub jobs_removed: u64,
    /// Rows that left rings.
    pub rows_removed: u64,
    /// What processes wanted of their files and did not get, since too much waited for the disk.
    pub disk_refused: u64,
    /// Steps of ranks that other nodes were not told of, since there were too many at once.
    pub untold_steps: u64,
    /// Captures by what made them.
    pub captures: BTreeMap<String, u64>,
}

/// Everything that the daemon knows.
pub struct State {
    /// What it was told.
    pub settings: Settings,
    /// Who has called, by a number that is never given twice.
    pub callers: BTreeMap<u64, Caller>,
    /// The last of those numbers.
    pub last_caller: u64,
    /// The jobs, by their names.
    pub jobs: BTreeMap<String, Job>,
    /// Names that no new one may have: folders that are being removed, and such as are not ours.
    pub taken: BTreeSet<String>,
    /// What survives us of them.
    pub shelf: Shelf,
    /// The recordings that were kept.
    pub library: Library,
    /// Captures and snapshots that are being made, by number.
    pub windows: BTreeMap<u64, Window>,
    /// The last of those numbers.
    pub last_window: u64,
    /// Who does what takes time.
    pub disk: Disk,
    /// The group whose members see all jobs.
    pub watchers: Option<u32>,
    /// Sums.
    pub sums: Sums,
    /// What is to be told to who started us, the newest last.
    pub said: Vec<String>,
    /// Why a process was refused last.
    pub refusal: Option<String>,
    /// Whether it was said that the disk stands still.
    pub disk_stands: bool,
    /// Whether it is being asked how much room it has.
    pub is_asked_for_room: bool,
    /// Bytes that the disk has, where that was measured since something was last removed.
    pub free_bytes: Option<u64>,
    /// Where findings go.
    pub posts: Option<Posts>,
    /// The machine's GPUs.
    pub devices: Devices,
    /// What was found here, and other nodes are to act upon first.
    pub held: Vec<Held>,
    /// The daemons of other nodes.
    pub(crate) others: Option<Others>,
    /// Held for as long as we are: two daemons must not share a folder.
    _lock: Lock,
}

/// The folder of rings.
#[must_use]
pub fn jobs_folder(state: &Path) -> PathBuf {
    state.join("jobs")
}

impl State {
    /// Finds what the daemon before has left.
    ///
    /// # Errors
    /// One line: what can't be used, and why.
    pub fn open(settings: Settings, disk: Disk) -> Result<Self, String> {
        let root = settings.state.clone();
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", root.display());
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&root)
            .map_err(|error| failed(&error))?;
        let found = std::fs::metadata(&root).map_err(|error| failed(&error))?;
        // SAFETY: always succeeds.
        if found.uid() != unsafe { libc::geteuid() } || found.permissions().mode() & 0o022 != 0 {
            return Err(failed(
                &"belongs to somebody else, or may be written by others: give another --state",
            ));
        }
        gputrace_trace::beneath::name(&root);
        let lock = lock(&root).map_err(|error| failed(&error))?;
        for name in ["jobs", "captures"] {
            let made = DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(root.join(name));
            made.map_err(|error| failed(&error))?;
        }
        let shelf =
            |name: &str| Shelf::in_folder(root.join(".about").join(name)).map_err(|error| failed(&error));
        let (jobs_shelf, captures_shelf) = (shelf("jobs")?, shelf("captures")?);
        let captures = root.join("captures");
        remove_half_kept(&captures);
        remove_unfinished(&captures);
        let (library, mut said) = Library::open(captures, captures_shelf);
        let (saved, wrong) = jobs_shelf.all::<SavedJob>();
        said.extend(wrong);
        let known = jobs_shelf.names();
        let mut jobs = BTreeMap::new();
        for (name, saved) in saved {
            match Job::found(saved, &jobs_folder(&root)) {
                Ok(job) if job.id == name => drop(jobs.insert(name, job)),
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    said.push(format!(
                        "{name}: {error}: it is looked for again by the next daemon"
                    ));
                }
                _ => drop(std::fs::remove_file(jobs_shelf.path(&name))),
            }
        }
        remove_unfinished(&jobs_folder(&root));
        for folder in unknown_rings(&jobs_folder(&root), &known) {
            said.push(format!(
                "{}: no job is known for it, so it stays: move it away, or remove it",
                folder.display()
            ));
        }
        let rings = jobs_folder(&root);
        let taken = names_in(&rings).filter(|name| !jobs.contains_key(name));
        let taken = taken.collect();
        let posts = match &settings.config.webhook {
            Some(webhook) => {
                let address = Address::parse(&webhook.url)?;
                let tls = match address.is_secure {
                    true => Some(tls::client(webhook.ca.as_deref(), None)?),
                    false => None,
                };
                Some(Posts::start(address, tls).map_err(|error| format!("no thread: {error}"))?)
            }
            None => None,
        };
        Ok(Self {
            settings,
            callers: BTreeMap::new(),
            last_caller: 0,
            jobs,
            taken,
            shelf: jobs_shelf,
            library,
            windows: BTreeMap::new(),
            last_window: 0,
            disk,
            watchers: group_number(GROUP),
            sums: Sums::default(),
            said,
            refusal: None,
            disk_stands: false,
            is_asked_for_room: false,
            free_bytes: None,
            posts,
            _lock: lock,
            devices: Devices::default(),
            held: Vec::new(),
            others: None,
        })
    }

    /// Writes down what is to be found again of a job.
    pub fn save(&mut self, job: &str) {
        let Some(found) = self.jobs.get_mut(job) else {
            return;
        };
        // Once it has a folder; and one at a time, however slow the disk is.
        if found.unanswered.is_some() || !found.saved_writing.begin() {
            return;
        }
        found.saved_steps = found.history.steps();
        match saved::text(&found.saved()) {
            Ok(text) => self.disk.give(Task::Note {
                of: Noted::Job(job.to_owned()),
                path: self.shelf.path(job),
                text,
            }),
            Err(error) => self.was_saved(job, Err(error.to_string())),
        }
    }

    /// Writes down the jobs whose steps have gone on: what a daemon that is killed has heard since is not known to the next.
    pub fn save_steps(&mut self) {
        let gone_on = |job: &&Job| job.history.steps() != job.saved_steps;
        let ids: Vec<String> = self
            .jobs
            .values()
            .filter(gone_on)
            .map(|job| job.id.clone())
            .collect();
        for id in ids {
            self.save(&id);
        }
    }

    /// The same of all jobs, and manifests that wait, for good: whatever is under way comes first.
    pub fn save_all(&mut self) {
        let jobs: Vec<String> = self.jobs.keys().cloned().collect();
        for id in jobs {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            job.saved_writing = Writing::None;
            let is_due = std::mem::take(&mut job.manifest_writing) == Writing::Again;
            if is_due {
                self.write_manifest(&id);
            }
            self.save(&id);
        }
    }

    /// A job was written down, or could not be: said once, until it can be again.
    pub fn was_saved(&mut self, job: &str, result: Result<(), String>) {
        let Some(found) = self.jobs.get_mut(job) else {
            return;
        };
        let was_unsaved = std::mem::replace(&mut found.is_unsaved, result.is_err());
        if found.saved_writing.end() {
            self.save(job);
        }
        if let Err(why) = result
            && !was_unsaved
        {
            self.said
                .push(format!("{job}: {why}: it would not be found again"));
        }
    }

    /// The job that a caller means: by its name, or the beginning of it; without one the only one.
    ///
    /// # Errors
    /// Which there are.
    pub fn find(&self, peer: &Peer, wanted: Option<&str>) -> Result<String, String> {
        let seen = || self.jobs.values().filter(|job| peer.may_see(job.uid));
        let list = |jobs: &[&Job]| {
            let names: Vec<&str> = jobs.iter().take(12).map(|job| job.id.as_str()).collect();
            let more = if jobs.len() > 12 { ", ..." } else { "" };
            format!("{}{more}", names.join(", "))
        };
        let all: Vec<&Job> = seen().collect();
        if all.is_empty() {
            return Err(
                "no job has joined: `gputrace env --shell` says how jobs come to be watched".to_owned(),
            );
        }
        let Some(wanted) = wanted else {
            let live: Vec<&Job> = seen().filter(|job| job.live().next().is_some()).collect();
            return match (live.as_slice(), all.as_slice()) {
                ([one], _) | ([], [one]) => Ok(one.id.clone()),
                ([], several) | (several, _) => Err(format!("which job? There are {}", list(several))),
            };
        };
        if let Some(job) = all.iter().find(|job| job.id == wanted) {
            return Ok(job.id.clone());
        }
        let like: Vec<&Job> = seen().filter(|job| job.id.starts_with(wanted)).collect();
        match like.as_slice() {
            [one] => Ok(one.id.clone()),
            [] => Err(format!("no job {wanted}: there are {}", list(&all))),
            several => Err(format!("{wanted} is the beginning of several: {}", list(several))),
        }
    }

    /// The job that has been over for longest, of those that are meant.
    #[must_use]
    pub fn oldest_over(&self, meant: impl Fn(&Job) -> bool) -> Option<String> {
        let is_over = |job: &&Job| matches!(job.state(), JobState::Ended | JobState::Died) && meant(job);
        let is_kept = |job: &&Job| self.windows.values().any(|window| window.job == job.id);
        let over = self.jobs.values().filter(|job| is_over(job) && !is_kept(job));
        over.min_by_key(|job| job.ended_ns).map(|job| job.id.clone())
    }

    /// Forgets a job, and has its ring removed.
    pub fn remove_job(&mut self, name: &str) {
        if let Some(job) = self.jobs.remove(name) {
            self.taken.insert(name.to_owned());
            self.disk.give(Task::Remove {
                folder: job.folder,
                saved: Some(self.shelf.path(name)),
            });
            self.sums.jobs_removed += 1;
        }
    }

    /// Jobs that have been over for long enough, with their rings, go.
    pub fn retire(&mut self, now_ns: i64) {
        let keep_ns = (self.settings.config.keep.ended_minutes * 60e9) as i64;
        let over: Vec<String> = self
            .jobs
            .values()
            .filter(|job| match job.state() {
                JobState::Ended | JobState::Died => {
                    let ended_ns = job.ended_ns.unwrap_or(job.started_ns);
                    now_ns.saturating_sub(ended_ns) > keep_ns
                }
                // Those that nobody comes back to have died, some time later.
                JobState::Running | JobState::Hung | JobState::Waiting => false,
            })
            .filter(|job| !self.windows.values().any(|window| window.job == job.id))
            .map(|job| job.id.clone())
            .collect();
        for name in over {
            self.remove_job(&name);
        }
        // What is over makes room for what runs, one job at a look.
        // What was measured serves once: it does not know of what is removed now.
        let free = self.free_bytes.take();
        let is_tight = free.is_some_and(|free| free < self.settings.config.keep.free_mib << 20);
        if is_tight && let Some(oldest) = self.oldest_over(|_| true) {
            self.remove_job(&oldest);
        }
        let gone = self.library.retire(&self.settings.config.keep, now_ns, free);
        for name in gone {
            self.disk.give(Task::Remove {
                folder: self.library.path(&name),
                saved: Some(self.library.about(&name)),
            });
        }
    }

    /// A recording was removed, or could not be.
    pub fn was_removed(&mut self, folder: &Path, result: Result<(), String>) {
        if let Err(why) = result {
            self.said.push(why);
            return;
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let taken = match folder.parent() == Some(&jobs_folder(&self.settings.state)) {
            true => &mut self.taken,
            false => &mut self.library.taken,
        };
        taken.remove(&*name);
    }
}

/// A folder that is ours alone, until this is dropped.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that was forked meanwhile has the descriptor too, and the lock with it.
        rustix::fs::flock(&self.0, FlockOperation::Unlock).ok();
    }
}

/// Takes a folder for ourselves alone.
fn lock(root: &Path) -> io::Result<Lock> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(root.join(".lock"))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(rustix::io::Errno::AGAIN) => Err(io::Error::other(
            "another daemon has its things here: give another --state",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Recordings among the rings that no job is known for: of a daemon that was killed while it made one, or somebody's who put it there.
fn unknown_rings(jobs: &Path, known: &[String]) -> Vec<PathBuf> {
    let is_ring = |entry: &std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        is_recording_name(&name)
            && !known.contains(&name)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && entry.path().join(MANIFEST_FILE).is_file()
    };
    let entries = std::fs::read_dir(jobs).into_iter().flatten().flatten();
    entries.filter(is_ring).map(|entry| entry.path()).collect()
}

/// Takes away what a daemon before had begun to keep when it was killed.
fn remove_half_kept(captures: &Path) {
    for entry in std::fs::read_dir(captures).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') && name.ends_with(".part") {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}
