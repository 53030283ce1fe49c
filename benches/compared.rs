//! What `gputrace diff` says of runs that are alike, and of runs in which one thing is worse: the tables of docs/compare.md. On
//! simulated GPUs.
//!
//!     cargo bench --bench compared
//!
//! Alike: each workload is recorded with several seeds, and each pair of these is compared; whatever is called slower or faster
//! is a false alarm. Worse: something is planted in a run, which is held against one of the same seed without it; it has to be
//! found and named. Other programs may run meanwhile: that is what a machine of CI is like.
//!
//! | variable | what it does |
//! |---|---|
//! | `COMPARED_RUNS=n` | so many seeds; 10, which is 45 pairs a workload |
//! | `COMPARED_KEEP=FOLDER` | the runs' baselines stay there, and those that are there are taken |

#[allow(dead_code, reason = "predictions are for other benches")]
mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{json, record};
use serde_json::Value;

const WORKLOADS: [&str; 5] = ["ddp", "fsdp", "tp", "pp", "single"];
const STEPS: &str = "44";
/// So many times slower than the real node: two cores mostly keep up.
const SCALE: &str = "SCALE=2000";

/// Something that is worse, and how a row says so.
struct Planted {
    name: &'static str,
    sim: &'static [&'static str],
    workload: &'static [&'static str],
    /// What the same run is without it, where it differs in more than that.
    clean: &'static [&'static str],
    found: fn(&Value) -> bool,
}

fn text<'a>(row: &'a Value, member: &str) -> &'a str {
    row[member].as_str().unwrap_or_default()
}

const PLANTED: &[Planted] = &[
    Planted {
        name: "a kernel 3 % slower on one rank",
        sim: &["SLOW=kernel:*gemm*@1=1.03"],
        workload: &["ddp"],
        clean: &["ddp"],
        found: |row| row["rank"] == 1 && text(row, "by") == "kernel" && text(row, "name").contains("gemm"),
    },
    Planted {
        name: "a link 10 % slower",
        sim: &["SLOW=link:0-1=1.1"],
        workload: &["ddp"],
        clean: &["ddp"],
        found: |row| text(row, "by") == "collective" && text(row, "what") == "transfer",
    },
    Planted {
        name: "buckets four times as large",
        sim: &[],
        workload: &[
            "ddp",
            "--layers",
            "8",
            "--hidden",
            "256",
            "--batch",
            "768",
            "--bucket-mb",
            "1",
        ],
        clean: &[
            "ddp",
            "--layers",
            "8",
            "--hidden",
            "256",
            "--batch",
            "768",
            "--bucket-mb",
            "0.25",
        ],
        found: |row| text(row, "by") == "rank" && ["exposed", "hidden"].contains(&text(row, "name")),
    },
];

/// The baseline of a run, recorded unless it is there.
fn baseline(folder: &Path, name: &str, seed: usize, sim: &[&str], workload: &[&str]) -> PathBuf {
    let name = format!("{name}-{seed}");
    let path = folder.join(format!("{name}.json"));
    if !path.exists() {
        let keep = tempfile::tempdir().expect("a folder");
        let run = keep.path().join("run");
        let seed = seed.to_string();
        let seeded = format!("SEED={seed}");
        let settings: Vec<&str> = [SCALE, seeded.as_str()]
            .into_iter()
            .chain(sim.iter().copied())
            .collect();
        let rest = ["--steps", STEPS, "--seed", seed.as_str()];
        let workload: Vec<&str> = workload.iter().copied().chain(rest).collect();
        record(&run, &settings, &workload);
        let dir = folder.to_str().expect("a name");
        let saved = Command::new(env!("CARGO_BIN_EXE_gputrace"))
            .args(["baseline", "save", &name, "--dir", dir])
            .arg(&run)
            .output();
        assert!(saved.expect("starts").status.success(), "{name} is not saved");
    }
    path
}

fn diff(a: &Path, b: &Path) -> Value {
    json(b, &["diff", a.to_str().expect("a name")])
}

/// What a row is of.
fn key(row: &Value) -> String {
    format!("{} {} {} {}", row["by"], row["name"], row["what"], row["rank"])
}

