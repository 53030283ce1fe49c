//! `gputrace record`: its options, and the small languages of their values.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use gputrace_trace::options::{GraphLevel, Kind, Schedule};

use super::export::{ExportTarget, WritingArgs, parse_target};
use super::values::{DeviceChoice, Ranks, parse_ranks, parse_steps};

/// Steps of a block of --measure-overhead, unless said otherwise.
const OVERHEAD_STEPS: &str = "10";

#[derive(Args, Debug)]
pub struct RecordArgs {
    /// The folder to write, which must not exist yet, unless recorders of one launch share it [default: gputrace-NAME-DATE here]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Which GPU the command gets
    #[arg(long, value_enum, default_value = "auto", value_name = "WHICH")]
    pub device: DeviceChoice,
    /// A setting of the simulated GPU, as SIMGPU_KEY in the command's environment; repeatable
    #[arg(long = "sim", value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub simulation: Vec<(String, String)>,
    /// What to record: kernels, copies, memsets, calls, synchronizations, collectives, ranges, overheads, modules,
    /// devices, host; and memory, proxy, channels, stacks, which cost more and are off. `+memory,-calls` changes that list
    #[arg(long, value_name = "LIST", value_parser = parse_kinds, allow_hyphen_values = true, help_heading = WHAT)]
    pub kinds: Option<Kinds>,
    /// Only these ranks: 0,8 or 0..7 (both counted)
    #[arg(long, value_name = "LIST", value_parser = parse_ranks, help_heading = WHAT)]
    pub ranks: Option<Ranks>,
    /// CUDA graphs by their nodes, or each launch as one row
    #[arg(long, value_parser = parse_graphs, default_value = "node", value_name = "node|graph", help_heading = WHAT)]
    pub graphs: GraphLevel,
    /// Samples of devices and host a second; 0 for none
    #[arg(long, value_name = "HZ", default_value = "10", value_parser = parse_hz, help_heading = WHAT)]
    pub nvml_hz: f64,
    /// Leave W steps alone, warm up for U, record A, and that R times (0, or left out: until the end)
    #[arg(long, value_name = "wait=W,warmup=U,active=A,repeat=R", value_parser = parse_schedule, help_heading = WHEN)]
    pub schedule: Option<Schedule>,
    /// Only these steps, counted from 0: A..B, both counted
    #[arg(long, value_name = "A..B", value_parser = parse_steps, help_heading = WHEN)]
    pub steps: Option<(u64, u64)>,
    /// Only inside NVTX ranges of this name
    #[arg(long, value_name = "NAME", help_heading = WHEN)]
    pub range: Option<String>,
    /// Only between cudaProfilerStart and cudaProfilerStop
    #[arg(long, help_heading = WHEN)]
    pub cuda_profiler_api: bool,
    /// Begin so long after the command
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = WHEN)]
    pub delay: Option<f64>,
    /// Switch recording off after so long; the command runs on
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = WHEN)]
    pub duration: Option<f64>,
    /// Keep the recording below this size by removing the oldest: 500M, 2G
    #[arg(long, value_name = "BYTES", value_parser = parse_max_size, help_heading = WHEN)]
    pub max_size: Option<u64>,
    /// Memory that the collector may use in each process [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, help_heading = WHEN)]
    pub memory: Option<u64>,
    /// Switch off on alternate blocks of STEPS steps, and say what recording costs
    #[arg(long, value_name = "STEPS", num_args = 0..=1, default_missing_value = OVERHEAD_STEPS, value_parser = parse_block, help_heading = WHEN)]
    pub measure_overhead: Option<u64>,
    /// Export too: after each active window of a schedule, or else at the end; repeatable
    #[arg(long = "export", value_name = "FORMAT=OUT", value_parser = parse_target)]
    pub exports: Vec<ExportTarget>,
    #[command(flatten)]
    pub writing: WritingArgs,
    /// Keep in command lines and variables what looks like a secret; without it [redacted] stands there
    #[arg(long)]
    pub keep_arguments: bool,
    /// Share DIR with all recorders that have the same ID; srun's, mpirun's and torchrun's tasks do so without it
    #[arg(long, value_name = "ID")]
    pub join: Option<String>,
    /// Say that the job hangs when no GPU has finished anything for so long though collectives are enqueued; 0 for never
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_hang_after)]
    pub hang_after: HangAfter,
    /// End a command that hangs, as bundled workloads are ended: SIGTERM, and SIGKILL 5 seconds later
    #[arg(long)]
    pub end_on_hang: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// The command, after `--`; `workload NAME` is a bundled one
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const WHAT: &str = "What is recorded";
const WHEN: &str = "When, and how much";

fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value))
            if !key.is_empty()
                && key
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
        {
            Ok((key.to_ascii_uppercase(), value.to_owned()))
        }
        _ => Err("expected KEY=VALUE, for example SCALE=500".to_owned()),
    }
}

/// Kinds to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds(pub BTreeSet<Kind>);

impl Kinds {
    /// Their words.
    pub fn words(&self) -> Vec<String> {
        self.0.iter().map(|kind| kind.name().to_owned()).collect()
    }
}

/// Words with commas: alone they are all that is recorded, with + and - they change what is usual.
pub(super) fn parse_kinds(text: &str) -> Result<Kinds, String> {
    let words: Vec<&str> = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    let is_change = |word: &&&str| word.starts_with(['+', '-']);
    let changes = words.iter().filter(is_change).count();
    if words.is_empty() || changes > 0 && changes < words.len() {
        return Err("expected kinds as kernels,collectives, or changes as +memory,-calls".to_owned());
    }
    let mut kinds: BTreeSet<Kind> = if changes > 0 {
        Kind::ALL.into_iter().filter(|kind| kind.is_usual()).collect()
    } else {
        BTreeSet::new()
    };
    for word in words {
        let name = word.trim_start_matches(['+', '-']);
        let kind = Kind::from_name(name).ok_or_else(|| {
            let known: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
            format!("there is no kind {name}; there are: {}", known.join(", "))
        })?;
        if word.starts_with('-') {
            kinds.remove(&kind);
        } else {
            kinds.insert(kind);
        }
    }
    if kinds.contains(&Kind::Stacks) && !kinds.contains(&Kind::Calls) {
        return Err("stacks are those of calls: record calls, too".to_owned());
    }
    Ok(Kinds(kinds))
}

fn parse_graphs(text: &str) -> Result<GraphLevel, String> {
    match text {
        "node" => Ok(GraphLevel::Node),
        "graph" => Ok(GraphLevel::Graph),
        _ => Err("expected node or graph".to_owned()),
    }
}

/// Most samples a second: each is a dozen calls of the driver for each GPU.
const MOST_HZ: f64 = 100.0;

fn parse_hz(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|hz| (0.0..=MOST_HZ).contains(hz))
        .ok_or_else(|| format!("expected samples a second, 0 to {MOST_HZ}"))
}

fn parse_schedule(text: &str) -> Result<Schedule, String> {
    let wrong = || "expected wait=1,warmup=1,active=3,repeat=2, with at least active=1".to_owned();
    let mut schedule = Schedule::default();
    let mut seen = BTreeSet::new();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        let (key, value) = (key.trim(), value.trim().parse().map_err(|_| wrong())?);
        let place = match key {
            "wait" => &mut schedule.wait,
            "warmup" => &mut schedule.warmup,
            "active" => &mut schedule.active,
            "repeat" => &mut schedule.repeat,
            _ => return Err(wrong()),
        };
        *place = value;
        if !seen.insert(key) {
            return Err(wrong());
        }
    }
    if schedule.active == 0 {
        return Err(wrong());
    }
    Ok(schedule)
}

/// As long as a recording can be.
const MOST_SECONDS: f64 = 1e9;

fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| *seconds > 0.0 && *seconds <= MOST_SECONDS)
        .ok_or_else(|| "expected seconds, for example 30 or 0.5".to_owned())
}

