//! Hostile programs (`tests/programs`) with little to live on and a GPU that fails: they end and say the same recorded and
//! not, and their recordings open.

use std::path::Path;

use crate::common::programs::{Case, compiled};
use crate::random::Random;
use crate::world::World;
use crate::{analyses, recordings};

/// Programs with their arguments. `@` stands for a folder of their own.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("ends", &["return"]),
    ("ends", &["exit"]),
    ("ends", &["_exit"]),
    ("ends", &["quick_exit"]),
    ("ends", &["abort"]),
    ("ends", &["term"]),
    ("ends", &["kill"]),
    ("ends", &["segv"]),
    ("ends", &["interrupt"]),
    ("ends", &["segv-handled"]),
    ("ends", &["segv-handled-before"]),
    ("ends", &["term-handled"]),
    ("ends", &["term-noted"]),
    ("ends", &["term-blocked-before"]),
    ("ends", &["thread-exits"]),
    ("ends", &["returns-while-threads-launch"]),
    ("ends", &["main-thread-ends"]),
    ("ends", &["atexit"]),
    ("ends", &["atexit-before"]),
    ("ends", &["thread-destructor"]),
    ("ends", &["cancelled"]),
    ("forks", &["before"]),
    ("forks", &["grandchildren"]),
    ("forks", &["exit"]),
    ("forks", &["_exit"]),
    ("forks", &["abort"]),
    ("forks", &["raw"]),
    ("forks", &["goes-on"]),
    ("forks", &["many"]),
    ("forks", &["execute"]),
    ("forks", &["vfork"]),
    ("forks", &["spawn"]),
    ("forks", &["system"]),
    ("forks", &["becomes"]),
    ("files", &["closefrom", "@"]),
    ("files", &["closed-before", "@"]),
    ("files", &["leave", "@"]),
    ("files", &["umask", "@"]),
    ("files", &["nofile", "@"]),
    ("files", &["fsize", "@"]),
    ("threads", &["churn", "400"]),
    ("threads", &["open-ranges"]),
    ("threads", &["contexts"]),
    ("threads", &["nvtx-first"]),
    ("threads", &["only-nvtx"]),
    ("threads", &["only-opens"]),
    ("limits", &["files", "8"]),
    ("limits", &["files", "12"]),
    ("limits", &["files", "30"]),
    ("limits", &["stack", "256"]),
    ("limits", &["closes"]),
];

/// What CUPTI does wrong, that programs do not notice.
const FAULTS: &[&str] = &[
    "no-cupti",
    "missing-symbols",
    "subscriber-taken",
    "drop:3",
    "zero-timestamps",
    "incomplete",
    "out-of-order",
    "unknown-kinds:2",
    "longer-records",
    "lost-buffers",
    "late",
    "held-back",
    "foreign-threads",
    "dying-threads",
    "fatal-error:50",
    "clock-step",
    "clock-step:-5000000000@10",
];

/// One program, one fault, one limit.
pub fn hostile(_: &World, mut random: Random, folder: &Path) {
    let (name, arguments) = *random.one_of(PROGRAMS);
    let place = folder.join("place");
    std::fs::create_dir(&place).expect("a folder");
    let place = place.to_str().expect("a plain path");
    let arguments: Vec<&str> = arguments
        .iter()
        .map(|word| if *word == "@" { place } else { word })
        .collect();
    let mut case = Case::new(compiled(name), &arguments);
    if random.once_in(2) {
        case = case.env("SIMGPU_FAULTS", random.pick(FAULTS));
    }
    if random.once_in(3) {
        let version = random.one_of(&["12.0", "12.4", "12.8", "12.9", "13.0", "13.3", "13.5"]);
        case = case.env("SIMGPU_CUPTI", version);
    }
    if random.once_in(4) {
        case = case.env("SIMGPU_DRIVER", "610");
    }
    if random.once_in(4) {
        let limit = random.one_of(&[
            "--stack=262144",
            "--fsize=65536",
            "--core=0",
            "--sigpending=4",
            "--memlock=0",
        ]);
        case = case.inside(&["prlimit", limit]);
    }
    let options: &[&[&str]] = &[
        &[],
        &[],
        &["--nvml-hz", "100"],
        &["--nvml-hz", "0"],
        &["--kinds", "+memory"],
        &["--graphs", "graph"],
        &["--max-size", "4M"],
    ];
    case = case.options(random.pick(options));
    let bare = case.bare();
    let recorded = case.check(bare.status);
    recordings::check(&recorded.recording);
    analyses::check(&recorded.recording);
}
