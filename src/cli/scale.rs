//! Options of the commands that take a run apart and put it together: `partial` and `reduce`.

use std::path::PathBuf;

use clap::Args;

use super::export::WritingArgs;
use super::values::{ImportArgs, SortChoice, parse_steps};

/// Help behind the options of `partial`.
pub const PARTIAL_EXAMPLES: &str = "\
Examples:
  gputrace partial run1 -o run1.partial              all ranks of a recording
  gputrace partial run1 --ranks 0..7 -o 0.partial    some of them, beside others elsewhere
  gputrace partial trace.json.gz -o rank3.partial    one rank's PyTorch trace
  gputrace reduce *.partial --json                   the same JSON as `gputrace analyze run1 --json`

A partial that is there already, of the same files, version and options, is left as it is. Ranks of several hosts are aligned by what all \
of them did together, which is read first; where that is too much for each of many partials, or where each is made of a file of its own, \
compare the clocks once: see docs/scale.md.";

/// Help behind the options of `reduce`.
pub const REDUCE_EXAMPLES: &str = "\
Examples:
  gputrace reduce *.partial                            the tables of `gputrace analyze`
  gputrace reduce *.partial --json > run1.analysis.json
  gputrace reduce 0.partial 1.partial -o 01.partial    one of several: grouping changes nothing

Partials of separate files from hosts with different clocks: compare the clocks once, then make the partials again:
  gputrace reduce *.partial --clocks-to clocks.json
  gputrace partial trace.json.gz --clocks clocks.json -o rank3.partial";

#[derive(Args, Debug)]
pub struct PartialArgs {
    /// Recordings, Kineto or Chrome JSON files, Nsight Systems SQLite exports, or folders of them: one run together
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Only these ranks: FIRST..LAST, both counted; a process without a rank goes with rank 0
    #[arg(long, value_name = "FIRST..LAST", value_parser = parse_steps)]
    pub ranks: Option<(u64, u64)>,
    /// Only these steps: A..B, both counted
    #[arg(long, value_name = "A..B", value_parser = parse_steps)]
    pub steps: Option<(u64, u64)>,
    /// Order of the kernels, greatest first
    #[arg(long, value_enum, default_value = "total", value_name = "BY")]
    pub sort: SortChoice,
    /// Put kernels together that are the same in short: without parameters and template arguments
    #[arg(long)]
    pub short_names: bool,
    /// Clocks of several hosts, as of `analyze`, or a file that `reduce --clocks-to` wrote
    #[arg(long, value_name = "none|estimate|FILE", default_value = "estimate")]
    pub clocks: PathBuf,
    #[command(flatten)]
    pub writing: WritingArgs,
    #[command(flatten)]
    pub import: ImportArgs,
}

#[derive(Args, Debug)]
pub struct ReduceArgs {
    /// Partials of one run
    #[arg(required = true, value_name = "FILE")]
    pub paths: Vec<PathBuf>,
    /// Print one JSON object (schema gputrace.analysis/1)
    #[arg(long, conflicts_with_all = ["output", "clocks_to"])]
    pub json: bool,
    /// How many kernels to show [default: 10 in tables, all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Write a partial of all of them, and print nothing
    #[arg(short, long, value_name = "FILE", conflicts_with = "clocks_to")]
    pub output: Option<PathBuf>,
    /// Write the clock offsets between hosts to FILE, and print nothing
    #[arg(long, value_name = "FILE")]
    pub clocks_to: Option<PathBuf>,
    /// Write every table as DIR/NAME.parquet and DIR/NAME.csv too
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "clocks_to"])]
    pub tables: Option<PathBuf>,
    /// Replace the tables in DIR, if nothing else is in it
    #[arg(long, requires = "tables")]
    pub force: bool,
    /// `none`: compare nothing between clocks that were not compared
    #[arg(long, value_name = "none", value_parser = ["none"])]
    pub clocks: Option<String>,
    #[command(flatten)]
    pub writing: WritingArgs,
}

/// Who reads the ranks of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// So many processes of this machine; as many as it has cores.
    Local(Option<usize>),
    /// Job arrays of a partition of Slurm's; of the default one.
    Slurm(Option<String>),
    /// Tasks of the Ray cluster at an address; of the one that RAY_ADDRESS names, or of this machine.
    Ray(Option<String>),
}

/// Parses what --on takes.
pub fn parse_on(text: &str) -> Result<On, String> {
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let word = || match rest {
        Some("") => Err(format!("expected an address or a partition after {name}:")),
        rest => Ok(rest.map(str::to_owned)),
    };
    match name {
        "ray" => word().map(On::Ray),
        "slurm" => word().map(On::Slurm),
        "local" => match rest.map(str::parse) {
            None => Ok(On::Local(None)),
            Some(Ok(count @ 1..=4096)) => Ok(On::Local(Some(count))),
            Some(_) => Err("expected a number of processes from 1 to 4096 behind local:".to_owned()),
        },
        _ => Err("expected ray, ray:ADDRESS, slurm, slurm:PARTITION, local or local:N".to_owned()),
    }
}

#[derive(Args, Debug)]
pub struct ShardArgs {
    /// A file of tasks
    pub tasks: PathBuf,
    /// Which of them
    pub number: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_have_names_and_places() {
        assert_eq!(parse_on("ray"), Ok(On::Ray(None)));
        assert_eq!(
            parse_on("ray:10.0.0.1:6379"),
            Ok(On::Ray(Some("10.0.0.1:6379".to_owned())))
        );
        assert_eq!(parse_on("slurm:gpu"), Ok(On::Slurm(Some("gpu".to_owned()))));
        assert_eq!(parse_on("local:3"), Ok(On::Local(Some(3))));
        for wrong in ["", "spark", "local:0", "local:x", "ray:", "slurm:"] {
            assert!(parse_on(wrong).is_err(), "{wrong}");
        }
    }
}
