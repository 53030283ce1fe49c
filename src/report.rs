//! The tables that a person reads: per rank, per stream, kernels, findings, losses.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use gputrace_analyzer::{Analysis, RankAnalysis};
use gputrace_trace::Loss;

use crate::text::{duration, percent, shorten, thousands, wrap};

/// The width where there is no terminal to ask.
const DEFAULT_WIDTH: usize = 110;
/// What a table leaves for a name when the terminal is narrow.
const NARROWEST_NAME: usize = 16;

fn terminal_width() -> usize {
    terminal_size::terminal_size()
        .map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0))
        .max(40)
}

/// A table that fits the width: headings, then rows, all but the first column to the right.
fn table(headings: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(Cell::new));
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What becomes of columns that the terminal has no room for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    /// A second table with the first column again.
    Continue,
    /// Left out: the JSON has them.
    Drop,
}

/// Prints a table whole where it fits, and else as many columns as do.
fn print_table(title: &str, headings: &[&str], rows: &[Vec<String>], overflow: Overflow) {
    let width = terminal_width();
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            // A space on either side of each cell.
            cells.chain([headings[column].chars().count()]).max().unwrap_or(0) + 2
        })
        .collect();
    let mut first = 1;
    let mut title = Some(title);
    while first < headings.len() {
        let mut used = widths[0];
        let mut last = first;
        while last < headings.len() && (last == first || used + widths[last] <= width) {
            used += widths[last];
            last += 1;
        }
        let columns: Vec<usize> = std::iter::once(0).chain(first..last).collect();
        let part_headings: Vec<&str> = columns.iter().map(|&column| headings[column]).collect();
        let part_rows = rows
            .iter()
            .map(|row| columns.iter().map(|&column| row[column].clone()).collect())
            .collect();
        if let Some(title) = title.take() {
            anstream::println!("\n{title}");
        }
        anstream::println!("{}", table(&part_headings, part_rows).trim_fmt());
        if overflow == Overflow::Drop {
            return;
        }
        first = last;
    }
}

fn rank_label(rank: &RankAnalysis) -> String {
    let number = rank
        .rank
        .map_or_else(|| "-".to_owned(), |number| number.to_string());
    format!("{number} (GPU {})", rank.device_index)
}

fn print_ranks(analysis: &Analysis) {
    let headings = [
        "rank",
        "span",
        "compute",
        "communication",
        "hidden",
        "exposed",
        "copy",
        "idle",
        "idle ratio",
        "overlap ratio",
    ];
    let rows: Vec<Vec<String>> = analysis
        .ranks
        .iter()
        .map(|rank| {
            vec![
                rank_label(rank),
                duration(rank.measures.span_ns),
                duration(rank.measures.compute_ns),
                duration(rank.measures.communication_ns),
                duration(rank.measures.communication_hidden_ns),
                duration(rank.measures.communication_exposed_ns),
                duration(rank.measures.copy_ns),
                duration(rank.measures.idle_ns),
                percent(rank.measures.idle_ratio),
                percent(rank.measures.overlap_ratio),
            ]
        })
        .collect();
    print_table("Ranks", &headings, &rows, Overflow::Continue);
}

fn print_streams(analysis: &Analysis) {
    let rows: Vec<Vec<String>> = analysis
        .ranks
        .iter()
        .flat_map(|rank| rank.streams.iter().map(move |stream| (rank, stream)))
        .map(|(rank, stream)| {
            vec![
                rank_label(rank),
                stream.stream.to_string(),
                thousands(stream.ops as u64),
                duration(stream.busy_ns),
                percent(stream.idle_ratio),
            ]
        })
        .collect();
    print_table(
        "Streams",
        &["rank", "stream", "operations", "busy", "idle ratio"],
        &rows,
        Overflow::Continue,
    );
}

fn print_kernels(analysis: &Analysis) {
    let headings = [
        "kernel", "rank", "kind", "count", "total", "mean", "p50", "p99", "max",
    ];
    let others: usize = 88;
    let name_width = terminal_width().saturating_sub(others).max(NARROWEST_NAME);
    let mut rows = Vec::new();
    for rank in &analysis.ranks {
        for kernel in &rank.kernels {
            rows.push(vec![
                shorten(&kernel.name, name_width.max(28)),
                rank.rank
                    .map_or_else(|| "-".to_owned(), |number| number.to_string()),
                kernel.kind.clone(),
                thousands(kernel.count as u64),
                duration(kernel.total_ns),
                duration(kernel.durations.mean_ns),
                duration(kernel.durations.p50_ns),
                duration(kernel.durations.p99_ns),
                duration(kernel.durations.max_ns),
            ]);
        }
    }
    print_table(
        "Kernels (total is a sum over streams, not time passed)",
        &headings,
        &rows,
        Overflow::Drop,
    );
}

/// A loss as a sentence.
pub fn loss_line(loss: &Loss) -> String {
    match loss.count {
        Some(1) | None => format!("{} (touches {})", loss.what, loss.affects),
        Some(count) => format!("{}: {} (touches {})", loss.what, thousands(count), loss.affects),
    }
}

fn print_list(title: &str, lines: impl Iterator<Item = String>) {
    let width = terminal_width();
    for (index, line) in lines.enumerate() {
        if index == 0 {
            anstream::println!("\n{title}");
        }
        for (part, text) in wrap(&line, width.saturating_sub(4)).into_iter().enumerate() {
            anstream::println!("{} {text}", if part == 0 { " -" } else { "  " });
        }
    }
}

/// Prints everything.
pub fn print(analysis: &Analysis, simulated: bool) {
    if simulated {
        anstream::println!("SIMULATED GPUs: device times are modelled, not measured.");
    }
    if analysis.ranks.is_empty() {
        anstream::println!("No operation of a GPU was recorded.");
    } else {
        print_ranks(analysis);
        print_streams(analysis);
        print_kernels(analysis);
    }
    print_list(
        "Findings",
        analysis.findings.iter().map(|finding| {
            let saves = if finding.saves_ns > 0 {
                format!(" (up to {})", duration(finding.saves_ns))
            } else {
                String::new()
            };
            format!("{}{saves}: {}", finding.text, finding.evidence)
        }),
    );
    print_list("Lost", analysis.losses.iter().map(loss_line));
    print_list("Notes", analysis.notes.iter().cloned());
}
