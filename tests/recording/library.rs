//! The collector as a file: small, in need of nothing but libc, and with the names that others look for.
//!
//! With binutils (`readelf`, `objdump`, `strip`); without them there is nothing to see, which is said.

use crate::common;

use std::collections::BTreeSet;
use std::process::Command;

use common::programs::collector;

/// What the collector may weigh without debug information.
const MOST_BYTES: u64 = 4 << 20;
/// The oldest glibc that programs may have which we record.
const GLIBC: [u32; 2] = [2, 34];
/// Libraries that every program on glibc has, or that its compiler brings.
const ALLOWED: [&str; 7] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
];
/// What the driver, NVTX and NCCL look for.
const EXPORTED: [&str; 7] = [
    "InitializeInjection",
    "InitializeInjectionNvtx2",
    "InitializeInjectionNvtxExtension",
    "ncclProfiler_v4",
    "ncclProfiler_v5",
    "ncclProfiler_v6",
    "ncclProfiler_v7",
];

/// What a tool says; `None`, and a line, where the tool is missing.
fn output(tool: &str, arguments: &[&str]) -> Option<String> {
    let library = collector();
    match Command::new(tool)
        .args(arguments)
        .arg(&library)
        .env("LC_ALL", "C")
        .output()
    {
        Ok(output) => {
            assert!(
                output.status.success(),
                "{tool}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            eprintln!("SKIPPED: {tool}: {error}: the collector's file was not looked at; install binutils");
            None
        }
    }
}

#[test]
fn it_weighs_little() {
    let folder = tempfile::tempdir().expect("a folder");
    let stripped = folder.path().join("stripped.so");
    let into = stripped.to_str().expect("a plain path");
    if output("strip", &["-o", into]).is_some() {
        let bytes = stripped.metadata().expect("stripped").len();
        assert!(bytes <= MOST_BYTES, "{bytes} bytes stripped");
        println!("{bytes} bytes stripped");
    }
}

#[test]
fn it_needs_nothing_of_cuda_and_stays_loaded() {
    let Some(text) = output("readelf", &["--dynamic", "--wide"]) else {
        return;
    };
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0))
        .collect();
    assert!(needed.contains(&"libc.so.6"), "{text}");
    for library in &needed {
        assert!(ALLOWED.contains(library), "it needs {library}");
    }
    let stays = text
        .lines()
        .any(|line| line.contains("(FLAGS_1)") && line.contains("NODELETE"));
    assert!(stays, "it could be unloaded under its own thread: {text}");
}

#[test]
fn every_symbol_is_in_an_old_glibc() {
    let Some(text) = output("objdump", &["-T"]) else {
        return;
    };
    let mut seen = 0;
    for line in text.lines().filter(|line| line.contains("*UND*")) {
        // 0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.34) pthread_key_create
        let Some(version) = line.split_once("GLIBC_").map(|(_, rest)| rest) else {
            continue;
        };
        let version: Vec<u32> = version
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .next()
            .unwrap_or_default()
            .split('.')
            .filter_map(|part| part.parse().ok())
            .collect();
        assert!(
            version.as_slice() <= GLIBC.as_slice(),
            "newer than glibc 2.34: {line}"
        );
        seen += 1;
    }
    assert!(seen > 50, "symbols of glibc were expected: {text}");
}

#[test]
fn it_exports_what_is_meant_and_nothing_else() {
    let Some(text) = output("objdump", &["-T"]) else {
        return;
    };
    let exported: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.starts_with("0000") && !line.contains("*UND*"))
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(exported, BTreeSet::from(EXPORTED));
}
