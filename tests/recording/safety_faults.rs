//! Each fault of the stand-in's CUPTI in turn: the program never notices, the recording opens, and what it cost is told.

use crate::common;

use common::programs::{Case, Recorded, compiled};

/// What `threads churn 400` launches.
const KERNELS: usize = 410;
/// What `files wait` launches, over more than a second.
const KERNELS_IN_A_SECOND: usize = 100 + 12 * 300 + 100;

fn short(fault: &str, cupti: &str) -> Recorded {
    Case::new(compiled("threads"), &["churn", "400"])
        .env("SIMGPU_FAULTS", fault)
        .env("SIMGPU_CUPTI", cupti)
        .check(0)
}

fn long(fault: &str) -> Recorded {
    Case::new(compiled("files"), &["wait"])
        .env("SIMGPU_FAULTS", fault)
        .check(0)
}

/// The process closed its recording, and either all kernels are there or it is told what is not.
#[track_caller]
fn assert_told(fault: &str, recorded: &Recorded, kernels: usize) {
    assert!(
        recorded.process().header.ended_ns.is_some(),
        "{fault}: {}",
        recorded.told()
    );
    assert!(
        recorded.kernels() <= kernels,
        "{fault}: {} kernels",
        recorded.kernels()
    );
    let told = !recorded.recording.losses.is_empty() || !recorded.recording.notes.is_empty();
    assert!(
        recorded.kernels() == kernels || told,
        "{fault}: {} kernels of {kernels}, and nothing told",
        recorded.kernels()
    );
}

#[test]
fn faults_that_cost_rows_say_how_many_or_why() {
    for cupti in ["13.4", "12.0"] {
        for (fault, word) in [
            ("no-cupti", "no GPU activity"),
            ("subscriber-taken", "another"),
            ("drop", "dropped"),
            ("zero-timestamps", "time stamps"),
            ("incomplete", "end"),
        ] {
            let recorded = short(fault, cupti);
            assert_told(fault, &recorded, KERNELS);
            assert!(
                recorded.tells(word),
                "{fault}, CUPTI {cupti}: {}",
                recorded.told()
            );
        }
        // One of them may have nothing in it.
        assert_told("lost-buffers", &short("lost-buffers", cupti), KERNELS);
    }
}

#[test]
fn faults_that_cost_nothing_cost_nothing() {
    for fault in [
        "out-of-order",
        "unknown-kinds",
        "longer-records",
        "foreign-threads",
        "dying-threads",
        "deadlocks",
        "missing-symbols",
    ] {
        let recorded = short(fault, "13.4");
        assert_told(fault, &recorded, KERNELS);
        assert_eq!(recorded.kernels(), KERNELS, "{fault}: {}", recorded.told());
    }
}

#[test]
fn faults_that_take_time() {
    for fault in [
        "late:300",
        "held-back",
        "clock-step:5000000000@500",
        "clock-step:-5000000000@500",
    ] {
        let recorded = long(fault);
        assert_told(fault, &recorded, KERNELS_IN_A_SECOND);
        assert_eq!(
            recorded.kernels(),
            KERNELS_IN_A_SECOND,
            "{fault}: {}",
            recorded.told()
        );
    }
}

#[test]
fn a_cupti_that_gives_up_is_left_alone() {
    let recorded = short("fatal-error:300", "13.4");
    assert_told("fatal-error", &recorded, KERNELS);
    assert!(recorded.kernels() < KERNELS);
    assert!(recorded.tells("CUPTI"), "{}", recorded.told());
}

#[test]
fn several_faults_at_once() {
    let recorded = short(
        "drop,out-of-order,unknown-kinds,foreign-threads,late:50,lost-buffers",
        "12.8",
    );
    assert_told("several", &recorded, KERNELS);
}
