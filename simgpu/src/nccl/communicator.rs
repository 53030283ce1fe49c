//! Communicators: how they are made (by a unique id, by a split, all in one process) and how they end.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once};

use super::bootstrap::{self, Attendance, Meeting, Member};
use super::errors::{Failure, Outcome};
use super::inbox::{self, Class, Inbox};
use super::lock;
use super::mesh::Mesh;
use super::network;
use super::operation::Factor;
use super::profiler::Profiler;
use crate::device::EventRecord;
use crate::driver::next_handle;

/// NCCL_SPLIT_NOCOLOR: a rank that will be in no part.
pub(super) const NO_COLOR: i32 = -1;
/// Handles of reductions that were made by the program begin after NCCL's own (ncclNumOps).
const FIRST_MADE_REDUCTION: i32 = 5;

/// One rank's communicator.
pub(super) struct Communicator {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) device: u32,
    pub(super) mesh: Arc<Mesh>,
    pub(super) profiler: Option<Profiler>,
    /// The end of the last kernel: the next one waits for it, whatever its stream.
    pub(super) last: Mutex<Option<Arc<EventRecord>>>,
    /// Held by a kernel while it runs.
    pub(super) running: Arc<Mutex<()>>,
    /// Operations so far, by function.
    sequences: Mutex<BTreeMap<&'static CStr, u64>>,
    splits: AtomicU32,
    /// Reductions that the program made: data type and factor.
    reductions: Mutex<BTreeMap<i32, (i32, Factor)>>,
    next_reduction: AtomicI32,
}

static COMMUNICATORS: Mutex<BTreeMap<u64, Arc<Communicator>>> = Mutex::new(BTreeMap::new());

/// The communicator of a handle.
pub(super) fn communicator(handle: u64) -> Outcome<Arc<Communicator>> {
    lock(&COMMUNICATORS)
        .get(&handle)
        .cloned()
        .ok_or_else(|| Failure::argument("there is no such communicator, or it was destroyed"))
}

impl Communicator {
    /// What went wrong on the device's side, as an error of the next call.
    pub(super) fn check(&self) -> Outcome<()> {
        self.mesh.inbox.failure().map_or(Ok(()), Err)
    }

    /// The next number of an operation, among those of its function.
    pub(super) fn this_sequence(&self, function: &'static CStr) -> u64 {
        lock(&self.sequences).get(function).copied().unwrap_or(0)
    }

    /// The number of a collective among those of its function, counted on.
    pub(super) fn next_sequence(&self, function: &'static CStr) -> u64 {
        let mut sequences = lock(&self.sequences);
        let next = sequences.entry(function).or_default();
        *next += 1;
        *next - 1
    }

    /// Waits for its last kernel.
    pub(super) fn flush(&self) {
        let last = lock(&self.last).clone();
        if let Some(last) = last {
            last.wait();
        }
    }

    /// ncclRedOpCreatePreMulSum.
    pub(super) fn make_reduction(&self, datatype: i32, factor: Factor) -> i32 {
        let handle = self.next_reduction.fetch_add(1, Ordering::Relaxed);
        lock(&self.reductions).insert(handle, (datatype, factor));
        handle
    }

    /// The data type and factor of a reduction that the program made.
    pub(super) fn reduction(&self, handle: i32) -> Outcome<(i32, Factor)> {
        lock(&self.reductions)
            .get(&handle)
            .copied()
            .ok_or_else(|| Failure::argument(format!("reduction {handle} is unknown to this communicator")))
    }

    /// ncclRedOpDestroy.
    pub(super) fn forget_reduction(&self, handle: i32) -> Outcome<()> {
        lock(&self.reductions)
            .remove(&handle)
            .map(|_| ())
            .ok_or_else(|| Failure::argument(format!("reduction {handle} is unknown to this communicator")))
    }
}

/// ncclCommDestroy: waits for the last kernel.
pub(super) fn destroy(handle: u64) -> Outcome<()> {
    communicator(handle)?.flush();
    if let Some(communicator) = lock(&COMMUNICATORS).remove(&handle) {
        communicator.mesh.leave(true);
    }
    Ok(())
}

