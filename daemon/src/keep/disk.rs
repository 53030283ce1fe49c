//! The threads that have to do with the disk, so that the one that listens never waits for it.
//!
//! Tasks are done in the order in which they are given. What takes long goes on from the first thread to a second one, so that no
//! process waits for its files while old ones are removed, and is done there behind all that came before it: the headers that were written
//! are in a window that is kept.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::files::Files;
use super::large;
use super::task::{Done, Task};

/// What processes want, and waits, at the most: a disk that stands still takes no more of our memory than that.
const MOST_WANTS: u64 = 16_384;
const MOST_WANTED_BYTES: u64 = 16 << 20;
/// A daemon that ends waits so long for a disk that stands still.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Since when a thread is at what it does, as milliseconds since [`Disk::begun`]; negative: it has nothing to do.
type Since = Arc<AtomicI64>;

/// The threads.
pub struct Disk {
    tasks: Sender<Task>,
    threads: Vec<JoinHandle<()>>,
    /// What they have done.
    pub done: Receiver<Done>,
    begun: Instant,
    since: [Since; 2],
    wants: u64,
    wanted_bytes: u64,
}

impl Disk {
    /// Begins them; `wake` is called when something is done.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start(wake: impl Fn() + Clone + Send + 'static) -> io::Result<Self> {
        let begun = Instant::now();
        let since = [(); 2].map(|()| Arc::new(AtomicI64::new(-1)));
        let (tasks, given) = channel::<Task>();
        let (pass_on, passed) = channel::<Task>();
        let (tell, done) = channel();
        let mut files = Files::default();
        let first = Thread {
            wake: wake.clone(),
            tell: tell.clone(),
            begun,
            since: since[0].clone(),
        };
        let second = Thread {
            wake,
            tell,
            begun,
            since: since[1].clone(),
        };
        let first = std::thread::Builder::new()
            .name("files".to_owned())
            .spawn(move || {
                for task in given {
                    if task.is_large() {
                        files.goes(&task);
                        // It ends with us.
                        drop(pass_on.send(task));
                    } else {
                        first.does(task, |task| files.work(task));
                    }
                }
            })?;
        let second = std::thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || {
                for task in passed {
                    second.does(task, large::work);
                }
            })?;
        Ok(Self {
            tasks,
            threads: vec![first, second],
            done,
            begun,
            since,
            wants: 0,
            wanted_bytes: 0,
        })
    }

    /// Has something done.
    pub fn give(&mut self, task: Task) {
        if let Task::Want { want, .. } = &task {
            self.wants += 1;
            self.wanted_bytes += want.bytes();
        }
        // The threads end with us alone.
        drop(self.tasks.send(task));
    }

    /// Something was done.
    pub fn was_done(&mut self, done: &Done) {
        if let Done::Given { bytes, .. } = done {
            self.wants -= 1;
            self.wanted_bytes -= bytes;
        }
    }

    /// Whether more that processes want may wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.wants < MOST_WANTS && self.wanted_bytes < MOST_WANTED_BYTES
    }

    /// How many things wait that processes want.
    #[must_use]
    pub fn wants(&self) -> u64 {
        self.wants
    }

    /// For how long the disk has been at what it does now: of what should take no time, or of what takes long.
    #[must_use]
    pub fn stands_for(&self, is_large: bool) -> Duration {
        let since = self.since[usize::from(is_large)].load(Ordering::Acquire);
        match u64::try_from(since) {
            Ok(since) => self.begun.elapsed().saturating_sub(Duration::from_millis(since)),
            Err(_) => Duration::ZERO,
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // They end when all is done that was given; a disk that stands still is left alone.
        self.tasks = channel().0;
        let stands = |disk: &Self| {
            [false, true]
                .map(|is_large| disk.stands_for(is_large))
                .into_iter()
                .max()
        };
        loop {
            let all_ended = self.threads.iter().all(JoinHandle::is_finished);
            if all_ended || stands(self) > Some(LAST_PATIENCE) {
                return;
            }
            // What they say is read, though nobody wants to know it any more.
            match self.done.recv_timeout(Duration::from_millis(20)) {
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// One of them.
struct Thread<W> {
    wake: W,
    tell: Sender<Done>,
    begun: Instant,
    since: Since,
}

impl<W: Fn()> Thread<W> {
    /// Does it; a panic is an answer too, since somebody waits for one.
    fn does(&self, task: Task, work: impl FnOnce(Task) -> Option<Done>) {
        let otherwise = task.failed("a fault in gputrace: please report it");
        let now = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.since.store(now, Ordering::Release);
        let done = catch_unwind(AssertUnwindSafe(|| work(task))).unwrap_or(otherwise);
        self.since.store(-1, Ordering::Release);
        if let Some(done) = done {
            drop(self.tell.send(done));
            (self.wake)();
        }
    }
}
