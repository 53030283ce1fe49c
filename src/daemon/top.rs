//! `gputrace top`: a job's ranks, live.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use gputrace_trace::daemon::Ask;
use serde_json::Value;

use super::client::{document, text, time};
use crate::cli::TopArgs;
use crate::failure::Failure;
use crate::report::table::{Overflow, print_table};
use crate::text::thousands;

/// Clears the terminal, and goes to its beginning.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows it, again and again on a terminal.
pub fn run(args: &TopArgs) -> Result<i32, Failure> {
    let is_once = args.once || !std::io::stdout().is_terminal();
    loop {
        let job = document(
            &args.socket,
            Ask::Job {
                job: args.job.clone(),
            },
        )?;
        if !is_once {
            // As it is, since a terminal reads it.
            print!("{CLEAR}");
        }
        print(&job);
        drop(std::io::stdout().flush());
        if is_once {
            return Ok(0);
        }
        std::thread::sleep(Duration::from_secs_f64(args.every.max(0.1)));
    }
}

fn print(job: &Value) {
    let before = match &job["step_before_ns"] {
        Value::Null => String::new(),
        before => format!(" (before: {})", time(before)),
    };
    let missing = match job["missing_reports"].as_u64() {
        None | Some(0) => String::new(),
        Some(missing) => format!(", {} reports of ranks missing in them", thousands(missing)),
    };
    let title = format!(
        "{} of {}: {}, mode {}, {} of {} ranks, {} steps{missing}, {}{before} a step",
        text(&job["job"]),
        text(&job["user"]),
        text(&job["state"]),
        text(&job["mode"]),
        job["joined"],
        match &job["world_size"] {
            Value::Null => &job["ranks"],
            size => size,
        },
        thousands(job["steps"].as_u64().unwrap_or(0)),
        time(&job["step_ns"]),
    );
    let mut processes: Vec<&Value> = job["processes"].as_array().into_iter().flatten().collect();
    processes.sort_by_key(|process| process["rank"].as_u64());
    let rows: Vec<Vec<String>> = processes.into_iter().map(row).collect();
    let headings = [
        "rank",
        "state",
        "step",
        "time",
        "communication",
        "late",
        "compute",
        "exposed",
        "idle",
        "waiting for",
        "GPUs",
        "MHz",
        "lost",
    ];
    print_table(&title, &headings, &rows, Overflow::Drop);
    let findings = job["findings"].as_array().into_iter().flatten();
    for finding in findings.rev().take(3) {
        anstream::println!(" {}: {}", text(&finding["trigger"]), text(&finding["title"]));
    }
}

fn row(process: &Value) -> Vec<String> {
    let step = &process["step"];
    let outstanding = match (process["enqueued"].as_u64(), process["finished"].as_u64()) {
        (Some(enqueued), Some(finished)) => enqueued.saturating_sub(finished).to_string(),
        _ => "-".to_owned(),
    };
    let numbers = |value: &Value| {
        let all: Vec<String> = value.as_array().into_iter().flatten().map(text).collect();
        if all.is_empty() {
            "-".to_owned()
        } else {
            all.join(",")
        }
    };
    vec![
        text(&process["rank"]),
        text(&process["state"]),
        text(&process["last_step"]),
        time(&step["duration_ns"]),
        time(&step["communication_ns"]),
        time(&step["late_ns"]),
        time(&step["compute_ns"]),
        time(&step["exposed_ns"]),
        time(&step["idle_ns"]),
        outstanding,
        numbers(&process["devices"]),
        numbers(&process["clocks_mhz"]),
        text(&process["lost_rows"]),
    ]
}
