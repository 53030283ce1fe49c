//! What NVML tells of the devices: how busy, how hot, how fast, and what passes over their links.
//!
//! | counter | what |
//! |---|---|
//! | `gpu_utilization_percent` | share of the last moments (up to a second) in which a kernel ran |
//! | `memory_utilization_percent` | share in which device memory was read or written |
//! | `memory_used_bytes` | memory in use, everybody's |
//! | `power_watts`, `temperature_celsius` | of the GPU |
//! | `sm_clock_mhz`, `memory_clock_mhz` | as they are now |
//! | `throttle_reasons` | NVML's bits (nvmlClocksEventReasons): why the clock is not higher |
//! | `nvlink_sent_bytes_per_second`, `nvlink_received_...` | data over all NVLinks since the sample before |
//! | `pcie_sent_bytes_per_second`, `pcie_received_...` | likewise over PCIe, seen from the GPU |
//! | `ecc_corrected_errors`, `ecc_uncorrected_errors` | since the driver was loaded; once a second |

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gputrace_trace::manifest;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::fields::{self, Field};
use crate::nvml::plain_uuid;

/// Gives a value of a device: the counter's name and the value.
pub type Put<'a> = &'a mut dyn FnMut(u32, &'static str, f64);

/// Asks a device, and gives each counter's name and value.
type Ask = fn(&Device<'_>, &mut dyn FnMut(&'static str, f64)) -> Result<(), NvmlError>;

/// One question that NVML answers with a value or more.
struct Question {
    /// As notes call it.
    what: &'static str,
    ask: Ask,
}

/// What is asked each time; each answer takes NVML some ten microseconds.
const QUESTIONS: &[Question] = &[
    Question {
        what: "utilisation",
        ask: |device, put| {
            let rates = device.utilization_rates()?;
            put("gpu_utilization_percent", f64::from(rates.gpu));
            put("memory_utilization_percent", f64::from(rates.memory));
            Ok(())
        },
    },
    Question {
        what: "memory in use",
        ask: |device, put| {
            put("memory_used_bytes", device.memory_info()?.used as f64);
            Ok(())
        },
    },
    Question {
        what: "power",
        ask: |device, put| {
            put("power_watts", f64::from(device.power_usage()?) / 1e3);
            Ok(())
        },
    },
    Question {
        what: "the clock of its multiprocessors",
        ask: |device, put| {
            put("sm_clock_mhz", f64::from(device.clock_info(Clock::SM)?));
            Ok(())
        },
    },
    Question {
        what: "the clock of its memory",
        ask: |device, put| {
            put("memory_clock_mhz", f64::from(device.clock_info(Clock::Memory)?));
            Ok(())
        },
    },
    Question {
        what: "temperature",
        ask: |device, put| {
            let degrees = device.temperature(TemperatureSensor::Gpu)?;
            put("temperature_celsius", f64::from(degrees));
            Ok(())
        },
    },
    Question {
        what: "throttle reasons",
        ask: |device, put| {
            put(
                "throttle_reasons",
                device.current_throttle_reasons()?.bits() as f64,
            );
            Ok(())
        },
    },
];

/// PCIe traffic where there is no counter of it: the driver watches for 20 ms each time, so one device a round is asked.
const PCIE_WATCHED: Question = Question {
    what: "PCIe throughput",
    ask: |device, put| {
        /// NVML's unit here.
        const KILOBYTE: f64 = 1000.0;
        let sent = device.pcie_throughput(PcieUtilCounter::Send)?;
        put("pcie_sent_bytes_per_second", f64::from(sent) * KILOBYTE);
        let received = device.pcie_throughput(PcieUtilCounter::Receive)?;
        put("pcie_received_bytes_per_second", f64::from(received) * KILOBYTE);
        Ok(())
    },
};

/// Whether a device will never answer this.
fn is_final(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::NotSupported
            | NvmlError::InvalidArg
            | NvmlError::NoPermission
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
    )
}

