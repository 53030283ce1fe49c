//! CUPTI's functions and numbers.

use std::ffi::{CStr, c_char, c_void};

/// CUptiResult values that mean something here.
pub(super) const SUCCESS: u32 = 0;
pub(super) const NOT_COMPATIBLE: u32 = 14;
pub(super) const MULTIPLE_SUBSCRIBERS: u32 = 39;
/// CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER.
pub(super) const ATTRIBUTE_ZEROED: u32 = 5;
/// CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM.
pub(super) const THREAD_ID_SYSTEM: u32 = 1;
/// From this version (CUDA 12.9) CUPTI survives a refused buffer.
pub(super) const MAY_REFUSE_SINCE: u32 = 27;
/// From this version (CUDA 13.4) a subscriber among several can say of which calls it wants records.
pub(super) const CHOSEN_CALLS_SINCE: u32 = 130_401;

/// A symbol of an open library.
pub(super) fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `handle` is open.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

macro_rules! functions {
    ($($member:ident: $name:literal => $signature:ty;)*) => {
        /// CUPTI's functions, as far as the library has them. Results are CUptiResult as integers.
        #[derive(Clone, Copy)]
        pub(super) struct Functions {
            $(pub(super) $member: Option<$signature>,)*
        }

        impl Functions {
            pub(super) const NONE: Self = Self { $($member: None,)* };

            pub(super) fn load(handle: *mut c_void) -> Self {
                // SAFETY: the signatures are those of cupti_activity.h, cupti_callbacks.h and cupti_result.h (12.0 to
                // 13.5), with enums as the 32-bit integers that they are.
                unsafe {
                    Self {
                        $($member: symbol(handle, $name)
                            .map(|symbol| std::mem::transmute::<*mut c_void, $signature>(symbol)),)*
                    }
                }
            }
        }
    };
}

functions! {
    get_version: c"cuptiGetVersion" => unsafe extern "C" fn(*mut u32) -> u32;
    subscribe: c"cuptiSubscribe" => unsafe extern "C" fn(
        *mut usize,
        unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void),
        *mut c_void,
    ) -> u32;
    unsubscribe: c"cuptiUnsubscribe" => unsafe extern "C" fn(usize) -> u32;
    register: c"cuptiActivityRegisterCallbacks" => unsafe extern "C" fn(
        unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize),
        unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize),
    ) -> u32;
    enable: c"cuptiActivityEnable" => unsafe extern "C" fn(u32) -> u32;
    disable: c"cuptiActivityDisable" => unsafe extern "C" fn(u32) -> u32;
    enable_callback: c"cuptiEnableCallback" => unsafe extern "C" fn(u32, usize, u32, u32) -> u32;
    flush_all: c"cuptiActivityFlushAll" => unsafe extern "C" fn(u32) -> u32;
    next_record: c"cuptiActivityGetNextRecord" => unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;
    dropped: c"cuptiActivityGetNumDroppedRecords" => unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
    graph_node_id: c"cuptiGetGraphNodeId" => unsafe extern "C" fn(usize, *mut u64) -> u32;
    enable_driver_call: c"cuptiActivityEnableDriverApi" => unsafe extern "C" fn(u32, u8) -> u32;
    enable_runtime_call: c"cuptiActivityEnableRuntimeApi" => unsafe extern "C" fn(u32, u8) -> u32;
    set_attribute: c"cuptiActivitySetAttribute" => unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
    set_thread_id_type: c"cuptiSetThreadIdType" => unsafe extern "C" fn(u32) -> u32;
    callback_name: c"cuptiGetCallbackName" => unsafe extern "C" fn(u32, u32, *mut *const c_char) -> u32;
    result_string: c"cuptiGetResultString" => unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    push_id: c"cuptiActivityPushExternalCorrelationId" => unsafe extern "C" fn(u32, u64) -> u32;
    pop_id: c"cuptiActivityPopExternalCorrelationId" => unsafe extern "C" fn(u32, *mut u64) -> u32;
    stream_id: c"cuptiGetStreamIdEx" => unsafe extern "C" fn(usize, usize, u8, *mut u32) -> u32;
    context_id: c"cuptiGetContextId" => unsafe extern "C" fn(usize, *mut u32) -> u32;
}
