//! `gputrace diff`: what changed between two runs, and how sure that is.

use std::path::Path;

use gputrace_analyzer::baseline::{Baseline, By};
use gputrace_analyzer::diff::{Diff, Renamed, Row, Verdict, diff};
use gputrace_analyzer::{is_communication, short_name};

use crate::cli::DiffArgs;
use crate::failure::Failure;
use crate::print_json::print_json;
use crate::report::{Overflow, print_list, print_table};
use crate::runs;
use crate::text::{duration, shorten, thousands};

/// Rows of each table.
const MOST_SHOWN: usize = 12;
/// The longest name in a table.
const NAME: usize = 48;

/// Prints what changed.
pub fn run(args: &DiffArgs) -> Result<i32, Failure> {
    args.import.apply();
    let (mut first, mut second) = (args.a.clone(), args.b.clone());
    for (place, path) in args.paths.iter().enumerate() {
        if place % 2 == 0 { &mut first } else { &mut second }.push(path.clone());
    }
    if args.paths.len() % 2 == 1 || first.is_empty() || second.is_empty() {
        return Err(Failure::new(
            "diff compares two sides: gputrace diff A B, or A B A2 B2 ..., or --a RUN and --b RUN as often as you like",
        ));
    }
    let open = |paths: &[std::path::PathBuf]| -> Result<Vec<Baseline>, Failure> {
        paths
            .iter()
            .map(|path| runs::open(path, Path::new(&args.dir), args.steps))
            .collect()
    };
    let (first, second) = (open(&first)?, open(&second)?);
    let mut found = diff(&first, &second, args.by);
    if let Some(top) = args.top.filter(|_| args.json) {
        found.rows.truncate(top);
    }
    if args.json {
        print_json(&found)?;
    } else {
        print(&found, args.by, args.top.unwrap_or(MOST_SHOWN));
    }
    Ok(0)
}

/// "+1.2 ms", "-340 us".
pub fn signed(ns: i64) -> String {
    match ns {
        0 => "0".to_owned(),
        1.. => format!("+{}", duration(ns)),
        _ => format!("-{}", duration(ns.saturating_neg())),
    }
}

/// "1 step", "2 steps".
fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", thousands(count as u64))
}

fn percent_of(change: i64, whole: i64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:+.1} %", 100.0 * change as f64 / whole as f64)
}

fn print(found: &Diff, by: Option<By>, top: usize) {
    for (side, runs) in [("A", &found.a), ("B", &found.b)] {
        for run in runs {
            let simulated = if run.device == "sim" {
                " SIMULATED GPUs."
            } else {
                ""
            };
            let steps = match run.steps {
                0 => "no steps: the whole run is compared".to_owned(),
                steps => {
                    let left_out = match run.warm_up {
                        0 => String::new(),
                        more => format!(" (and {more} slow at the start, left out)"),
                    };
                    format!("{}{left_out}", counted(steps, "step"))
                }
            };
            anstream::println!(
                "{side}  {}: {}, {steps}.{simulated}",
                run.source,
                counted(run.gpus, "GPU")
            );
        }
    }
    let step = &found.step;
    let sure = match (step.low_ns, step.high_ns) {
        (Some(low), Some(high)) => format!(" ({} to {} with 95 % confidence)", signed(low), signed(high)),
        _ => " (too few steps to say how sure that is)".to_owned(),
    };
    let what = if found.a.iter().chain(&found.b).any(|run| run.steps == 0) {
        "run"
    } else {
        "step"
    };
    let verdict = match (step.verdict, step.least_ns) {
        (Verdict::Same, _) if found.step.change_ns == 0 => "no difference".to_owned(),
        (Verdict::Same, Some(least)) => format!(
            "no difference that these runs can show: one of {} ({}) would have been",
            duration(least),
            percent_of(least, step.a_ns).trim_start_matches('+')
        ),
        (Verdict::Unknown, _) => "can't be decided".to_owned(),
        (verdict, _) => verdict.word().to_owned(),
    };
    anstream::println!(
        "\nA {what} took {} and takes {}: {}, {}{sure}\n{verdict}",
        duration(step.a_ns),
        duration(step.b_ns),
        signed(step.change_ns),
        percent_of(step.change_ns, step.a_ns),
    );
    print_parts(found);
    let shown = [
        By::Kernel,
        By::Operator,
        By::Module,
        By::Collective,
        By::Rank,
        By::Step,
    ];
    // Single steps say little of a run, and there are many.
    let is_wanted = |kind: &By| by.map_or(*kind != By::Step, |by| by == *kind);
    for kind in shown.into_iter().filter(is_wanted) {
        print_rows(found, kind, top, by.is_some());
    }
    print_renamed(&found.renamed, top);
    print_list("Notes", found.notes.iter().cloned());
}

