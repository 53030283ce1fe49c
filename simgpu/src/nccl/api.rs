//! NCCL's C interface (nccl.h 2.30).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use super::bootstrap::Meeting;
use super::collective::Operation;
use super::model::Function;
use super::{group, reduce, result};
use crate::driver::{current_context, entry};

/// 2.30.7.
const VERSION: c_int = 23_007;

fn guarded(body: impl FnOnce() -> Result<(), c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => result::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => result::INTERNAL_ERROR,
    }
}

fn put<T>(place: *mut T, value: T) -> Result<(), c_int> {
    entry::put(place, value).map_err(|_| result::INVALID_ARGUMENT)
}

/// ncclUniqueId.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [u8; 128],
}

/// ncclGetVersion.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    guarded(|| put(version, VERSION))
}

/// ncclGetUniqueId: this process introduces the ranks to each other.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    guarded(|| {
        let bytes = Meeting::open().map_err(|_| result::SYSTEM_ERROR)?;
        put(id, UniqueId { bytes })
    })
}

/// ncclCommInitRank: returns when all ranks have come.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitRank(communicator: *mut u64, ranks: c_int, id: UniqueId, rank: c_int) -> c_int {
    init(communicator, ranks, &id, rank, None)
}

/// The beginning of ncclConfig_t, up to the member that is used.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    communicator_name: *const c_char,
}

/// ncclCommInitRankConfig: the communicator's name is kept, the rest changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitRankConfig(
    communicator: *mut u64,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> c_int {
    // SAFETY: null or the caller's ncclConfig_t, whose first member says how long it is.
    let name = unsafe { config.as_ref() }
        .filter(|config| config.magic == 0xcafe_beef && config.size >= size_of::<Config>())
        .map(|config| config.communicator_name)
        .filter(|name| !name.is_null());
    // SAFETY: a zero-terminated name by NCCL's contract.
    init(
        communicator,
        ranks,
        &id,
        rank,
        name.map(|name| unsafe { CStr::from_ptr(name) }),
    )
}

fn init(communicator: *mut u64, ranks: c_int, id: &UniqueId, rank: c_int, name: Option<&CStr>) -> c_int {
    guarded(|| {
        let number = |value: c_int| u32::try_from(value).map_err(|_| result::INVALID_ARGUMENT);
        let device = current_context()
            .map_err(|_| result::UNHANDLED_CUDA_ERROR)?
            .device;
        put(
            communicator,
            group::create(&id.bytes, number(rank)?, number(ranks)?, device, name)?,
        )
    })
}

/// ncclCommFinalize.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(communicator: u64) -> c_int {
    guarded(|| group::communicator(communicator).map(|_| ()))
}

/// ncclCommDestroy: waits for the communicator's last kernel.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(communicator: u64) -> c_int {
    guarded(|| group::remove(communicator, false))
}

/// ncclCommAbort.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(communicator: u64) -> c_int {
    guarded(|| group::remove(communicator, true))
}

/// ncclCommGetAsyncError.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommGetAsyncError(communicator: u64, error: *mut c_int) -> c_int {
    guarded(|| {
        put(
            error,
            group::communicator(communicator)?.error.load(Ordering::Relaxed),
        )
    })
}

/// ncclCommCount.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommCount(communicator: u64, count: *mut c_int) -> c_int {
    guarded(|| put(count, group::communicator(communicator)?.ranks.cast_signed()))
}

/// ncclCommUserRank.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommUserRank(communicator: u64, rank: *mut c_int) -> c_int {
    guarded(|| put(rank, group::communicator(communicator)?.rank.cast_signed()))
}

/// ncclCommCuDevice.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommCuDevice(communicator: u64, device: *mut c_int) -> c_int {
    guarded(|| put(device, group::communicator(communicator)?.device.cast_signed()))
}

/// ncclGetErrorString.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        result::SUCCESS => c"no error",
        result::UNHANDLED_CUDA_ERROR => c"unhandled cuda error",
        result::SYSTEM_ERROR => c"unhandled system error",
        result::INTERNAL_ERROR => c"internal error",
        result::INVALID_ARGUMENT => c"invalid argument",
        result::INVALID_USAGE => c"invalid usage",
        result::REMOTE_ERROR => c"remote process exited or there was a network error",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// ncclGetLastError: what went wrong was written to stderr.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_communicator: u64) -> *const c_char {
    c"".as_ptr()
}

/// ncclGroupStart.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    guarded(|| {
        group::start();
        Ok(())
    })
}

/// ncclGroupEnd.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    guarded(group::end)
}

/// What all collectives' arguments come to.
struct Arguments {
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    reduction: c_int,
    root: c_int,
}

fn enqueue(function: Function, arguments: &Arguments, communicator: u64, stream: u64) -> c_int {
    guarded(|| {
        let (element_bytes, ..) = reduce::datatype(arguments.datatype).ok_or(result::INVALID_ARGUMENT)?;
        reduce::operation_name(arguments.reduction).ok_or(result::INVALID_ARGUMENT)?;
        let operation = Operation {
            function,
            send: arguments.send as u64,
            receive: arguments.receive as u64,
            count: arguments.count,
            datatype: arguments.datatype,
            element_bytes,
            reduction: arguments.reduction,
            root: u32::try_from(arguments.root).map_err(|_| result::INVALID_ARGUMENT)?,
            sequence: 0,
        };
        group::enqueue(communicator, operation, stream)
    })
}

/// ncclAllReduce.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    reduction: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    enqueue(
        Function::AllReduce,
        &Arguments {
            send,
            receive,
            count,
            datatype,
            reduction,
            root: 0,
        },
        communicator,
        stream,
    )
}

/// ncclReduceScatter.
#[unsafe(no_mangle)]
pub extern "C" fn ncclReduceScatter(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    reduction: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let arguments = Arguments {
        send,
        receive,
        count,
        datatype,
        reduction,
        root: 0,
    };
    enqueue(Function::ReduceScatter, &arguments, communicator, stream)
}

/// ncclReduce.
#[unsafe(no_mangle)]
pub extern "C" fn ncclReduce(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    reduction: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    enqueue(
        Function::Reduce,
        &Arguments {
            send,
            receive,
            count,
            datatype,
            reduction,
            root,
        },
        communicator,
        stream,
    )
}

/// ncclBroadcast.
#[unsafe(no_mangle)]
pub extern "C" fn ncclBroadcast(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    enqueue(
        Function::Broadcast,
        &Arguments {
            send,
            receive,
            count,
            datatype,
            reduction: 0,
            root,
        },
        communicator,
        stream,
    )
}

/// ncclBcast: in place.
#[unsafe(no_mangle)]
pub extern "C" fn ncclBcast(
    buffer: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    ncclBroadcast(buffer, buffer, count, datatype, root, communicator, stream)
}

/// ncclAllGather.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    enqueue(
        Function::AllGather,
        &Arguments {
            send,
            receive,
            count,
            datatype,
            reduction: 0,
            root: 0,
        },
        communicator,
        stream,
    )
}
