//! CUPTI's buffers: a pool within a budget of memory, and the queue of those that CUPTI has filled.
//!
//! The two callbacks run on threads of the program and of CUPTI, inside CUPTI's locks: they take a leaf lock for a few
//! instructions and never call CUPTI. CUPTI keeps a buffer for each thread that calls CUDA, so the more are out, the smaller
//! are those given: memory is what is bounded, not the number of threads.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gputrace_trace::options::DEFAULT_MEMORY_BYTES;

use crate::user_defined::{self, layout::Plans};
use crate::{cost, forked};

/// The largest buffer: 16,912 kernel records of 248 bytes.
const LARGEST_BYTES: usize = 4 << 20;
/// The smallest that is worth a request.
const SMALLEST_BYTES: usize = 64 << 10;
/// A buffer is at most this share of what is left, so that many threads find room.
const SHARE_OF_REST: usize = 16;
/// CUPTI's buffers get this share of the memory; the other is for the rings of threads, pending rows and names.
pub(crate) const SHARE_OF_MEMORY: u64 = 2;
/// Free buffers that stay mapped, as a share of the budget.
const SHARE_OF_FREE: usize = 4;

/// User-defined records in a buffer, before structs are made of them.
struct UserDefined {
    from: usize,
    end: usize,
    /// How they are read.
    plans: Arc<Plans>,
}

/// A buffer that CUPTI has filled.
pub(crate) struct Full {
    address: usize,
    size: usize,
    valid_bytes: usize,
    /// Given although there was no room: its records are to be counted and thrown away.
    pub(crate) over_cap: bool,
    /// Its user-defined records, where it has such.
    user_defined: Option<UserDefined>,
    /// Bytes of those that could not be read.
    pub(crate) unread_bytes: usize,
}

impl Full {
    /// The records.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: one of our buffers, of `size` bytes, which CUPTI has given back with so many bytes written.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.valid_bytes) }
    }

    /// The records, to be moved within the buffer.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; nobody else knows the buffer until it is recycled.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.valid_bytes) }
    }

    /// What CUPTI wrote.
    fn filled_bytes(&self) -> usize {
        self.user_defined
            .as_ref()
            .map_or(self.valid_bytes, |records| records.end - records.from)
    }

    /// What the buffer takes of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.size
    }

    /// Makes structs of user-defined records, in place.
    fn expand(&mut self) {
        let Some(UserDefined { from, end, plans }) = &self.user_defined else {
            return;
        };
        // SAFETY: one of our buffers, of `size` bytes, which CUPTI has given back and nobody else knows.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.size) };
        user_defined::dump(&bytes[*from..*end], plans);
        let expanded = plans.expand(bytes, *from, *end);
        self.valid_bytes = expanded.bytes;
        self.unread_bytes = expanded.unread_bytes;
    }
}

/// A buffer that CUPTI has.
struct Out {
    size: usize,
    over_cap: bool,
    /// How often the callbacks had been registered when it was given.
    registration: u32,
}

/// By address. The hash has fixed keys: random ones are a system call, which a sandbox may refuse.
type OutBuffers = HashMap<usize, Out, BuildHasherDefault<DefaultHasher>>;

struct Pool {
    most_bytes: usize,
    /// Bytes of all buffers that count: with CUPTI, full, and free.
    bytes: usize,
    /// Free buffers: address and size.
    free: Vec<(usize, usize)>,
    free_bytes: usize,
    /// Buffers that CUPTI has, by address.
    out: Option<OutBuffers>,
    full: VecDeque<Full>,
    /// Of those the bytes that are filled.
    full_bytes: usize,
    registration: u32,
    /// Buffers before this registration no longer count: another profiler has them.
    counted_since: u32,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    most_bytes: (DEFAULT_MEMORY_BYTES / SHARE_OF_MEMORY) as usize,
    bytes: 0,
    free: Vec::new(),
    free_bytes: 0,
    out: None,
    full: VecDeque::new(),
    full_bytes: 0,
    registration: 0,
    counted_since: 0,
});
static WAKE: Condvar = Condvar::new();
static MAY_REFUSE: AtomicBool = AtomicBool::new(false);
/// Buffers that came back, and those of them that were never ours but another profiler's.
static COMPLETED: AtomicU64 = AtomicU64::new(0);
static FOREIGN: AtomicU64 = AtomicU64::new(0);

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the budget. `may_refuse`: whether this CUPTI survives a request that gets no buffer (12.9 and later do).
pub(crate) fn configure(memory_bytes: u64, may_refuse: bool) {
    let most = usize::try_from(memory_bytes / SHARE_OF_MEMORY).unwrap_or(usize::MAX);
    pool().most_bytes = most.max(SHARE_OF_REST * SMALLEST_BYTES);
    MAY_REFUSE.store(may_refuse, Ordering::Relaxed);
}

