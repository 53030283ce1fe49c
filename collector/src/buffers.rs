//! CUPTI's buffers: a capped pool, and the queue of those that CUPTI has filled.
//!
//! The two callbacks run on threads of the program and of CUPTI, inside CUPTI's locks: they take a leaf lock for a few
//! instructions and never call CUPTI.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cost;

/// Size of one buffer: 16,912 kernel records of 248 bytes.
pub(crate) const BUFFER_BYTES: usize = 4 << 20;
/// Memory for all buffers, unless GPUTRACE_MAX_BUFFER_BYTES says otherwise.
pub(crate) const DEFAULT_MAX_BYTES: usize = 256 << 20;

/// A buffer that CUPTI has filled.
pub(crate) struct Full {
    address: usize,
    pub(crate) valid_bytes: usize,
    /// Taken although the cap was reached: its records are to be counted and thrown away.
    pub(crate) over_cap: bool,
    /// Where its user-defined records lay, from where to where, before structs were made of them.
    user_defined: Option<(usize, usize)>,
    /// Bytes of those that could not be read.
    pub(crate) unread_bytes: usize,
}

impl Full {
    /// The records.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: one of our buffers, of BUFFER_BYTES, which CUPTI has given back with so many bytes written.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.valid_bytes.min(BUFFER_BYTES)) }
    }

    /// The records, to be moved within the buffer.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; nobody else knows the buffer until it is recycled.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.valid_bytes.min(BUFFER_BYTES)) }
    }

    /// What the buffer takes of memory.
    pub(crate) fn capacity(&self) -> usize {
        BUFFER_BYTES
    }

    /// Makes structs of user-defined records, in place.
    fn expand(&mut self) {
        let Some((from, end)) = self.user_defined else {
            return;
        };
        // SAFETY: one of our buffers, of BUFFER_BYTES, which CUPTI has given back and nobody else knows.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, BUFFER_BYTES) };
        crate::second::dump(&bytes[from..end]);
        let expanded = crate::second::expand(bytes, from, end);
        self.valid_bytes = expanded.bytes;
        self.unread_bytes = expanded.unread_bytes;
    }
}

struct Pool {
    free: Vec<usize>,
    over_cap: Vec<usize>,
    full: Vec<Full>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: Vec::new(),
    over_cap: Vec::new(),
    full: Vec::new(),
});
static WAKE: Condvar = Condvar::new();
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static CAP: AtomicUsize = AtomicUsize::new(DEFAULT_MAX_BYTES / BUFFER_BYTES);
static MAY_REFUSE: AtomicBool = AtomicBool::new(false);
/// Requests that were refused: CUPTI counts the records that this costs itself.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the cap. `may_refuse`: whether this CUPTI survives a request that gets no buffer (12.9 and later do).
pub(crate) fn configure(max_bytes: usize, may_refuse: bool) {
    CAP.store((max_bytes / BUFFER_BYTES).max(2), Ordering::Relaxed);
    MAY_REFUSE.store(may_refuse, Ordering::Relaxed);
}

/// Zeroed memory for one buffer; 0 when there is none.
fn allocate() -> usize {
    // SAFETY: an anonymous mapping at an address of the kernel's choice replaces nothing.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            BUFFER_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        0
    } else {
        cost::memory_taken(BUFFER_BYTES);
        address as usize
    }
}

/// CUPTI wants a buffer (`CUpti_BuffersCallbackRequestFunc`).
pub(crate) unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let _measured = cost::enter(cost::Callback::Buffer);
    let mut address = 0;
    if !crate::session::is_dead() {
        let mut pool = pool();
        if let Some(free) = pool.free.pop() {
            address = free;
        } else if ALLOCATED.load(Ordering::Relaxed) < CAP.load(Ordering::Relaxed) {
            address = allocate();
            ALLOCATED.fetch_add(1, Ordering::Relaxed);
        } else if MAY_REFUSE.load(Ordering::Relaxed) {
            REFUSED.fetch_add(1, Ordering::Relaxed);
        } else {
            // An older CUPTI crashes without a buffer: it gets one whose records are thrown away.
            address = allocate();
            pool.over_cap.push(address);
        }
    }
    cost::buffer_requested(address != 0);
    // SAFETY: CUPTI passes valid places for the three results.
    unsafe {
        *buffer = address as *mut u8;
        *size = if address == 0 { 0 } else { BUFFER_BYTES };
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
    if buffer.is_null() || crate::session::is_dead() {
        return;
    }
    cost::buffer_completed(valid_bytes);
    queue(buffer as usize, valid_bytes, None);
}

/// CUPTI gives a buffer back that it has filled from `from` on with user-defined records.
pub(crate) fn completed_from(buffer: *mut u8, from: usize, valid_bytes: usize) {
    let end = from.saturating_add(valid_bytes).min(BUFFER_BYTES);
    queue(buffer as usize, 0, Some((from, end)));
}

fn queue(address: usize, valid_bytes: usize, user_defined: Option<(usize, usize)>) {
    let mut pool = pool();
    let place = pool.over_cap.iter().position(|&known| known == address);
    if let Some(place) = place {
        pool.over_cap.swap_remove(place);
    }
    pool.full.push(Full {
        address,
        valid_bytes,
        over_cap: place.is_some(),
        user_defined,
        unread_bytes: 0,
    });
    drop(pool);
    WAKE.notify_one();
}

/// Takes all full buffers; waits up to `patience` for the first.
pub(crate) fn take_full(patience: Duration) -> Vec<Full> {
    let mut pool = pool();
    if pool.full.is_empty() && !patience.is_zero() {
        pool = WAKE
            .wait_timeout(pool, patience)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    let mut full = std::mem::take(&mut pool.full);
    drop(pool);
    for buffer in full.iter_mut().filter(|buffer| !buffer.over_cap) {
        buffer.expand();
    }
    full
}

/// Wakes the writer, if it waits in [`take_full`].
pub(crate) fn wake() {
    WAKE.notify_one();
}

/// Gives a decoded buffer back to the pool, zeroed where it was written, as CUPTI is told to expect.
pub(crate) fn recycle(full: &Full) {
    if full.over_cap {
        // SAFETY: our own mapping; CUPTI has given it back and nobody else knows it.
        unsafe { libc::munmap(full.address as *mut c_void, BUFFER_BYTES) };
        cost::memory_given_back(BUFFER_BYTES);
        return;
    }
    // SAFETY: one of our buffers, which CUPTI has given back.
    unsafe { (full.address as *mut u8).write_bytes(0, full.valid_bytes.min(BUFFER_BYTES)) };
    if let Some((from, end)) = full.user_defined {
        // SAFETY: as above.
        unsafe { ((full.address + from) as *mut u8).write_bytes(0, end - from) };
    }
    pool().free.push(full.address);
}
