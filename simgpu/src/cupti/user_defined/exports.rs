//! The C interface of the functions of a subscriber (cupti_activity.h and cupti_callbacks.h, 13.2 and later).

use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering;

use super::super::callbacks::{self, CallbackFunction};
use super::super::exports::{code, guarded, put, walked_size};
use super::super::{attributes, delivery, layouts, set_process};
use super::selection::{ActivityConfig, Selection};
use super::{COMMITTED, CompleteFunction, EXTERNAL, KINDS, RequestFunction, SEVERAL};
use super::{fields, find, subscribe, subscribers, text};
use crate::clock::{now_ns, stamp_ns};
use crate::config::config;

/// CUpti_SubscriberParams.
#[repr(C)]
pub struct SubscriberParams {
    struct_bytes: usize,
    name: *const c_char,
    old_name: *mut c_char,
    old_name_bytes: usize,
    allow_several: u8,
    padding: [u8; 7],
}

/// Several subscribers need a driver of this release.
const SEVERAL_SINCE_DRIVER: u32 = 610;

/// CUpti_ActivityAttribute values.
mod attribute {
    pub(super) const ZEROED: u32 = 5;
    pub(super) const USER_DEFINED_RECORDS: u32 = 11;
    pub(super) const SEVERAL_SUBSCRIBERS: u32 = 12;
    pub(super) const THREAD_ID_TYPE: u32 = 21;
    pub(super) const TIMESTAMP_CALLBACK: u32 = 22;
}

/// Tells who is there already.
///
/// # Safety
/// `params` has a place of the size that it says, or none.
unsafe fn tell_old_name(params: &SubscriberParams, name: &str) {
    if params.old_name.is_null() || params.old_name_bytes == 0 {
        return;
    }
    let name = format!("CUPTI for {name}");
    let length = name.len().min(params.old_name_bytes - 1);
    // SAFETY: at most as many bytes as the place has, the zero included.
    unsafe {
        params
            .old_name
            .cast::<u8>()
            .copy_from_nonoverlapping(name.as_ptr(), length);
        params.old_name.add(length).write(0);
    }
}

/// cuptiSubscribe_v2. The first subscriber decides whether there may be others; others decide the same.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSubscribe_v2(
    subscriber: *mut usize,
    callback: Option<CallbackFunction>,
    data: *mut c_void,
    params: *const SubscriberParams,
) -> u32 {
    guarded(|| {
        if subscriber.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        let callback = callback.ok_or(code::INVALID_PARAMETER)?;
        // SAFETY: null, or the parameters that the caller gives.
        let params = unsafe { params.as_ref() };
        if params.is_some_and(|params| params.struct_bytes < size_of::<SubscriberParams>()) {
            return Err(code::INVALID_PARAMETER);
        }
        let several = params.is_some_and(|params| params.allow_several != 0);
        let others = subscribers();
        if let Some((params, other)) = params.zip(others.first()) {
            // SAFETY: the caller's place, of the size that it says.
            unsafe { tell_old_name(params, &other.name) };
        }
        let older = others.is_empty() && (callbacks::count() > 0 || delivery::has_client());
        let taken = config().has_fault("subscriber-taken") || older;
        let refused = if several {
            config().cupti < 1303
                || config().driver < SEVERAL_SINCE_DRIVER
                || SEVERAL.load(Ordering::Relaxed) == 0
        } else {
            !others.is_empty()
        };
        if taken || refused {
            return Err(code::MULTIPLE_SUBSCRIBERS);
        }
        set_process();
        // SAFETY: null, or the text that the caller gives.
        let name = params.map_or_else(String::new, |params| unsafe { text(params.name) });
        let handle = callbacks::subscribe(callback, data);
        SEVERAL.store(u8::from(several), Ordering::Relaxed);
        subscribe(handle, name);
        put(subscriber, handle)
    })
}

/// cuptiActivityRegisterCallbacks_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks_v2(
    subscriber: usize,
    request: Option<RequestFunction>,
    complete: Option<CompleteFunction>,
) -> u32 {
    guarded(|| {
        let functions = request.zip(complete).ok_or(code::INVALID_PARAMETER)?;
        find(subscriber)?
            .client
            .set(functions)
            .map_err(|_| code::INVALID_OPERATION)
    })
}

