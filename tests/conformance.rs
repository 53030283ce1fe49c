//! NVIDIA's own libcupti and headers, of several versions, agree with the stand-in's buffers and the collector's structs.

mod common;

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{expect_status, fresh_folder, record_workload};
use gputrace_collector::records::{
    ApiCall, Context, Device, ExternalCorrelation, Kernel, Memcpy, Memset, Overhead, PeerCopy, Stream,
    Synchronization, kind,
};

/// conformance.py's status for "something is missing here".
const MISSING: i32 = 77;

/// Runs the script; `None`, loudly, where something that it needs is missing. In CI nothing may be missing.
fn script(arguments: &[&str]) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let run = Command::new("python3")
        .arg(folder.join("tests/conformance.py"))
        .args(arguments)
        .env("CONFORMANCE_CACHE", folder.join("target/conformance"))
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
        kind::STREAM | kind::EXTERNAL_CORRELATION => 24,
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
            "contextId" context "streamId" stream "cudaEventId" event }
        "device" Device { "globalMemoryBandwidth" memory_bandwidth "globalMemorySize" memory_bytes
            "numMultiprocessors" multiprocessors "computeCapabilityMajor" capability_major
            "computeCapabilityMinor" capability_minor "id" id "uuid" uuid "name" name }
        "context" Context { "contextId" context "deviceId" device "nullStreamId" null_stream }
        "stream" Stream { "contextId" context "streamId" stream "priority" priority "flag" flag }
        "overhead" Overhead { "overheadKind" overhead "objectKind" object_kind "objectId" object "start" start "end" end }
    };
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
            assert_eq!(theirs.get(name), Some(offset), "CUPTI {version}: {name}");
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
