//! `gputrace analyze`: the tables, one JSON object, or files of tables.

use std::path::{Path, PathBuf};

use gputrace_analyzer::{Analysis, Options, Sort, tables};
use gputrace_interchange::tables::{write_csv, write_parquet};
use gputrace_trace::Recording;

use crate::cli::{AnalyzeArgs, SortChoice};
use crate::failure::Failure;
use crate::opening;
use crate::report::{self, View};

/// Kernels in the table, unless --top says otherwise.
const DEFAULT_TOP: usize = 10;

/// A recording in which no process ever used CUDA has nothing to show.
pub fn never_used_cuda(recording: &Recording) -> Failure {
    let why = if recording.manifest.device == "imported" {
        "no GPU operation and no GPU call in it, so there is nothing to show: was it profiled with GPU activities \
         (ProfilerActivity.CUDA, nsys --trace=cuda)?"
    } else {
        "no process of this recording used CUDA, so there is nothing to show: was it the right command? \
         `gputrace doctor` says whether this machine has a GPU"
    };
    // What was cut off may have held it.
    let lost = recording.losses.first().map(|loss| format!(" ({})", loss.what));
    Failure::new(format!(
        "{}: {why}{}",
        recording.path.display(),
        lost.unwrap_or_default()
    ))
}

fn open(paths: &[PathBuf]) -> Result<Recording, Failure> {
    let recording = opening::open(paths)?;
    if gputrace_analyzer::used_cuda(&recording) {
        Ok(recording)
    } else {
        Err(never_used_cuda(&recording))
    }
}

/// Prints the tables of a recording that was just made.
pub fn print_tables(recording: &Recording) -> Result<(), Failure> {
    if !gputrace_analyzer::used_cuda(recording) {
        return Err(never_used_cuda(recording));
    }
    let analysis = gputrace_analyzer::analyze(recording, &Options::default());
    let view = View {
        simulated: recording.is_simulated(),
        explain: false,
        top: DEFAULT_TOP,
        sort: Sort::default(),
    };
    report::print(&analysis, view);
    Ok(())
}

/// Writes every table of the analysis into `folder`.
fn write_tables(analysis: &Analysis, folder: &Path) -> Result<(), Failure> {
    let refused = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::new(format!("{}: cannot be written: {error}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| refused(folder, &error))?;
    let tables = tables::tables(analysis).map_err(|error| refused(folder, &error))?;
    let count = tables.len();
    for table in tables {
        let batch = tables::to_batch(&table.frame).map_err(|error| refused(folder, &error))?;
        let path = |ending: &str| folder.join(format!("{}.{ending}", table.name));
        let (parquet, csv) = (path("parquet"), path("csv"));
        write_parquet(&parquet, &batch).map_err(|error| refused(&parquet, &error))?;
        write_csv(&csv, &batch).map_err(|error| refused(&csv, &error))?;
    }
    anstream::eprintln!(
        "{}: {count} tables written, each as .parquet and .csv",
        folder.display()
    );
    Ok(())
}

/// Why none of the chosen steps is there: which are.
fn no_such_steps(recording: &Recording) -> Failure {
    let whole = gputrace_analyzer::analyze(recording, &Options::default());
    let steps = whole.ranks.iter().flat_map(|rank| &rank.steps);
    let numbers: Vec<u64> = steps
        .filter_map(|step| gputrace_analyzer::step_number(step.name.trim_end_matches(" (detected)")))
        .collect();
    let has = match (numbers.iter().min(), numbers.iter().max()) {
        (Some(first), Some(last)) => format!("it has steps {first}..{last}"),
        _ => "it has no steps".to_owned(),
    };
    Failure::new(format!(
        "{}: none of the chosen steps is in it: {has}",
        recording.path.display()
    ))
}

/// Prints the tables or the JSON.
pub fn run(args: &AnalyzeArgs) -> Result<i32, Failure> {
    let sort = match args.sort {
        SortChoice::Total => Sort::Total,
        SortChoice::Count => Sort::Count,
        SortChoice::Mean => Sort::Mean,
        SortChoice::Max => Sort::Max,
    };
    let recording = open(&args.paths)?;
    let options = Options {
        steps: args.steps,
        sort,
        short_names: args.short_names,
    };
    let mut analysis = gputrace_analyzer::analyze(&recording, &options);
    if args.steps.is_some() && analysis.ranks.is_empty() {
        return Err(no_such_steps(&recording));
    }
    if let Some(folder) = &args.tables {
        write_tables(&analysis, folder)?;
    }
    if args.json {
        // Tables and findings are of all kernels, and the report sums them over ranks before it shows the first.
        if let Some(top) = args.top {
            analysis.keep_top_kernels(top);
        }
        let text = serde_json::to_string_pretty(&analysis)
            .map_err(|error| Failure::new(format!("{}: {error}", recording.path.display())))?;
        anstream::println!("{text}");
    } else {
        let view = View {
            simulated: recording.is_simulated(),
            explain: args.explain,
            top: args.top.unwrap_or(DEFAULT_TOP),
            sort,
        };
        report::print(&analysis, view);
    }
    Ok(0)
}
