//! Memory: allocation, copies, memsets.
//!
//! Copies from pageable memory take their source before they return; those into pageable memory return when they are
//! done, as the driver's do.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::context::{Context, context_from_handle, context_of_device, current_context};
use super::entry::{Call, driver_functions, put};
use super::graph::{NodeWork, capture};
use super::stream::{order_with_default, stream_from_handle};
use super::{error, peers};
use crate::config::config;
use crate::cupti::memory::{self as cupti_memory, Allocated, Operation};
use crate::device::links::Route;
use crate::device::memory::{self, Place};
use crate::device::model::{self, Path};
use crate::device::{OpKind, Submission, Work, arithmetic_done, pool};

/// An address that may cross threads: the C interface makes its validity the caller's promise.
#[derive(Clone, Copy)]
struct Address(u64);

fn memory_kind(address: u64) -> u8 {
    match memory::place_of(address) {
        None => 1,
        Some(Place::Pinned) => 2,
        Some(Place::Device(_)) => 3,
    }
}

struct CopyRequest {
    destination: u64,
    source: u64,
    bytes: usize,
    stream: u64,
    asynchronous: bool,
}

/// Whether a device may access the device memory at an address: it is its own, or opened for it. Plain memory is opened
/// by cuCtxEnablePeerAccess, a pool's by cuMemPoolSetAccess.
fn is_open(accessing: u32, address: u64) -> bool {
    let Some((base, _, Place::Device(owner))) = memory::allocation_of(address) else {
        return false;
    };
    match pool::pool_of(base) {
        _ if owner == accessing => true,
        Some(pool) => pool::has_access(pool, accessing).unwrap_or(false),
        None => peers::is_enabled(accessing, owner),
    }
}

/// What a copy is to CUPTI, and how it goes.
struct Copying {
    kind: OpKind,
    path: Path,
    route: Option<Route>,
}

fn copying(destination: u64, source: u64, bytes: usize, asynchronous: bool) -> Result<Copying, u32> {
    if destination == 0 || source == 0 {
        return Err(error::INVALID_VALUE);
    }
    let (source_kind, destination_kind) = (memory_kind(source), memory_kind(destination));
    for (address, kind) in [(source, source_kind), (destination, destination_kind)] {
        if kind == 3 {
            memory::device_range(address, bytes).map_err(|_| error::INVALID_VALUE)?;
        }
    }
    let devices = match (memory::place_of(source), memory::place_of(destination)) {
        (Some(Place::Device(from)), Some(Place::Device(to))) if from != to => Some((from, to)),
        _ => None,
    };
    let with_host = if source_kind.min(destination_kind) == 2 {
        Path::HostPinned
    } else {
        Path::HostPageable
    };
    let (copy_kind, path) = match (source_kind == 3, destination_kind == 3) {
        (true, true) if devices.is_some() => (10, Path::Device),
        (true, true) => (8, Path::Device),
        (false, true) => (1, with_host),
        (true, false) => (2, with_host),
        (false, false) => (9, Path::HostPinned),
    };
    let route = devices.map(|(from, to)| {
        let direct = is_open(to, source) || is_open(from, destination);
        Route::new(config(), from, to, direct)
    });
    let kind = OpKind::Copy {
        copy_kind,
        source_kind,
        destination_kind,
        asynchronous,
        bytes: bytes as u64,
        peers: devices,
    };
    Ok(Copying { kind, path, route })
}

/// Copies from one place to another. `staged`: what the source held when the copy was asked for.
fn copy_work(
    (destination, source, bytes): (u64, u64, usize),
    staged: Option<Vec<u8>>,
    path: Path,
    route: Option<Route>,
) -> Work {
    let (from, to) = (Address(source), Address(destination));
    Box::new(move |start_ns: i64| {
        let (from, to) = (from, to);
        let source = staged.as_ref().map_or(from.0 as *const u8, Vec::as_ptr);
        // SAFETY: device ranges were checked before and CUDA forbids freeing them before the copy is done; host ranges
        // are the caller's promise. Overlap is allowed for device to device, hence `copy`.
        unsafe { std::ptr::copy(source, to.0 as *mut u8, bytes) };
        let Some(route) = route else {
            return start_ns + model::copy_ns(path, bytes as u64);
        };
        arithmetic_done();
        route.count(bytes as u64);
        model::peer_copy_end(route, bytes as u64, start_ns)
    })
}

/// A copy as a graph's node: its source is read at each launch.
pub(super) fn copy_node(destination: u64, source: u64, bytes: usize) -> Result<NodeWork, u32> {
    let Copying { kind, path, route } = copying(destination, source, bytes, true)?;
    let make = move || copy_work((destination, source, bytes), None, path, route.clone());
    Ok(NodeWork::operation(kind, Arc::new(make)))
}

