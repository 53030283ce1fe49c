//! `gputrace analyze`: the tables, one JSON object, or files of tables.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gputrace_analyzer::partial::Partial;
use gputrace_analyzer::{Analysis, ClockChoice, ComparedClocks, GivenClocks, Lost, Options, Sort, tables};
use gputrace_interchange::export::files;
use gputrace_interchange::tables::{csv_to, parquet_to};
use gputrace_trace::place::Target;
use gputrace_trace::{Recording, access};

use crate::apart::{Run, busy};
use crate::cli::AnalyzeArgs;
use crate::export::{cannot_be_written, interrupted, tables_target};
use crate::failure::Failure;
use crate::opening;
use crate::print_json::print_json;
use crate::report::{self, View};
use crate::spread;

/// Kernels in the table, unless --top says otherwise.
pub const DEFAULT_TOP: usize = 10;
/// Rows of a table that is asked for alone.
const DEFAULT_TOP_OF_ONE: usize = 50;

/// What --clocks says.
pub fn clock_choice(clocks: &Path) -> Result<ClockChoice, Failure> {
    /// More is no list of hosts.
    const MOST_BYTES: u64 = 256 << 20;
    match clocks.to_str() {
        Some("none") => return Ok(ClockChoice::None),
        Some("estimate") => return Ok(ClockChoice::Estimate),
        _ => {}
    }
    let name = clocks.display().to_string();
    let cannot = |error: io::Error| {
        Failure::new(format!(
            "{name}: cannot be read: {error}; --clocks takes none, estimate, or a JSON file of hosts with their offsets"
        ))
    };
    let mut text = String::new();
    let file = fs::File::open(clocks).map_err(cannot)?;
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(cannot)?;
    if let Some(compared) = ComparedClocks::parse(&text) {
        return Ok(ClockChoice::Compared(compared));
    }
    GivenClocks::parse(&text, &name)
        .map(ClockChoice::Given)
        .map_err(Failure::new)
}

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

fn open(paths: &[PathBuf], clocks: &Path) -> Result<Recording, Failure> {
    let recording = opening::open_with_clocks(paths, &clock_choice(clocks)?)?;
    if gputrace_analyzer::used_cuda(&recording) {
        Ok(recording)
    } else {
        Err(never_used_cuda(&recording))
    }
}

/// Paths as one source: what an analysis calls them.
pub fn source_of(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(" ")
}

/// The analysis of recordings of our own, whose processes are read one after another so that memory does not grow with their rows;
/// and whether they are simulated. `None` for what can only be read as a whole.
fn analyze_apart(args: &AnalyzeArgs, options: &Options) -> Result<Option<(Analysis, bool)>, Failure> {
    let clocks = clock_choice(&args.clocks)?;
    if matches!(clocks, ClockChoice::Given(_)) {
        return Ok(None);
    }
    let Some(run) = Run::open(&args.paths) else {
        return Ok(None);
    };
    let partial = run.partial(options, &clocks, None)?;
    if !partial.used_cuda() {
        return Ok(None);
    }
    of_partial(partial, options, Vec::new(), Some(source_of(&args.paths))).map(Some)
}

/// The analysis of all that a partial holds, with who is missing said on stderr, and whether it is simulated. `source` where it is
/// known otherwise; `lost` are processes that could not be read.
pub fn of_partial(
    partial: Partial,
    options: &Options,
    lost: Vec<Lost>,
    source: Option<String>,
) -> Result<(Analysis, bool), Failure> {
    if let Some(base) = partial.bases.first().filter(|_| !partial.used_cuda()) {
        return Err(never_used_cuda(&base.recording));
    }
    let numbers = partial.step_numbers();
    let busy = busy(format!("putting {} processes together", partial.here().0));
    let (mut analysis, simulated) = partial.analysis(options, lost);
    busy.finish_and_clear();
    if let Some(source) = source {
        analysis.source = source;
    }
    if options.steps.is_some() && analysis.ranks.is_empty() {
        return Err(none_of_the_steps(&analysis.source, numbers));
    }
    Ok((analysis, simulated))
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
        full_names: false,
    };
    report::print(&analysis, view);
    Ok(())
}

