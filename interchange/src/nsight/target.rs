//! The machine: host, GPUs, contexts and streams.

use std::collections::BTreeMap;

use gputrace_trace::Table;
use gputrace_trace::manifest::Device;
use gputrace_trace::tables::{Context, Stream};
use rustc_hash::FxHashMap;

use super::database::Cells;
use super::environment::Environment;
use super::rows::{Import, one_line};

/// What the file says of the machine.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) driver_version: Option<u32>,
    /// Names of processes by their global ids without the thread.
    pub(super) commands: BTreeMap<i64, Vec<String>>,
    gpus: Vec<Gpu>,
    /// The first of each number in the file.
    by_id: FxHashMap<i64, usize>,
    /// By process id and device index: the GPU's number in the file.
    ordinals: BTreeMap<(u32, u32), i64>,
}

#[derive(Debug)]
struct Gpu {
    /// Its number in the file.
    id: i64,
    /// Its index to a process that sees all of them.
    ordinal: Option<u32>,
    device: Device,
}

const GPU_COLUMNS: [&str; 9] = [
    "id",
    "name",
    "totalMemory",
    "memoryBandwidth",
    "smCount",
    "uuid",
    "cuDevice",
    "computeMajor",
    "computeMinor",
];

/// Reads what the file says of the machine, and the contexts and streams of the processes into their tables.
pub(super) fn read(import: &mut Import<'_>, environment: &Environment) -> Target {
    let mut target = Target::default();
    let database = import.database;
    let mut ends = Vec::new();
    ends.push(
        database.each("TARGET_INFO_SYSTEM_ENV", &["name", "value"], |cells| {
            let (Ok(Some(name)), Ok(Some(value))) = (cells.text(0), cells.text(1)) else {
                return;
            };
            match name.as_ref() {
                "Hostname" => target.host = one_line(&value),
                "CudaDriverVersion" => target.driver_version = value.parse().ok(),
                _ => {}
            }
        }),
    );
    ends.push(database.each("TARGET_INFO_GPU", &GPU_COLUMNS, |cells| {
        if let Some(gpu) = gpu(cells) {
            target.by_id.entry(gpu.id).or_insert(target.gpus.len());
            target.gpus.push(gpu);
        }
    }));
    let columns = ["pid", "cudaId", "gpuId"];
    ends.push(database.each("TARGET_INFO_CUDA_DEVICE", &columns, |cells| {
        if let (Some(pid), Some(index), Some(id)) = (
            number(cells, 0),
            number(cells, 1),
            cells.integer(2).ok().flatten(),
        ) {
            target.ordinals.insert((pid, index), id);
        }
    }));
    ends.push(database.each("PROCESSES", &["globalPid", "name"], |cells| {
        if let (Ok(Some(global)), Ok(Some(name))) = (cells.integer(0), cells.text(1))
            && import.processes.known(global).is_some()
        {
            target.commands.insert(global >> 24, vec![one_line(&name)]);
        }
    }));
    // The command that was recorded is that of the process of its name, with its arguments.
    if let Some(command) = environment.command.first() {
        for known in target.commands.values_mut() {
            if known.first() == Some(command) {
                known.clone_from(&environment.command);
            }
        }
    }
    ends.push(contexts(import));
    ends.push(streams(import));
    if ends.iter().any(Result::is_err) {
        import.losses.lose(
            "tables about the machine could not be read to their end: the file is cut or damaged".to_owned(),
            None,
            "host, GPUs, contexts and streams",
        );
    }
    target
}

/// A 32-bit number; `None` for anything else.
fn number(cells: &Cells<'_>, index: usize) -> Option<u32> {
    cells
        .integer(index)
        .ok()?
        .and_then(|value| u32::try_from(value).ok())
}

