//! The recordings that a server knows: by opaque numbers, opened in the background, read again while they grow.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use gputrace_analyzer::{Options, analyze_in_detail};
use gputrace_interchange::import::{self, ImportError};
use gputrace_trace::beneath;
use gputrace_trace::recording::is_unclosed;
use tokio::sync::watch;

use super::entry::{Entry, Missing, lock, now_ms};
use super::fair_queue::Client;
use super::files::{self, Signature};
use super::following::Following;
use super::loaded::{Analysed, Loaded, Progress};
use super::preview::Preview;
use super::read_queue::ReadQueue;
use crate::timeline::Timeline;

/// A recording that grows is looked at, and read again, at most so often.
const LOOK: Duration = Duration::from_millis(250);
/// Between two readings passes at least so many times what one takes.
const REST: u32 = 3;
/// The same of one that is followed: what was appended is read by somebody who trains beside us.
const FOLLOWING_REST: u32 = 9;
/// One that could not be followed is read so many times before that is tried again: mostly it stays so, but a part may have
/// been removed just then.
const TRIED_AGAIN: u32 = 16;
/// A recording that nobody asked about for so long is not followed.
const WATCHED: Duration = Duration::from_secs(10);
/// So long answers are given of the generation before: requests for it are on their way.
const GRACE: Duration = Duration::from_secs(10);
/// Beside the newest two no more are kept for that.
const MOST_OLD: usize = 8;
/// A folder is looked through again when what is known is so old.
const SCAN: Duration = Duration::from_secs(1);
/// Between two looks through a folder passes at least so many times what one takes.
const SCAN_REST: u32 = 10;
/// Of a folder's recordings so many are kept in memory...
const MOST_OPEN: usize = 16;
/// ... and those that were asked for within this time.
const KEPT: Duration = Duration::from_secs(3600);
/// A recording of ours of so many bytes is looked at before it is read.
const LARGE_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 4 << 20 };

/// All recordings of a server.
pub struct Library {
    entries: RwLock<BTreeMap<String, Arc<Entry>>>,
    /// The folder that is looked through, and when that is worth doing again.
    folder: Option<(PathBuf, Mutex<Option<Instant>>)>,
    /// Folders in it that were taken for one run and hold several: their files are listed one by one.
    apart: Mutex<HashSet<PathBuf>>,
    /// What in it was not listed, in sentences.
    notes: Mutex<Vec<String>>,
    read_queue: ReadQueue,
    last_generation: Mutex<u64>,
}