fn print_parts(found: &Diff) {
    let mut parts: Vec<(&String, i64)> = found.parts.iter().map(|(name, change)| (name, *change)).collect();
    parts.sort_by_key(|(_, change)| std::cmp::Reverse(change.unsigned_abs()));
    let of = |parts: &std::collections::BTreeMap<String, i64>, name: &String| {
        parts.get(name).copied().unwrap_or(0)
    };
    let mut rows: Vec<Vec<String>> = parts
        .into_iter()
        .map(|(name, change)| {
            vec![
                name.clone(),
                duration(of(&found.parts_a, name)),
                duration(of(&found.parts_b, name)),
                signed(change),
                found
                    .part_verdicts
                    .get(name)
                    .map_or("-", |verdict| verdict.word())
                    .to_owned(),
            ]
        })
        .collect();
    rows.push(vec![
        "step".to_owned(),
        duration(found.step.a_ns),
        duration(found.step.b_ns),
        signed(found.step.change_ns),
        found.step.verdict.word().to_owned(),
    ]);
    print_table(
        "What the change is made of (sums to it)",
        &["part", "A", "B", "change", "verdict"],
        &rows,
        Overflow::Drop,
    );
}

/// A rank's row says something that the mean over ranks does not.
fn is_worth_it(row: &Row, rows: &[Row]) -> bool {
    let mean = rows.iter().find(|mean| {
        mean.rank.is_none() && (mean.by, &mean.name, &mean.what) == (row.by, &row.name, &row.what)
    });
    row.rank.is_none()
        || mean.is_none_or(|mean| row.change_ns.unsigned_abs() > 2 * mean.change_ns.unsigned_abs())
}

fn print_rows(found: &Diff, by: By, top: usize, all: bool) {
    let is_of =
        |row: &&Row| row.by == by && (all || !matches!(row.verdict, Verdict::Same | Verdict::Unknown));
    let waits_apart = found.rows.iter().any(|row| row.what == "wait");
    let rows: Vec<&Row> = found
        .rows
        .iter()
        .filter(is_of)
        // The parts of the step stand above.
        .filter(|row| all || by != By::Rank || row.rank.is_some())
        .filter(|row| is_worth_it(row, &found.rows))
        // A kernel of NCCL that takes longer may just wait for another rank: where that is told apart, the collectives say it.
        .filter(|row| all || by != By::Kernel || !waits_apart || !is_communication(&row.name))
        .collect();
    if rows.is_empty() {
        if all {
            anstream::println!("\nNo {} is recorded in either.", by.word());
        }
        return;
    }
    let time = |ns: Option<i64>| ns.map_or_else(|| "-".to_owned(), duration);
    let has_what = rows.iter().any(|row| row.what != "time");
    let cells: Vec<Vec<String>> = rows
        .iter()
        .take(top)
        .map(|row| {
            let name = match by {
                By::Kernel => short_name(&row.name),
                _ => row.name.clone(),
            };
            let name = match has_what {
                true => format!("{name} {}", row.what),
                false => name,
            };
            let rank = match (row.rank, row.device_index) {
                (None, _) => "all".to_owned(),
                (Some(rank), None) => rank.to_string(),
                (Some(rank), Some(device)) => format!("{rank}.{device}"),
            };
            let sure = match (row.low_ns, row.high_ns) {
                (Some(low), Some(high)) => format!("{} to {}", signed(low), signed(high)),
                _ => "-".to_owned(),
            };
            vec![
                shorten(&name, NAME),
                rank,
                row.verdict.word().to_owned(),
                signed(row.change_ns),
                row.a_ns
                    .map_or_else(|| "-".to_owned(), |a| percent_of(row.change_ns, a)),
                time(row.a_ns),
                time(row.b_ns),
                sure,
            ]
        })
        .collect();
    let title = match all {
        true => format!("By {}, a step", by.word()),
        false => format!("By {}, a step: what changed", by.word()),
    };
    let heading = if by == By::Rank { "part" } else { by.word() };
    print_table(
        &title,
        &[heading, "rank", "verdict", "change", "%", "A", "B", "95 %"],
        &cells,
        Overflow::Drop,
    );
    if rows.len() > top {
        anstream::println!(
            "  and {} more: --top N, or --json",
            thousands((rows.len() - top) as u64)
        );
    }
}

fn print_renamed(renamed: &[Renamed], top: usize) {
    if renamed.is_empty() {
        return;
    }
    let names = |names: &[String]| {
        let names: Vec<_> = names.iter().map(|name| short_name(name)).collect();
        shorten(&names.join(" + "), NAME)
    };
    let rows: Vec<Vec<String>> = renamed
        .iter()
        .take(top)
        .map(|one| {
            vec![
                names(&one.a),
                names(&one.b),
                one.places.to_string(),
                signed(one.change_ns),
                one.operator.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        })
        .collect();
    print_table(
        "In whose place what runs, in a typical step of the first GPU",
        &["A", "B", "places", "change", "operator"],
        &rows,
        Overflow::Drop,
    );
}
