//! One collective between the ranks of a communicator: arrivals and data are exchanged, and ranks agree on the end.
//!
//! Ranks that came for different collectives wait for ever, as NCCL's kernels do. Reductions go in the order of the
//! ranks, so all ranks have the same bits. Small data comes with the arrivals. Of large data each rank reduces a share:
//! it reads that from the others' memory where it can, and where it cannot (other hosts) the others send it.

use super::errors::Outcome;
use super::inbox::Class;
use super::mesh::{BUFFER_BYTES, Mesh, PIECE_BYTES, copy_memory, memory};
use super::model::Function;
use super::operation::{Factor, Operation, SCALED_SUM};
use super::reduce::{self, Accumulator};

/// Up to so many bytes over all ranks come with the arrivals.
const SMALL_BYTES: usize = 64 << 10;
/// Of an arrival, what must be the same on all ranks; then what is each rank's own.
const SAME_BYTES: usize = 24;
const ARRIVAL_BYTES: usize = SAME_BYTES + 32;

/// A rank's arrival: what it came for and where its memory is.
#[derive(Clone, Copy)]
struct Arrival {
    same: [u8; SAME_BYTES],
    start_ns: i64,
    send: u64,
    receive: u64,
    factor: [u8; 8],
}

impl Arrival {
    fn of(operation: &Operation, start_ns: i64) -> Self {
        let mut same = [0; SAME_BYTES];
        same[0] = operation.function as u8;
        same[1] = operation.datatype as u8;
        same[2] = operation.reduction.min(SCALED_SUM) as u8;
        same[4..8].copy_from_slice(&operation.root.to_le_bytes());
        same[8..16].copy_from_slice(&(operation.count as u64).to_le_bytes());
        same[16..24].copy_from_slice(&operation.sequence.to_le_bytes());
        let factor = match operation.factor {
            Factor::Known(factor) => factor,
            Factor::InMemory(address) => {
                let mut factor = [0; 8];
                let bytes = operation.element_bytes;
                factor[..bytes].copy_from_slice(memory(address, bytes));
                factor
            }
        };
        Self {
            same,
            start_ns,
            send: operation.send,
            receive: operation.receive,
            factor,
        }
    }

    fn encode(&self) -> [u8; ARRIVAL_BYTES] {
        let mut encoded = [0; ARRIVAL_BYTES];
        encoded[..SAME_BYTES].copy_from_slice(&self.same);
        let own = [
            self.start_ns.to_le_bytes(),
            self.send.to_le_bytes(),
            self.receive.to_le_bytes(),
            self.factor,
        ];
        encoded[SAME_BYTES..].copy_from_slice(&own.concat());
        encoded
    }

    /// The arrival of a message; the data that came with it follows.
    fn decode(message: &[u8]) -> Option<Self> {
        let head = message.first_chunk::<ARRIVAL_BYTES>()?;
        let word =
            |index: usize| -> [u8; 8] { head[SAME_BYTES + 8 * index..][..8].try_into().unwrap_or_default() };
        Some(Self {
            same: head[..SAME_BYTES].try_into().ok()?,
            start_ns: i64::from_le_bytes(word(0)),
            send: u64::from_le_bytes(word(1)),
            receive: u64::from_le_bytes(word(2)),
            factor: word(3),
        })
    }
}

/// A collective on its way, with the arrivals of those ranks that this one had to wait for.
struct Running<'a> {
    mesh: &'a Mesh,
    operation: &'a Operation,
    own: Arrival,
    /// By rank.
    arrivals: Vec<Option<Arrival>>,
    /// Data that came with the arrivals.
    data: Vec<Vec<u8>>,
}

