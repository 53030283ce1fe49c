//! The Chrome export read back: nothing missing, nothing moved, every arrow where it belongs.

use crate::support;

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use gputrace_interchange::export::ExportSummary;
use gputrace_interchange::export::chrome::export_chrome;
use gputrace_interchange::export::files::write_file;
use gputrace_trace::tables::{Kernel, Marker};
use gputrace_trace::{Derived, DurationNs, Process, Recording, Table, TimeNs};
use serde_json::Value;
use support::{EPOCH_NS, EVENTS_A_RANK, rank_alone, two_ranks};

fn export_chrome_file(recording: &Recording, path: &Path) -> std::io::Result<ExportSummary> {
    write_file(path, |out| export_chrome(recording, &Derived::default(), out))
}

fn export(recording: &Recording) -> (Value, ExportSummary, String) {
    let mut out = Vec::new();
    let summary = export_chrome(recording, &Derived::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    (serde_json::from_str(&text).unwrap(), summary, text)
}

fn events<'a>(file: &'a Value, phase: &str) -> Vec<&'a Value> {
    let all = file["traceEvents"].as_array().unwrap();
    all.iter().filter(|event| event["ph"] == phase).collect()
}

/// Nanoseconds of a number that was written as microseconds with three decimals.
fn ns(value: &Value) -> i64 {
    (value.as_f64().unwrap() * 1000.0).round() as i64
}

fn track(event: &Value) -> (u64, u64) {
    (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())
}

#[test]
fn every_event_is_there_once_with_its_nanoseconds() {
    let recording = two_ranks();
    let (file, summary, _) = export(&recording);
    let written: usize = ["X", "i", "C"]
        .iter()
        .map(|phase| events(&file, phase).len())
        .sum();
    assert_eq!(summary.events_in, 2 * EVENTS_A_RANK);
    assert_eq!(summary.events_out, summary.events_in);
    assert_eq!(written as u64, summary.events_out);
    assert_eq!(summary.durations_clamped, 2);

    let base = file["baseTimeNanoseconds"].as_i64().unwrap();
    assert_eq!(base, EPOCH_NS - 123, "the second in which the recording begins");
    let mut kernels: Vec<_> = events(&file, "X")
        .into_iter()
        .filter(|event| event["cat"] == "kernel")
        .map(|event| {
            (
                event["name"].as_str().unwrap(),
                ns(&event["ts"]),
                ns(&event["dur"]),
            )
        })
        .collect();
    kernels.sort_unstable();
    let nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)";
    let add = "add(float*, int)";
    assert_eq!(
        kernels,
        [
            (add, 100_123, 100_000),
            (add, 100_123, 100_000),
            (add, 200_123, 100_000),
            (add, 200_123, 100_000),
            (add, 250_123, 70_000),
            (add, 250_123, 70_000),
            (nccl, 280_123, 120_000),
            (nccl, 280_123, 140_000),
        ]
    );
    let memset = events(&file, "X")
        .into_iter()
        .find(|event| event["cat"] == "gpu_memset")
        .unwrap();
    assert_eq!((ns(&memset["ts"]), ns(&memset["dur"])), (90_124, 4999));
    assert_eq!(memset["name"], "Memset (Device)");
}

#[test]
fn times_are_printed_exactly() {
    let (_, _, text) = export(&two_ranks());
    assert!(
        text.contains("\"ts\":90.124,\"dur\":4.999"),
        "no rounding through a double"
    );
}

#[test]
fn no_two_slices_of_a_row_overlap() {
    let (file, summary, _) = export(&two_ranks());
    // By process and thread: start, end and category.
    type Slice<'a> = (i64, i64, &'a str);
    let mut rows: HashMap<(u64, u64), Vec<Slice<'_>>> = HashMap::new();
    for event in events(&file, "X") {
        let start = ns(&event["ts"]);
        let slice = (start, start + ns(&event["dur"]), event["cat"].as_str().unwrap());
        rows.entry(track(event)).or_default().push(slice);
    }
    for (row, slices) in &mut rows {
        slices.sort_by_key(|&(start, end, _)| (start, -end));
        let mut open: Vec<i64> = Vec::new();
        for &(start, end, category) in &*slices {
            while open.last().is_some_and(|&outer| outer <= start) {
                open.pop();
            }
            let on_gpu = matches!(category, "kernel" | "gpu_memcpy" | "gpu_memset");
            assert!(
                open.last().is_none_or(|&outer| end <= outer && !on_gpu),
                "{row:?}: {slices:?}"
            );
            open.push(end);
        }
    }
    // On each rank: the third kernel overlaps the second on stream 7.
    assert_eq!(summary.lanes_added, 2);
    let lanes: Vec<_> = events(&file, "M")
        .into_iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        lanes.iter().filter(|name| **name == "stream 7 (lane 2)").count(),
        2
    );
    let moved = events(&file, "X")
        .into_iter()
        .find(|event| ns(&event["ts"]) == 250_123)
        .unwrap();
    assert_eq!(
        moved["args"]["stream"], 7,
        "the lane changes the row, not the stream"
    );
    // No row has a number that consumers take for something else.
    for event in events(&file, "X") {
        let (pid, tid) = track(event);
        assert!(pid > 0 && tid > 0 && pid < 1 << 32 && tid < 1 << 32);
    }
}

