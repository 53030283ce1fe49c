//! Whether a run that is read by workers is the same as one that is read here, and stays so while workers, nodes and the driver are
//! killed.
//!
//!     cargo bench --bench spread                              equality on recordings of its own, and 100 kills of local workers
//!     cargo bench --bench spread -- equality DIR...           the same of other recordings and traces too
//!     cargo bench --bench spread -- kills local|slurm|ray     100 kills
//!
//! | variable | what it does |
//! |---|---|
//! | `SPREAD_KILLS=n` | so many instead of 100 |
//! | `SPREAD_ENGINES=local,slurm,ray` | engines that equality is tried on; all |
//! | `SPREAD_SEED=n` | other groupings, other kills |
//!
//! Slurm and Ray are clusters of two nodes on loopback (`tests/clusters`), of what `tests/consumers/fetch slurm ray` fetches; where
//! that can't be had they are left out, and it is said.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "../tests/common/clusters.rs"]
#[allow(dead_code)]
mod clusters;
#[path = "../tests/common/groups.rs"]
mod groups;
#[path = "../tests/common/random.rs"]
mod random;

use clusters::{Cluster, kill, processes};
use groups::in_groups;
use random::Random;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gputrace");

fn number(variable: &str, usual: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.and_then(|value| value.parse().ok()).unwrap_or(usual)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What `tests/consumers/fetch` calls `name`.
fn fetched(name: &str) -> Option<PathBuf> {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("consumers");
    let fetch = root().join("tests/consumers/fetch");
    let done = Command::new(fetch).arg(name).env("CONSUMERS", &all).status();
    if done.is_ok_and(|status| status.success()) {
        return Some(all.join(name));
    }
    println!("SKIPPED: {name} could not be fetched");
    None
}

/// Something that ranks are read on.
struct Engine {
    name: &'static str,
    on: String,
    environment: Vec<(String, String)>,
    cluster: Option<Cluster>,
    /// Where Slurm's nodes say who they are.
    folder: Option<tempfile::TempDir>,
}

fn engine(name: &str) -> Option<Engine> {
    let text = |path: &Path| path.to_str().expect("a name").to_owned();
    match name {
        "slurm" => {
            let packages = fetched("slurm")?;
            let folder = tempfile::tempdir().expect("a folder");
            let cluster = clusters::slurm(&packages, folder.path())?;
            Some(Engine {
                name: "slurm",
                on: "slurm:all".to_owned(),
                environment: vec![("PATH".to_owned(), clusters::path_with(folder.path()))],
                cluster: Some(cluster),
                folder: Some(folder),
            })
        }
        "ray" => {
            let python = fetched("ray")?.join("bin/python");
            let cluster = clusters::ray(&python)?;
            Some(Engine {
                name: "ray",
                on: format!("ray:{}", cluster.said[0]),
                environment: vec![
                    ("GPUTRACE_PYTHON".to_owned(), text(&python)),
                    ("RAY_AUTH_TOKEN".to_owned(), cluster.said[1].clone()),
                ],
                cluster: Some(cluster),
                folder: None,
            })
        }
        _ => Some(Engine {
            name: "local",
            on: "local:2".to_owned(),
            environment: Vec::new(),
            cluster: None,
            folder: None,
        }),
    }
}

fn run(arguments: &[&str], environment: &[(String, String)]) -> Result<String, String> {
    let mut command = Command::new(PROGRAM);
    let envs = environment.iter().map(|(key, value)| (key, value));
    let done = command.args(arguments).envs(envs).output().expect("starts");
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

/// Recordings of jobs that never ran, of programs on simulated GPUs, and of others' tools.
fn sources(folder: &Path, others: &[String]) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for seed in 1..=14u64 {
        let ranks = [2, 3, 5, 8, 9, 16, 24, 33, 40, 7, 12, 17, 20, 64][seed as usize - 1];
        let events = [3000, 20_000, 8000, 1500, 4000][seed as usize % 5];
        let path = folder.join(format!("synthetic-{seed}"));
        let mut command = vec!["workload", "--trace-only", "-o", text(&path)];
        let (ranks, events, seed_text) = (ranks.to_string(), events.to_string(), seed.to_string());
        command.extend([
            "--ranks",
            &ranks,
            "--events",
            &events,
            "--seed",
            &seed_text,
            "--slow-rank",
            "1",
        ]);
        if seed % 2 == 0 {
            command.push("--one-host");
        }
        run(&command, &[]).expect("a recording");
        all.push((
            format!("synthetic {ranks} x {events}, seed {seed}"),
            vec![text(&path).to_owned()],
        ));
    }
    for name in ["ddp", "fsdp", "tp", "pp", "3d", "mp", "dp", "ring"] {
        let path = folder.join(name);
        let made = run(
            &[
                "record",
                "--quiet",
                "--device",
                "sim",
                "--sim",
                "SCALE=100",
                "-o",
                text(&path),
                "--",
                "workload",
                name,
                "--ranks",
                "4",
                "--steps",
                "4",
            ],
            &[],
        );
        match made {
            Ok(_) => all.push((format!("workload {name}, 4 ranks"), vec![text(&path).to_owned()])),
            Err(said) => println!("SKIPPED: workload {name}: {}", said.trim()),
        }
    }
    let data = root().join("tests/data");
    for name in ["kineto", "operators"] {
        let mut folders: Vec<PathBuf> = fs::read_dir(data.join(name))
            .expect("test data")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_dir())
            .collect();
        folders.sort();
        for path in folders {
            let short = path.strip_prefix(&data).expect("test data").display().to_string();
            all.push((short, vec![text(&path).to_owned()]));
        }
    }
    for name in ["recording-1.0", "straggler"] {
        all.push((name.to_owned(), vec![text(&data.join(name)).to_owned()]));
    }
    all.extend(others.iter().map(|path| (path.clone(), vec![path.clone()])));
    all
}