/// Zeroed memory; 0 when there is none.
fn map(size: usize) -> usize {
    // SAFETY: an anonymous mapping at an address of the kernel's choice replaces nothing.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        0
    } else {
        cost::memory_taken(size);
        address as usize
    }
}

fn unmap(address: usize, size: usize) {
    // SAFETY: our own mapping of this size; CUPTI has given it back and nobody else knows it.
    unsafe { libc::munmap(address as *mut c_void, size) };
    cost::memory_given_back(size);
}

/// The size of the next buffer, of what is left; 0 when that is too little.
fn next_size(rest: usize) -> usize {
    if rest < SMALLEST_BYTES {
        return 0;
    }
    let share = (rest / SHARE_OF_REST).clamp(SMALLEST_BYTES, LARGEST_BYTES);
    1 << share.ilog2()
}

impl Pool {
    /// A buffer for CUPTI: address, size, and whether it is beyond the budget. Address 0: there is none.
    fn give(&mut self, may_refuse: bool) -> (usize, usize, bool) {
        if let Some((address, size)) = self.free.pop() {
            self.free_bytes -= size;
            return (address, size, false);
        }
        let size = next_size(self.most_bytes.saturating_sub(self.bytes));
        if size > 0 {
            let address = map(size);
            if address != 0 {
                self.bytes += size;
                return (address, size, false);
            }
        }
        if may_refuse {
            return (0, 0, false);
        }
        // An older CUPTI crashes without a buffer: it gets one whose records are thrown away.
        (map(SMALLEST_BYTES), SMALLEST_BYTES, true)
    }
}

/// A buffer for CUPTI, noted as being out: address and size.
fn give_out() -> (usize, usize) {
    if forked::is_child() {
        return (0, 0);
    }
    let mut pool = pool();
    let (address, size, over_cap) = pool.give(MAY_REFUSE.load(Ordering::Relaxed));
    if address != 0 {
        let registration = pool.registration;
        pool.out.get_or_insert_default().insert(
            address,
            Out {
                size,
                over_cap,
                registration,
            },
        );
    }
    (address, size)
}

/// CUPTI wants a buffer (`CUpti_BuffersCallbackRequestFunc`).
pub(crate) unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let _measured = cost::enter(cost::Callback::Buffer);
    // A panic must not reach CUPTI: it then gets no buffer.
    let (address, bytes) = catch_unwind(give_out).unwrap_or((0, 0));
    cost::buffer_requested(address != 0);
    // SAFETY: CUPTI passes valid places for the three results.
    unsafe {
        *buffer = address as *mut u8;
        *size = if address == 0 { 0 } else { bytes };
        *most_records = 0;
    }
}

/// CUPTI gives a buffer back (`CUpti_BuffersCallbackCompleteFunc`).
pub(crate) unsafe extern "C" fn completed(
    _: *mut c_void,
    _: u32,
    buffer: *mut u8,
    _: usize,
    valid_bytes: usize,
) {
    let _measured = cost::enter(cost::Callback::Buffer);
    if buffer.is_null() || forked::is_child() {
        return;
    }
    guarded(|| queue(buffer as usize, |size| (valid_bytes.min(size), None)));
}

/// Runs the body of a callback that takes a buffer back: a panic stays here, and costs what is in the buffer.
pub(crate) fn guarded(body: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(body)));
}

/// CUPTI gives a buffer back that it has filled from `from` on with user-defined records.
pub(crate) fn completed_from(buffer: *mut u8, from: usize, valid_bytes: usize, plans: Arc<Plans>) {
    queue(buffer as usize, |size| {
        let end = from.saturating_add(valid_bytes).min(size);
        let from = from.min(end);
        (0, Some(UserDefined { from, end, plans }))
    });
}

