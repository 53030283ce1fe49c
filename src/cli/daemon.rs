//! The daemon's commands.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::record::{Kinds, parse_kinds};
use super::server::ServerArgs;
use super::values::{Ranks, parse_ranks};

/// Days of seconds are enough for anything.
const MOST_SECONDS: f64 = 86_400.0;

#[derive(Args, Debug)]
pub struct DaemonArgs {
    /// For your own jobs alone, without any rights; else for all users of this machine
    #[arg(long)]
    pub user: bool,
    /// The configuration [default: /etc/gputrace/daemon.toml, or ~/.config/gputrace/daemon.toml with --user, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder of rings and captures, on a local disk [default: /var/lib/gputrace, or ~/.local/state/gputrace with --user]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The socket [default: /run/gputrace/daemon.sock, or one in XDG_RUNTIME_DIR with --user]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// How much of each job is recorded all the time [default: the configuration's, or steps]
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<ModeChoice>,
    /// Answer Prometheus at this address, /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Print the configuration that is usual, for a file of your own, and end
    #[arg(long)]
    pub print_config: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// How much of a job is recorded all the time.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeChoice {
    /// Steps, ranges and collectives, by NCCL and NVTX; CUPTI is left alone
    Steps,
    /// That, and the kernels of one step in some
    Sampled,
    /// Everything
    Full,
}

/// Which daemon.
#[derive(Args, Debug)]
pub struct SocketArgs {
    /// The daemon's socket [default: GPUTRACE_SOCKET, or your own daemon's, or the machine's]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct JobsArgs {
    /// Print one JSON object (schema gputrace.jobs/1) instead of a table
    #[arg(long)]
    pub json: bool,
    /// The recordings that were kept instead of the jobs (gputrace.captures/1)
    #[arg(long)]
    pub captures: bool,
    /// Keep this recording whatever the rules say
    #[arg(long, value_name = "RECORDING", conflicts_with = "unpin")]
    pub pin: Option<String>,
    /// Let this recording go when its time is over
    #[arg(long, value_name = "RECORDING")]
    pub unpin: Option<String>,
    /// Copy this recording into the folder of --output
    #[arg(long, value_name = "RECORDING", requires = "output", conflicts_with_all = ["json", "captures", "pin", "unpin"])]
    pub fetch: Option<String>,
    /// Where --fetch copies to; it must not exist yet
    #[arg(short, long, value_name = "DIR", requires = "fetch")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub socket: SocketArgs,
}

#[derive(Args, Debug)]
pub struct CaptureArgs {
    /// The job, or the beginning of its name [default: the only one there is]
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// From the next step that begins, so many [default: 5, without --for]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// For so long: 10s, 500ms, 2m; with --steps at most
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub seconds: Option<f64>,
    /// Only these ranks: 0,8 or 0..7
    #[arg(long, value_name = "LIST", value_parser = parse_ranks)]
    pub ranks: Option<Ranks>,
    /// Only these kinds, or changes of the usual ones, as of `gputrace record`: kernels,copies or +memory,-calls
    #[arg(long, value_name = "LIST", value_parser = parse_kinds, allow_hyphen_values = true)]
    pub kinds: Option<Kinds>,
    /// Wait until it is done, and say what is in it
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub kept: KeptArgs,
}

#[derive(Args, Debug)]
pub struct SnapshotArgs {
    /// The job, or the beginning of its name [default: the only one there is]
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// Of the last so long: 60s, 2m [default: all that the ring holds]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub last: Option<f64>,
    #[command(flatten)]
    pub kept: KeptArgs,
}

/// What becomes of a recording that the daemon has kept.
#[derive(Args, Debug)]
pub struct KeptArgs {
    /// Wait for it, and copy it into this folder, which must not exist yet
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Print one JSON object (schema gputrace.capture/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub socket: SocketArgs,
}

#[derive(Args, Debug)]
pub struct TopArgs {
    /// The job, or the beginning of its name [default: the only one there is]
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// Print it once, and end; also when stdout is no terminal
    #[arg(long)]
    pub once: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_time)]
    pub every: f64,
    #[command(flatten)]
    pub socket: SocketArgs,
}

#[derive(Args, Debug)]
pub struct TriggersArgs {
    /// A job, whose findings are listed; with --test a job, a recording or a trace
    #[arg(value_name = "JOB|PATH")]
    pub what: Option<PathBuf>,
    /// Say what would have fired over a recording, or what the ring of a job holds
    #[arg(long, requires = "what")]
    pub test: bool,
    /// The configuration whose rules are tried [default: the usual ones]
    #[arg(long, value_name = "FILE", requires = "test")]
    pub config: Option<PathBuf>,
    /// Print one JSON object (schema gputrace.triggers/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub socket: SocketArgs,
    #[command(flatten)]
    pub import: super::ImportArgs,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct EnvArgs {
    /// Lines for a shell, or a profile
    #[arg(long)]
    pub shell: bool,
    /// A TaskProlog for Slurm
    #[arg(long)]
    pub slurm: bool,
    /// Manifests for Kubernetes: the daemon on each node, and the policy that has pods watched
    #[arg(long)]
    pub kubernetes: bool,
}

/// A time as 10s, 500ms, 2m or 1h; a number alone is seconds.
fn parse_time(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "" | "s" => Some(1.0),
        "ms" => Some(1e-3),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let value: Option<f64> = number.trim().parse().ok();
    value
        .zip(factor)
        .map(|(value, factor)| value * factor)
        .filter(|seconds| *seconds > 0.0 && *seconds <= MOST_SECONDS)
        .ok_or_else(|| "expected a time, for example 10s, 500ms or 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, seconds) in [
            ("10s", 10.0),
            ("500ms", 0.5),
            ("2m", 120.0),
            ("1h", 3600.0),
            ("7", 7.0),
        ] {
            assert_eq!(parse_time(text), Ok(seconds));
        }
        for wrong in ["", "s", "0", "-1s", "1d", "1e99", "nan", "10 years"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
