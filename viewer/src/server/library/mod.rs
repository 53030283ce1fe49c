//! The recordings that a server knows: by opaque numbers, listed, read again while they grow, forgotten when nobody asks.

mod ranks;
mod reading;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use gputrace_analyzer::partial::{Glance, GlancedBases};
use gputrace_interchange::import::ImportError;
use gputrace_trace::beneath;

use super::by_rank::{self, ByRank, source_of};
use super::entry::{Entry, Missing, lock};
use super::fair_queue::Client;
use super::files::{self, Signature};
use super::loaded::Loaded;
use super::read_queue::ReadQueue;

/// A recording that grows is looked at, and read again, at most so often.
const LOOK: Duration = Duration::from_millis(250);
/// Between two readings passes at least so many times what one takes.
const REST: u32 = 3;
/// The same of one that is followed: what was appended is read by somebody who trains beside us.
const FOLLOWING_REST: u32 = 9;
/// A recording that nobody asked about for so long is not followed.
const WATCHED: Duration = Duration::from_secs(10);
/// So long answers are given of the generation before: requests for it are on their way.
const GRACE: Duration = Duration::from_secs(10);
/// A folder is looked through again when what is known is so old.
const SCAN: Duration = Duration::from_secs(1);
/// Between two looks through a folder passes at least so many times what one takes.
const SCAN_REST: u32 = 10;
/// Of a folder's recordings so many are kept in memory...
const MOST_OPEN: usize = 16;
/// ... and those that were asked for within this time.
const KEPT: Duration = Duration::from_secs(3600);
/// Between a recording's number and that of one of its ranks.
const RANK_MARK: &str = "-rank";

/// All recordings of a server.
pub struct Library {
    entries: RwLock<BTreeMap<String, Arc<Entry>>>,
    /// The folder that is looked through, and when that is worth doing again.
    folder: Option<(PathBuf, Mutex<Option<Instant>>)>,
    /// Folders in it that were taken for one run and hold several: their files are listed one by one.
    apart: Mutex<HashSet<PathBuf>>,
    /// What in it was not listed, in sentences.
    notes: Mutex<Vec<String>>,
    /// How recordings of many ranks are read; without it they are read as wholes.
    by_rank: Option<ByRank>,
    /// Recordings that were named.
    pub(super) named: Vec<PathBuf>,
    read_queue: ReadQueue,
    last_generation: Mutex<u64>,
}

impl Library {
    /// A library of some runs, each of one or more paths, or of a folder's recordings.
    #[must_use]
    pub fn new(runs: Vec<Vec<PathBuf>>, folder: Option<PathBuf>, by_rank: Option<ByRank>) -> Arc<Self> {
        // All of them first: links in one may lead into another.
        for path in runs.iter().flatten() {
            beneath::name(path);
        }
        let folder = folder.map(|folder| folder.canonicalize().unwrap_or(folder));
        if let Some(folder) = &folder {
            beneath::name(folder);
        }
        let library = Arc::new(Self {
            entries: RwLock::default(),
            folder: folder.map(|folder| (folder, Mutex::default())),
            apart: Mutex::default(),
            notes: Mutex::default(),
            named: runs
                .iter()
                .flatten()
                .filter(|path| files::is_recording(path))
                .cloned()
                .collect(),
            by_rank,
            read_queue: ReadQueue::default(),
            last_generation: Mutex::default(),
        });
        for (run, given) in with_partials(runs, library.by_rank.as_ref()) {
            let name = run_name(&run);
            let entry = library.add(run, name, given);
            library.open(&entry, Client::Ourselves);
        }
        library
    }

