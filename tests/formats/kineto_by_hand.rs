//! Traces of a few events whose measures are computed by hand, first of all those that Holistic Trace Analysis 0.6.1 gets
//! wrong: `docs/measures.md` says how.

use crate::common;

use common::kineto_events::{analyze, analyze_ranks, call, host, kernel, launch, operation};
use common::{expect_status, gputrace, stdout};
use serde_json::{Value, json};

/// Checks that kernels with these names, of five microseconds each, are all of a kind.
#[track_caller]
fn assert_all_are(names: &[&str], kind: &str) {
    let events: Vec<Value> = (1i64..)
        .zip(names)
        .map(|(id, name)| kernel(name, 7, id, id as f64 * 10.0, 5.0))
        .collect();
    let rank = &analyze(&events)["ranks"][0];
    let kernels = rank["kernels"].as_array().expect("kernels");
    for name in names {
        let kernel = kernels.iter().find(|kernel| kernel["name"] == *name);
        let kernel = kernel.unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(kernel["kind"], kind, "{name}");
    }
    assert_eq!(rank[format!("{kind}_ns")], 5000 * names.len());
}

#[test]
fn names_that_hold_sync_dma_or_memcpy_are_compute_all_the_same() {
    let names = &[
        "void at::native::batch_norm_SyncBatchNorm_kernel<float>(float*)",
        "void dma_like_transform<int>(int*)",
        "void my_Memcpy_fused<float>(float*)",
        "hipLaunched_user_kernel",
    ];
    assert_all_are(names, "compute");
}

#[test]
fn communication_is_known_in_every_generation_and_family() {
    let names = &[
        "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
    ];
    assert_all_are(names, "communication");
}

#[test]
fn synchronisations_on_a_stream_are_no_gpu_work() {
    let mut sync = operation("cuda_sync", "Stream Wait Event", 7, 9, 10.0, 80.0);
    sync["args"]["cuda_sync_kind"] = json!("Stream Wait Event");
    let analysis = analyze(&[kernel("a", 7, 1, 0.0, 10.0), sync, kernel("b", 7, 2, 90.0, 10.0)]);
    let rank = &analysis["ranks"][0];
    assert_eq!(
        (&rank["busy_ns"], &rank["idle_ns"]),
        (&json!(20_000), &json!(80_000))
    );
}

#[test]
fn the_span_ends_with_the_last_end_not_with_the_last_start() {
    // The long kernel outlasts the one that starts after it.
    let analysis = analyze(&[
        kernel("long", 7, 1, 0.0, 100.0),
        kernel("short", 8, 2, 50.0, 10.0),
    ]);
    let rank = &analysis["ranks"][0];
    assert_eq!(
        (&rank["span_ns"], &rank["busy_ns"], &rank["idle_ns"]),
        (&json!(100_000), &json!(100_000), &json!(0))
    );
}

#[test]
fn a_gap_is_split_where_the_launch_was_called() {
    // Gap 10 to 110: the launch is called at 20, one microsecond long, and the kernel starts 90 us later.
    let analysis = analyze(&[
        launch(1, 0.0),
        kernel("a", 7, 1, 2.0, 8.0),
        launch(2, 20.0),
        kernel("b", 7, 2, 110.0, 5.0),
    ]);
    let rank = &analysis["ranks"][0];
    assert_eq!(
        rank["idle_causes"],
        json!({"host_late": 10_000, "launch_latency": 90_000})
    );
    // HTA's class for the stream takes the whole gap.
    let stream = &rank["streams"][0];
    assert_eq!(stream["idle_host_wait_ns"], 100_000);
}

#[test]
fn what_the_host_did_in_a_gap_is_named() {
    // The GPU is idle from 10 to 200 for the launch at 200: the host synchronises, loads data, runs an operator.
    let analysis = analyze(&[
        launch(1, 0.0),
        kernel("a", 7, 1, 2.0, 8.0),
        call("cudaStreamSynchronize", 5, 3.0, 27.0),
        host(
            "cpu_op",
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            40.0,
            60.0,
        ),
        host("user_annotation", "forward", 110.0, 100.0),
        host("cpu_op", "aten::linear", 120.0, 85.0),
        launch(2, 200.0),
        kernel("b", 7, 2, 205.0, 5.0),
    ]);
    let rank = &analysis["ranks"][0];
    assert_eq!(
        rank["idle_causes"],
        json!({"host_late": 190_000, "launch_latency": 5_000})
    );
    assert_eq!(
        rank["host_late_by"],
        json!({
            "synchronization: cudaStreamSynchronize": 20_000,
            "data loading: enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 60_000,
            "range: forward": 10_000,
            "operator: aten::linear": 80_000,
            "nothing recorded": 20_000,
        })
    );
}

