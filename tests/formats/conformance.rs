//! NVIDIA's own libcupti and headers, of several versions, agree with the stand-in's buffers and the collector's structs.

use crate::common;

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{expect_status, fresh_folder, record_workload};
use gputrace_collector::records::{
    ApiCall, Context, Device, EventRecord, ExternalCorrelation, Kernel, Memcpy, Memset, Overhead, PeerCopy,
    Stream, Synchronization, kind,
};

/// conformance.py's status for "something is missing here".
const MISSING: i32 = 77;

/// Runs the script; `None`, loudly, where something that it needs is missing. In CI nothing may be missing.
fn script(arguments: &[&str]) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let wheels = common::consumers::fetched("cupti")?;
    let run = Command::new("python3")
        .arg(folder.join("tests/conformance.py"))
        .args(arguments)
        .env("CONFORMANCE_CACHE", wheels)
        .output();
    let missing = |why: String| {
        assert!(std::env::var_os("CI").is_none(), "needed in CI: {why}");
        eprintln!("SKIPPED: NVIDIA's own CUPTI was not asked: {why}");
    };
    match run {
        Err(error) => missing(format!("python3: {error}")),
        Ok(Output { status, stderr, .. }) if status.code() == Some(MISSING) => {
            missing(String::from_utf8_lossy(&stderr).into_owned());
        }
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            return Some(String::from_utf8_lossy(&output.stdout).into_owned());
        }
    }
    None
}

/// The buffers of a run with the record layouts of a version, as they were delivered.
fn delivered_buffers(folder: &Path, version: &str) -> Vec<PathBuf> {
    let dump = folder.with_file_name("dump");
    std::fs::create_dir(&dump).expect("a folder");
    let truth = folder.with_file_name("truth");
    let mut record = record_workload(folder, &truth, &[("CUPTI", version)], ["ddp", "--steps", "4"]);
    expect_status(record.env("GPUTRACE_DUMP", &dump), 0);
    let mut buffers: Vec<PathBuf> = std::fs::read_dir(&dump)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "dump"))
        .map(|path| {
            // The first line is ours; NVIDIA's library gets what it would have delivered.
            let dumped = std::fs::read(&path).expect("the dump");
            let line = dumped
                .iter()
                .position(|byte| *byte == b'\n')
                .expect("a first line");
            let records = path.with_extension("bin");
            std::fs::write(&records, &dumped[line + 1..]).expect("a file");
            records
        })
        .collect();
    buffers.sort();
    assert!(buffers.len() >= 2, "both ranks delivered buffers");
    buffers
}

/// A record's size in each layout version: CUPTI 12.0, 12.8, 13.0.
fn record_bytes(record_kind: u32, version: &str) -> usize {
    let index = ["12.0", "12.8", "13.0"]
        .iter()
        .position(|known| *known == version)
        .expect("a version");
    match record_kind {
        kind::MEMCPY => [88, 96, 96][index],
        kind::MEMSET => 88,
        kind::CONCURRENT_KERNEL => [208, 208, 216][index],
        kind::DRIVER => 40,
        kind::DEVICE => [176, 184, 184][index],
        kind::CONTEXT => [16, 32, 32][index],
        kind::OVERHEAD | kind::SYNCHRONIZATION => [40, 56, 56][index],
        kind::CUDA_EVENT => [24, 56, 56][index],
        kind::JIT => [64, 72, 72][index],
        kind::STREAM | kind::EXTERNAL_CORRELATION | kind::MODULE => 24,
        other => panic!("a record of kind {other}"),
    }
}

#[test]
fn nvidias_libcupti_walks_the_stand_ins_buffers() {
    for version in ["12.0", "12.8", "13.0"] {
        let (_keep, folder) = fresh_folder("recording");
        let buffers = delivered_buffers(&folder, version);
        let names: Vec<&str> = buffers
            .iter()
            .map(|path| path.to_str().expect("a plain path"))
            .collect();
        let Some(walked) = script(&[&["walk", version], &names[..]].concat()) else {
            return;
        };
        let mut lines = walked.lines();
        let mut kinds = BTreeMap::new();
        for buffer in &buffers {
            // Every record where the sizes by hand put it, and nothing left at the end.
            let bytes = std::fs::read(buffer).expect("the buffer");
            let mut at = 0;
            while at < bytes.len() {
                let word = bytes[at..at + 4].try_into().expect("four bytes");
                let record_kind = u32::from_le_bytes(word);
                assert_eq!(
                    lines.next(),
                    Some(format!("{record_kind} {at}").as_str()),
                    "CUPTI {version}, {}",
                    buffer.display()
                );
                *kinds.entry(record_kind).or_insert(0) += 1;
                at += record_bytes(record_kind, version);
            }
            // CUPTI_ERROR_MAX_LIMIT_REACHED: the end of the buffer.
            assert_eq!(lines.next(), Some("end 12"), "CUPTI {version}");
        }
        let expected = [
            kind::MEMCPY,
            kind::MEMSET,
            kind::DRIVER,
            kind::DEVICE,
            kind::CONTEXT,
            kind::CONCURRENT_KERNEL,
            kind::STREAM,
            kind::SYNCHRONIZATION,
            kind::CUDA_EVENT,
            kind::EXTERNAL_CORRELATION,
        ];
        for record_kind in expected {
            assert!(
                kinds.contains_key(&record_kind),
                "CUPTI {version}: no record of kind {record_kind}"
            );
        }
    }
}

