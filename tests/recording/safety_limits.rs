//! Processes that may have little: memory, descriptors, threads, variables, readers of their output.

use crate::common;

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
    // Where the program has hardly more than it needs it is left alone, which is told; with some more it is recorded: a stack, a
    // buffer, what rows wait in.
    for more in [12, 24, 64, 192] {
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
fn a_program_whose_first_use_of_the_gpu_is_on_a_small_stack() {
    // The last is the least that a thread may have (PTHREAD_STACK_MIN).
    for kib in ["64", "32", "16"] {
        let case = limits(&["thread-stack", kib]);
        if case.bare().status == 0 {
            assert_eq!(case.check(0).kernels(), KERNELS, "{kib} KiB");
        } else {
            assert_ne!(kib, "64", "the stand-in alone needs more");
            println!("SKIPPED: {kib} KiB are too little for the stand-in alone");
        }
    }
}

/// How deep each way into the collector goes, in bytes, by what it is.
fn depths(version: Option<&str>) -> Vec<(u64, String)> {
    let cupti = compiled_with("stub_cupti", &["-shared", "-fPIC"]);
    let mut case = Case::new(compiled("stack"), &[""; 0])
        .env("GPUTRACE_CUPTI", cupti)
        .options(&["--kinds", "+stacks"]);
    if let Some(version) = version {
        case = case.env("STUB_CUPTI_VERSION", version);
    }
    let (_keep, folder) = common::fresh_folder("recording");
    let ended = case.recorded(&folder);
    assert_eq!(ended.status, 0, "{ended:?}");
    let recording = gputrace_trace::Recording::open(&folder).expect("a recording");
    let [process] = &recording.processes[..] else {
        panic!("{} processes", recording.processes.len());
    };
    // What was measured was at work.
    assert!(process.header.ended_ns.is_some() && process.tables.markers.start_ns.len() > 5);
    assert!(!process.tables.communicators.communicator.is_empty());
    assert_eq!(process.tables.launch_stacks.frame.len(), 2);
    let depth = |line: &str| {
        let (bytes, what) = line.split_once(' ')?;
        Some((bytes.parse().ok()?, what.to_owned()))
    };
    let depths: Vec<(u64, String)> = ended.stdout.lines().filter_map(depth).collect();
    assert!(depths.len() > 240, "{} measured", depths.len());
    depths
}

#[test]
fn each_way_in_takes_little_of_the_callers_stack() {
    const MOST_BYTES: u64 = 16 << 10;
    // CUPTI of one subscriber, and of several.
    for (version, buffers) in [
        (None, "cupti completed"),
        (Some("130301"), "cupti second completed"),
    ] {
        let depths = depths(version);
        for what in ["InitializeInjection", buffers, "exit", "fork, in the child"] {
            let is_measured = depths.iter().any(|(_, measured)| measured == what);
            assert!(is_measured, "{what} was not measured");
        }
        let (bytes, what) = depths.iter().max().expect("measured");
        println!("the deepest is {what}: {bytes} bytes");
        assert!(*bytes <= MOST_BYTES, "{what}: {bytes} bytes");
    }
}

#[test]
fn a_recorder_that_may_write_little_says_so_and_the_program_runs_on() {
    // The recorder alone: its command lifts the limit.
    let script = "ulimit -S -f unlimited; exec \"$@\"";
    let (_keep, folder) = common::fresh_folder("recording");
    let output = std::process::Command::new("prlimit")
        .arg("--fsize=5000:unlimited")
        .arg(env!("CARGO_BIN_EXE_gputrace"))
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(&folder)
        .args(["--", "bash", "-c", script, "bash"])
        .arg(compiled("limits"))
        .output()
        .expect("prlimit (util-linux) starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "worked: 2 2\n");
    let said = common::stderr(&output);
    assert!(said.lines().all(|line| line.contains("File too large")), "{said}");
    assert!((1..=2).contains(&said.lines().count()), "{said}");
    // The program and its recorder are both held to the limit: what is missing is told.
    let recorded = limits(&[])
        .inside(&["prlimit", "--fsize=3000:unlimited"])
        .check(0);
    assert_told(&recorded);
    assert!(recorded.kernels() < KERNELS);
}

/// Run under a seccomp filter that refuses these calls, if that is possible here and the program alone can do without them.
fn refused(how: &str, calls: &[&str]) -> Option<Recorded> {
    let refuse = compiled("refuse");
    let words = [&[refuse.to_str().expect("a plain path"), how], calls, &["--"]].concat();
    let case = limits(&[]).inside(&words);
    let bare = case.bare();
    if bare.status != 0 {
        eprintln!("SKIPPED: {calls:?} refused: {}", bare.stderr);
        return None;
    }
    Some(case.check(0))
}

#[test]
fn a_sandbox_that_refuses_system_calls() {
    // Refused (EPERM), and unknown (ENOSYS): all calls that recording can do without, at once.
    let mut calls = vec![
        "statx",
        "writev",
        "fcntl",
        "getdents64",
        "readlinkat",
        "madvise",
        "fchmod",
    ];
    calls.extend([
        "rt_sigpending",
        "rt_sigtimedwait",
        "rt_sigprocmask",
        "prlimit64",
        "getrandom",
    ]);
    calls.extend(["prctl", "uname", "clock_gettime", "getppid", "sigaltstack"]);
    #[cfg(target_arch = "x86_64")]
    calls.extend(["readlink", "unlink", "chmod"]);
    if let Some(recorded) = refused("1", &calls) {
        assert_eq!(recorded.kernels(), KERNELS, "{}", recorded.told());
    }
    calls.push("clone3");
    if let Some(recorded) = refused("38", &calls) {
        assert_eq!(recorded.kernels(), KERNELS, "{}", recorded.told());
    }
    // What it cannot do without costs the recording, or a part of it.
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(recorded) = refused("1", &["mkdir"]) {
            assert_eq!(recorded.kernels(), 0);
            assert!(recorded.tells("no process"), "{}", recorded.told());
        }
        if let Some(recorded) = refused("1", &["rename"]) {
            assert_eq!(recorded.kernels(), KERNELS, "{}", recorded.told());
            assert!(recorded.tells("process.json"), "{}", recorded.told());
        }
    }
}

#[test]
fn doctor_names_the_system_calls_that_a_sandbox_refuses() {
    let under = |words: &[&str]| {
        let mut command = std::process::Command::new(compiled("refuse"));
        command.args(words).arg("--").arg(env!("CARGO_BIN_EXE_gputrace"));
        let output = command.args(["doctor", "--json"]).output().expect("it starts");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let findings = report["findings"].as_array()?;
        findings
            .iter()
            .find(|finding| finding["what"] == "sandbox")
            .cloned()
    };
    let Some(allows) = under(&["1", "sysinfo"]) else {
        eprintln!("SKIPPED: no seccomp filters here");
        return;
    };
    assert_eq!(allows["present"], true, "{allows}");
    for how in ["1", "38", "kill"] {
        let found = under(&[how, "rt_sigtimedwait", "madvise"]).expect("a finding");
        assert!(found["present"].is_null(), "{found}");
        assert!(
            found["found"]
                .as_str()
                .is_some_and(|text| text.ends_with("refuses madvise, rt_sigtimedwait"))
        );
        #[cfg(target_arch = "x86_64")]
        {
            let found = under(&[how, "mkdir"]).expect("a finding");
            assert_eq!(found["present"], false, "{found}");
            assert!(
                found["advice"]
                    .as_str()
                    .is_some_and(|text| text.contains("without mkdir processes are"))
            );
        }
    }
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
