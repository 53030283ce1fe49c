//! How busy a device is. Utilisation, memory, processes and traffic are those of the modelled device ([`board`]); power,
//! clocks and temperature are made up from the utilisation.
//!
//! | | idle | all the time busy | busy on a rank that SIMGPU_SLOW slows |
//! |---|---|---|---|
//! | power | 75 W | 600 W | 600 W |
//! | clock of the multiprocessors | 345 MHz | 1980 MHz, as soon as anything ran | so many times less |
//! | temperature | 32 C | 67 C | 87 C |
//! | why the clock is not higher | idle | | software's thermal slowdown |

use std::ffi::c_uint;

use super::board::{self, Load};
use super::{code, device_of, nvml_functions, put};
use crate::clock::now_ns;
use crate::config::config;

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
const HOT_TEMPERATURE: c_uint = 87;
/// nvmlClocksEventReasonGpuIdle and nvmlClocksEventReasonSwThermalSlowdown.
const IDLE: u64 = 1;
const SOFTWARE_THERMAL_SLOWDOWN: u64 = 0x20;

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

/// A device as it is now.
pub(super) struct Now {
    load: Load,
}

impl Now {
    pub(super) fn of(device: u32) -> Self {
        Self {
            load: board::load(device),
        }
    }

    /// Milliwatts.
    pub(super) fn power(&self) -> f64 {
        IDLE_POWER + (BUSY_POWER - IDLE_POWER) * self.load.kernels
    }

    /// Millijoules since the run began on this machine.
    pub(super) fn energy(&self) -> u64 {
        let seconds = (now_ns() - config().started_ns) as f64 / 1e9;
        let busy_seconds = self.load.kernels_ns as f64 / 1e9;
        (IDLE_POWER * seconds + (BUSY_POWER - IDLE_POWER) * busy_seconds).max(0.0) as u64
    }

    /// Whether its clock is held down because it is hot: how a device is slow in this model.
    fn is_hot(&self) -> bool {
        self.load.slowdown > 1.0 && self.load.kernels > 0.0
    }

    /// Megahertz.
    fn multiprocessor_clock(&self) -> c_uint {
        if self.load.kernels > 0.0 {
            (f64::from(MOST_CLOCK) / self.load.slowdown).round() as c_uint
        } else {
            IDLE_CLOCK
        }
    }

    fn temperature(&self) -> c_uint {
        if self.is_hot() {
            return HOT_TEMPERATURE;
        }
        (IDLE_TEMPERATURE + TEMPERATURE_RISE * self.load.kernels).round() as c_uint
    }

    /// nvmlClocksEventReason bits.
    fn reasons(&self) -> u64 {
        if self.is_hot() {
            SOFTWARE_THERMAL_SLOWDOWN
        } else if self.load.kernels == 0.0 && self.load.transfers == 0.0 {
            IDLE
        } else {
            0
        }
    }

    /// Bytes sent and received over NVLink and over PCIe so far.
    pub(super) fn traffic(&self) -> ([u64; 2], [u64; 2]) {
        (self.load.nvlink, self.load.pcie)
    }
}