/// Writes every table of the analysis into a folder.
pub fn write_tables(analysis: &Analysis, target: &Target) -> Result<(), Failure> {
    let refused = |error: &io::Error| Failure::new(cannot_be_written(&target.path, error));
    let tables = tables::tables(analysis).map_err(|error| refused(&io::Error::other(error)))?;
    let count = tables.len();
    let written = files::write_folder(target, |files| {
        for table in tables {
            files.file(&format!("{}.parquet", table.name), &mut |out| {
                parquet_to(out, &table.batch)
            })?;
            files.file(&format!("{}.csv", table.name), &mut |out| {
                csv_to(out, &table.batch)
            })?;
        }
        Ok(())
    });
    written.map_err(|error| refused(&error))?;
    anstream::eprintln!(
        "{}: {count} tables written, each as .parquet and .csv",
        target.path.display()
    );
    Ok(())
}

/// Why none of the chosen steps is there: which are.
pub fn no_such_steps(recording: &Recording) -> Failure {
    let whole = gputrace_analyzer::analyze(recording, &Options::default());
    let steps = whole.ranks.iter().flat_map(|rank| &rank.steps);
    let numbers: Vec<u64> = steps
        .filter_map(|step| gputrace_analyzer::step_number(step.name.trim_end_matches(" (detected)")))
        .collect();
    let numbers = numbers.iter().min().copied().zip(numbers.iter().max().copied());
    none_of_the_steps(&recording.path.display().to_string(), numbers)
}

/// The same, where it is known which there are, the first and the last.
pub fn none_of_the_steps(source: &str, numbers: Option<(u64, u64)>) -> Failure {
    let has = match numbers {
        Some((first, last)) => format!("it has steps {first}..{last}"),
        None => "it has no steps".to_owned(),
    };
    Failure::new(format!("{source}: none of the chosen steps is in it: {has}"))
}

/// Nothing of what --by asks for is in the recording.
fn nothing_of_the_kind(source: &str) -> Failure {
    Failure::new(format!(
        "{source}: nothing in it says by what it is to be put together: PyTorch's profiler records operators always, shapes with \
         record_shapes=True, modules and stacks with with_stack=True, memory with \
         profile_memory=True; gputrace record has operators, shapes and modules of programs \
         that use gputrace.torch.operators() or emit_nvtx(), and stacks with --kinds +stacks"
    ))
}

/// Prints the tables or the JSON.
pub fn run(args: &AnalyzeArgs) -> Result<i32, Failure> {
    args.import.apply();
    let sort = args.sort.into();
    if args.writing.follow_umask {
        access::follow_umask();
    }
    let tables = tables_target(&args.writing, args.tables.as_deref(), args.force, &args.paths)?;
    // Workers are stopped first.
    if tables.is_some() && args.on.is_none() {
        interrupted::leaves_nothing();
    }
    let options = Options {
        steps: args.steps,
        sort,
        short_names: args.short_names,
        by_step: false,
    };
    let spread = args.on.as_ref().zip(args.output.as_deref());
    let done = match spread {
        Some((on, output)) => Some(spread::analyze(args, on, output, &options)?),
        None => analyze_apart(args, &options)?,
    };
    let (mut analysis, simulated) = match done {
        Some(done) => done,
        None => {
            let recording = open(&args.paths, &args.clocks)?;
            let analysis = gputrace_analyzer::analyze(&recording, &options);
            if args.steps.is_some() && analysis.ranks.is_empty() {
                return Err(no_such_steps(&recording));
            }
            (analysis, recording.is_simulated())
        }
    };
    if let Some(sentence) = analysis
        .job_ranks
        .sentence()
        .filter(|_| args.json && args.on.is_some())
    {
        // Tables say it themselves.
        anstream::eprintln!("{sentence}");
    }
    if let Some(tables) = &tables {
        write_tables(&analysis, tables)?;
    }
    if args.json {
        // Tables and findings are of all kernels, and the report sums them over ranks before it shows the first.
        if let Some(top) = args.top {
            analysis.keep_top_kernels(top);
        }
        print_json(&analysis)?;
    } else {
        let default_top = if args.by.is_some() {
            DEFAULT_TOP_OF_ONE
        } else {
            DEFAULT_TOP
        };
        let view = View {
            simulated,
            explain: args.explain,
            top: args.top.unwrap_or(default_top),
            sort,
            full_names: args.full_names || args.short_names,
        };
        match args.by {
            None => report::print(&analysis, view),
            Some(by) if report::print_by(&analysis, by, view) => {}
            Some(_) => return Err(nothing_of_the_kind(&analysis.source)),
        }
    }
    Ok(0)
}
