//! Where libcupti is: loaded already, or to be found.

use std::ffi::{CStr, CString, c_void};
use std::path::Path;

use super::functions::{SUCCESS, symbol};
use crate::discovery::{self, Surroundings};

fn open(name: &CStr, flags: i32) -> Option<*mut c_void> {
    // SAFETY: loads NVIDIA's CUPTI, which is made to be loaded so; the handle is never closed.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | flags) };
    (!handle.is_null()).then_some(handle)
}

/// The version of the driver that is loaded (13020 is 13.2), by cuDriverGetVersion, which needs no initialised driver.
pub(super) fn driver_version() -> Option<i32> {
    let handle = open(c"libcuda.so.1", libc::RTLD_NOLOAD)?;
    let symbol = symbol(handle, c"cuDriverGetVersion")?;
    // SAFETY: the signature is cuda.h's, in every version.
    let get: unsafe extern "C" fn(*mut i32) -> u32 = unsafe { std::mem::transmute(symbol) };
    let mut version = 0;
    // SAFETY: the place is valid for the result.
    (unsafe { get(&raw mut version) } == SUCCESS && version > 0).then_some(version)
}

/// The library: one that is loaded already, then those that [`discovery`] knows, then the loader's own.
///
/// # Errors
/// That there is none for this driver, as a sentence.
pub(super) fn find() -> Result<*mut c_void, String> {
    let names = || {
        discovery::NAMES
            .into_iter()
            .filter_map(|name| CString::new(name).ok())
    };
    // By name: also where a file goes by several names, of which the process's list of files has another one.
    if let Some(handle) = names().find_map(|name| open(&name, libc::RTLD_NOLOAD)) {
        return Ok(handle);
    }
    let version = driver_version();
    let driver = version.and_then(discovery::generation_of_driver);
    let found = discovery::find(&Surroundings::of_this_process(), driver);
    let by_path = found.usable.into_iter().find_map(|candidate| {
        let path = CString::new(candidate.path.into_os_string().into_encoded_bytes()).ok()?;
        open(&path, 0)
    });
    let by_loader = || {
        discovery::NAMES
            .into_iter()
            .filter(|name| discovery::suits(Path::new(name), driver))
            .find_map(|name| open(&CString::new(name).ok()?, 0))
    };
    by_path.or_else(by_loader).ok_or_else(|| {
        let why = found.too_new.first().map_or_else(
            || "CUPTI was not found".to_owned(),
            |candidate| {
                format!(
                    "{} is newer than the driver (CUDA {}.{}) and does not run on it",
                    candidate.path.display(),
                    version.unwrap_or(0) / 1000,
                    version.unwrap_or(0) % 1000 / 10
                )
            },
        );
        format!(
            "{why}, so no GPU activity is recorded: {}",
            discovery::how_to_get(version)
        )
    })
}
