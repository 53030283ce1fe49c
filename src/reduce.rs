//! `gputrace reduce`: partials put together, as `gputrace analyze` says it of the whole.

use std::path::PathBuf;

use gputrace_analyzer::Options;
use gputrace_analyzer::partial::{self, Partial};
use gputrace_trace::{access, parallel};

use crate::analyze;
use crate::apart::bar;
use crate::cli::ReduceArgs;
use crate::export::{cannot_be_written, interrupted, tables_target};
use crate::failure::Failure;
use crate::partial as partial_file;
use crate::print_json::print_json;
use crate::report::{self, View};

/// Puts the partials together, and prints or writes what is asked for.
pub fn run(args: &ReduceArgs) -> Result<i32, Failure> {
    if args.writing.follow_umask {
        access::follow_umask();
    }
    interrupted::leaves_nothing();
    let tables = tables_target(&args.writing, args.tables.as_deref(), args.force, &args.paths)?;
    let (merged, options) = open(args)?;
    if let Some(output) = &args.output {
        let target = args.writing.target(output, Some(true), &args.paths);
        let bytes = partial_file::write(&target, &merged, &options, "")?;
        let (here, all) = merged.here();
        anstream::eprintln!("{}: {here} of {all} processes, {bytes} bytes", output.display());
        return Ok(0);
    }
    let clocks = merged.clocks();
    if let Some(output) = &args.clocks_to {
        let Some(clocks) = clocks else {
            return Err(Failure::new(format!(
                "{}: one clock stamped these partials, or theirs were compared when they were made: there is nothing to write",
                output.display()
            )));
        };
        let target = args.writing.target(output, Some(false), &args.paths);
        let written = target.write_file(&|_| false, |mut file| {
            std::io::Write::write_all(&mut file, clocks.text().as_bytes())
        });
        written.map_err(|error| Failure::new(cannot_be_written(output, &error)))?;
        anstream::eprintln!(
            "{}: {} clocks of {} ranks",
            output.display(),
            clocks.alignment.clocks.len(),
            clocks.clock_of_rank.len()
        );
        return Ok(0);
    }
    if let Some(clocks) = clocks.filter(|_| args.clocks.is_none()) {
        return Err(Failure::new(format!(
            "{} clocks stamped these partials, and were not compared when they were made: write them down with --clocks-to \
             clocks.json and make the partials again with --clocks clocks.json; or --clocks none compares nothing between them",
            clocks.alignment.clocks.len()
        )));
    }
    let (mut analysis, simulated) = analyze::of_partial(merged, &options, Vec::new(), None)?;
    if let Some(sentence) = analysis.job_ranks.sentence() {
        anstream::eprintln!("{sentence}");
    }
    if let Some(tables) = &tables {
        analyze::write_tables(&analysis, tables)?;
    }
    if args.json {
        if let Some(top) = args.top {
            analysis.keep_top_kernels(top);
        }
        print_json(&analysis)?;
    } else {
        let view = View {
            simulated,
            explain: false,
            top: args.top.unwrap_or(analyze::DEFAULT_TOP),
            sort: options.sort,
            full_names: options.short_names,
        };
        report::print(&analysis, view);
    }
    Ok(0)
}

/// Reads all partials and puts them together.
fn open(args: &ReduceArgs) -> Result<(Partial, Options), Failure> {
    let (all, options) = read(&args.paths)?;
    let merged = partial::merge(all).map_err(|wrong| Failure::new(wrong.to_string()))?;
    Ok((merged, options))
}

/// Reads partials that were made with the same options, and gives each with its name.
pub fn read(paths: &[PathBuf]) -> Result<(Vec<(String, Partial)>, Options), Failure> {
    let bar = bar("reading", "files", paths.len() as u64);
    let read = parallel::map(paths.len(), |place| {
        let read = partial_file::read(&paths[place]);
        bar.inc(1);
        read
    });
    bar.finish_and_clear();
    let mut first: Option<Options> = None;
    let mut all = Vec::new();
    for (path, read) in paths.iter().zip(read) {
        let (partial, options) = read?;
        let known = first.get_or_insert_with(|| options.clone());
        if *known != options {
            return Err(Failure::new(format!(
                "{}: made with other options (--steps, --sort, --short-names) than {}: make both with the same",
                path.display(),
                paths[0].display()
            )));
        }
        all.push((path.display().to_string(), partial));
    }
    Ok((all, first.unwrap_or_default()))
}
