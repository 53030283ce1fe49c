//! What every entry point does: tell CUPTI, keep panics and cancellation on their side of the C boundary, return a CUresult.

use super::error;
use crate::{cupti, edge};

pub(crate) use crate::cupti::Entering;

/// The call that an entry point is serving.
pub(crate) struct Call {
    /// The correlation id that joins the call to the operation it launches.
    pub(crate) correlation: u32,
}

/// Runs an entry point's body between CUPTI's enter and exit.
pub(crate) fn enter(entering: &Entering, body: impl FnOnce(&Call) -> Result<(), u32>) -> u32 {
    let served = edge::guarded(|| {
        let api = cupti::enter_driver(entering);
        let call = Call {
            correlation: api.correlation(),
        };
        let result = match edge::guarded(|| body(&call)) {
            Some(Ok(())) => error::SUCCESS,
            Some(Err(code)) => code,
            None => error::UNKNOWN,
        };
        api.finish(result)
    });
    served.unwrap_or(error::UNKNOWN)
}

/// Writes through a C out-pointer.
pub(crate) fn put<T>(place: *mut T, value: T) -> Result<(), u32> {
    if place.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, and the C interface has the caller pass a place for this type. Unaligned, as C may be.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Defines exported driver functions: `name = callback id, (arguments) |call| body`.
macro_rules! driver_functions {
    ($( $(#[$doc:meta])* fn $name:ident = $callback:ident ( $($argument:ident : $type:ty),* $(,)? ) |$call:pat_param| $body:block )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> u32 {
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
            /// The arguments as tools see them (generated_cuda_meta.h).
            #[repr(C)]
            #[allow(dead_code)] // Read by tools only.
            struct Parameters { $($argument: $type),* }
            let parameters = Parameters { $($argument),* };
            let entering = $crate::driver::entry::Entering {
                callback: cudarc::cupti::sys::CUpti_driver_api_trace_cbid_enum::$callback as u32,
                name: NAME,
                parameters: (&raw const parameters).cast(),
                symbol: None,
            };
            $crate::driver::entry::enter(&entering, |$call| $body)
        }
    )*};
}
pub(crate) use driver_functions;
