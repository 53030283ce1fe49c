//! NVML's C interface (nvml.h), as far as telling which simulated devices there are.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::config::config;
use crate::device::{self, COMPUTE_CAPABILITY};

/// nvmlReturn_t values.
const SUCCESS: c_uint = 0;
const INVALID_ARGUMENT: c_uint = 2;
const INSUFFICIENT_SIZE: c_uint = 7;

/// Handles are device indices plus one, so that null is none.
fn device_of(handle: usize) -> Option<u32> {
    let device = u32::try_from(handle.checked_sub(1)?).ok()?;
    (device < config().devices).then_some(device)
}

fn put<T>(place: *mut T, value: T) -> c_uint {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null; the C interface has the caller pass a place for this type.
    unsafe { place.write_unaligned(value) };
    SUCCESS
}

fn put_text(place: *mut c_char, capacity: c_uint, text: &str) -> c_uint {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    if text.len() >= capacity as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller passes `capacity` bytes; the text and its zero were checked to fit.
    unsafe {
        place.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        place.add(text.len()).write(0);
    }
    SUCCESS
}

/// nvmlInit_v2.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_uint {
    SUCCESS
}

/// nvmlInitWithFlags.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    SUCCESS
}

/// nvmlShutdown.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    SUCCESS
}

/// nvmlErrorString.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: c_uint) -> *const c_char {
    let text: &CStr = match code {
        SUCCESS => c"Success",
        INVALID_ARGUMENT => c"Invalid Argument",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        _ => c"Not Supported",
    };
    text.as_ptr()
}

/// nvmlSystemGetDriverVersion.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, capacity: c_uint) -> c_uint {
    put_text(text, capacity, "simulated")
}

/// nvmlSystemGetCudaDriverVersion_v2.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> c_uint {
    put(version, 13_040)
}

/// nvmlDeviceGetCount_v2.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_uint {
    put(count, config().devices)
}

/// nvmlDeviceGetHandleByIndex_v2.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut usize) -> c_uint {
    if index < config().devices {
        put(handle, index as usize + 1)
    } else {
        INVALID_ARGUMENT
    }
}

/// nvmlDeviceGetName.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetName(handle: usize, text: *mut c_char, capacity: c_uint) -> c_uint {
    if device_of(handle).is_none() {
        return INVALID_ARGUMENT;
    }
    put_text(text, capacity, &device::name())
}

/// nvmlDeviceGetUUID.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUUID(handle: usize, text: *mut c_char, capacity: c_uint) -> c_uint {
    let Some(device) = device_of(handle) else {
        return INVALID_ARGUMENT;
    };
    let digits: String = device::uuid(device)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let uuid = format!(
        "GPU-{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    );
    put_text(text, capacity, &uuid)
}

/// nvmlDeviceGetCudaComputeCapability.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCudaComputeCapability(
    handle: usize,
    major: *mut c_int,
    minor: *mut c_int,
) -> c_uint {
    if device_of(handle).is_none() {
        return INVALID_ARGUMENT;
    }
    put(major, COMPUTE_CAPABILITY.0) | put(minor, COMPUTE_CAPABILITY.1)
}

/// nvmlMemory_t.
#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// nvmlDeviceGetMemoryInfo: of this process alone, since each process simulates devices of its own.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo(handle: usize, memory: *mut Memory) -> c_uint {
    let Some(device) = device_of(handle) else {
        return INVALID_ARGUMENT;
    };
    let (free, total) = device::memory::info(device);
    put(
        memory,
        Memory {
            total,
            free,
            used: total - free,
        },
    )
}
