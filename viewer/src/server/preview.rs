//! Trace files of a run that takes long to read: those that have been read are shown while the others are.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gputrace_interchange::import;
use tokio::sync::watch;

use super::entry::{Entry, lock, share};
use super::library::Library;
use super::loaded::{Loaded, Progress};
use crate::timeline::{Arriving, Promise, Timeline};

/// Before so long has passed no part of a run is shown: the whole may be there as soon.
const PATIENCE: Duration = Duration::from_millis(300);
/// Between two looks at parts passes at least so much.
const BETWEEN_PARTS: Duration = Duration::from_secs(1);
/// Of so much the whole is worth waiting for.
const NEARLY_ALL: f64 = 0.9;
/// ... unless the rest takes long all the same.
const NEARLY_DONE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Parts {
    closed: bool,
    /// Of those that were published: their details wait for the whole.
    promises: Vec<Promise>,
}

/// What of a run's files has been read is shown while the others are.
pub(super) struct Preview {
    arriving: Arriving,
    begun: Instant,
    /// When the last one was shown, and of how many processes it was.
    shown: Mutex<Option<(Instant, usize)>>,
    parts: Mutex<Parts>,
    tell: watch::Sender<Progress>,
}

impl Preview {
    /// Of a recording that is about to be read.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            arriving: Arriving::default(),
            begun: Instant::now(),
            shown: Mutex::default(),
            parts: Mutex::default(),
            tell: watch::channel(Progress::Running).0,
        })
    }

    /// A progress that tells it of processes.
    pub(super) fn progress(self: &Arc<Self>) -> import::Progress {
        let preview = self.clone();
        import::Progress::telling(move |process, names| preview.arriving.take(process, names))
    }

    /// Publishes what has been read so far, where there is enough that is new.
    pub(super) fn show(&self, library: &Library, entry: &Entry) {
        let mut shown = lock(&self.shown);
        let processes = self.arriving.len();
        let has_more = match *shown {
            None => processes > 0 && self.begun.elapsed() >= PATIENCE,
            Some((when, before)) => when.elapsed() >= BETWEEN_PARTS && processes >= 2 * before,
        };
        let read = lock(&entry.inner)
            .reading
            .as_ref()
            .and_then(|progress| share(progress));
        let is_worth_it = read.is_none_or(|read| read < NEARLY_ALL) || self.begun.elapsed() >= NEARLY_DONE;
        if !has_more || !is_worth_it {
            return;
        }
        let (timeline, promise) = Timeline::of_arrived(&self.arriving);
        if timeline.events() == 0 {
            return;
        }
        let mut parts = lock(&self.parts);
        if parts.closed {
            return;
        }
        parts.promises.push(promise);
        library.publish(entry, |generation| {
            Loaded::partly(generation, timeline, self.tell.subscribe())
        });
        *shown = Some((Instant::now(), processes));
    }

    /// From now on no part is published: the whole will be.
    pub(super) fn close(&self) {
        lock(&self.parts).closed = true;
        self.arriving.clear();
    }

    /// Nobody has to wait any longer for what parts do not have: the whole is there, or will never be.
    pub(super) fn end(&self) {
        self.close();
        lock(&self.parts).promises.clear();
        self.tell.send_replace(Progress::Replaced);
    }
}
