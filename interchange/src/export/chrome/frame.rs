//! What stands before the events: the devices, the rank, the base of all times, and what is true of the recording.

use std::io::{self, Write};

use gputrace_trace::manifest::Device;
use gputrace_trace::{Process, Recording};
use serde_json::{Map, Value, json};

use super::collectives::Members;
use super::gputrace_members::without_controls;
use crate::export::layout::{CommunicatorNames, first_moment_ns};

/// Which version of the member `gputrace` this is. A reader takes no other for one that it knows.
const EXPORT_VERSION: u32 = 2;

/// How every file begins, so that it is known as ours.
pub const BEGINNING: &str = "{\"schemaVersion\":1,\n\"generator\":\"gputrace\"";

/// The latest whole second that no event precedes: with times relative to it, a double keeps every nanosecond. All files of
/// a recording have the same.
pub fn base_time_ns(recording: &Recording) -> i64 {
    first_moment_ns(recording).map_or(0, |time| time - time % 1_000_000_000)
}

/// Writes the object's head, up to the bracket that opens `traceEvents`. `processes` are those of the file, without hosts'
/// samples.
pub fn write_head(
    recording: &Recording,
    processes: &[&Process],
    base_ns: i64,
    out: &mut dyn Write,
) -> io::Result<()> {
    out.write_all(BEGINNING.as_bytes())?;
    let one_rank = processes.first().filter(|first| {
        let same = |process: &&Process| process.header.rank == first.header.rank;
        processes.len() == 1 || first.header.rank.is_some() && processes.iter().all(same)
    });
    member(
        out,
        "deviceProperties",
        &device_properties(processes, one_rank.is_some()),
    )?;
    if let Some(process) = one_rank {
        if let Some(info) = distributed_info(recording, process) {
            // Holistic Trace Analysis looks for the rank with a pattern that wants a space after the colon.
            out.write_all(b",\n\"distributedInfo\": ")?;
            out.write_all(&without_controls(&format!("{info:#}")))?;
        }
        let header = &process.header;
        member(out, "host_name", &json!(header.host))?;
        for (key, version) in [
            ("cupti_version", header.cupti_version),
            ("cuda_driver_version", header.driver_version),
        ] {
            if let Some(version) = version {
                member(out, key, &json!(version))?;
            }
        }
    }
    member(out, "gputrace", &own(recording)?)?;
    member(out, "displayTimeUnit", &json!("ms"))?;
    member(out, "baseTimeNanoseconds", &json!(base_ns))?;
    write!(out, ",\n\"traceEvents\":[")
}

fn member(out: &mut dyn Write, key: &str, value: &Value) -> io::Result<()> {
    write!(out, ",\n\"{key}\":")?;
    out.write_all(&without_controls(&value.to_string()))
}

/// What the format has no place for.
fn own(recording: &Recording) -> io::Result<Value> {
    let losses: Vec<Value> = recording
        .losses
        .iter()
        .map(|loss| json!({"what": loss.what, "count": loss.count, "affects": loss.affects}))
        .collect();
    Ok(json!({
        "export": EXPORT_VERSION,
        "simulated": recording.is_simulated(),
        "manifest": serde_json::to_value(&recording.manifest).map_err(io::Error::other)?,
        "losses": losses,
        "notes": recording.notes,
        "unaligned": recording.unaligned,
        "clocks": recording.clocks,
    }))
}

/// One entry a GPU; of a single rank its place in the list is the index that events name.
fn device_properties(processes: &[&Process], one_rank: bool) -> Value {
    let mut list: Vec<Value> = Vec::new();
    for process in processes {
        let mut devices: Vec<_> = process.header.devices.iter().collect();
        devices.sort_by_key(|device| device.index);
        for device in devices {
            let known = |entry: &Value| entry["id"] == device.index;
            if one_rank && list.iter().any(known) {
                continue;
            }
            while one_rank && list.len() < device.index as usize && list.len() < 64 {
                list.push(json!({"id": list.len(), "name": "not recorded", "totalGlobalMem": 0}));
            }
            let mut entry = properties(device);
            if !one_rank {
                entry.insert("process rank".to_owned(), json!(process.header.rank));
            }
            list.push(Value::Object(entry));
        }
    }
    Value::Array(list)
}

/// What Kineto says of a device, as far as it is known (DeviceProperties.cpp; it also gives the shared memory that a block
/// may ask for).
fn properties(device: &Device) -> Map<String, Value> {
    let mut entry = Map::new();
    let mut set = |key: &str, value: Value| drop(entry.insert(key.to_owned(), value));
    set("id", json!(device.index));
    set("name", json!(device.name));
    set("totalGlobalMem", json!(device.memory_bytes.unwrap_or(0)));
    if let Some((major, minor)) = device.compute_capability {
        set("computeMajor", json!(major));
        set("computeMinor", json!(minor));
    }
    if let Some(limits) = device.limits {
        let threads = u64::from(limits.warps) * u64::from(limits.warp_threads);
        set("maxThreadsPerBlock", json!(limits.threads_a_block));
        set("maxThreadsPerMultiprocessor", json!(threads));
        set("regsPerBlock", json!(limits.registers_a_block));
        set("warpSize", json!(limits.warp_threads));
        set("sharedMemPerBlock", json!(limits.shared_bytes_a_block));
        set("regsPerMultiprocessor", json!(limits.registers));
        set("sharedMemPerMultiprocessor", json!(limits.shared_bytes));
    }
    if let Some(multiprocessors) = device.multiprocessors {
        set("numSms", json!(multiprocessors));
    }
    if let Some(uuid) = &device.uuid {
        set("uuid", json!(uuid));
    }
    entry
}

/// A rank's place in the job, as Holistic Trace Analysis looks for it. `None` where the rank is not known.
fn distributed_info(recording: &Recording, process: &Process) -> Option<Value> {
    let rank = process.header.rank?;
    let communicators = &process.tables.communicators;
    let (names, members) = (
        CommunicatorNames::new(recording, process),
        Members::of(recording, process),
    );
    let groups: Vec<Value> = (0..communicators.communicator.len())
        .map(|row| {
            let communicator = communicators.communicator[row];
            let mut group = json!({
                "pg_name": names.of(communicator),
                "pg_desc": format!("communicator {communicator:#x}"),
                "backend_config": "cuda:nccl",
                "pg_size": communicators.ranks[row],
            });
            if let Some(ranks) = members.text(communicator, communicators.ranks[row]) {
                group["ranks"] = json!(ranks);
            }
            group
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
