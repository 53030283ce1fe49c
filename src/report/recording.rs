//! What the report says of the recording itself: what it cost, and what it caught in the midst.

use gputrace_analyzer::{Analysis, RecordingCost, RecordingOverhead, UnfinishedOperation};

use super::list::print_list;
use crate::text::{bytes, duration, one_line, percent, shorten};

/// Unfinished operations are listed up to here: the JSON has more.
const MOST_LISTED: usize = 8;

/// Operations that began and did not end.
pub fn unfinished(analysis: &Analysis) {
    let more = analysis.unfinished.len().saturating_sub(MOST_LISTED);
    let lines = analysis.unfinished.iter().take(MOST_LISTED).map(line);
    let rest = (more > 0).then(|| format!("{more} more: see --json"));
    print_list("Began and did not end", lines.chain(rest));
}

fn line(operation: &UnfinishedOperation) -> String {
    let who = operation
        .rank
        .map_or_else(|| operation.host.clone(), |rank| format!("rank {rank}"));
    let name = operation.name.as_deref().unwrap_or_default();
    let what = format!("{} {}", operation.what, shorten(&one_line(name), 80));
    let place = match (operation.device_index, operation.stream, operation.thread) {
        (Some(device), Some(stream), _) => format!(" on GPU {device}, stream {stream}"),
        (Some(device), ..) => format!(" on GPU {device}"),
        (.., Some(thread)) => format!(" on thread {thread}"),
        _ => String::new(),
    };
    format!(
        "{who}: {}{place}, for at least {}",
        what.trim_end(),
        duration(operation.at_least_ns)
    )
}

/// What recording cost, by the collectors' own measures: one line, and one more where it was measured by the steps.
pub fn cost(analysis: &Analysis) {
    let costs = &analysis.recording_cost;
    let dearest = costs
        .iter()
        .max_by(|a, b| (a.own_cpu_share + a.callback_share).total_cmp(&(b.own_cpu_share + b.callback_share)));
    let lines = dearest.map(|dearest| cost_line(costs, dearest));
    let measured = analysis.recording_overhead.as_ref().map(overhead_line);
    print_list("Recording cost", lines.into_iter().chain(measured));
}

fn cost_line(costs: &[RecordingCost], dearest: &RecordingCost) -> String {
    let ns = |ns: u64| duration(i64::try_from(ns).unwrap_or(i64::MAX));
    let rows: u64 = costs.iter().map(|cost| cost.rows).sum();
    let written: u64 = costs.iter().map(|cost| cost.bytes_written).sum();
    let most = if costs.len() > 1 {
        format!(" (the most of {} processes)", costs.len())
    } else {
        String::new()
    };
    let a_row = if rows > 0 {
        format!(", {:.1} bytes a row", written as f64 / rows as f64)
    } else {
        String::new()
    };
    format!(
        "in {} of recording {} on a thread of the recorder's own ({} of a core) and {} inside the program's threads ({}){most}; \
         at most {} of memory{a_row}",
        ns(dearest.wall_ns),
        ns(dearest.own_cpu_ns),
        percent(Some(dearest.own_cpu_share)),
        ns(dearest.callback_ns),
        percent(Some(dearest.callback_share)),
        bytes(costs.iter().map(|cost| cost.peak_memory_bytes).max().unwrap_or(0)),
    )
}

/// What recording added to the steps.
pub fn overhead_line(overhead: &RecordingOverhead) -> String {
    let share = |ratio: f64| format!("{:+.2} %", ratio * 100.0);
    format!(
        "recording added {} to a step ({} to {}, at 95 %; a step without it: {}; {} blocks, {} steps with it and {} without)",
        share(overhead.relative),
        share(overhead.relative_low),
        share(overhead.relative_high),
        duration(overhead.step_off_ns.round() as i64),
        overhead.blocks,
        overhead.steps_on,
        overhead.steps_off,
    )
}
