//! Reading one recording of the library: in the background, in turn, published as soon as it can be drawn and again with its
//! analysis.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gputrace_analyzer::{ClockChoice, Options, align, analyze_in_detail};
use gputrace_interchange::import;
use gputrace_trace::Recording;
use gputrace_trace::recording::is_unclosed;
use tokio::sync::watch;

use super::{GRACE, Library, WATCHED};
use crate::server::by_rank;
use crate::server::entry::{Entry, lock, now_ms};
use crate::server::fair_queue::Client;
use crate::server::files::{self, Signature};
use crate::server::following::Following;
use crate::server::loaded::{Analysed, Loaded, Progress};
use crate::server::preview::Preview;
use crate::server::read_queue::make_way;
use crate::timeline::Timeline;

/// One that could not be followed is read so many times before that is tried again: mostly it stays so, but a part may have
/// been removed just then.
const TRIED_AGAIN: u32 = 16;
/// Beside the newest two no more are kept for that.
const MOST_OLD: usize = 8;
/// A recording of ours of so many bytes is looked at before it is read.
const LARGE_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 4 << 20 };

impl Library {
    /// Begins to read a recording, unless that is under way, or too many of the client's wait for that.
    pub(super) fn open(self: &Arc<Self>, entry: &Arc<Entry>, client: Client) {
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
        if let (None, Some(by_rank)) = (&entry.only, &self.by_rank)
            && let Some(plan) = by_rank::plan(&entry.paths, &entry.given, by_rank)?
        {
            return self.read_by_rank(entry, plan, by_rank, progress);
        }
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
            [path] if growing && !is_unusual && entry.only.is_none() && files::is_recording(path) => {
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
            [path]
                if is_first
                    && entry.only.is_none()
                    && signature.is_some_and(|signature| signature.bytes >= LARGE_BYTES) =>
            {
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
        let mut recording = match (&entry.only, entry.paths.as_slice()) {
            (Some((_, rank)), [path]) => {
                Recording::open_ranks(path, &[*rank]).map_err(|error| error.to_string())?
            }
            _ => import::open(&entry.paths, progress).map_err(|error| self.told_apart(entry, &error))?,
        };
        align(&mut recording, &ClockChoice::Estimate)?;
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

    /// Makes the next generation of a recording the newest one.
    pub(in crate::server) fn publish(&self, entry: &Entry, make: impl FnOnce(u64) -> Loaded) -> Arc<Loaded> {
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
}
