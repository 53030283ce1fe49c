//! Who is connected: when all places are taken, whoever has been asking nothing the longest leaves for who comes.
//!
//! A thousand connections that are opened and left alone, or that never end their question, would else keep everybody out for
//! as long as a client is waited for.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Response;
use http_body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Who has just come has so long to ask something.
const LEAST_IDLE: Duration = Duration::from_millis(500);
/// So often it is looked again whether somebody may be asked to leave.
const LOOK: Duration = Duration::from_millis(50);

/// One connection.
pub(super) struct Guest {
    /// Questions that are being answered.
    asked: AtomicUsize,
    /// When it came, or the last part of an answer was taken.
    since: Mutex<Instant>,
    /// Whether there is something that it could take.
    is_waited_for: AtomicBool,
    /// Told when it has to leave.
    pub(super) leave: Notify,
}

impl Guest {
    /// A question begins to be answered.
    pub(super) fn asks(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer is there, to its end.
    fn is_answered(&self) {
        self.took();
        self.asked.fetch_sub(1, Ordering::Relaxed);
    }

    /// It took a part of an answer.
    pub(super) fn took(&self) {
        self.is_waited_for.store(false, Ordering::Relaxed);
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// There is something to take, and it does not.
    pub(super) fn takes_nothing(&self) {
        self.is_waited_for.store(true, Ordering::Relaxed);
    }

    /// How long it has been asking nothing and taking nothing; nothing while it waits for us.
    pub(super) fn idle(&self) -> Option<Duration> {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = self.asked.load(Ordering::Relaxed) > 0 && !self.is_waited_for.load(Ordering::Relaxed);
        (!waits).then(|| since.elapsed())
    }
}

/// A question that is being answered, until the last of the answer is handed over or nobody wants it any more.
pub(super) struct Question(Arc<Guest>);

impl Question {
    /// Of a connection.
    pub(super) fn of(guest: &Arc<Guest>) -> Self {
        guest.asks();
        Self(guest.clone())
    }

    /// The answer, with which the question ends.
    pub(super) fn answered(self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| {
            Body::new(Answering {
                body,
                _question: self,
            })
        })
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.0.is_answered();
    }
}

/// The body of an answer.
struct Answering {
    body: Body,
    _question: Question,
}

impl HttpBody for Answering {
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
pub(super) struct Guests {
    places: Arc<Semaphore>,
    all: Mutex<Vec<Arc<Guest>>>,
}

/// A connection's place, which is free again with the value.
pub(super) struct Place {
    pub(super) guest: Arc<Guest>,
    guests: Arc<Guests>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.guests.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|guest| !Arc::ptr_eq(guest, &self.guest));
    }
}

impl Guests {
    /// With so many places.
    pub(super) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(places)),
            all: Mutex::default(),
        })
    }

    /// A place for one more, as soon as there is one.
    pub(super) async fn place(self: &Arc<Self>) -> Option<Place> {
        let permit = loop {
            if let Ok(permit) = self.places.clone().try_acquire_owned() {
                break permit;
            }
            self.ask_one_to_leave();
            // Else nobody has left.
            if let Ok(permit) = tokio::time::timeout(LOOK, self.places.clone().acquire_owned()).await {
                break permit.ok()?;
            }
        };
        let guest = Arc::new(Guest {
            asked: AtomicUsize::new(0),
            since: Mutex::new(Instant::now()),
            is_waited_for: AtomicBool::new(false),
            leave: Notify::new(),
        });
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(guest.clone());
        drop(all);
        Some(Place {
            guest,
            guests: self.clone(),
            _permit: permit,
        })
    }

    fn ask_one_to_leave(&self) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = all.iter().filter_map(|guest| Some((guest.idle()?, guest)));
        if let Some((_, guest)) = idle
            .filter(|(idle, _)| *idle >= LEAST_IDLE)
            .max_by_key(|(idle, _)| *idle)
        {
            guest.leave.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_nothing_leaves_for_who_comes() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let begun = Instant::now();
            let guests = Guests::new(2);
            let busy = guests.place().await.unwrap();
            let idle = guests.place().await.unwrap();
            busy.guest.asks();
            let leaves = tokio::spawn(async move {
                idle.guest.leave.notified().await;
                drop(idle);
            });
            let next = guests.place().await.unwrap();
            assert!(begun.elapsed() >= LEAST_IDLE - LOOK && leaves.await.is_ok());
            // Nobody has to leave who is being answered, or has just come.
            next.guest.asks();
            let none = tokio::time::timeout(LEAST_IDLE + 3 * LOOK, guests.place()).await;
            assert!(none.is_err());
            busy.guest.is_answered();
            assert!(busy.guest.idle().is_some() && next.guest.idle().is_none());
            drop(next);
            assert!(guests.place().await.is_some());
            assert_eq!(guests.all.lock().unwrap().len(), 1);
        });
    }

    #[test]
    fn a_download_is_answered_when_its_body_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let place = Guests::new(1).place().await.unwrap();
            let question = Question::of(&place.guest);
            assert_eq!(place.guest.idle(), None);
            let answer = question.answered(Response::new(Body::from("rows")));
            assert_eq!(answer.body().size_hint().exact(), Some(4));
            assert_eq!(place.guest.idle(), None);
            drop(answer);
            assert!(place.guest.idle().is_some());
        });
    }
}
