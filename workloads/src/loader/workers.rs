//! Threads that make things in turn, which are handed out in order: the loader without its GPU.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Error;

/// What one worker does.
pub(super) trait Make: Send + 'static {
    /// What is filled, used, given back and filled again.
    type Item: Send + 'static;
    /// Fills an item with the worker's next batch.
    fn make(&mut self, item: &mut Self::Item, stop: &Stop) -> Result<(), Error>;
}

/// Tells workers that nobody wants batches any more.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    fn asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps, but not beyond being stopped.
    pub(super) fn sleep(&self, duration: Duration) {
        let started = Instant::now();
        while let Some(left) = duration.checked_sub(started.elapsed())
            && !left.is_zero()
            && !self.asked()
        {
            std::thread::park_timeout(left);
        }
    }
}

/// One thread, with what goes to it and comes from it.
struct Worker<T> {
    filled: Receiver<Result<T, Error>>,
    /// Taken away at the end, which is how the thread learns of it.
    free: Option<Sender<T>>,
    thread: JoinHandle<()>,
}

/// Whose turn it is, and where items are.
struct Turns<T> {
    next: usize,
    /// Items that no worker has.
    spare: Vec<T>,
    /// Workers that have one item less than is due to them.
    owed: VecDeque<usize>,
}

/// Workers whose items are handed out in turn.
pub(super) struct Workers<M: Make> {
    workers: Vec<Worker<M::Item>>,
    turns: RefCell<Turns<M::Item>>,
    stop: Stop,
    /// How long their end is waited for.
    patience: Duration,
}

impl<M: Make> Workers<M> {
    /// Starts a thread for each of `makers`, with so many `ahead` of `items` each; the others are spare. The end of a
    /// thread is waited for with `patience`.
    pub(super) fn start(
        makers: Vec<M>,
        mut items: Vec<M::Item>,
        ahead: usize,
        patience: Duration,
    ) -> Result<Self, Error> {
        let mut workers = Self {
            workers: Vec::with_capacity(makers.len()),
            turns: RefCell::new(Turns {
                next: 0,
                spare: Vec::new(),
                owed: VecDeque::new(),
            }),
            stop: Stop::default(),
            patience,
        };
        for (number, maker) in makers.into_iter().enumerate() {
            let (free, to_fill) = channel();
            let (to_hand_out, filled) = channel();
            for item in items.drain(items.len().saturating_sub(ahead)..) {
                // The other end is still here.
                drop(free.send(item));
            }
            let stop = workers.stop.clone();
            let thread = std::thread::Builder::new()
                .name(format!("loader {number}"))
                .spawn(move || work(&to_hand_out, maker, to_fill, &stop))?;
            workers.workers.push(Worker {
                filled,
                free: Some(free),
                thread,
            });
        }
        workers.turns.get_mut().spare = items;
        Ok(workers)
    }

    /// The next item in order, filled. The worker gets a spare one for it, or else the next that is given back.
    pub(super) fn next(&self) -> Result<M::Item, Error> {
        let ended = || Error::new("a data loader's worker ended early");
        let turn = self.turns.borrow().next;
        let worker = self.workers.get(turn).ok_or_else(ended)?;
        let item = worker.filled.recv().map_err(|_| ended())??;
        let mut turns = self.turns.borrow_mut();
        turns.next = (turn + 1) % self.workers.len();
        match turns.spare.pop() {
            Some(spare) => self.refill(turn, spare),
            None => turns.owed.push_back(turn),
        }
        Ok(item)
    }

    /// Takes an item back to be filled again.
    pub(super) fn give_back(&self, item: M::Item) {
        let mut turns = self.turns.borrow_mut();
        match turns.owed.pop_front() {
            Some(worker) => self.refill(worker, item),
            None => turns.spare.push(item),
        }
    }

    fn refill(&self, worker: usize, item: M::Item) {
        if let Some(free) = &self.workers[worker].free {
            // A worker that has ended says why at its next turn.
            drop(free.send(item));
        }
    }
}

impl<M: Make> Drop for Workers<M> {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Release);
        for worker in &mut self.workers {
            worker.free = None;
            worker.thread.thread().unpark();
        }
        let deadline = Instant::now() + self.patience;
        for worker in self.workers.drain(..) {
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                match worker.filled.recv_timeout(left) {
                    Ok(_) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        // Its last act; a panic has been printed by then.
                        drop(worker.thread.join());
                        break;
                    }
                    // Stuck, in a call that may never return: left behind with what it works on.
                    Err(RecvTimeoutError::Timeout) => break,
                }
            }
        }
    }
}