/// `partial` of each rank, or file, and `reduce` in a random order and grouping. `None` where that takes clocks to be compared first,
/// which `--on` does itself.
fn by_hand(paths: &[String], ranks: usize, folder: &Path, random: &mut Random) -> Result<String, String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir(folder).expect("a folder");
    let source: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut files: Vec<PathBuf> = Vec::new();
    let mut first = 0;
    while first < ranks {
        let last = (first + random.below(4)).min(ranks - 1);
        let output = folder.join(format!("{first}.partial"));
        let range = format!("{first}..{last}");
        let mut command = vec!["partial"];
        command.extend(&source);
        command.extend(["--ranks", &range, "-o", text(&output)]);
        match run(&command, &[]) {
            Ok(_) => files.push(output),
            Err(said) if said.contains("none of the ranks") => {}
            Err(said) => return Err(said),
        }
        first = last + 1;
    }
    if files.is_empty() {
        let output = folder.join("all.partial");
        run(&[&["partial"], &source[..], &["-o", text(&output)]].concat(), &[])?;
        files.push(output);
    }
    let files = in_groups(files, folder, random, |some, output| {
        let names: Vec<&str> = some.iter().map(|path| text(path)).collect();
        run(&[&["reduce"], &names[..], &["-o", text(output)]].concat(), &[]).map(drop)
    })?;
    let names: Vec<&str> = files.iter().map(|path| text(path)).collect();
    run(&[&["reduce", "--json"], &names[..]].concat(), &[])
}