/// ncclCommAbort: its kernels end, and the other ranks' too.
pub(super) fn abort(handle: u64) -> Outcome<()> {
    let communicator = lock(&COMMUNICATORS)
        .remove(&handle)
        .ok_or_else(|| Failure::argument("there is no such communicator, or it was destroyed"))?;
    communicator
        .mesh
        .abort(Failure::usage("the communicator was aborted"));
    // A kernel that runs ends now; those that have not begun will touch nothing.
    drop(lock(&communicator.running));
    Ok(())
}

extern "C" fn at_exit() {
    // Others find out from a broken connection if they still wait for this process; if they don't, it is no error.
    let goodbye = || {
        if let Ok(communicators) = COMMUNICATORS.try_lock() {
            for communicator in communicators.values() {
                communicator.mesh.leave(false);
            }
        }
    };
    // A panic would cross into libc; there is nobody left to tell.
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(goodbye)));
}

/// How a new communicator's ranks know of each other.
pub(super) enum Origin {
    /// They meet at a unique id's address.
    Meeting { meeting: Meeting, rank: u32, ranks: u32 },
    /// They are ranks of a communicator.
    Split {
        parent: Arc<Communicator>,
        color: i32,
        key: i32,
    },
    /// They are all in this process.
    Here { key: u64, rank: u32, devices: Vec<u32> },
}

/// A communicator that is being made. In a group several are made by one thread, so each step is made for all of them
/// before the next: no rank waits for another that is behind it in the same thread.
pub(super) struct Creation {
    /// Where its handle goes: the caller's variable, which must live until the group's end.
    place: usize,
    device: u32,
    name: Option<CString>,
    origin: Origin,
    attendance: Option<Attendance>,
    split_number: u32,
    members: Option<(u64, u32, Vec<Member>, Arc<Inbox>)>,
    mesh: Option<Mesh>,
}

impl Creation {
    /// Nothing is done yet.
    pub(super) fn new(place: *mut u64, device: u32, name: Option<CString>, origin: Origin) -> Self {
        Self {
            place: place as usize,
            device,
            name,
            origin,
            attendance: None,
            split_number: 0,
            members: None,
            mesh: None,
        }
    }

    /// Tells the others, without waiting for them.
    fn announce(&mut self) -> Outcome<()> {
        match &self.origin {
            Origin::Meeting { meeting, rank, ranks } if *ranks > 1 => {
                let own = Member::own(self.device)?;
                self.attendance = Some(bootstrap::attend(*meeting, *rank, *ranks, &own)?);
            }
            Origin::Split { parent, color, key } => {
                parent.check()?;
                self.split_number = parent.splits.fetch_add(1, Ordering::Relaxed);
                for rank in parent.mesh.others() {
                    let wish = [color.to_le_bytes(), key.to_le_bytes()].concat();
                    parent.mesh.send(rank, Class::Control, &[&wish]);
                }
            }
            Origin::Meeting { .. } | Origin::Here { .. } => {}
        }
        Ok(())
    }

    /// The key, this rank's number, and all ranks; nothing for a rank that wants no part of a split.
    fn gather(&mut self) -> Outcome<Option<(u64, u32, Vec<Member>)>> {
        Ok(Some(match &self.origin {
            Origin::Meeting { meeting, rank, .. } => {
                let members = match self.attendance.take() {
                    Some(attendance) => attendance.members()?,
                    None => vec![Member::alone(self.device)],
                };
                (meeting.key, *rank, members)
            }
            Origin::Split { parent, color, key } => {
                let mut wishes = vec![(*color, *key, parent.rank)];
                for rank in parent.mesh.others() {
                    let wish = parent.mesh.inbox.wait(rank, Class::Control)?;
                    let word = |at: usize| wish.get(at..at + 4).and_then(|word| word.try_into().ok());
                    let number = |at| word(at).map_or(0, i32::from_le_bytes);
                    wishes.push((number(0), number(4), rank as u32));
                }
                if *color == NO_COLOR {
                    return Ok(None);
                }
                wishes.retain(|(theirs, ..)| theirs == color);
                wishes.sort_unstable();
                let members: Vec<Member> = wishes
                    .iter()
                    .map(|(.., rank)| parent.mesh.member(*rank as usize).clone())
                    .collect();
                let rank = wishes
                    .iter()
                    .position(|(.., rank)| *rank == parent.rank)
                    .unwrap_or(0);
                let parts = [
                    &parent.mesh.key.to_le_bytes()[..],
                    &self.split_number.to_le_bytes(),
                    &color.to_le_bytes(),
                ];
                (network::hash(&parts.concat()), rank as u32, members)
            }
            Origin::Here { key, rank, devices } => {
                let members = devices.iter().map(|device| Member::alone(*device)).collect();
                (*key, *rank, members)
            }
        }))
    }

