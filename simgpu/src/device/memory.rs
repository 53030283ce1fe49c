//! Device memory and pinned host memory: real pages of this process, with a device's limits kept in the books.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::MEMORY_BYTES;
use crate::config::config;
use crate::driver::error;

/// Whose memory an allocation is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Device(u32),
    Pinned,
}

struct Allocation {
    bytes: usize,
    place: Place,
}

struct Books {
    allocations: BTreeMap<u64, Allocation>,
    used_bytes: BTreeMap<u32, u64>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    allocations: BTreeMap::new(),
    used_bytes: BTreeMap::new(),
});

fn books() -> MutexGuard<'static, Books> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device's memory that programs can have: all of it, or little with the fault `oom`.
fn limit_bytes() -> u64 {
    if config().has_fault("oom") {
        1 << 20
    } else {
        MEMORY_BYTES
    }
}

/// Allocates; pages are only taken from the machine when they are touched.
pub(crate) fn allocate(bytes: usize, place: Place) -> Result<u64, u32> {
    if bytes == 0 {
        return Err(error::INVALID_VALUE);
    }
    let mut books = books();
    if let Place::Device(device) = place {
        let used = books.used_bytes.entry(device).or_default();
        if used.saturating_add(bytes as u64) > limit_bytes() {
            return Err(error::OUT_OF_MEMORY);
        }
        *used += bytes as u64;
    }
    // SAFETY: an anonymous private mapping at an address of the kernel's choice replaces nothing.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(error::OUT_OF_MEMORY);
    }
    let address = address as u64;
    books.allocations.insert(address, Allocation { bytes, place });
    Ok(address)
}

/// Frees what [`allocate`] gave.
pub(crate) fn free(address: u64) -> Result<(), u32> {
    let mut books = books();
    let allocation = books.allocations.remove(&address).ok_or(error::INVALID_VALUE)?;
    if let Place::Device(device) = allocation.place
        && let Some(used) = books.used_bytes.get_mut(&device)
    {
        *used -= allocation.bytes as u64;
    }
    // SAFETY: exactly the mapping that `allocate` made; it was in the books, so it was not unmapped before.
    unsafe { libc::munmap(address as *mut _, allocation.bytes) };
    Ok(())
}

/// Whose memory an address is in; `None` for the program's own (pageable) memory.
pub(crate) fn place_of(address: u64) -> Option<Place> {
    let books = books();
    let (base, allocation) = books.allocations.range(..=address).next_back()?;
    (address < base + allocation.bytes as u64).then_some(allocation.place)
}

/// Checks that a range lies within one device allocation and gives its address in this process.
pub(crate) fn device_range(address: u64, bytes: usize) -> Result<*mut u8, u32> {
    let books = books();
    let found = books
        .allocations
        .range(..=address)
        .next_back()
        .filter(|(base, allocation)| {
            matches!(allocation.place, Place::Device(_))
                && address + bytes as u64 <= *base + allocation.bytes as u64
        });
    found.map(|_| address as *mut u8).ok_or(error::ILLEGAL_ADDRESS)
}

/// Free and total bytes of a device.
pub(crate) fn info(device: u32) -> (u64, u64) {
    let used = books().used_bytes.get(&device).copied().unwrap_or(0);
    (limit_bytes() - used.min(limit_bytes()), MEMORY_BYTES)
}
