//! The thread itself: how it begins and ends, and how others have it flush.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::writer::ProcessWriter;

use super::Sink;
use crate::cupti::Cupti;
use crate::{buffers, signals};

pub(super) static STOP: AtomicBool = AtomicBool::new(false);
static FINISHED: Mutex<bool> = Mutex::new(false);
static FINISHED_CHANGED: Condvar = Condvar::new();

/// Asks the thread to finish and waits for it.
pub(crate) fn finish(patience: Duration) {
    STOP.store(true, Ordering::Release);
    buffers::wake();
    let finished = FINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = FINISHED_CHANGED.wait_timeout_while(finished, patience, |finished| !*finished);
    drop(waited);
}

/// How many flushes were asked for, and how many of those were answered.
pub(super) static ASKED: AtomicU64 = AtomicU64::new(0);
static ANSWERED: Mutex<u64> = Mutex::new(0);
static ANSWERED_CHANGED: Condvar = Condvar::new();

/// Asks the thread to flush CUPTI at once, because a context is about to go, and waits for it.
pub(crate) fn flush_before_end(patience: Duration) {
    let ticket = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    buffers::wake();
    let answered = ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ANSWERED_CHANGED.wait_timeout_while(answered, patience, |answered| *answered < ticket);
    drop(waited);
}

/// Says that so many flushes were answered.
pub(super) fn answer(tickets: u64) {
    *ANSWERED.lock().unwrap_or_else(PoisonError::into_inner) = tickets;
    ANSWERED_CHANGED.notify_all();
}

/// What the thread works with.
struct Work {
    writer: Box<ProcessWriter>,
    header: Box<ProcessHeader>,
    cupti: Option<Cupti>,
}

/// The thread, before it has anything to do.
pub(crate) struct Thread(Sender<Work>);

impl Thread {
    /// Starts the thread. Before CUPTI is: without a thread nobody would take CUPTI's buffers.
    ///
    /// # Errors
    /// When the process may not have another thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Work>();
        let body = move || {
            // A panic of ours must cost the recording only: the program's exit would wait for the mark below.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                if let Ok(work) = receiver.recv() {
                    // Made here, on a stack that is ours: it is large, and the program's may be small.
                    Sink::new(*work.writer, *work.header, work.cupti).run();
                }
            })));
            // From here on nobody flushes: contexts that end later, as in handlers behind ours, wait for nothing.
            answer(u64::MAX);
            *FINISHED.lock().unwrap_or_else(PoisonError::into_inner) = true;
            FINISHED_CHANGED.notify_all();
        };
        let thread = std::thread::Builder::new().name("gputrace".to_owned());
        signals::all_blocked(|| thread.spawn(body))?;
        Ok(Self(sender))
    }

    /// Gives it its work, from now until the process ends.
    pub(crate) fn begin(self, writer: Box<ProcessWriter>, header: Box<ProcessHeader>, cupti: Option<Cupti>) {
        // It waits for just this, so it is there.
        drop(self.0.send(Work {
            writer,
            header,
            cupti,
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn once_the_thread_has_ended_nobody_waits_for_it() {
        let thread = Thread::start().expect("a thread");
        // Without work it ends.
        drop(thread);
        let begun = Instant::now();
        finish(Duration::from_secs(60));
        flush_before_end(Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(50));
    }
}
