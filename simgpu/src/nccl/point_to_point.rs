//! Sends and receives of one kernel: all make progress at once, in any order in which their peers come.
//!
//! A send that fits the receiver's buffer is done when it is through, whether the receiver has come or not; a longer
//! one waits for it. Sends and receives of two ranks match in the order in which they were enqueued. Sends that leave
//! a rank in one kernel share its port fairly, and so do receives.

use super::errors::Outcome;
use super::inbox::{Class, State};
use super::mesh::{BUFFER_BYTES, Mesh, copy_memory, memory};
use super::operation::Transfer;
use super::timing;
use crate::clock::now_ns;

/// How the receiver gets an offer's data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// It comes with the offer.
    Inline,
    /// From the sender's memory at this address.
    Memory(u64),
    /// By asking for it.
    OnRequest,
}

/// A send as its receiver hears of it.
struct Offer {
    start_ns: i64,
    bytes: u64,
    /// Bytes that the sender's port moves until this send is through.
    port_bytes: u64,
    source: Source,
}

const OFFER_BYTES: usize = 40;

impl Offer {
    fn encode(&self) -> [u8; OFFER_BYTES] {
        let (source, address) = match self.source {
            Source::Inline => (0, 0),
            Source::Memory(address) => (1, address),
            Source::OnRequest => (2, 0),
        };
        let words = [
            self.start_ns.cast_unsigned(),
            self.bytes,
            self.port_bytes,
            source,
            address,
        ];
        let mut encoded = [0; OFFER_BYTES];
        for (place, word) in encoded.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        encoded
    }

    /// The offer of a message, and the data that came with it.
    fn decode(message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, data) = message.split_first_chunk::<OFFER_BYTES>()?;
        let word = |index: usize| u64::from_le_bytes(head[8 * index..][..8].try_into().unwrap_or_default());
        let offer = Self {
            start_ns: word(0).cast_signed(),
            bytes: word(1),
            port_bytes: word(2),
            source: match word(3) {
                0 => Source::Inline,
                1 => Source::Memory(word(4)),
                _ => Source::OnRequest,
            },
        };
        Some((offer, data))
    }
}

/// How far a send or receive has come.
enum Stage {
    /// A receive: no offer yet. A send: the receiver has not answered.
    Waiting,
    /// A receive that asked for its data: so many bytes are there, and the end when all are.
    Receiving(usize, i64),
    /// Sizes do not match: never ends, as little as on a real GPU.
    Stuck,
    Done(i64),
}

struct Progress {
    transfer: Transfer,
    /// Bytes that this rank's port moves until this one is through.
    port_bytes: u64,
    stage: Stage,
}

/// With all of a port's transfers sharing it fairly from the start, one of `bytes` is through when the port has moved
/// the lesser of `bytes` and each transfer's size.
fn port_bytes(transfers: &[Transfer], rank: u32, sends: bool, bytes: usize) -> u64 {
    transfers
        .iter()
        .filter(|other| other.sends == sends && other.peer != rank)
        .map(|other| other.bytes.min(bytes) as u64)
        .sum()
}

/// Runs a kernel's sends and receives from `start_ns` on; gives the end of the last.
pub(super) fn run(mesh: &Mesh, transfers: &[Transfer], start_ns: i64) -> Outcome<i64> {
    let mut all: Vec<Progress> = transfers
        .iter()
        .map(|transfer| Progress {
            transfer: *transfer,
            port_bytes: port_bytes(transfers, mesh.rank, transfer.sends, transfer.bytes),
            stage: Stage::Waiting,
        })
        .collect();
    copy_to_oneself(mesh, &mut all, start_ns);
    for one in &mut all {
        if one.transfer.sends
            && let Stage::Waiting = one.stage
        {
            offer(mesh, one, start_ns);
        }
    }
    loop {
        let mut moved = false;
        // Only the first unfinished one of each peer and direction: they go in order.
        let mut seen = Vec::new();
        for one in &mut all {
            let turn = (one.transfer.sends, one.transfer.peer);
            if seen.contains(&turn) || matches!(one.stage, Stage::Done(_)) {
                continue;
            }
            moved |= step(mesh, one, start_ns)?;
            if !matches!(one.stage, Stage::Done(_)) {
                seen.push(turn);
            }
        }
        if all.iter().all(|one| matches!(one.stage, Stage::Done(_))) {
            break;
        }
        if !moved {
            wait_for_news(mesh, &all, &seen)?;
        }
    }
    let end = |one: &Progress| match one.stage {
        Stage::Done(end_ns) => end_ns,
        _ => start_ns,
    };
    Ok(all.iter().map(end).max().unwrap_or(start_ns))
}

