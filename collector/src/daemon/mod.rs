//! Recording for a daemon: joined when it is there, left alone when it is not, found again when it comes back.
//!
//! Only our own thread talks to it, so that nothing of the program ever waits for it. A daemon that is gone leaves the process as it
//! is: nothing is recorded until there is one again.

mod files;
mod job;
mod line;
mod link;
mod live;
mod union;

pub(crate) use link::{Event, Link};
pub(crate) use live::{Live, Timed, What};