/// One GPU.
struct Gpu<'nvml> {
    index: u32,
    uuid: Option<String>,
    device: Device<'nvml>,
    /// What it does not answer.
    silent: BTreeSet<&'static str>,
    /// The last reading of each field that counts up.
    before: BTreeMap<u32, (Instant, u64)>,
}

/// All GPUs of the host.
pub struct Devices<'nvml> {
    gpus: Vec<Gpu<'nvml>>,
    /// UUIDs of those that the command uses; `None` while that is not known.
    used: Option<BTreeSet<String>>,
    /// Whose PCIe traffic is watched next.
    turn: usize,
    second: Option<Instant>,
    /// By what is not answered: by which GPUs, and why.
    refusals: BTreeMap<&'static str, (BTreeSet<u32>, String)>,
    failures: u64,
}

impl<'nvml> Devices<'nvml> {
    /// All that NVML knows.
    pub fn new(nvml: &'nvml Nvml) -> Self {
        let count = nvml.device_count().unwrap_or(0);
        let gpus = (0..count).filter_map(|index| {
            let device = nvml.device_by_index(index).ok()?;
            Some(Gpu {
                index,
                uuid: device.uuid().ok().map(|uuid| plain_uuid(&uuid)),
                device,
                silent: BTreeSet::new(),
                before: BTreeMap::new(),
            })
        });
        Self {
            gpus: gpus.collect(),
            used: None,
            turn: 0,
            second: None,
            refusals: BTreeMap::new(),
            failures: 0,
        }
    }

