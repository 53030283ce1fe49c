//! Fair queues: each client has a queue of its own, and the queues take turns, so that a client that asks for much delays only
//! itself.
//!
//! Users of one machine may share an address through a tunnel, and a browser opens several connections. So a browser is known by
//! its session, and a script, since all scripts share the token, by its address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::entry::lock;

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// A browser, by the number of its session.
    Session(u64),
    /// Scripts with the token, by their address.
    Scripts(Option<IpAddr>),
    /// The server itself.
    Ourselves,
}

tokio::task_local! {
    /// The client whose request is being answered.
    static CURRENT: Client;
}

/// Runs a request's work in the name of its client.
pub async fn for_client<T>(client: Client, answer: impl Future<Output = T>) -> T {
    CURRENT.scope(client, answer).await
}

/// The client whose request this task answers.
pub fn current_client() -> Client {
    CURRENT.try_with(|client| *client).unwrap_or(Client::Ourselves)
}

/// Queues by client that take turns.
pub(super) struct FairQueue<T>(VecDeque<(Client, VecDeque<T>)>);

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> FairQueue<T> {
    /// Adds to the end of a client's queue.
    pub(super) fn push(&mut self, client: Client, one: T) {
        match self.0.iter_mut().find(|(of, _)| *of == client) {
            Some((_, queue)) => queue.push_back(one),
            None => self.0.push_back((client, VecDeque::from([one]))),
        }
    }

    /// The first of the queue whose turn it is; its queue then waits for all others.
    pub(super) fn pop(&mut self) -> Option<(Client, T)> {
        let (client, mut queue) = self.0.pop_front()?;
        let one = queue.pop_front();
        if !queue.is_empty() {
            self.0.push_back((client, queue));
        }
        one.map(|one| (client, one))
    }

    /// How many of a client's wait.
    pub(super) fn len(&self, client: Client) -> usize {
        let found = self.0.iter().find(|(of, _)| *of == client);
        found.map_or(0, |(_, queue)| queue.len())
    }

    /// Removes those that `keep` refuses.
    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for (_, queue) in &mut self.0 {
            queue.retain(&keep);
        }
        self.0.retain(|(_, queue)| !queue.is_empty());
    }
}

/// A semaphore whose waiters are served fairly by client.
#[derive(Clone)]
pub struct Permits(Arc<Mutex<Inner>>);

struct Inner {
    free: usize,
    held: HashMap<Client, usize>,
    waiting: FairQueue<oneshot::Sender<Permit>>,
    /// How many have queued since waiters that gave up were last purged.
    since_purge: usize,
}

/// Waiters that gave up are purged each time this many have queued.
const PURGE_EVERY: usize = 256;

/// A permit, released when dropped.
pub struct Permit {
    permits: Permits,
    client: Client,
}

impl Permits {
    /// `count` permits.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            free: count,
            held: HashMap::new(),
            waiting: FairQueue::default(),
            since_purge: 0,
        })))
    }

    /// Waits for a permit. Dropping the future leaves the queue.
    pub async fn acquire(&self) -> Permit {
        let client = current_client();
        loop {
            let granted = {
                let mut inner = lock(&self.0);
                if inner.free > 0 {
                    return self.grant(&mut inner, client);
                }
                inner.since_purge += 1;
                if inner.since_purge >= PURGE_EVERY {
                    inner.since_purge = 0;
                    inner.waiting.retain(|one| !one.is_closed());
                }
                let (sender, granted) = oneshot::channel();
                inner.waiting.push(client, sender);
                granted
            };
            // A sender is never dropped unsent.
            if let Ok(permit) = granted.await {
                return permit;
            }
        }
    }

    /// A permit, if one is free and this client holds fewer than `most`.
    pub fn try_acquire(&self, most: usize) -> Option<Permit> {
        let client = current_client();
        let mut inner = lock(&self.0);
        let has = inner.held.get(&client).copied().unwrap_or(0);
        (inner.free > 0 && has < most).then(|| self.grant(&mut inner, client))
    }

    fn grant(&self, inner: &mut Inner, client: Client) -> Permit {
        inner.free -= 1;
        *inner.held.entry(client).or_default() += 1;
        Permit {
            permits: self.clone(),
            client,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let granted = {
            let mut inner = lock(&self.permits.0);
            inner.free += 1;
            if let Some(held) = inner.held.get_mut(&self.client) {
                *held -= 1;
                if *held == 0 {
                    inner.held.remove(&self.client);
                }
            }
            loop {
                match inner.waiting.pop() {
                    Some((_, sender)) if sender.is_closed() => {}
                    Some((client, sender)) => break Some((self.permits.grant(&mut inner, client), sender)),
                    None => break None,
                }
            }
        };
        if let Some((permit, sender)) = granted {
            // A waiter that gave up just now drops the permit, which goes to the next.
            drop(sender.send(permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn block_on(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn a_client_that_asks_for_much_delays_only_itself() {
        block_on(async {
            let permits = Permits::new(1);
            let first = permits.acquire().await;
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut all = Vec::new();
            for (client, count) in [(1, 100), (2, 3), (3, 1)] {
                for _ in 0..count {
                    let (permits, order) = (permits.clone(), order.clone());
                    let work = async move {
                        let _place = permits.acquire().await;
                        lock(&order).push(client);
                    };
                    all.push(tokio::spawn(for_client(Client::Session(client), work)));
                    tokio::task::yield_now().await;
                }
            }
            drop(first);
            for one in all {
                one.await.unwrap();
            }
            let order = lock(&order);
            assert_eq!(order[..8], [1, 2, 3, 1, 2, 1, 2, 1]);
            assert_eq!(order.len(), 104);
        });
    }

    #[test]
    fn waiters_that_gave_up_are_skipped() {
        block_on(async {
            let permits = Permits::new(1);
            let first = permits.acquire().await;
            for _ in 0..2 * PURGE_EVERY {
                let waited = tokio::time::timeout(Duration::ZERO, permits.acquire()).await;
                assert!(waited.is_err());
            }
            assert!(lock(&permits.0).waiting.len(Client::Ourselves) <= PURGE_EVERY);
            let next = tokio::spawn({
                let permits = permits.clone();
                async move { drop(permits.acquire().await) }
            });
            tokio::task::yield_now().await;
            drop(first);
            next.await.unwrap();
            assert_eq!(lock(&permits.0).free, 1);
            assert!(lock(&permits.0).held.is_empty());
        });
    }

    #[test]
    fn one_client_does_not_get_all_permits() {
        block_on(async {
            let permits = Permits::new(4);
            let try_for = |client| for_client(Client::Session(client), async { permits.try_acquire(2) });
            let mine = [try_for(1).await, try_for(1).await, try_for(1).await];
            assert_eq!(mine.iter().flatten().count(), 2);
            let theirs = [try_for(2).await, try_for(3).await, try_for(4).await];
            assert_eq!(theirs.iter().flatten().count(), 2);
            drop(mine);
            assert!(try_for(1).await.is_some());
        });
    }
}
