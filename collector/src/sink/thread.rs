//! The thread itself: how it begins and ends.

use std::io;
use std::sync::mpsc::{Sender, channel};

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::seal::Identity;
use gputrace_trace::writer::ProcessWriter;

use super::{Place, Sink, asked};
use crate::cupti::Cupti;
use crate::signals;

/// The thread's stack.
const STACK_BYTES: usize = 2 << 20;

/// What the thread works with.
struct Work {
    place: Place,
    identity: Identity,
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
                    let (files, folder) = (work.place.files.clone(), work.place.folder.clone());
                    let writer = ProcessWriter::in_folder(files, &folder, work.identity);
                    Sink::new(writer, *work.header, work.cupti, work.place).run_to_the_end();
                }
            })));
            // From here on nobody flushes: contexts that end later, as in handlers behind ours, wait for nothing.
            asked::answer(u64::MAX);
            asked::finished();
        };
        // Not what RUST_MIN_STACK says, which is for the program's own threads.
        let thread = std::thread::Builder::new()
            .name("gputrace".to_owned())
            .stack_size(STACK_BYTES);
        signals::all_blocked(|| thread.spawn(body))?;
        Ok(Self(sender))
    }

    /// Gives it its work, from now until the process ends.
    pub(crate) fn begin(
        self,
        place: Place,
        identity: Identity,
        header: Box<ProcessHeader>,
        cupti: Option<Cupti>,
    ) {
        // It waits for just this, so it is there.
        drop(self.0.send(Work {
            place,
            identity,
            header,
            cupti,
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::asked::{finish, flush_before_end};
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