#[test]
fn a_wrong_version_is_caught() {
    let (_keep, folder) = fresh_folder("recording");
    let buffers = delivered_buffers(&folder, "13.4");
    let names: Vec<&str> = buffers
        .iter()
        .map(|path| path.to_str().expect("a plain path"))
        .collect();
    let Some(walked) = script(&[&["walk", "12.0"], &names[..]].concat()) else {
        return;
    };
    let Some(right) = script(&[&["walk", "13.0"], &names[..]].concat()) else {
        return;
    };
    // Neither version's sizes fit 13.4's records: both walks go astray, which is what the test above would see.
    assert!(walked != right);
    assert!(
        walked
            .lines()
            .filter(|line| line.starts_with("end"))
            .any(|line| line != "end 12"),
        "{walked}"
    );
}

#[test]
fn the_headers_of_four_versions_have_our_offsets() {
    macro_rules! offsets {
        ($($label:literal $record:ident { $($theirs:literal $ours:ident)* })*) => {
            vec![$( $( (concat!($label, ".", $theirs), offset_of!($record, $ours)), )* )*]
        };
    }
    let ours = offsets! {
        "kernel" Kernel { "registersPerThread" registers "start" start "end" end "deviceId" device "contextId" context
            "streamId" stream "gridX" grid "blockX" block "dynamicSharedMemory" dynamic_shared "correlationId" correlation
            "gridId" grid_id "name" name "graphNodeId" graph_node "graphId" graph }
        "memcpy" Memcpy { "copyKind" copy_kind "srcKind" source_kind "dstKind" destination_kind "flags" flags "bytes" bytes
            "start" start "end" end "deviceId" device "contextId" context "streamId" stream "correlationId" correlation
            "graphNodeId" graph_node "graphId" graph }
        "peer" PeerCopy { "bytes" bytes "start" start "end" end "deviceId" device "contextId" context "streamId" stream
            "srcDeviceId" source_device "srcContextId" source_context "dstDeviceId" destination_device
            "dstContextId" destination_context "correlationId" correlation }
        "memset" Memset { "value" value "bytes" bytes "start" start "end" end "deviceId" device "contextId" context
            "streamId" stream "correlationId" correlation "flags" flags "memoryKind" memory_kind }
        "api" ApiCall { "cbid" callback "start" start "end" end "processId" process "threadId" thread
            "correlationId" correlation "returnValue" result }
        "external" ExternalCorrelation { "externalKind" external_kind "externalId" id "correlationId" correlation }
        "synchronization" Synchronization { "type" wait "start" start "end" end "correlationId" correlation
            "contextId" context "streamId" stream "cudaEventId" event "cudaEventSyncId" event_synchronization
            "returnValue" result }
        "event" EventRecord { "correlationId" correlation "contextId" context "streamId" stream "eventId" event
            "deviceId" device "deviceTimestamp" device_timestamp "cudaEventSyncId" event_synchronization }
        "device" Device { "globalMemoryBandwidth" memory_bandwidth "globalMemorySize" memory_bytes
            "numMultiprocessors" multiprocessors "computeCapabilityMajor" capability_major
            "computeCapabilityMinor" capability_minor "id" id "uuid" uuid "name" name }
        "context" Context { "contextId" context "deviceId" device "nullStreamId" null_stream }
        "stream" Stream { "contextId" context "streamId" stream "priority" priority "flag" flag }
        "overhead" Overhead { "overheadKind" overhead "objectKind" object_kind "objectId" object "start" start "end" end }
    };
    // What came to the end of a struct after 12.0.
    let later = [
        "synchronization.cudaEventSyncId",
        "synchronization.returnValue",
        "event.deviceId",
        "event.deviceTimestamp",
        "event.cudaEventSyncId",
    ];
    for version in ["12.0", "12.8", "13.0", "13.4"] {
        let Some(text) = script(&["layouts", version]) else {
            return;
        };
        let theirs: BTreeMap<&str, usize> = text
            .lines()
            .map(|line| line.split_once(' ').expect("a name and a number"))
            .map(|(name, number)| (name, number.parse().expect("a number")))
            .collect();
        for (name, offset) in &ours {
            let expected = (version != "12.0" || !later.contains(name)).then_some(offset);
            assert_eq!(theirs.get(name), expected, "CUPTI {version}: {name}");
        }
        if version != "13.4" {
            let sizes = [
                ("kernel", kind::CONCURRENT_KERNEL),
                ("memcpy", kind::MEMCPY),
                ("memset", kind::MEMSET),
                ("api", kind::DRIVER),
                ("device", kind::DEVICE),
                ("context", kind::CONTEXT),
                ("stream", kind::STREAM),
                ("overhead", kind::OVERHEAD),
                ("synchronization", kind::SYNCHRONIZATION),
                ("event", kind::CUDA_EVENT),
                ("external", kind::EXTERNAL_CORRELATION),
            ];
            for (name, record_kind) in sizes {
                assert_eq!(
                    theirs[name],
                    record_bytes(record_kind, version),
                    "CUPTI {version}: size of {name}"
                );
            }
        }
    }
}

