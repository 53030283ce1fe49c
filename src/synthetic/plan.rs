//! What a synthetic job is.

use std::path::PathBuf;

use clap::Parser;

/// GPUs of a host.
pub const GPUS: u32 = 8;

/// Write a recording of a simulated job without running anything
#[derive(Parser, Clone, Debug)]
#[command(
    name = "gputrace workload --trace-only",
    disable_version_flag = true,
    after_help = "\
Examples:
  gputrace workload --trace-only -o run1 --ranks 16 --events 20000
  gputrace workload --trace-only -o big --ranks 1000 --events 100000 --slow-rank 417
  gputrace workload --trace-only -o part --ranks 1000 --events 1000000 --write 0..49

The job trains a transformer sharded over the 8 GPUs of each host and replicated over hosts. Times are those of a simple model of an \
H200 and its links, and everything says that it is simulated."
)]
pub struct Plan {
    /// The folder to make, which must not exist yet
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Ranks of the job
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub ranks: u32,
    /// Rows of each rank's tables, at least; whole steps are written
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub events: u64,
    /// Layers of the network
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub layers: u32,
    /// A rank whose GPU is slower
    #[arg(long, value_name = "RANK")]
    pub slow_rank: Option<u32>,
    /// How many times longer its kernels take
    #[arg(long, default_value_t = 1.25, value_name = "TIMES")]
    pub slow_by: f64,
    /// A rank whose host pauses at every fourth step
    #[arg(long, value_name = "RANK")]
    pub pausing_rank: Option<u32>,
    /// For how long, nanoseconds
    #[arg(long, default_value_t = 30_000_000, value_name = "NS", value_parser = clap::value_parser!(i64).range(0..))]
    pub pause_ns: i64,
    /// Write these ranks alone, FIRST..LAST; the job is the whole one
    #[arg(long, value_name = "FIRST..LAST", value_parser = crate::cli::parse_steps)]
    pub write: Option<(u64, u64)>,
    /// All ranks on one host, by name and clock
    #[arg(long)]
    pub one_host: bool,
    /// Another seed is another job of the same kind
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Plan {
    /// How many hosts it runs on.
    pub fn hosts(&self) -> u32 {
        self.ranks.div_ceil(GPUS)
    }

    /// The name of a rank's host.
    pub fn host_of(&self, rank: u32) -> String {
        match self.one_host {
            true => "sim-0".to_owned(),
            false => format!("sim-{}", rank / GPUS),
        }
    }
}