    /// Waits until a recording is there or can't be read, and says why where that is so of all.
    ///
    /// # Errors
    /// One line, of the first.
    pub fn wait(&self, at_most: Duration) -> Result<(), String> {
        const LOOK: Duration = Duration::from_millis(5);
        let until = Instant::now() + at_most;
        loop {
            let entries = self.entries();
            let failed: Vec<String> = entries
                .iter()
                .filter_map(|entry| match entry.present() {
                    Err(Missing::Failed(line)) => Some(line),
                    _ => None,
                })
                .collect();
            if let Some(line) = failed.first().filter(|_| failed.len() == entries.len()) {
                return Err(line.clone());
            }
            let any = entries.iter().any(|entry| entry.present().is_ok());
            if any || entries.is_empty() || Instant::now() >= until {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Follows what grows, and forgets what nobody asks for, until the library is gone.
    pub fn keep(self: &Arc<Self>) {
        let library = Arc::downgrade(self);
        let kept = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || {
                if let Some(library) = library.upgrade() {
                    library.scan();
                }
                while let Some(library) = library.upgrade() {
                    library.look_around();
                    drop(library);
                    std::thread::sleep(LOOK);
                }
            });
        // Without the thread nothing is followed: recordings are as they were opened.
        drop(kept);
    }

    fn add(&self, paths: Vec<PathBuf>, name: String, given: Vec<PathBuf>) -> Arc<Entry> {
        let mut bytes = Vec::new();
        for path in &paths {
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            bytes.extend_from_slice(path.as_os_str().as_encoded_bytes());
            bytes.push(0);
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut id = format!("{:016x}", super::fingerprint(&bytes));
        while let Some(known) = entries.get(&id) {
            if known.paths == paths {
                return known.clone();
            }
            id.push('x');
        }
        let entry = Arc::new(Entry {
            given,
            ..Entry::new(id.clone(), name, paths)
        });
        entries.insert(id, entry.clone());
        entry
    }

    /// A rank of a recording that is shown by rank, as a recording of its own.
    fn rank_of(&self, id: &str) -> Result<Arc<Entry>, Missing> {
        let (of, rank) = id.rsplit_once(RANK_MARK).ok_or(Missing::Unknown)?;
        let rank: u32 = rank
            .parse()
            .ok()
            .filter(|number| rank == format!("{number}"))
            .ok_or(Missing::Unknown)?;
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let whole = entries.get(of).cloned().filter(|whole| whole.only.is_none());
        drop(entries);
        let whole = whole.ok_or(Missing::Unknown)?;
        let inner = lock(&whole.inner);
        if inner.sources.is_empty() && inner.generations.is_empty() {
            return Err(match (&inner.reading, &inner.error) {
                (None, Some(error)) => Missing::Failed(error.clone()),
                _ => Missing::Loading(None),
            });
        }
        let path = source_of(&inner.sources, rank).map_err(Missing::Failed)?;
        drop(inner);
        let entry = Arc::new(Entry {
            only: Some((of.to_owned(), rank)),
            ..Entry::new(id.to_owned(), format!("{}, rank {rank}", whole.name), vec![path])
        });
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        Ok(entries.entry(id.to_owned()).or_insert(entry).clone())
    }

    /// Looks through the folder, if what is known of it is old.
    fn scan(&self) {
        let Some((folder, next)) = &self.folder else {
            return;
        };
        let mut next = lock(next);
        let begun = Instant::now();
        if next.is_some_and(|next| begun < next) {
            return;
        }
        let (found, lead_out) = files::recordings_in(folder, &lock(&self.apart));
        *lock(&self.notes) = note_of(folder, &lead_out).into_iter().collect();
        for one in &found {
            let name = if one.name.is_empty() {
                run_name(&one.paths)
            } else {
                one.name.clone()
            };
            self.add(one.paths.clone(), name, Vec::new());
        }
        // What vanished stays as long as somebody looks at it.
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, entry| {
            found.iter().any(|one| one.paths == entry.paths) || !lock(&entry.inner).generations.is_empty()
        });
        *next = Some(Instant::now() + SCAN.max(begun.elapsed() * SCAN_REST));
    }

    /// What is wrong with a recording; where it is a folder of several runs its files are listed from now on.
    fn told_apart(&self, entry: &Entry, error: &ImportError) -> String {
        match (entry.paths.as_slice(), &self.folder) {
            ([folder], Some((_, next))) if error.is_of_several_runs() && beneath::is_folder(folder) => {
                lock(&self.apart).insert(folder.clone());
                *lock(next) = None;
                format!("{error}. They are listed one by one now")
            }
            _ => error.to_string(),
        }
    }

    /// What in the folder was not listed, and why, in sentences.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        lock(&self.notes).clone()
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.values().cloned().collect()
    }

    /// All recordings, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Entry>> {
        self.scan();
        let mut entries = self.entries();
        entries.retain(|entry| entry.only.is_none());
        entries.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        entries
    }

    /// The recording with a number.
    ///
    /// # Errors
    /// When there is none.
    pub fn entry(&self, id: &str) -> Result<Arc<Entry>, Missing> {
        let find = || {
            let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
            entries.get(id).cloned()
        };
        let entry = find().or_else(|| {
            self.scan();
            find()
        });
        let entry = match entry {
            Some(entry) => entry,
            None => self.rank_of(id)?,
        };
        *lock(&entry.asked) = Instant::now();
        Ok(entry)
    }

    /// The newest generation of a recording, which is opened where it was not.
    ///
    /// # Errors
    /// When it is not there, or not yet.
    pub fn newest(self: &Arc<Self>, id: &str, client: Client) -> Result<(Arc<Entry>, Arc<Loaded>), Missing> {
        let entry = match self.entry(id) {
            // Where a rank's rows are is known when the whole has been looked at.
            Err(Missing::Loading(share)) => {
                if let Some((of, _)) = id.rsplit_once(RANK_MARK) {
                    self.open(&self.entry(of)?, client);
                }
                return Err(Missing::Loading(share));
            }
            entry => entry?,
        };
        let present = entry.present();
        if matches!(present, Err(Missing::Loading(_))) {
            self.open(&entry, client);
        }
        // What failed is tried again when its files are others.
        if let Err(Missing::Failed(_)) = present {
            let signature = Signature::of(&entry.paths);
            if signature.is_some() && signature != lock(&entry.inner).read_at {
                self.open(&entry, client);
                return Err(Missing::Loading(None));
            }
        }
        present.map(|loaded| (entry, loaded))
    }

