//! A process of a job.

use gputrace_trace::daemon::Totals;

use crate::alive::Alive;

/// A process whose first call came to nothing has called again within this, nanoseconds.
const CALLS_AGAIN_NS: i64 = 10_000_000_000;

/// How a process went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It said so.
    Left,
    /// It has ended without a word.
    Died,
}

/// A process of a job.
#[derive(Debug)]
pub struct Process {
    /// Its folder's name, without a number.
    pub folder: String,
    /// Its number as this machine counts.
    pub pid: u32,
    /// Whether it lives.
    pub alive: Alive,
    /// Who it is on the socket; nobody when it is gone, is not connected, or was not heard of since the daemon began.
    pub caller: Option<u64>,
    /// When it went, and how.
    pub gone: Option<(i64, Gone)>,
    /// Sums, as it last said.
    pub totals: Totals,
    /// When it last said so.
    pub heard_ns: i64,
    /// When its steps or finished collectives last grew.
    pub progressed_ns: i64,
    /// Steps that it told of, and that were heard.
    pub told_steps: u64,
    /// The last number of a step that it told of.
    pub last_step: Option<u64>,
    /// How many cuts it was asked for, and how many it has done.
    pub cuts: (u64, u64),
    /// The last segment that a cut ended.
    pub cut_segment: Option<u32>,
    /// Whether it joined and has begun no segment yet.
    pub is_new: bool,
    /// The segment that it writes, or wrote last.
    pub segment: Option<u32>,
    /// It has joined (again), and begins with this segment: who makes its files does not know yet.
    pub begins: Option<u32>,
}

impl Process {
    /// One that has joined, or that was known before the daemon began.
    pub fn new(folder: String, pid: u32, now_ns: i64) -> Self {
        Self {
            folder,
            pid,
            alive: Alive::default(),
            caller: None,
            gone: None,
            totals: Totals::default(),
            heard_ns: now_ns,
            progressed_ns: now_ns,
            told_steps: 0,
            last_step: None,
            cuts: (0, 0),
            cut_segment: None,
            is_new: false,
            segment: None,
            begins: None,
        }
    }

    /// One that joins.
    pub fn joining(folder: String, pid: u32, now_ns: i64) -> Self {
        Self {
            is_new: true,
            ..Self::new(folder, pid, now_ns)
        }
    }

    /// Whether it is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.caller.is_some()
    }

    /// Whether it is not connected, and has not gone either, as far as is known.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.caller.is_none() && self.gone.is_none()
    }

    /// Steps of it that no daemon has heard of: from before there was one, or told to one that was killed.
    #[must_use]
    pub fn missed_steps(&self) -> u64 {
        self.totals.steps.saturating_sub(self.told_steps)
    }

    /// Whether it is there, or is expected: one that waited too short for our answer to its first call comes again in a moment.
    #[must_use]
    pub fn is_awaited(&self, now_ns: i64) -> bool {
        self.gone
            .is_none_or(|(when_ns, _)| self.is_new && now_ns.saturating_sub(when_ns) < CALLS_AGAIN_NS)
    }
}
