//! One that called: what it may still say, and what it has not read yet.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Answer, Connection, ToCollector};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::peer::Peer;

/// Packets that one caller is listened to, a second; it waits with more.
const PACKETS_PER_SECOND: f64 = 2000.0;
/// Packets at once.
const BURST: f64 = 4000.0;
/// Packets that wait for a collector that does not read: it asks for one thing at a time, and each may hold a descriptor.
const MOST_WAITING: usize = 256;
/// What it may want of its files at a time: more is heard when that is done.
const MOST_WANTS: u32 = 16;
/// Files of a recording that are opened for a client at a time.
const FILES_AT_ONCE: usize = 64;
/// Bytes of text that wait for it.
const MOST_WAITING_BYTES: usize = 8 << 20;
/// So long one may not read while something waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
/// So long one may take to say who it is.
const SILENCE: Duration = Duration::from_secs(10);
/// Text of one packet: JSON within JSON doubles quotes.
const CHUNK_BYTES: usize = 8 << 10;

/// Something to be sent.
enum Waiting {
    ToCollector(ToCollector, Option<OwnedFd>),
    Answer(Answer),
    /// A file of a recording, by its path in it.
    File(String, OwnedFd),
}

/// What a caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has not said.
    New,
    /// A collector, before it has joined.
    Collector,
    /// A process of a job, by the job's and the process's name.
    Process {
        /// The job.
        job: String,
        /// The process's folder.
        folder: String,
    },
    /// A client, whose question is being answered.
    Client,
    /// A client that has all its answers: it goes when it has read them.
    Answered,
}

/// A connection of somebody's.
pub struct Caller {
    connection: Connection,
    /// Its number, for `poll`.
    pub descriptor: RawFd,
    /// Who it is.
    pub peer: Peer,
    /// What it is.
    pub role: Role,
    since: Instant,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Files of a recording that are still to be opened for it.
    unopened: VecDeque<(String, PathBuf)>,
    is_opening: bool,
    /// What it wants of its files and has not got yet.
    pub wants: u32,
    blocked: Option<Instant>,
    allowance: f64,
    counted: Instant,
}

impl Caller {
    /// One that has just called; nobody where it has gone already.
    pub fn new(connection: Connection, peer: Peer) -> Option<Self> {
        let now = Instant::now();
        Some(Self {
            descriptor: connection.number()?,
            connection,
            peer,
            role: Role::New,
            since: now,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            unopened: VecDeque::new(),
            is_opening: false,
            wants: 0,
            blocked: None,
            allowance: BURST,
            counted: now,
        })
    }

    /// The next that it says; nothing where it says nothing now. What descriptors come with it are closed.
    ///
    /// # Errors
    /// `InvalidData` for what is not understood; others when it is gone.
    pub fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let heard = self.connection.receive::<T>(Duration::ZERO)?;
        Ok(heard.map(|(said, _)| said))
    }

    /// Whether it may say something now: one that says too much, or wants more than the disk can do, is listened to later.
    pub fn may_speak(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.counted).as_secs_f64();
        self.allowance = (self.allowance + passed * PACKETS_PER_SECOND).min(BURST);
        self.counted = now;
        self.allowance >= 1.0 && self.wants < MOST_WANTS
    }

    /// Counts a packet, or what is as much work as so many.
    pub fn has_spoken(&mut self, packets: f64) {
        self.allowance -= packets;
    }

    /// Whether something waits to be read by it.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether it has been silent, or has not read, for too long, or is done.
    pub fn is_over(&self, now: Instant) -> Option<&'static str> {
        let past = |since: Instant, most: Duration| now.saturating_duration_since(since) > most;
        match &self.role {
            Role::New if past(self.since, SILENCE) => Some("said nothing"),
            Role::Answered if self.waiting.is_empty() => Some(""),
            _ if self.blocked.is_some_and(|since| past(since, PATIENCE)) => Some("does not read"),
            // What a client is answered waits as paths and texts.
            _ if self.waiting.len() > MOST_WAITING && self.role != Role::Answered
                || self.waiting_bytes > MOST_WAITING_BYTES =>
            {
                Some("does not read")
            }
            _ => None,
        }
    }

    /// Says something to a collector.
    pub fn tell(&mut self, message: ToCollector, file: Option<OwnedFd>) {
        self.put(Waiting::ToCollector(message, file), 64);
    }

    /// Answers a client with a document, and with nothing more.
    pub fn answer(&mut self, document: &impl Serialize) {
        match serde_json::to_string(document) {
            Ok(text) => self.answer_text(&text),
            Err(error) => self.refuse(format!("the answer can't be written: {error}")),
        }
    }

    fn answer_text(&mut self, text: &str) {
        let mut rest = text;
        loop {
            let mut end = rest.len().min(CHUNK_BYTES);
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            let (part, behind) = rest.split_at(end);
            let part = Answer::Text {
                text: part.to_owned(),
                done: behind.is_empty(),
            };
            self.put(Waiting::Answer(part), end);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        self.finish();
    }

    /// Answers with files: the paths that they have in the recording, and where they are.
    pub fn answer_files(&mut self, files: Vec<(String, PathBuf)>) {
        self.unopened = files.into();
        if self.unopened.is_empty() {
            self.finish();
        }
    }

    /// The files that are to be opened for it next, once it has read those before.
    pub fn next_files(&mut self) -> Option<Vec<(String, PathBuf)>> {
        if self.is_opening || !self.waiting.is_empty() || self.unopened.is_empty() {
            return None;
        }
        self.is_opening = true;
        let count = self.unopened.len().min(FILES_AT_ONCE);
        Some(self.unopened.drain(..count).collect())
    }

    /// They were opened, or one could not be.
    pub fn opened(&mut self, files: Vec<(String, Result<OwnedFd, String>)>) {
        self.is_opening = false;
        for (path, file) in files {
            match file {
                Ok(file) => self.put(Waiting::File(path, file), 64),
                // The ring has moved on: a client hears that, and does not take the rest for the whole.
                Err(error) => {
                    self.unopened.clear();
                    self.waiting.clear();
                    self.waiting_bytes = 0;
                    self.refuse(format!("{path}: {error}: it was removed meanwhile; try again"));
                    return;
                }
            }
        }
        if self.unopened.is_empty() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.put(Waiting::Answer(Answer::Done), 8);
        self.role = Role::Answered;
    }

    /// Says that it can't be done.
    pub fn refuse(&mut self, why: String) {
        let bytes = why.len();
        self.put(Waiting::Answer(Answer::Failed { why }), bytes);
        self.role = Role::Answered;
    }

    fn put(&mut self, waiting: Waiting, bytes: usize) {
        self.waiting_bytes += bytes;
        self.waiting.push_back(waiting);
    }

    /// Sends what it will take now.
    ///
    /// # Errors
    /// When it is gone.
    pub fn send(&mut self) -> io::Result<()> {
        while let Some(first) = self.waiting.front() {
            let sent = match first {
                Waiting::ToCollector(message, file) => {
                    self.connection.send(message, file.as_ref().map(AsFd::as_fd))
                }
                Waiting::Answer(answer) => self.connection.send(answer, None),
                Waiting::File(path, file) => {
                    let answer = Answer::File { path: path.clone() };
                    self.connection.send(&answer, Some(file.as_fd()))
                }
            };
            match sent {
                Ok(()) => {
                    self.waiting.pop_front();
                    self.blocked = None;
                    if self.waiting.is_empty() {
                        self.waiting_bytes = 0;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked.get_or_insert_with(Instant::now);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