fn copy(call: &Call, request: &CopyRequest) -> Result<(), u32> {
    let &CopyRequest {
        destination,
        source,
        bytes,
        stream,
        asynchronous,
    } = request;
    if bytes == 0 {
        return Ok(());
    }
    let stream = stream_from_handle(stream)?;
    if asynchronous && capture::is_capturing(&stream) {
        return capture::append(&stream, copy_node(destination, source, bytes)?, &[]);
    }
    capture::forbid(&stream)?;
    let Copying { kind, path, route } = copying(destination, source, bytes, asynchronous)?;
    order_with_default(&stream)?;
    // The program may change pageable memory as soon as the call returns: staged now.
    let staged = (memory_kind(source) == 1).then(|| {
        let mut staged = vec![0u8; bytes];
        // SAFETY: the caller promises `bytes` readable bytes at `source`; the vector has room for them.
        unsafe { std::ptr::copy_nonoverlapping(source as *const u8, staged.as_mut_ptr(), bytes) };
        staged
    });
    stream.submit(Submission {
        correlation: call.correlation,
        kind,
        work: copy_work((destination, source, bytes), staged, path, route),
        graph: None,
    });
    if !asynchronous || memory_kind(destination) == 1 {
        stream.synchronize();
    }
    Ok(())
}

/// Fills a range with a pattern of 1, 2 or 4 bytes.
fn memset_work<const N: usize>(destination: u64, pattern: [u8; N], bytes: usize) -> Work {
    Box::new(move |start_ns: i64| {
        // SAFETY: the range was checked before; CUDA forbids freeing it before the memset is done.
        let memory = unsafe { std::slice::from_raw_parts_mut(destination as *mut u8, bytes) };
        for chunk in memory.chunks_exact_mut(N) {
            chunk.copy_from_slice(&pattern);
        }
        start_ns + model::memset_ns(bytes as u64)
    })
}

fn memset_kind<const N: usize>(
    destination: u64,
    pattern: [u8; N],
    bytes: usize,
    asynchronous: bool,
) -> Result<OpKind, u32> {
    memory::device_range(destination, bytes).map_err(|_| error::INVALID_VALUE)?;
    let mut value = [0u8; 4];
    value[..N].copy_from_slice(&pattern);
    Ok(OpKind::Memset {
        bytes: bytes as u64,
        value: u32::from_le_bytes(value),
        asynchronous,
    })
}

/// A memset as a graph's node, of elements of 1, 2 or 4 bytes.
pub(super) fn memset_node(
    destination: u64,
    value: u32,
    element_bytes: usize,
    count: usize,
) -> Result<NodeWork, u32> {
    fn node<const N: usize>(destination: u64, pattern: [u8; N], count: usize) -> Result<NodeWork, u32> {
        let kind = memset_kind(destination, pattern, count * N, true)?;
        let make = move || memset_work(destination, pattern, count * N);
        Ok(NodeWork::operation(kind, Arc::new(make)))
    }
    match element_bytes {
        1 => node(destination, [value as u8], count),
        2 => node(destination, (value as u16).to_le_bytes(), count),
        4 => node(destination, value.to_le_bytes(), count),
        _ => Err(error::INVALID_VALUE),
    }
}

fn set<const N: usize>(
    call: &Call,
    destination: u64,
    pattern: [u8; N],
    count: usize,
    stream: u64,
    asynchronous: bool,
) -> Result<(), u32> {
    if count == 0 {
        return Ok(());
    }
    let bytes = count * N;
    let stream = stream_from_handle(stream)?;
    let kind = memset_kind(destination, pattern, bytes, asynchronous)?;
    if !asynchronous {
        capture::forbid(&stream)?;
    }
    if !capture::is_capturing(&stream) {
        order_with_default(&stream)?;
    }
    capture::submit(&stream, call, kind, move || {
        memset_work(destination, pattern, bytes)
    })?;
    if !asynchronous {
        stream.synchronize();
    }
    Ok(())
}

/// Allocates outside of any pool.
fn allocate(
    call: &Call,
    place: *mut u64,
    bytes: usize,
    at: impl FnOnce(Context) -> Place,
) -> Result<(), u32> {
    let context = current_context()?;
    let memory_place = at(context);
    let address = memory::allocate(bytes, memory_place)?;
    cupti_memory::allocated(&Allocated {
        operation: Operation::Allocation,
        correlation: call.correlation,
        address,
        bytes: bytes as u64,
        place: memory_place,
        context: context.id,
        stream: None,
        pool: None,
    });
    put(place, address)
}

