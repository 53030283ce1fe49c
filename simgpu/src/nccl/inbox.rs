//! What has arrived for one rank of one communicator, and the waiting for it.
//!
//! Messages are queued by sender and class. Waiting blocks until what is waited for is there, the communicator has
//! failed or was aborted, or a sender that is waited for is gone: a rank that never calls is waited for for ever.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::errors::{Failure, Outcome};
use super::{lock, result};

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    /// Greets on a new connection; belongs to no communicator.
    Hello = 0,
    /// Between host threads: ncclCommSplit.
    Control = 1,
    /// A rank has arrived at a collective.
    Arrival = 2,
    /// Data of a collective.
    Data = 3,
    /// The next phase of a collective may begin: memory is ready to be read, or has been read.
    Notice = 4,
    /// Room in the receiver's buffer for collectives.
    Room = 5,
    /// A send is ready.
    Offer = 6,
    /// The receiver of an offer asks for its data.
    Ask = 7,
    /// Data of a send.
    SendData = 8,
    /// The receiver has all of a send.
    Received = 9,
    /// Room in the receiver's buffer for sends.
    SendRoom = 10,
    /// The rank has destroyed its communicator, or its process exits: nothing more will come, and that is fine.
    Goodbye = 11,
    /// The rank has aborted its communicator; with what went wrong before, if anything.
    Abort = 12,
}

/// How many classes there are.
pub(super) const CLASSES: usize = 13;

impl Class {
    /// The class of a number that came over a connection.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [
            Self::Hello,
            Self::Control,
            Self::Arrival,
            Self::Data,
            Self::Notice,
            Self::Room,
            Self::Offer,
            Self::Ask,
            Self::SendData,
            Self::Received,
            Self::SendRoom,
            Self::Goodbye,
            Self::Abort,
        ]
        .into_iter()
        .find(|class| *class as u8 == number)
    }
}

/// What came from one rank.
pub(super) struct Sender {
    queues: [VecDeque<Vec<u8>>; CLASSES],
    /// It said goodbye.
    left: bool,
    /// Its process is gone, after a goodbye: nothing can come any more.
    gone: bool,
}

impl Sender {
    /// Whether a message of a class is there.
    pub(super) fn has(&self, class: Class) -> bool {
        !self.queues[class as usize].is_empty()
    }

    /// The next message of a class.
    pub(super) fn pop(&mut self, class: Class) -> Option<Vec<u8>> {
        self.queues[class as usize].pop_front()
    }
}

/// All that has arrived.
pub(super) struct State {
    pub(super) senders: Vec<Sender>,
    failure: Option<Failure>,
}

