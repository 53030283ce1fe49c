//! The command line: what can be typed, with its help.

pub mod compare;
mod daemon;
#[cfg(test)]
mod documents;
mod export;
mod record;
mod scale;
mod server;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use compare::{BaselineArgs, BaselineCommand, CheckArgs, DiffArgs};
pub use daemon::{
    CaptureArgs, DaemonArgs, EnvArgs, JobsArgs, KeptArgs, ModeChoice, SnapshotArgs, SocketArgs, TopArgs,
    TriggersArgs,
};
pub use export::{ExportArgs, ExportFormat, ExportTarget, PartArgs, WritingArgs};
pub use record::{Kinds, RecordArgs};
pub use scale::{On, PartialArgs, ReduceArgs, ShardArgs};
pub use server::ServerArgs;
pub use values::{DeviceChoice, ImportArgs, SortChoice, parse_steps};

/// Why a multi-GPU training job is slow: record it, analyse it, hand it on.
#[derive(Parser, Debug)]
#[command(name = "gputrace", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Without one: what to do next on this machine.
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  gputrace record -- workload ddp                 a bundled run, simulated where there is no GPU
  gputrace record -o run1 -- torchrun --nproc-per-node 8 train.py
  gputrace analyze run1                           the tables again
  gputrace analyze run1 --json | jq '.ranks[].overlap_ratio'
  gputrace analyze traces/                        a folder of PyTorch traces, one a rank
  gputrace analyze report.sqlite                  an Nsight Systems export
  gputrace export run1 --format chrome -o run1.json.gz
  gputrace view run1                              the same in the browser, with a timeline
  gputrace diff run1 run2                         what changed, and how sure that is
  gputrace check run1 --budget budget.toml        a gate for CI: exit status 1 when over
  gputrace merge node0/run1 node1/run1 -o run1    parts of one run from several hosts
  gputrace demo                                   a recording that comes with gputrace, in the browser
  gputrace doctor                                 what this machine has and lacks";

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a command and record what its GPUs do
    #[command(after_help = "\
Examples:
  gputrace record -- workload ddp --ranks 4
  gputrace record --sim SCALE=500 --sim SEED=7 -- workload ddp
  gputrace record -o run1 -- torchrun --nproc-per-node 8 train.py
  gputrace record -- mpirun -n 8 ./train
  srun gputrace record -o run1 -- ./train         one recorder a task, one recording

Parts of a run:
  gputrace record --schedule wait=5,warmup=1,active=3,repeat=2 -- python train.py
  gputrace record --steps 100..120 -- python train.py
  gputrace record --delay 60 --duration 30 -- python train.py
  gputrace record --max-size 2G -- python train.py              the newest 2 GiB
  gputrace record --kinds +memory,-calls --ranks 0,8 -- torchrun --nproc-per-node 8 train.py
  gputrace record --kinds +stacks -- ./train                    which functions launched what: analyze --by stack
  kill -USR1 RECORDER                             switches recording on and off

Formats of other tools, after each active window of the schedule or at the end:
  gputrace record --schedule wait=5,active=3,repeat=2 --export chrome=trace.json.gz -- python train.py

The exit status is the command's own: 128 + signal when a signal ended it, 127 when it was not found, \
and 124 when it hung and was ended for that.")]
    Record(Box<RecordArgs>),
    /// Run a bundled training program without recording it
    #[command(disable_help_flag = true)]
    Workload(WorkloadArgs),
    /// Show what a recording or a trace says: overlap, idle time, kernels, collectives
    #[command(after_help = "\
Examples:
  gputrace analyze run1
  gputrace analyze traces/                       PyTorch traces, one file a rank (.json, .gz, .zst)
  gputrace analyze rank0.json.gz rank1.json.gz   the same, named one by one
  gputrace analyze report.sqlite                 nsys export --type sqlite report.nsys-rep
  gputrace analyze run1 --explain                why each kernel counts as what it does
  gputrace analyze run1 --tables out/            every table as Parquet and CSV
  gputrace analyze traces/ --by operator         what each operator of PyTorch launched (shape, product, module, stack, memory, ...)
  gputrace analyze run1 --steps 5..20 --sort mean --top 30
  gputrace analyze run1 --json > run1.analysis.json
  gputrace analyze run1 --on slurm -o run1-analysis    read by workers of a cluster (ray, slurm) or by processes (local)")]
    Analyze(AnalyzeArgs),
    /// What is known of some ranks of a run, as a file: to be put together with that of the others
    #[command(after_help = scale::PARTIAL_EXAMPLES)]
    Partial(PartialArgs),
    /// Put partials together: what `analyze` says of the whole run
    #[command(after_help = scale::REDUCE_EXAMPLES)]
    Reduce(ReduceArgs),
    /// What a worker of `analyze --on` runs
    #[command(hide = true)]
    Shard(ShardArgs),
    /// Say what a step would take if something were different
    #[command(
        name = "whatif",
        after_help = "\
Examples:
  gputrace whatif run1                                every single change that is worth trying, best first
  gputrace whatif run1 --set rank:2=as-others         rank 2 as fast as the other ranks
  gputrace whatif run1 --set 'kernel:*gemm*=0.8x' --set communication=0.5x
  gputrace whatif run1 --set host:synchronization*=none --steps 5..20 --json