/// Tells CUPTI of a free at once, with what there is of the allocation before it.
fn tell_of_free(call: &Call, address: u64, context: u32) {
    if !cupti_memory::are_allocations_recorded() {
        return;
    }
    if let Some((base, bytes, place)) = memory::allocation_of(address).filter(|(base, ..)| *base == address) {
        cupti_memory::allocated(&Allocated {
            operation: Operation::Release,
            correlation: call.correlation,
            address: base,
            bytes: bytes as u64,
            place,
            context,
            stream: None,
            pool: pool::pool_of(base).and_then(pool::state),
        });
    }
}

/// Frees device memory that is of no pool.
fn free_plain(address: u64) -> Result<(), u32> {
    match memory::allocation_of(address) {
        Some((base, _, Place::Device(_))) if base == address => memory::free(address),
        _ => Err(error::INVALID_VALUE),
    }
}

/// Checks that copies between two contexts are between their devices' memory.
fn check_contexts(ends: [(u64, u64); 2]) -> Result<(), u32> {
    for (address, context) in ends {
        let device = context_from_handle(context)?.device;
        if memory::place_of(address) != Some(Place::Device(device)) {
            return Err(error::INVALID_VALUE);
        }
    }
    Ok(())
}

/// What cuPointerGetAttribute tells of an address (CUpointer_attribute); the place is the attribute's type.
fn pointer_attribute(data: *mut c_void, attribute: c_uint, address: u64) -> Result<(), u32> {
    let (base, bytes, place) = memory::allocation_of(address).ok_or(error::INVALID_VALUE)?;
    let device = match place {
        Place::Device(device) => Some(device),
        Place::Pinned => None,
    };
    match attribute {
        // The context, and where the memory is: CU_MEMORYTYPE_HOST or _DEVICE.
        1 => put(
            data.cast::<u64>(),
            match device {
                Some(device) => context_of_device(device)?.handle,
                None => current_context()?.handle,
            },
        ),
        2 => put(data.cast::<c_uint>(), if device.is_some() { 2 } else { 1 }),
        // The address for devices and, of pinned memory, for the host.
        3 => put(data.cast::<u64>(), address),
        4 if device.is_none() => put(data.cast::<u64>(), address),
        // Whether it is managed.
        8 => put(data.cast::<c_uint>(), 0),
        9 => put(
            data.cast::<c_int>(),
            match device {
                Some(device) => device.cast_signed(),
                None => current_context()?.device.cast_signed(),
            },
        ),
        11 => put(data.cast::<u64>(), base),
        12 => put(data.cast::<usize>(), bytes),
        13 => put(data.cast::<u8>(), 1),
        17 => put(data.cast::<u64>(), pool::pool_of(base).unwrap_or(0)),
        _ => Err(error::INVALID_VALUE),
    }
}