    /// One generation of a recording, where it is in memory.
    #[must_use]
    pub fn known(&self, id: &str, generation: u64) -> Option<Arc<Loaded>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(id)?.clone();
        drop(entries);
        *lock(&entry.asked) = Instant::now();
        let inner = lock(&entry.inner);
        let mut generations = inner.generations.iter();
        generations
            .find(|loaded| loaded.generation == generation)
            .cloned()
    }

    /// One generation of a recording.
    ///
    /// # Errors
    /// When it is not there any more, or the recording never was.
    pub fn generation(
        self: &Arc<Self>,
        id: &str,
        generation: u64,
        client: Client,
    ) -> Result<Arc<Loaded>, Missing> {
        self.newest(id, client)?;
        self.known(id, generation).ok_or(Missing::Gone)
    }

    /// One look at everything that is open.
    fn look_around(self: &Arc<Self>) {
        let mut open = Vec::new();
        for entry in self.entries() {
            let preview = lock(&entry.inner).preview.clone();
            if let Some(preview) = preview {
                preview.show(self, &entry);
            }
            let mut inner = lock(&entry.inner);
            let fresh = inner
                .generations
                .last()
                .is_some_and(|newest| newest.since.elapsed() < GRACE);
            let old = inner.generations.len().saturating_sub(1);
            let old: Vec<Arc<Loaded>> = if fresh {
                Vec::new()
            } else {
                inner.generations.drain(..old).collect()
            };
            if !inner.generations.is_empty() {
                open.push(entry.clone());
            }
            let grew = inner.generations.last().is_some_and(|newest| newest.growing);
            let rested = inner.ended.is_some_and(|(when, took)| {
                when.elapsed() >= LOOK.max(took * if grew { FOLLOWING_REST } else { REST })
            });
            let may_change = rested && inner.reading.is_none() && !inner.generations.is_empty();
            let (read_at, again) = (inner.read_at, inner.again);
            drop(inner);
            drop(old);
            if may_change && entry.asked_within(WATCHED) {
                match Signature::of(&entry.paths) {
                    None if read_at.is_some() => {
                        lock(&entry.inner).error = Some(format!("{}: is not there any more", entry.name));
                    }
                    // An analysis of one that was closed since is not of the whole.
                    signature if signature != read_at || again && grew => {
                        self.open(&entry, Client::Ourselves);
                    }
                    // Its recorder was killed: it is as whole as it will ever be.
                    Some(signature) if grew && !entry.grows(&signature) => {
                        self.open(&entry, Client::Ourselves);
                    }
                    _ => {}
                }
            }
        }
        // Ranks alone are opened one after another.
        open.retain(|entry| self.folder.is_some() || entry.only.is_some());
        if !open.is_empty() {
            open.sort_by_key(|entry| std::cmp::Reverse(*lock(&entry.asked)));
            for (place, entry) in open.into_iter().enumerate() {
                if place >= MOST_OPEN && !entry.asked_within(WATCHED) || !entry.asked_within(KEPT) {
                    let unused = std::mem::take(&mut lock(&entry.inner).generations);
                    drop(unused);
                    // Who reads it just now has asked for it.
                    if let Ok(mut following) = entry.following.try_lock() {
                        *following = None;
                    }
                }
            }
        }
    }
}

/// Runs, each with the partials of it that were named too.
fn with_partials(runs: Vec<Vec<PathBuf>>, by_rank: Option<&ByRank>) -> Vec<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (partials, runs): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| by_rank::are_partials(run));
    let mut all: Vec<(Vec<PathBuf>, Vec<PathBuf>)> = runs.into_iter().map(|run| (run, Vec::new())).collect();
    for files in partials {
        let glance = by_rank
            .and_then(|by_rank| Glance::read(&files[0], by_rank.version, &GlancedBases::default()).ok());
        let bases = glance.map(|glance| glance.bases).unwrap_or_default();
        let of = all.iter_mut().find(|(run, _)| {
            matches!(run.as_slice(), [path] if bases.iter().any(|base| by_rank::is_of(base, path)))
        });
        match of {
            Some((_, given)) => given.extend(files),
            None => all.push((files, Vec::new())),
        }
    }
    all
}

/// What is to be said of links that were not followed.
fn note_of(folder: &Path, lead_out: &[PathBuf]) -> Option<String> {
    let first = lead_out.iter().min()?;
    let first = first.strip_prefix(folder).unwrap_or(first).display();
    let links = match lead_out.len() {
        1 => format!("The link {first} leads"),
        more => format!("{more} links ({first} and others) lead"),
    };
    Some(format!(
        "{links} out of the served folder, and what lies there is not listed: start gputrace serve with \
         --links-to FOLDER to allow a folder that links may lead into"
    ))
}

/// What to call a run: its folder or file, and how many more there are.
fn run_name(paths: &[PathBuf]) -> String {
    let Some(first) = paths.first() else {
        return String::new();
    };
    let full = first.canonicalize().unwrap_or_else(|_| first.clone());
    let name = if first == Path::new("-") {
        "standard input".to_owned()
    } else {
        let name = full.file_name().map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| full.display().to_string())
    };
    match paths.len() {
        1 => name,
        more => format!("{name} and {} more", more - 1),
    }
}

#[cfg(test)]
mod tests;