/// A worker's life. Its `filled` end goes last, so that whoever sees it gone knows that all else is gone too.
fn work<M: Make>(
    filled: &Sender<Result<M::Item, Error>>,
    mut maker: M,
    free: Receiver<M::Item>,
    stop: &Stop,
) {
    for mut item in &free {
        if stop.asked() {
            break;
        }
        let made = maker.make(&mut item, stop).map(|()| item);
        let failed = made.is_err();
        if filled.send(made).is_err() || failed {
            break;
        }
    }
    drop(free);
    drop(maker);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Counts in its worker's steps; fails or sticks at a number where asked.
    struct Counter {
        next: u64,
        stride: u64,
        fails_at: Option<u64>,
        sleep: Duration,
        made: Arc<Mutex<Vec<u64>>>,
    }

    impl Make for Counter {
        type Item = u64;

        fn make(&mut self, item: &mut u64, stop: &Stop) -> Result<(), Error> {
            stop.sleep(self.sleep);
            if self.fails_at == Some(self.next) {
                return Err(Error::new(format!("no batch {}", self.next)));
            }
            *item = self.next;
            self.made.lock().expect("lock").push(self.next);
            self.next += self.stride;
            Ok(())
        }
    }

    fn counters(workers: u64, fails_at: Option<u64>, made: &Arc<Mutex<Vec<u64>>>) -> Vec<Counter> {
        (0..workers)
            .map(|number| Counter {
                next: number,
                stride: workers,
                fails_at,
                // The first workers are the slower ones.
                sleep: Duration::from_millis(2 * (workers - number)),
                made: Arc::clone(made),
            })
            .collect()
    }

    #[test]
    fn items_come_in_order_however_many_make_them() {
        for count in 1..=4 {
            let made = Arc::default();
            let items = vec![u64::MAX; 2 * count as usize + 1];
            let workers = Workers::start(counters(count, None, &made), items, 2, PATIENCE).expect("starts");
            for expected in 0..20 {
                let item = workers.next().expect("item");
                assert_eq!(item, expected);
                workers.give_back(item);
            }
        }
    }

    #[test]
    fn no_more_is_made_ahead_than_there_are_items() {
        let made = Arc::<Mutex<Vec<u64>>>::default();
        let workers = Workers::start(counters(2, None, &made), vec![0; 5], 2, PATIENCE).expect("starts");
        // As many come to be made, and no more after that.
        let are_made = |count: usize| {
            let until = Instant::now() + Duration::from_secs(30);
            while made.lock().expect("lock").len() < count && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(made.lock().expect("lock").len(), count);
        };
        are_made(4);
        // One in use: its worker makes another ahead, in the spare item.
        let first = workers.next().expect("item");
        are_made(5);
        // Two in use and no item left: the second is made up for once one comes back.
        let second = workers.next().expect("item");
        are_made(5);
        workers.give_back(first);
        are_made(6);
        workers.give_back(second);
        let rest: Vec<u64> = (0..4).map(|_| workers.next().expect("item")).collect();
        assert_eq!(rest, [2, 3, 4, 5]);
    }

    #[test]
    fn an_error_comes_in_its_turn() {
        let workers =
            Workers::start(counters(3, Some(4), &Arc::default()), vec![0; 7], 2, PATIENCE).expect("starts");
        for expected in 0..4 {
            let item = workers.next().expect("item");
            assert_eq!(item, expected);
            workers.give_back(item);
        }
        assert_eq!(workers.next().expect_err("fails").to_string(), "no batch 4");
        assert!(workers.next().is_err(), "and stays");
    }

    #[test]
    fn dropping_waits_for_no_sleep_and_no_taker() {
        let made = Arc::default();
        let mut makers = counters(2, None, &made);
        makers[0].sleep = Duration::from_secs(3600);
        let workers = Workers::start(makers, vec![0; 9], 4, PATIENCE).expect("starts");
        std::thread::sleep(Duration::from_millis(20));
        let started = Instant::now();
        drop(workers);
        assert!(started.elapsed() < PATIENCE);
        assert_eq!(Arc::strong_count(&made), 1, "both threads have ended");
    }

    /// Says that it has begun, and waits for ever, as on a device that hangs.
    struct Stuck {
        begun: Sender<()>,
        released: Receiver<()>,
    }

    impl Make for Stuck {
        type Item = ();

        fn make(&mut self, (): &mut (), _stop: &Stop) -> Result<(), Error> {
            self.begun.send(()).map_err(|_| Error::new("nobody waits"))?;
            self.released.recv().map_err(|_| Error::new("the test is over"))
        }
    }

    #[test]
    fn dropping_leaves_behind_what_is_stuck() {
        let (begun, has_begun) = channel();
        let (release, released) = channel();
        let patience = Duration::from_millis(100);
        let maker = Stuck { begun, released };
        let workers = Workers::start(vec![maker], vec![(); 3], 2, patience).expect("starts");
        has_begun.recv().expect("begins");
        let started = Instant::now();
        drop(workers);
        assert!(started.elapsed() >= patience);
        drop(release);
    }
}
