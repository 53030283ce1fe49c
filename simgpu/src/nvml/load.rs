//! How busy a device is. Utilisation is measured, over the last second of the modelled device's time in this process;
//! power, clocks and temperature are made up from it.
//!
//! | | idle | all the time busy |
//! |---|---|---|
//! | power | 75 W | 600 W |
//! | clock of the multiprocessors | 345 MHz | 1980 MHz, as soon as anything ran |
//! | temperature | 32 C | 67 C |

use std::ffi::c_uint;

use super::{code, device_of, nvml_functions, put};
use crate::clock::now_ns;
use crate::device::{busy, memory};
use crate::driver::has_context;

/// The window that utilisation is over.
const WINDOW_NS: i64 = 1_000_000_000;
/// Milliwatts.
const IDLE_POWER: f64 = 75_000.0;
const BUSY_POWER: f64 = 600_000.0;
const POWER_LIMIT: c_uint = 700_000;
/// Megahertz.
const IDLE_CLOCK: c_uint = 345;
const MOST_CLOCK: c_uint = 1_980;
const MEMORY_CLOCK: c_uint = 3_201;
const VIDEO_CLOCK: c_uint = 1_545;
/// Degrees Celsius.
const IDLE_TEMPERATURE: f64 = 32.0;
const TEMPERATURE_RISE: f64 = 35.0;

/// nvmlUtilization_t, in percent.
#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// nvmlMemory_t.
#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// nvmlMemory_v2_t.
#[repr(C)]
pub struct MemoryWithReserve {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// nvmlProcessInfo_t (version 3 of the function).
#[repr(C)]
pub struct ProcessInfo {
    process: c_uint,
    used_bytes: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Shares of the window in which kernels ran, and copies or memsets.
fn shares(device: u32) -> (f64, f64) {
    let now = now_ns();
    let share = |what| busy::within(device, what, now - WINDOW_NS, now) as f64 / WINDOW_NS as f64;
    (share(busy::What::Kernels), share(busy::What::Transfers))
}

fn clock(kind: c_uint, multiprocessors: c_uint) -> Result<c_uint, c_uint> {
    Ok(match kind {
        0 | 1 => multiprocessors,
        2 => MEMORY_CLOCK,
        3 => VIDEO_CLOCK,
        _ => return Err(code::INVALID_ARGUMENT),
    })
}

nvml_functions! {
    /// nvmlDeviceGetUtilizationRates: the GPU's is the share of time with a kernel, the memory's with a copy or memset.
    fn nvmlDeviceGetUtilizationRates(handle: usize, rates: *mut Utilization) {
        let (kernels, transfers) = shares(device_of(handle)?);
        let percent = |share: f64| (share * 100.0).round() as c_uint;
        put(rates, Utilization { gpu: percent(kernels), memory: percent(transfers) })
    }

    /// nvmlDeviceGetPowerUsage, in milliwatts.
    fn nvmlDeviceGetPowerUsage(handle: usize, power: *mut c_uint) {
        let (kernels, _) = shares(device_of(handle)?);
        put(power, (IDLE_POWER + (BUSY_POWER - IDLE_POWER) * kernels).round() as c_uint)
    }

    /// nvmlDeviceGetEnforcedPowerLimit.
    fn nvmlDeviceGetEnforcedPowerLimit(handle: usize, limit: *mut c_uint) {
        device_of(handle)?;
        put(limit, POWER_LIMIT)
    }

    /// nvmlDeviceGetPowerManagementLimit.
    fn nvmlDeviceGetPowerManagementLimit(handle: usize, limit: *mut c_uint) {
        device_of(handle)?;
        put(limit, POWER_LIMIT)
    }

    /// nvmlDeviceGetClockInfo, in megahertz: graphics 0, multiprocessors 1, memory 2, video 3.
    fn nvmlDeviceGetClockInfo(handle: usize, kind: c_uint, megahertz: *mut c_uint) {
        let (kernels, _) = shares(device_of(handle)?);
        put(megahertz, clock(kind, if kernels > 0.0 { MOST_CLOCK } else { IDLE_CLOCK })?)
    }

    /// nvmlDeviceGetMaxClockInfo.
    fn nvmlDeviceGetMaxClockInfo(handle: usize, kind: c_uint, megahertz: *mut c_uint) {
        device_of(handle)?;
        put(megahertz, clock(kind, MOST_CLOCK)?)
    }

    /// nvmlDeviceGetTemperature, of the GPU.
    fn nvmlDeviceGetTemperature(handle: usize, sensor: c_uint, degrees: *mut c_uint) {
        let (kernels, _) = shares(device_of(handle)?);
        if sensor != 0 {
            return Err(code::INVALID_ARGUMENT);
        }
        put(degrees, (IDLE_TEMPERATURE + TEMPERATURE_RISE * kernels).round() as c_uint)
    }

    /// nvmlDeviceGetPerformanceState: always the highest.
    fn nvmlDeviceGetPerformanceState(handle: usize, state: *mut c_uint) {
        device_of(handle)?;
        put(state, 0)
    }

    /// nvmlDeviceGetMemoryInfo.
    fn nvmlDeviceGetMemoryInfo(handle: usize, place: *mut Memory) {
        let (free, total) = memory::info(device_of(handle)?);
        put(place, Memory { total, free, used: total - free })
    }

    /// nvmlDeviceGetMemoryInfo_v2: the driver reserves nothing here.
    fn nvmlDeviceGetMemoryInfo_v2(handle: usize, place: *mut MemoryWithReserve) {
        let (free, total) = memory::info(device_of(handle)?);
        let version = size_of::<MemoryWithReserve>() as c_uint | 2 << 24;
        put(place, MemoryWithReserve { version, total, reserved: 0, free, used: total - free })
    }

    /// nvmlDeviceGetComputeRunningProcesses_v3: this process, once it has a context there.
    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: usize, count: *mut c_uint, infos: *mut ProcessInfo) {
        let device = device_of(handle)?;
        if count.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and a number by NVML's contract.
        let room = unsafe { count.read_unaligned() };
        let running = has_context(device);
        put(count, c_uint::from(running))?;
        if !running {
            return Ok(());
        }
        if room == 0 || infos.is_null() {
            return Err(code::INSUFFICIENT_SIZE);
        }
        let (free, total) = memory::info(device);
        // No instances: all ones.
        let (gpu_instance, compute_instance) = (c_uint::MAX, c_uint::MAX);
        put(infos, ProcessInfo { process: std::process::id(), used_bytes: total - free, gpu_instance, compute_instance })
    }
}
