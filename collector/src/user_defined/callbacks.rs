//! The callbacks by which CUPTI takes and gives back the buffers of user-defined records.

use std::ffi::c_void;

use super::abi::CompleteInfo;
use super::layout::Plans;
use super::told;
use crate::{buffers, cost, forked};

/// CUPTI wants a buffer: it gets the second half of one; the front is for the structs that are made of its records.
pub(super) unsafe extern "C" fn requested(
    buffer: *mut *mut u8,
    size: *mut usize,
    most_records: *mut usize,
    _: *const c_void,
) {
    // SAFETY: CUPTI passes valid places for the three results.
    unsafe {
        buffers::requested(buffer, size, most_records);
        if !(*buffer).is_null() {
            let half = *size / 2;
            *buffer = (*buffer).add(half);
            *size = half;
        }
    }
}

/// CUPTI gives a buffer back, with the layouts of what is in it.
pub(super) unsafe extern "C" fn completed(
    buffer: *mut u8,
    size: usize,
    valid_bytes: usize,
    info: *const CompleteInfo,
) {
    let _measured = cost::enter(cost::Callback::Buffer);
    if buffer.is_null() || forked::is_child() {
        return;
    }
    buffers::guarded(|| {
        // SAFETY: what CUPTI passed, while its call lasts.
        let plans = unsafe { Plans::read(info) };
        let plans = told::learn(&plans);
        // Of ours it was given the second half, and tells how long that is; another's is not found by that.
        buffers::completed_from(buffer.wrapping_sub(size), size, valid_bytes, plans);
    });
}
