//! The connection to the daemon: made, lost, and made again.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{
    Capture, Captured, Connection, FromCollector, Hello, JobKey, StepReport, ToCollector, Totals,
};
use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::writer::Files;

use super::files::DaemonFiles;
use super::job;
use super::line::Line;
use crate::complain::complain;
use crate::{config, forked, signals};

/// How long the program's own thread may be held up by a daemon that is there, once.
const FIRST_PATIENCE: Duration = Duration::from_millis(50);
/// How long after a try the next comes, at first and at the most.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The same where the daemon has refused, as it does when too much is watched or its disk is full.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// How often is told what happened.
const REPORT: Duration = Duration::from_millis(500);
/// Steps in one packet.
const STEPS_A_PACKET: usize = 128;
/// Steps that wait for a daemon that does not read, at the most.
const MOST_WAITING: usize = 8192;

/// What the daemon wants, or what became of it.
pub(crate) enum Event {
    /// It has let this process in, into this segment.
    Joined {
        segment: u32,
        recording: String,
        is_full: bool,
    },
    /// It is gone.
    Lost,
    /// A new segment is to begin.
    Cut,
    /// Kernels are to be recorded for a while.
    Capture(Capture),
}

/// This process's side of the connection.
pub(crate) struct Link {
    line: Arc<Mutex<Line>>,
    /// A call that the daemon has not answered yet.
    calling: Option<Connection>,
    folder: String,
    job: JobKey,
    sockets: &'static [PathBuf],
    is_joined: bool,
    was_joined: bool,
    is_refused: bool,
    /// The next segment that may be written.
    next_segment: u32,
    tried: Instant,
    pause: Duration,
    reported: Instant,
    waiting: VecDeque<StepReport>,
    lost_reports: u64,
    /// Steps that were told of.
    told_steps: u64,
    told: Option<Totals>,
}

impl Link {
    /// Looks for the daemon, on the program's own thread: at most for [`FIRST_PATIENCE`].
    pub(crate) fn begin(header: &ProcessHeader, folder: String) -> (Self, Option<Event>) {
        let mut link = Self::new(header, folder, &config::get().sockets);
        let joined = signals::quietly(|| link.join(header, FIRST_PATIENCE));
        (link, joined)
    }

    fn new(header: &ProcessHeader, folder: String, sockets: &'static [PathBuf]) -> Self {
        Self {
            line: Arc::default(),
            calling: None,
            folder,
            job: job::key(header, &|name| std::env::var(name).ok()),
            sockets,
            is_joined: false,
            was_joined: false,
            is_refused: false,
            next_segment: 0,
            tried: Instant::now(),
            pause: PAUSE,
            reported: Instant::now(),
            waiting: VecDeque::new(),
            lost_reports: 0,
            told_steps: 0,
            told: None,
        }
    }

    /// The process's folder, as it is named in the recording.
    pub(crate) fn folder(&self) -> &Path {
        Path::new(&self.folder)
    }