/// Bytes, with K, M, G or T for powers of 1024.
fn parse_bytes(text: &str) -> Option<u64> {
    let upper = text.trim().to_ascii_uppercase();
    let digits = upper.trim_end_matches("IB").trim_end_matches('B');
    let (number, shift) = match digits.char_indices().next_back()? {
        (end, 'K') => (&digits[..end], 10),
        (end, 'M') => (&digits[..end], 20),
        (end, 'G') => (&digits[..end], 30),
        (end, 'T') => (&digits[..end], 40),
        _ => (digits, 0),
    };
    let value: f64 = number.trim().parse().ok()?;
    let bytes = value * (1u64 << shift) as f64;
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}

/// Less holds no whole second of a busy process.
const LEAST_SIZE: u64 = 4 << 20;
/// Less holds no two of CUPTI's buffers.
const LEAST_MEMORY: u64 = 16 << 20;

fn parse_max_size(text: &str) -> Result<u64, String> {
    parse_bytes(text)
        .filter(|bytes| *bytes >= LEAST_SIZE)
        .ok_or_else(|| "expected bytes of at least 4M, for example 500M or 2G".to_owned())
}

fn parse_memory(text: &str) -> Result<u64, String> {
    parse_bytes(text)
        .filter(|bytes| *bytes >= LEAST_MEMORY)
        .ok_or_else(|| "expected bytes of at least 16M, for example 256M".to_owned())
}

fn parse_block(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|steps| *steps > 0)
        .ok_or_else(|| "expected a number of steps, for example 10".to_owned())
}

/// Seconds; `None` for never.
pub type HangAfter = Option<f64>;

fn parse_hang_after(text: &str) -> Result<HangAfter, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(None),
        Ok(seconds) if seconds > 0.0 && seconds <= MOST_SECONDS => Ok(Some(seconds)),
        _ => Err("expected seconds, for example 60, or 0 for never".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hangs_are_looked_for_after_seconds() {
        assert_eq!(parse_hang_after("2.5"), Ok(Some(2.5)));
        assert_eq!(parse_hang_after("0"), Ok(None));
        for wrong in ["-1", "nan", "inf", "soon", ""] {
            assert!(parse_hang_after(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_are_keys_and_values() {
        assert_eq!(
            parse_setting("scale=500"),
            Ok(("SCALE".to_owned(), "500".to_owned()))
        );
        assert_eq!(
            parse_setting("SLOW=rank:1=2"),
            Ok(("SLOW".to_owned(), "rank:1=2".to_owned()))
        );
        assert!(parse_setting("=5").is_err());
        assert!(parse_setting("A B=5").is_err());
    }

    #[test]
    fn kinds_are_a_list_or_changes_of_the_usual_one() {
        let only = parse_kinds("kernels, collectives").expect("kinds").0;
        assert_eq!(only, [Kind::Kernels, Kind::Collectives].into());
        let changed = parse_kinds("+memory,-calls").expect("kinds").0;
        assert!(changed.contains(&Kind::Memory) && changed.contains(&Kind::Kernels));
        assert!(!changed.contains(&Kind::Calls) && !changed.contains(&Kind::Proxy));
        let wrong = parse_kinds("kernels,colectives").expect_err("no such kind");
        assert!(
            wrong.contains("colectives") && wrong.contains("memsets, calls"),
            "{wrong}"
        );
        for wrong in ["", ",", "kernels,+memory"] {
            assert!(parse_kinds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_schedule_has_active_steps() {
        let schedule = Schedule {
            wait: 1,
            warmup: 2,
            active: 3,
            repeat: 4,
        };
        assert_eq!(parse_schedule("wait=1,warmup=2,active=3,repeat=4"), Ok(schedule));
        let short = Schedule {
            active: 3,
            ..Schedule::default()
        };
        assert_eq!(parse_schedule("active=3"), Ok(short));
        for wrong in [
            "",
            "wait=1",
            "active=0",
            "active=1,active=2",
            "active=x",
            "skip=1,active=1",
        ] {
            assert!(parse_schedule(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("1000"), Some(1000));
        assert_eq!(parse_bytes("1.5k"), Some(1536));
        assert_eq!(parse_bytes("2G"), Some(2 << 30));
        assert_eq!(parse_bytes("2GiB"), Some(2 << 30));
        assert_eq!(parse_bytes("10MB"), Some(10 << 20));
        for wrong in ["", "G", "-1", "nan", "1e300", "many"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
        assert!(parse_max_size("1M").is_err());
    }
}