TARGET is kernel:GLOB, collective:NAME, communication, communicator:NAME, copy:HtoD, rank:N (or rank:2,3), host, host:NAME (what \
`analyze` calls it in host_late_by) or idle:CAUSE (host_late, nothing_submitted, peer_wait, launch_latency, unexplained).
CHANGE is 0.8x, none, +5us (ns, us, ms, s; -5us) or as-others: the median of its peers at the same place."
    )]
    WhatIf(WhatIfArgs),
    /// Say what changed between two runs, and how sure that is
    #[command(after_help = "\
Examples:
  gputrace diff before after
  gputrace diff before after --by kernel          every kernel, slower ones first (operator, module, collective, step, rank)
  gputrace diff --a a1 --a a2 --a a3 --b b1 --b b2 --b b3    several runs a side: how much runs differ by themselves
  gputrace diff main after --json                 a saved baseline, by its name
  gputrace diff h100/ mi300/ --by operator        PyTorch traces of two kinds of GPUs

Steps are the sample: medians with 95 % confidence intervals. Of the rows called slower or faster at most one in twenty is not.")]
    Diff(DiffArgs),
    /// Hold a run against a budget: exit status 1 when over, 2 when it can't be judged
    #[command(after_help = "\
Examples:
  gputrace check --init run1 --budget budget.toml      a budget that run1 is within, with room for its noise
  gputrace check run2 --budget budget.toml
  gputrace check run2 --budget budget.toml --baseline main --junit junit.xml --markdown summary.md

A budget:
  step.p50 <= \"120ms\"
  step.p50 <= \"+3%\"                      against --baseline
  overlap.min >= 0.6                      of all ranks; also .worst, .mean, .max, .rank3
  exposed_communication.ratio <= 0.1      of the step
  idle.host_late <= \"5ms\"
  kernel.\"flash_fwd*\".mean <= \"80us\"
  arrivals.skew.p99 <= \"200us\"
  lost.rows = 0

Where GitHub runs it, limits that are not kept become annotations, and the table stands in the job's summary.")]
    Check(CheckArgs),
    /// Save what a run took in a small file, to compare later runs with
    #[command(after_help = "\
Examples:
  gputrace baseline save main run1       gputrace-baselines/main.json, small enough to be committed
  gputrace baseline list
  gputrace diff main run2")]
    Baseline(BaselineArgs),
    /// Write a recording in another tool's format
    #[command(after_help = "\
Examples:
  gputrace export run1 --format chrome -o run1.json      for Perfetto and chrome://tracing
  gputrace export run1 --format chrome -o run1.json.gz   the same, compressed
  gputrace export run1 --format chrome -o run1-ranks     a folder with a file a rank, for Holistic Trace Analysis
  gputrace export run1 --format chrome --steps 5..7 --ranks 0,8 -o part.json
  gputrace export run1 --format chrome --range 2.5..3 -o - | gzip > part.json.gz")]
    Export(ExportArgs),
    /// Look at recordings and traces in the browser
    #[command(after_help = "\
Examples:
  gputrace view run1
  gputrace view run1 run2                        two recordings, to be compared
  gputrace view traces/                          PyTorch traces of one run, one file a rank
  gputrace view rank0.json.gz rank1.json.gz      the same, named one by one
  gputrace view report.sqlite                    an Nsight Systems export
  gputrace view *.partial                        a run of many ranks, from partials of it
  gputrace view run1 --no-open --port 7100       for `ssh -L 7100:127.0.0.1:7100 HOST`

Folders are recordings of their own, and files named together are one run; --together and --apart say otherwise. \
A recording that is still written is followed.

