//! NVTX's extensions: modules of functions that come with headers of their own. Of the payload module the functions are
//! filled that tell what ranges say at their ends.

use std::ffi::{c_int, c_void};

use super::domains::domain_number;
use super::{NOT_TRACKED, guarded, pop_with};
use crate::config;
use crate::nccl::PayloadData;

/// NVTX_EXT_PAYLOAD_MODULEID, and NVTX3EXT_CBID_nvtxRangePopPayload.
const PAYLOAD_MODULE: u16 = 2;
const RANGE_POP_PAYLOAD: usize = 4;

/// nvtxExtModuleSegment_t.
#[repr(C)]
struct Segment {
    id: usize,
    slots: usize,
    functions: *mut usize,
}

/// nvtxExtModuleInfo_t.
#[repr(C)]
pub struct ModuleInfo {
    version: u16,
    size: u16,
    module: u16,
    compatibility: u16,
    segments: usize,
    first_segment: *mut Segment,
    get_export_function: Option<extern "C" fn(u32) -> isize>,
    information: *const c_void,
}

extern "C" fn range_pop_payload(domain: *const c_void, data: *const PayloadData, count: usize) -> c_int {
    guarded(NOT_TRACKED, || {
        // SAFETY: null, or so many payloads by NVTX's contract.
        let first = unsafe { data.as_ref() }.filter(|_| count > 0);
        pop_with(domain_number(domain), first)
    })
}

/// Called by NVTX for each extension module of a library at its first use.
///
/// # Safety
/// `information` is NVTX's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(information: *mut ModuleInfo) -> c_int {
    if !config::is_wanted() || !config::get().needs_ranges() {
        return 0;
    }
    // SAFETY: by the caller's promise.
    let Some(information) = (unsafe { information.as_ref() }) else {
        return 0;
    };
    if information.module != PAYLOAD_MODULE || information.segments == 0 {
        return 0;
    }
    // SAFETY: NVTX has as many segments as it says, with as many slots as each says.
    unsafe {
        let Some(segment) = information.first_segment.as_ref() else {
            return 0;
        };
        if segment.functions.is_null() || segment.slots <= RANGE_POP_PAYLOAD {
            return 0;
        }
        *segment.functions.add(RANGE_POP_PAYLOAD) = range_pop_payload as *const () as usize;
    }
    1
}
