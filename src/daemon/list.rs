//! `gputrace jobs`: what is watched, and what was kept.

use std::path::Path;

use chrono::{Local, TimeZone};
use gputrace_trace::daemon::Ask;
use serde_json::Value;

use super::client::{check_output, document, fetch, text, time};
use crate::cli::JobsArgs;
use crate::failure::Failure;
use crate::print_json::print_json;
use crate::report::table::{Overflow, print_table};
use crate::text::{bytes, one_line};

/// Lists them.
pub fn jobs(args: &JobsArgs) -> Result<i32, Failure> {
    if let (Some(recording), Some(folder)) = (&args.fetch, &args.output) {
        check_output(Some(folder))?;
        fetch(&args.socket, recording, folder)?;
        anstream::println!("  gputrace analyze {}", folder.display());
        return Ok(0);
    }
    let pin = |recording: &String, pinned| Ask::Pin {
        recording: recording.clone(),
        pinned,
    };
    let ask = match (&args.pin, &args.unpin) {
        (Some(recording), _) => pin(recording, true),
        (_, Some(recording)) => pin(recording, false),
        _ if args.captures => Ask::Captures,
        _ => Ask::Jobs,
    };
    let is_jobs = ask == Ask::Jobs;
    let document = document(&args.socket, ask)?;
    if args.json {
        print_json(&document)?;
    } else if is_jobs {
        print_jobs(&document);
        if document["disk_stands_ns"].is_i64() {
            anstream::println!(
                " the daemon's disk has not answered for {}: {} requests of processes wait for it",
                time(&document["disk_stands_ns"]),
                document["disk_waiting"]
            );
        }
    } else {
        print_captures(&document);
    }
    Ok(0)
}

fn rows<'d>(document: &'d Value, member: &str) -> &'d [Value] {
    document[member].as_array().map_or(&[], Vec::as_slice)
}

fn print_jobs(document: &Value) {
    let jobs = rows(document, "jobs");
    if jobs.is_empty() {
        anstream::println!("no job has joined: `gputrace env --shell` says how jobs come to be watched");
        return;
    }
    let row = |job: &Value| {
        let joined = match (&job["joined"], &job["world_size"]) {
            (joined, Value::Null) => format!("{joined} of {}", job["ranks"]),
            (joined, world_size) => format!("{joined} of {world_size}"),
        };
        vec![
            text(&job["job"]),
            text(&job["user"]),
            text(&job["state"]),
            text(&job["mode"]),
            joined,
            text(&job["steps"]),
            time(&job["step_ns"]),
            time(&job["step_before_ns"]),
        ]
    };
    let headings = ["job", "user", "state", "mode", "ranks", "steps", "step", "before"];
    let table: Vec<Vec<String>> = jobs.iter().map(row).collect();
    print_table("Jobs", &headings, &table, Overflow::Drop);
    for job in jobs.iter().filter(|job| !job["finding"].is_null()) {
        anstream::println!(" {}: {}", text(&job["job"]), text(&job["finding"]));
    }
}

fn print_captures(document: &Value) {
    let captures = rows(document, "captures");
    if captures.is_empty() {
        anstream::println!("nothing was kept yet: `gputrace capture` and `gputrace snapshot` keep something");
        return;
    }
    let row = |capture: &Value| {
        let time = Local.timestamp_nanos(capture["time_ns"].as_i64().unwrap_or(0));
        vec![
            text(&capture["recording"]),
            text(&capture["user"]),
            time.format("%F %T").to_string(),
            bytes(capture["bytes"].as_u64().unwrap_or(0)),
            if capture["pinned"] == true { "pinned" } else { "" }.to_owned(),
        ]
    };
    let headings = ["recording", "user", "time", "size", ""];
    let table: Vec<Vec<String>> = captures.iter().map(row).collect();
    print_table("Recordings", &headings, &table, Overflow::Continue);
    // Sentences are longer than any column.
    for capture in captures {
        anstream::println!(
            " {}: {}",
            text(&capture["recording"]),
            one_line(&text(&capture["title"]))
        );
    }
    let path = text(&captures[0]["path"]);
    if let Some(folder) = Path::new(&path).parent() {
        anstream::println!(" in {}", one_line(&folder.to_string_lossy()));
    }
    let removed = document["removed"]["captures"].as_u64().unwrap_or(0);
    if removed > 0 {
        let freed = bytes(document["removed"]["bytes"].as_u64().unwrap_or(0));
        anstream::println!(" {removed} were removed as the rules say ({freed})");
    }
}
