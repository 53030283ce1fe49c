//! CUPTI's C interface (cupti_activity.h, cupti_callbacks.h, cupti_result.h).

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use super::{
    CALLBACK_NAMES, CompleteFunction, DROPPED, ENABLED, EXTERNAL, KNOWN, RequestFunction, SUBSCRIBED,
    device_slot, emit, flush, lock, records, register,
};
use crate::clock::now_ns;
use crate::config::config;

/// CUptiResult values.
const SUCCESS: u32 = 0;
const INVALID_PARAMETER: u32 = 1;
const MAX_LIMIT_REACHED: u32 = 12;
const NOT_INITIALIZED: u32 = 15;
const QUEUE_EMPTY: u32 = 18;
const INVALID_KIND: u32 = 21;
const NOT_SUPPORTED: u32 = 27;
const MULTIPLE_SUBSCRIBERS: u32 = 39;
const UNKNOWN: u32 = 999;

/// Whether this CUPTI refuses everything, as one without the rights to profile does.
fn refuses() -> bool {
    config().has_fault("no-cupti")
}

fn guarded(body: impl FnOnce() -> Result<(), u32>) -> u32 {
    match catch_unwind(AssertUnwindSafe(|| {
        if refuses() { Err(NOT_INITIALIZED) } else { body() }
    })) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => UNKNOWN,
    }
}

fn put<T>(place: *mut T, value: T) -> Result<(), u32> {
    crate::driver::entry::put(place, value).map_err(|_| INVALID_PARAMETER)
}

/// cuptiGetVersion.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetVersion(version: *mut u32) -> u32 {
    guarded(|| put(version, records::version_number(config().cupti)))
}

/// cuptiSubscribe: one subscriber a process. Callbacks are not simulated; the subscription keeps others out.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSubscribe(
    subscriber: *mut usize,
    _callback: *const c_void,
    _data: *mut c_void,
) -> u32 {
    guarded(|| {
        if config().has_fault("subscriber-taken") || SUBSCRIBED.swap(true, Ordering::Relaxed) {
            return Err(MULTIPLE_SUBSCRIBERS);
        }
        put(subscriber, 1)
    })
}

/// cuptiUnsubscribe.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(_subscriber: usize) -> u32 {
    guarded(|| {
        if SUBSCRIBED.swap(false, Ordering::Relaxed) {
            Ok(())
        } else {
            Err(INVALID_PARAMETER)
        }
    })
}

/// cuptiActivityRegisterCallbacks.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks(
    request: Option<RequestFunction>,
    complete: Option<CompleteFunction>,
) -> u32 {
    guarded(|| {
        let (request, complete) = request.zip(complete).ok_or(INVALID_PARAMETER)?;
        register(request, complete);
        Ok(())
    })
}

/// cuptiActivityEnable. Devices, contexts and streams that are known already get their records now.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(activity: u32) -> u32 {
    guarded(|| {
        records::size_of(activity, config().cupti).ok_or(INVALID_KIND)?;
        ENABLED.fetch_or(1 << activity, Ordering::Relaxed);
        for record in lock(&KNOWN).iter().filter(|record| record.kind() == activity) {
            emit(&device_slot(), record);
        }
        Ok(())
    })
}

/// cuptiActivityDisable.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(activity: u32) -> u32 {
    guarded(|| {
        records::size_of(activity, config().cupti).ok_or(INVALID_KIND)?;
        ENABLED.fetch_and(!(1 << activity), Ordering::Relaxed);
        Ok(())
    })
}

/// cuptiActivityFlushAll. Flag 1 (forced) returns when the client has its buffers; 0 may return before.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(flag: u32) -> u32 {
    guarded(|| {
        flush(flag & 1 != 0);
        Ok(())
    })
}