/// Runs the operation, which takes `transfer_ns` once all it needs are there, from `start_ns` on; gives its end.
pub(super) fn run(mesh: &Mesh, operation: &Operation, transfer_ns: i64, start_ns: i64) -> Outcome<i64> {
    let ranks = mesh.ranks as usize;
    let mut running = Running {
        mesh,
        operation,
        own: Arrival::of(operation, start_ns),
        arrivals: vec![None; ranks],
        data: vec![Vec::new(); ranks],
    };
    let one_way = matches!(operation.function, Function::Broadcast | Function::Reduce);
    if one_way && operation.bytes() <= BUFFER_BYTES {
        running.along_the_ring()?;
    } else if !one_way && operation.bytes().saturating_mul(ranks) <= SMALL_BYTES {
        running.all_at_once()?;
    } else {
        running.by_shares()?;
    }
    let there = || {
        running
            .arrivals
            .iter()
            .flatten()
            .chain(std::iter::once(&running.own))
    };
    let last_ns = there().map(|arrival| arrival.start_ns).max().unwrap_or(start_ns);
    Ok(last_ns + transfer_ns)
}

impl Running<'_> {
    fn rank(&self) -> usize {
        self.mesh.rank as usize
    }

    fn root(&self) -> usize {
        self.operation.root as usize
    }

    fn everyone(&self) -> std::ops::Range<usize> {
        0..self.mesh.ranks as usize
    }

    /// This rank's send buffer; what of it is valid depends on the function.
    fn sent(&self, range: std::ops::Range<usize>) -> &'static [u8] {
        memory(self.operation.send + range.start as u64, range.len())
    }

    fn received(&self, range: std::ops::Range<usize>) -> &'static mut [u8] {
        memory(self.operation.receive + range.start as u64, range.len())
    }

    /// The bytes of rank `of` in a buffer of all ranks' parts.
    fn part(&self, of: usize) -> std::ops::Range<usize> {
        let bytes = self.operation.bytes();
        of * bytes..(of + 1) * bytes
    }

    /// The share of the elements that rank `of` reduces in an all-reduce, as bytes.
    fn share(&self, of: usize) -> std::ops::Range<usize> {
        let (count, ranks) = (self.operation.count, self.mesh.ranks as usize);
        let edge = |rank: usize| {
            (count / ranks * rank + count % ranks * rank / ranks) * self.operation.element_bytes
        };
        edge(of)..edge(of + 1)
    }

    /// Tells a rank that this one has arrived, with data.
    fn announce(&self, to: usize, data: &[u8]) {
        self.mesh.send(to, Class::Arrival, &[&self.own.encode(), data]);
    }

    /// Waits for a rank's arrival; for ever, if it came for something else.
    fn await_arrival(&mut self, from: usize) -> Outcome<()> {
        let mut message = self.mesh.inbox.wait(from, Class::Arrival)?;
        match Arrival::decode(&message).filter(|arrival| arrival.same == self.own.same) {
            Some(arrival) => {
                self.data[from] = message.split_off(ARRIVAL_BYTES);
                self.arrivals[from] = Some(arrival);
                Ok(())
            }
            None => Err(self.mesh.inbox.wait_for_ever()),
        }
    }

    fn await_all(&mut self) -> Outcome<()> {
        for from in self.mesh.others() {
            self.await_arrival(from)?;
        }
        Ok(())
    }

    fn accumulator(&self) -> Accumulator {
        Accumulator::new(self.operation.datatype, self.operation.reduction)
    }

    /// A rank's factor, if the reduction has factors.
    fn factor(&self, of: usize) -> Option<[u8; 8]> {
        let arrival = self.arrivals[of].as_ref().unwrap_or(&self.own);
        (self.operation.reduction == SCALED_SUM).then_some(arrival.factor)
    }

    /// Reduces parts that are all here, in the order of the ranks; a missing part is this rank's own data.
    fn reduce_here(&self, own: &[u8], into: &mut [u8]) {
        let mut sum = self.accumulator();
        for rank in self.everyone() {
            let part = if rank == self.rank() {
                own
            } else {
                &self.data[rank]
            };
            sum.add(part, self.factor(rank));
        }
        sum.finish(into, self.mesh.ranks);
    }

    /// Small data: everybody sends everybody what they need of it.
    fn all_at_once(&mut self) -> Outcome<()> {
        let bytes = self.operation.bytes();
        let scatters = self.operation.function == Function::ReduceScatter;
        for to in self.mesh.others() {
            let range = if scatters { self.part(to) } else { 0..bytes };
            self.announce(to, self.sent(range));
        }
        self.await_all()?;
        // In place, the parts lie in the receive buffer: copied out first.
        let own = self
            .sent(if scatters {
                self.part(self.rank())
            } else {
                0..bytes
            })
            .to_vec();
        if self.operation.function == Function::AllGather {
            for rank in self.everyone() {
                let part = if rank == self.rank() {
                    &own
                } else {
                    &self.data[rank]
                };
                self.received(self.part(rank)).copy_from_slice(part);
            }
        } else {
            self.reduce_here(&own, self.received(0..bytes));
        }
        Ok(())
    }

    /// Broadcast and Reduce, when their data fits the buffers between ranks: on the ring that ends (reduce) or begins
    /// (broadcast) at the root, a rank depends on those before it only, and may be through before later ones come.
    fn along_the_ring(&mut self) -> Outcome<()> {
        let (ranks, bytes) = (self.mesh.ranks as usize, self.operation.bytes());
        let broadcasts = self.operation.function == Function::Broadcast;
        let first = if broadcasts { self.root() } else { self.root() + 1 };
        let position = |rank: usize| (rank + ranks - first % ranks) % ranks;
        let own_position = position(self.rank());
        let carries = |from: usize, to: usize| {
            if broadcasts {
                from == self.root()
            } else {
                to == self.root()
            }
        };
        for to in self.mesh.others().filter(|to| position(*to) > own_position) {
            self.mesh.wait_for_room(to, Class::Room, bytes)?;
            let data = if carries(self.rank(), to) {
                self.sent(0..bytes)
            } else {
                &[]
            };
            self.announce(to, data);
        }
        for from in self.mesh.others().filter(|from| position(*from) < own_position) {
            self.await_arrival(from)?;
            self.mesh.give_room(from, Class::Room, bytes);
        }
        if broadcasts {
            if self.rank() != self.root() {
                self.received(0..bytes).copy_from_slice(&self.data[self.root()]);
            } else {
                copy_memory(self.operation.send, self.operation.receive, bytes);
            }
        } else if self.rank() == self.root() {
            let own = self.sent(0..bytes).to_vec();
            self.reduce_here(&own, self.received(0..bytes));
        }
        Ok(())
    }

    /// Large data: after all have arrived, each reads what it needs or is sent it, and nobody leaves before all who
    /// read its memory have done so.
    fn by_shares(&mut self) -> Outcome<()> {
        for to in self.mesh.others() {
            self.announce(to, &[]);
        }
        self.await_all()?;
        let (rank, root, bytes) = (self.rank(), self.root(), self.operation.bytes());
        match self.operation.function {
            Function::AllReduce => {
                self.push(|to| Some(self.sent(self.share(to))));
                let share = self.share(rank);
                self.reduce_remote(share.clone(), share.clone())?;
                self.notify(self.mesh.others());
                self.push(|_| Some(self.received(share.clone())));
                for from in self.mesh.others() {
                    self.fetch(from, true, self.share(from), self.share(from))?;
                }
                self.settle(self.mesh.others(), self.mesh.others())
            }
            Function::AllGather => {
                self.push(|_| Some(self.sent(0..bytes)));
                let own = self.operation.receive + self.part(rank).start as u64;
                copy_memory(self.operation.send, own, bytes);
                for from in self.mesh.others() {
                    self.fetch(from, false, 0..bytes, self.part(from))?;
                }
                self.settle(self.mesh.others(), self.mesh.others())
            }
            Function::ReduceScatter => {
                self.push(|to| Some(self.sent(self.part(to))));
                self.reduce_remote(self.part(rank), 0..bytes)?;
                self.settle(self.mesh.others(), self.mesh.others())
            }
            Function::Broadcast if rank == root => {
                self.push(|_| Some(self.sent(0..bytes)));
                copy_memory(self.operation.send, self.operation.receive, bytes);
                self.settle(std::iter::empty(), self.mesh.others())
            }
            Function::Broadcast => {
                self.fetch(root, false, 0..bytes, 0..bytes)?;
                self.settle(std::iter::once(root), std::iter::empty())
            }
            Function::Reduce if rank == root => {
                self.reduce_remote(0..bytes, 0..bytes)?;
                self.settle(self.mesh.others(), std::iter::empty())
            }
            Function::Reduce => {
                self.push(|to| (to == root).then(|| self.sent(0..bytes)));
                self.settle(std::iter::empty(), std::iter::once(root))
            }
        }
    }

    /// Sends data to those ranks that cannot read it themselves.
    fn push<'b>(&self, data: impl Fn(usize) -> Option<&'b [u8]>) {
        for to in self.mesh.others().filter(|to| !self.mesh.readable(*to)) {
            if let Some(data) = data(to) {
                self.mesh.send_pieces(to, Class::Data, data);
            }
        }
    }

    fn notify(&self, ranks: impl Iterator<Item = usize>) {
        for to in ranks.filter(|to| self.mesh.readable(*to)) {
            self.mesh.send(to, Class::Notice, &[]);
        }
    }

    /// Gets a range of another rank's buffer into ours. `reduced`: of its receive buffer, once it says so.
    fn fetch(
        &self,
        from: usize,
        reduced: bool,
        there: std::ops::Range<usize>,
        here: std::ops::Range<usize>,
    ) -> Outcome<()> {
        let place = self.received(here);
        let Some(arrival) = self.arrivals[from].filter(|_| self.mesh.readable(from)) else {
            return self.mesh.receive_pieces(from, Class::Data, place);
        };
        let base = if reduced {
            self.mesh.inbox.wait(from, Class::Notice)?;
            arrival.receive
        } else {
            arrival.send
        };
        self.mesh.read(from, base + there.start as u64, place)
    }

    /// Reduces a range of all ranks' send buffers into our receive buffer, piece by piece.
    fn reduce_remote(&self, of: std::ops::Range<usize>, into: std::ops::Range<usize>) -> Outcome<()> {
        let mut piece = vec![0; PIECE_BYTES.min(of.len())];
        let mut sum = self.accumulator();
        for start in (0..of.len()).step_by(PIECE_BYTES) {
            let length = PIECE_BYTES.min(of.len() - start);
            let range = of.start + start..of.start + start + length;
            let piece = &mut piece[..length];
            for rank in self.everyone() {
                match self.arrivals[rank] {
                    None => sum.add(self.sent(range.clone()), self.factor(rank)),
                    Some(arrival) if self.mesh.readable(rank) => {
                        self.mesh.read(rank, arrival.send + range.start as u64, piece)?;
                        sum.add(piece, self.factor(rank));
                    }
                    Some(_) => {
                        self.mesh.receive_pieces(rank, Class::Data, piece)?;
                        sum.add(piece, self.factor(rank));
                    }
                }
            }
            sum.finish(
                self.received(into.start + start..into.start + start + length),
                self.mesh.ranks,
            );
        }
        Ok(())
    }

    /// Tells those whose memory was read, and waits for those that read ours.
    fn settle(&self, read: impl Iterator<Item = usize>, readers: impl Iterator<Item = usize>) -> Outcome<()> {
        self.notify(read);
        for from in readers.filter(|from| self.mesh.readable(*from)) {
            self.mesh.inbox.wait(from, Class::Notice)?;
        }
        Ok(())
    }
}

/// Whether a data type can be reduced here.
pub(super) fn can_reduce(datatype: i32) -> bool {
    reduce::can_reduce(datatype)
}
