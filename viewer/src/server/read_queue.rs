//! Limits how many recordings are read at one time; clients that wait take turns.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::entry::lock;
use super::fair_queue::{Client, FairQueue};

/// Recordings that are read at one time.
const READERS: usize = 2;
/// Recordings of one client that may wait to be read: further requests are refused, and the page tries again.
const MOST_WAITING: usize = 16;
/// How often a waiting reader checks whether it is still wanted.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The queue of readers.
#[derive(Default)]
pub(super) struct ReadQueue {
    inner: Mutex<Inner>,
    granted: Condvar,
}

#[derive(Default)]
struct Inner {
    reading: usize,
    last: u64,
    waiting: FairQueue<u64>,
    granted: HashSet<u64>,
}

/// A place in a client's line.
pub(super) struct Ticket(u64);

impl ReadQueue {
    /// Queues for a client; `None` where its queue is full.
    pub(super) fn join(&self, client: Client) -> Option<Ticket> {
        let mut inner = lock(&self.inner);
        if client != Client::Ourselves && inner.waiting.len(client) >= MOST_WAITING {
            return None;
        }
        inner.last += 1;
        let ticket = inner.last;
        inner.waiting.push(client, ticket);
        self.grant(&mut inner);
        Some(Ticket(ticket))
    }

    /// Waits for a permit; `None` when it is no longer wanted.
    pub(super) fn acquire(&self, ticket: &Ticket, is_wanted: impl Fn() -> bool) -> Option<ReadPermit<'_>> {
        let mut inner = lock(&self.inner);
        while !inner.granted.remove(&ticket.0) {
            if !is_wanted() {
                inner.waiting.retain(|other| *other != ticket.0);
                return None;
            }
            let waited = self.granted.wait_timeout(inner, POLL_INTERVAL);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(ReadPermit(self))
    }

    /// Gives a ticket up.
    pub(super) fn cancel(&self, ticket: &Ticket) {
        let mut inner = lock(&self.inner);
        inner.waiting.retain(|other| *other != ticket.0);
        if inner.granted.remove(&ticket.0) {
            inner.reading -= 1;
            self.grant(&mut inner);
        }
    }

    fn grant(&self, inner: &mut Inner) {
        while inner.reading < READERS {
            let Some((_, ticket)) = inner.waiting.pop() else {
                return;
            };
            inner.reading += 1;
            inner.granted.insert(ticket);
            self.granted.notify_all();
        }
    }
}

/// A permit to read, released when dropped.
pub(super) struct ReadPermit<'a>(&'a ReadQueue);

impl Drop for ReadPermit<'_> {
    fn drop(&mut self) {
        let mut inner = lock(&self.0.inner);
        inner.reading -= 1;
        self.0.grant(&mut inner);
    }
}

/// Lets this thread, and those that it begins, work behind others: what is drawn already comes first.
pub(super) fn make_way() {
    #[cfg(target_os = "linux")]
    // SAFETY: setpriority takes no pointer; 0 is the calling thread (setpriority(2), "C library/kernel differences").
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns() {
        let queue = ReadQueue::default();
        let first: Vec<Ticket> = (0..READERS)
            .map(|_| queue.join(Client::Ourselves).unwrap())
            .collect();
        let mut permits: Vec<ReadPermit<'_>> = first
            .iter()
            .map(|ticket| queue.acquire(ticket, || true).unwrap())
            .collect();
        let greedy: Vec<Ticket> = std::iter::from_fn(|| queue.join(Client::Session(1))).collect();
        assert_eq!(greedy.len(), MOST_WAITING);
        let other = queue.join(Client::Session(2)).unwrap();
        assert!(queue.acquire(&other, || false).is_none(), "nobody wants it");
        let other = queue.join(Client::Session(2)).unwrap();
        drop(permits.pop());
        drop(queue.acquire(&greedy[0], || true).unwrap());
        assert!(queue.acquire(&other, || panic!("it was granted")).is_some());
        assert!(lock(&queue.inner).granted.contains(&greedy[1].0));
        for ticket in greedy {
            queue.cancel(&ticket);
        }
        drop(permits);
        let inner = lock(&queue.inner);
        assert!(inner.reading == 0 && inner.granted.is_empty());
    }
}
