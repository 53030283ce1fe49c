//! The ranks of one communicator as one of them sees them, and how data gets from one to another.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::bootstrap::Member;
use super::errors::{Failure, Outcome};
use super::inbox::{self, Class, Inbox};
use super::link::{self, Link};
use super::model::Shape;
use super::{lock, result, timing};

/// Data over a connection is cut into messages of so many bytes, so that others' get their turn in between.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// What a receiver's buffer holds for a sender whose data it has not asked for yet (NCCL_BUFFSIZE).
pub(super) const BUFFER_BYTES: usize = 4 << 20;
/// The buffer has eight slots (NCCL_STEPS): what is smaller takes one.
const SLOT_BYTES: usize = BUFFER_BYTES / 8;

/// How another rank is reached.
enum Way {
    /// It is this rank.
    Own,
    /// Another rank in this process.
    Process,
    Link(Arc<Link>),
}

struct Peer {
    member: Member,
    way: Way,
    /// Whether its memory can be read from here.
    readable: bool,
}

/// Free bytes in a peer's buffer for what comes from here.
#[derive(Clone, Copy)]
pub(super) struct Rooms {
    pub(super) collectives: usize,
    pub(super) sends: usize,
}

/// One rank's view of its communicator.
pub(super) struct Mesh {
    pub(super) key: u64,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) inbox: Arc<Inbox>,
    /// What times depend on.
    pub(super) shape: Shape,
    peers: Vec<Peer>,
    rooms: Mutex<Vec<Rooms>>,
}

/// Device memory of this process as a slice.
pub(super) fn memory(address: u64, bytes: usize) -> &'static mut [u8] {
    if bytes == 0 {
        return &mut [];
    }
    // SAFETY: the range was checked to lie in device memory when the operation was enqueued, CUDA forbids freeing it
    // before the operation is done, and the stream's order keeps other operations away.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) }
}

/// Copies within device memory of this process; the ranges may overlap.
pub(super) fn copy_memory(from: u64, to: u64, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as in `memory`.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    }
}

/// Copies from another process's memory, or ours; false if that is not possible (any more).
fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> bool {
    let mut done = 0;
    while done < into.len() {
        let local = libc::iovec {
            iov_base: into[done..].as_mut_ptr().cast(),
            iov_len: into.len() - done,
        };
        let remote = libc::iovec {
            iov_base: (address + done as u64) as *mut _,
            iov_len: into.len() - done,
        };
        // SAFETY: the local range is ours to write; the system checks the other process's.
        let got = unsafe {
            libc::process_vm_readv(pid.cast_signed(), &raw const local, 1, &raw const remote, 1, 0)
        };
        match usize::try_from(got) {
            Ok(got) if got > 0 => done += got,
            _ => return false,
        }
    }
    true
}

/// How errors call a rank.
fn name(rank: usize, member: &Member) -> String {
    format!("rank {rank} (pid {} on host {})", member.pid, member.hostname)
}

/// Whether ranks may read each other's memory: not if the program has switched off what NCCL has for that.
fn may_read() -> bool {
    let off = |name| std::env::var(name).is_ok_and(|value| value == "1");
    !(off("NCCL_P2P_DISABLE") && off("NCCL_SHM_DISABLE"))
}

impl Mesh {
    /// First part: opens this rank's inbox and connects to where it is for this process to connect.
    pub(super) fn prepare(key: u64, rank: u32, members: &[Member]) -> Outcome<Arc<Inbox>> {
        // The other ranks' processes, where the system only lets parents look into them, allow us and we them.
        // SAFETY: a setting of our own process; it fails where there is no such rule.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
        let names = (0..)
            .zip(members)
            .map(|(rank, member)| name(rank, member))
            .collect();
        let inbox = inbox::open(key, rank, names);
        for (rank, member) in members.iter().enumerate() {
            if member.process != link::identity() {
                link::connect(member.process, member.address, &name(rank, member))?;
            }
        }
        Ok(inbox)
    }

    /// Second part: waits until everybody is connected. `agree` must follow.
    pub(super) fn join(key: u64, rank: u32, members: Vec<Member>, inbox: Arc<Inbox>) -> Outcome<Self> {
        let own = members[rank as usize].clone();
        let mut peers = Vec::with_capacity(members.len());
        let shape = timing::shape(members.iter());
        for (other, member) in members.into_iter().enumerate() {
            let way = if other == rank as usize {
                Way::Own
            } else if member.process == own.process {
                Way::Process
            } else {
                Way::Link(link::to(member.process, &name(other, &member))?)
            };
            let readable = match way {
                Way::Own | Way::Process => true,
                Way::Link(_) => {
                    let mut there = [0; 8];
                    member.host_hash == own.host_hash
                        && may_read()
                        && read_memory(member.pid, member.process_place, &mut there)
                        && u64::from_le_bytes(there) == member.process
                }
            };
            let peer = Peer {
                member,
                way,
                readable,
            };
            if let Way::Link(link) = &peer.way {
                link.send(Class::Control, key, rank, other as u32, &[&[u8::from(readable)]]);
            }
            peers.push(peer);
        }
        for (first, peer) in peers.iter().enumerate() {
            // Each process once, with all its ranks.
            let ranks: Vec<u32> = (0..)
                .zip(&peers)
                .filter(|(_, other)| other.member.process == peer.member.process)
                .map(|(rank, _)| rank)
                .collect();
            if let Way::Link(link) = &peer.way
                && ranks.first().is_some_and(|rank| *rank as usize == first)
            {
                link.watch(&inbox, ranks);
            }
        }
        let rooms = Rooms {
            collectives: BUFFER_BYTES,
            sends: BUFFER_BYTES,
        };
        Ok(Self {
            key,
            rank,
            ranks: peers.len() as u32,
            inbox,
            shape,
            rooms: Mutex::new(vec![rooms; peers.len()]),
            peers,
        })
    }

