//! The C interface of CUPTI's callbacks (cupti_callbacks.h).

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Mutex;

use cudarc::cupti::sys::{CUpti_driver_api_trace_cbid_enum, CUpti_runtime_api_trace_cbid_enum};

use super::callbacks::{self, CallbackFunction, Subscriber, domain};
use super::exports::{code, guarded, put};
use super::lock;
use crate::config::config;

/// How many callback ids the driver's and the runtime's domains have.
const DRIVER_IDS: u32 = CUpti_driver_api_trace_cbid_enum::CUPTI_DRIVER_TRACE_CBID_SIZE as u32;
const RUNTIME_IDS: u32 = CUpti_runtime_api_trace_cbid_enum::CUPTI_RUNTIME_TRACE_CBID_SIZE as u32;

/// Whether a domain has a callback of that id.
fn exists(domain: u32, callback: u32) -> bool {
    let ids = match domain {
        domain::DRIVER_API => DRIVER_IDS,
        domain::RUNTIME_API => RUNTIME_IDS,
        domain::RESOURCE => 26,
        domain::SYNCHRONIZE => 3,
        domain::STATE if config().cupti >= 1202 => 4,
        _ => 0,
    };
    (1..ids).contains(&callback)
}

fn subscriber(handle: usize) -> Result<std::sync::Arc<Subscriber>, u32> {
    callbacks::subscriber(handle).ok_or(code::INVALID_PARAMETER)
}

/// cuptiSubscribe: one subscriber a process.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSubscribe(
    subscriber: *mut usize,
    callback: Option<CallbackFunction>,
    data: *mut c_void,
) -> u32 {
    guarded(|| {
        if subscriber.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        let callback = callback.ok_or(code::INVALID_PARAMETER)?;
        super::user_defined::refuse_older()?;
        if config().has_fault("subscriber-taken") || callbacks::count() > 0 {
            return Err(code::MULTIPLE_SUBSCRIBERS);
        }
        super::set_process();
        put(subscriber, callbacks::subscribe(callback, data))
    })
}

/// cuptiUnsubscribe: no callbacks any more; activities stay as they are.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(handle: usize) -> u32 {
    guarded(|| {
        super::user_defined::unsubscribe(handle);
        callbacks::unsubscribe(handle).ok_or(code::INVALID_PARAMETER)
    })
}

/// cuptiEnableCallback.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableCallback(enable: u32, handle: usize, domain: u32, callback: u32) -> u32 {
    guarded(|| {
        let subscriber = subscriber(handle)?;
        if !exists(domain, callback) {
            return Err(code::INVALID_PARAMETER);
        }
        subscriber
            .enable(enable != 0, domain, callback)
            .ok_or(code::INVALID_PARAMETER)
    })
}

/// cuptiEnableDomain.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableDomain(enable: u32, handle: usize, domain: u32) -> u32 {
    guarded(|| {
        subscriber(handle)?
            .enable_domain(enable != 0, domain)
            .ok_or(code::INVALID_PARAMETER)
    })
}

/// cuptiEnableAllDomains.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableAllDomains(enable: u32, handle: usize) -> u32 {
    guarded(|| {
        let subscriber = subscriber(handle)?;
        for domain in 1..domain::COUNT {
            subscriber.enable_domain(enable != 0, domain);
        }
        Ok(())
    })
}

/// cuptiGetCallbackState.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetCallbackState(enable: *mut u32, handle: usize, domain: u32, callback: u32) -> u32 {
    guarded(|| {
        let subscriber = subscriber(handle)?;
        if !exists(domain, callback) {
            return Err(code::INVALID_PARAMETER);
        }
        put(enable, u32::from(subscriber.is_enabled(domain, callback)))
    })
}

/// The name of a driver or runtime call's callback, as cupti_driver_cbid.h and cupti_runtime_cbid.h have it.
fn name(domain: u32, callback: u32) -> Option<String> {
    if !exists(domain, callback) {
        return None;
    }
    let (text, prefix) = match domain {
        domain::DRIVER_API => {
            // SAFETY: the enum has every number up to its size, and this one is below that.
            let id = unsafe { std::mem::transmute::<u32, CUpti_driver_api_trace_cbid_enum>(callback) };
            (format!("{id:?}"), "CUPTI_DRIVER_TRACE_CBID_")
        }
        domain::RUNTIME_API => {
            // SAFETY: as above.
            let id = unsafe { std::mem::transmute::<u32, CUpti_runtime_api_trace_cbid_enum>(callback) };
            (format!("{id:?}"), "CUPTI_RUNTIME_TRACE_CBID_")
        }
        _ => return None,
    };
    Some(text.strip_prefix(prefix)?.to_owned())
}

/// cuptiGetCallbackName: of driver and runtime calls.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetCallbackName(domain: u32, callback: u32, place: *mut *const c_char) -> u32 {
    /// Texts that were given out: they live on.
    static NAMES: Mutex<BTreeMap<(u32, u32), &'static CStr>> = Mutex::new(BTreeMap::new());
    guarded(|| {
        let name = name(domain, callback).ok_or(code::INVALID_PARAMETER)?;
        let mut names = lock(&NAMES);
        let name: &'static CStr = names
            .entry((domain, callback))
            .or_insert_with(|| Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str()));
        put(place, name.as_ptr())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_have_the_headers_names() {
        assert_eq!(name(domain::DRIVER_API, 1).as_deref(), Some("cuInit"));
        assert_eq!(name(domain::DRIVER_API, 307).as_deref(), Some("cuLaunchKernel"));
        assert_eq!(name(domain::DRIVER_API, 308).as_deref(), Some("cuProfilerStart"));
        assert_eq!(
            name(domain::RUNTIME_API, 211).as_deref(),
            Some("cudaLaunchKernel_v7000")
        );
        assert_eq!(name(domain::DRIVER_API, DRIVER_IDS), None);
        assert_eq!(name(domain::RESOURCE, 1), None);
        // Every number names something: the enums have no gaps.
        for (domain, ids) in [
            (domain::DRIVER_API, DRIVER_IDS),
            (domain::RUNTIME_API, RUNTIME_IDS),
        ] {
            let is_name = |name: String| {
                ["cu", "__cu", "reserved"]
                    .iter()
                    .any(|begin| name.starts_with(begin))
            };
            assert!((1..ids).all(|id| name(domain, id).is_some_and(is_name)));
        }
    }
}
