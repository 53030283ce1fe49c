//! Another profiler in the same process: noticed, left alone while it records, and followed once it is done.
//!
//! CUPTI's buffers go to whoever registered last, without an error for the one before: PyTorch's profiler takes ours away by
//! that. What tells is a call of our own: the recording thread asks the driver for its version, which is a record; when its
//! buffer does not come back to us, somebody else has it. Kinds are switched for the whole process, and kernels can be
//! recorded in one of two ways only: as long as CUPTI refuses the other way, somebody records kernels.

use std::time::{Duration, Instant};

use gputrace_trace::{TimeNs, now};

use crate::cupti::Cupti;
use crate::{buffers, power};

/// For how long no buffer must have come until the recording thread makes a call of its own, and how long that may take.
const SILENCE: Duration = Duration::from_millis(900);
const ANSWER: Duration = Duration::from_millis(600);
/// Calls that were not answered until the buffers are taken for lost.
const CALLS: u32 = 2;
/// How often it is looked whether the other profiler is done.
const LOOK: Duration = Duration::from_millis(500);

/// A time in which another profiler had CUPTI's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) start: TimeNs,
    pub(crate) end: TimeNs,
    /// Buffers of ours that went to it.
    pub(crate) buffers: usize,
}

/// Watches over the buffers.
pub(crate) struct Rivals {
    /// Buffers that had come back when it was looked last.
    completed: u64,
    /// When the last came: by our clock, and as a moment of the recording.
    last: (Instant, TimeNs),
    unanswered: u32,
    called: Instant,
    /// Since when somebody else has the buffers.
    taken: Option<TimeNs>,
    looked: Instant,
}

impl Rivals {
    /// From now on.
    pub(crate) fn new() -> Self {
        let moment = Instant::now();
        Self {
            completed: 0,
            last: (moment, now()),
            unanswered: 0,
            called: moment,
            taken: None,
            looked: moment,
        }
    }

    /// Whether buffers have come a moment ago, so that they are certainly ours.
    pub(crate) fn is_alone(&self) -> bool {
        self.taken.is_none() && self.last.0.elapsed() < SILENCE
    }

    /// Looks, calls, and takes over when it is time; gives the time that is over then.
    pub(crate) fn look(&mut self, cupti: &Cupti) -> Option<Taken> {
        let completed = buffers::completed_count();
        if completed != self.completed || power::is_off() {
            self.completed = completed;
            self.last = (Instant::now(), now());
            self.unanswered = 0;
            if self.taken.take().is_some() {
                // They were late only: something ran for long.
                power::hold(false);
            }
            return None;
        }
        if self.taken.is_some() {
            return self.follow(cupti);
        }
        let is_quiet = self.last.0.elapsed() >= SILENCE;
        if is_quiet && (self.unanswered == 0 || self.called.elapsed() >= ANSWER) {
            if self.unanswered < CALLS {
                if cupti.call_driver() {
                    self.unanswered += 1;
                }
                self.called = Instant::now();
            } else {
                self.taken = Some(self.last.1);
                // Kinds are the other one's now.
                power::hold(true);
            }
        }
        None
    }

    fn follow(&mut self, cupti: &Cupti) -> Option<Taken> {
        if self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        if cupti.are_kernels_recorded() {
            return None;
        }
        let start = self.taken.take()?;
        cupti.take_over();
        let buffers = buffers::registered_anew();
        power::hold(false);
        self.last = (Instant::now(), now());
        self.unanswered = 0;
        Some(Taken {
            start,
            end: self.last.1,
            buffers,
        })
    }

    /// The time that lasts until the end of the process.
    pub(crate) fn end(&mut self) -> Option<Taken> {
        let start = self.taken.take()?;
        Some(Taken {
            start,
            end: now(),
            buffers: buffers::registered_anew(),
        })
    }
}
