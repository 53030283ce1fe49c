//! The C interface of CUPTI's activities (cupti_activity.h, cupti_result.h, cupti_version.h).

use std::ffi::{CStr, c_char, c_void};

use super::delivery::{CompleteFunction, RequestFunction};
use super::layouts::{UNKNOWN_BYTES, kind};
use super::{EXTERNAL, attributes, delivery, layouts, user_defined};
use crate::clock::{now_ns, stamp_ns};
use crate::config::config;
use crate::driver::{context_from_handle, graph, stream_from_handle};
use crate::edge;

/// CUptiResult values.
pub(super) mod code {
    pub(in crate::cupti) const SUCCESS: u32 = 0;
    pub(in crate::cupti) const INVALID_PARAMETER: u32 = 1;
    pub(in crate::cupti) const INVALID_OPERATION: u32 = 7;
    pub(in crate::cupti) const PARAMETER_SIZE: u32 = 10;
    pub(in crate::cupti) const MAX_LIMIT_REACHED: u32 = 12;
    pub(in crate::cupti) const NOT_COMPATIBLE: u32 = 14;
    pub(in crate::cupti) const NOT_INITIALIZED: u32 = 15;
    pub(in crate::cupti) const QUEUE_EMPTY: u32 = 18;
    pub(in crate::cupti) const INVALID_KIND: u32 = 21;
    pub(in crate::cupti) const NOT_SUPPORTED: u32 = 27;
    pub(in crate::cupti) const MULTIPLE_SUBSCRIBERS: u32 = 39;
    pub(in crate::cupti) const UNKNOWN: u32 = 999;
}

/// Whether this CUPTI refuses everything: as one without the rights to profile does, or after a fatal error.
fn refuses() -> bool {
    config().has_fault("no-cupti") || super::is_dead()
}

/// Runs an entry point's body, if this CUPTI does anything.
pub(super) fn guarded(body: impl FnOnce() -> Result<(), u32>) -> u32 {
    let run = || {
        if refuses() {
            Err(code::NOT_INITIALIZED)
        } else {
            body()
        }
    };
    match edge::guarded(run) {
        Some(Ok(())) => code::SUCCESS,
        Some(Err(code)) => code,
        None => code::UNKNOWN,
    }
}

/// Writes through a C out-pointer.
pub(super) fn put<T>(place: *mut T, value: T) -> Result<(), u32> {
    crate::driver::entry::put(place, value).map_err(|_| code::INVALID_PARAMETER)
}

/// cuptiGetVersion.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetVersion(version: *mut u32) -> u32 {
    guarded(|| put(version, layouts::version_number(config().cupti)))
}

/// cuptiActivityRegisterCallbacks. A second registration is accepted like the first, and takes all buffers over.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks(
    request: Option<RequestFunction>,
    complete: Option<CompleteFunction>,
) -> u32 {
    guarded(|| {
        let (request, complete) = request.zip(complete).ok_or(code::INVALID_PARAMETER)?;
        user_defined::refuse_older()?;
        super::set_process();
        delivery::register(request, complete);
        Ok(())
    })
}

fn enable_kind(activity: u32, enable: bool) -> u32 {
    guarded(|| {
        let cupti = config().cupti;
        layouts::size_of(activity, cupti)
            .filter(|_| activity != kind::CUDA_EVENT || cupti >= layouts::EVENTS_APART_SINCE)
            .ok_or(code::INVALID_KIND)?;
        user_defined::refuse_older()?;
        super::set_process();
        // Kernels are recorded as they run or one at a time, not in both ways.
        let other = match activity {
            kind::KERNEL => kind::CONCURRENT_KERNEL,
            kind::CONCURRENT_KERNEL => kind::KERNEL,
            _ => 0,
        };
        if enable && other != 0 && super::is_kind_enabled(other) {
            return Err(code::NOT_COMPATIBLE);
        }
        super::enable(activity, enable);
        Ok(())
    })
}

/// cuptiActivityEnable. Devices, contexts and streams that are known already get their records now.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(activity: u32) -> u32 {
    enable_kind(activity, true)
}