fn equality(others: &[String]) {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = std::env::var("SPREAD_ENGINES").unwrap_or_else(|_| "local,slurm,ray".to_owned());
    let engines: Vec<Engine> = wanted.split(',').filter_map(engine).collect();
    let mut random = Random(number("SPREAD_SEED", 1));
    print!(
        "{:<44}{:>7}{:>10}{:>9}",
        "the same JSON as `analyze --json`", "ranks", "JSON kB", "by hand"
    );
    engines.iter().for_each(|engine| print!("{:>9}", engine.name));
    println!();
    let (mut differ, mut count) = (0, 0);
    for (name, paths) in sources(folder.path(), others) {
        let source: Vec<&str> = paths.iter().map(String::as_str).collect();
        let whole = match run(&[&["analyze", "--json"], &source[..]].concat(), &[]) {
            Ok(whole) => whole,
            Err(said) => {
                println!("{name:<44} cannot be analysed: {}", said.trim());
                continue;
            }
        };
        count += 1;
        let analysis: Value = serde_json::from_str(&whole).expect("JSON");
        let highest = analysis["ranks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|rank| rank["rank"].as_u64())
            .max();
        let ranks = highest.map_or(0, |highest| highest as usize + 1);
        print!(
            "{name:<44}{:>7}{:>10}",
            analysis["job_ranks"]["here"],
            whole.len() / 1000
        );
        let mut tell = |result: Result<String, String>| {
            let same = result.as_ref() == Ok(&whole);
            differ += usize::from(!same);
            print!("{:>9}", if same { "same" } else { "DIFFERS" });
            if let Err(said) = result {
                print!(" ({})", said.trim());
            }
        };
        tell(by_hand(
            &paths,
            ranks,
            &folder.path().join("partials"),
            &mut random,
        ));
        for engine in &engines {
            let output = folder.path().join("output");
            let _ = fs::remove_dir_all(&output);
            let on = ["--on", &engine.on, "-o", text(&output)];
            let done = run(
                &[&["analyze", "--json"], &source[..], &on].concat(),
                &engine.environment,
            );
            let file = fs::read_to_string(output.join("analysis.json"));
            assert!(
                done.is_err() || file.is_ok_and(|file| Ok(file) == done),
                "the file is another than what was printed"
            );
            tell(done);
        }
        println!();
    }
    println!("{count} runs: {differ} differ");
    assert_eq!(differ, 0);
}

/// Kills one thing of this kind, of ten, while somebody works, and says what.
fn strike(
    kind: usize,
    engine: &mut Engine,
    driver: &mut Child,
    output: &Path,
    random: &mut Random,
) -> Option<&'static str> {
    let workers = processes(&["shard", text(output)]);
    if workers.is_empty() {
        return None;
    }
    match kind {
        0 => {
            driver.kill().expect("it runs");
            Some("driver")
        }
        1 | 2 if engine.name == "slurm" => {
            let node = ["node1", "node2"][random.below(2)];
            let folder = engine.folder.as_ref()?.path();
            let id = fs::read_to_string(folder.join(format!("{node}.pid"))).ok()?;
            // With all that runs on it, as a machine that fails.
            kill(id.trim().parse().ok()?);
            for number in processes(&["slurmstepd"]).into_iter().chain(workers) {
                let variables = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
                let variables = String::from_utf8_lossy(&variables).into_owned();
                if variables.contains(&format!("SLURMD_NODENAME={node}")) {
                    let above = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
                    let above = above
                        .rsplit(')')
                        .next()
                        .and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
                    above
                        .filter(|above| processes(&["slurmstepd"]).contains(above))
                        .into_iter()
                        .for_each(kill);
                    kill(number);
                }
            }
            std::thread::sleep(Duration::from_secs(1));
            engine.cluster.as_mut()?.say(node);
            Some("node")
        }
        1 if engine.name == "ray" => {
            engine.cluster.as_mut()?.say_and_wait("kill");
            Some("node")
        }
        _ => {
            kill(workers[random.below(workers.len())]);
            Some("worker")
        }
    }
}

