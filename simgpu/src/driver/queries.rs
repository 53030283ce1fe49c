//! Questions that change nothing: versions, names, devices' properties.

use std::ffi::{CStr, c_char, c_int};

use super::entry::{driver_functions, put};
use super::error;
use crate::config::config;
use crate::device::{self, COMPUTE_CAPABILITY, MULTIPROCESSORS};

/// CUDA 13.4.
const DRIVER_VERSION: c_int = 13_040;

fn error_texts(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    Some(match code {
        error::SUCCESS => (c"CUDA_SUCCESS", c"no error"),
        error::INVALID_VALUE => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        error::OUT_OF_MEMORY => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        error::NOT_INITIALIZED => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        error::INVALID_DEVICE => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        error::INVALID_IMAGE => (c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
        error::INVALID_CONTEXT => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        error::PEER_ACCESS_UNSUPPORTED => (
            c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
            c"peer access is not supported between these two devices",
        ),
        error::PEER_ACCESS_ALREADY_ENABLED => (
            c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
            c"peer access is already enabled",
        ),
        error::PEER_ACCESS_NOT_ENABLED => (
            c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
            c"peer access has not been enabled",
        ),
        error::INVALID_HANDLE => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
        error::NOT_FOUND => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        error::NOT_READY => (c"CUDA_ERROR_NOT_READY", c"device not ready"),
        error::ILLEGAL_ADDRESS => (
            c"CUDA_ERROR_ILLEGAL_ADDRESS",
            c"an illegal memory access was encountered",
        ),
        error::NOT_SUPPORTED => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        error::UNKNOWN => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
        _ => return None,
    })
}

/// The device of an ordinal.
pub(super) fn known_device(ordinal: c_int) -> Result<u32, u32> {
    u32::try_from(ordinal)
        .ok()
        .filter(|device| *device < config().devices)
        .ok_or(error::INVALID_DEVICE)
}

/// A device attribute by its number in CUdevice_attribute (cuda.h); those not listed are 0.
#[allow(clippy::match_same_arms)] // One line an attribute, whatever its value.
fn attribute(number: c_int, device: u32) -> c_int {
    match number {
        1..=3 => 1024,                               // threads a block, block x and y
        4 => 64,                                     // block z
        5 => i32::MAX,                               // grid x
        6 | 7 => 65_535,                             // grid y and z
        8 => 48 << 10,                               // shared memory a block
        9 => 64 << 10,                               // constant memory
        10 => 32,                                    // warp size
        12 | 82 => 65_536,                           // registers a block and a multiprocessor
        13 => 1_980_000,                             // clock in kHz
        15 | 41 | 83 => 1,                           // overlap, unified addressing, managed memory
        40 => 2,                                     // copy engines
        16 => MULTIPROCESSORS.cast_signed(),         // multiprocessors
        19 | 31 | 78 | 79 | 81 => 1, // mapped host memory, concurrent kernels, priorities, caches
        33 => device::pci_bus(device).cast_signed(), // PCI bus
        36 => 3_201_000,             // memory clock in kHz
        37 => 6_144,                 // memory bus width in bits
        38 => 50 << 20,              // L2 cache
        39 => 2_048,                 // threads a multiprocessor
        75 => COMPUTE_CAPABILITY.0,
        76 => COMPUTE_CAPABILITY.1,
        97 => 227 << 10,                                 // opt-in shared memory a block
        106 => 32,                                       // blocks a multiprocessor
        115 => 1,                                        // memory pools
        134 => config().socket_of(device).cast_signed(), // NUMA node of the host's memory beside it
        _ => 0,
    }
}

fn put_text(place: *mut c_char, capacity: c_int, text: &str) -> Result<(), u32> {
    let capacity = usize::try_from(capacity)
        .ok()
        .filter(|capacity| *capacity > 0)
        .ok_or(error::INVALID_VALUE)?;
    if place.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let bytes = &text.as_bytes()[..text.len().min(capacity - 1)];
    // SAFETY: the caller passes `capacity` bytes; at most that many, the zero included, are written.
    unsafe {
        place.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
        place.add(bytes.len()).write(0);
    }
    Ok(())
}

driver_functions! {
    /// cuDriverGetVersion.
    fn cuDriverGetVersion = CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion(version: *mut c_int) |_| {
        put(version, DRIVER_VERSION)
    }

    /// cuGetErrorName.
    fn cuGetErrorName = CUPTI_DRIVER_TRACE_CBID_cuGetErrorName(code: u32, name: *mut *const c_char) |_| {
        put(name, error_texts(code).ok_or(error::INVALID_VALUE)?.0.as_ptr())
    }

    /// cuGetErrorString.
    fn cuGetErrorString = CUPTI_DRIVER_TRACE_CBID_cuGetErrorString(code: u32, text: *mut *const c_char) |_| {
        put(text, error_texts(code).ok_or(error::INVALID_VALUE)?.1.as_ptr())
    }

    /// cuDeviceGetCount.
    fn cuDeviceGetCount = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetCount(count: *mut c_int) |_| {
        put(count, config().devices.cast_signed())
    }

    /// cuDeviceGet.
    fn cuDeviceGet = CUPTI_DRIVER_TRACE_CBID_cuDeviceGet(device: *mut c_int, ordinal: c_int) |_| {
        put(device, known_device(ordinal)?.cast_signed())
    }

    /// cuDeviceGetName.
    fn cuDeviceGetName = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetName(name: *mut c_char, capacity: c_int, device: c_int) |_| {
        known_device(device)?;
        put_text(name, capacity, &device::name())
    }

    /// cuDeviceGetUuid_v2.
    fn cuDeviceGetUuid_v2 = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) |_| {
        put(uuid, device::uuid(known_device(device)?))
    }

    /// cuDeviceGetUuid.
    fn cuDeviceGetUuid = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) |_| {
        put(uuid, device::uuid(known_device(device)?))
    }

    /// cuDeviceTotalMem_v2.
    fn cuDeviceTotalMem_v2 = CUPTI_DRIVER_TRACE_CBID_cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) |_| {
        known_device(device)?;
        put(bytes, config().memory_bytes as usize)
    }

    /// cuDeviceGetAttribute.
    fn cuDeviceGetAttribute = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetAttribute(value: *mut c_int, number: c_int, device: c_int) |_| {
        let device = known_device(device)?;
        put(value, attribute(number, device))
    }

    /// cuDeviceGetPCIBusId.
    fn cuDeviceGetPCIBusId = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetPCIBusId(text: *mut c_char, capacity: c_int, device: c_int) |_| {
        put_text(text, capacity, &device::pci_bus_id(known_device(device)?))
    }

    /// cuDeviceGetByPCIBusId: `[domain]:[bus]:[device].[function]`, `[domain]:[bus]:[device]` or `[bus]:[device].[function]`.
    fn cuDeviceGetByPCIBusId = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) |_| {
        if text.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // SAFETY: not null, and zero-terminated by CUDA's contract.
        let text = unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| error::INVALID_VALUE)?;
        put(device, device::device_at(text).ok_or(error::INVALID_DEVICE)?.cast_signed())
    }
}