#[test]
fn long_silence_of_all_threads_is_nothing_submitted() {
    let analysis = analyze(&[
        launch(1, 0.0),
        kernel("a", 7, 1, 2.0, 8.0),
        host("cpu_op", "aten::add", 10.0, 40.0),
        launch(2, 5_050.0),
        kernel("b", 7, 2, 5_060.0, 5.0),
    ]);
    assert_eq!(
        analysis["ranks"][0]["idle_causes"],
        json!({"host_late": 40_000, "launch_latency": 10_000, "nothing_submitted": 5_000_000})
    );
}

#[test]
fn host_collectives_wait_for_peers() {
    let analysis = analyze(&[
        launch(1, 0.0),
        kernel("a", 7, 1, 2.0, 8.0),
        host("user_annotation", "gloo:barrier", 10.0, 300.0),
        launch(2, 310.0),
        kernel("b", 7, 2, 315.0, 5.0),
    ]);
    assert_eq!(
        analysis["ranks"][0]["idle_causes"],
        json!({"launch_latency": 5_000, "peer_wait": 300_000})
    );
}

#[test]
fn a_stream_that_was_told_to_wait_waits_for_an_event() {
    // The second kernel was launched at 5 behind an event; it starts at 100, and nothing runs from 10 on.
    let analysis = analyze(&[
        launch(1, 0.0),
        kernel("a", 7, 1, 2.0, 8.0),
        call("cudaStreamWaitEvent", 3, 3.0, 1.0),
        launch(2, 5.0),
        kernel("b", 8, 2, 100.0, 5.0),
    ]);
    assert_eq!(analysis["ranks"][0]["idle_causes"], json!({"event_wait": 90_000}));
}

#[test]
fn a_full_queue_holds_the_host_up() {
    // 1,100 kernels on stream 7 are launched at once and run one a microsecond from 5000 on, in a gap of the device from 10:
    // the launch on stream 7 that finds the queue full blocks until 900, so the one on stream 8 comes late.
    let mut events = vec![launch(1, 0.0), kernel("a", 8, 1, 2.0, 8.0)];
    for index in 0..1_100 {
        events.push(call(
            "cudaLaunchKernel",
            10 + index,
            1.0 + index as f64 * 0.001,
            0.0005,
        ));
        events.push(kernel("b", 7, 10 + index, 5_000.0 + index as f64, 1.0));
    }
    events.push(call("cudaLaunchKernel", 5_000, 3.0, 897.0));
    events.push(kernel("b", 7, 5_000, 6_200.0, 1.0));
    events.push(launch(5_001, 900.0));
    events.push(kernel("c", 8, 5_001, 905.0, 5.0));
    let rank = &analyze(&events)["ranks"][0];
    assert_eq!(
        rank["idle_causes"]["queue_full"], 890_000,
        "{}",
        rank["idle_causes"]
    );
    let queue = &rank["queues"][0];
    assert_eq!(
        (&queue["stream"], &queue["max_depth"]),
        (&json!(7), &json!(1_101))
    );
    // Each stream has its own time with a full queue: HTA keeps that of the last stream only.
    assert!(queue["full_ns"].as_i64() > Some(4_900_000), "{queue}");
    assert_eq!(rank["queues"][1]["full_ns"], 0);
}

#[test]
fn launches_outside_the_trace_are_no_launches_of_row_0() {
    let analysis = analyze(&[
        launch(7, 0.0),
        kernel("a", 7, 1, 10.0, 10.0),
        kernel("b", 7, 2, 25.0, 5.0),
    ]);
    let rank = &analysis["ranks"][0];
    assert_eq!(rank["idle_causes"], json!({"unknown": 5_000}));
    assert_eq!(rank["streams"][0]["idle_kernel_wait_ns"], 5_000);
    assert_eq!(analysis["losses"][0]["count"], 2);
}

