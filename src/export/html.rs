//! The page that needs nothing else.

use std::io;

use gputrace_analyzer::{Analysis, Options, analyze_in_detail, derive_from};
use gputrace_interchange::export::ExportSummary;
use gputrace_trace::place::Target;
use gputrace_trace::{Derived, Recording};
use gputrace_viewer::report::{self, Shown};

use super::one_file;
use crate::cli::PartArgs;
use crate::failure::Failure;

/// Writes the page of a recording, with the chosen part of it in its picture: an error, or how the writing went.
pub fn write(
    recording: &Recording,
    part: &PartArgs,
    output: &Target,
) -> Result<io::Result<ExportSummary>, Failure> {
    let refused = |why: &str| Failure::new(format!("{}: {why}", recording.path.display()));
    let shown = match (part.steps, part.range) {
        (Some(_), Some(_)) => return Err(refused("the timeline shows --steps or --range: give one of them")),
        (Some((first, last)), None) => Shown::Steps(first, last),
        (None, Some((from, to))) => Shown::Range(from, to),
        (None, None) => Shown::MedianStep,
    };
    let (analysis, derived) = analysed(recording);
    if !report::holds_anything(recording, &derived, shown) {
        return Err(refused(&match shown {
            Shown::Steps(first, last) => format!("no rank has the steps {first}..{last}"),
            _ => "there is no GPU operation in that range".to_owned(),
        }));
    }
    Ok(page(recording, &analysis, &derived, shown, output))
}

/// The same, with the step of median duration.
pub fn write_whole(recording: &Recording, output: &Target) -> io::Result<ExportSummary> {
    let (analysis, derived) = analysed(recording);
    page(recording, &analysis, &derived, Shown::default(), output)
}

fn analysed(recording: &Recording) -> (Analysis, Derived) {
    let (analysis, details) = analyze_in_detail(recording, &Options::default());
    let derived = derive_from(recording, &analysis, &details);
    (analysis, derived)
}

/// The counts are of the operations in the picture.
fn page(
    recording: &Recording,
    analysis: &Analysis,
    derived: &Derived,
    shown: Shown,
    output: &Target,
) -> io::Result<ExportSummary> {
    one_file(output, |out| {
        let summary = report::write(recording, analysis, derived, &report::Options { shown }, out)?;
        Ok(ExportSummary {
            events_in: summary.operations,
            events_out: summary.drawn_alone + summary.drawn_together,
            ..ExportSummary::default()
        })
    })
}
