//! NVML's C interface (nvml.h): which simulated devices there are, what joins them, and how busy this process keeps them.
//!
//! Handles are device numbers plus one, so that null is none. What is done on a device is read off the [`board`]: of
//! all processes of a run with SIMGPU_RUN, else of this one.

mod board;
mod fields;
mod identity;
mod load;
mod meeting;
mod topology;

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use board::publish_for_others;

use crate::config::config;
use crate::edge;

/// nvmlReturn_t values.
mod code {
    use std::ffi::c_uint;

    pub(super) const SUCCESS: c_uint = 0;
    pub(super) const UNINITIALIZED: c_uint = 1;
    pub(super) const INVALID_ARGUMENT: c_uint = 2;
    pub(super) const NOT_SUPPORTED: c_uint = 3;
    pub(super) const NOT_FOUND: c_uint = 6;
    pub(super) const INSUFFICIENT_SIZE: c_uint = 7;
    pub(super) const UNKNOWN: c_uint = 999;
}

type Answer = Result<(), c_uint>;

/// Runs an entry point's body.
fn guarded(body: impl FnOnce() -> Answer) -> c_uint {
    match edge::guarded(body) {
        Some(Ok(())) => code::SUCCESS,
        Some(Err(code)) => code,
        None => code::UNKNOWN,
    }
}

/// Defines exported NVML functions whose bodies give an [`Answer`].
macro_rules! nvml_functions {
    ($( $(#[$doc:meta])* fn $name:ident ( $($argument:ident : $type:ty),* $(,)? ) $body:block )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> std::ffi::c_uint {
            $crate::nvml::guarded(|| $body)
        }
    )*};
}
use nvml_functions;

/// Calls of nvmlInit that no nvmlShutdown ended.
static USERS: AtomicU32 = AtomicU32::new(0);

fn check_initialised() -> Answer {
    if USERS.load(Ordering::Relaxed) > 0 {
        Ok(())
    } else {
        Err(code::UNINITIALIZED)
    }
}

/// The device of a handle.
fn device_of(handle: usize) -> Result<u32, c_uint> {
    check_initialised()?;
    handle
        .checked_sub(1)
        .and_then(|device| u32::try_from(device).ok())
        .filter(|device| *device < config().devices)
        .ok_or(code::INVALID_ARGUMENT)
}

fn handle_of(device: u32) -> usize {
    device as usize + 1
}

fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null; the C interface has the caller pass a place for this type.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

fn put_text(place: *mut c_char, capacity: c_uint, text: &str) -> Answer {
    if place.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    if text.len() >= capacity as usize {
        return Err(code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller passes `capacity` bytes; the text and its zero were checked to fit.
    unsafe {
        place.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

/// The caller's zero-terminated text.
fn text<'a>(place: *const c_char) -> Result<&'a str, c_uint> {
    if place.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and zero-terminated by NVML's contract.
    unsafe { CStr::from_ptr(place) }
        .to_str()
        .map_err(|_| code::INVALID_ARGUMENT)
}

fn initialise() -> Answer {
    // What is wrong with the settings cuInit says.
    if config().wrong.is_some() {
        return Err(code::UNKNOWN);
    }
    USERS.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

nvml_functions! {
    /// nvmlInit_v2.
    fn nvmlInit_v2() {
        initialise()
    }

    /// nvmlInitWithFlags: there are no other ways to initialise.
    fn nvmlInitWithFlags(_flags: c_uint) {
        initialise()
    }

    /// nvmlShutdown.
    fn nvmlShutdown() {
        check_initialised()?;
        USERS.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// nvmlSystemGetDriverVersion.
    fn nvmlSystemGetDriverVersion(place: *mut c_char, capacity: c_uint) {
        check_initialised()?;
        put_text(place, capacity, "simulated")
    }

    /// nvmlSystemGetNVMLVersion.
    fn nvmlSystemGetNVMLVersion(place: *mut c_char, capacity: c_uint) {
        check_initialised()?;
        put_text(place, capacity, "simulated")
    }

    /// nvmlSystemGetCudaDriverVersion_v2.
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) {
        put(version, 13_040)
    }

    /// nvmlDeviceGetCount_v2.
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) {
        check_initialised()?;
        put(count, config().devices)
    }
}

/// nvmlErrorString.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: c_uint) -> *const c_char {
    let text: &CStr = match result {
        code::SUCCESS => c"Success",
        code::UNINITIALIZED => c"Uninitialized",
        code::INVALID_ARGUMENT => c"Invalid Argument",
        code::NOT_SUPPORTED => c"Not Supported",
        code::NOT_FOUND => c"Not Found",
        code::INSUFFICIENT_SIZE => c"Insufficient Size",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
