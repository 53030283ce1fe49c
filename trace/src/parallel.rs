//! One thing after another on all cores, results in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Calls `each` with every item's number, on as many threads as there are cores.
pub fn map<R: Send>(count: usize, each: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(count);
    if workers <= 1 {
        return (0..count).map(each).collect();
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, R>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = each(index);
                    results
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(index, result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_values().collect()
}

/// Makes every item on as many threads as there are cores, and hands them in order to `take` on this one. No more are
/// made ahead than there are threads, so that memory is bounded.
pub fn in_order<R: Send>(count: usize, make: impl Fn(usize) -> R + Sync, mut take: impl FnMut(usize, R)) {
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(count);
    if workers <= 1 {
        return (0..count).for_each(|index| take(index, make(index)));
    }
    let next = AtomicUsize::new(0);
    let made: Mutex<BTreeMap<usize, R>> = Mutex::default();
    /// The items taken so far, and whether there will be no more: a panic ended one side.
    struct State {
        taken: usize,
        over: bool,
    }
    let state = Mutex::new(State {
        taken: 0,
        over: false,
    });
    let changed = Condvar::new();
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    /// Ends the waiting of the others, however this thread ends.
    struct Over<F: Fn()>(F);
    impl<F: Fn()> Drop for Over<F> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                (self.0)();
            }
        }
    }
    let end = || {
        lock().over = true;
        changed.notify_all();
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let _over = Over(end);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let mut state = lock();
                    while index >= state.taken + workers && !state.over {
                        state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                    if state.over {
                        break;
                    }
                    drop(state);
                    let item = make(index);
                    made.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(index, item);
                    drop(lock());
                    changed.notify_all();
                }
            });
        }
        let _over = Over(end);
        for index in 0..count {
            let mut state = lock();
            let item = loop {
                if let Some(item) = made.lock().unwrap_or_else(PoisonError::into_inner).remove(&index) {
                    break Some(item);
                }
                if state.over {
                    break None;
                }
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            // The scope passes a worker's panic on.
            let Some(item) = item else { break };
            take(index, item);
            lock().taken = index + 1;
            changed.notify_all();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_order_and_no_more_are_made_ahead_than_threads() {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let (made, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut seen = Vec::new();
        in_order(
            100,
            |index| {
                made.fetch_add(1, Ordering::SeqCst);
                assert!(made.load(Ordering::SeqCst) <= taken.load(Ordering::SeqCst) + 2 * workers);
                index * 3
            },
            |index, item| {
                seen.push((index, item));
                taken.fetch_add(1, Ordering::SeqCst);
            },
        );
        assert_eq!(seen, (0..100).map(|index| (index, 3 * index)).collect::<Vec<_>>());
        in_order(0, |_| 1, |_, _| panic!("there is none"));
    }

    #[test]
    fn a_panic_on_either_side_ends_all() {
        for (maker, taker) in [(Some(7), None), (None, Some(7))] {
            let outcome = std::panic::catch_unwind(|| {
                in_order(
                    50,
                    |index| assert_ne!(Some(index), maker),
                    |index, ()| assert_ne!(Some(index), taker),
                );
            });
            assert!(outcome.is_err());
        }
    }
}