#[test]
fn arrows_lead_from_each_launch_to_its_operation() {
    let (file, summary, _) = export(&two_ranks());
    // Copy, memset, 11 and 12 have one; 13 has no call; 14 begins before its call.
    assert_eq!(
        (summary.flows, summary.launches_unknown, summary.launches_later),
        (8, 2, 2)
    );
    let slices = events(&file, "X");
    let slice_at = |event: &Value| {
        let mut found = slices
            .iter()
            .filter(|slice| track(slice) == track(event) && slice["ts"] == event["ts"]);
        let slice = found.next().unwrap_or_else(|| panic!("no slice for {event}"));
        assert!(found.next().is_none());
        *slice
    };
    let ends: HashMap<u64, &Value> = events(&file, "f")
        .into_iter()
        .map(|event| (event["id"].as_u64().unwrap(), event))
        .collect();
    let mut joined = Vec::new();
    let mut ids = HashSet::new();
    for start in events(&file, "s") {
        let id = start["id"].as_u64().unwrap();
        assert!(ids.insert(id) && id < 1 << 53, "{id}");
        let end = ends[&id];
        assert_eq!(end["bp"], "e");
        let (from, to) = (slice_at(start), slice_at(end));
        assert_eq!(from["args"]["correlation"], to["args"]["correlation"]);
        // Of the same rank: the host's row comes right before the GPU's in the order of ranks.
        joined.push((
            to["args"]["correlation"].as_u64().unwrap(),
            from["name"].as_str().unwrap().to_owned(),
            from["pid"].as_u64().unwrap(),
            to["pid"].as_u64().unwrap(),
        ));
    }
    assert_eq!(ids.len(), ends.len());
    joined.sort();
    let calls: Vec<_> = joined
        .iter()
        .map(|(correlation, name, ..)| (*correlation, name.as_str()))
        .collect();
    assert_eq!(
        calls,
        [
            (9, "cudaMemcpyAsync"),
            (9, "cudaMemcpyAsync"),
            (10, "cuMemsetD32Async"),
            (10, "cuMemsetD32Async"),
            (11, "cuLaunchKernel"),
            (11, "cuLaunchKernel"),
            (12, "cudaLaunchKernel"),
            (12, "cudaLaunchKernel"),
        ]
    );
    let pairs: HashSet<_> = joined.iter().map(|&(_, _, from, to)| (from, to)).collect();
    assert_eq!(pairs.len(), 2, "each rank's host with its own GPU: {pairs:?}");
}

#[test]
fn kernels_carry_their_launch_and_their_collective() {
    let (file, ..) = export(&two_ranks());
    let kernels: Vec<_> = events(&file, "X")
        .into_iter()
        .filter(|event| event["cat"] == "kernel")
        .collect();
    let add = &kernels
        .iter()
        .find(|kernel| kernel["args"]["correlation"] == 11)
        .unwrap()["args"];
    assert_eq!(add["grid"], serde_json::json!([264, 1, 1]));
    assert_eq!(add["block"], serde_json::json!([256, 1, 1]));
    assert_eq!(add["shared memory"], 1040);
    assert_eq!(add["registers per thread"], 32);
    // 264 blocks on 132 multiprocessors, 256 threads of 32 to a warp.
    assert_eq!(add["blocks per SM"], 2);
    assert_eq!(add["warps per SM"], 16);
    // Of 64 warps 8 blocks of 8 fit, and so do 8 of 32 registers a thread; but there are only 2 for each multiprocessor.
    assert_eq!(add["est. achieved occupancy %"], 25);
    assert_eq!(
        add["occupancy"],
        serde_json::json!({
            "activeBlocksPerMultiprocessor": 8, "limitingFactors": "WARPS|REGS", "blockLimitRegs": 8,
            // 1040 bytes and the system's 1024 are 2176 in units of 128: 228 KiB hold 107.
            "blockLimitSharedMem": 107, "blockLimitWarps": 8, "blockLimitBlocks": 32,
            "allocatedRegistersPerBlock": 8192, "allocatedSharedMemPerBlock": 2176,
        })
    );
    assert!(add.get("External id").is_none() && add.get("Collective name").is_none());
    let reduce = &kernels
        .iter()
        .find(|kernel| kernel["args"]["correlation"] == 14)
        .unwrap()["args"];
    for (key, value) in [
        ("Collective name", "allreduce".into()),
        ("Process Group Ranks", "[0, 1]".into()),
        ("In msg nelems", 1000.into()),
        ("Out msg nelems", 1000.into()),
        ("Group size", 2.into()),
        ("dtype", "Float".into()),
        ("Process Group Name", Value::from("0xabc")),
        ("Seq", 5.into()),
        ("bytes", 4000.into()),
    ] {
        assert_eq!(reduce[key], value, "{key}");
    }
    let annotation = events(&file, "X")
        .into_iter()
        .find(|event| event["name"] == "nccl:all_reduce")
        .unwrap();
    assert_eq!(annotation["args"]["External id"], reduce["External id"]);
    let copy = events(&file, "X")
        .into_iter()
        .find(|event| event["cat"] == "gpu_memcpy")
        .unwrap();
    assert_eq!(copy["name"], "Memcpy HtoD (Pinned -> Device)");
    // A megabyte in 40 microseconds.
    assert_eq!(copy["args"]["memory bandwidth (GB/s)"], 25);
}