/// One rank's inbox.
pub(super) struct Inbox {
    /// How the ranks are called in errors: "rank 2 (pid 123 on host x)".
    names: Vec<String>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Inbox {
    fn new(names: Vec<String>) -> Arc<Self> {
        let sender = || Sender {
            queues: [const { VecDeque::new() }; CLASSES],
            left: false,
            gone: false,
        };
        Arc::new(Self {
            state: Mutex::new(State {
                senders: names.iter().map(|_| sender()).collect(),
                failure: None,
            }),
            names,
            changed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Puts a message in.
    fn put(&self, from: u32, class: Class, payload: Vec<u8>) {
        let mut state = self.state();
        let Some(sender) = state.senders.get_mut(from as usize) else {
            return;
        };
        match class {
            Class::Goodbye => sender.left = true,
            Class::Abort => {
                drop(state);
                let text = if payload.is_empty() {
                    format!("{} aborted the communicator", self.names[from as usize])
                } else {
                    String::from_utf8_lossy(&payload).into_owned()
                };
                self.fail(Failure::new(result::REMOTE_ERROR, text));
                return;
            }
            _ => sender.queues[class as usize].push_back(payload),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends all waiting, now and later, with an error; the first one counts.
    pub(super) fn fail(&self, failure: Failure) {
        self.state().failure.get_or_insert(failure);
        self.changed.notify_all();
    }

    /// What went wrong, if anything.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.state().failure.clone()
    }

    fn closed(&self, rank: usize) -> Failure {
        Failure::new(
            result::REMOTE_ERROR,
            format!("{} closed its connection", self.names[rank]),
        )
    }

    /// The process of these ranks is gone: an error, except for those that said goodbye and are not waited for.
    pub(super) fn lost(&self, ranks: impl Iterator<Item = u32>) {
        for rank in ranks {
            let mut state = self.state();
            let Some(sender) = state.senders.get_mut(rank as usize) else {
                continue;
            };
            sender.gone = true;
            if !sender.left {
                drop(state);
                self.fail(self.closed(rank as usize));
            }
        }
        self.changed.notify_all();
    }

    /// Waits until `ready` finds what it looks for; `awaited` are the ranks from which it must come.
    pub(super) fn wait_until<T>(
        &self,
        awaited: impl Fn() -> Vec<usize>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Outcome<T> {
        let mut state = self.state();
        loop {
            // What is here is taken even if a rank has died since it came.
            if let Some(found) = ready(&mut state) {
                return Ok(found);
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if let Some(rank) = awaited().into_iter().find(|rank| state.senders[*rank].gone) {
                let failure = self.closed(rank);
                state.failure = Some(failure.clone());
                drop(state);
                self.changed.notify_all();
                return Err(failure);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next message of a class from a rank.
    pub(super) fn wait(&self, from: usize, class: Class) -> Outcome<Vec<u8>> {
        self.wait_until(|| vec![from], |state| state.senders[from].pop(class))
    }

    /// The next message of a class from a rank, if it is there now.
    pub(super) fn take_one(&self, from: usize, class: Class) -> Option<Vec<u8>> {
        self.state().senders[from].pop(class)
    }

    /// All messages of a class from a rank that are there now.
    pub(super) fn take_all(&self, from: usize, class: Class) -> VecDeque<Vec<u8>> {
        std::mem::take(&mut self.state().senders[from].queues[class as usize])
    }

    /// Waits until the communicator fails or is aborted: what a kernel does whose ranks don't agree.
    pub(super) fn wait_for_ever(&self) -> Failure {
        let never: Outcome<std::convert::Infallible> = self.wait_until(Vec::new, |_| None);
        match never {
            Err(failure) => failure,
            Ok(never) => match never {},
        }
    }
}

/// Where messages for a rank of a communicator go.
enum Route {
    Open(Arc<Inbox>),
    /// They came before the rank's communicator was made: another rank was faster.
    Early(Vec<(u32, Class, Vec<u8>)>),
    /// The communicator is destroyed; what still comes is of no use.
    Closed,
}

/// By the communicator's key and the rank.
static ROUTES: Mutex<BTreeMap<(u64, u32), Route>> = Mutex::new(BTreeMap::new());
/// Messages that may wait for a communicator to be made: against strangers who send to ones that never will be.
const MOST_EARLY: usize = 4096;

/// Opens the inbox of a rank of communicator `key`, with what came early.
pub(super) fn open(key: u64, rank: u32, names: Vec<String>) -> Arc<Inbox> {
    let inbox = Inbox::new(names);
    let mut routes = lock(&ROUTES);
    // Early messages go in before the lock is given back: what is delivered meanwhile must come after them.
    if let Some(Route::Early(messages)) = routes.insert((key, rank), Route::Open(Arc::clone(&inbox))) {
        for (from, class, payload) in messages {
            inbox.put(from, class, payload);
        }
    }
    drop(routes);
    inbox
}

/// Closes an inbox: what comes for it from now on is dropped.
pub(super) fn close(key: u64, rank: u32) {
    lock(&ROUTES).insert((key, rank), Route::Closed);
}

/// Delivers a message to a rank in this process.
pub(super) fn deliver(key: u64, from: u32, to: u32, class: Class, payload: Vec<u8>) {
    let mut routes = lock(&ROUTES);
    match routes
        .entry((key, to))
        .or_insert_with(|| Route::Early(Vec::new()))
    {
        Route::Open(inbox) => {
            let inbox = Arc::clone(inbox);
            drop(routes);
            inbox.put(from, class, payload);
        }
        Route::Early(messages) if messages.len() < MOST_EARLY => messages.push((from, class, payload)),
        Route::Early(_) | Route::Closed => {}
    }
}
