//! Who a device is: names, numbers, its place on PCI, and what it is made of.

use std::ffi::{c_char, c_int, c_uint};

use super::{check_initialised, code, device_of, handle_of, nvml_functions, put, put_text, text};
use crate::config::config;
use crate::device::{self, COMPUTE_CAPABILITY};

/// nvmlPciInfo_t.
#[repr(C)]
pub struct PciInfo {
    legacy_bus_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// Device id of an H200 SXM above NVIDIA's vendor id, as nvmlPciInfo_t has them.
const H200: c_uint = 0x2335_10de;
/// The same of the NVSwitch of its generation.
const NVSWITCH: c_uint = 0x22a3_10de;
/// NVML_BRAND_NVIDIA.
const BRAND: c_uint = 14;
/// NVML_DEVICE_ARCH_HOPPER.
const HOPPER: c_uint = 9;

fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (place, byte) in chars.iter_mut().zip(text.bytes().take(N - 1)) {
        *place = byte.cast_signed();
    }
    chars
}

impl PciInfo {
    fn new(bus: u32, device_id: c_uint) -> Self {
        Self {
            legacy_bus_id: chars(&format!("0000:{bus:02X}:00.0")),
            domain: 0,
            bus,
            device: 0,
            device_id,
            subsystem_id: 0,
            bus_id: chars(&format!("00000000:{bus:02X}:00.0")),
        }
    }

    /// Of a GPU.
    pub(super) fn of_gpu(device: u32) -> Self {
        Self::new(device::pci_bus(device), H200)
    }

    /// Of one of a node's NVSwitches; their buses lie below the GPUs'.
    pub(super) fn of_switch(switch: u32) -> Self {
        Self::new(1 + switch, NVSWITCH)
    }
}

/// A UUID as NVML writes it.
fn uuid(device: u32) -> String {
    let digits: String = device::uuid(device)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let parts = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    format!("GPU-{}", parts.join("-"))
}

nvml_functions! {
    /// nvmlDeviceGetHandleByIndex_v2.
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut usize) {
        check_initialised()?;
        if index >= config().devices {
            return Err(code::INVALID_ARGUMENT);
        }
        put(handle, handle_of(index))
    }

    /// nvmlDeviceGetHandleByUUID.
    fn nvmlDeviceGetHandleByUUID(wanted: *const c_char, handle: *mut usize) {
        check_initialised()?;
        let wanted = text(wanted)?;
        let found = (0..config().devices).find(|device| uuid(*device).eq_ignore_ascii_case(wanted));
        put(handle, handle_of(found.ok_or(code::NOT_FOUND)?))
    }

    /// nvmlDeviceGetHandleByPciBusId_v2.
    fn nvmlDeviceGetHandleByPciBusId_v2(wanted: *const c_char, handle: *mut usize) {
        check_initialised()?;
        put(handle, handle_of(device::device_at(text(wanted)?).ok_or(code::NOT_FOUND)?))
    }

    /// nvmlDeviceGetHandleBySerial.
    fn nvmlDeviceGetHandleBySerial(wanted: *const c_char, handle: *mut usize) {
        check_initialised()?;
        let wanted = text(wanted)?;
        let found = (0..config().devices).find(|device| serial(*device) == wanted);
        put(handle, handle_of(found.ok_or(code::NOT_FOUND)?))
    }

    /// nvmlDeviceGetIndex.
    fn nvmlDeviceGetIndex(handle: usize, index: *mut c_uint) {
        put(index, device_of(handle)?)
    }

    /// nvmlDeviceGetMinorNumber.
    fn nvmlDeviceGetMinorNumber(handle: usize, number: *mut c_uint) {
        put(number, device_of(handle)?)
    }

    /// nvmlDeviceGetName.
    fn nvmlDeviceGetName(handle: usize, place: *mut c_char, capacity: c_uint) {
        device_of(handle)?;
        put_text(place, capacity, &device::name())
    }

    /// nvmlDeviceGetUUID.
    fn nvmlDeviceGetUUID(handle: usize, place: *mut c_char, capacity: c_uint) {
        put_text(place, capacity, &uuid(device_of(handle)?))
    }

    /// nvmlDeviceGetSerial.
    fn nvmlDeviceGetSerial(handle: usize, place: *mut c_char, capacity: c_uint) {
        put_text(place, capacity, &serial(device_of(handle)?))
    }

    /// nvmlDeviceGetBrand.
    fn nvmlDeviceGetBrand(handle: usize, brand: *mut c_uint) {
        device_of(handle)?;
        put(brand, BRAND)
    }

    /// nvmlDeviceGetArchitecture.
    fn nvmlDeviceGetArchitecture(handle: usize, architecture: *mut c_uint) {
        device_of(handle)?;
        put(architecture, HOPPER)
    }

    /// nvmlDeviceGetPciInfo_v3.
    fn nvmlDeviceGetPciInfo_v3(handle: usize, info: *mut PciInfo) {
        put(info, PciInfo::of_gpu(device_of(handle)?))
    }

    /// nvmlDeviceGetCudaComputeCapability.
    fn nvmlDeviceGetCudaComputeCapability(handle: usize, major: *mut c_int, minor: *mut c_int) {
        device_of(handle)?;
        put(major, COMPUTE_CAPABILITY.0)?;
        put(minor, COMPUTE_CAPABILITY.1)
    }

    /// nvmlDeviceGetNumGpuCores: 128 a multiprocessor.
    fn nvmlDeviceGetNumGpuCores(handle: usize, cores: *mut c_uint) {
        device_of(handle)?;
        put(cores, device::MULTIPROCESSORS * 128)
    }

    /// nvmlDeviceGetMemoryBusWidth.
    fn nvmlDeviceGetMemoryBusWidth(handle: usize, bits: *mut c_uint) {
        device_of(handle)?;
        put(bits, 6_144)
    }
}

fn serial(device: u32) -> String {
    format!("SIMULATED{device:04}")
}