    fn prepare(&mut self) -> Outcome<()> {
        if let Some((key, rank, members)) = self.gather()? {
            check_devices(&members)?;
            let inbox = Mesh::prepare(key, rank, &members)?;
            self.members = Some((key, rank, members, inbox));
        }
        Ok(())
    }

    fn join(&mut self) -> Outcome<()> {
        if let Some((key, rank, members, inbox)) = self.members.take() {
            let mesh = Mesh::join(key, rank, members, inbox);
            if mesh.is_err() {
                inbox::close(key, rank);
            }
            self.mesh = Some(mesh?);
        }
        Ok(())
    }

    /// Makes the communicator known and gives its handle to the caller: null for a rank in no part.
    fn finish(&mut self) -> Outcome<()> {
        static AT_EXIT: Once = Once::new();
        // SAFETY: registers a function that lives as long as this library, which is never unloaded.
        AT_EXIT.call_once(|| unsafe {
            libc::atexit(at_exit);
        });
        let mut handle = 0;
        if let Some(mut mesh) = self.mesh.take() {
            mesh.agree()?;
            let (rank, ranks) = (mesh.rank, mesh.ranks);
            let profiler = (ranks > 1)
                .then(|| Profiler::new(mesh.key, self.name.as_deref(), mesh.nodes(), ranks, rank))
                .flatten();
            let communicator = Communicator {
                rank,
                ranks,
                device: self.device,
                mesh: Arc::new(mesh),
                profiler,
                last: Mutex::new(None),
                running: Arc::new(Mutex::new(())),
                sequences: Mutex::new(BTreeMap::new()),
                splits: AtomicU32::new(0),
                reductions: Mutex::new(BTreeMap::new()),
                next_reduction: AtomicI32::new(FIRST_MADE_REDUCTION),
            };
            handle = next_handle();
            lock(&COMMUNICATORS).insert(handle, Arc::new(communicator));
        }
        // SAFETY: not null, which was checked, and NCCL's contract is that it is there until the group's end.
        unsafe { (self.place as *mut u64).write_unaligned(handle) };
        Ok(())
    }
}

/// Makes communicators that belong to one group.
pub(super) fn create(mut creations: Vec<Creation>) -> Outcome<()> {
    for step in [
        Creation::announce,
        Creation::prepare,
        Creation::join,
        Creation::finish,
    ] {
        for creation in &mut creations {
            step(creation)?;
        }
    }
    Ok(())
}

/// NCCL's rule: one rank a GPU, unless NCCL_MULTI_RANK_GPU_ENABLE is 1.
fn check_devices(members: &[Member]) -> Outcome<()> {
    if std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").is_ok_and(|value| value == "1") {
        return Ok(());
    }
    let mut seen = BTreeMap::new();
    for (rank, member) in members.iter().enumerate() {
        if let Some(other) = seen.insert((member.host_hash, member.uuid.as_str()), rank) {
            return Err(Failure::usage(format!(
                "ranks {other} and {rank} both use GPU {} of host {}; NCCL_MULTI_RANK_GPU_ENABLE=1 allows that",
                member.device, member.hostname
            )));
        }
    }
    Ok(())
}
