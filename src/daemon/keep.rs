//! `gputrace capture` and `gputrace snapshot`.

use std::time::Duration;

use gputrace_trace::daemon::{Ask, Limits};
use serde_json::Value;

use super::client::{Question, check_output, fetch, text};
use crate::cli::{CaptureArgs, KeptArgs, Kinds, SnapshotArgs};
use crate::failure::Failure;
use crate::print_json::print_json;
use crate::text::{bytes, one_line};

/// Steps that are captured unless it is said otherwise.
const STEPS: u64 = 5;
/// What the daemon allows steps to take that no time was given for, and then some.
const LONGEST_BY_STEPS_S: f64 = 150.0;

/// Records kernels for a while.
pub fn capture(args: &CaptureArgs) -> Result<i32, Failure> {
    check_output(args.kept.output.as_ref())?;
    let steps = args.steps.or(args.seconds.is_none().then_some(STEPS));
    let wait = args.wait || args.kept.output.is_some();
    let ask = Ask::Capture {
        job: args.job.clone(),
        limits: Limits {
            steps,
            seconds: args.seconds,
            ranks: args.ranks.as_ref().map(|ranks| ranks.0.clone()),
            kinds: args.kinds.as_ref().map(Kinds::words),
        },
        wait,
    };
    let longest = args.seconds.unwrap_or(LONGEST_BY_STEPS_S);
    let longer = if wait {
        Duration::from_secs_f64(longest)
    } else {
        Duration::ZERO
    };
    finish(&args.kept, ask, longer)
}

/// Keeps what the ring holds.
pub fn snapshot(args: &SnapshotArgs) -> Result<i32, Failure> {
    check_output(args.kept.output.as_ref())?;
    let ask = Ask::Snapshot {
        job: args.job.clone(),
        last_s: args.last,
    };
    finish(&args.kept, ask, Duration::ZERO)
}

fn finish(args: &KeptArgs, ask: Ask, longer: Duration) -> Result<i32, Failure> {
    let document = Question::ask(&args.socket, ask, longer)?.document()?;
    let recording = text(&document["recording"]);
    let output = args.output.as_ref();
    if let Some(folder) = output {
        fetch(&args.socket, &recording, folder)?;
    }
    if args.json {
        print_json(&document)?;
        return Ok(0);
    }
    if document["state"] != "complete" {
        anstream::println!(
            "{recording} is being recorded: `gputrace jobs --captures` lists it when it is done"
        );
        return Ok(0);
    }
    let place = output.map_or_else(|| recording.clone(), |folder| folder.display().to_string());
    anstream::println!(
        "{place}: {} processes, {}",
        document["processes"],
        bytes(document["bytes"].as_u64().unwrap_or(0))
    );
    for line in missing(&document) {
        anstream::eprintln!("gputrace: {line}");
    }
    if output.is_some() {
        anstream::println!("  gputrace analyze {place}");
    } else {
        anstream::println!("  gputrace jobs --fetch {recording} -o DIR    copies it");
    }
    Ok(0)
}

/// What there is less of than was asked.
fn missing(document: &Value) -> Vec<String> {
    let ranks = document["ranks"].as_array().into_iter().flatten();
    ranks
        .filter(|rank| !rank["missing"].is_null())
        .map(|rank| format!("rank {}: {}", rank["rank"], one_line(&text(&rank["missing"]))))
        .collect()
}
