//! NVTX's side of the contract: it loads this library and hands out the addresses of its function pointers, to be set.
//!
//! Each library with NVTX in it has function pointers of its own and comes here on its own first call.

use std::ffi::{c_int, c_void};

use super::{callbacks, names};
use crate::windows::watch;
use crate::{config, signals};

/// NVTX_ETID_CALLBACKS; NVTX_CB_MODULE_CORE and _CORE2.
pub(super) const EXPORT_CALLBACKS: u32 = 1;
pub(super) const MODULE_CORE: u32 = 1;
pub(super) const MODULE_CORE2: u32 = 5;
/// NVTX_CB_MODULE_CUDA and _CUDART: names of CUDA's things.
const MODULE_CUDA: u32 = 2;
const MODULE_CUDART: u32 = 4;

/// The slots of NVTX_CBID_CORE_* that we fill.
fn core_functions() -> [(usize, *const c_void); 15] {
    [
        (1, callbacks::mark_ex as *const c_void),
        (2, callbacks::mark_a as *const c_void),
        (3, callbacks::mark_w as *const c_void),
        (4, callbacks::range_start_ex as *const c_void),
        (5, callbacks::range_start_a as *const c_void),
        (6, callbacks::range_start_w as *const c_void),
        (7, callbacks::range_end as *const c_void),
        (8, callbacks::push_ex as *const c_void),
        (9, callbacks::push_a as *const c_void),
        (10, callbacks::push_w as *const c_void),
        (11, callbacks::pop_default as *const c_void),
        (12, names::category_a as *const c_void),
        (13, names::category_w as *const c_void),
        (14, names::thread_a as *const c_void),
        (15, names::thread_w as *const c_void),
    ]
}

/// The slots of NVTX_CBID_CORE2_* that we fill.
fn core2_functions() -> [(usize, *const c_void); 12] {
    [
        (1, callbacks::domain_mark_ex as *const c_void),
        (2, callbacks::domain_start_ex as *const c_void),
        (3, callbacks::domain_end as *const c_void),
        (4, callbacks::domain_push_ex as *const c_void),
        (5, callbacks::domain_pop as *const c_void),
        (6, names::resource_create as *const c_void),
        (8, names::domain_category_a as *const c_void),
        (9, names::domain_category_w as *const c_void),
        (10, callbacks::domain_register_a as *const c_void),
        (11, callbacks::domain_register_w as *const c_void),
        (12, callbacks::domain_create_a as *const c_void),
        (13, callbacks::domain_create_w as *const c_void),
    ]
}

/// The slots of NVTX_CBID_CUDA_*: devices, contexts, streams, events.
fn cuda_functions() -> [(usize, *const c_void); 8] {
    [
        (1, names::device_a as *const c_void),
        (2, names::device_w as *const c_void),
        (3, names::context_a as *const c_void),
        (4, names::context_w as *const c_void),
        (5, names::stream_a as *const c_void),
        (6, names::stream_w as *const c_void),
        (7, names::event_a as *const c_void),
        (8, names::event_w as *const c_void),
    ]
}

/// The slots of NVTX_CBID_CUDART_*: devices, streams, events.
fn runtime_functions() -> [(usize, *const c_void); 6] {
    [
        (1, names::device_a as *const c_void),
        (2, names::device_w as *const c_void),
        (3, names::stream_a as *const c_void),
        (4, names::stream_w as *const c_void),
        (5, names::event_a as *const c_void),
        (6, names::event_w as *const c_void),
    ]
}

type GetModuleFunctions = unsafe extern "C" fn(u32, *mut *const *mut *const c_void, *mut u32) -> c_int;

/// nvtxExportTableCallbacks_t.
#[repr(C)]
pub(super) struct CallbackTable {
    pub(super) size: usize,
    pub(super) get_module_functions: Option<GetModuleFunctions>,
}

/// Called by NVTX at a program's first NVTX call, when NVTX_INJECTION64_PATH names this library.
///
/// # Safety
/// `get_export_table` is NVTX's own function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    get_export_table: Option<unsafe extern "C" fn(u32) -> *const c_void>,
) -> c_int {
    crate::panics::watch();
    // A panic must not reach NVTX: the program's ranges are then not recorded.
    std::panic::catch_unwind(|| {
        // SAFETY: by the caller's promise.
        signals::uncancelled(|| unsafe { attach(get_export_table) })
    })
    .unwrap_or(0)
}

/// Hands out our functions; gives 1, or 0 where nothing of NVTX is to be recorded.
///
/// # Safety
/// As [`InitializeInjectionNvtx2`].
unsafe fn attach(get_export_table: Option<unsafe extern "C" fn(u32) -> *const c_void>) -> c_int {
    // Without a recording to write to, NVTX stays as cheap as it is without a tool.
    if !config::is_wanted() || !config::needs_ranges() {
        return 0;
    }
    watch::begin();
    let Some(get_export_table) = get_export_table else {
        return 0;
    };
    // SAFETY: NVTX's function, and a table that it defines.
    let table = unsafe {
        get_export_table(EXPORT_CALLBACKS)
            .cast::<CallbackTable>()
            .as_ref()
    };
    let Some(get_module_functions) = table.and_then(|table| table.get_module_functions) else {
        return 0;
    };
    let fill = |module: u32, functions: &[(usize, *const c_void)]| {
        let (mut slots, mut count) = (std::ptr::null(), 0);
        // SAFETY: valid places for both results.
        let known = unsafe { get_module_functions(module, &raw mut slots, &raw mut count) } != 0;
        if !known || slots.is_null() {
            return false;
        }
        for &(slot, function) in functions {
            if slot < count as usize {
                // SAFETY: `slots` has `count` entries, each null or the address of one of NVTX's function pointers.
                unsafe {
                    let place = *slots.add(slot);
                    if !place.is_null() {
                        *place = function;
                    }
                }
            }
        }
        true
    };
    let core = fill(MODULE_CORE, &core_functions());
    // Programs with a small NVTX client may have none of these.
    fill(MODULE_CORE2, &core2_functions());
    fill(MODULE_CUDA, &cuda_functions());
    fill(MODULE_CUDART, &runtime_functions());
    c_int::from(core)
}