driver_functions! {
    /// cuMemAlloc_v2.
    fn cuMemAlloc_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2(address: *mut u64, bytes: usize) |call| {
        allocate(call, address, bytes, |context| Place::Device(context.device))
    }

    /// cuMemFree_v2: waits for the device first, as the driver does.
    fn cuMemFree_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2(address: u64) |call| {
        if address == 0 {
            return Ok(());
        }
        let context = current_context()?;
        for (_, stream) in crate::device::all_streams() {
            if stream.context == context.id {
                stream.synchronize();
            }
        }
        tell_of_free(call, address, context.id);
        let freed = if pool::free(address, None)? { Ok(()) } else { free_plain(address) };
        pool::synchronised(context.device);
        freed
    }

    /// cuMemHostAlloc.
    fn cuMemHostAlloc = CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) |call| {
        allocate(call, address.cast(), bytes, |_| Place::Pinned)
    }

    /// cuMemAllocHost_v2.
    fn cuMemAllocHost_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) |call| {
        allocate(call, address.cast(), bytes, |_| Place::Pinned)
    }

    /// cuMemFreeHost.
    fn cuMemFreeHost = CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost(address: *mut c_void) |call| {
        match memory::place_of(address as u64) {
            Some(Place::Pinned) => {
                tell_of_free(call, address as u64, current_context().map_or(u32::MAX, |context| context.id));
                memory::free(address as u64)
            }
            _ => Err(error::INVALID_VALUE),
        }
    }

    /// cuMemGetInfo_v2.
    fn cuMemGetInfo_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |_| {
        let (free_bytes, total_bytes) = memory::info(current_context()?.device);
        put(free, free_bytes as usize)?;
        put(total, total_bytes as usize)
    }

    /// cuMemcpyHtoD_v2.
    fn cuMemcpyHtoD_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2(destination: u64, source: *const c_void, bytes: usize) |call| {
        copy(call, &CopyRequest { destination, source: source as u64, bytes, stream: 0, asynchronous: false })
    }

    /// cuMemcpyHtoDAsync_v2.
    fn cuMemcpyHtoDAsync_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2(destination: u64, source: *const c_void, bytes: usize, stream: u64) |call| {
        copy(call, &CopyRequest { destination, source: source as u64, bytes, stream, asynchronous: true })
    }

    /// cuMemcpyDtoH_v2.
    fn cuMemcpyDtoH_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2(destination: *mut c_void, source: u64, bytes: usize) |call| {
        copy(call, &CopyRequest { destination: destination as u64, source, bytes, stream: 0, asynchronous: false })
    }

    /// cuMemcpyDtoHAsync_v2.
    fn cuMemcpyDtoHAsync_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2(destination: *mut c_void, source: u64, bytes: usize, stream: u64) |call| {
        copy(call, &CopyRequest { destination: destination as u64, source, bytes, stream, asynchronous: true })
    }

    /// cuMemcpyDtoD_v2.
    fn cuMemcpyDtoD_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2(destination: u64, source: u64, bytes: usize) |call| {
        copy(call, &CopyRequest { destination, source, bytes, stream: 0, asynchronous: false })
    }

    /// cuMemcpyDtoDAsync_v2.
    fn cuMemcpyDtoDAsync_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2(destination: u64, source: u64, bytes: usize, stream: u64) |call| {
        copy(call, &CopyRequest { destination, source, bytes, stream, asynchronous: true })
    }

    /// cuMemcpy: addresses say where they are.
    fn cuMemcpy = CUPTI_DRIVER_TRACE_CBID_cuMemcpy(destination: u64, source: u64, bytes: usize) |call| {
        copy(call, &CopyRequest { destination, source, bytes, stream: 0, asynchronous: false })
    }

    /// cuMemcpyAsync.
    fn cuMemcpyAsync = CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync(destination: u64, source: u64, bytes: usize, stream: u64) |call| {
        copy(call, &CopyRequest { destination, source, bytes, stream, asynchronous: true })
    }

    /// cuMemcpyPeer: after all work of both contexts' blocking streams, and waits for it.
    fn cuMemcpyPeer = CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeer(destination: u64, to: u64, source: u64, from: u64, bytes: usize) |call| {
        check_contexts([(destination, to), (source, from)])?;
        let default = stream_from_handle(0)?;
        let contexts = [context_from_handle(to)?.id, context_from_handle(from)?.id];
        for (_, other) in crate::device::all_streams() {
            if other.blocking && contexts.contains(&other.context) && other.id != default.id {
                default.wait_for(other.record());
            }
        }
        copy(call, &CopyRequest { destination, source, bytes, stream: 0, asynchronous: false })
    }

    /// cuMemcpyPeerAsync.
    fn cuMemcpyPeerAsync = CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync(destination: u64, to: u64, source: u64, from: u64, bytes: usize, stream: u64) |call| {
        check_contexts([(destination, to), (source, from)])?;
        copy(call, &CopyRequest { destination, source, bytes, stream, asynchronous: true })
    }

    /// cuPointerGetAttribute.
    fn cuPointerGetAttribute = CUPTI_DRIVER_TRACE_CBID_cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: u64) |_| {
        pointer_attribute(data, attribute, address)
    }

    /// cuMemGetAddressRange_v2.
    fn cuMemGetAddressRange_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) |_| {
        let (start, length, _) = memory::allocation_of(address).ok_or(error::NOT_FOUND)?;
        if !base.is_null() {
            put(base, start)?;
        }
        if bytes.is_null() { Ok(()) } else { put(bytes, length) }
    }

    /// cuMemsetD8_v2.
    fn cuMemsetD8_v2 = CUPTI_DRIVER_TRACE_CBID_cuMemsetD8_v2(destination: u64, value: u8, count: usize) |call| {
        set(call, destination, [value], count, 0, false)
    }

    /// cuMemsetD8Async.
    fn cuMemsetD8Async = CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async(destination: u64, value: u8, count: usize, stream: u64) |call| {
        set(call, destination, [value], count, stream, true)
    }

    /// cuMemsetD32Async.
    fn cuMemsetD32Async = CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async(destination: u64, value: c_uint, count: usize, stream: u64) |call| {
        set(call, destination, value.to_le_bytes(), count, stream, true)
    }
}
