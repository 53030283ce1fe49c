//! Values by number (nvmlDeviceGetFieldValues): counters of links and errors, power, energy.

use std::ffi::{c_int, c_longlong, c_uint};

use super::load::Now;
use super::topology::NVLINKS;
use super::{Answer, code, device_of, nvml_functions};
use crate::clock::now_ns;
use crate::config::{Topology, config};

/// nvmlFieldValue_t.
#[repr(C)]
pub struct FieldValue {
    field: c_uint,
    /// Of NVLink's values: the link, or all ones for all of them.
    scope: c_uint,
    timestamp: c_longlong,
    latency_us: c_longlong,
    value_type: c_uint,
    result: c_uint,
    value: u64,
}

/// nvmlValueType_t.
const UNSIGNED_INT: c_uint = 1;
const UNSIGNED_LONG_LONG: c_uint = 3;

/// A value with its type; the error is that of this value alone.
fn value(device: u32, field: c_uint, scope: c_uint) -> Result<(c_uint, u64), c_uint> {
    let now = || Now::of(device);
    let nvlink = |way: usize| {
        if config().topology == Topology::Pcie {
            return Err(code::NOT_SUPPORTED);
        }
        let ([sent, received], _) = now().traffic();
        let bytes = [sent, received][way];
        // Spread evenly over the links; in KiB.
        match scope {
            c_uint::MAX => Ok((UNSIGNED_LONG_LONG, bytes / 1024)),
            0..NVLINKS => Ok((UNSIGNED_LONG_LONG, bytes / u64::from(NVLINKS) / 1024)),
            _ => Err(code::INVALID_ARGUMENT),
        }
    };
    match field {
        // ECC errors: single and double bit, volatile and aggregate.
        3..=6 => Ok((UNSIGNED_LONG_LONG, 0)),
        83 => Ok((UNSIGNED_LONG_LONG, now().energy())),
        // NVLink's speed in MB/s, and how many there are.
        90 | 164 if config().topology != Topology::Pcie => Ok((UNSIGNED_INT, 26_562)),
        91 => Ok((
            UNSIGNED_INT,
            if config().topology == Topology::Pcie {
                0
            } else {
                u64::from(NVLINKS)
            },
        )),
        // PCIe's replays.
        94 => Ok((UNSIGNED_INT, 0)),
        // NVLink's bytes without and with the protocol's, which is not modelled.
        138 | 140 => nvlink(0),
        139 | 141 => nvlink(1),
        // Power: average and now.
        185 | 186 => Ok((UNSIGNED_INT, now().power().round() as u64)),
        197 => Ok((UNSIGNED_LONG_LONG, now().traffic().1[0])),
        198 => Ok((UNSIGNED_LONG_LONG, now().traffic().1[1])),
        _ => Err(code::NOT_SUPPORTED),
    }
}

fn fill(device: u32, place: *mut FieldValue) -> Answer {
    // SAFETY: the caller passes as many values as it says, and this is one of them.
    let wanted = unsafe { place.read_unaligned() };
    let started_ns = now_ns();
    let (result, (value_type, value)) = match value(device, wanted.field, wanted.scope) {
        Ok(found) => (code::SUCCESS, found),
        Err(code) => (code, (UNSIGNED_INT, 0)),
    };
    let ended_ns = now_ns();
    let filled = FieldValue {
        timestamp: ended_ns / 1000,
        latency_us: (ended_ns - started_ns) / 1000,
        value_type,
        result,
        value,
        ..wanted
    };
    // SAFETY: as above.
    unsafe { place.write_unaligned(filled) };
    Ok(())
}

nvml_functions! {
    /// nvmlDeviceGetFieldValues.
    fn nvmlDeviceGetFieldValues(handle: usize, count: c_int, values: *mut FieldValue) {
        let device = device_of(handle)?;
        let count = usize::try_from(count).map_err(|_| code::INVALID_ARGUMENT)?;
        if values.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        (0..count).try_for_each(|index| fill(device, values.wrapping_add(index)))
    }
}
