//! Processes that may have little: memory, descriptors, threads, variables, readers of their output.

mod common;

use common::programs::{Case, Recorded, compiled, compiled_with};

const KERNELS: usize = 1_100;

fn limits(arguments: &[&str]) -> Case {
    Case::new(compiled("limits"), arguments)
}

/// All kernels are there, or it is told that not.
#[track_caller]
fn assert_told(recorded: &Recorded) {
    assert!(
        recorded.kernels() == KERNELS || !recorded.recording.losses.is_empty(),
        "{} {}",
        recorded.kernels(),
        recorded.told()
    );
}

#[test]
fn a_program_that_may_have_little_memory() {
    // What the program needs by itself: below that it fails, which is its own affair.
    let needed = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
        .into_iter()
        .find(|megabytes| limits(&["address-space", &megabytes.to_string()]).bare().status == 0)
        .expect("two gigabytes are enough");
    // From a little more than that on: a stack, a buffer, what rows wait in.
    for more in [24, 64, 192] {
        let megabytes = (needed + more).to_string();
        assert_told(&limits(&["address-space", &megabytes]).check(0));
    }
}

#[test]
fn a_program_that_may_have_few_descriptors() {
    for limit in ["8", "12", "30"] {
        assert_told(&limits(&["files", limit]).check(0));
    }
    assert_eq!(limits(&["files", "12"]).check(0).kernels(), KERNELS);
}

#[test]
fn a_program_whose_threads_have_small_stacks() {
    assert_eq!(limits(&["stack", "256"]).check(0).kernels(), KERNELS);
}

#[test]
fn a_process_that_may_not_have_our_thread() {
    let shim = compiled_with("no_thread", &["-shared", "-fPIC"]);
    // For the program alone, not for the recorder.
    let preload = format!("LD_PRELOAD={}", shim.display());
    let recorded = limits(&[]).inside(&["env", &preload]).check(0);
    assert_eq!(recorded.kernels(), 0);
    assert!(recorded.tells("no thread"), "{}", recorded.told());
}

#[test]
fn libraries_that_are_closed_while_they_are_at_work() {
    let recorded = limits(&["closes"]).check(0);
    assert_eq!(recorded.kernels(), 490);
    assert!(
        recorded.process().header.ended_ns.is_some(),
        "{}",
        recorded.told()
    );
}

#[test]
fn environments_that_are_empty_huge_or_odd() {
    // Without our variables nothing is recorded, and nothing else happens.
    let path = format!("LD_LIBRARY_PATH={}", common::programs::library_path());
    let recorded = limits(&[]).inside(&["env", "-i", &path]).check(0);
    assert!(recorded.recording.processes.is_empty());
    assert!(recorded.tells("no process"), "{}", recorded.told());

    let case = (0..2_000).fold(limits(&[]), |case, number| {
        case.env(&format!("VARIABLE_{number}"), "x".repeat(500))
    });
    assert_eq!(case.check(0).kernels(), KERNELS);

    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe=\xc3(");
    let recorded = limits(&[])
        .env("NCCL_ODD", odd)
        .env("RANK", "first")
        .env("LC_ALL", "de_DE.UTF-8")
        .check(0);
    assert_eq!(recorded.kernels(), KERNELS);
}

#[test]
fn nobody_reads_what_the_program_says() {
    // Its first word ends it by SIGPIPE, as it would without us, even when ours came before.
    let script = "\"$@\" | true; exit ${PIPESTATUS[0]}";
    let case = limits(&[]).inside(&["bash", "-c", script, "bash"]);
    let bare = case.bare();
    let (_keep, folder) = common::fresh_folder("recording");
    assert_eq!(bare.status, 128 + libc::SIGPIPE);
    assert_eq!(case.recorded(&folder), bare);
    // Our own words on a closed stderr end nobody.
    let script = "\"$@\" 2> >(true)";
    let case = limits(&[])
        .env("GPUTRACE_VERBOSE", "1")
        .env("SIMGPU_FAULTS", "subscriber-taken")
        .inside(&["bash", "-c", script, "bash"]);
    case.check(0);
}

#[test]
fn a_process_in_a_time_namespace() {
    let inside = [
        "unshare",
        "--user",
        "--map-root-user",
        "--time",
        "--boottime",
        "100000",
        "--monotonic",
        "50000",
    ];
    let case = limits(&[]).inside(&inside);
    if case.bare().status != 0 {
        eprintln!("SKIPPED: no time namespaces here");
        return;
    }
    let recorded = case.check(0);
    assert_eq!(recorded.kernels(), KERNELS);
    assert!(recorded.recording.losses.is_empty(), "{}", recorded.told());
}