    /// Third part: only memory that can be read both ways is read at all.
    pub(super) fn agree(&mut self) -> Outcome<()> {
        for rank in self.others() {
            if let Way::Link(_) = self.peers[rank].way {
                let readable_there = self.inbox.wait(rank, Class::Control)?;
                self.peers[rank].readable &= readable_there == [1];
            }
        }
        Ok(())
    }

    /// All ranks but this one.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let own = self.rank as usize;
        (0..self.ranks as usize).filter(move |rank| *rank != own)
    }

    /// What is known of a rank.
    pub(super) fn member(&self, rank: usize) -> &Member {
        &self.peers[rank].member
    }

    /// What is known of all ranks.
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.peers.iter().map(|peer| &peer.member)
    }

    /// How errors call a rank.
    pub(super) fn name(&self, rank: usize) -> String {
        name(rank, self.member(rank))
    }

    /// How many hosts the ranks are on.
    pub(super) fn nodes(&self) -> u32 {
        let hosts: BTreeSet<u64> = self.members().map(|member| member.host_hash).collect();
        hosts.len() as u32
    }

    /// Whether another rank's memory can be read from here, and ours from there.
    pub(super) fn readable(&self, rank: usize) -> bool {
        self.peers[rank].readable
    }

    /// Sends a message.
    pub(super) fn send(&self, to: usize, class: Class, parts: &[&[u8]]) {
        let to_number = to as u32;
        match &self.peers[to].way {
            Way::Own => {}
            Way::Process => inbox::deliver(self.key, self.rank, to_number, class, parts.concat()),
            Way::Link(link) => link.send(class, self.key, self.rank, to_number, parts),
        }
    }

    /// Sends data in pieces.
    pub(super) fn send_pieces(&self, to: usize, class: Class, data: &[u8]) {
        for piece in data.chunks(PIECE_BYTES) {
            self.send(to, class, &[piece]);
        }
    }

    /// Receives data that was sent in pieces.
    pub(super) fn receive_pieces(&self, from: usize, class: Class, into: &mut [u8]) -> Outcome<()> {
        let mut done = 0;
        while done < into.len() {
            let piece = self.inbox.wait(from, class)?;
            let Some(place) = into.get_mut(done..done + piece.len()) else {
                return Err(Failure::new(
                    result::INTERNAL_ERROR,
                    format!("{} sent more data than was agreed on", self.name(from)),
                ));
            };
            place.copy_from_slice(&piece);
            done += piece.len();
        }
        Ok(())
    }

    /// Copies from a rank's memory, which must be readable.
    pub(super) fn read(&self, from: usize, address: u64, into: &mut [u8]) -> Outcome<()> {
        let peer = &self.peers[from];
        if let Way::Own = peer.way {
            into.copy_from_slice(memory(address, into.len()));
            return Ok(());
        }
        // In this process too by way of the system: memory that the program frees too early is an error then.
        if read_memory(peer.member.pid, address, into) {
            return Ok(());
        }
        Err(self.inbox.failure().unwrap_or_else(|| {
            Failure::new(
                result::REMOTE_ERROR,
                format!("{} closed its connection", self.name(from)),
            )
        }))
    }

    /// Takes room for `bytes` in a peer's buffer, for collectives (Class::Room) or sends; false: there is none now.
    pub(super) fn take_room(&self, to: usize, class: Class, bytes: usize) -> bool {
        let mut rooms = lock(&self.rooms);
        let rooms = &mut rooms[to];
        let room = match class {
            Class::Room => &mut rooms.collectives,
            _ => &mut rooms.sends,
        };
        let given_back = self.inbox.take_all(to, class);
        for message in given_back {
            *room += message
                .first_chunk()
                .map_or(0, |bytes| u64::from_le_bytes(*bytes) as usize);
        }
        let bytes = bytes.max(SLOT_BYTES);
        if *room < bytes {
            return false;
        }
        *room -= bytes;
        true
    }

    /// As `take_room`, but waits for it.
    pub(super) fn wait_for_room(&self, to: usize, class: Class, bytes: usize) -> Outcome<()> {
        while !self.take_room(to, class, bytes) {
            self.inbox
                .wait_until(|| vec![to], |state| state.senders[to].has(class).then_some(()))?;
        }
        Ok(())
    }

    /// Gives a sender its room in our buffer back.
    pub(super) fn give_room(&self, to: usize, class: Class, bytes: usize) {
        self.send(to, class, &[&(bytes.max(SLOT_BYTES) as u64).to_le_bytes()]);
    }

    /// Tells all others that this rank destroys its communicator; `wait`: even if a connection is slow.
    pub(super) fn leave(&self, wait: bool) {
        for rank in self.others() {
            match &self.peers[rank].way {
                Way::Link(link) if !wait => {
                    link.send_if_possible(Class::Goodbye, self.key, self.rank, rank as u32);
                }
                _ => self.send(rank, Class::Goodbye, &[]),
            }
        }
    }

    /// Ends the communicator for all ranks. The others hear of what went wrong here, if anything did: the first cause
    /// is what they should name.
    pub(super) fn abort(&self, own: Failure) {
        let cause = self.inbox.failure().map_or(String::new(), |failure| failure.text);
        self.inbox.fail(own);
        for rank in self.others() {
            self.send(rank, Class::Abort, &[cause.as_bytes()]);
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        inbox::close(self.key, self.rank);
    }
}
