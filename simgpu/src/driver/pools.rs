//! Memory pools and stream-ordered allocation.

use std::ffi::{c_int, c_uint, c_void};

use super::context::current_context;
use super::entry::{Call, driver_functions, put};
use super::error;
use super::graph::capture;
use super::queries::known_device;
use super::stream::stream_from_handle;
use crate::cupti::memory::{self as cupti_memory, Allocated, Operation, PoolOperation};
use crate::device::Stream;
use crate::device::memory::{self, Place};
use crate::device::pool::{self, Levels};

/// CU_MEM_LOCATION_TYPE_DEVICE.
const ON_DEVICE: c_uint = 1;
/// CU_MEM_ALLOCATION_TYPE_PINNED.
const PINNED: c_uint = 1;
/// CU_MEM_ACCESS_FLAGS_PROT_NONE and _READWRITE.
const NO_ACCESS: c_uint = 0;
const READ_WRITE: c_uint = 3;

/// CUmemLocation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    kind: c_uint,
    id: c_int,
}

impl Location {
    fn device(self) -> Result<u32, u32> {
        if self.kind == ON_DEVICE {
            known_device(self.id).map_err(|_| error::INVALID_VALUE)
        } else {
            Err(error::INVALID_VALUE)
        }
    }
}

/// The beginning of CUmemPoolProps (cuda.h 12.3 on), up to the member that is used.
#[repr(C)]
pub struct Properties {
    allocation_kind: c_uint,
    handle_kinds: c_uint,
    location: Location,
    security_attributes: *mut c_void,
    most_bytes: usize,
}

/// CUmemAccessDesc.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    location: Location,
    flags: c_uint,
}

/// The attributes that are levels (CUmemPool_attribute).
fn level(levels: &mut Levels, attribute: c_uint) -> Result<&mut u64, u32> {
    Ok(match attribute {
        4 => &mut levels.threshold,
        5 => &mut levels.reserved,
        6 => &mut levels.reserved_high,
        7 => &mut levels.used,
        8 => &mut levels.used_high,
        13 => &mut levels.most,
        _ => return Err(error::INVALID_VALUE),
    })
}

fn set_attribute(pool: u64, attribute: c_uint, value: *const c_void) -> Result<(), u32> {
    if value.is_null() {
        return Err(error::INVALID_VALUE);
    }
    match attribute {
        1..=3 => {
            // SAFETY: not null; these attributes are ints.
            let allowed = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
            pool::with_reuse(pool, attribute as usize - 1, |reuse| *reuse = allowed)
        }
        4 | 6 | 8 => {
            // SAFETY: not null; these attributes are 64-bit numbers.
            let value = unsafe { value.cast::<u64>().read_unaligned() };
            pool::with_levels(pool, |levels| {
                // High marks can only be set back, to what there is now.
                let value = match (attribute, value) {
                    (4, value) => value,
                    (6, 0) => levels.reserved,
                    (8, 0) => levels.used,
                    _ => return Err(error::INVALID_VALUE),
                };
                *level(levels, attribute)? = value;
                Ok(())
            })?
        }
        _ => Err(error::INVALID_VALUE),
    }
}

/// Allocates in the order of a stream; `None` is its device's current pool.
fn allocate(call: &Call, place: *mut u64, bytes: usize, pool: Option<u64>, stream: u64) -> Result<(), u32> {
    current_context()?;
    let stream = stream_from_handle(stream)?;
    capture::forbid(&stream)?;
    let address = pool::allocate(pool, bytes, &stream)?;
    tell(call, Operation::Allocation, address, &stream);
    put(place, address)
}

/// Tells CUPTI of an allocation, or of a free before it is done.
fn tell(call: &Call, operation: Operation, address: u64, stream: &Stream) {
    if !cupti_memory::are_allocations_recorded() {
        return;
    }
    if let Some((base, bytes, place)) = memory::allocation_of(address).filter(|(base, ..)| *base == address) {
        cupti_memory::allocated(&Allocated {
            operation,
            correlation: call.correlation,
            address: base,
            bytes: bytes as u64,
            place,
            context: stream.context,
            stream: Some(stream.id),
            pool: pool::pool_of(base).and_then(pool::state),
        });
    }
}

/// Tells CUPTI what is done to a pool.
fn tell_of_pool(call: &Call, operation: PoolOperation, handle: u64, keep_bytes: usize) {
    if let Some(state) = pool::state(handle) {
        cupti_memory::pool(operation, &state, keep_bytes as u64, call.correlation);
    }
}

/// Frees in the order of a stream.
fn free_after(call: &Call, address: u64, stream: u64) -> Result<(), u32> {
    let stream = stream_from_handle(stream)?;
    capture::forbid(&stream)?;
    tell(call, Operation::Release, address, &stream);
    if pool::free(address, Some(&*stream))? {
        return Ok(());
    }
    // Plain memory may be freed in a stream's order, too. Out of the books at once, so that nothing later finds it.
    let Some((base, _, Place::Device(_))) = memory::allocation_of(address) else {
        return Err(error::INVALID_VALUE);
    };
    if base != address {
        return Err(error::INVALID_VALUE);
    }
    let (bytes, place) = memory::unlist(address)?;
    stream.call(Box::new(move || memory::release(address, bytes, place)));
    Ok(())
}

