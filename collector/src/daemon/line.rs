//! What is said to the daemon and by it, on one connection.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Connection, FromCollector, ToCollector};

/// How long our thread waits for an answer. One that takes longer, as with a disk that stands still, is taken when it comes.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is said to the daemon and by it.
#[derive(Default)]
pub(super) struct Line {
    pub(super) connection: Option<Connection>,
    orders: VecDeque<ToCollector>,
    /// What was asked and is not answered yet: one thing at a time, so that each answer is known by its place.
    asked: Option<FromCollector>,
    /// It was waited for in vain, and is only looked for until it comes.
    is_late: bool,
}

/// What is returned while an answer has not come yet: it may be asked for again.
fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the daemon has not answered yet")
}

impl Line {
    /// Goes on with another connection.
    pub(super) fn connect(&mut self, connection: Connection) {
        *self = Self {
            connection: Some(connection),
            ..Self::default()
        };
    }

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

    /// Asks for something, and waits for the answer; orders that come before it are kept. What was asked before and not answered in time
    /// is not asked twice; the answer to something else goes by.
    ///
    /// # Errors
    /// `TimedOut` when there is none yet; others when there will be none.
    pub(super) fn ask(&mut self, message: &FromCollector) -> io::Result<Option<OwnedFd>> {
        if self.asked.as_ref().is_some_and(|asked| asked != message)
            && let Err(error) = self.answer()
            && self.asked.is_some()
        {
            return Err(error);
        }
        if self.asked.is_none() {
            self.send(message)?;
            self.asked = Some(message.clone());
        }
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Option<OwnedFd>> {
        let patience = if self.is_late { Duration::ZERO } else { PATIENCE };
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.receive(left) {
                Some((ToCollector::Made, file)) => return Ok(file),
                Some((ToCollector::Failed { why }, _)) => return Err(io::Error::other(why)),
                Some((order, _)) => self.orders.push_back(order),
                None if self.connection.is_none() => return Err(io::ErrorKind::NotConnected.into()),
                None if left.is_zero() => {
                    self.is_late = true;
                    return Err(late());
                }
                None => {}
            }
        }
    }

    /// The next order, if there is one. An answer that comes meanwhile is to what nobody waits for any more: it is asked for again.
    pub(super) fn order(&mut self) -> Option<ToCollector> {
        if let Some(order) = self.orders.pop_front() {
            return Some(order);
        }
        loop {
            match self.receive(Duration::ZERO)?.0 {
                ToCollector::Made | ToCollector::Failed { .. } => {}
                order => return Some(order),
            }
        }
    }

    /// The next message, if one comes in time. What is not understood is passed over.
    fn receive(&mut self, wait: Duration) -> Option<(ToCollector, Option<OwnedFd>)> {
        match self.connection.as_ref()?.receive(wait) {
            Ok(received) => {
                if let Some((ToCollector::Made | ToCollector::Failed { .. }, _)) = &received {
                    (self.asked, self.is_late) = (None, false);
                }
                received
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(_) => {
                self.connection = None;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (Line, Connection) {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).expect("a pair");
        let mut line = Line::default();
        line.connect(Connection::of(ours).expect("open"));
        (line, Connection::of(theirs).expect("open"))
    }

    fn asked(daemon: &Connection) -> Option<FromCollector> {
        let received = daemon.receive(Duration::ZERO).expect("connected");
        received.map(|(message, _)| message)
    }

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        io::Write::write_all(&mut file, text.as_bytes()).expect("written");
        io::Seek::rewind(&mut file).expect("at its beginning");
        file
    }

    fn text(file: Option<OwnedFd>) -> String {
        let mut text = String::new();
        let mut file = File::from(file.expect("a file"));
        file.read_to_string(&mut text).expect("read");
        text
    }

    fn open(table: &str) -> FromCollector {
        FromCollector::Open {
            table: table.to_owned(),
            segment: Some(0),
        }
    }

    #[test]
    fn an_answer_that_comes_late_is_that_to_what_was_asked() {
        let (mut line, daemon) = pair();
        let begun = Instant::now();
        let is_late = |line: &mut Line, table| {
            let error = line.ask(&open(table)).expect_err("no answer");
            error.kind() == io::ErrorKind::TimedOut
        };
        assert!(is_late(&mut line, "kernels"));
        let waited = begun.elapsed();
        assert!((PATIENCE..PATIENCE * 5).contains(&waited), "{waited:?}");
        // From now on nobody waits for it, and nothing more is asked.
        for _ in 0..100 {
            assert!(is_late(&mut line, "kernels") && is_late(&mut line, "copies"));
        }
        assert!(begun.elapsed() < waited + PATIENCE / 2);
        assert_eq!((asked(&daemon), asked(&daemon)), (Some(open("kernels")), None));
        daemon.send(&ToCollector::Cut, None).expect("sent");
        let send = |text| {
            daemon
                .send(&ToCollector::Made, Some(file(text).as_fd()))
                .expect("sent");
        };
        send("kernels");
        assert_eq!(text(line.ask(&open("kernels")).expect("opened")), "kernels");
        assert_eq!(line.order(), Some(ToCollector::Cut));
        // One that nobody asks for any more goes by, whether something else is asked or orders are looked for.
        for looks in [false, true] {
            assert!(is_late(&mut line, "kernels"));
            send("kernels");
            send("copies");
            if looks {
                assert_eq!(line.order(), None);
                send("copies");
            }
            assert_eq!(text(line.ask(&open("copies")).expect("opened")), "copies");
            while asked(&daemon).is_some() {}
        }
    }

    #[test]
    fn another_daemon_is_asked_anew() {
        let (mut line, daemon) = pair();
        line.ask(&open("kernels")).expect_err("no answer");
        drop(daemon);
        let error = line.ask(&open("kernels")).expect_err("nobody");
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        let (next, daemon) = pair();
        line.connect(next.connection.expect("connected"));
        daemon
            .send(&ToCollector::Failed { why: "no".to_owned() }, None)
            .expect("sent");
        let error = line.ask(&open("kernels")).expect_err("refused");
        assert_eq!(
            (error.to_string(), asked(&daemon)),
            ("no".to_owned(), Some(open("kernels")))
        );
    }
}
