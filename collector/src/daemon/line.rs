//! What is said to the daemon and by it, on one connection.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Connection, FromCollector, ToCollector};

/// How long our thread waits for an answer. A daemon that takes longer counts as gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is said to the daemon and by it.
pub(super) struct Line {
    pub(super) connection: Option<Connection>,
    pub(super) orders: VecDeque<ToCollector>,
}

impl Line {
    /// Says something.
    pub(super) fn send(&mut self, message: &FromCollector) -> io::Result<()> {
        let connection = self.connection.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let sent = connection.send(message, None);
        if let Err(error) = &sent
            && !matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::InvalidInput
            )
        {
            self.connection = None;
        }
        sent
    }

    /// Asks for something, and waits for the answer; orders that come before it are kept.
    pub(super) fn ask(&mut self, message: &FromCollector) -> io::Result<Option<OwnedFd>> {
        self.send(message)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.receive(left) {
                Some((ToCollector::Made, file)) => return Ok(file),
                Some((ToCollector::Failed { why }, _)) => return Err(io::Error::other(why)),
                Some((order, _)) => self.orders.push_back(order),
                None if self.connection.is_none() => return Err(io::ErrorKind::NotConnected.into()),
                None if left.is_zero() => {
                    // An answer that comes later would be taken for that to the next question.
                    self.connection = None;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                None => {}
            }
        }
    }

    /// The next message, if one comes in time. What is not understood is passed over.
    pub(super) fn receive(&mut self, wait: Duration) -> Option<(ToCollector, Option<OwnedFd>)> {
        match self.connection.as_ref()?.receive(wait) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(_) => {
                self.connection = None;
                None
            }
        }
    }
}
