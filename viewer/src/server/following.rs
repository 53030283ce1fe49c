//! A recording that is still written: looks at what was appended, and now and then an analysis, which no picture waits for.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gputrace_analyzer::{Options, analyze_in_detail};
use tokio::sync::watch;

use super::entry::lock;
use super::loaded::{Analysed, Loaded, Progress};
use super::read_queue::make_way;
use crate::timeline::{Growing, Learned, Timeline};

/// Between two analyses passes at least so many times what one takes: who trains beside us has the cores.
const REST: u32 = 9;

/// What the thread that analyses leaves.
#[derive(Default)]
struct Shared {
    is_busy: bool,
    /// Whether nobody waits for what an analysis finds any more: the recording is read as a whole.
    is_left: bool,
    found: Option<Learned>,
    /// When the last analysis ended, and how long it took.
    ended: Option<(Instant, Duration)>,
}

/// A recording that is followed.
pub(super) struct Following {
    growing: Growing,
    shared: Arc<Mutex<Shared>>,
    tell: Arc<watch::Sender<Progress>>,
    /// What times of the analysis count from.
    origin_ns: Option<i64>,
    /// Fails at the next look.
    #[cfg(test)]
    pub(super) breaks: bool,
}

impl Following {
    /// Of the recording in a folder.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            growing: Growing::new(path),
            shared: Arc::default(),
            tell: Arc::new(watch::channel(Progress::Running).0),
            origin_ns: None,
            #[cfg(test)]
            breaks: false,
        }
    }

    /// The latest analysis of what it shows, as soon as there is one.
    pub(super) fn told(&self) -> watch::Receiver<Progress> {
        self.tell.subscribe()
    }

    /// The recording as it is now; nothing where it can't be followed.
    pub(super) fn look(&mut self) -> Option<Timeline> {
        #[cfg(test)]
        assert!(!self.breaks, "a look that fails");
        if let Some(found) = lock(&self.shared).found.take() {
            self.growing.add(found);
        }
        let timeline = self.growing.look()?;
        if self
            .origin_ns
            .is_some_and(|origin_ns| origin_ns != timeline.origin_ns())
        {
            self.shared = Arc::default();
            self.tell = Arc::new(watch::channel(Progress::Running).0);
        }
        self.origin_ns = Some(timeline.origin_ns());
        Some(timeline)
    }

    /// Ends it, as the recording is read as a whole. What its generations wait for is told by whoever reads it: this is how,
    /// and what times count from, where that is known.
    pub(super) fn leave(self) -> (Arc<watch::Sender<Progress>>, Option<i64>) {
        lock(&self.shared).is_left = true;
        (self.tell, self.origin_ns)
    }

    /// Begins to analyse a generation, unless an analysis is being made or was a short while ago; `done` is called behind it
    /// while the recording is still followed.
    pub(super) fn analyse(&self, loaded: &Arc<Loaded>, done: impl FnOnce() + Send + 'static) {
        let mut own = lock(&self.shared);
        let has_rested = own.ended.is_none_or(|(when, took)| when.elapsed() >= took * REST);
        if own.is_busy || !has_rested {
            return;
        }
        own.is_busy = true;
        drop(own);
        let (loaded, shared, tell) = (loaded.clone(), self.shared.clone(), self.tell.clone());
        let begun = std::thread::Builder::new()
            .name("analyst".to_owned())
            .spawn(move || {
                make_way();
                let begun = Instant::now();
                let timeline = &loaded.timeline;
                let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let recording = timeline.recording();
                    let (analysis, details) = analyze_in_detail(&recording, &Options::default());
                    let analysed = Arc::new(Analysed::new(analysis, timeline.origin_ns()));
                    let found = Learned::new(timeline, &recording, analysed.analysis.clone(), details);
                    (analysed, found)
                }));
                let mut own = lock(&shared);
                own.is_busy = false;
                own.ended = Some((Instant::now(), begun.elapsed()));
                if own.is_left {
                    return;
                }
                let progress = match found {
                    Ok((analysed, found)) => {
                        own.found = Some(found);
                        Progress::Done(analysed)
                    }
                    Err(_) => Progress::Failed,
                };
                // Whoever leaves tells something newer.
                tell.send_replace(progress);
                drop(own);
                done();
            });
        if begun.is_err() {
            // Later there may be a thread for it.
            lock(&self.shared).is_busy = false;
        }
    }
}