    /// As the header lists them.
    pub fn list(&self) -> Vec<manifest::Device> {
        let device = |gpu: &Gpu<'_>| {
            let capability = gpu.device.cuda_compute_capability().ok();
            manifest::Device {
                index: gpu.index,
                name: gpu.device.name().unwrap_or_default(),
                compute_capability: capability.and_then(|capability| {
                    Some((
                        capability.major.try_into().ok()?,
                        capability.minor.try_into().ok()?,
                    ))
                }),
                memory_bytes: gpu.device.memory_info().ok().map(|memory| memory.total),
                uuid: gpu.uuid.clone(),
                ..manifest::Device::default()
            }
        };
        self.gpus.iter().map(device).collect()
    }

    /// From now on only these are sampled, if any of them is there: an instance of a GPU (MIG) has a UUID of its own.
    pub fn use_only(&mut self, uuids: &BTreeSet<String>) {
        let known = |gpu: &Gpu<'_>| gpu.uuid.as_ref().is_some_and(|uuid| uuids.contains(uuid));
        self.used = self.gpus.iter().any(known).then(|| uuids.clone());
    }

    /// One sample of each.
    pub fn sample(&mut self, put: Put<'_>) {
        let each_second = self
            .second
            .is_none_or(|second| second.elapsed() >= Duration::from_secs(1));
        if each_second {
            self.second = Some(Instant::now());
        }
        let used = self.used.take();
        let is_used = |gpu: &Gpu<'_>| match (&used, &gpu.uuid) {
            (Some(used), Some(uuid)) => used.contains(uuid),
            _ => true,
        };
        for place in 0..self.gpus.len() {
            if is_used(&self.gpus[place]) {
                let turn = self.turn % self.gpus.len() == place;
                self.sample_one(place, each_second, turn, put);
            } else if self.turn % self.gpus.len() == place {
                self.turn += 1;
            }
        }
        self.turn = self.turn.wrapping_add(1);
        self.used = used;
    }

    fn sample_one(&mut self, place: usize, each_second: bool, turn: bool, put: Put<'_>) {
        let Some(gpu) = self.gpus.get_mut(place) else {
            return;
        };
        let index = gpu.index;
        let mut put_here = |name: &'static str, value: f64| put(index, name, value);
        for question in QUESTIONS {
            if !gpu.silent.contains(question.what)
                && let Err(error) = (question.ask)(&gpu.device, &mut put_here)
            {
                refused(gpu, question.what, &error, &mut self.refusals, &mut self.failures);
            }
        }
        self.fields(place, each_second, put);
        let Some(gpu) = self.gpus.get_mut(place) else {
            return;
        };
        let mut put_here = |name: &'static str, value: f64| put(index, name, value);
        if turn
            && gpu.silent.contains(fields::PCIE)
            && !gpu.silent.contains(PCIE_WATCHED.what)
            && let Err(error) = (PCIE_WATCHED.ask)(&gpu.device, &mut put_here)
        {
            refused(
                gpu,
                PCIE_WATCHED.what,
                &error,
                &mut self.refusals,
                &mut self.failures,
            );
        }
    }

    /// The values that NVML gives by number, all with one call.
    fn fields(&mut self, place: usize, each_second: bool, put: Put<'_>) {
        let Some(gpu) = self.gpus.get_mut(place) else {
            return;
        };
        let wanted: Vec<&Field> = fields::FIELDS
            .iter()
            .filter(|field| !gpu.silent.contains(field.what) && (each_second || field.rate_of.is_some()))
            .collect();
        if wanted.is_empty() {
            return;
        }
        let values = match fields::read(&gpu.device, &wanted) {
            Ok(values) => values,
            Err(error) => {
                for field in wanted {
                    refused(gpu, field.what, &error, &mut self.refusals, &mut self.failures);
                }
                return;
            }
        };
        let now = Instant::now();
        for (field, value) in wanted.into_iter().zip(values) {
            match (value, field.rate_of) {
                (Err(error), _) => refused(gpu, field.what, &error, &mut self.refusals, &mut self.failures),
                (Ok(value), None) => put(gpu.index, field.counter, value as f64),
                (Ok(value), Some(unit_bytes)) => {
                    let before = gpu.before.insert(field.id, (now, value));
                    // A count that went back was set back, or has run over: nothing is known of this stretch.
                    if let Some((then, before)) = before
                        && value >= before
                    {
                        let seconds = (now - then).as_secs_f64().max(1e-6);
                        put(
                            gpu.index,
                            field.counter,
                            (value - before) as f64 * unit_bytes / seconds,
                        );
                    }
                }
            }
        }
    }

    /// Answers that failed since the last call, for another reason than that the device has none.
    pub fn take_failures(&mut self) -> u64 {
        std::mem::take(&mut self.failures)
    }

    /// What the devices do not tell, in sentences.
    pub fn notes(&self) -> Vec<String> {
        let mut groups: BTreeMap<(&BTreeSet<u32>, &str), Vec<&str>> = BTreeMap::new();
        for (what, (gpus, why)) in &self.refusals {
            // That traffic is watched for where it is not counted.
            if *what != fields::PCIE {
                groups.entry((gpus, why)).or_default().push(what);
            }
        }
        let sentence = |((gpus, why), what): ((&BTreeSet<u32>, &str), Vec<&str>)| {
            let gpus: Vec<String> = gpus.iter().map(ToString::to_string).collect();
            format!(
                "NVML gives no {} of GPU {} ({why})",
                what.join(", "),
                gpus.join(", ")
            )
        };
        groups.into_iter().map(sentence).collect()
    }
}

/// Why a question was not answered, in few words.
fn reason(error: &NvmlError) -> String {
    match error {
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => {
            "this driver does not know it".to_owned()
        }
        NvmlError::NotSupported | NvmlError::InvalidArg => "not supported".to_owned(),
        NvmlError::NoPermission => "not permitted".to_owned(),
        other => other.to_string(),
    }
}

/// Takes in that a question was not answered: for good, or this time.
fn refused(
    gpu: &mut Gpu<'_>,
    what: &'static str,
    error: &NvmlError,
    refusals: &mut BTreeMap<&'static str, (BTreeSet<u32>, String)>,
    failures: &mut u64,
) {
    if !is_final(error) {
        *failures += 1;
        return;
    }
    gpu.silent.insert(what);
    refusals
        .entry(what)
        .or_insert_with(|| (BTreeSet::new(), reason(error)))
        .0
        .insert(gpu.index);
}