The address has a token in it: without it the server answers nobody. GPUTRACE_TOKEN sets it for scripts, which send it \
as `Authorization: Bearer TOKEN`; /api/openapi.json describes what they can ask.")]
    View(ViewArgs),
    /// Look at a recording that comes with gputrace: a pipeline of four simulated GPUs, one of them late
    #[command(after_help = "\
Examples:
  gputrace demo
  gputrace demo --output demo                    only write it there: gputrace analyze demo")]
    Demo(DemoArgs),
    /// The same for a folder: its recordings, those that are still to come too
    #[command(after_help = "\
Examples:
  gputrace serve --dir /scratch/runs
  GPUTRACE_TOKEN=$(cat token) gputrace serve --dir runs --listen 10.0.0.5 --host-name node7")]
    Serve(ServeArgs),
    /// Watch the GPU jobs of this machine, and keep what matters of them
    #[command(after_help = "\
Examples:
  gputrace daemon --user                         your own jobs, without any rights
  gputrace daemon --user --mode full --port 7007     everything in the ring, and the pages of `gputrace serve`
  gputrace daemon --metrics 127.0.0.1:9470       Prometheus
  gputrace daemon --print-config > daemon.toml   the rules, to be changed

Jobs join when CUDA_INJECTION64_PATH names the collector: `gputrace env --shell` prints what to paste.")]
    Daemon(Box<DaemonArgs>),
    /// List the jobs that the daemon watches, or what it has kept
    #[command(after_help = "\
Examples:
  gputrace jobs
  gputrace jobs --json | jq '.jobs[].step_ns'
  gputrace jobs --captures                       the recordings that were kept
  gputrace jobs --pin ddp-4711-20261123-213000-hang")]
    Jobs(JobsArgs),
    /// Record the kernels of a running job for a while
    #[command(after_help = "\
Examples:
  gputrace capture ddp-4711 --steps 5 -o slow
  gputrace capture slurm-1234 --for 10s --ranks 0..7 --wait

Exit status 1 when no job is meant by that name.")]
    Capture(CaptureArgs),
    /// Keep what the ring of a job holds: the moments before now
    #[command(after_help = "\
Examples:
  gputrace snapshot
  gputrace snapshot ddp-4711 --last 60s -o before")]
    Snapshot(SnapshotArgs),
    /// Watch a job's ranks in the terminal
    Top(TopArgs),
    /// List the rules and what they found, or try them over a recording
    #[command(after_help = "\
Examples:
  gputrace triggers
  gputrace triggers ddp-4711
  gputrace triggers run1 --test --config daemon.toml")]
    Triggers(TriggersArgs),
    /// Print what makes jobs come to be watched, to be pasted
    #[command(after_help = "\
Examples:
  gputrace env --shell > gputrace.sh             a line for a shell or a profile
  gputrace env --slurm > /etc/slurm/task_prolog
  gputrace env --kubernetes | kubectl apply -f -")]
    Env(EnvArgs),
    /// Put the parts of one run together that were recorded on several hosts
    #[command(after_help = "\
