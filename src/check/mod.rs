//! `gputrace check`: whether a run is within its budget, for people and for CI.

mod budget_file;
mod reports;

use std::path::{Path, PathBuf};

use gputrace_analyzer::baseline::Baseline;
use gputrace_analyzer::check::{Check, Within, propose};
use gputrace_trace::access;
use gputrace_trace::place::Existing;

use crate::cli::CheckArgs;
use crate::export::interrupted;
use crate::failure::Failure;
use crate::print_json::print_json;
use crate::report::{Overflow, print_table};
use crate::runs;
use crate::text::SIMULATED;
use reports::{Shown, write_report, write_text};

/// Exit status of a run that is over its budget.
const OVER: i32 = 1;
/// Exit status where that could not be judged.
const UNKNOWN: i32 = 2;

/// Judges a run, or writes a budget for ones like it.
pub fn run(args: &CheckArgs) -> Result<i32, Failure> {
    args.import.apply();
    access::follow_umask();
    interrupted::leaves_nothing();
    let folder = Path::new(&args.dir);
    let open = |paths: &[PathBuf]| -> Result<Vec<Baseline>, Failure> {
        paths
            .iter()
            .map(|path| runs::open(path, folder, args.steps))
            .collect()
    };
    if args.init {
        let text = propose(&open(&args.paths)?);
        match &args.budget {
            None => anstream::print!("{text}"),
            Some(path) => {
                write_text(path, &text, Existing::Stays)?;
                anstream::eprintln!("{}: a budget for runs like this one", path.display());
            }
        }
        return Ok(0);
    }
    let Some(path) = &args.budget else {
        return Err(Failure::new(
            "--budget FILE says what a run may take; `gputrace check --init PATH --budget FILE` writes one from a run",
        ));
    };
    // Wrong budgets and missing baselines are said before anything is read that takes long.
    let budget = budget_file::read(path)?;
    if budget.needs_baseline() && args.baseline.is_empty() {
        return Err(Failure::new(format!(
            "{}: it has limits against a baseline: --baseline PATH, or the name of one that `gputrace baseline save` saved",
            path.display()
        )));
    }
    let baseline: Vec<Baseline> = args
        .baseline
        .iter()
        .map(|path| runs::open(path, folder, None))
        .collect::<Result<_, _>>()?;
    let checked = budget.check(&open(&args.paths)?, &baseline);
    if let Some(path) = &args.junit {
        write_report(path, reports::junit(&checked)?)?;
    }
    let markdown = reports::markdown(&checked);
    if let Some(path) = &args.markdown {
        write_report(path, markdown.clone())?;
    }
    reports::github(&checked, &markdown);
    if args.json {
        print_json(&checked)?;
    } else {
        print(&checked);
    }
    Ok(match checked.verdict {
        Within::Within => 0,
        Within::Over => OVER,
        Within::Unknown => UNKNOWN,
    })
}

fn print(checked: &Check) {
    if checked.device == "sim" {
        anstream::println!("{SIMULATED}");
    }
    let has_baseline = checked.lines.iter().any(|line| line.baseline.is_some());
    let mut headings = vec!["measure", "verdict", "limit", "value", "margin", "95 %"];
    if has_baseline {
        headings.insert(4, "baseline");
    }
    let rows: Vec<Vec<String>> = checked
        .lines
        .iter()
        .map(|line| {
            let shown = Shown::of(line);
            let mut row = vec![
                shown.measure,
                line.verdict.word().to_owned(),
                shown.limit,
                shown.value,
                shown.margin,
                shown.interval,
            ];
            if has_baseline {
                row.insert(4, shown.baseline);
            }
            row
        })
        .collect();
    print_table(
        &format!("Budget: {}", reports::sentence(checked)),
        &headings,
        &rows,
        Overflow::Drop,
    );
    for line in &checked.lines {
        if let Some(why) = &line.why {
            anstream::println!(
                " {}: {}",
                crate::text::one_line(&line.measure),
                crate::text::one_line(why)
            );
        }
    }
}
