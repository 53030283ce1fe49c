//! Where recordings are read: only so many at one time.

use std::sync::{Condvar, Mutex, PoisonError};

use super::entry::lock;

/// Recordings that are read at one time.
const READERS: usize = 2;

/// Lets only so many read at one time.
#[derive(Default)]
pub(super) struct Desk {
    reading: Mutex<usize>,
    free: Condvar,
}

impl Desk {
    /// Waits for a seat, which is free again when it is dropped.
    pub(super) fn enter(&self) -> Seat<'_> {
        let mut reading = lock(&self.reading);
        while *reading >= READERS {
            reading = self.free.wait(reading).unwrap_or_else(PoisonError::into_inner);
        }
        *reading += 1;
        Seat(self)
    }
}

/// A place of one that reads.
pub(super) struct Seat<'a>(&'a Desk);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *lock(&self.0.reading) -= 1;
        self.0.free.notify_one();
    }
}