Examples:
  gputrace merge run1-node0 run1-node1 -o run1
  gputrace merge /scratch/*/run1 -o run1

Nothing is rewritten: files are linked where the disk allows it, and copied where not.")]
    Merge(MergeArgs),
    /// Say what this machine has, and what to do about what it lacks
    Doctor(DoctorArgs),
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  gputrace completions bash > ~/.local/share/bash-completion/completions/gputrace
  gputrace completions zsh > ~/.zfunc/_gputrace
  gputrace completions fish > ~/.config/fish/completions/gputrace.fish")]
    Completions(CompletionsArgs),
    /// Print a page of the manual
    #[command(after_help = "\
Examples:
  gputrace man | man -l -
  gputrace man record > gputrace-record.1
  gputrace man --output ~/.local/share/man/man1 --parents
  gputrace man workload ddp | man -l -")]
    Man(ManArgs),
}

#[derive(Args, Debug)]
pub struct WorkloadArgs {
    /// The workload's name and options, or --list, or --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "NAME")]
    pub arguments: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct AnalyzeArgs {
    /// Recordings, Kineto or Chrome JSON files (- reads one from standard input), Nsight Systems SQLite exports, or folders of them: one run together
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Print one JSON object (schema gputrace.analysis/1) instead of tables
    #[arg(long)]
    pub json: bool,
    /// Only these steps: A..B, both counted
    #[arg(long, value_name = "A..B", value_parser = parse_steps)]
    pub steps: Option<(u64, u64)>,
    /// Print one table alone: what the GPUs did by who launched it
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "json")]
    pub by: Option<crate::report::By>,
    /// Order of the kernels
    #[arg(long, value_enum, default_value = "total", value_name = "BY")]
    pub sort: SortChoice,
    /// How many kernels, or rows of --by's table, to show [default: 10 in tables, 50 with --by, all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Put kernels together that are the same in short: without parameters and template arguments
    #[arg(long)]
    pub short_names: bool,
    /// Show kernels' whole names in tables; JSON has them anyway
    #[arg(long, conflicts_with_all = ["short_names", "json"])]
    pub full_names: bool,
    /// Clocks of several hosts: estimate (by what their ranks did together), none (compare nothing between them), or a JSON file of
    /// hosts: {"HOST": {"offset_ns": 1500, "drift": 2e-6}, ...}
    #[arg(long, value_name = "none|estimate|FILE", default_value = "estimate")]
    pub clocks: PathBuf,
    /// Say of each name why it counts as compute, communication, copy or memset
    #[arg(long)]
    pub explain: bool,
    /// Write every table as DIR/NAME.parquet and DIR/NAME.csv too
    #[arg(long, value_name = "DIR")]
    pub tables: Option<PathBuf>,
    /// Replace the tables in DIR, if nothing else is in it
    #[arg(long, requires = "tables")]
    pub force: bool,
    /// Have ranks read by workers of a Ray cluster, of a Slurm partition, or by N processes of this machine: see docs/scale.md
    #[arg(long, value_name = "ray[:ADDRESS]|slurm[:PARTITION]|local[:N]", value_parser = scale::parse_on, requires = "output")]
    pub on: Option<On>,
    /// With --on: the folder that the analysis and the partials go to, where it goes on if it was ended. Workers have to see it
    #[arg(short, long, value_name = "OUT", requires = "on")]
    pub output: Option<PathBuf>,
    /// With --on: gputrace as workers find it [default: the same file as here]
    #[arg(long, value_name = "PROGRAM", requires = "on")]
    pub worker: Option<PathBuf>,
    #[command(flatten)]
    pub writing: WritingArgs,
    #[command(flatten)]
    pub import: ImportArgs,
}

#[derive(Args, Debug)]
pub struct WhatIfArgs {
    /// Recordings, Kineto or Chrome JSON files (- reads one from standard input), Nsight Systems SQLite exports, or folders of them: one run together
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// A change to try; all of them together
    #[arg(long = "set", value_name = "TARGET=CHANGE")]
    pub changes: Vec<String>,
    /// Only these steps: A..B, both counted
    #[arg(long, value_name = "A..B", value_parser = parse_steps)]
    pub steps: Option<(u64, u64)>,
    /// Print one JSON object (schema gputrace.whatif/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub import: ImportArgs,
}

#[derive(Args, Debug)]
pub struct ViewArgs {
    /// Recordings, Kineto or Chrome JSON files (- reads one from standard input), Nsight Systems SQLite exports, folders of them, or partials of one run
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Take all paths as one run
    #[arg(long, conflicts_with = "apart")]
    pub together: bool,
    /// Take each path as a run of its own
    #[arg(long)]
    pub apart: bool,
    /// Do not open the browser
    #[arg(long)]
    pub no_open: bool,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub import: ImportArgs,
}

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Write the recording into this folder, which must not exist yet, and show nothing
    #[arg(short, long, value_name = "DIR", conflicts_with_all = ["no_open", "port", "listen"])]
    pub output: Option<PathBuf>,
    /// Do not open the browser
    #[arg(long)]
    pub no_open: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Args, Debug)]
pub struct ServeArgs {
    /// The folder whose recordings are listed
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// A folder that links in DIR may lead into: others that lead out of DIR are not followed; may be given several times
    #[arg(long, value_name = "FOLDER")]
    pub links_to: Vec<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub import: ImportArgs,
}

#[derive(Args, Debug)]
pub struct MergeArgs {
    /// The parts: recordings of the same run
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The folder to make, which must not exist yet
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Merge what does not look like one run
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub writing: WritingArgs,
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// The command, or a command and a workload [default: the page of the whole]
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write all pages into this folder instead
    #[arg(short, long, value_name = "DIR", conflicts_with = "command")]
    pub output: Option<PathBuf>,
    /// Make that folder, where it is missing
    #[arg(long, requires = "output")]
    pub parents: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