fn kills(name: &str) {
    let Some(mut engine) = engine(name) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let run_folder = folder.path().join("run");
    run(
        &[
            "workload",
            "--trace-only",
            "-o",
            text(&run_folder),
            "--ranks",
            "16",
            "--events",
            "40000",
            "--slow-rank",
            "5",
        ],
        &[],
    )
    .expect("a recording");
    let began = Instant::now();
    let whole = run(&["analyze", "--json", text(&run_folder)], &[]).expect("an analysis");
    println!(
        "{name}: 16 ranks x 40,000 events on two hosts; `analyze` takes {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let wanted = number("SPREAD_KILLS", 100) as usize;
    let mut random = Random(number("SPREAD_SEED", 1));
    let mut struck: BTreeMap<&str, usize> = BTreeMap::new();
    // About eight in a run, so that now and then a rank is hit three times.
    let pause = (began.elapsed().as_millis() as usize / 8).clamp(100, 1000);
    let mut kind = random.below(10);
    let (mut same, mut less, mut lost, mut drivers) = (0, 0, 0, 0);
    let output = folder.path().join("output");
    while struck.values().sum::<usize>() < wanted {
        let _ = fs::remove_dir_all(&output);
        loop {
            drivers += 1;
            let envs = engine
                .environment
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()));
            let mut command = Command::new(PROGRAM);
            command.args([
                "analyze",
                "--json",
                text(&run_folder),
                "--on",
                &engine.on,
                "-o",
                text(&output),
            ]);
            let file = fs::File::create(folder.path().join("said")).expect("a file");
            let mut driver = command
                .envs(envs)
                .stdout(Stdio::null())
                .stderr(file)
                .spawn()
                .expect("starts");
            let mut next = Instant::now() + Duration::from_millis(random.below(pause) as u64);
            let status = loop {
                if let Some(status) = driver.try_wait().expect("waits") {
                    break status;
                }
                if Instant::now() >= next && struck.values().sum::<usize>() < wanted {
                    let what = strike(kind, &mut engine, &mut driver, &output, &mut random);
                    if let Some(what) = what {
                        *struck.entry(what).or_default() += 1;
                        kind = random.below(10);
                    }
                    let wait = if what.is_some() {
                        pause / 2 + random.below(pause)
                    } else {
                        10
                    };
                    next = Instant::now() + Duration::from_millis(wait as u64);
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            if status.success() {
                break;
            }
            let said = fs::read_to_string(folder.path().join("said")).unwrap_or_default();
            assert!(status.code().is_none(), "{status}: {said}");
        }
        let text = fs::read_to_string(output.join("analysis.json")).expect("an analysis");
        let analysis: Value = serde_json::from_str(&text).expect("JSON");
        let ranks = &analysis["job_ranks"];
        if text == whole {
            same += 1;
        } else {
            less += 1;
            lost += (ranks["of"].as_u64().unwrap_or(0) - ranks["here"].as_u64().unwrap_or(0)) as usize;
            let missing = ranks["missing"].as_array().expect("a list");
            assert!(!missing.is_empty(), "it differs, and nothing is missing");
            for missing in missing {
                let why = missing["why"].as_str().unwrap_or_default();
                assert!(why.contains("three times"), "{missing}");
            }
        }
    }
    let mut parts = 0;
    for entry in fs::read_dir(&output).expect("a folder").flatten() {
        parts += usize::from(
            !["analysis.json", "gputrace-spread.json", "partials"]
                .iter()
                .any(|own| entry.file_name() == *own),
        );
    }
    let left = processes(&["shard", text(&output)]).len();
    println!(
        "{:<10}{:>8}{:>8}{:>8}{:>9}{:>7}{:>12}{:>8}{:>12}{:>10}",
        "",
        "workers",
        "nodes",
        "drivers",
        "drivers",
        "runs",
        "same JSON",
        "n of m",
        "ranks lost",
        "left over"
    );
    println!("{:<10}{:>24}{:>9}", "", "killed", "started");
    let of = |what: &str| struck.get(what).copied().unwrap_or(0);
    println!(
        "{name:<10}{:>8}{:>8}{:>8}{drivers:>9}{:>7}{same:>12}{less:>8}{lost:>12}{:>10}",
        of("worker"),
        of("node"),
        of("driver"),
        same + less,
        parts + left
    );
    assert_eq!(parts + left, 0);
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    match arguments.split_first() {
        Some((what, rest)) if what == "equality" => equality(rest),
        Some((what, rest)) if what == "kills" => rest.iter().for_each(|name| kills(name)),
        _ => {
            equality(&[]);
            kills("local");
        }
    }
}
