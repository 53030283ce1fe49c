//! `CUpti_ActivityAttribute`: those that exist, with their values.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::exports::code;
use super::lock;
use crate::config::config;

/// CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER and _PER_THREAD_ACTIVITY_BUFFER.
const ZEROED: u32 = 5;
const PER_THREAD: u32 = 9;

/// Number, bytes of the value, since which version, default.
const KNOWN: [(u32, usize, u32, u64); 11] = [
    (0, 8, 1200, 3_200_000),
    (1, 8, 1200, 8_388_608),
    (2, 8, 1200, 250),
    (3, 8, 1200, 25_000),
    (4, 8, 1200, 250),
    (ZEROED, 1, 1200, 0),
    (6, 8, 1200, 3),
    (7, 8, 1200, 3),
    (8, 1, 1200, 0),
    (PER_THREAD, 1, 1203, 1),
    (10, 8, 1203, 16_777_216),
];

static VALUES: Mutex<[Option<u64>; KNOWN.len()]> = Mutex::new([None; KNOWN.len()]);
/// A bit for each of the two that are asked for with each record: set when changed from the default.
static CHANGED: AtomicU64 = AtomicU64::new(0);

/// Whether each thread has buffers of its own.
pub(super) fn per_thread_buffers() -> bool {
    CHANGED.load(Ordering::Relaxed) & 1 << PER_THREAD == 0
}

/// Whether the client gives buffers of zeros.
pub(super) fn zeroed_by_client() -> bool {
    CHANGED.load(Ordering::Relaxed) & 1 << ZEROED != 0
}

fn place_of(attribute: u32, size: *mut usize) -> Result<(usize, usize), u32> {
    let known = KNOWN
        .iter()
        .position(|(number, _, since, _)| *number == attribute && *since <= config().cupti);
    let place = known.ok_or(code::INVALID_PARAMETER)?;
    if size.is_null() {
        return Err(code::INVALID_PARAMETER);
    }
    let bytes = KNOWN[place].1;
    // SAFETY: not null; the caller passes the value's size.
    if unsafe { size.read_unaligned() } < bytes {
        return Err(code::PARAMETER_SIZE);
    }
    Ok((place, bytes))
}

/// cuptiActivitySetAttribute.
pub(super) fn set(attribute: u32, size: *mut usize, value: *const c_void) -> Result<(), u32> {
    let (place, bytes) = place_of(attribute, size)?;
    if value.is_null() {
        return Err(code::INVALID_PARAMETER);
    }
    // SAFETY: not null, and checked to be of that size.
    let value = unsafe {
        if bytes == 1 {
            u64::from(value.cast::<u8>().read())
        } else {
            value.cast::<u64>().read_unaligned()
        }
    };
    lock(&VALUES)[place] = Some(value);
    if matches!(attribute, ZEROED | PER_THREAD) {
        let bit = 1 << attribute;
        if value == KNOWN[place].3 {
            CHANGED.fetch_and(!bit, Ordering::Relaxed);
        } else {
            CHANGED.fetch_or(bit, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// cuptiActivityGetAttribute.
pub(super) fn get(attribute: u32, size: *mut usize, value: *mut c_void) -> Result<(), u32> {
    let (place, bytes) = place_of(attribute, size)?;
    if value.is_null() {
        return Err(code::INVALID_PARAMETER);
    }
    let known = lock(&VALUES)[place].unwrap_or(KNOWN[place].3);
    // SAFETY: not null, and checked to have room.
    unsafe {
        if bytes == 1 {
            value.cast::<u8>().write(known as u8);
        } else {
            value.cast::<u64>().write_unaligned(known);
        }
        size.write_unaligned(bytes);
    }
    Ok(())
}