    /// Its files.
    pub(crate) fn files(&self) -> Arc<dyn Files> {
        Arc::new(DaemonFiles::new(Arc::clone(&self.line)))
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the daemon takes what is recorded.
    pub(crate) fn is_joined(&self) -> bool {
        self.is_joined
    }

    /// Has nothing more to do with this daemon; the next try comes later.
    pub(crate) fn hang_up(&mut self) {
        self.line().connection = None;
        self.calling = None;
        self.is_joined = false;
        self.tried = Instant::now();
        // It may know this one, from a question whose answer came too late.
        self.next_segment += 1;
    }

    /// A segment was begun.
    pub(crate) fn begun_segment(&mut self, segment: u32) {
        self.next_segment = self.next_segment.max(segment + 1);
    }

    /// Calls the daemon, and says that this process wants to join.
    fn call(&self, header: &ProcessHeader) -> Option<Connection> {
        let connection = self
            .sockets
            .iter()
            .find_map(|path| Connection::connect_trusted(path).ok())?;
        let hello = Hello::Collector {
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        connection.send(&hello, None).ok()?;
        let join = FromCollector::Join {
            folder: self.folder.clone(),
            segment: self.next_segment,
            job: self.job.clone(),
            pid: header.pid,
            rank: header.rank,
            world_size: header.world_size,
        };
        connection.send(&join, None).ok()?;
        Some(connection)
    }

    /// At the process's end: a daemon that stood still when it was last looked for may read later what is said now, though nobody waits
    /// for its answer.
    pub(crate) fn call_once_more(&mut self, header: &ProcessHeader) {
        if self.is_joined {
            return;
        }
        let called = self.calling.take();
        let again = || self.was_joined.then(|| self.call(header)).flatten();
        if let Some(connection) = called.or_else(again) {
            self.line().connect(connection);
        }
    }

    /// Calls the daemon, and waits a moment for its answer.
    fn join(&mut self, header: &ProcessHeader, patience: Duration) -> Option<Event> {
        self.tried = Instant::now();
        let until = Instant::now() + patience;
        let connection = self.call(header)?;
        if let Some(number) = connection.number() {
            forked::closes(number, connection.inode());
        }
        self.calling = Some(connection);
        self.answered(until.saturating_duration_since(Instant::now()))
    }

    /// What the daemon says to our call. One that is slow knows that we wait, so the connection stays.
    fn answered(&mut self, wait: Duration) -> Option<Event> {
        let connection = self.calling.as_ref()?;
        let answer = match connection.receive::<ToCollector>(wait) {
            Ok(Some((answer, _))) => Some(answer),
            Ok(None) if !connection.is_lost() => return None,
            Ok(None) | Err(_) => None,
        };
        let connection = self.calling.take()?;
        match answer {
            Some(ToCollector::Welcome {
                options,
                recording,
                full,
            }) => {
                config::give(*options);
                self.line().connect(connection);
                self.is_joined = true;
                self.was_joined = true;
                self.pause = PAUSE;
                self.told = None;
                return Some(Event::Joined {
                    segment: self.next_segment,
                    recording,
                    is_full: full,
                });
            }
            Some(ToCollector::Refused { why }) => {
                self.is_refused = true;
                self.pause = self.pause.max(REFUSED_PAUSE);
                complain(&format!("the daemon does not record this process: {why}"));
            }
            // It is gone, or no daemon that we know.
            _ => self.pause = PAUSE,
        }
        self.tried = Instant::now();
        None
    }

    /// What is new: what the daemon wants, and whether there is one.
    pub(crate) fn look(&mut self, header: &ProcessHeader) -> Option<Event> {
        if !self.is_joined {
            if self.calling.is_some() {
                return self.answered(Duration::ZERO);
            }
            if self.tried.elapsed() < self.pause {
                return None;
            }
            let longest = if self.is_refused {
                LONGEST_REFUSED_PAUSE
            } else {
                LONGEST_PAUSE
            };
            self.pause = (self.pause * 2).min(longest);
            self.is_refused = false;
            return self.join(header, FIRST_PATIENCE);
        }
        let mut line = self.line();
        let order = line.order();
        if order.is_none() && line.connection.as_ref().is_none_or(Connection::is_lost) {
            line.connection = None;
            drop(line);
            self.is_joined = false;
            (self.tried, self.pause) = (Instant::now(), PAUSE);
            return Some(Event::Lost);
        }
        match order? {
            ToCollector::Cut => Some(Event::Cut),
            ToCollector::Capture(capture) => Some(Event::Capture(capture)),
            _ => None,
        }
    }

    /// Whether it is time to tell what happened.
    pub(crate) fn is_report_due(&self) -> bool {
        self.is_joined && self.reported.elapsed() >= REPORT
    }

    /// Steps that have ended; those that can't be told wait. `totals` has those that nobody is told of.
    pub(crate) fn report(&mut self, steps: Vec<StepReport>, mut totals: Totals) {
        self.reported = Instant::now();
        self.waiting.extend(steps);
        let excess = self.waiting.len().saturating_sub(MOST_WAITING);
        self.waiting.drain(..excess);
        self.lost_reports += excess as u64;
        totals.lost_rows += self.lost_reports;
        let untold = totals.steps + self.lost_reports;
        loop {
            let count = self.waiting.len().min(STEPS_A_PACKET);
            totals.steps = untold + self.told_steps + count as u64;
            if count == 0 && self.told.as_ref() == Some(&totals) {
                return;
            }
            let message = FromCollector::Report {
                steps: self.waiting.iter().take(count).cloned().collect(),
                totals: totals.clone(),
            };
            if self.line().send(&message).is_err() {
                return;
            }
            self.waiting.drain(..count);
            self.told_steps += count as u64;
            self.told = Some(totals.clone());
        }
    }

    /// A new segment was begun, as was asked for.
    pub(crate) fn cut(&self, last: u32) {
        // A daemon that is gone does not want to know; one that does not read has lost it.
        drop(self.line().send(&FromCollector::Cut { segment: last }));
    }

    /// A capture is over.
    pub(crate) fn captured(&self, captured: Captured) {
        // As above.
        drop(self.line().send(&FromCollector::Captured(captured)));
    }

    /// The process ends.
    pub(crate) fn leave(&self) {
        // As above.
        drop(self.line().send(&FromCollector::Leave));
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
    };

    use super::*;

    #[test]
    fn a_call_that_is_answered_late_is_answered_all_the_same() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("daemon.sock");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let daemon = socket_with(AddressFamily::UNIX, kind, flags, None).expect("a socket");
        bind(&daemon, &SocketAddrUnix::new(&path).expect("a path")).expect("bound");
        listen(&daemon, 8).expect("listening");
        let header = ProcessHeader::new();
        let mut link = Link::new(&header, "node7-1-5".to_owned(), Vec::leak(vec![path]));
        // The program's own thread waits no longer than it may.
        let begun = Instant::now();
        assert!(link.join(&header, FIRST_PATIENCE).is_none());
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        std::thread::sleep(PAUSE * 2);
        for _ in 0..10 {
            assert!(link.look(&header).is_none());
        }
        let called = Connection::of(accept(&daemon).expect("it has called")).expect("open");
        accept(&daemon).expect_err("once");
        let hears = |connection: &Connection| {
            let hello = connection.receive::<Hello>(Duration::ZERO).expect("open");
            assert!(hello.is_some());
            let join = connection.receive::<FromCollector>(Duration::ZERO).expect("open");
            assert!(matches!(join, Some((FromCollector::Join { .. }, _))), "{join:?}");
        };
        hears(&called);
        let welcome = ToCollector::Welcome {
            options: Box::new(config::options().clone()),
            recording: "r".to_owned(),
            full: false,
        };
        called.send(&welcome, None).expect("sent");
        let joined = link.look(&header);
        assert!(matches!(joined, Some(Event::Joined { segment: 0, .. })), "joined");
        assert!(link.is_joined());
        // One that is gone without an answer is looked for again.
        drop(called);
        assert!(matches!(link.look(&header), Some(Event::Lost)));
        std::thread::sleep(PAUSE);
        assert!(link.look(&header).is_none());
        drop(accept(&daemon).expect("it has called again"));
        assert!(link.look(&header).is_none());
        std::thread::sleep(PAUSE);
        assert!(link.look(&header).is_none());
        hears(&Connection::of(accept(&daemon).expect("a third time")).expect("open"));
    }
}
