//! What a person reads: tables per rank, causes, kernels, collectives, findings, losses.

mod cells;
mod communicators;
mod kernel_labels;
mod list;
mod operators;
mod recording;
mod sections;
mod state;
mod steps;
pub mod table;
mod view;

use gputrace_analyzer::Analysis;
use gputrace_trace::Loss;

use crate::text::{SIMULATED, duration, thousands};
pub use list::print_list;
pub use operators::By;
pub use table::{Overflow, print_table, terminal_width};
pub use view::View;

/// A loss as a sentence.
pub fn loss_line(loss: &Loss) -> String {
    match loss.count {
        Some(1) | None => format!("{} (touches {})", loss.what, loss.affects),
        Some(count) => format!("{}: {} (touches {})", loss.what, thousands(count), loss.affects),
    }
}

/// Prints one table alone. `false` where the recording has nothing of the kind.
pub fn print_by(analysis: &Analysis, by: By, view: View) -> bool {
    table::beside(analysis.job_ranks.share(), || match by {
        By::Kernel => {
            head(analysis, view);
            sections::kernels(analysis, view);
            true
        }
        by => operators::print_by(analysis, by, view.top, || head(analysis, view)),
    })
}

/// Where the numbers are from.
fn head(analysis: &Analysis, view: View) {
    if view.simulated {
        anstream::println!("{SIMULATED}");
    } else if analysis.device == "imported" {
        anstream::println!("Imported from {}.", analysis.source);
    }
    if let Some(sentence) = analysis.job_ranks.sentence() {
        anstream::println!("{sentence}.");
    }
}

/// Prints everything. The analysis has all kernels: what is shown of them is chosen after they are summed over ranks.
pub fn print(analysis: &Analysis, view: View) {
    table::beside(analysis.job_ranks.share(), || print_all(analysis, view));
}

fn print_all(analysis: &Analysis, view: View) {
    head(analysis, view);
    if analysis.ranks.is_empty() {
        anstream::println!("No operation of a GPU was recorded.");
    } else {
        sections::print(analysis, view);
        state::print(analysis);
    }
    recording::unfinished(analysis);
    print_list(
        "Findings",
        analysis.findings.iter().map(|finding| {
            let replayed = finding.saves_low_ns.zip(finding.saves_high_ns);
            let saves = match (finding.saves_ns, finding.saves_per_step_ns, replayed) {
                (None | Some(..=0), ..) => String::new(),
                // By a replay of all ranks: what a step loses if this alone is mended.
                (Some(_), Some(_), Some((low, high))) => {
                    let (low, high) = (duration(low.max(0)), duration(high));
                    let saves = if low == high {
                        low
                    } else {
                        format!("{low} to {high}")
                    };
                    format!(" (saves {saves} a step)")
                }
                (Some(saves), Some(per_step), None) if per_step != saves => {
                    format!(" (up to {}, {} a step)", duration(saves), duration(per_step))
                }
                (Some(saves), ..) => format!(" (up to {})", duration(saves)),
            };
            format!("{}{saves}: {}", finding.text, finding.evidence)
        }),
    );
    recording::cost(analysis);
    print_list("Lost", analysis.losses.iter().map(loss_line));
    print_list("Notes", analysis.notes.iter().cloned());
}