/// cuptiActivityFlushPeriod: full buffers are delivered at once anyway.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushPeriod(_milliseconds: u32) -> u32 {
    guarded(|| Ok(()))
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
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: not null; the caller passes null or the record it got last.
        let last = unsafe { record.read_unaligned() };
        // SAFETY: `last` lies in the caller's buffer; a record begins with its kind.
        let kind_at = |place: *mut u8| unsafe { place.cast::<u32>().read_unaligned() };
        let next = if last.is_null() {
            buffer
        } else {
            let size = records::size_of(kind_at(last), config().cupti).ok_or(INVALID_KIND)?;
            last.wrapping_add(size)
        };
        let offset = (next as usize).wrapping_sub(buffer as usize);
        if offset + 8 > valid_bytes {
            return Err(MAX_LIMIT_REACHED);
        }
        let size = records::size_of(kind_at(next), config().cupti).ok_or(INVALID_KIND)?;
        if offset + size > valid_bytes {
            return Err(MAX_LIMIT_REACHED);
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
    guarded(|| put(dropped, DROPPED.swap(0, Ordering::Relaxed) as usize))
}

/// cuptiActivitySetAttribute: sizes of device buffers and the like, of which there are none here.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivitySetAttribute(_attribute: u32, size: *mut usize, value: *mut c_void) -> u32 {
    guarded(|| {
        if size.is_null() || value.is_null() {
            Err(INVALID_PARAMETER)
        } else {
            Ok(())
        }
    })
}

/// cuptiActivityGetAttribute.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetAttribute(_attribute: u32, _size: *mut usize, _value: *mut c_void) -> u32 {
    guarded(|| Err(NOT_SUPPORTED))
}

/// cuptiActivityPushExternalCorrelationId.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> u32 {
    guarded(|| {
        EXTERNAL.with_borrow_mut(|stack| stack.push((kind, id)));
        Ok(())
    })
}

/// cuptiActivityPopExternalCorrelationId.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64) -> u32 {
    guarded(|| {
        let popped = EXTERNAL.with_borrow_mut(|stack| {
            let place = stack.iter().rposition(|(pushed, _)| *pushed == kind)?;
            Some(stack.remove(place).1)
        });
        let id = popped.ok_or(QUEUE_EMPTY)?;
        if last.is_null() { Ok(()) } else { put(last, id) }
    })
}

/// cuptiGetTimestamp.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetTimestamp(timestamp: *mut u64) -> u32 {
    guarded(|| put(timestamp, now_ns().cast_unsigned()))
}

/// cuptiSetThreadIdType: calls are always stamped with the system's thread id (1).
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSetThreadIdType(kind: u32) -> u32 {
    guarded(|| if kind == 1 { Ok(()) } else { Err(NOT_SUPPORTED) })
}

/// cuptiGetThreadIdType.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetThreadIdType(kind: *mut u32) -> u32 {
    guarded(|| put(kind, 1))
}

/// cuptiGetCallbackName: of driver callbacks (domain 1) that were called in this process.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetCallbackName(domain: u32, callback: u32, name: *mut *const c_char) -> u32 {
    guarded(|| {
        if domain != 1 {
            return Err(INVALID_PARAMETER);
        }
        let known = lock(&CALLBACK_NAMES)
            .get(&callback)
            .copied()
            .ok_or(INVALID_PARAMETER)?;
        put(name, known.as_ptr())
    })
}

/// cuptiActivityGetStructSize (since 13.2): the size of a kind's record.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetStructSize(activity: u32, _version: u32, size: *mut usize) -> u32 {
    guarded(|| {
        if config().cupti < 1302 {
            return Err(NOT_SUPPORTED);
        }
        put(
            size,
            records::size_of(activity, config().cupti).ok_or(INVALID_KIND)?,
        )
    })
}

/// cuptiGetResultString.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetResultString(result: u32, text: *mut *const c_char) -> u32 {
    guarded(|| {
        let name: &CStr = match result {
            SUCCESS => c"CUPTI_SUCCESS",
            INVALID_PARAMETER => c"CUPTI_ERROR_INVALID_PARAMETER",
            MAX_LIMIT_REACHED => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
            NOT_INITIALIZED => c"CUPTI_ERROR_NOT_INITIALIZED",
            QUEUE_EMPTY => c"CUPTI_ERROR_QUEUE_EMPTY",
            INVALID_KIND => c"CUPTI_ERROR_INVALID_KIND",
            NOT_SUPPORTED => c"CUPTI_ERROR_NOT_SUPPORTED",
            MULTIPLE_SUBSCRIBERS => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
            _ => c"CUPTI_ERROR_UNKNOWN",
        };
        put(text, name.as_ptr())
    })
}
