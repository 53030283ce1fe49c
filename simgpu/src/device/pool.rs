//! Memory pools: blocks that are freed and allocated again in the order of streams, without a call to the machine.
//!
//! A block that a stream freed is at once free for later work of that stream, and for other streams once the device
//! is past the free. What is kept beyond the release threshold goes back to the device when the program synchronises,
//! as in CUDA; the default threshold is 0. Blocks are kept whole: one serves a request that needs at least 4/5 of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::memory::{self, Place};
use super::{EventRecord, Stream};
use crate::cupti::memory::PoolState;
use crate::driver::{error, next_handle};

/// Sizes of blocks are multiples of this.
const GRAIN: usize = 512;

/// A block that the program does not have.
struct FreeBlock {
    address: u64,
    bytes: usize,
    /// CUPTI's id of the stream that freed it, and when; `None` if the device was synchronised.
    freed: Option<(u32, Arc<EventRecord>)>,
}

impl FreeBlock {
    fn is_idle(&self) -> bool {
        self.freed.as_ref().is_none_or(|(_, record)| record.is_done())
    }
}

/// Numbers of a pool that programs set and read, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Levels {
    /// What is kept at a synchronisation.
    pub(crate) threshold: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// The most that is reserved; 0 for no limit but the device's.
    pub(crate) most: u64,
}

struct Pool {
    device: u32,
    levels: Levels,
    /// Whether blocks of other streams may be used: the opportunistic reuse.
    reuses: [bool; 3],
    free: Vec<FreeBlock>,
    /// Blocks that the program has, with their sizes.
    live: BTreeMap<u64, usize>,
    /// Devices besides its own that may access it.
    access: BTreeSet<u32>,
    destroyed: bool,
}

#[derive(Default)]
struct Pools {
    pools: BTreeMap<u64, Pool>,
    default: BTreeMap<u32, u64>,
    current: BTreeMap<u32, u64>,
}

static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