#[test]
fn two_devices_of_one_process_are_two_rows() {
    let mut other = kernel("a", 7, 2, 5.0, 10.0);
    other["args"]["device"] = json!(1);
    other["pid"] = json!(1);
    let analysis = analyze(&[kernel("a", 7, 1, 0.0, 10.0), other]);
    let ranks = analysis["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 2);
    assert!(ranks.iter().all(|rank| rank["busy_ns"] == 10_000));
    assert_eq!(
        (&ranks[0]["idle_after_ns"], &ranks[1]["idle_before_ns"]),
        (&json!(5_000), &json!(5_000))
    );
}

#[test]
fn stream_0_is_a_stream_and_rocm_calls_launch() {
    let copy = operation("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 0, 2, 30.0, 10.0);
    let analysis = analyze(&[
        call("hipLaunchKernel", 1, 0.0, 2.0),
        kernel("Cijk_Ailk_Bljk_SB_MT64x64x8", 0, 1, 10.0, 10.0),
        call("hipMemcpyAsync", 2, 22.0, 2.0),
        copy,
    ]);
    let rank = &analysis["ranks"][0];
    assert_eq!(
        (&rank["compute_ns"], &rank["copy_ns"]),
        (&json!(10_000), &json!(10_000))
    );
    assert_eq!(rank["streams"][0]["stream"], 0);
    assert_eq!(
        rank["idle_causes"],
        json!({"host_late": 2_000, "launch_latency": 8_000})
    );
    let calls: Vec<&str> = rank["launches"]
        .as_array()
        .expect("launches")
        .iter()
        .map(|row| row["call"].as_str().expect("a call"))
        .collect();
    assert_eq!(calls, ["hipLaunchKernel", "hipMemcpyAsync"]);
    assert_eq!(rank["launches"][0]["latency"]["p50_ns"], 10_000);
}

#[test]
fn graph_and_cooperative_launches_count() {
    let analysis = analyze(&[
        call("cudaGraphLaunch", 1, 0.0, 5.0),
        kernel("a", 7, 1, 10.0, 1.0),
        kernel("b", 7, 1, 12.0, 1.0),
        call("cudaLaunchCooperativeKernel", 2, 20.0, 3.0),
        kernel("c", 7, 2, 25.0, 1.0),
    ]);
    let launches = analysis["ranks"][0]["launches"]
        .as_array()
        .expect("launches")
        .clone();
    assert_eq!(
        (
            &launches[0]["call"],
            &launches[0]["calls"],
            &launches[0]["operations"]
        ),
        (&json!("cudaGraphLaunch"), &json!(1), &json!(2))
    );
    assert_eq!(
        (&launches[1]["call"], &launches[1]["latency"]["max_ns"]),
        (&json!("cudaLaunchCooperativeKernel"), &json!(5_000))
    );
}

#[test]
fn statistics_of_a_name_are_of_its_kernels() {
    // HTA shows the sum as mean, minimum and maximum, and no deviation.
    let analysis = analyze(&[
        kernel("a", 7, 1, 0.0, 10.0),
        kernel("a", 7, 2, 20.0, 30.0),
        kernel("b", 7, 3, 60.0, 20.0),
    ]);
    let row = &analysis["ranks"][0]["kernels"][0];
    assert_eq!(
        (&row["name"], &row["count"], &row["total_ns"]),
        (&json!("a"), &json!(2), &json!(40_000))
    );
    assert_eq!(
        (&row["mean_ns"], &row["min_ns"], &row["max_ns"]),
        (&json!(20_000), &json!(10_000), &json!(30_000))
    );
    assert!((row["share"].as_f64().expect("a share") - 2.0 / 3.0).abs() < 1e-12);
}

#[test]
fn nanoseconds_are_kept() {
    // HTA rounds starts up and ends down: this kernel would have no length.
    let analysis = analyze(&[kernel("a", 7, 1, 10.25, 0.6), kernel("b", 7, 2, 11.0, 0.001)]);
    let rank = &analysis["ranks"][0];
    assert_eq!(
        (&rank["busy_ns"], &rank["idle_ns"], &rank["span_ns"]),
        (&json!(601), &json!(150), &json!(751))
    );
}

/// A collective's kernel as Kineto describes it.
fn collective(sequence: i64, correlation: i64, ts: f64, dur: f64) -> Value {
    let mut event = kernel(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        20,
        correlation,
        ts,
        dur,
    );
    for (name, value) in [
        ("Collective name", json!("allreduce")),
        ("In msg nelems", json!(1_000_000)),
        ("Out msg nelems", json!(1_000_000)),
        ("Group size", json!(2)),
        ("dtype", json!("Float")),
        ("Process Group Name", json!("0")),
        ("Process Group Description", json!("default_pg")),
        ("Process Group Ranks", json!("[0, 1]")),
        ("Seq", json!(sequence)),
    ] {
        event["args"][name] = value;
    }
    event
}

#[test]
fn collectives_match_by_sequence_though_one_rank_misses_the_first() {
    // Rank 1's profiler began later: its first collective is rank 0's second.
    let analysis = analyze_ranks(&[
        &[collective(4, 1, 0.0, 10.0), collective(5, 2, 100.0, 50.0)],
        &[collective(5, 1, 120.0, 30.0)],
    ]);
    let all = analysis["collectives"].as_array().expect("collectives");
    assert_eq!(all.len(), 2);
    let five = all.iter().find(|one| one["sequence"] == 5).expect("number 5");
    assert_eq!(five["matched_by"], "communicator and sequence");
    assert_eq!(five["wait_ns"], json!({"0": 20_000, "1": 0}));
    assert_eq!(five["transfer_ns"], json!({"0": 30_000, "1": 30_000}));
    assert_eq!(
        (&five["skew_ns"], &five["last_rank"], &five["last_rank_cost_ns"]),
        (&json!(20_000), &json!(1), &json!(20_000))
    );
    // 4,000,000 bytes in 30 us, and 2 (n - 1) / n = 1 for two ranks.
    assert!((five["algbw"].as_f64().expect("algbw") - 4e6 / 30e3).abs() < 1e-9);
    assert!((five["busbw"].as_f64().expect("busbw") - 4e6 / 30e3).abs() < 1e-9);
    let size = &analysis["collective_sizes"][0];
    assert_eq!(
        (&size["bytes_from"], &size["count"], &size["timed"]),
        (&json!(2_097_152), &json!(2), &json!(1))
    );
    assert!(
        all.iter().all(|one| one["warm_up"] == false),
        "nobody knows what came before the trace"
    );
}

#[test]
fn order_does_not_match_ranks_with_different_numbers() {
    let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    let analysis = analyze_ranks(&[
        &[kernel(name, 20, 1, 0.0, 10.0), kernel(name, 20, 2, 100.0, 50.0)],
        &[kernel(name, 20, 1, 120.0, 30.0)],
    ]);
    assert!(
        analysis["collectives"]
            .as_array()
            .expect("collectives")
            .iter()
            .all(|one| one["skew_ns"].is_null())
    );
    let losses = analysis["losses"].to_string();
    assert!(losses.contains("different numbers"), "{losses}");
}

#[test]
fn an_order_that_cannot_be_is_said_and_left_out() {
    // The kernels of the "same" collective do not run at one time.
    let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    let analysis = analyze_ranks(&[
        &[kernel(name, 20, 1, 0.0, 10.0), kernel("a", 7, 2, 100.0, 50.0)],
        &[kernel(name, 20, 1, 120.0, 30.0)],
    ]);
    assert!(analysis["collectives"][0]["skew_ns"].is_null());
    assert!(analysis["losses"].to_string().contains("do not run at one time"));
}

#[test]
fn ranks_whose_times_do_not_overlap_are_not_compared() {
    let analysis = analyze_ranks(&[&[kernel("a", 7, 1, 0.0, 10.0)], &[kernel("a", 7, 1, 5e9, 10.0)]]);
    assert!(
        analysis["ranks"][0]["idle_after_ns"].is_null() && analysis["ranks"][1]["idle_before_ns"].is_null()
    );
    assert!(
        analysis["losses"]
            .to_string()
            .contains("ends 4999.999990 s before")
            || analysis["losses"].to_string().contains("5000.000 s before")
    );
    assert!(
        analysis["clock"]
            .as_str()
            .expect("a sentence")
            .contains("do not overlap")
    );
}

#[test]
fn steps_are_guessed_where_none_are_named_and_marked_so() {
    let mut events = Vec::new();
    let mut correlation = 0;
    for step in 0..5 {
        for (place, name) in [
            "fwd1", "fwd2", "fwd2", "loss", "bwd2", "bwd2", "bwd1", "update", "update",
        ]
        .into_iter()
        .enumerate()
        {
            correlation += 1;
            events.push(kernel(
                name,
                7,
                correlation,
                f64::from(step) * 200.0 + place as f64 * 10.0,
                8.0,
            ));
        }
    }
    let analysis = analyze(&events);
    let steps = analysis["ranks"][0]["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 5);
    assert!(steps.iter().all(|step| step["detected"] == true));
    assert_eq!(
        (
            &steps[1]["start_ns"],
            &steps[1]["duration_ns"],
            &steps[1]["busy_ns"]
        ),
        (&json!(200_000), &json!(200_000), &json!(72_000))
    );
    assert_eq!(analysis["ranks"][0]["step_summary"]["count"], 5);
}

#[test]
fn memory_peaks_by_the_allocators_own_count() {
    let memory = |ts: f64, bytes: i64, total: i64| {
        json!({"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 1, "ts": ts,
               "args": {"Addr": 1, "Bytes": bytes, "Total Allocated": total, "Total Reserved": 4096, "Device Type": 1, "Device Id": 0}})
    };
    let analysis = analyze(&[
        kernel("a", 7, 1, 0.0, 10.0),
        memory(1.0, 512, 1_512),
        memory(2.0, 512, 2_024),
        memory(3.0, -1_024, 1_000),
    ]);
    let memory = &analysis["ranks"][0]["memory"];
    assert_eq!(
        (
            &memory["peak_bytes"],
            &memory["peak_at_ns"],
            &memory["peak_reserved_bytes"]
        ),
        (&json!(2_024), &json!(2_000), &json!(4_096))
    );
    assert_eq!((&memory["allocations"], &memory["frees"]), (&json!(2), &json!(1)));
}

#[test]
fn copies_have_their_bandwidth_and_their_links() {
    let mut slow = operation(
        "gpu_memcpy",
        "Memcpy HtoD (Pageable -> Device)",
        7,
        1,
        0.0,
        1_000.0,
    );
    slow["args"]["bytes"] = json!(2_000_000);
    let mut fast = operation(
        "gpu_memcpy",
        "Memcpy HtoD (Pinned -> Device)",
        7,
        2,
        2_000.0,
        100.0,
    );
    fast["args"]["bytes"] = json!(2_000_000);
    let mut peer = operation(
        "gpu_memcpy",
        "Memcpy PtoP (Device -> Device)",
        8,
        3,
        3_000.0,
        10.0,
    );
    for (name, value) in [
        ("bytes", json!(1_000_000)),
        ("fromDevice", json!(0)),
        ("toDevice", json!(1)),
    ] {
        peer["args"][name] = value;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank0.json");
    let trace = json!({"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}], "traceEvents": [slow, fast, peer]});
    std::fs::write(&path, trace.to_string()).expect("a file");
    let mut command = gputrace();
    command.args(["analyze", "--json"]).arg(&path);
    let analysis: Value = serde_json::from_str(&stdout(&expect_status(&mut command, 0))).expect("JSON");
    let copies = analysis["ranks"][0]["copies"].as_array().expect("copies");
    // 4,000,000 bytes in 1,100 us: weighted by time, not the mean of 2 and 20 GB/s.
    assert!((copies[0]["bandwidth"].as_f64().expect("GB/s") - 4e6 / 1.1e6).abs() < 1e-12);
    assert_eq!(
        (&copies[0]["nominal_bandwidth"], &copies[0]["link"]),
        (&json!(31.5), &json!("PCIe 4.0 x16"))
    );
    assert_eq!(
        (
            &copies[1]["source"],
            &copies[1]["destination"],
            &copies[1]["link"]
        ),
        (&json!("GPU 0"), &json!("GPU 1"), &json!("NVLink 3"))
    );
    let findings = analysis["findings"].as_array().expect("findings");
    for code in ["pageable_copies", "slow_copies"] {
        assert!(
            findings.iter().any(|finding| finding["code"] == code),
            "{code}: {findings:?}"
        );
    }
}
