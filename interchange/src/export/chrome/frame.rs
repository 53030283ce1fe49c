//! What stands before the events: the devices, the ranks, the base of all times, and what was lost.

use std::io::{self, Write};

use gputrace_trace::{Process, Recording};
use serde_json::{Value, json};

use crate::export::layout::{communicator_name, first_moment_ns};
use crate::export::words;

/// The latest whole second that no event precedes: with times relative to it, a double keeps every nanosecond.
pub fn base_time_ns(recording: &Recording) -> i64 {
    first_moment_ns(recording).map_or(0, |time| time - time % 1_000_000_000)
}

/// Writes the object's head, up to the bracket that opens `traceEvents`.
pub fn write_head(recording: &Recording, base_ns: i64, out: &mut dyn Write) -> io::Result<()> {
    let manifest = &recording.manifest;
    write!(out, "{{\"schemaVersion\":1")?;
    let member = |out: &mut dyn Write, key: &str, value: &Value| write!(out, ",\n\"{key}\":{value}");
    member(out, "deviceProperties", &device_properties(recording))?;
    if let [process] = recording.processes.as_slice() {
        if let Some(info) = distributed_info(recording, process) {
            // Holistic Trace Analysis looks for the rank with a pattern that wants a space after the colon.
            write!(out, ",\n\"distributedInfo\": {info:#}")?;
        }
        member(out, "host_name", &json!(process.header.host))?;
        if let Some(version) = process.header.cupti_version {
            member(out, "cupti_version", &json!(version))?;
        }
        if let Some(version) = process.header.driver_version {
            member(out, "cuda_driver_version", &json!(version))?;
        }
    }
    let losses: Vec<Value> = recording
        .losses
        .iter()
        .map(|loss| json!({"what": loss.what, "count": loss.count, "affects": loss.affects}))
        .collect();
    member(
        out,
        "gputrace",
        &json!({
            "simulated": recording.is_simulated(),
            "device": manifest.device,
            "command": manifest.command,
            "host": manifest.host,
            "recording": {"format": manifest.format, "major": manifest.version.major, "minor": manifest.version.minor},
            "losses": losses,
            "notes": recording.notes,
        }),
    )?;
    member(out, "displayTimeUnit", &json!("ms"))?;
    member(out, "baseTimeNanoseconds", &json!(base_ns))?;
    write!(out, ",\n\"traceEvents\":[")
}

/// One entry a GPU; with a single process its place in the list is the index that events name.
fn device_properties(recording: &Recording) -> Value {
    let one_process = recording.processes.len() == 1;
    let mut list = Vec::new();
    for process in &recording.processes {
        let mut devices: Vec<_> = process.header.devices.iter().collect();
        devices.sort_by_key(|device| device.index);
        for device in devices {
            while one_process && list.len() < device.index as usize && list.len() < 64 {
                list.push(json!({"id": list.len(), "name": "not recorded", "totalGlobalMem": 0}));
            }
            let mut entry = json!({
                "id": device.index,
                "name": device.name,
                "totalGlobalMem": device.memory_bytes.unwrap_or(0),
            });
            if let Some((major, minor)) = device.compute_capability {
                entry["computeMajor"] = json!(major);
                entry["computeMinor"] = json!(minor);
            }
            if let Some(multiprocessors) = device.multiprocessors {
                entry["numSms"] = json!(multiprocessors);
            }
            if let Some(uuid) = &device.uuid {
                entry["uuid"] = json!(uuid);
            }
            if !one_process {
                entry["process rank"] = json!(process.header.rank);
            }
            list.push(entry);
        }
    }
    Value::Array(list)
}

