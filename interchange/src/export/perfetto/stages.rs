//! Perfetto's own vocabulary for GPUs, on request: render stages, which fill its GPU tables and the plugins for compute.
//!
//! Queues, contexts and events are known by numbers of the whole file: Perfetto keeps none of them by process.

use std::io;

use gputrace_trace::{Process, Recording};
use rustc_hash::FxHashMap;

use super::fields::{gpu, interned, packet, stage};
use super::hosts::Identity;
use super::packets::Packets;
use super::text::without_nul;
use crate::export::protobuf::ProtoBuffer;
use crate::export::words;

/// Numbers of stages among interned specifications.
pub(super) const KERNEL_STAGE: u64 = 1;
pub(super) const COPY_STAGE: u64 = 2;
pub(super) const MEMSET_STAGE: u64 = 3;
/// Where queues' numbers begin.
const FIRST_QUEUE: u64 = 16;

/// The GPUs of a recording by machine, each once, though several processes may see it.
pub(super) struct Gpus<'r> {
    /// By machine.
    all: Vec<Vec<Gpu<'r>>>,
    /// By machine and UUID, or by process and index where there is none.
    places: FxHashMap<(u32, GpuKey<'r>), u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum GpuKey<'r> {
    Uuid(&'r str),
    Of(usize, u32),
}

struct Gpu<'r> {
    device: Option<&'r gputrace_trace::manifest::Device>,
    index: u32,
}

fn key(number: usize, process: &Process, index: u32) -> (GpuKey<'_>, Gpu<'_>) {
    let device = process.header.devices.iter().find(|device| device.index == index);
    let uuid = device
        .and_then(|device| device.uuid.as_deref())
        .filter(|uuid| !uuid.is_empty());
    (
        uuid.map_or(GpuKey::Of(number, index), GpuKey::Uuid),
        Gpu { device, index },
    )
}

impl<'r> Gpus<'r> {
    /// Those that executed anything.
    pub(super) fn new(recording: &'r Recording, identities: &[Identity]) -> Self {
        let mut gpus = Self {
            all: Vec::new(),
            places: FxHashMap::default(),
        };
        for (number, (process, identity)) in recording.processes.iter().zip(identities).enumerate() {
            let tables = &process.tables;
            let mut devices: Vec<u32> = [
                &tables.kernels.device,
                &tables.copies.device,
                &tables.memsets.device,
            ]
            .into_iter()
            .flat_map(|column| column.chunk_by(|a, b| a == b).map(|run| run[0]))
            .collect();
            devices.sort_unstable();
            devices.dedup();
            let machine = identity.machine as usize;
            if gpus.all.len() <= machine {
                gpus.all.resize_with(machine + 1, Vec::new);
            }
            for index in devices {
                let (key, found) = key(number, process, index);
                let of_machine = &mut gpus.all[machine];
                gpus.places.entry((identity.machine, key)).or_insert_with(|| {
                    of_machine.push(found);
                    u32::try_from(of_machine.len() - 1).unwrap_or(u32::MAX)
                });
            }
        }
        gpus
    }

    /// The number of a process's device among its machine's.
    pub(super) fn number(&self, number: usize, process: &Process, identity: Identity, index: u32) -> u32 {
        let (key, _) = key(number, process, index);
        // The key lives as long as the process that it is asked of, and so do those that are held.
        self.places
            .iter()
            .find(|((machine, held), _)| *machine == identity.machine && *held == key)
            .map_or(index, |(_, &place)| place)
    }

    /// Tells of a machine's GPUs, on a sequence of it.
    pub(super) fn write(&self, machine: u32, packets: &mut Packets<'_>) -> io::Result<()> {
        let Some(gpus) = self.all.get(machine as usize).filter(|gpus| !gpus.is_empty()) else {
            return Ok(());
        };
        packets.packet(packet::NEEDS_STATE, |fields| {
            fields.message(packet::GPU_INFO, |info| {
                for gpu in gpus {
                    info.message(gpu::GPUS, |fields| write_gpu(gpu, fields));
                }
            });
        })
    }
}

fn write_gpu(known: &Gpu<'_>, fields: &mut ProtoBuffer) {
    let Some(device) = known.device else {
        fields.text(gpu::NAME, &format!("GPU {}", known.index));
        return;
    };
    fields.text(gpu::NAME, &without_nul(&device.name));
    fields.text(gpu::VENDOR, "NVIDIA");
    if let Some((major, minor)) = device.compute_capability {
        fields.text(gpu::ARCHITECTURE, &format!("sm_{major}{minor}"));
    }
    let uuid = device.uuid.as_deref().and_then(bytes_of_uuid);
    if let Some(uuid) = uuid {
        fields.blob(gpu::UUID, &uuid);
    }
    let facts = [
        ("memory_bytes", device.memory_bytes),
        ("multiprocessors", device.multiprocessors.map(u64::from)),
        (
            "memory_bandwidth_bytes_per_s",
            device.memory_bandwidth_bytes_per_s,
        ),
    ];
    for (key, value) in facts {
        if let Some(value) = value {
            fields.message(gpu::EXTRA, |fields| {
                fields.text(gpu::KEY, key);
                fields.text(gpu::VALUE, &value.to_string());
            });
        }
    }
}

/// The 16 bytes of 32 hexadecimal digits, with or without dashes.
fn bytes_of_uuid(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text
        .trim_start_matches("GPU-")
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    (digits.len() == 32).then(|| {
        digits
            .chunks(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect()
    })
}

/// Numbers of the whole file.
#[derive(Default)]
pub(super) struct StageNumbers {
    queues: u64,
    contexts: u64,
    kernels: u64,
    /// By context, of the current process.
    of_process: FxHashMap<u32, u64>,
    /// By name, of the current process.
    kernel_iids: FxHashMap<(u32, u32), u64>,
}

impl StageNumbers {
    /// Begins a process: what is interned is its sequence's.
    pub(super) fn begin_process(&mut self, packets: &mut Packets<'_>) -> io::Result<()> {
        self.of_process.clear();
        self.kernel_iids.clear();
        packets.interned(|data| {
            for (iid, name, category) in [
                (KERNEL_STAGE, "Kernel", stage::COMPUTE),
                (COPY_STAGE, "Memcpy", stage::OTHER),
                (MEMSET_STAGE, "Memset", stage::OTHER),
            ] {
                data.message(interned::GPU_SPECIFICATIONS, |entry| {
                    entry.uint(interned::IID, iid);
                    entry.text(interned::TEXT, name);
                    entry.uint(stage::SPECIFICATION_CATEGORY, category);
                });
            }
            for (iid, name) in super::arguments::argument_names() {
                super::packets::intern(data, interned::COMPUTE_ARGUMENT_NAMES, iid, name);
            }
        })
    }

    pub(super) fn queue(&mut self, name: &str, packets: &mut Packets<'_>) -> io::Result<u64> {
        let iid = FIRST_QUEUE + self.queues;
        self.queues += 1;
        packets.interned(|data| super::packets::intern(data, interned::GPU_SPECIFICATIONS, iid, name))?;
        Ok(iid)
    }

    pub(super) fn context(&mut self, context: u32, pid: u32, packets: &mut Packets<'_>) -> io::Result<u64> {
        if let Some(&iid) = self.of_process.get(&context) {
            return Ok(iid);
        }
        self.contexts += 1;
        let iid = self.contexts;
        self.of_process.insert(context, iid);
        packets.interned(|data| {
            data.message(interned::GRAPHICS_CONTEXTS, |entry| {
                entry.uint(interned::IID, iid);
                entry.uint(stage::CONTEXT_PID, pid.into());
                entry.uint(stage::CONTEXT_API, stage::CUDA);
            });
        })?;
        Ok(iid)
    }

    pub(super) fn kernel(
        &mut self,
        (name, device): (u32, u32),
        text: &str,
        architecture: Option<(u32, u32)>,
        packets: &mut Packets<'_>,
    ) -> io::Result<u64> {
        if let Some(&iid) = self.kernel_iids.get(&(name, device)) {
            return Ok(iid);
        }
        self.kernels += 1;
        let iid = self.kernels;
        self.kernel_iids.insert((name, device), iid);
        packets.interned(|data| {
            data.message(interned::COMPUTE_KERNELS, |entry| {
                entry.uint(interned::IID, iid);
                entry.text(stage::KERNEL_NAME, &without_nul(text));
                entry.text(
                    stage::KERNEL_DEMANGLED_NAME,
                    &without_nul(&words::kernel_name(text)),
                );
                if let Some((major, minor)) = architecture {
                    entry.text(stage::KERNEL_ARCHITECTURE, &format!("sm_{major}{minor}"));
                }
            });
        })?;
        Ok(iid)
    }
}

#[cfg(test)]
mod tests {
    use super::bytes_of_uuid;

    #[test]
    fn uuids_are_sixteen_bytes() {
        let uuid = bytes_of_uuid("GPU-000102030405-060708090a0b0c0d0e0f");
        assert_eq!(uuid, Some((0..16).collect()));
        assert_eq!(bytes_of_uuid("0001"), None);
        assert_eq!(bytes_of_uuid("not a uuid"), None);
    }
}