#[test]
fn processes_are_apart_and_say_that_they_are_simulated() {
    let (file, ..) = export(&two_ranks());
    let names: HashMap<u64, &str> = events(&file, "M")
        .into_iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| {
            (
                event["pid"].as_u64().unwrap(),
                event["args"]["name"].as_str().unwrap(),
            )
        })
        .collect();
    // Host, GPU and overhead of two ranks with the same process id.
    assert_eq!(names.len(), 6);
    assert!(
        names.values().all(|name| name.ends_with("(simulated)")),
        "{names:?}"
    );
    assert!(
        names
            .values()
            .any(|name| name.starts_with("rank 1: GPU 0 Simulated H200")),
        "{names:?}"
    );
    assert_eq!(file["gputrace"]["simulated"], true);
    assert_eq!(file["gputrace"]["losses"][0]["count"], 3);
    // Two ranks: none is the file's own. One rank: it is.
    assert!(file.get("distributedInfo").is_none());
    let (alone, ..) = export(&rank_alone(&two_ranks(), 1));
    assert_eq!(alone["distributedInfo"]["rank"], 1);
    assert_eq!(alone["distributedInfo"]["world_size"], 2);
    assert_eq!(alone["deviceProperties"][0]["numSms"], 132);
    let group = &alone["distributedInfo"]["pg_config"][0];
    assert_eq!(
        (&group["pg_name"], &group["pg_size"]),
        (&"0xabc".into(), &2.into())
    );
}

#[test]
fn names_survive_and_control_characters_do_not() {
    let (file, _, text) = export(&two_ranks());
    assert!(
        events(&file, "X")
            .iter()
            .any(|event| event["name"] == "a \"start/end\" range  😀")
    );
    assert!(!text.contains("\\u"), "escapes that some consumers refuse");
    // The last bracket of the file closes the events.
    assert!(text.ends_with("\n]}\n"));
}

#[test]
fn a_recording_without_events_is_valid_json() {
    let (file, summary, _) = export(&Recording::default());
    assert_eq!(
        (summary.events_in, file["traceEvents"].as_array().unwrap().len()),
        (0, 0)
    );
}

#[test]
fn random_streams_lose_nothing() {
    let mut state = 9u64;
    let mut below = |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut process = Process::default();
    for _ in 0..3000 {
        process.tables.kernels.push(Kernel {
            start_ns: TimeNs(EPOCH_NS + below(100_000) as i64),
            duration_ns: DurationNs(below(300) as i64),
            stream: below(3) as u32,
            context: below(2) as u32,
            ..Kernel::default()
        });
        process.tables.markers.push(Marker {
            start_ns: TimeNs(EPOCH_NS + below(100_000) as i64),
            duration_ns: Some(DurationNs(below(300) as i64)),
            thread: below(2) as u32,
            ..Marker::default()
        });
    }
    let recording = Recording {
        processes: vec![process],
        ..Recording::default()
    };
    let (file, summary, _) = export(&recording);
    assert_eq!((summary.events_in, summary.events_out), (6000, 6000));
    let mut rows: HashMap<(u64, u64), Vec<(i64, i64)>> = HashMap::new();
    for event in events(&file, "X").iter().filter(|event| event["cat"] == "kernel") {
        let start = ns(&event["ts"]);
        rows.entry(track(event))
            .or_default()
            .push((start, start + ns(&event["dur"])));
    }
    assert_eq!(rows.values().map(Vec::len).sum::<usize>(), 3000);
    for slices in rows.values_mut() {
        slices.sort_unstable();
        assert!(slices.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
}

#[test]
fn files_are_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let recording = two_ranks();
    let (_, expected, text) = export(&recording);
    let plain = folder.path().join("trace.json");
    assert_eq!(export_chrome_file(&recording, &plain).unwrap(), expected);
    assert_eq!(std::fs::read_to_string(&plain).unwrap(), text);
    let packed = folder.path().join("trace.json.gz");
    export_chrome_file(&recording, &packed).unwrap();
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(&packed).unwrap())
        .read_to_string(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, text);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        2,
        "nothing is left aside"
    );
    export_chrome_file(&recording, &folder.path().join("nowhere/trace.json")).unwrap_err();
    // Where a folder has the name, the export is refused and leaves nothing.
    std::fs::create_dir(folder.path().join("taken.json")).unwrap();
    export_chrome_file(&recording, &folder.path().join("taken.json")).unwrap_err();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}
