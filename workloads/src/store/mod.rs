//! The control plane between ranks, over TCP: what they tell each other beside their GPUs, and who is still there.
//!
//! Rank 0 listens, all others connect to it once and stay connected. A thread reads each connection all the time, so a
//! rank that dies is noticed wherever the others are: its end closes the connection, and a rank that ends well says so
//! first. What the training code calls ([`Store::broadcast`] and so on) is collective: all ranks make the same calls
//! in the same order.

mod meeting;
mod members;
mod membership;
mod verdict;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::comm::UniqueId;
use crate::error::Error;
use crate::rank::Rank;
pub(crate) use members::host_name;
use membership::Membership;
use verdict::Ending;
use wire::Kind;

/// How long ranks wait for all to come, and afterwards for each other in one call.
const MEETING_PATIENCE: Duration = Duration::from_secs(120);
const CALL_PATIENCE: Duration = Duration::from_secs(600);
/// Overrides both, in seconds.
pub(crate) const TIMEOUT_VARIABLE: &str = "WORKLOAD_TIMEOUT";
/// Up to so many bytes are sent unasked. More wait at the sender until the receiver gets to them.
const UNASKED_BYTES: usize = 64 * 1024;

/// The operations, by their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Operation {
    Broadcast = 1,
    Gather = 2,
    Barrier = 3,
}

impl Operation {
    fn name(number: u8) -> &'static str {
        match number {
            1 => "broadcast",
            2 => "gather",
            3 => "barrier",
            _ => "nothing that is known",
        }
    }
}

/// The ranks of a run, connected.
pub(crate) struct Store {
    membership: Arc<Membership>,
    patience: Duration,
    /// How many operations there were. Held while one runs: threads take turns.
    count: std::sync::Mutex<u32>,
}

impl Store {
    /// Meets all other ranks, and ends this process when one of them is lost later. One rank needs no connection.
    pub(crate) fn join(rank: &Rank) -> Result<Arc<Self>, Error> {
        Self::join_with(rank, Ending::of_process(rank.launched))
    }

    fn join_with(rank: &Rank, ending: Ending) -> Result<Arc<Self>, Error> {
        let [meeting, call] = patience(std::env::var(TIMEOUT_VARIABLE).ok().as_deref())?;
        let membership = meeting::meet(rank, ending, meeting)?;
        Ok(Arc::new(Self {
            membership,
            patience: call,
            count: std::sync::Mutex::new(0),
        }))
    }

    /// Whether this is rank 0.
    pub(crate) fn is_first(&self) -> bool {
        self.membership.rank() == 0
    }

    /// Rank 0's bytes for all; it alone gives some.
    pub(crate) fn broadcast(&self, from_rank_0: Option<&[u8]>) -> Result<Vec<u8>, Error> {
        self.run(Operation::Broadcast, |turn| turn.broadcast(from_rank_0))
    }

    /// All ranks' bytes, by rank, on rank 0; `None` on the others. They are held once: whoever is not asked yet waits
    /// with large ones.
    pub(crate) fn gather(&self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Error> {
        self.run(Operation::Gather, |turn| turn.gather(bytes))
    }

    /// Waits until all ranks are here.
    pub(crate) fn barrier(&self) -> Result<(), Error> {
        self.run(Operation::Barrier, |turn| {
            let all = turn.gather(&[])?;
            turn.broadcast(all.map(|_| &[][..])).map(|_| ())
        })
    }

    /// The id that rank 0 makes, for all.
    pub(crate) fn share_id(&self, make: impl FnOnce() -> Result<UniqueId, Error>) -> Result<UniqueId, Error> {
        let made = if self.is_first() { Some(make()?) } else { None };
        let told = self.broadcast(made.as_ref().map(|id| &id.0[..]))?;
        let id = told
            .try_into()
            .map_err(|_| Error::new("rank 0 shared something else than an id"))?;
        Ok(UniqueId(id))
    }

    /// The end of this rank's work: says goodbye, or tells the others what went wrong. To be called when all that
    /// the ranks have in common (communicators) is closed.
    ///
    /// Gives back the outcome where it is for this process to tell. Where an error is only what another rank's end
    /// did to this one, the process is ended instead, after a line about that rank.
    pub(crate) fn leave<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        match &outcome {
            Ok(_) => self.membership.say_goodbye(Instant::now() + self.patience)?,
            Err(error) => self.membership.say_failed(&error.to_string())?,
        }
        outcome
    }

