//! The table of steps.

use gputrace_analyzer::{Analysis, StepAnalysis};

use super::cells::rank_label;
use super::table::{Overflow, print_table};
use crate::text::{duration, percent, thousands};

/// Mean of the steps' model FLOP utilization, without warm-up.
fn mean_utilization(steps: &[StepAnalysis]) -> Option<f64> {
    let steps = steps.iter().filter(|step| !step.warm_up);
    let known: Vec<f64> = steps.filter_map(|step| step.mfu).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// Prints how long the steps of each rank took.
pub(super) fn steps(analysis: &Analysis) {
    let rows: Vec<Vec<String>> = analysis
        .ranks
        .iter()
        .filter_map(|rank| {
            let summary = rank.step_summary.as_ref()?;
            Some(vec![
                rank_label(rank),
                thousands(summary.count as u64),
                duration(summary.durations.mean_ns),
                duration(summary.standard_deviation_ns.round() as i64),
                duration(summary.durations.min_ns),
                duration(summary.durations.p50_ns),
                duration(summary.durations.max_ns),
                percent(mean_utilization(&rank.steps)),
                summary.outliers_in_words(str::to_owned),
            ])
        })
        .collect();
    let Some(step) = &analysis.step else {
        return;
    };
    let detected = analysis
        .ranks
        .iter()
        .filter_map(|rank| rank.step_summary.as_ref())
        .any(|summary| summary.detected);
    let guessed = if detected {
        " (guessed from a repeating pattern)"
    } else {
        ""
    };
    let slowest = if rows.len() > 1 {
        ", each as long as on its slowest rank"
    } else {
        ""
    };
    let warm_up = if step.warm_up.is_empty() {
        ""
    } else {
        "; means are without warm-up"
    };
    let title = format!(
        "Steps{guessed}: {} in the mean{slowest}{warm_up}",
        duration(step.mean_ns)
    );
    let headings = [
        "rank",
        "steps",
        "mean",
        "deviation",
        "min",
        "p50",
        "max",
        "MFU",
        "outliers",
    ];
    // Only where the work of the operators and the GPU's peak are known.
    let no_utilization = analysis
        .ranks
        .iter()
        .all(|rank| mean_utilization(&rank.steps).is_none());
    let mut headings = headings.to_vec();
    let mut rows = rows;
    if no_utilization {
        let column = headings.len() - 2;
        headings.remove(column);
        rows.iter_mut().for_each(|row| drop(row.remove(column)));
    }
    print_table(&title, &headings, &rows, Overflow::Continue);
}