fn known_kind(activity: u32) -> Result<u32, u32> {
    layouts::size_of(activity, config().cupti)
        .filter(|_| (activity as usize) < KINDS)
        .ok_or(code::INVALID_KIND)?;
    Ok(activity)
}

/// cuptiActivityEnable_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable_v2(
    subscriber: usize,
    activity: u32,
    wanted: *const ActivityConfig,
) -> u32 {
    guarded(|| {
        let activity = known_kind(activity)?;
        let subscriber = find(subscriber)?;
        let user_defined = subscriber.user_defined.load(Ordering::Relaxed);
        if user_defined && !fields::has_fields(activity) {
            return Err(code::INVALID_KIND);
        }
        // SAFETY: null or the configuration that the caller gives.
        let selection = unsafe { Selection::read(activity, wanted, user_defined, config().cupti >= 1304)? };
        subscriber.enable(activity, selection)
    })
}

/// cuptiActivityDisable_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable_v2(
    subscriber: usize,
    activity: u32,
    _wanted: *const ActivityConfig,
) -> u32 {
    guarded(|| {
        let activity = known_kind(activity)?;
        find(subscriber)?.disable(activity);
        Ok(())
    })
}

/// The bytes of an attribute's value, or that the caller's place is too small.
fn check_size(size: *const usize, bytes: usize) -> Result<(), u32> {
    if size.is_null() {
        return Err(code::INVALID_PARAMETER);
    }
    // SAFETY: not null; the caller passes the value's size.
    if unsafe { size.read_unaligned() } < bytes {
        Err(code::PARAMETER_SIZE)
    } else {
        Ok(())
    }
}

/// cuptiActivitySetAttribute_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivitySetAttribute_v2(
    subscriber: usize,
    which: u32,
    size: *mut usize,
    value: *mut c_void,
) -> u32 {
    guarded(|| {
        let subscriber = find(subscriber)?;
        if value.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: not null; the first byte of the value, which every value has.
        let first = unsafe { value.cast::<u8>().read() };
        match which {
            attribute::ZEROED => {
                check_size(size, 1)?;
                subscriber.zeroed.store(first != 0, Ordering::Relaxed);
            }
            attribute::USER_DEFINED_RECORDS => {
                check_size(size, 1)?;
                if subscriber.enabled.load(Ordering::Relaxed) != 0 {
                    return Err(code::NOT_COMPATIBLE);
                }
                subscriber.user_defined.store(first != 0, Ordering::Relaxed);
            }
            attribute::THREAD_ID_TYPE => {
                check_size(size, 4)?;
                if first > 1 {
                    return Err(code::INVALID_PARAMETER);
                }
                subscriber.thread_id_type.store(first, Ordering::Relaxed);
            }
            // Not together with several subscribers or user-defined records.
            attribute::TIMESTAMP_CALLBACK => return Err(code::NOT_COMPATIBLE),
            attribute::SEVERAL_SUBSCRIBERS => return Err(code::INVALID_PARAMETER),
            _ => attributes::set(which, size, value)?,
        }
        Ok(())
    })
}

/// cuptiActivityGetAttribute_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetAttribute_v2(
    subscriber: usize,
    which: u32,
    size: *mut usize,
    value: *mut c_void,
) -> u32 {
    guarded(|| {
        let byte = match which {
            // May be asked before there is a subscriber.
            attribute::SEVERAL_SUBSCRIBERS => SEVERAL.load(Ordering::Relaxed),
            attribute::USER_DEFINED_RECORDS => {
                u8::from(find(subscriber)?.user_defined.load(Ordering::Relaxed))
            }
            attribute::ZEROED => u8::from(find(subscriber)?.zeroed.load(Ordering::Relaxed)),
            attribute::THREAD_ID_TYPE => {
                check_size(size, 4)?;
                let id_type = u32::from(find(subscriber)?.thread_id_type.load(Ordering::Relaxed));
                return put(value.cast(), id_type);
            }
            _ => return attributes::get(which, size, value),
        };
        check_size(size, 1)?;
        put(value.cast(), byte)
    })
}

