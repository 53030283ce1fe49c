//! NVTX's extensions: modules of functions that come with headers of their own. Of the payload module those functions are
//! filled that register schemas and attach payloads.

use std::ffi::{c_int, c_void};

use super::attributes::payloads;
use super::domains::domain_number;
use super::entry::guarded;
use super::payload_data::PayloadData;
use super::payloads::{EnumAttributes, SchemaAttributes, register_enum, register_schema, with_message};
use super::range::Label;
use super::{NOT_TRACKED, end_with, mark, pop_with, push, start};
use crate::{config, signals};

/// NVTX_EXT_PAYLOAD_MODULEID.
const PAYLOAD_MODULE: u16 = 2;

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

/// Calls `body` with what is nothing but payloads.
fn with_payloads<T>(
    domain: *const c_void,
    data: *const PayloadData,
    count: usize,
    body: impl FnOnce(u32, Label<'_>) -> T,
) -> T {
    let domain = domain_number(domain);
    // SAFETY: null, or so many payloads by NVTX's contract.
    let extended = unsafe { payloads(data, count) };
    with_message(domain, extended, |text| {
        body(
            domain,
            Label {
                text,
                extended,
                ..Label::default()
            },
        )
    })
}

extern "C" fn schema_register(domain: *const c_void, attributes: *const SchemaAttributes) -> u64 {
    guarded(0, || {
        // SAFETY: null, or the program's attributes by NVTX's contract.
        let attributes = unsafe { attributes.as_ref() };
        attributes.map_or(0, |attributes| register_schema(domain_number(domain), attributes))
    })
}
extern "C" fn enum_register(domain: *const c_void, attributes: *const EnumAttributes) -> u64 {
    guarded(0, || {
        // SAFETY: as above.
        let attributes = unsafe { attributes.as_ref() };
        attributes.map_or(0, |attributes| register_enum(domain_number(domain), attributes))
    })
}
extern "C" fn mark_payload(domain: *const c_void, data: *const PayloadData, count: usize) {
    guarded((), || with_payloads(domain, data, count, mark));
}
extern "C" fn range_push_payload(domain: *const c_void, data: *const PayloadData, count: usize) -> c_int {
    guarded(NOT_TRACKED, || with_payloads(domain, data, count, push))
}
extern "C" fn range_pop_payload(domain: *const c_void, data: *const PayloadData, count: usize) -> c_int {
    guarded(NOT_TRACKED, || {
        // SAFETY: null, or so many payloads by NVTX's contract.
        pop_with(domain_number(domain), unsafe { payloads(data, count) })
    })
}
extern "C" fn range_start_payload(domain: *const c_void, data: *const PayloadData, count: usize) -> u64 {
    guarded(0, || with_payloads(domain, data, count, start))
}
extern "C" fn range_end_payload(domain: *const c_void, id: u64, data: *const PayloadData, count: usize) {
    guarded((), || {
        // SAFETY: null, or so many payloads by NVTX's contract.
        end_with(domain_number(domain), id, unsafe { payloads(data, count) });
    });
}
extern "C" fn domain_is_enabled(_domain: *const c_void) -> u8 {
    1
}

/// The slots of NVTX3EXT_CBID_* that we fill.
fn functions() -> [usize; 8] {
    [
        schema_register as *const () as usize,
        enum_register as *const () as usize,
        mark_payload as *const () as usize,
        range_push_payload as *const () as usize,
        range_pop_payload as *const () as usize,
        range_start_payload as *const () as usize,
        range_end_payload as *const () as usize,
        domain_is_enabled as *const () as usize,
    ]
}

/// Called by NVTX for each extension module of a library at its first use.
///
/// # Safety
/// `information` is NVTX's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(information: *mut ModuleInfo) -> c_int {
    crate::panics::watch();
    // A panic must not reach NVTX: the program's payloads are then not recorded.
    std::panic::catch_unwind(|| {
        // SAFETY: by the caller's promise.
        signals::uncancelled(|| unsafe { attach(information) })
    })
    .unwrap_or(0)
}

/// Hands out our functions; gives 1, or 0 where nothing of them is to be recorded.
///
/// # Safety
/// As [`InitializeInjectionNvtxExtension`].
unsafe fn attach(information: *mut ModuleInfo) -> c_int {
    if !config::is_wanted() || !config::needs_ranges() {
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
        if segment.functions.is_null() {
            return 0;
        }
        for (slot, function) in functions().into_iter().enumerate().take(segment.slots) {
            *segment.functions.add(slot) = function;
        }
    }
    1
}
