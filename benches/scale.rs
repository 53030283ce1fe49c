//! What analysing a job costs by its ranks: CPU an event, peak memory and time, of recordings that were never run.
//!
//!     cargo bench --bench scale                               10 x 100,000, 100 x 10,000, 1,000 x 1,000
//!     cargo bench --bench scale -- 10x1000000 100x100000 1000x100000
//!     cargo bench --bench scale -- plot 20000                 10 to 1,000 ranks x 20,000: whether cost is linear in ranks
//!     cargo bench --bench scale -- one-host 1000x100000       all ranks on one host; partials of 50 ranks each, all of them
//!
//! | variable | what it does |
//! |---|---|
//! | `SCALE_FOLDER=DIR` | recordings and partials are made there, and removed; 100,000,000 events take about 1.5 GB |
//! | `SCALE_PARTIALS=n` | ranks of each job of which partials are made and put together, one a rank; 50 |
//!
//! Each line is a whole run of the program. CPU and memory are those of its process (`wait4`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a run of the program took, or several.
#[derive(Default)]
struct Cost {
    cpu_s: f64,
    wall_s: f64,
    peak_mib: f64,
    output: u64,
}

impl Cost {
    /// Takes in a run that wrote a file.
    fn add(&mut self, other: &Self, file: &Path) {
        self.cpu_s += other.cpu_s;
        self.wall_s += other.wall_s;
        self.peak_mib = self.peak_mib.max(other.peak_mib);
        self.output += std::fs::metadata(file).map_or(0, |about| about.len());
    }
}

/// Runs the program, its output going to a file.
fn run(arguments: &[&str], output: &Path) -> Cost {
    let began = Instant::now();
    let file = std::fs::File::create(output).expect("a file for the output");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gputrace"));
    command.args(arguments).stdout(file).stderr(Stdio::null());
    #[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
    let child = command.spawn().expect("starts");
    let mut status = 0;
    // SAFETY: all zeros are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the process is our child, which nobody else waits for, and both pointers are to locals.
    let waited = unsafe { libc::wait4(child.id().cast_signed(), &raw mut status, 0, &raw mut usage) };
    assert!(waited > 0 && status == 0, "{arguments:?}: status {status}");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Cost {
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        wall_s: began.elapsed().as_secs_f64(),
        peak_mib: usage.ru_maxrss as f64 / 1024.0,
        output: std::fs::metadata(output).map_or(0, |about| about.len()),
    }
}

/// Bytes of all files in a folder's folders.
fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes_in(&entry.path()),
            _ => entry.metadata().map_or(0, |about| about.len()),
        })
        .sum()
}

fn rows_in(folder: &Path) -> u64 {
    let recording = gputrace_trace::recording::Pieces::open(folder).expect("a recording");
    let headers = (0..recording.len()).map(|place| recording.header(place));
    headers.map(|header| header.rows.values().sum::<u64>()).sum()
}

/// Writes a recording, and gives the cost of that.
fn write(path: &str, (ranks, events): (u64, u64), output: &Path, more: &[&str]) -> Cost {
    let (ranks_text, events_text) = (ranks.to_string(), events.to_string());
    let slow = (ranks / 3).to_string();
    let mut arguments = vec!["workload", "--trace-only", "-o", path];
    arguments.extend([
        "--ranks",
        &ranks_text,
        "--events",
        &events_text,
        "--slow-rank",
        &slow,
    ]);
    run(&[&arguments, more].concat(), output)
}

/// Cost by ranks: a table with a bar for CPU a row, which is as long everywhere if cost is linear.
fn plot(root: &Path, events: u64) {
    const WIDTH: f64 = 50.0;
    let (recording, output) = (root.join("recording"), root.join("output"));
    let path = recording.to_str().expect("a name");
    println!("ranks x {events} rows: `analyze --json`");
    println!(
        "{:>6}{:>13}{:>9}{:>9}{:>10}  CPU a row",
        "ranks", "rows", "CPU s", "ns/row", "peak MiB"
    );
    let mut longest: Option<f64> = None;
    for ranks in [10, 20, 50, 100, 200, 500, 1000] {
        write(path, (ranks, events), &output, &[]);
        let rows = rows_in(&recording);
        let cost = run(&["analyze", path, "--json"], &output);
        let each = cost.cpu_s * 1e9 / rows as f64;
        let unit = *longest.get_or_insert(each);
        let bar = "#".repeat((each / unit * WIDTH / 2.0).round() as usize);
        println!(
            "{ranks:>6}{rows:>13}{:>9.2}{each:>9.0}{:>10.0}  {bar}",
            cost.cpu_s, cost.peak_mib
        );
        std::fs::remove_dir_all(&recording).expect("removed");
    }
}

