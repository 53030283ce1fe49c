//! Device memory and pinned host memory: real pages of this process, with a device's limits kept in the books.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::config;
use crate::driver::error;

/// Pages that were given back are kept for the next allocation of their size, up to these: taking pages from the
/// machine costs more than most of what a small model does with them.
const MOST_SPARE_BYTES: usize = 256 << 20;
const MOST_SPARE_BLOCK: usize = 64 << 20;

/// Whose memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device(u32),
    Pinned,
}

#[derive(Clone, Copy)]
struct Allocation {
    /// What the program asked for.
    bytes: usize,
    place: Place,
}

struct Books {
    allocations: BTreeMap<u64, Allocation>,
    used_bytes: BTreeMap<u32, u64>,
    /// Mappings that nobody uses, by size.
    spare: BTreeMap<usize, Vec<u64>>,
    spare_bytes: usize,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    allocations: BTreeMap::new(),
    used_bytes: BTreeMap::new(),
    spare: BTreeMap::new(),
    spare_bytes: 0,
});

fn books() -> MutexGuard<'static, Books> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device's memory that programs can have: all of it, or little with the fault `oom`.
fn limit_bytes() -> u64 {
    if config().has_fault("oom") {
        1 << 20
    } else {
        config().memory_bytes
    }
}

/// Takes pages for a place, which nothing is listed for yet; they are only taken from the machine when touched.
pub(crate) fn reserve(bytes: usize, place: Place) -> Result<u64, u32> {
    let mut books = books();
    if let Place::Device(device) = place {
        let used = books.used_bytes.entry(device).or_default();
        if used.saturating_add(bytes as u64) > limit_bytes() {
            return Err(error::OUT_OF_MEMORY);
        }
        *used += bytes as u64;
    }
    if let Some(address) = books.spare.get_mut(&bytes).and_then(Vec::pop) {
        books.spare_bytes -= bytes;
        return Ok(address);
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
        give_back(&mut books, bytes, place);
        return Err(error::OUT_OF_MEMORY);
    }
    Ok(address as u64)
}

fn give_back(books: &mut Books, bytes: usize, place: Place) {
    if let Place::Device(device) = place
        && let Some(used) = books.used_bytes.get_mut(&device)
    {
        *used -= bytes as u64;
    }
}

/// Gives up what [`reserve`] gave, of which nothing may be listed any more.
pub(crate) fn release(address: u64, bytes: usize, place: Place) {
    let mut books = books();
    give_back(&mut books, bytes, place);
    if bytes <= MOST_SPARE_BLOCK && books.spare_bytes + bytes <= MOST_SPARE_BYTES {
        books.spare_bytes += bytes;
        books.spare.entry(bytes).or_default().push(address);
        return;
    }
    // SAFETY: exactly the mapping that `reserve` made, and nobody else has its address.
    unsafe { libc::munmap(address as *mut _, bytes) };
}

/// Makes reserved pages an allocation of the program's.
pub(crate) fn list(address: u64, bytes: usize, place: Place) {
    books().allocations.insert(address, Allocation { bytes, place });
}

/// Takes an allocation out of the books, whose pages stay.
pub(crate) fn unlist(address: u64) -> Result<(usize, Place), u32> {
    let found = books().allocations.remove(&address);
    found
        .map(|allocation| (allocation.bytes, allocation.place))
        .ok_or(error::INVALID_VALUE)
}

/// Allocates.
pub(crate) fn allocate(bytes: usize, place: Place) -> Result<u64, u32> {
    if bytes == 0 {
        return Err(error::INVALID_VALUE);
    }
    let address = reserve(bytes, place)?;
    list(address, bytes, place);
    Ok(address)
}

/// Frees what [`allocate`] gave.
pub(crate) fn free(address: u64) -> Result<(), u32> {
    let (bytes, place) = unlist(address)?;
    release(address, bytes, place);
    Ok(())
}

/// The allocation that an address is in: its start, bytes and place. `None` for the program's own (pageable) memory.
pub(crate) fn allocation_of(address: u64) -> Option<(u64, usize, Place)> {
    let books = books();
    let (base, allocation) = books.allocations.range(..=address).next_back()?;
    (address < base + allocation.bytes as u64).then_some((*base, allocation.bytes, allocation.place))
}

/// Whose memory an address is in; `None` for the program's own (pageable) memory.
pub(crate) fn place_of(address: u64) -> Option<Place> {
    allocation_of(address).map(|(.., place)| place)
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
                && address
                    .checked_add(bytes as u64)
                    .is_some_and(|end| end <= *base + allocation.bytes as u64)
        });
    found.map(|_| address as *mut u8).ok_or(error::ILLEGAL_ADDRESS)
}

/// Free and total bytes of a device.
pub(crate) fn info(device: u32) -> (u64, u64) {
    let used = books().used_bytes.get(&device).copied().unwrap_or(0);
    (limit_bytes() - used.min(limit_bytes()), config().memory_bytes)
}