#[test]
fn the_headers_have_our_subscriber_s_structs_and_fields() {
    use gputrace_collector::user_defined::abi::{
        ActivityConfig, CompleteInfo, FieldSelection, LayoutEntry, RecordLayout, SubscriberParams,
    };
    use gputrace_collector::user_defined::layout::fields_of;

    macro_rules! structs {
        ($($theirs:literal $ours:ident { $($member:literal $place:ident)* })*) => {
            vec![$( ($theirs, size_of::<$ours>()),
                $( (concat!($theirs, ".", $member), offset_of!($ours, $place)), )* )*]
        };
    }
    let ours = structs! {
        "CUpti_SubscriberParams" SubscriberParams { "structSize" struct_bytes "subscriberName" name
            "oldSubscriberName" old_name "oldSubscriberSize" old_name_bytes "allowMultipleSubscribers" allow_several }
        "CUpti_ActivityFieldSelection" FieldSelection { "structSize" struct_bytes "numFields" count "pFieldIds" ids }
        "CUpti_ActivityConfig" ActivityConfig { "structSize" struct_bytes "fieldSelection" fields "pKindOptions" options }
        "CUpti_ActivityFieldLayoutEntry" LayoutEntry { "structSize" struct_bytes "fieldId" id "offset" offset
            "size" bytes "alignment" alignment }
        "CUpti_ActivityRecordLayout" RecordLayout { "structSize" struct_bytes "pEntries" entries "numFields" count
            "recordSize" record_bytes }
        "CUpti_BufferCallbackCompleteInfo" CompleteInfo { "structSize" struct_bytes "threadId" thread
            "ppRecordLayouts" layouts "numRecordLayouts" layout_count }
    };
    // Each kind's fields in the order of our list.
    let fields: [(u32, &str, &str); 16] = [
        (
            kind::CONCURRENT_KERNEL,
            "KERNEL",
            "REGISTERS_PER_THREAD START END DEVICE_ID CONTEXT_ID STREAM_ID GRID_X GRID_Y GRID_Z BLOCK_X BLOCK_Y BLOCK_Z \
             STATIC_SHARED_MEMORY DYNAMIC_SHARED_MEMORY LOCAL_MEMORY_PER_THREAD CORRELATION_ID NAME LAUNCH_TYPE \
             SHARED_MEMORY_EXECUTED GRAPH_NODE_ID GRAPH_ID CLUSTER_X CLUSTER_Y CLUSTER_Z",
        ),
        (
            kind::MEMCPY,
            "MEMCPY",
            "COPY_KIND SRC_KIND DST_KIND FLAGS BYTES START END DEVICE_ID CONTEXT_ID STREAM_ID CORRELATION_ID \
             GRAPH_NODE_ID GRAPH_ID",
        ),
        (
            kind::MEMCPY2,
            "MEMCPY2",
            "COPY_KIND SRC_KIND DST_KIND FLAGS BYTES START END DEVICE_ID CONTEXT_ID STREAM_ID SRC_DEVICE_ID \
             DST_DEVICE_ID CORRELATION_ID GRAPH_NODE_ID GRAPH_ID",
        ),
        (
            kind::MEMSET,
            "MEMSET",
            "VALUE BYTES START END DEVICE_ID CONTEXT_ID STREAM_ID CORRELATION_ID FLAGS MEMORY_KIND GRAPH_NODE_ID GRAPH_ID",
        ),
        (
            kind::DRIVER,
            "API",
            "CBID START END THREAD_ID CORRELATION_ID RETURN_VALUE",
        ),
        (
            kind::SYNCHRONIZATION,
            "SYNCHRONIZATION",
            "TYPE START END CORRELATION_ID CONTEXT_ID STREAM_ID CUDA_EVENT_ID CUDA_EVENT_SYNC_ID RETURN_VALUE",
        ),
        (
            kind::CUDA_EVENT,
            "CUDA_EVENT",
            "CORRELATION_ID CONTEXT_ID STREAM_ID EVENT_ID DEVICE_ID CUDA_EVENT_SYNC_ID",
        ),
        (
            kind::OVERHEAD,
            "OVERHEAD",
            "OVERHEAD_KIND THREAD_ID START END CORRELATION_ID",
        ),
        (
            kind::EXTERNAL_CORRELATION,
            "EXTERNAL_CORRELATION",
            "EXTERNAL_KIND EXTERNAL_ID CORRELATION_ID",
        ),
        (kind::CONTEXT, "CONTEXT", "CONTEXT_ID DEVICE_ID NULL_STREAM_ID"),
        (kind::STREAM, "STREAM", "CONTEXT_ID STREAM_ID PRIORITY FLAG"),
        (
            kind::DEVICE,
            "DEVICE",
            "GLOBAL_MEMORY_BANDWIDTH GLOBAL_MEMORY_SIZE NUM_THREADS_PER_WARP NUM_MULTIPROCESSORS \
             MAX_WARPS_PER_MULTIPROCESSOR MAX_BLOCKS_PER_MULTIPROCESSOR MAX_SHARED_MEMORY_PER_MULTIPROCESSOR \
             MAX_REGISTERS_PER_MULTIPROCESSOR MAX_REGISTERS_PER_BLOCK MAX_SHARED_MEMORY_PER_BLOCK MAX_THREADS_PER_BLOCK \
             COMPUTE_CAPABILITY_MAJOR COMPUTE_CAPABILITY_MINOR ID UUID NAME",
        ),
        (
            kind::GRAPH_TRACE,
            "GRAPH_TRACE",
            "CORRELATION_ID START END DEVICE_ID GRAPH_ID CONTEXT_ID STREAM_ID END_DEVICE_ID END_CONTEXT_ID",
        ),
        (
            kind::JIT,
            "JIT",
            "ENTRY_TYPE OPERATION_TYPE DEVICE_ID START END CORRELATION_ID OPERATION_CORRELATION_ID CACHE_SIZE CACHE_PATH \
             THREAD_ID",
        ),
        (
            kind::MEMORY2,
            "MEMORY",
            "OPERATION_TYPE MEMORY_KIND CORRELATION_ID ADDRESS BYTES TIMESTAMP DEVICE_ID CONTEXT_ID STREAM_ID IS_ASYNC \
             POOL_TYPE POOL_ADDRESS POOL_SIZE POOL_UTILIZED_SIZE SOURCE",
        ),
        (
            kind::MEMORY_POOL,
            "MEMORY_POOL",
            "OPERATION_TYPE POOL_TYPE CORRELATION_ID DEVICE_ID MIN_BYTES_TO_KEEP ADDRESS SIZE RELEASE_THRESHOLD TIMESTAMP \
             UTILIZED_SIZE IS_MANAGED_POOL",
        ),
    ];
    let mut numbers: Vec<(String, usize)> = vec![
        ("CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER".to_owned(), 5),
        ("CUPTI_ACTIVITY_ATTR_USER_DEFINED_RECORDS".to_owned(), 11),
        ("CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE".to_owned(), 21),
    ];
    for (record_kind, prefix, names) in fields {
        let ids = fields_of(record_kind).expect("a kind").fields;
        assert_eq!(ids.len(), names.split_whitespace().count(), "{prefix}");
        for (field, name) in ids.iter().zip(names.split_whitespace()) {
            numbers.push((format!("{prefix}_FIELD_{name}"), field.id as usize));
        }
    }
    for version in ["13.3", "13.4", "13.5"] {
        let names: Vec<&str> = numbers.iter().map(|(name, _)| name.as_str()).collect();
        let Some(text) = script(&[&["subscribers", version], &names[..]].concat()) else {
            return;
        };
        let theirs: BTreeMap<&str, usize> = text
            .lines()
            .map(|line| line.split_once(' ').expect("a name and a number"))
            .map(|(name, number)| (name, number.parse().expect("a number")))
            .collect();
        for (name, number) in &numbers {
            assert_eq!(theirs.get(name.as_str()), Some(number), "CUPTI {version}: {name}");
        }
        for (name, place) in &ours {
            // The options of a kind's calls came with 13.4, at the end of the struct.
            let expected = match (version, *name) {
                ("13.3", "CUpti_ActivityConfig") => Some(size_of::<ActivityConfig>() - 8),
                ("13.3", "CUpti_ActivityConfig.pKindOptions") => None,
                _ => Some(*place),
            };
            assert_eq!(theirs.get(name).copied(), expected, "CUPTI {version}: {name}");
        }
    }
}