/// All ranks on one host: whole, and by partials of some ranks.
fn one_host(root: &Path, (ranks, events): (u64, u64)) {
    const EACH: u64 = 50;
    let (recording, output) = (root.join("recording"), root.join("output"));
    let path = recording.to_str().expect("a name");
    write(path, (ranks, events), &output, &["--one-host"]);
    let rows = rows_in(&recording);
    println!(
        "{ranks} x {events} on one host: {rows} rows, {:.0} MB",
        bytes_in(&recording) as f64 / 1e6
    );
    let say = |what: &str, cost: &Cost, megabytes: f64| {
        println!(
            "  {what:<26}CPU {:.1} s, {:.0} MiB, {:.1} s; {megabytes:.1} MB",
            cost.cpu_s, cost.peak_mib, cost.wall_s
        );
    };
    let whole = run(&["analyze", path, "--json"], &output);
    say("analyze --json", &whole, whole.output as f64 / 1e6);
    let text = std::fs::read(&output).expect("an analysis");
    let analysis: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let collectives = analysis["collectives"].as_array().expect("a list");
    let sides: usize = collectives
        .iter()
        .filter_map(|one| Some(one["ranks"].as_array()?.len()))
        .sum();
    drop(analysis);
    let mut sum = Cost::default();
    let mut files = Vec::new();
    for first in (0..ranks).step_by(EACH as usize) {
        let file = root.join(format!("{first}.partial"));
        let name = file.to_str().expect("a name").to_owned();
        let range = format!("{first}..{}", (first + EACH).min(ranks) - 1);
        let cost = run(&["partial", path, "--ranks", &range, "-o", &name], &output);
        sum.add(&cost, &file);
        files.push(name);
    }
    say(
        &format!("{} partials", files.len()),
        &sum,
        sum.output as f64 / 1e6,
    );
    let mut arguments = vec!["reduce", "--json"];
    arguments.extend(files.iter().map(String::as_str));
    let reduced = run(&arguments, &output);
    say("reduce --json of these", &reduced, reduced.output as f64 / 1e6);
    let same = std::fs::read(&output).is_ok_and(|reduced| reduced == text);
    println!(
        "  {}; {sides} parts in collectives: {:.1} % of the rows, {:.0} bytes of `reduce`'s peak each, {:.1} us of its CPU; {:.0} kB of partial a rank",
        if same { "the same JSON" } else { "ANOTHER JSON" },
        sides as f64 * 100.0 / rows as f64,
        reduced.peak_mib * 1048576.0 / sides as f64,
        reduced.cpu_s * 1e6 / sides as f64,
        sum.output as f64 / 1e3 / ranks as f64,
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let shapes: Vec<(u64, u64)> = arguments
        .iter()
        .filter_map(|shape| {
            let (ranks, events) = shape.split_once('x')?;
            Some((ranks.parse().ok()?, events.parse().ok()?))
        })
        .collect();
    let shapes = match shapes.as_slice() {
        [] => vec![(10, 100_000), (100, 10_000), (1000, 1000)],
        _ => shapes,
    };
    let partials: u64 = std::env::var("SCALE_PARTIALS")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(50);
    let root = match std::env::var_os("SCALE_FOLDER") {
        Some(folder) => tempfile::tempdir_in(PathBuf::from(folder)),
        None => tempfile::tempdir(),
    };
    let root = root.expect("a folder");
    match arguments.first().map(String::as_str) {
        Some("plot") => {
            let events = arguments.get(1).and_then(|events| events.parse().ok());
            return plot(root.path(), events.unwrap_or(10_000));
        }
        Some("one-host") => return shapes.iter().for_each(|shape| one_host(root.path(), *shape)),
        _ => {}
    }
    println!(
        "{:<16}{:>13}{:>10}{:>9}{:>10}{:>9}{:>10}{:>9}{:>10}",
        "", "rows", "MB", "CPU s", "ns/row", "ratio", "peak MiB", "wall s", "out MB"
    );
    let mut first = None;
    for (ranks, events) in shapes {
        let recording = root.path().join("recording");
        let output = root.path().join("output");
        let path = recording.to_str().expect("a name");
        let made = write(path, (ranks, events), &output, &[]);
        let (rows, bytes) = (rows_in(&recording), bytes_in(&recording));
        let line = |what: &str, rows: u64, bytes: u64, cost: &Cost, ratio: Option<f64>| {
            println!(
                "{what:<16}{rows:>13}{:>10.1}{:>9.2}{:>10.0}{:>9}{:>10.0}{:>9.2}{:>10.1}",
                bytes as f64 / 1e6,
                cost.cpu_s,
                cost.cpu_s * 1e9 / rows as f64,
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                cost.peak_mib,
                cost.wall_s,
                cost.output as f64 / 1e6,
            );
        };
        println!("{ranks} x {events}");
        line("  written", rows, bytes, &made, None);
        let analysed = run(&["analyze", path, "--json"], &output);
        let each = analysed.cpu_s / rows as f64;
        let ratio = each / *first.get_or_insert(each);
        line("  analyze", rows, bytes, &analysed, Some(ratio));
        // One of each rank; their clocks were compared once.
        let count = partials.min(ranks);
        let mut sum = Cost::default();
        let mut files = Vec::new();
        for rank in 0..count {
            let file = root.path().join(format!("{rank}.partial"));
            let range = format!("{rank}..{rank}");
            let name = file.to_str().expect("a name").to_owned();
            let cost = run(
                &[
                    "partial", path, "--ranks", &range, "--clocks", "none", "-o", &name,
                ],
                &output,
            );
            sum.add(&cost, &file);
            files.push(name);
        }
        line(
            "  partials",
            rows * count / ranks,
            bytes * count / ranks,
            &sum,
            None,
        );
        let mut arguments = vec!["reduce", "--json", "--clocks", "none"];
        arguments.extend(files.iter().map(String::as_str));
        let reduced = run(&arguments, &output);
        line("  reduce", rows * count / ranks, sum.output, &reduced, None);
        std::fs::remove_dir_all(&recording).expect("removed");
        files
            .iter()
            .for_each(|file| std::fs::remove_file(file).expect("removed"));
    }
}
