//! One recording of a library, opened or not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gputrace_analyzer::{Analysis, Measures};
use gputrace_interchange::import;
use gputrace_trace::beneath;
use serde_json::{Value, json};

use super::by_rank::Source;
use super::files::{self, Signature};
use super::following::Following;
use super::loaded::{Loaded, device};
use super::preview::Preview;

/// A recording that is not closed and did not change for so long does not grow any more: its recorder was killed.
const SILENT_MS: u64 = 15_000;
/// Files that did not change for so long are looked at less often.
const QUIET_MS: u64 = 60_000;
/// What a look at the files showed holds so long; of files that are left alone ten times that.
const HOLDS: Duration = Duration::from_secs(1);

/// What is known of a recording's files without opening it.
#[derive(Clone, Debug, Default)]
pub(super) struct Glance {
    device: String,
    simulated: bool,
    growing: bool,
    ranks: usize,
    events: Option<u64>,
    bytes: u64,
    modified_ms: u64,
    /// The command's exit status, where the manifest says it.
    exit_status: Option<i32>,
}

impl Glance {
    /// How long it is as good as a new one: what has been left alone for a while will be a little longer.
    fn holds(&self) -> Duration {
        let quiet = now_ms().saturating_sub(self.modified_ms) > QUIET_MS;
        if quiet { 10 * HOLDS } else { HOLDS }
    }
}

/// Exposed communication over the spans of all GPUs.
fn exposed_ratio(analysis: &Analysis) -> Option<f64> {
    let sum = |of: fn(&Measures) -> i64| {
        analysis
            .ranks
            .iter()
            .map(|rank| of(&rank.measures) as f64)
            .sum::<f64>()
    };
    let whole = sum(|measures| measures.span_ns);
    (whole > 0.0).then(|| sum(|measures| measures.communication_exposed_ns) / whole)
}

/// A recording, opened or not.
pub struct Entry {
    /// Its number.
    pub id: String,
    /// What to call it.
    pub name: String,
    pub(super) paths: Vec<PathBuf>,
    /// Partials of it that were named with it.
    pub(super) given: Vec<PathBuf>,
    /// Of a rank of another one alone: whose, and which.
    pub(super) only: Option<(String, u32)>,
    pub(super) inner: Mutex<Inner>,
    /// What is kept of it while it can be followed; whoever reads it has this.
    pub(super) following: Mutex<Option<Following>>,
    /// When it was last asked about.
    pub(super) asked: Mutex<Instant>,
}