/// Total and used bytes of a device.
fn memory_of(device: u32) -> (u64, u64) {
    let total = config().memory_bytes;
    (total, board::load(device).used_bytes.min(total))
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
        let load = board::load(device_of(handle)?);
        let percent = |share: f64| (share * 100.0).round() as c_uint;
        put(rates, Utilization { gpu: percent(load.kernels), memory: percent(load.transfers) })
    }

    /// nvmlDeviceGetPowerUsage, in milliwatts.
    fn nvmlDeviceGetPowerUsage(handle: usize, power: *mut c_uint) {
        put(power, Now::of(device_of(handle)?).power().round() as c_uint)
    }

    /// nvmlDeviceGetTotalEnergyConsumption, in millijoules.
    fn nvmlDeviceGetTotalEnergyConsumption(handle: usize, energy: *mut u64) {
        put(energy, Now::of(device_of(handle)?).energy())
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
        put(megahertz, clock(kind, Now::of(device_of(handle)?).multiprocessor_clock())?)
    }

    /// nvmlDeviceGetMaxClockInfo.
    fn nvmlDeviceGetMaxClockInfo(handle: usize, kind: c_uint, megahertz: *mut c_uint) {
        device_of(handle)?;
        put(megahertz, clock(kind, MOST_CLOCK)?)
    }

    /// nvmlDeviceGetTemperature, of the GPU.
    fn nvmlDeviceGetTemperature(handle: usize, sensor: c_uint, degrees: *mut c_uint) {
        let device = device_of(handle)?;
        if sensor != 0 {
            return Err(code::INVALID_ARGUMENT);
        }
        put(degrees, Now::of(device).temperature())
    }

    /// nvmlDeviceGetTemperatureThreshold: shutdown 0, slowdown 1, memory 2, GPU 3.
    fn nvmlDeviceGetTemperatureThreshold(handle: usize, kind: c_uint, degrees: *mut c_uint) {
        device_of(handle)?;
        put(degrees, match kind {
            0 => 92,
            1 => 89,
            2 => 95,
            3 => HOT_TEMPERATURE,
            _ => return Err(code::INVALID_ARGUMENT),
        })
    }

    /// nvmlDeviceGetCurrentClocksThrottleReasons.
    fn nvmlDeviceGetCurrentClocksThrottleReasons(handle: usize, reasons: *mut u64) {
        put(reasons, Now::of(device_of(handle)?).reasons())
    }

    /// nvmlDeviceGetCurrentClocksEventReasons: the same by its newer name.
    fn nvmlDeviceGetCurrentClocksEventReasons(handle: usize, reasons: *mut u64) {
        put(reasons, Now::of(device_of(handle)?).reasons())
    }

    /// nvmlDeviceGetSupportedClocksThrottleReasons.
    fn nvmlDeviceGetSupportedClocksThrottleReasons(handle: usize, reasons: *mut u64) {
        device_of(handle)?;
        put(reasons, IDLE | SOFTWARE_THERMAL_SLOWDOWN)
    }

    /// nvmlDeviceGetPcieThroughput, in kB/s over the last second: sent 0, received 1.
    fn nvmlDeviceGetPcieThroughput(handle: usize, counter: c_uint, value: *mut c_uint) {
        let load = board::load(device_of(handle)?);
        let bytes = load.pcie_bytes_per_second.get(counter as usize).ok_or(code::INVALID_ARGUMENT)?;
        put(value, c_uint::try_from(bytes / 1000).unwrap_or(c_uint::MAX))
    }

    /// nvmlDeviceGetPcieReplayCounter: no packet is ever lost.
    fn nvmlDeviceGetPcieReplayCounter(handle: usize, value: *mut c_uint) {
        device_of(handle)?;
        put(value, 0)
    }

    /// nvmlDeviceGetNvLinkErrorCounter: no errors.
    fn nvmlDeviceGetNvLinkErrorCounter(handle: usize, link: c_uint, counter: c_uint, value: *mut u64) {
        super::topology::check_link(handle, link)?;
        if counter > 4 {
            return Err(code::INVALID_ARGUMENT);
        }
        put(value, 0)
    }

    /// nvmlDeviceGetEccMode: on.
    fn nvmlDeviceGetEccMode(handle: usize, current: *mut c_uint, pending: *mut c_uint) {
        device_of(handle)?;
        put(current, 1)?;
        put(pending, 1)
    }

    /// nvmlDeviceGetTotalEccErrors: the modelled memory has none.
    fn nvmlDeviceGetTotalEccErrors(handle: usize, kind: c_uint, counter: c_uint, count: *mut u64) {
        device_of(handle)?;
        if kind > 1 || counter > 1 {
            return Err(code::INVALID_ARGUMENT);
        }
        put(count, 0)
    }

    /// nvmlDeviceGetMemoryErrorCounter: likewise, by place.
    fn nvmlDeviceGetMemoryErrorCounter(handle: usize, kind: c_uint, counter: c_uint, place: c_uint, count: *mut u64) {
        device_of(handle)?;
        if kind > 1 || counter > 1 || place > 7 {
            return Err(code::INVALID_ARGUMENT);
        }
        put(count, 0)
    }

    /// nvmlDeviceGetPerformanceState: always the highest.
    fn nvmlDeviceGetPerformanceState(handle: usize, state: *mut c_uint) {
        device_of(handle)?;
        put(state, 0)
    }

    /// nvmlDeviceGetMemoryInfo.
    fn nvmlDeviceGetMemoryInfo(handle: usize, place: *mut Memory) {
        let (total, used) = memory_of(device_of(handle)?);
        put(place, Memory { total, free: total - used, used })
    }

    /// nvmlDeviceGetMemoryInfo_v2: the driver reserves nothing here.
    fn nvmlDeviceGetMemoryInfo_v2(handle: usize, place: *mut MemoryWithReserve) {
        let (total, used) = memory_of(device_of(handle)?);
        let version = size_of::<MemoryWithReserve>() as c_uint | 2 << 24;
        put(place, MemoryWithReserve { version, total, reserved: 0, free: total - used, used })
    }

    /// nvmlDeviceGetComputeRunningProcesses_v3: those with a context there.
    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: usize, count: *mut c_uint, infos: *mut ProcessInfo) {
        let processes = board::load(device_of(handle)?).processes;
        if count.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and a number by NVML's contract.
        let room = unsafe { count.read_unaligned() } as usize;
        put(count, c_uint::try_from(processes.len()).unwrap_or(c_uint::MAX))?;
        if processes.is_empty() {
            return Ok(());
        }
        if room < processes.len() || infos.is_null() {
            return Err(code::INSUFFICIENT_SIZE);
        }
        for (index, (process, used_bytes)) in processes.into_iter().enumerate() {
            // No instances: all ones.
            let (gpu_instance, compute_instance) = (c_uint::MAX, c_uint::MAX);
            // SAFETY: there is room for as many as there are.
            unsafe {
                infos
                    .add(index)
                    .write_unaligned(ProcessInfo { process, used_bytes, gpu_instance, compute_instance });
            }
        }
        Ok(())
    }
}