fn is_change(value: &Value) -> bool {
    ["slower", "faster"].contains(&text(value, "verdict"))
}

fn main() {
    let runs: usize = std::env::var("COMPARED_RUNS").map_or(10, |runs| runs.parse().expect("a number"));
    let keep = std::env::var_os("COMPARED_KEEP").map(PathBuf::from);
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = keep.unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&folder).expect("a folder");
    println!("Alike: pairs of runs that differ by their seed alone\n");
    println!(
        "| workload | pairs | step slower or faster | any row | a row, at most | smallest step change shown, median |"
    );
    println!("|---|---|---|---|---|---|");
    let (mut all_pairs, mut all_steps, mut worst) = (0, 0, BTreeMap::<String, usize>::new());
    for workload in WORKLOADS {
        let seeds: Vec<PathBuf> = (0..runs)
            .map(|seed| baseline(&folder, workload, seed, &[], &[workload]))
            .collect();
        let (mut pairs, mut steps, mut any, mut least) = (0, 0, 0, Vec::new());
        let mut rows: BTreeMap<String, usize> = BTreeMap::new();
        for (place, a) in seeds.iter().enumerate() {
            for b in &seeds[place + 1..] {
                let found = diff(a, b);
                pairs += 1;
                steps += usize::from(is_change(&found["step"]));
                let changed: Vec<&Value> = found["rows"]
                    .as_array()
                    .expect("rows")
                    .iter()
                    .filter(|row| is_change(row))
                    .collect();
                any += usize::from(!changed.is_empty());
                for row in changed {
                    *rows.entry(key(row)).or_default() += 1;
                    *worst.entry(key(row)).or_default() += 1;
                }
                let share = found["step"]["least_ns"].as_f64().expect("an interval")
                    / found["step"]["a_ns"].as_f64().expect("a step");
                least.push(share);
            }
        }
        least.sort_by(f64::total_cmp);
        let most = rows.iter().max_by_key(|(_, count)| **count);
        let most = most.map_or("0".to_owned(), |(name, count)| {
            format!("{count} ({})", name.replace('"', ""))
        });
        println!(
            "| {workload} | {pairs} | {steps} | {any} | {most} | {:.2} % |",
            least[least.len() / 2] * 100.0
        );
        all_pairs += pairs;
        all_steps += steps;
    }
    let most = worst.values().max().copied().unwrap_or(0);
    let share = |count: usize| 100.0 * count as f64 / all_pairs as f64;
    println!(
        "\nOf {all_pairs} pairs the step is called slower or faster in {all_steps} ({:.1} %), and no row in more than {most} ({:.1} %).\n",
        share(all_steps),
        share(most)
    );
    println!(
        "Worse: found and named\n\n| planted | pairs | found | its change | step changed by | step called slower |\n|---|---|---|---|---|---|"
    );
    for planted in PLANTED {
        let (mut found, mut slower, mut changes, mut of_step) = (0, 0, Vec::new(), Vec::new());
        for seed in 0..2 * runs {
            let name = planted.name.replace([' ', '%'], "_");
            let clean_name = planted.clean.join("_").replace("--", "");
            let a = baseline(&folder, &clean_name, seed, &[], planted.clean);
            let b = baseline(&folder, &name, seed, planted.sim, planted.workload);
            let answer = diff(&a, &b);
            let rows = answer["rows"].as_array().expect("rows").iter();
            let row = rows.filter(|row| is_change(row)).find(|row| (planted.found)(row));
            found += usize::from(row.is_some());
            slower += usize::from(text(&answer["step"], "verdict") == "slower");
            let change = |of: &Value| {
                of["change_ns"].as_f64().unwrap_or(0.0) / of["a_ns"].as_f64().unwrap_or(1.0).max(1.0)
            };
            changes.extend(row.map(change));
            of_step.push(change(&answer["step"]));
        }
        let middle = |values: &mut Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values
                .get(values.len() / 2)
                .map_or("-".to_owned(), |value| format!("{:+.1} %", 100.0 * value))
        };
        println!(
            "| {} | {} | {found} | {} | {} | {slower} |",
            planted.name,
            2 * runs,
            middle(&mut changes),
            middle(&mut of_step)
        );
    }
}