#[derive(Default)]
pub(super) struct Inner {
    /// The newest last; of a recording that is read again the one before it for a while.
    pub(super) generations: Vec<Arc<Loaded>>,
    pub(super) reading: Option<Arc<import::Progress>>,
    /// What can be shown of it meanwhile.
    pub(super) preview: Option<Arc<Preview>>,
    /// Why it could not be read the last time.
    pub(super) error: Option<String>,
    /// The files as they were before the last reading.
    pub(super) read_at: Option<Signature>,
    /// Whether there is more to show of the same files: an analysis.
    pub(super) again: bool,
    /// It could not be followed: so many more times it is read as a whole at once, unless it closes.
    pub(super) unusual: u32,
    /// When the last reading ended, and how long it took.
    pub(super) ended: Option<(Instant, Duration)>,
    pub(super) glance: Option<(Instant, Glance)>,
    /// Of one that is shown by rank: where the rows are.
    pub(super) sources: Vec<Source>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Missing {
    /// No recording has that number.
    Unknown,
    /// It is being read; the share that was.
    Loading(Option<f64>),
    /// It could not be read.
    Failed(String),
    /// It was read again since.
    Gone,
    /// It is shown by rank, without its rows.
    ByRank,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn share(progress: &import::Progress) -> Option<f64> {
    let total = progress.total_bytes.load(Ordering::Relaxed);
    let done = progress.done_bytes.load(Ordering::Relaxed);
    (total > 0).then(|| (done as f64 / total as f64).min(1.0))
}

impl Entry {
    /// A recording that is not opened yet.
    pub(super) fn new(id: String, name: String, paths: Vec<PathBuf>) -> Self {
        Self {
            id,
            name,
            paths,
            given: Vec::new(),
            only: None,
            inner: Mutex::default(),
            following: Mutex::default(),
            asked: Mutex::new(Instant::now()),
        }
    }

    /// Whether somebody asked about it a short while ago.
    pub(super) fn asked_within(&self, time: Duration) -> bool {
        lock(&self.asked).elapsed() < time
    }

    /// A look at the files.
    fn glance(&self) -> Glance {
        let mut inner = lock(&self.inner);
        if let Some((when, glance)) = &inner.glance
            && when.elapsed() < glance.holds()
        {
            return glance.clone();
        }
        let loaded = inner.generations.last().cloned();
        drop(inner);
        let signature = Signature::of(&self.paths).unwrap_or_default();
        let manifest = match self.paths.as_slice() {
            [path] if beneath::is_folder(path) => files::manifest(path),
            _ => None,
        };
        let mut glance = Glance {
            exit_status: manifest.as_ref().and_then(|manifest| manifest.exit_status),
            bytes: signature.bytes,
            modified_ms: signature.modified_ms,
            growing: self.grows(&signature),
            ..Glance::default()
        };
        if let Some(loaded) = loaded {
            let recording = loaded.timeline.outline();
            glance.device = device(recording);
            glance.simulated = recording.is_simulated();
            glance.ranks = recording.processes.len();
            glance.events = Some(loaded.timeline.events());
        } else if let [path] = self.paths.as_slice()
            && files::is_recording(path)
        {
            let manifest = manifest.unwrap_or_default();
            glance.device = manifest.device;
            let folders = manifest.rows.keys().map(|folder| path.join(folder));
            glance.ranks = folders.filter(|folder| !files::is_host(folder)).count();
            let rows = manifest.rows.values().flat_map(BTreeMap::values);
            let events = rows.fold(0u64, |all, rows| all.saturating_add(*rows));
            glance.events = (events > 0).then_some(events);
            // It says this when it is closed.
            if glance.ranks == 0 || glance.device.is_empty() {
                let (ranks, device) = files::processes(path);
                glance.ranks = ranks;
                if glance.device.is_empty() {
                    glance.device = device;
                }
            }
            glance.simulated = glance.device == "sim";
        } else if !self.paths.iter().any(|path| files::is_recording(path)) {
            glance.device = "imported".to_owned();
        }
        inner = lock(&self.inner);
        inner.glance = Some((Instant::now(), glance.clone()));
        glance
    }

    /// Whether a recorder still writes: the recording is not closed, and changed a short while ago.
    pub(super) fn grows(&self, signature: &Signature) -> bool {
        let [path] = self.paths.as_slice() else {
            return false;
        };
        let recent = now_ms().saturating_sub(signature.modified_ms) < SILENT_MS;
        recent && files::is_open(path)
    }

    /// What stands of it in the list of recordings.
    #[must_use]
    pub fn listed(&self) -> Value {
        let glance = self.glance();
        let inner = lock(&self.inner);
        let state = match (&inner.reading, inner.generations.is_empty(), &inner.error) {
            (_, false, _) => "ready",
            (Some(_), ..) => "loading",
            (None, _, Some(_)) => "failed",
            (None, _, None) => "unopened",
        };
        // Known of what is open.
        let whole = inner.generations.last().and_then(|loaded| loaded.analysis());
        let analysis = whole.as_ref().map(|whole| &whole.analysis);
        json!({
            "id": self.id,
            "name": self.name,
            "state": state,
            "exit_status": glance.exit_status,
            "gpus": analysis.map(|analysis| analysis.ranks.len()),
            "step_ns": analysis.and_then(|analysis| analysis.step.as_ref()).map(|step| step.mean_ns),
            "exposed_ratio": analysis.and_then(|analysis| exposed_ratio(analysis)),
            "growing": glance.growing,
            "device": glance.device,
            "simulated": glance.simulated,
            "ranks": glance.ranks,
            "events": glance.events,
            "bytes": glance.bytes,
            "modified_ms": glance.modified_ms,
            "error": inner.error,
            "progress": inner.reading.as_ref().and_then(|progress| share(progress)),
        })
    }

    /// What is loaded of it, without opening it.
    pub(super) fn present(&self) -> Result<Arc<Loaded>, Missing> {
        let inner = lock(&self.inner);
        match (inner.generations.last(), &inner.reading, &inner.error) {
            (Some(loaded), ..) => Ok(loaded.clone()),
            (None, Some(progress), _) => Err(Missing::Loading(share(progress))),
            (None, None, Some(error)) => Err(Missing::Failed(error.clone())),
            (None, None, None) => Err(Missing::Loading(None)),
        }
    }

    /// Of a generation of some of its files, the share of all that has been read.
    #[must_use]
    pub fn reading(&self, loaded: &Loaded) -> Option<f64> {
        let share = || {
            lock(&self.inner)
                .reading
                .as_ref()
                .and_then(|progress| share(progress))
        };
        loaded.partial.then(|| share().unwrap_or(0.0))
    }

    /// Why the last reading failed.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        lock(&self.inner).error.clone()
    }
}