/// cuptiActivityGetNextRecord_v2: walks a buffer by the sizes of the subscriber's records.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetNextRecord_v2(
    subscriber: usize,
    buffer: *mut u8,
    valid_bytes: usize,
    record: *mut *mut u8,
) -> u32 {
    guarded(|| {
        let subscriber = find(subscriber)?;
        if buffer.is_null() || record.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: `place` lies in the caller's buffer; a record begins with its kind.
        let kind_at = |place: *mut u8| unsafe { place.cast::<u32>().read_unaligned() };
        let bytes_at = |place: *mut u8| {
            let record_kind = kind_at(place);
            if !subscriber.user_defined.load(Ordering::Relaxed) {
                return walked_size(record_kind).ok_or(code::INVALID_KIND);
            }
            let selection = subscriber.selection(record_kind).ok_or(code::INVALID_KIND)?;
            Ok(selection.layout().ok_or(code::INVALID_KIND)?.record_bytes())
        };
        // SAFETY: not null; the caller passes null or the record it got last.
        let last = unsafe { record.read_unaligned() };
        let next = if last.is_null() {
            buffer
        } else {
            last.wrapping_add(bytes_at(last)?)
        };
        let offset = (next as usize).wrapping_sub(buffer as usize);
        if offset + 4 > valid_bytes || offset + bytes_at(next)? > valid_bytes {
            return Err(code::MAX_LIMIT_REACHED);
        }
        put(record, next)
    })
}

/// cuptiActivityGetNumDroppedRecords_v2: since the last call.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetNumDroppedRecords_v2(
    subscriber: usize,
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> u32 {
    guarded(|| {
        let count = find(subscriber)?.dropped.swap(0, Ordering::Relaxed);
        put(dropped, count as usize)
    })
}

/// cuptiGetTimestamp_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetTimestamp_v2(subscriber: usize, timestamp: *mut u64) -> u32 {
    guarded(|| {
        find(subscriber)?;
        put(timestamp, stamp_ns(now_ns()).cast_unsigned())
    })
}

/// cuptiActivityPushExternalCorrelationId_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId_v2(
    subscriber: usize,
    external: u32,
    id: u64,
) -> u32 {
    guarded(|| {
        find(subscriber)?;
        let pushed = EXTERNAL.try_with(|stack| stack.borrow_mut().push((subscriber, external, id)));
        pushed.map_err(|_| code::INVALID_OPERATION)
    })
}

/// cuptiActivityPopExternalCorrelationId_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPopExternalCorrelationId_v2(
    subscriber: usize,
    external: u32,
    last: *mut u64,
) -> u32 {
    guarded(|| {
        find(subscriber)?;
        let popped = EXTERNAL.try_with(|stack| {
            let mut stack = stack.borrow_mut();
            let place = stack
                .iter()
                .rposition(|(handle, pushed, _)| (*handle, *pushed) == (subscriber, external))?;
            Some(stack.remove(place).2)
        });
        let id = popped.ok().flatten().ok_or(code::QUEUE_EMPTY)?;
        if last.is_null() { Ok(()) } else { put(last, id) }
    })
}

/// cuptiGetTimestamp does not work besides user-defined records.
pub(in crate::cupti) fn plain_timestamp_works() -> bool {
    !COMMITTED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::cupti::sys;

    use super::super::{CompleteInfo, RequestInfo};
    use super::*;

    #[test]
    fn structs_lie_as_the_headers_have_them() {
        assert_eq!(
            size_of::<SubscriberParams>(),
            size_of::<sys::CUpti_SubscriberParams>()
        );
        assert_eq!(
            offset_of!(SubscriberParams, allow_several),
            offset_of!(sys::CUpti_SubscriberParams, allowMultipleSubscribers)
        );
        assert_eq!(
            size_of::<CompleteInfo>(),
            size_of::<sys::CUpti_BufferCallbackCompleteInfo>()
        );
        assert_eq!(
            offset_of!(CompleteInfo, layouts),
            offset_of!(sys::CUpti_BufferCallbackCompleteInfo, ppRecordLayouts)
        );
        assert_eq!(
            size_of::<RequestInfo>(),
            size_of::<sys::CUpti_BufferCallbackRequestInfo>()
        );
    }
}