/// cuptiActivityDisable.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(activity: u32) -> u32 {
    enable_kind(activity, false)
}

/// cuptiActivityEnableDriverApi (since 12.5): one driver call's records, with or without the kind.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableDriverApi(callback: u32, enable: u8) -> u32 {
    guarded(|| {
        user_defined::refuse_older()?;
        super::set_process();
        super::enable_driver_call(callback, enable != 0).ok_or(code::INVALID_PARAMETER)
    })
}

/// cuptiActivityEnableRuntimeApi (since 12.5): there are no runtime calls here.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableRuntimeApi(_callback: u32, _enable: u8) -> u32 {
    guarded(|| Ok(()))
}

/// cuptiActivityFlushAll. Flag 1 (forced) returns when the client has its buffers, with the records of what still runs;
/// 0 may return before.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(flag: u32) -> u32 {
    guarded(|| {
        if user_defined::is_active() {
            user_defined::flush(flag & 1 != 0);
            return Ok(());
        }
        if !delivery::has_client() {
            return Err(code::INVALID_OPERATION);
        }
        delivery::flush(flag & 1 != 0);
        Ok(())
    })
}

/// cuptiActivityFlushPeriod: full buffers are delivered at once anyway.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushPeriod(_milliseconds: u32) -> u32 {
    guarded(|| Ok(()))
}

/// A record's size where it lies in a buffer: with the faults `unknown-kinds` and `longer-records`, what they make of it.
pub(super) fn walked_size(record_kind: u32) -> Option<usize> {
    let config = config();
    let bytes = match record_kind {
        kind::UNKNOWN if config.has_fault("unknown-kinds") => UNKNOWN_BYTES,
        known => layouts::size_of(known, config.cupti)?,
    };
    Some(
        bytes
            + config
                .fault_value("longer-records")
                .map_or(0, |more| more.min(128) as usize)
                .next_multiple_of(8),
    )
}

/// cuptiActivityGetNextRecord: walks a buffer by the emulated version's record sizes.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid_bytes: usize,
    record: *mut *mut u8,
) -> u32 {
    guarded(|| {
        if buffer.is_null() || record.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: not null; the caller passes null or the record it got last.
        let last = unsafe { record.read_unaligned() };
        // SAFETY: `last` lies in the caller's buffer; a record begins with its kind.
        let kind_at = |place: *mut u8| unsafe { place.cast::<u32>().read_unaligned() };
        let next = if last.is_null() {
            buffer
        } else {
            let size = walked_size(kind_at(last)).ok_or(code::INVALID_KIND)?;
            last.wrapping_add(size)
        };
        let offset = (next as usize).wrapping_sub(buffer as usize);
        if offset + 8 > valid_bytes {
            return Err(code::MAX_LIMIT_REACHED);
        }
        let size = walked_size(kind_at(next)).ok_or(code::INVALID_KIND)?;
        if offset + size > valid_bytes {
            return Err(code::MAX_LIMIT_REACHED);
        }
        put(record, next)
    })
}

/// cuptiActivityGetNumDroppedRecords: since the last call.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> u32 {
    guarded(|| {
        user_defined::refuse_older()?;
        put(dropped, delivery::take_dropped() as usize)
    })
}

/// cuptiActivitySetAttribute.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivitySetAttribute(attribute: u32, size: *mut usize, value: *mut c_void) -> u32 {
    guarded(|| {
        user_defined::refuse_older()?;
        attributes::set(attribute, size, value)
    })
}

/// cuptiActivityGetAttribute.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetAttribute(attribute: u32, size: *mut usize, value: *mut c_void) -> u32 {
    guarded(|| attributes::get(attribute, size, value))
}

/// cuptiActivityPushExternalCorrelationId.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> u32 {
    guarded(|| {
        user_defined::refuse_older()?;
        let pushed = EXTERNAL.try_with(|stack| stack.borrow_mut().push((kind, id)));
        pushed.map_err(|_| code::INVALID_OPERATION)
    })
}