impl Library {
    /// A library of some runs, each of one or more paths, or of a folder's recordings.
    #[must_use]
    pub fn new(runs: Vec<Vec<PathBuf>>, folder: Option<PathBuf>) -> Arc<Self> {
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
            read_queue: ReadQueue::default(),
            last_generation: Mutex::default(),
        });
        for run in runs {
            let name = run_name(&run);
            let entry = library.add(run, name);
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

    fn add(&self, paths: Vec<PathBuf>, name: String) -> Arc<Entry> {
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
        let entry = Arc::new(Entry::new(id.clone(), name, paths));
        entries.insert(id, entry.clone());
        entry
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
            self.add(one.paths.clone(), name);
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
        let entry = entry.ok_or(Missing::Unknown)?;
        *lock(&entry.asked) = Instant::now();
        Ok(entry)
    }

    /// The newest generation of a recording, which is opened where it was not.
    ///
    /// # Errors
    /// When it is not there, or not yet.
    pub fn newest(self: &Arc<Self>, id: &str, client: Client) -> Result<(Arc<Entry>, Arc<Loaded>), Missing> {
        let entry = self.entry(id)?;
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

    /// Begins to read a recording, unless that is under way, or too many of the client's wait for that.
    fn open(self: &Arc<Self>, entry: &Arc<Entry>, client: Client) {
        let preview = Preview::new();
        let (progress, ticket) = {
            let mut inner = lock(&entry.inner);
            if inner.reading.is_some() {
                return;
            }
            let Some(ticket) = self.read_queue.join(client) else {
                return;
            };
            let ticket = Arc::new(ticket);
            let progress = Arc::new(match inner.generations.is_empty() {
                true => preview.progress(),
                false => import::Progress::default(),
            });
            inner.again = false;
            inner.reading = Some(progress.clone());
            inner.preview = Some(preview.clone());
            (progress, ticket)
        };
        let (library, reader, own) = (self.clone(), entry.clone(), ticket.clone());
        let begun = std::thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || {
                let is_wanted = || client == Client::Ourselves || reader.asked_within(WATCHED);
                let Some(permit) = library.read_queue.acquire(&own, is_wanted) else {
                    preview.end();
                    let mut inner = lock(&reader.inner);
                    inner.reading = None;
                    inner.preview = None;
                    return;
                };
                let begun = Instant::now();
                let signature = Signature::of(&reader.paths);
                let read_before = lock(&reader.inner).read_at;
                let read = catch_unwind(AssertUnwindSafe(|| library.read(&reader, &progress, signature)));
                drop(permit);
                preview.end();
                let mut inner = lock(&reader.inner);
                if !matches!(read, Ok(Ok(()))) {
                    inner.generations.retain(|loaded| !loaded.partial);
                }
                inner.reading = None;
                inner.preview = None;
                inner.glance = None;
                inner.read_at = signature;
                // Of one that grows the first look reads everything, and later ones what was appended.
                let is_first = read_before.is_none();
                let grows = inner.generations.last().is_some_and(|newest| newest.growing);
                let took = if is_first && grows {
                    Duration::ZERO
                } else {
                    begun.elapsed()
                };
                inner.ended = Some((Instant::now(), took));
                inner.error = match read {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error),
                    Err(_) => Some(format!("{}: reading it failed: a fault of gputrace", reader.name)),
                };
            });
        if let Err(error) = begun {
            self.read_queue.cancel(&ticket);
            let mut inner = lock(&entry.inner);
            inner.reading = None;
            inner.preview = None;
            inner.error = Some(format!("{}: no thread to read it: {error}", entry.name));
        }
    }

    /// Reads a recording and publishes what it becomes: first its timeline, then the same with the analysis.
    fn read(
        &self,
        entry: &Arc<Entry>,
        progress: &import::Progress,
        signature: Option<Signature>,
    ) -> Result<(), String> {
        let growing = signature.is_some_and(|signature| entry.grows(&signature));
        let is_first = lock(&entry.inner).generations.is_empty();
        let mut following = lock(&entry.following);
        // Taken out for the look, so that nobody goes on with what one that fails leaves behind.
        let before = following.take();
        let is_unusual = {
            let mut inner = lock(&entry.inner);
            inner.unusual = if growing {
                inner.unusual.saturating_sub(1)
            } else {
                0
            };
            inner.unusual > 0
        };
        let (followed, mut left) = match entry.paths.as_slice() {
            [path] if growing && !is_unusual && files::is_recording(path) => {
                (Some(before.unwrap_or_else(|| Following::new(path))), None)
            }
            _ => (None, before.map(Following::leave)),
        };
        let told = Arc::new(watch::channel(Progress::Running).0);
        let loaded = |generation, timeline, analysed| {
            Loaded::new(generation, timeline, analysed, told.subscribe(), growing)
        };
        // What takes long to read is drawn before that.
        let look = match entry.paths.as_slice() {
            [path] if is_first && signature.is_some_and(|signature| signature.bytes >= LARGE_BYTES) => {
                Timeline::first_look(path, growing).filter(|(timeline, _)| timeline.events() > 0)
            }
            _ => None,
        };
        let mut early = None;
        let promise = look.map(|(timeline, promise)| {
            let whole = followed
                .as_ref()
                .map_or_else(|| told.subscribe(), Following::told);
            early = Some(self.publish(entry, |generation| {
                Loaded::new(generation, timeline, false, whole, growing)
            }));
            make_way();
            promise
        });
        if let Some(mut followed) = followed {
            // Where a look fails the recording can still be read as a whole.
            let look = catch_unwind(AssertUnwindSafe(|| followed.look()));
            if let Ok(Some(timeline)) = look {
                // What the page waits for is told by the latest.
                let (is_analysed, whole) = (timeline.is_analysed(), followed.told());
                let loaded = self.publish(entry, |generation| {
                    Loaded::new(generation, timeline, is_analysed, whole, growing)
                });
                let analysed = entry.clone();
                followed.analyse(&loaded, move || lock(&analysed.inner).again = true);
                *following = Some(followed);
                return Ok(());
            }
            left = Some(followed.leave());
            lock(&entry.inner).unusual = TRIED_AGAIN;
        }
        drop(following);
        let opened = import::open(&entry.paths, progress);
        let mut recording = opened.map_err(|error| self.told_apart(entry, &error))?;
        let preview = lock(&entry.inner).preview.take();
        if let Some(preview) = preview {
            preview.close();
        }
        if growing {
            recording.losses.retain(|loss| !is_unclosed(loss));
        }
        let kept = match promise {
            Some(promise) => promise.keep(recording).map_err(|broken| {
                let (recording, promise) = *broken;
                (recording, Some(promise))
            }),
            None => Err((recording, None)),
        };
        let (recording, timeline, broken) = match kept {
            Ok(recording) => (recording, None, None),
            Err((recording, promise)) => {
                // It grew meanwhile.
                early = None;
                let recording = Arc::new(recording);
                let timeline = Timeline::build(&recording);
                (recording, Some(timeline), promise)
            }
        };
        if timeline.as_ref().is_some_and(|timeline| timeline.events() == 0) && !growing {
            let lost = recording.losses.first().map(|loss| format!(" ({})", loss.what));
            return Err(format!(
                "{}: no event of a GPU program is in it, so there is nothing to show{}",
                recording.path.display(),
                lost.unwrap_or_default()
            ));
        }
        // Where nothing can be seen yet, the timeline alone is better than nothing; what replaces it would only flicker.
        let late = match timeline {
            Some(timeline) if is_first => {
                early = Some(self.publish(entry, |generation| loaded(generation, timeline, false)));
                None
            }
            timeline => timeline,
        };
        // Who waited for it finds the one that has been published since.
        drop(broken);
        let plain = early.as_ref().map(|early| &early.timeline).or(late.as_ref());
        let origin_ns = plain.map_or(0, Timeline::origin_ns);
        // Earlier generations wait for it too, where their times count from the same moment.
        let earlier = left
            .as_ref()
            .filter(|(_, from)| from.is_none_or(|from| from == origin_ns));
        let all_told: Vec<&watch::Sender<Progress>> =
            earlier.iter().map(|(told, _)| &**told).chain([&*told]).collect();
        let analysed = catch_unwind(AssertUnwindSafe(|| {
            let (analysis, details) = analyze_in_detail(&recording, &Options::default());
            // Timelines have it: a large one's second in a fifth of its memory.
            drop(recording);
            let analysed = Arc::new(Analysed::new(analysis, origin_ns));
            // At once: putting a large one's timeline together takes longer.
            for told in &all_told {
                told.send_replace(Progress::Done(analysed.clone()));
            }
            plain.map(|plain| plain.with_analysis(&analysed.analysis, &details))
        }));
        let timeline = analysed.unwrap_or_else(|_| {
            // Unless it failed only after that.
            for told in &all_told {
                told.send_if_modified(|progress| {
                    let is_running = matches!(progress, Progress::Running);
                    if is_running {
                        *progress = Progress::Failed;
                    }
                    is_running
                });
            }
            None
        });
        let is_analysed = timeline.is_some();
        if let Some(timeline) = timeline.or(late) {
            self.publish(entry, |generation| loaded(generation, timeline, is_analysed));
        }
        Ok(())
    }

    pub(super) fn publish(&self, entry: &Entry, make: impl FnOnce(u64) -> Loaded) -> Arc<Loaded> {
        let generation = {
            let mut last = lock(&self.last_generation);
            *last = now_ms().max(*last + 1);
            *last
        };
        let loaded = Arc::new(make(generation));
        let mut inner = lock(&entry.inner);
        inner.glance = None;
        inner.generations.push(loaded.clone());
        // Requests for one that is being replaced may still be on their way. A large recording is read so seldom that few of
        // it are younger.
        let older = inner.generations.len().saturating_sub(2);
        let old = inner.generations[..older]
            .iter()
            .take_while(|old| old.since.elapsed() > GRACE)
            .count()
            .max(older.saturating_sub(MOST_OLD));
        let old: Vec<Arc<Loaded>> = inner.generations.drain(..old).collect();
        drop(inner);
        drop(old);
        // Who asks for a tile meanwhile waits for its slices instead.
        loaded.timeline.summarize();
        loaded
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
        if self.folder.is_some() {
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

/// Lets this thread, and those that it begins, work behind others: what is drawn already comes first.
pub(super) fn make_way() {
    #[cfg(target_os = "linux")]
    // SAFETY: setpriority takes no pointer; 0 is the calling thread (setpriority(2), "C library/kernel differences").
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 5);
    }
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