/// Hands a buffer to the writer. `filled` gives, for its size, the valid bytes and where user-defined records lie.
fn queue(address: usize, filled: impl FnOnce(usize) -> (usize, Option<UserDefined>)) {
    let mut pool = pool();
    let Some(out) = pool.out.as_mut().and_then(|out| out.remove(&address)) else {
        // Somebody else gave it to CUPTI, and knows how to free it: it is left alone.
        FOREIGN.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let (valid_bytes, user_defined) = filled(out.size);
    COMPLETED.fetch_add(1, Ordering::Relaxed);
    if !out.over_cap && out.registration < pool.counted_since {
        pool.bytes += out.size;
    }
    let full = Full {
        address,
        size: out.size,
        valid_bytes,
        over_cap: out.over_cap,
        user_defined,
        unread_bytes: 0,
    };
    cost::buffer_completed(full.filled_bytes());
    pool.full_bytes += full.filled_bytes();
    pool.full.push_back(full);
    drop(pool);
    WAKE.notify_one();
}

/// Waits up to `patience` for a full buffer, or until somebody wakes the writer.
pub(crate) fn wait(patience: Duration) {
    let pool = pool();
    if pool.full.is_empty() {
        drop(WAKE.wait_timeout(pool, patience));
    }
}

/// Takes the oldest full buffer.
pub(crate) fn take() -> Option<Full> {
    let mut pool = pool();
    let mut full = pool.full.pop_front()?;
    pool.full_bytes -= full.filled_bytes();
    drop(pool);
    full.expand();
    Some(full)
}

/// Whether a full buffer waits.
pub(crate) fn is_waiting() -> bool {
    !pool().full.is_empty()
}

/// Whether so much waits to be decoded that there will be no room for what comes. Of many buffers with little in them,
/// as at the end of many threads, there is not.
pub(crate) fn is_behind() -> bool {
    let pool = pool();
    pool.full_bytes > pool.most_bytes / 2
}

/// Wakes the writer, if it waits in [`wait`].
pub(crate) fn wake() {
    WAKE.notify_one();
}

/// Gives a decoded buffer back to the pool, zeroed where it was written, as CUPTI is told to expect.
#[allow(clippy::needless_pass_by_value)] // Nobody may look at it any more.
pub(crate) fn recycle(full: Full) {
    let (address, size) = (full.address, full.size);
    if full.over_cap {
        unmap(address, size);
        return;
    }
    // SAFETY: one of our buffers, which CUPTI has given back.
    unsafe { (address as *mut u8).write_bytes(0, full.valid_bytes) };
    if let Some(records) = &full.user_defined {
        // SAFETY: as above.
        unsafe { ((address + records.from) as *mut u8).write_bytes(0, records.end - records.from) };
    }
    let mut pool = pool();
    if pool.free_bytes + size <= pool.most_bytes / SHARE_OF_FREE {
        pool.free_bytes += size;
        pool.free.push((address, size));
        return;
    }
    pool.bytes -= size;
    drop(pool);
    unmap(address, size);
}

/// Unmaps a free buffer, if there are more than one: for times in which none is asked for.
pub(crate) fn shrink() {
    let mut pool = pool();
    if pool.free.len() > 1 {
        // The first was free for longest.
        let (address, size) = pool.free.remove(0);
        pool.free_bytes -= size;
        pool.bytes -= size;
        drop(pool);
        unmap(address, size);
    }
}

/// How many of our buffers CUPTI has now.
pub(crate) fn outstanding() -> usize {
    let pool = pool();
    let since = pool.counted_since;
    let out = pool.out.as_ref();
    out.map_or(0, |out| {
        out.values().filter(|out| out.registration >= since).count()
    })
}

/// How many buffers have come back so far, to see whether they still do.
pub(crate) fn completed_count() -> u64 {
    COMPLETED.load(Ordering::Relaxed)
}

/// Buffers since the last call that came back and were never ours.
pub(crate) fn take_foreign() -> u64 {
    FOREIGN.swap(0, Ordering::Relaxed)
}

/// The callbacks are registered anew after another profiler had its own: buffers that did not come back since went to it and
/// count no longer. Gives how many those are. They stay mapped: CUPTI may still write to one that it holds.
pub(crate) fn registered_anew() -> usize {
    let mut pool = pool();
    let since = pool.counted_since;
    let gone = pool.out.as_ref().map_or(Vec::new(), |out| {
        let gone = out
            .values()
            .filter(|out| !out.over_cap && out.registration >= since);
        gone.map(|out| out.size).collect()
    });
    pool.bytes -= gone.iter().sum::<usize>();
    pool.registration += 1;
    pool.counted_since = pool.registration;
    gone.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(most_bytes: usize) -> Pool {
        Pool {
            most_bytes,
            bytes: 0,
            free: Vec::new(),
            free_bytes: 0,
            out: None,
            full: VecDeque::new(),
            full_bytes: 0,
            registration: 0,
            counted_since: 0,
        }
    }

    #[test]
    fn many_threads_find_room_within_the_budget() {
        for most_bytes in [2 << 20, 32 << 20, 128 << 20] {
            let mut pool = empty(most_bytes);
            let mut given = Vec::new();
            loop {
                let (address, size, over_cap) = pool.give(true);
                if address == 0 {
                    break;
                }
                assert!(!over_cap);
                given.push((address, size));
            }
            let total: usize = given.iter().map(|(_, size)| size).sum();
            assert_eq!(total, pool.bytes);
            assert!(
                total <= most_bytes && total > most_bytes - SMALLEST_BYTES,
                "{total} of {most_bytes}"
            );
            assert!(
                most_bytes < 32 << 20 || given.len() > 64,
                "{} buffers of {most_bytes}",
                given.len()
            );
            for (address, size) in given {
                unmap(address, size);
            }
        }
    }

    #[test]
    fn an_older_cupti_is_never_refused() {
        let mut pool = empty(0);
        let (address, size, over_cap) = pool.give(false);
        assert!(address != 0 && over_cap && pool.bytes == 0);
        unmap(address, size);
        assert_eq!(pool.give(true).0, 0);
    }
}
