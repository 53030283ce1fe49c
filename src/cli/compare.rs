//! What `diff`, `check` and `baseline` take.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use gputrace_analyzer::baseline::By;

use super::values::{ImportArgs, parse_steps};

/// Where baselines are saved under names, unless --dir says otherwise.
pub const FOLDER: &str = "gputrace-baselines";

#[derive(Args, Debug)]
pub struct DiffArgs {
    /// Two runs, or pairs of them: recordings, traces, or baselines by file or name
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// A run of the first side; may be given several times
    #[arg(long, value_name = "PATH")]
    pub a: Vec<PathBuf>,
    /// A run of the second side; may be given several times
    #[arg(long, value_name = "PATH")]
    pub b: Vec<PathBuf>,
    /// Only rows of this kind
    #[arg(long, value_name = "WHAT", value_parser = by())]
    pub by: Option<By>,
    /// Only these steps of recordings: A..B, both counted
    #[arg(long, value_name = "A..B", value_parser = parse_steps)]
    pub steps: Option<(u64, u64)>,
    /// How many rows of each table to show [default: 12; all in JSON]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print one JSON object (schema gputrace.diff/1)
    #[arg(long)]
    pub json: bool,
    /// Where baselines are saved
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    pub dir: PathBuf,
    #[command(flatten)]
    pub import: ImportArgs,
}

/// A kind of rows, by its word; measures have a table of their own.
fn by() -> impl TypedValueParser<Value = By> {
    let words = By::ALL.into_iter().filter(|by| *by != By::Measure).map(By::word);
    PossibleValuesParser::new(words).map(|word| {
        let found = By::ALL.into_iter().find(|by| by.word() == word);
        found.expect("one of the words above")
    })
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The run, or several runs of one kind: recordings, traces, or baselines by file or name
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// What a run may take: lines like step.p50 <= "120ms"
    #[arg(long, value_name = "FILE")]
    pub budget: Option<PathBuf>,
    /// What limits like <= "+3%" count from; may be given several times
    #[arg(long, value_name = "PATH")]
    pub baseline: Vec<PathBuf>,
    /// Write a budget that PATH is within, to --budget's file or standard output
    #[arg(long, conflicts_with_all = ["baseline", "json", "junit", "markdown"])]
    pub init: bool,
    /// Only these steps of recordings: A..B, both counted
    #[arg(long, value_name = "A..B", value_parser = parse_steps)]
    pub steps: Option<(u64, u64)>,
    /// Print one JSON object (schema gputrace.check/1)
    #[arg(long)]
    pub json: bool,
    /// Write JUnit's XML too: a test case a limit
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write a table of Markdown too
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Where baselines are saved
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    pub dir: PathBuf,
    #[command(flatten)]
    pub import: ImportArgs,
}

#[derive(Args, Debug)]
pub struct BaselineArgs {
    #[command(subcommand)]
    pub command: BaselineCommand,
    /// Where baselines are saved
    #[arg(long, value_name = "DIR", default_value = FOLDER, global = true)]
    pub dir: PathBuf,
}

#[derive(Subcommand, Debug)]
pub enum BaselineCommand {
    /// Save what a run took
    Save {
        /// What to call it
        name: String,
        /// The run: a recording or a trace
        path: PathBuf,
        /// Only these steps: A..B, both counted
        #[arg(long, value_name = "A..B", value_parser = parse_steps)]
        steps: Option<(u64, u64)>,
        /// Replace the baseline of that name
        #[arg(long)]
        force: bool,
        /// Make the folder of --dir, where it is missing
        #[arg(long)]
        parents: bool,
        #[command(flatten)]
        import: ImportArgs,
    },
    /// List what is saved
    List {
        /// Print a list of JSON objects
        #[arg(long)]
        json: bool,
    },
    /// Print one as JSON
    Show {
        /// Its name or file
        name: String,
    },
}
