//! How far an import is, and who is told of what has arrived.

use std::fmt;
use std::sync::atomic::AtomicU64;

use gputrace_trace::{Interner, Process};

/// How far reading is: for a progress bar, from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of all files.
    pub total_bytes: AtomicU64,
    /// Bytes read so far.
    pub done_bytes: AtomicU64,
    arrived: Option<Arrived>,
}

/// What is done with a process and its names as soon as its file is read.
pub(crate) type Arrive = dyn Fn(&Process, &Interner) + Send + Sync;

struct Arrived(Box<Arrive>);

impl fmt::Debug for Arrived {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Arrived")
    }
}

impl Progress {
    /// `arrived` is given each process of several trace files as soon as its file is read, from any thread. It is preliminary:
    /// what the other files say may still change its rank, leave it out, and number its names and streams anew.
    #[must_use]
    pub fn telling(arrived: impl Fn(&Process, &Interner) + Send + Sync + 'static) -> Self {
        Self {
            arrived: Some(Arrived(Box::new(arrived))),
            ..Self::default()
        }
    }

    /// Who wants to know of processes.
    pub(crate) fn arrived(&self) -> Option<&Arrive> {
        self.arrived.as_ref().map(|arrived| &*arrived.0)
    }
}