    fn run<T>(
        &self,
        operation: Operation,
        body: impl FnOnce(&mut Turn<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut count = self
            .count
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *count = count.wrapping_add(1);
        body(&mut Turn {
            membership: &self.membership,
            operation: operation as u8,
            sequence: *count,
            deadline: Instant::now() + self.patience,
            patience: self.patience,
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.membership.close();
    }
}

/// One operation while it runs.
struct Turn<'a> {
    membership: &'a Membership,
    operation: u8,
    sequence: u32,
    deadline: Instant,
    patience: Duration,
}

impl Turn<'_> {
    fn broadcast(&mut self, from_rank_0: Option<&[u8]>) -> Result<Vec<u8>, Error> {
        if self.membership.rank() != 0 {
            return self.receive(0);
        }
        let bytes =
            from_rank_0.ok_or_else(|| Error::new("rank 0 broadcasts nothing: it has to give the bytes"))?;
        for peer in 1..self.membership.ranks() {
            self.send(peer, bytes)?;
        }
        Ok(bytes.to_vec())
    }

    fn gather(&mut self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Error> {
        if self.membership.rank() != 0 {
            self.send(0, bytes)?;
            return Ok(None);
        }
        let mut all = vec![bytes.to_vec()];
        for peer in 1..self.membership.ranks() {
            all.push(self.receive(peer)?);
        }
        Ok(Some(all))
    }

    fn send(&self, peer: u32, bytes: &[u8]) -> Result<(), Error> {
        let operation = (self.operation, self.sequence);
        if bytes.len() > UNASKED_BYTES {
            self.membership
                .write(peer, Kind::Offer, operation, &(bytes.len() as u64).to_le_bytes())?;
            self.expect(peer, &[Kind::Go])?;
        }
        self.membership.write(peer, Kind::Data, operation, bytes)
    }

    fn receive(&self, peer: u32) -> Result<Vec<u8>, Error> {
        let first = self.expect(peer, &[Kind::Data, Kind::Offer])?;
        if first.kind == Kind::Data {
            return Ok(first.payload);
        }
        self.membership
            .write(peer, Kind::Go, (self.operation, self.sequence), &[])?;
        Ok(self.expect(peer, &[Kind::Data])?.payload)
    }

    /// The next frame of a rank, which has to belong to this operation.
    fn expect(&self, peer: u32, kinds: &[Kind]) -> Result<wire::Frame, Error> {
        let name = Operation::name(self.operation);
        let frame = self.membership.next_frame(peer, self.deadline, &|peer| {
            format!(
                "{name}: {peer} did not come to it for {} s ({TIMEOUT_VARIABLE} sets how long to wait)",
                self.patience.as_secs()
            )
        })?;
        if (frame.operation, frame.sequence) == (self.operation, self.sequence) && kinds.contains(&frame.kind)
        {
            return Ok(frame);
        }
        Err(Error::new(format!(
            "the ranks do different things: {name} (operation {} of the control plane) here, {} ({}) on {}",
            self.sequence,
            Operation::name(frame.operation),
            frame.sequence,
            self.membership.name_of(peer),
        )))
    }
}

/// How long to wait for the meeting and in a call, by what the variable says.
fn patience(variable: Option<&str>) -> Result<[Duration; 2], Error> {
    let Some(text) = variable else {
        return Ok([MEETING_PATIENCE, CALL_PATIENCE]);
    };
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e7 => Ok([Duration::from_secs_f64(seconds); 2]),
        _ => Err(Error::new(format!(
            "{TIMEOUT_VARIABLE}={text}: not a number of seconds above 0"
        ))),
    }
}

#[cfg(test)]
mod tests;