driver_functions! {
    /// cuDeviceGetDefaultMemPool.
    fn cuDeviceGetDefaultMemPool = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetDefaultMemPool(pool: *mut u64, device: c_int) |_| {
        put(pool, pool::default_of(known_device(device)?))
    }

    /// cuDeviceGetMemPool: the one that cuMemAllocAsync takes from.
    fn cuDeviceGetMemPool = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetMemPool(pool: *mut u64, device: c_int) |_| {
        put(pool, pool::current_of(known_device(device)?))
    }

    /// cuDeviceSetMemPool.
    fn cuDeviceSetMemPool = CUPTI_DRIVER_TRACE_CBID_cuDeviceSetMemPool(device: c_int, pool: u64) |_| {
        pool::set_current(known_device(device)?, pool)
    }

    /// cuMemPoolCreate, on a device.
    fn cuMemPoolCreate = CUPTI_DRIVER_TRACE_CBID_cuMemPoolCreate(pool: *mut u64, properties: *const Properties) |call| {
        // SAFETY: null, or the caller's CUmemPoolProps, whose first members these are.
        let properties = unsafe { properties.as_ref() }.ok_or(error::INVALID_VALUE)?;
        if properties.allocation_kind != PINNED || properties.handle_kinds != 0 {
            return Err(error::NOT_SUPPORTED);
        }
        let handle = pool::create(properties.location.device()?, properties.most_bytes as u64);
        tell_of_pool(call, PoolOperation::Created, handle, 0);
        put(pool, handle)
    }

    /// cuMemPoolDestroy.
    fn cuMemPoolDestroy = CUPTI_DRIVER_TRACE_CBID_cuMemPoolDestroy(pool: u64) |call| {
        tell_of_pool(call, PoolOperation::Destroyed, pool, 0);
        pool::destroy(pool)
    }

    /// cuMemPoolSetAttribute: kinds of reuse, the release threshold, and high marks back.
    fn cuMemPoolSetAttribute = CUPTI_DRIVER_TRACE_CBID_cuMemPoolSetAttribute(pool: u64, attribute: c_uint, value: *const c_void) |_| {
        set_attribute(pool, attribute, value)
    }

    /// cuMemPoolGetAttribute.
    fn cuMemPoolGetAttribute = CUPTI_DRIVER_TRACE_CBID_cuMemPoolGetAttribute(pool: u64, attribute: c_uint, value: *mut c_void) |_| {
        if let 1..=3 = attribute {
            let reuse = pool::with_reuse(pool, attribute as usize - 1, |reuse| *reuse)?;
            return put(value.cast::<c_int>(), c_int::from(reuse));
        }
        let number = pool::with_levels(pool, |levels| level(levels, attribute).map(|level| *level))??;
        put(value.cast::<u64>(), number)
    }

    /// cuMemPoolTrimTo.
    fn cuMemPoolTrimTo = CUPTI_DRIVER_TRACE_CBID_cuMemPoolTrimTo(pool: u64, least_bytes: usize) |call| {
        pool::trim(pool, least_bytes as u64)?;
        tell_of_pool(call, PoolOperation::Trimmed, pool, least_bytes);
        Ok(())
    }

    /// cuMemPoolSetAccess: which other devices reach the pool's memory. cuCtxEnablePeerAccess does not open it.
    fn cuMemPoolSetAccess = CUPTI_DRIVER_TRACE_CBID_cuMemPoolSetAccess(pool: u64, map: *const Access, count: usize) |_| {
        if map.is_null() && count > 0 {
            return Err(error::INVALID_VALUE);
        }
        let owner = pool::device_of(pool)?;
        for index in 0..count {
            // SAFETY: the caller passes `count` descriptions.
            let access = unsafe { map.add(index).read_unaligned() };
            let device = access.location.device()?;
            let allowed = match access.flags {
                NO_ACCESS => false,
                1 | READ_WRITE => true,
                _ => return Err(error::INVALID_VALUE),
            };
            if allowed && device != owner && !super::peers::can_access(device, owner) {
                return Err(error::INVALID_DEVICE);
            }
            pool::set_access(pool, device, allowed)?;
        }
        Ok(())
    }

    /// cuMemPoolGetAccess.
    fn cuMemPoolGetAccess = CUPTI_DRIVER_TRACE_CBID_cuMemPoolGetAccess(flags: *mut c_uint, pool: u64, location: *const Location) |_| {
        // SAFETY: null, or the caller's CUmemLocation.
        let device = unsafe { location.as_ref() }.ok_or(error::INVALID_VALUE)?.device()?;
        put(flags, if pool::has_access(pool, device)? { READ_WRITE } else { NO_ACCESS })
    }

    /// cuMemAllocAsync: from the current pool of the stream's device.
    fn cuMemAllocAsync = CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) |call| {
        allocate(call, address, bytes, None, stream)
    }

    /// cuMemAllocFromPoolAsync.
    fn cuMemAllocFromPoolAsync = CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: u64, stream: u64) |call| {
        allocate(call, address, bytes, Some(pool), stream)
    }

    /// cuMemFreeAsync.
    fn cuMemFreeAsync = CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync(address: u64, stream: u64) |call| {
        if address == 0 {
            return Ok(());
        }
        free_after(call, address, stream)
    }
}