/// cuptiActivityPopExternalCorrelationId.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64) -> u32 {
    guarded(|| {
        user_defined::refuse_older()?;
        let popped = EXTERNAL.try_with(|stack| {
            let mut stack = stack.borrow_mut();
            let place = stack.iter().rposition(|(pushed, _)| *pushed == kind)?;
            Some(stack.remove(place).1)
        });
        let id = popped.ok().flatten().ok_or(code::QUEUE_EMPTY)?;
        if last.is_null() { Ok(()) } else { put(last, id) }
    })
}

/// cuptiGetGraphId.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetGraphId(handle: u64, id: *mut u32) -> u32 {
    guarded(|| put(id, graph::graph_id(handle).ok_or(code::INVALID_PARAMETER)?))
}

/// cuptiGetGraphExecId (since 12.3).
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetGraphExecId(handle: u64, id: *mut u32) -> u32 {
    guarded(|| put(id, graph::executable_id(handle).ok_or(code::INVALID_PARAMETER)?))
}

/// cuptiGetGraphNodeId.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetGraphNodeId(handle: u64, id: *mut u64) -> u32 {
    guarded(|| put(id, graph::node_id(handle).ok_or(code::INVALID_PARAMETER)?))
}

/// cuptiGetTimestamp.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetTimestamp(timestamp: *mut u64) -> u32 {
    guarded(|| {
        if !user_defined::plain_timestamp_works() {
            return Err(code::NOT_COMPATIBLE);
        }
        put(timestamp, stamp_ns(now_ns()).cast_unsigned())
    })
}

/// cuptiGetStreamIdEx: the number of a stream, by its handle.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetStreamIdEx(_context: u64, stream: u64, _per_thread: u8, id: *mut u32) -> u32 {
    guarded(|| {
        let stream = stream_from_handle(stream).map_err(|_| code::INVALID_PARAMETER)?;
        put(id, stream.id)
    })
}

/// cuptiGetContextId: the number of a context, by its handle.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetContextId(context: u64, id: *mut u32) -> u32 {
    guarded(|| {
        let context = context_from_handle(context).map_err(|_| code::INVALID_PARAMETER)?;
        put(id, context.id)
    })
}

/// cuptiSetThreadIdType: calls are always stamped with the system's thread id (1).
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSetThreadIdType(kind: u32) -> u32 {
    guarded(|| {
        if kind == 1 {
            Ok(())
        } else {
            Err(code::NOT_SUPPORTED)
        }
    })
}

/// cuptiGetThreadIdType.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetThreadIdType(kind: *mut u32) -> u32 {
    guarded(|| put(kind, 1))
}

/// cuptiActivityGetStructSize (since 13.2): the size of a kind's record.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetStructSize(activity: u32, _version: u32, size: *mut usize) -> u32 {
    guarded(|| {
        put(
            size,
            layouts::size_of(activity, config().cupti).ok_or(code::INVALID_KIND)?,
        )
    })
}

/// cuptiGetResultString.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetResultString(result: u32, text: *mut *const c_char) -> u32 {
    guarded(|| {
        let name: &CStr = match result {
            code::SUCCESS => c"CUPTI_SUCCESS",
            code::INVALID_PARAMETER => c"CUPTI_ERROR_INVALID_PARAMETER",
            code::MAX_LIMIT_REACHED => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
            code::NOT_COMPATIBLE => c"CUPTI_ERROR_NOT_COMPATIBLE",
            code::NOT_INITIALIZED => c"CUPTI_ERROR_NOT_INITIALIZED",
            code::QUEUE_EMPTY => c"CUPTI_ERROR_QUEUE_EMPTY",
            code::INVALID_KIND => c"CUPTI_ERROR_INVALID_KIND",
            code::NOT_SUPPORTED => c"CUPTI_ERROR_NOT_SUPPORTED",
            code::MULTIPLE_SUBSCRIBERS => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
            _ => c"CUPTI_ERROR_UNKNOWN",
        };
        put(text, name.as_ptr())
    })
}