/// Sends to this rank itself and receives from it match in their order; that there are as many was checked.
fn copy_to_oneself(mesh: &Mesh, all: &mut [Progress], start_ns: i64) {
    let own = |sends: bool| {
        move |(index, one): (usize, &Progress)| {
            (one.transfer.peer == mesh.rank && one.transfer.sends == sends).then_some(index)
        }
    };
    let sends: Vec<usize> = all.iter().enumerate().filter_map(own(true)).collect();
    let receives: Vec<usize> = all.iter().enumerate().filter_map(own(false)).collect();
    for (send, receive) in sends.into_iter().zip(receives) {
        let (from, to) = (all[send].transfer, all[receive].transfer);
        if from.bytes != to.bytes {
            (all[send].stage, all[receive].stage) = (Stage::Stuck, Stage::Stuck);
            continue;
        }
        copy_memory(from.address, to.address, from.bytes);
        let end_ns = start_ns + timing::own_copy_ns(from.bytes as u64);
        (all[send].stage, all[receive].stage) = (Stage::Done(end_ns), Stage::Done(end_ns));
    }
}

/// Tells the receiver of a send, with the data if its buffer has room.
fn offer(mesh: &Mesh, one: &mut Progress, start_ns: i64) {
    let Transfer {
        peer, address, bytes, ..
    } = one.transfer;
    let to = peer as usize;
    let fits = bytes <= BUFFER_BYTES && mesh.take_room(to, Class::SendRoom, bytes);
    let offer = Offer {
        start_ns,
        bytes: bytes as u64,
        port_bytes: one.port_bytes,
        source: if fits {
            Source::Inline
        } else if mesh.readable(to) {
            Source::Memory(address)
        } else {
            Source::OnRequest
        },
    };
    let data: &[u8] = if fits { memory(address, bytes) } else { &[] };
    mesh.send(to, Class::Offer, &[&offer.encode(), data]);
    if fits {
        let through_ns = timing::send(one.port_bytes, mesh.rank, peer, mesh).transfer_ns;
        one.stage = Stage::Done(start_ns + through_ns);
    }
}

/// Whatever can be done for this one now; whether anything was.
fn step(mesh: &Mesh, one: &mut Progress, start_ns: i64) -> Outcome<bool> {
    let peer = one.transfer.peer as usize;
    let take = |class| mesh.inbox.take_one(peer, class);
    if one.transfer.sends {
        // Only one that did not fit gets here: the receiver asks for the data, or has fetched it itself.
        if take(Class::Ask).is_some() {
            let data = memory(one.transfer.address, one.transfer.bytes);
            mesh.send_pieces(peer, Class::SendData, data);
            return Ok(true);
        }
        if let Some(message) = take(Class::Received) {
            let end = message
                .first_chunk()
                .map_or(0, |bytes| i64::from_le_bytes(*bytes));
            one.stage = Stage::Done(end);
            return Ok(true);
        }
        return Ok(false);
    }
    match one.stage {
        Stage::Waiting => {
            let Some(message) = take(Class::Offer) else {
                return Ok(false);
            };
            let Some((offer, data)) = Offer::decode(&message) else {
                return Ok(false);
            };
            receive(mesh, one, &offer, data, start_ns)?;
            Ok(true)
        }
        Stage::Receiving(there, end_ns) => {
            let Some(piece) = take(Class::SendData) else {
                return Ok(false);
            };
            let place = memory(one.transfer.address, one.transfer.bytes);
            let until = (there + piece.len()).min(place.len());
            place[there..until].copy_from_slice(&piece[..until - there]);
            one.stage = Stage::Receiving(until, end_ns);
            if until == place.len() {
                mesh.send(peer, Class::Received, &[&end_ns.to_le_bytes()]);
                one.stage = Stage::Done(end_ns);
            }
            Ok(true)
        }
        Stage::Stuck | Stage::Done(_) => Ok(false),
    }
}

