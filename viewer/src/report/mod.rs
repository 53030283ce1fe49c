//! An analysis as one page that needs nothing else: for a ticket or a mail.
//!
//! One HTML file with its style and its pictures (SVG) in it, without scripts and without a request to anywhere. Whatever
//! a picture has no room for is drawn together with its neighbours, and counted beside it.

mod bars;
mod head;
mod steps;
mod stretch;
mod tables;
mod text;
mod timeline;

use std::io::{self, Write};

use gputrace_analyzer::{Analysis, RankAnalysis};
use gputrace_trace::{Derived, Recording};

pub use stretch::Shown;
use text::Page;

/// What is written.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What the picture of the timeline shows.
    pub shown: Shown,
}

/// What the picture of the timeline holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// GPU operations that have a part in the stretch of time.
    pub operations: u64,
    /// Those that were drawn alone,
    pub drawn_alone: u64,
    /// and those that were drawn together with their neighbours.
    pub drawn_together: u64,
    /// GPUs that are not in the picture, because there are too many.
    pub devices_left_out: usize,
}

/// Writes the page. `derived` is of the same recording and analysis.
///
/// # Errors
/// When `out` refuses.
pub fn write(
    recording: &Recording,
    analysis: &Analysis,
    derived: &Derived,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<Summary> {
    let mut page = Page::default();
    head::begin(recording, analysis, &mut page);
    head::figures(analysis, &mut page);
    head::findings(analysis, &mut page);
    let summary = timeline::draw(recording, analysis, derived, options.shown, &mut page);
    bars::ranks(analysis, &mut page);
    steps::steps(analysis, &mut page);
    bars::idle_causes(analysis, &mut page);
    tables::collectives(analysis, &mut page);
    tables::kernels(analysis, &mut page);
    tables::losses_and_notes(analysis, &mut page);
    head::end(&mut page);
    out.write_all(page.html().as_bytes())?;
    Ok(summary)
}

/// Whether the picture would show any operation.
#[must_use]
pub fn holds_anything(recording: &Recording, derived: &Derived, shown: Shown) -> bool {
    timeline::holds_anything(recording, derived, shown)
}

/// A rank as it is called: with its GPU where that is not the one that goes without saying.
fn label(rank: &RankAnalysis) -> String {
    match rank.rank {
        Some(number) if rank.device_index == 0 || rank.device_index == number => format!("rank {number}"),
        Some(number) => format!("rank {number}, GPU {}", rank.device_index),
        None => format!("GPU {}", rank.device_index),
    }
}

/// The causes of idle time, by the analysis' words, as they are called in the page.
const CAUSES: [(&str, &str); 7] = [
    ("host_late", "host late"),
    ("launch_latency", "launch latency"),
    ("event_wait", "event wait"),
    ("peer_wait", "peer wait"),
    ("queue_full", "queue full"),
    ("nothing_submitted", "nothing submitted"),
    ("unknown", "unknown"),
];

/// The place of a cause in [`CAUSES`].
fn cause_number(word: &str) -> usize {
    let place = CAUSES.iter().position(|(name, _)| *name == word);
    place.unwrap_or(CAUSES.len() - 1)
}
