//! `gputrace analyze`: the tables, or one JSON object.

use std::path::{Path, PathBuf};

use gputrace_analyzer::{Options, Sort};
use gputrace_interchange::import::Progress;
use gputrace_trace::Recording;

use crate::cli::{AnalyzeArgs, SortChoice};
use crate::failure::Failure;
use crate::report;

/// Kernels in the table, unless --top says otherwise.
const DEFAULT_TOP: usize = 10;

/// What `record` shows when it is done.
pub fn default_options() -> Options {
    Options {
        top: Some(DEFAULT_TOP),
        ..Options::default()
    }
}

/// A recording in which no process ever used CUDA has nothing to show.
pub fn never_used_cuda(path: &Path) -> Failure {
    Failure::new(format!(
        "{}: no process of this recording used CUDA, so there is nothing to show: was it the right command? \
         `gputrace doctor` says whether this machine has a GPU",
        path.display()
    ))
}

fn open(paths: &[PathBuf]) -> Result<Recording, Failure> {
    let progress = Progress::default();
    let recording = gputrace_interchange::import::open(paths, &progress)
        .map_err(|error| Failure::new(error.to_string()))?;
    if gputrace_analyzer::used_cuda(&recording) {
        Ok(recording)
    } else {
        Err(never_used_cuda(&recording.path))
    }
}

/// Prints the tables.
pub fn print_tables(paths: &[PathBuf], options: &Options) -> Result<(), Failure> {
    let recording = open(paths)?;
    report::print(
        &gputrace_analyzer::analyze(&recording, options),
        recording.is_simulated(),
    );
    Ok(())
}

/// Prints the tables or the JSON.
pub fn run(args: &AnalyzeArgs) -> Result<i32, Failure> {
    let sort = match args.sort {
        SortChoice::Total => Sort::Total,
        SortChoice::Count => Sort::Count,
        SortChoice::Mean => Sort::Mean,
        SortChoice::Max => Sort::Max,
    };
    let mut options = Options {
        steps: args.steps,
        sort,
        top: args.top,
        short_names: false,
    };
    if args.json {
        let recording = open(&args.paths)?;
        let analysis = gputrace_analyzer::analyze(&recording, &options);
        let text = serde_json::to_string_pretty(&analysis)
            .map_err(|error| Failure::new(format!("{}: {error}", recording.path.display())))?;
        anstream::println!("{text}");
    } else {
        options.top = options.top.or(Some(DEFAULT_TOP));
        print_tables(&args.paths, &options)?;
    }
    Ok(0)
}