fn gpu(cells: &Cells<'_>) -> Option<Gpu> {
    let size = |index| -> Option<u64> {
        let value = cells.integer(index).ok()??;
        u64::try_from(value).ok().filter(|&value| value > 0)
    };
    let text = |index| cells.text(index).ok().flatten().unwrap_or_default();
    let uuid: String = text(5)
        .trim_start_matches("GPU-")
        .chars()
        .filter(char::is_ascii_hexdigit)
        .collect();
    Some(Gpu {
        id: cells.integer(0).ok()??,
        ordinal: number(cells, 6),
        device: Device {
            index: 0,
            name: one_line(&text(1)),
            compute_capability: number(cells, 7).zip(number(cells, 8)),
            memory_bytes: size(2),
            memory_bandwidth_bytes_per_s: size(3),
            multiprocessors: number(cells, 4).filter(|&count| count > 0),
            uuid: (uuid.len() == 32).then_some(uuid),
            limits: None,
        },
    })
}

impl Target {
    /// The GPUs that a process could see, by its own indices.
    pub(super) fn devices_of(&self, pid: u32) -> Vec<Device> {
        let known: Vec<Device> = self
            .ordinals
            .range((pid, 0)..=(pid, u32::MAX))
            .filter_map(|((_, index), id)| {
                let gpu = &self.gpus[*self.by_id.get(id)?];
                Some(Device {
                    index: *index,
                    ..gpu.device.clone()
                })
            })
            .collect();
        if !known.is_empty() {
            return known;
        }
        // Without a word on what the process saw, its indices are those of a process that sees all. Which GPU of several
        // it really was is then a guess, so that none is said by its UUID.
        let mut ordinals: Vec<u32> = self.gpus.iter().filter_map(|gpu| gpu.ordinal).collect();
        ordinals.sort_unstable();
        ordinals.dedup();
        let by_ordinal = ordinals.len() == self.gpus.len();
        let mut devices: Vec<Device> = self
            .gpus
            .iter()
            .filter_map(|gpu| {
                let id = u32::try_from(gpu.id).ok();
                Some(Device {
                    index: if by_ordinal { gpu.ordinal? } else { id? },
                    uuid: gpu.device.uuid.clone().filter(|_| self.gpus.len() == 1),
                    ..gpu.device.clone()
                })
            })
            .collect();
        devices.sort_by_key(|device| device.index);
        devices
    }
}

/// The contexts, from the table of newer versions or else from that of older ones.
fn contexts(import: &mut Import<'_>) -> rusqlite::Result<()> {
    let database = import.database;
    let newer = "TARGET_INFO_CUDA_CONTEXT_INFO";
    let (table, null_stream) = if database.has(newer) {
        (newer, "nullStreamId")
    } else {
        ("TARGET_INFO_CUDA_NULL_STREAM", "streamId")
    };
    let columns = ["processId", "vmId", "contextId", "deviceId", null_stream];
    database.each(table, &columns, |cells| {
        let (Ok(Some(pid)), Ok(vm)) = (cells.integer(0), cells.integer(1)) else {
            return;
        };
        if let (Some(place), Some(context), Some(device), Some(null_stream)) = (
            import.processes.by_pid(pid, vm),
            number(cells, 2),
            number(cells, 3),
            number(cells, 4),
        ) {
            import.processes.list_mut()[place].tables.contexts.push(Context {
                context,
                device,
                null_stream,
            });
        }
    })
}

fn streams(import: &mut Import<'_>) -> rusqlite::Result<()> {
    let columns = ["processId", "vmId", "contextId", "streamId", "flag", "priority"];
    import
        .database
        .each("TARGET_INFO_CUDA_STREAM", &columns, |cells| {
            let (Ok(Some(pid)), Ok(vm)) = (cells.integer(0), cells.integer(1)) else {
                return;
            };
            if let (Some(place), Some(context), Some(stream)) = (
                import.processes.by_pid(pid, vm),
                number(cells, 2),
                number(cells, 3),
            ) {
                import.processes.list_mut()[place].tables.streams.push(Stream {
                    context,
                    stream,
                    flag: number(cells, 4).unwrap_or(0),
                    // Urgent priorities are negative, and written without their sign.
                    priority: cells.integer(5).ok().flatten().unwrap_or(0) as i32,
                });
            }
        })
}