/// An offer has come for a receive.
fn receive(mesh: &Mesh, one: &mut Progress, offer: &Offer, data: &[u8], start_ns: i64) -> Outcome<()> {
    let Transfer {
        peer, address, bytes, ..
    } = one.transfer;
    if offer.bytes != bytes as u64 {
        one.stage = Stage::Stuck;
        return Ok(());
    }
    let from = peer as usize;
    let through_ns = |port_bytes: u64| timing::send(port_bytes, peer, mesh.rank, mesh).transfer_ns;
    let place = memory(address, bytes);
    let port_bytes = one.port_bytes.max(offer.port_bytes);
    // Both there: the slower port decides.
    let together_ns = start_ns.max(offer.start_ns) + through_ns(port_bytes);
    match offer.source {
        Source::Inline => {
            place.copy_from_slice(data.get(..bytes).unwrap_or_default());
            mesh.give_room(from, Class::SendRoom, bytes);
            // It may have been under way, or here, before this rank came.
            let arrived_ns = offer.start_ns + through_ns(port_bytes);
            one.stage = Stage::Done(together_ns.min(arrived_ns.max(start_ns + through_ns(0))));
        }
        Source::Memory(there) => {
            mesh.read(from, there, place)?;
            mesh.send(from, Class::Received, &[&together_ns.to_le_bytes()]);
            one.stage = Stage::Done(together_ns);
        }
        Source::OnRequest => {
            mesh.send(from, Class::Ask, &[]);
            one.stage = Stage::Receiving(0, together_ns);
        }
    }
    Ok(())
}

/// Blocks until something has come for one of those whose `turns` it is.
fn wait_for_news(mesh: &Mesh, all: &[Progress], turns: &[(bool, u32)]) -> Outcome<()> {
    let first = |turn: &(bool, u32)| {
        all.iter().find(|one| {
            (one.transfer.sends, one.transfer.peer) == *turn && !matches!(one.stage, Stage::Done(_))
        })
    };
    let news = |state: &mut State| {
        let has_news = |one: &Progress| {
            let sender = &state.senders[one.transfer.peer as usize];
            match (one.transfer.sends, &one.stage) {
                (_, Stage::Stuck) => false,
                (true, _) => sender.has(Class::Ask) || sender.has(Class::Received),
                (false, Stage::Receiving(..)) => sender.has(Class::SendData),
                (false, _) => sender.has(Class::Offer),
            }
        };
        turns.iter().filter_map(first).any(has_news).then_some(())
    };
    let peers = || turns.iter().map(|(_, peer)| *peer as usize).collect();
    mesh.inbox.wait_until(peers, news)
}

/// The end of a kernel that was cut short.
pub(super) fn cut_short(start_ns: i64) -> i64 {
    now_ns().max(start_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(sends: bool, peer: u32, bytes: usize) -> Transfer {
        Transfer {
            sends,
            peer,
            address: 0,
            count: bytes,
            datatype: 0,
            bytes,
        }
    }

    #[test]
    fn a_port_is_shared_fairly() {
        // 10, 20 and 40 bytes at once: while all three go, each has a third; then two have a half each; then one all.
        let all = [
            transfer(true, 1, 10),
            transfer(true, 2, 20),
            transfer(true, 3, 40),
            transfer(true, 0, 1000), // to oneself
            transfer(false, 1, 500),
        ];
        let shared = |bytes| port_bytes(&all, 0, true, bytes);
        assert_eq!([shared(10), shared(20), shared(40)], [30, 50, 70]);
        assert_eq!(port_bytes(&all, 0, false, 500), 500);
    }

    #[test]
    fn an_offer_survives_its_encoding() {
        let offer = Offer {
            start_ns: -5,
            bytes: 7,
            port_bytes: 8,
            source: Source::Memory(0xffff_ffff_1234),
        };
        let message = [&offer.encode()[..], &[1, 2, 3]].concat();
        let (again, data) = Offer::decode(&message).expect("an offer");
        assert_eq!((again.start_ns, again.bytes, again.port_bytes), (-5, 7, 8));
        assert_eq!(data, [1u8, 2, 3]);
        assert!(again.source == offer.source);
        assert!(Offer::decode(&message[..20]).is_none());
    }
}
