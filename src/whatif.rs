//! `gputrace whatif`: what a step would take if something were different.

use gputrace_analyzer::graph::{Edit, Interval, WhatIf};

use crate::cli::WhatIfArgs;
use crate::failure::Failure;
use crate::opening;
use crate::print_json::print_json;
use crate::report::{Overflow, print_table};
use crate::text::{SIMULATED, duration, thousands};

/// Rows of the table of single changes.
const MOST_SHOWN: usize = 20;

/// Prints what is predicted.
pub fn run(args: &WhatIfArgs) -> Result<i32, Failure> {
    args.import.apply();
    let changes: Vec<Edit> = args
        .changes
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|error: String| Failure::new(format!("--set {error}")))
        })
        .collect::<Result<_, _>>()?;
    let recording = opening::open(&args.paths)?;
    opening::say_who_is_missing(&recording);
    let predicted = gputrace_analyzer::what_if(&recording, args.steps, &changes)
        .map_err(|error| Failure::new(format!("{}: {error}", recording.path.display())))?;
    if args.json {
        print_json(&predicted)?;
        return Ok(0);
    }
    if recording.is_simulated() {
        anstream::println!("{SIMULATED}");
    }
    print(&predicted);
    Ok(0)
}

/// "12.3 ms", or "12.3 to 14.5 ms" where the ends differ.
fn interval(interval: Interval) -> String {
    let (low, high) = (duration(interval.low as i64), duration(interval.high as i64));
    if low == high {
        low
    } else {
        format!("{low} to {high}")
    }
}

/// What of the graph rests on times alone, or was left out.
fn doubts(what_if: &WhatIf) -> Vec<String> {
    let counts = [
        (what_if.without_launch, "operations have no recorded launch"),
        (
            what_if.in_time,
            "are taken to have waited for what ended right before, by time alone",
        ),
        (
            what_if.hidden,
            "are taken to have waited for another rank, by time alone",
        ),
        (
            what_if.contradicted,
            "waits were left out: the recorded times contradict them",
        ),
        (
            what_if.circles as u64,
            "matches were left out: they would wait for themselves",
        ),
    ];
    let told = counts.iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("  {} {what}", thousands(*count)))
        .collect()
}

fn print(what_if: &WhatIf) {
    let path = &what_if.critical_path;
    let (first, last) = &what_if.steps;
    anstream::println!(
        "Steps: {first} to {last} ({} of them), {} operations",
        what_if.step_count,
        thousands(what_if.operations)
    );
    anstream::println!(
        "A step takes {}, of which no rule explains {:.1} %",
        duration(what_if.measured_step_ns as i64),
        what_if.unexplained_ratio * 100.0
    );
    for line in doubts(what_if) {
        anstream::println!("{line}");
    }
    if !what_if.changes.is_empty() {
        anstream::println!(
            "With {}: {} (1 to {:.3})",
            what_if.changes.join(" and "),
            interval(what_if.predicted_step_ns),
            what_if.speedup
        );
        print_ranks(what_if);
        return;
    }
    let share = |time: f64| format!("{:.1}", 100.0 * time / what_if.measured_step_ns.max(1.0));
    let rows: Vec<Vec<String>> = what_if
        .singles
        .iter()
        .take(MOST_SHOWN)
        .map(|single| {
            vec![
                single.change.clone(),
                duration(single.saves_per_step_ns.middle() as i64),
                share(single.saves_per_step_ns.middle()),
                interval(single.predicted_step_ns),
            ]
        })
        .collect();
    print_table(
        "What would save most",
        &["change", "saves a step", "%", "step then"],
        &rows,
        Overflow::Drop,
    );
    let rows: Vec<Vec<String>> = path
        .parts
        .iter()
        .take(MOST_SHOWN)
        .map(|part| {
            vec![
                part.what.to_owned(),
                part.name.clone(),
                part.rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string()),
                duration(part.time_ns / i64::try_from(path.steps).unwrap_or(i64::MAX).max(1)),
                format!("{:.1}", 100.0 * part.time_ns as f64 / path.total_ns.max(1) as f64),
            ]
        })
        .collect();
    print_table(
        "The critical path",
        &["what", "name", "rank", "a step", "%"],
        &rows,
        Overflow::Drop,
    );
    print_ranks(what_if);
}

/// Where the mean step goes on each device, with the changes if there are any.
fn print_ranks(what_if: &WhatIf) {
    let time = |ns: f64| duration(ns as i64);
    let rows: Vec<Vec<String>> = what_if
        .ranks
        .iter()
        .take(MOST_SHOWN)
        .map(|device| {
            let part = &device.predicted;
            vec![
                device
                    .rank
                    .map_or_else(|| "?".to_owned(), |rank| rank.to_string()),
                device.device_index.to_string(),
                time(part.compute_ns),
                time(part.transfer_ns),
                time(part.waiting_ns),
                time(part.copy_ns),
                time(part.idle_ns),
            ]
        })
        .collect();
    let title = if what_if.changes.is_empty() {
        "Where a step's time goes"
    } else {
        "Where a step's time would go"
    };
    print_table(
        title,
        &[
            "rank",
            "GPU",
            "compute",
            "transfer",
            "waits for ranks",
            "copies",
            "idle",
        ],
        &rows,
        Overflow::Drop,
    );
    if what_if.ranks.len() > MOST_SHOWN {
        let more = what_if.ranks.len() - MOST_SHOWN;
        anstream::println!("  and {more} more, which --json has");
    }
}
