//! Who is connected: when all places are taken, whoever has been asking nothing the longest leaves for who comes.
//!
//! A thousand connections that are opened and left alone, or that never end their question, would else keep everybody out for
//! as long as a client is waited for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    /// Told when it has to leave.
    pub(super) leave: Notify,
}

impl Guest {
    /// A question begins to be answered.
    pub(super) fn asks(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer is there.
    pub(super) fn is_answered(&self) {
        self.took();
        self.asked.fetch_sub(1, Ordering::Relaxed);
    }

    /// It took a part of an answer.
    pub(super) fn took(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long it has been asking nothing and taking nothing; nothing while it waits for us.
    fn idle(&self) -> Option<Duration> {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        (self.asked.load(Ordering::Relaxed) == 0).then(|| since.elapsed())
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
            let guests = Guests::new(2);
            let busy = guests.place().await.unwrap();
            let idle = guests.place().await.unwrap();
            busy.guest.asks();
            let leaves = tokio::spawn(async move {
                idle.guest.leave.notified().await;
                drop(idle);
            });
            let begun = Instant::now();
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
}