/// A rank's place in the job, as Holistic Trace Analysis looks for it. `None` where the rank is not known.
fn distributed_info(recording: &Recording, process: &Process) -> Option<Value> {
    let rank = process.header.rank?;
    let communicators = &process.tables.communicators;
    let groups: Vec<Value> = (0..communicators.communicator.len())
        .map(|row| {
            json!({
                "pg_name": communicator_name(recording, process, communicators.communicator[row]),
                "pg_desc": format!("communicator {:#x}", communicators.communicator[row]),
                "backend_config": "cuda:nccl",
                "pg_size": communicators.ranks[row],
            })
        })
        .collect();
    let world_size = process
        .header
        .world_size
        .or_else(|| communicators.ranks.iter().copied().max());
    Some(json!({
        "backend": "nccl",
        "rank": rank,
        "world_size": world_size,
        "pg_count": groups.len(),
        "pg_config": groups,
    }))
}

/// What a kernel or a collective says of the NCCL operations it carries, as JSON members in Kineto's words.
///
/// Operations of one group share a kernel: their elements are summed where all are of one kind, and the number of them
/// is given.
pub fn collective_args(recording: &Recording, process: &Process, rows: &[u32]) -> Vec<(&'static str, Value)> {
    let table = &process.tables.collectives;
    let Some(first) = rows.first().map(|&row| row as usize) else {
        return Vec::new();
    };
    let same = |differs: &dyn Fn(usize) -> bool| !rows.iter().any(|&row| differs(row as usize));
    let one_function = same(&|row| table.function[row] != table.function[first]);
    let one_datatype = same(&|row| table.datatype[row] != table.datatype[first]);
    let one_communicator = same(&|row| table.communicator[row] != table.communicator[first]);
    let function = recording.names.get(table.function[first]);
    let mut args = Vec::new();
    if one_function && one_datatype {
        let count: u64 = rows.iter().map(|&row| table.count[row as usize]).sum();
        let group = group_size(process, table.communicator[first]);
        // NCCL counts what one rank gives (AllGather) or gets (ReduceScatter); the other side is as many times as much.
        let times = |count: u64| group.map(|ranks| count.saturating_mul(ranks.into()));
        let (elements_in, elements_out) = match function {
            "AllGather" => (Some(count), times(count)),
            "ReduceScatter" => (times(count), Some(count)),
            _ => (Some(count), Some(count)),
        };
        args.push(("Collective name", json!(words::collective_name(function))));
        if let (Some(elements_in), Some(elements_out), Some(group)) = (elements_in, elements_out, group) {
            args.push(("In msg nelems", json!(elements_in)));
            args.push(("Out msg nelems", json!(elements_out)));
            args.push(("Group size", json!(group)));
        }
        let datatype = recording.names.get(table.datatype[first]);
        args.push(("dtype", json!(words::datatype_name(datatype))));
    }
    if one_communicator {
        let communicator = table.communicator[first];
        let name = communicator_name(recording, process, communicator);
        args.push(("Process Group Name", json!(name)));
        args.push((
            "Process Group Description",
            json!(format!("communicator {communicator:#x}")),
        ));
        args.push(("Rank", json!(table.rank[first])));
    }
    let bytes: u64 = rows.iter().map(|&row| table.bytes[row as usize]).sum();
    args.push(("bytes", json!(bytes)));
    if let [row] = rows {
        let row = *row as usize;
        if let Some(sequence) = table.sequence[row] {
            args.push(("Seq", json!(sequence)));
        }
        let peer = match function {
            "Send" => Some("Dst Rank"),
            "Recv" => Some("Src Rank"),
            _ => None,
        };
        if let (Some(key), Some(peer)) = (peer, table.peer[row]) {
            args.push((key, json!(peer)));
        }
        if let Some(root) = table.root[row] {
            args.push(("Root Rank", json!(root)));
        }
        if let Some(algorithm) = table.algorithm[row] {
            args.push(("algorithm", json!(recording.names.get(algorithm))));
        }
        if let Some(protocol) = table.protocol[row] {
            args.push(("protocol", json!(recording.names.get(protocol))));
        }
        args.push(("channels", json!(table.channels[row])));
    } else {
        args.push(("operations in kernel", json!(rows.len())));
    }
    args
}

fn group_size(process: &Process, communicator: u64) -> Option<u32> {
    let table = &process.tables.communicators;
    let row = table.communicator.iter().position(|&hash| hash == communicator)?;
    Some(table.ranks[row])
}
