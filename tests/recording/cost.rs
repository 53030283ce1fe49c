//! What recording costs, in instructions: a loop of launches on the simulated GPU under callgrind, with the collector in it.
//!
//! Instructions are the same on every machine and under every load, nanoseconds are not. Where this was written a core runs 7
//! of the writer's instructions a nanosecond; the bounds here take 6, so that a slower core keeps the promise too: 300 ns of
//! CPU time for each recorded operation (a kernel with its call) off the program's threads, 100 ns on them.

use crate::common;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use common::programs::{collector, compiled, library_path};

/// Instructions that count as a nanosecond.
const INSTRUCTIONS_A_NS: f64 = 6.0;
/// Kernels of the two runs, whose difference is the cost of kernels and not of beginning and ending.
const FEW: usize = 4_000;
const MANY: usize = 24_000;
/// Kernels between two waits.
const STEP: usize = 1000;
/// An NVTX range for each so many kernels, besides one a step.
const KERNELS_A_RANGE: usize = 10;

/// What callgrind counted on one thread.
#[derive(Default)]
struct Thread {
    /// All instructions.
    all: u64,
    /// Instructions by object, without what they call.
    own: HashMap<String, u64>,
    /// Calls from one object into another: caller's object, callee's object and function; how often, and all instructions in it.
    calls: HashMap<(String, String, String), (u64, u64)>,
}

/// A name in callgrind's files: "(7) name" the first time, "(7)" after.
fn name(known: &mut HashMap<String, String>, text: &str) -> String {
    let (id, rest) = text.split_once(')').unwrap_or((text, ""));
    if !rest.is_empty() {
        known.insert(id.to_owned(), rest.trim_start().to_owned());
    }
    known.get(id).cloned().unwrap_or_default()
}

/// Reads callgrind's file of one thread (the format is that of "Callgrind Format Specification", valgrind 3.x).
fn read(text: &str) -> Thread {
    let (mut objects, mut functions) = (HashMap::new(), HashMap::new());
    let mut thread = Thread::default();
    let (mut object, mut callee_object, mut callee) = (String::new(), None, String::new());
    let mut call: Option<u64> = None;
    for line in text.lines() {
        if let Some(text) = line.strip_prefix("ob=") {
            object = name(&mut objects, text);
        } else if let Some(text) = line.strip_prefix("fn=") {
            name(&mut functions, text);
        } else if let Some(text) = line.strip_prefix("cob=") {
            callee_object = Some(name(&mut objects, text));
        } else if let Some(text) = line.strip_prefix("cfn=") {
            callee = name(&mut functions, text);
        } else if let Some(text) = line.strip_prefix("calls=") {
            call = text.split(' ').next().and_then(|count| count.parse().ok());
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost: u64 = line
                .rsplit(' ')
                .next()
                .and_then(|cost| cost.parse().ok())
                .expect("a cost");
            if let Some(count) = call.take() {
                let to = callee_object.take().unwrap_or_else(|| object.clone());
                if to != object {
                    let entry = thread
                        .calls
                        .entry((object.clone(), to, callee.clone()))
                        .or_default();
                    entry.0 += count;
                    entry.1 += cost;
                }
            } else {
                thread.all += cost;
                *thread.own.entry(object.clone()).or_default() += cost;
            }
        }
    }
    thread
}

/// What recording so many launches cost.
#[derive(Debug, Default)]
struct Cost {
    /// Instructions of the writer's thread, but for those inside the simulated CUPTI.
    writer: u64,
    /// Instructions of the program's and CUPTI's threads inside the collector, but for ranges: how often, and all.
    callbacks: (u64, u64),
    /// Those for ranges.
    ranges: (u64, u64),
}

fn measure(program: &Path, kernels: usize) -> Option<Cost> {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    std::fs::create_dir(&recording).expect("a folder");
    let counts = folder.path().join("counts");
    let library = collector();
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--separate-threads=yes"])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(program)
        .args([(kernels / STEP).to_string(), STEP.to_string()])
        .env("LD_LIBRARY_PATH", library_path())
        .env("SIMGPU_DEVICES", "1")
        .env("GPUTRACE_DIR", &recording)
        .env("CUDA_INJECTION64_PATH", &library)
        .env("NVTX_INJECTION64_PATH", &library)
        .output()
        .ok()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rows: u64 = gputrace_trace::Recording::open(&recording)
        .expect("a recording")
        .processes[0]
        .tables
        .kernels
        .start_ns
        .len() as u64;
    assert_eq!(rows, kernels as u64, "all kernels are recorded");
    let mut cost = Cost::default();
    let is_ours = |object: &str| object.contains("libgputrace_collector");
    let mut writers = 0;
    for thread in 1..64 {
        let path = folder.path().join(format!("counts-{thread:02}"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let thread = read(&text);
        // Ours runs little else: it was begun by a function of the collector.
        let is_writer = thread
            .calls
            .keys()
            .any(|(_, to, function)| is_ours(to) && function.contains("thread_start"));
        if is_writer {
            writers += 1;
            let elsewhere: u64 = thread
                .calls
                .iter()
                .filter(|((from, to, _), _)| is_ours(from) && to.contains("libsimgpu"))
                .map(|(_, (_, instructions))| instructions)
                .sum();
            cost.writer += thread.all - elsewhere;
            continue;
        }
        for ((from, to, function), (count, instructions)) in &thread.calls {
            if !is_ours(to) || is_ours(from) || function == "InitializeInjection" {
                continue;
            }
            let of = if function.contains("nvtx") {
                &mut cost.ranges
            } else {
                &mut cost.callbacks
            };
            of.0 += count;
            of.1 += instructions;
        }
    }
    assert_eq!(writers, 1, "one thread writes");
    Some(cost)
}

#[test]
fn an_operation_costs_few_instructions() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: valgrind was not found, so no instructions are counted");
        return;
    }
    let program = compiled("launches");
    let few = measure(&program, FEW).expect("valgrind runs");
    let many = measure(&program, MANY).expect("valgrind runs");
    let kernels = (MANY - FEW) as f64;
    let each = |of: fn(&Cost) -> u64| (of(&many) as f64 - of(&few) as f64) / kernels;
    let writer = each(|cost| cost.writer);
    let callbacks = each(|cost| cost.callbacks.1);
    let ranges = each(|cost| cost.ranges.1);
    let pairs = kernels / KERNELS_A_RANGE as f64 + kernels / STEP as f64;
    let pair = ranges * kernels / pairs;
    eprintln!(
        "instructions a kernel with its call: {writer:.0} on the collector's thread, {callbacks:.1} in callbacks of CUPTI; \
         {pair:.0} for a range's push and pop without the clock's (few {few:?}, many {many:?})"
    );
    assert!(
        writer <= 300.0 * INSTRUCTIONS_A_NS,
        "{writer:.0} instructions for each operation on the collector's thread"
    );
    assert!(
        callbacks + ranges <= 100.0 * INSTRUCTIONS_A_NS,
        "{callbacks:.0} and {ranges:.0} instructions for each operation on the program's threads"
    );
    // Nothing of CUPTI's calls us back for each launch.
    assert!(
        many.callbacks.0 < MANY as u64 / 100,
        "{} callbacks for {MANY} launches",
        many.callbacks.0
    );
}
