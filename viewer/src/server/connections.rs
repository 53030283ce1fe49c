//! A limit on connections: when all slots are taken, the connection that has been idle the longest is closed for a new one.
//!
//! Otherwise a thousand connections that send nothing, or never finish a request, would keep everybody out until they time out.
//! When no connection is idle, a client with more slots than all others together loses one.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Response;
use http_body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::fair_queue::Client;

/// How long a new connection may be idle before it can be closed for another.
const MIN_IDLE: Duration = Duration::from_millis(500);
/// How often to look again for a connection that can be closed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// After waiting this long for a slot, a new connection gets one from the client that has the most.
const PREEMPT_AFTER: Duration = Duration::from_secs(2);

/// One connection.
pub(super) struct Connection {
    /// Requests that are being answered.
    active: AtomicUsize,
    /// When it was accepted, or its client last read a part of a response.
    since: Mutex<Instant>,
    /// Whether a response is ready that its client does not read.
    is_stalled: AtomicBool,
    /// The client of the last request.
    client: Mutex<Option<Client>>,
    /// Notified when it has to close.
    pub(super) close: Notify,
}

impl Connection {
    /// Notes whose connection it is, once a request was authenticated.
    pub(super) fn set_client(&self, client: Client) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }

    /// A request has begun.
    pub(super) fn begins(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// A response was sent to its end.
    fn ends(&self) {
        self.progressed();
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// The client read a part of a response.
    pub(super) fn progressed(&self) {
        self.is_stalled.store(false, Ordering::Relaxed);
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// A response is ready and the client does not read.
    pub(super) fn stalls(&self) {
        self.is_stalled.store(true, Ordering::Relaxed);
    }

    /// How long it has neither sent a request nor read a response; `None` while it waits for us.
    pub(super) fn idle(&self) -> Option<Duration> {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = self.active.load(Ordering::Relaxed) > 0 && !self.is_stalled.load(Ordering::Relaxed);
        (!waits).then(|| since.elapsed())
    }
}

/// A request that is being answered, until its response is sent or dropped.
pub(super) struct ActiveRequest(Arc<Connection>);

impl ActiveRequest {
    /// A new request on a connection.
    pub(super) fn of(connection: &Arc<Connection>) -> Self {
        connection.begins();
        Self(connection.clone())
    }

    /// The response, with whose end the request ends.
    pub(super) fn answered(self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| Body::new(ResponseBody { body, _request: self }))
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.ends();
    }
}

/// The body of a response.
struct ResponseBody {
    body: Body,
    _request: ActiveRequest,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// All connections.
pub(super) struct Connections {
    slots: Arc<Semaphore>,
    all: Mutex<Vec<Arc<Connection>>>,
}

/// A connection's slot, freed when dropped.
pub(super) struct Slot {
    pub(super) connection: Arc<Connection>,
    connections: Arc<Connections>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut all = self
            .connections
            .all
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.retain(|connection| !Arc::ptr_eq(connection, &self.connection));
    }
}

impl Connections {
    /// At most `slots` connections.
    pub(super) fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(slots)),
            all: Mutex::default(),
        })
    }

    /// Waits for a slot for a new connection.
    pub(super) async fn acquire(self: &Arc<Self>) -> Option<Slot> {
        let begun = Instant::now();
        let permit = loop {
            if let Ok(permit) = self.slots.clone().try_acquire_owned() {
                break permit;
            }
            self.close_one(begun.elapsed() >= PREEMPT_AFTER);
            // Times out when nothing was closed.
            if let Ok(permit) = tokio::time::timeout(POLL_INTERVAL, self.slots.clone().acquire_owned()).await
            {
                break permit.ok()?;
            }
        };
        let connection = Arc::new(Connection {
            active: AtomicUsize::new(0),
            since: Mutex::new(Instant::now()),
            is_stalled: AtomicBool::new(false),
            client: Mutex::default(),
            close: Notify::new(),
        });
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(connection.clone());
        drop(all);
        Some(Slot {
            connection,
            connections: self.clone(),
            _permit: permit,
        })
    }

    /// Closes the longest idle connection; if none is and it is `urgent`, the newest of the client that has the most.
    fn close_one(&self, urgent: bool) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = all
            .iter()
            .filter_map(|connection| Some((connection.idle()?, connection)));
        let idle = idle
            .filter(|(idle, _)| *idle >= MIN_IDLE)
            .max_by_key(|(idle, _)| *idle);
        if let Some((_, connection)) = idle {
            connection.close.notify_one();
        } else if urgent {
            let of =
                |connection: &Connection| *connection.client.lock().unwrap_or_else(PoisonError::into_inner);
            let mut counts: HashMap<Client, usize> = HashMap::new();
            for client in all.iter().filter_map(|connection| of(connection)) {
                *counts.entry(client).or_default() += 1;
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            if let Some((client, _)) = most.filter(|(_, count)| 2 * count > all.len())
                && let Some(connection) = all.iter().rev().find(|connection| of(connection) == Some(client))
            {
                connection.close.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_closed_for_a_new_one() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let begun = Instant::now();
            let connections = Connections::new(2);
            let busy = connections.acquire().await.unwrap();
            let idle = connections.acquire().await.unwrap();
            busy.connection.begins();
            let leaves = tokio::spawn(async move {
                idle.connection.close.notified().await;
                drop(idle);
            });
            let next = connections.acquire().await.unwrap();
            assert!(begun.elapsed() >= MIN_IDLE - POLL_INTERVAL && leaves.await.is_ok());
            // Connections that are being answered, or are new, stay.
            next.connection.begins();
            let none = tokio::time::timeout(MIN_IDLE + 3 * POLL_INTERVAL, connections.acquire()).await;
            assert!(none.is_err());
            busy.connection.ends();
            assert!(busy.connection.idle().is_some() && next.connection.idle().is_none());
            drop(next);
            assert!(connections.acquire().await.is_some());
            assert_eq!(connections.all.lock().unwrap().len(), 1);
        });
    }

    #[test]
    fn a_client_with_most_of_all_slots_loses_one() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let begun = Instant::now();
            let connections = Connections::new(5);
            let mut greedy = Vec::new();
            let other = connections.acquire().await.unwrap();
            other.connection.set_client(Client::Session(2));
            other.connection.begins();
            for _ in 0..4 {
                let slot = connections.acquire().await.unwrap();
                slot.connection.set_client(Client::Session(1));
                slot.connection.begins();
                greedy.push(slot);
            }
            let last = greedy.pop().unwrap();
            let leaves = tokio::spawn(async move {
                last.connection.close.notified().await;
                drop(last);
            });
            let next = connections.acquire().await.unwrap();
            assert!(begun.elapsed() >= PREEMPT_AFTER && leaves.await.is_ok());
            // Three of five are still more than half; two of four are not.
            next.connection.begins();
            drop(greedy.pop());
            let fifth = connections.acquire().await.unwrap();
            fifth.connection.begins();
            let none = tokio::time::timeout(PREEMPT_AFTER + 3 * POLL_INTERVAL, connections.acquire()).await;
            assert!(none.is_err());
        });
    }

    #[test]
    fn a_download_is_answered_when_its_body_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let slot = Connections::new(1).acquire().await.unwrap();
            let request = ActiveRequest::of(&slot.connection);
            assert_eq!(slot.connection.idle(), None);
            let answer = request.answered(Response::new(Body::from("rows")));
            assert_eq!(answer.body().size_hint().exact(), Some(4));
            assert_eq!(slot.connection.idle(), None);
            drop(answer);
            assert!(slot.connection.idle().is_some());
        });
    }
}