struct Guard(MutexGuard<'static, Option<Pools>>);

fn pools() -> Guard {
    Guard(POOLS.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Guard {
    fn all(&mut self) -> &mut Pools {
        self.0.get_or_insert_default()
    }

    fn pool(&mut self, handle: u64) -> Result<&mut Pool, u32> {
        let pool = self.all().pools.get_mut(&handle);
        pool.filter(|pool| !pool.destroyed).ok_or(error::INVALID_VALUE)
    }
}

fn new_pool(device: u32, most: u64) -> Pool {
    Pool {
        device,
        levels: Levels {
            most,
            ..Levels::default()
        },
        reuses: [true; 3],
        free: Vec::new(),
        live: BTreeMap::new(),
        access: BTreeSet::new(),
        destroyed: false,
    }
}

impl Pools {
    fn default_of(&mut self, device: u32) -> u64 {
        let Self { pools, default, .. } = self;
        *default.entry(device).or_insert_with(|| {
            let handle = next_handle();
            pools.insert(handle, new_pool(device, 0));
            handle
        })
    }

    fn current_of(&mut self, device: u32) -> u64 {
        match self.current.get(&device) {
            Some(handle) => *handle,
            None => self.default_of(device),
        }
    }
}

impl Pool {
    /// Gives idle blocks back to the device until no more than `keep` bytes are reserved.
    fn trim(&mut self, keep: u64) {
        let (device, levels) = (self.device, &mut self.levels);
        self.free.retain(|block| {
            let goes = levels.reserved > keep && block.is_idle();
            if goes {
                memory::release(block.address, block.bytes, Place::Device(device));
                levels.reserved -= block.bytes as u64;
            }
            !goes
        });
    }

    /// The smallest free block that does, for a stream.
    fn take(&mut self, bytes: usize, stream: u32) -> Option<FreeBlock> {
        let others = self.reuses[1];
        let usable = |block: &FreeBlock| {
            let own = block
                .freed
                .as_ref()
                .is_none_or(|(freed_on, _)| *freed_on == stream);
            (bytes..=bytes + bytes / 4).contains(&block.bytes) && (own || others && block.is_idle())
        };
        let (place, _) = self
            .free
            .iter()
            .enumerate()
            .filter(|(_, block)| usable(block))
            .min_by_key(|(_, block)| block.bytes)?;
        Some(self.free.swap_remove(place))
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, u32> {
        if self.levels.most > 0 && self.levels.reserved + bytes as u64 > self.levels.most {
            return Err(error::OUT_OF_MEMORY);
        }
        let address = memory::reserve(bytes, Place::Device(self.device))?;
        self.levels.reserved += bytes as u64;
        self.levels.reserved_high = self.levels.reserved_high.max(self.levels.reserved);
        Ok(address)
    }
}

/// Makes a pool on a device; `most` bytes at the most, 0 for no limit.
pub(crate) fn create(device: u32, most: u64) -> u64 {
    let handle = next_handle();
    pools().all().pools.insert(handle, new_pool(device, most));
    handle
}

/// Destroys a pool: at once, or when the program has freed what it has of it.
pub(crate) fn destroy(handle: u64) -> Result<(), u32> {
    let mut pools = pools();
    pools.pool(handle)?;
    let all = pools.all();
    if all.default.values().any(|default| *default == handle) {
        return Err(error::INVALID_VALUE);
    }
    all.current.retain(|_, current| *current != handle);
    if let Some(pool) = all.pools.get_mut(&handle) {
        pool.destroyed = true;
    }
    bury(all, handle);
    Ok(())
}

/// Forgets a destroyed pool once it holds nothing.
fn bury(all: &mut Pools, handle: u64) {
    if let Some(pool) = all.pools.get_mut(&handle).filter(|pool| pool.destroyed) {
        pool.trim(0);
        if pool.live.is_empty() && pool.free.is_empty() {
            all.pools.remove(&handle);
        }
    }
}

/// The pool of a device that nobody made.
pub(crate) fn default_of(device: u32) -> u64 {
    pools().all().default_of(device)
}

/// The pool that cuMemAllocAsync takes from.
pub(crate) fn current_of(device: u32) -> u64 {
    pools().all().current_of(device)
}

/// Sets it.
pub(crate) fn set_current(device: u32, handle: u64) -> Result<(), u32> {
    let mut pools = pools();
    if pools.pool(handle)?.device != device {
        return Err(error::INVALID_VALUE);
    }
    pools.all().current.insert(device, handle);
    Ok(())
}

/// Reads or changes a pool's levels.
pub(crate) fn with_levels<T>(handle: u64, body: impl FnOnce(&mut Levels) -> T) -> Result<T, u32> {
    Ok(body(&mut pools().pool(handle)?.levels))
}

/// Reads or changes one of the three kinds of reuse.
pub(crate) fn with_reuse<T>(handle: u64, kind: usize, body: impl FnOnce(&mut bool) -> T) -> Result<T, u32> {
    let mut pools = pools();
    let reuse = pools.pool(handle)?.reuses.get_mut(kind);
    Ok(body(reuse.ok_or(error::INVALID_VALUE)?))
}

/// Gives idle blocks back until no more than `keep` bytes are reserved.
pub(crate) fn trim(handle: u64, keep: u64) -> Result<(), u32> {
    pools().pool(handle)?.trim(keep);
    Ok(())
}

/// The device was synchronised with: what is above the thresholds goes back.
pub(crate) fn synchronised(device: u32) {
    let mut pools = pools();
    let all = pools.all();
    let mut destroyed = Vec::new();
    for (handle, pool) in all.pools.iter_mut().filter(|(_, pool)| pool.device == device) {
        if pool.levels.reserved > pool.levels.threshold {
            pool.trim(pool.levels.threshold);
        }
        if pool.destroyed {
            destroyed.push(*handle);
        }
    }
    for handle in destroyed {
        bury(all, handle);
    }
}

/// Lets a device access a pool's memory, or no longer; not the pool's own.
pub(crate) fn set_access(handle: u64, device: u32, allowed: bool) -> Result<(), u32> {
    let mut pools = pools();
    let pool = pools.pool(handle)?;
    if device == pool.device {
        return if allowed {
            Ok(())
        } else {
            Err(error::INVALID_VALUE)
        };
    }
    if allowed {
        pool.access.insert(device);
    } else {
        pool.access.remove(&device);
    }
    Ok(())
}

/// Whether a device may access a pool's memory.
pub(crate) fn has_access(handle: u64, device: u32) -> Result<bool, u32> {
    let mut pools = pools();
    let pool = pools.pool(handle)?;
    Ok(pool.device == device || pool.access.contains(&device))
}

/// A pool as CUPTI tells of it.
pub(crate) fn state(handle: u64) -> Option<PoolState> {
    let mut pools = pools();
    let pool = pools.pool(handle).ok()?;
    Some(PoolState {
        handle,
        device: pool.device,
        levels: pool.levels,
    })
}

/// The device of a pool.
pub(crate) fn device_of(handle: u64) -> Result<u32, u32> {
    Ok(pools().pool(handle)?.device)
}

/// The pool that an allocation's start is of, if any.
pub(crate) fn pool_of(address: u64) -> Option<u64> {
    let mut pools = pools();
    let mut all = pools.all().pools.iter();
    all.find(|(_, pool)| pool.live.contains_key(&address))
        .map(|(handle, _)| *handle)
}

/// Allocates in a stream's order; `None` is the device's current pool.
pub(crate) fn allocate(handle: Option<u64>, bytes: usize, stream: &Stream) -> Result<u64, u32> {
    let mut pools = pools();
    let handle = match handle {
        Some(handle) => handle,
        None => pools.all().current_of(stream.device),
    };
    let pool = pools.pool(handle)?;
    // What CUDA does as well: no block to choose, no address to give.
    if bytes == 0 {
        return Ok(0);
    }
    let rounded = bytes
        .checked_next_multiple_of(GRAIN)
        .ok_or(error::OUT_OF_MEMORY)?;
    let (address, taken) = match pool.take(rounded, stream.id) {
        Some(block) => (block.address, block.bytes),
        None => (reserve_or_make_room(&mut pools, handle, rounded)?, rounded),
    };
    let pool = pools.pool(handle)?;
    pool.live.insert(address, taken);
    pool.levels.used += taken as u64;
    pool.levels.used_high = pool.levels.used_high.max(pool.levels.used);
    memory::list(address, bytes, Place::Device(pool.device));
    Ok(address)
}

/// New pages; where the device has no more, what its pools keep is given up first, in the end with waiting for it.
fn reserve_or_make_room(pools: &mut Guard, handle: u64, bytes: usize) -> Result<u64, u32> {
    let first = pools.pool(handle)?.reserve(bytes);
    let Err(error::OUT_OF_MEMORY) = first else {
        return first;
    };
    let device = pools.pool(handle)?.device;
    for wait in [false, true] {
        let of_device = |pool: &&mut Pool| pool.device == device;
        for pool in pools.all().pools.values_mut().filter(of_device) {
            if wait {
                for (_, record) in pool.free.iter().filter_map(|block| block.freed.as_ref()) {
                    record.wait();
                }
            }
            pool.trim(0);
        }
        if let Ok(address) = pools.pool(handle)?.reserve(bytes) {
            return Ok(address);
        }
    }
    first
}

/// Frees a pool's block in the order of a stream, or at once where the device was synchronised. Gives whether the
/// address is of a pool.
pub(crate) fn free(address: u64, stream: Option<&Stream>) -> Result<bool, u32> {
    let mut pools = pools();
    let all = pools.all();
    let Some((handle, pool)) = all
        .pools
        .iter_mut()
        .find(|(_, pool)| pool.live.contains_key(&address))
    else {
        return Ok(false);
    };
    let handle = *handle;
    let Some(bytes) = pool.live.remove(&address) else {
        return Ok(false);
    };
    memory::unlist(address)?;
    pool.levels.used -= bytes as u64;
    pool.free.push(FreeBlock {
        address,
        bytes,
        freed: stream.map(|stream| (stream.id, stream.record())),
    });
    bury(all, handle);
    Ok(true)
}
