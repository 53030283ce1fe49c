//! Steps as bars: how long each took, and what of it was compute, communication and idling.

use std::collections::BTreeMap;

use gputrace_analyzer::{Analysis, PARTS, Parts, StepAnalysis, step_number};

use super::bars::CLASSES;
use super::label;
use super::text::{Escaped, Page, counted, duration, or_dash, thousands};

/// Bars of the picture: of more steps each stands for several.
const MOST_BARS: usize = 150;
/// GPUs in the table.
const MOST_DEVICES: usize = 64;
/// The picture's size in its own units.
const WIDTH: usize = 1200;
const HEIGHT: i64 = 160;

/// The mean of a step over the GPUs: its duration, and its parts.
#[derive(Clone, Default)]
struct Mean {
    count: i64,
    duration_ns: i64,
    parts: Parts,
    outlier: bool,
}

impl Mean {
    fn add(&mut self, step: &StepAnalysis) {
        self.count += 1;
        self.duration_ns += step.duration_ns;
        self.parts += step.parts;
        self.outlier |= step.outlier;
    }

    fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.duration_ns += other.duration_ns;
        self.parts += other.parts;
        self.outlier |= other.outlier;
    }

    fn of(&self, sum: i64) -> i64 {
        sum / self.count.max(1)
    }
}

/// Draws the steps, and sums them up for each GPU.
pub fn steps(analysis: &Analysis, page: &mut Page) {
    let mut means: BTreeMap<u64, Mean> = BTreeMap::new();
    for rank in &analysis.ranks {
        for (place, step) in (0u64..).zip(&rank.steps) {
            let number = step_number(step.name.trim_end_matches(" (detected)")).unwrap_or(place);
            means.entry(number).or_default().add(step);
        }
    }
    if means.is_empty() {
        return;
    }
    let detected = analysis
        .ranks
        .iter()
        .flat_map(|rank| &rank.steps)
        .any(|step| step.detected);
    let a_bar = means.len().div_ceil(MOST_BARS);
    let mut lead = format!(
        "{}, the mean over {}.",
        counted(means.len(), "step"),
        counted(
            analysis
                .ranks
                .iter()
                .filter(|rank| !rank.steps.is_empty())
                .count(),
            "GPU"
        ),
    );
    if a_bar > 1 {
        lead += &format!(" Each bar is the mean of {a_bar} steps.");
    }
    if analysis
        .step
        .as_ref()
        .is_some_and(|step| !step.warm_up.is_empty())
    {
        lead += " Means in the table are without the slow first steps (warm-up).";
    }
    if detected {
        lead += " They were guessed from a repeating pattern.";
    }
    page.section("steps", "Steps", &lead);
    page.add("<p class=\"legend\">");
    for (class, part) in CLASSES.iter().zip(&PARTS) {
        page.add(format_args!(
            "<span><i class=\"{class}\"></i>{}</span> ",
            part.label
        ));
    }
    page.add("</p>\n");
    let numbers: Vec<u64> = means.keys().copied().collect();
    let all: Vec<Mean> = means.into_values().collect();
    let bars: Vec<(u64, u64, Mean)> = all
        .chunks(a_bar)
        .zip(numbers.chunks(a_bar))
        .map(|(steps, numbers)| {
            let mut mean = Mean::default();
            steps.iter().for_each(|step| mean.join(step));
            (numbers[0], numbers[numbers.len() - 1], mean)
        })
        .collect();
    picture(&bars, page);
    table(analysis, page);
}

fn picture(bars: &[(u64, u64, Mean)], page: &mut Page) {
    let longest = bars
        .iter()
        .map(|(.., mean)| mean.of(mean.duration_ns))
        .max()
        .unwrap_or(0)
        .max(1);
    let height =
        |ns: i64| i64::try_from(i128::from(ns) * i128::from(HEIGHT) / i128::from(longest)).unwrap_or(HEIGHT);
    page.add(format_args!(
        "<div class=\"chart\"><span class=\"most\">{}</span><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"duration of each step\">",
        duration(longest)
    ));
    let pitch = (WIDTH / bars.len().max(1)).min(60);
    let wide = (pitch * 4 / 5).max(1);
    for (place, (first, last, mean)) in bars.iter().enumerate() {
        let x = place * pitch;
        let which = if first == last {
            format!("step {first}")
        } else {
            format!("steps {first} to {last}")
        };
        let outlier = if mean.outlier { ", unlike the others" } else { "" };
        let parts: Vec<String> = mean
            .parts
            .each()
            .map(|(part, ns)| format!("{} {}", part.label, duration(mean.of(ns))))
            .collect();
        page.add(format_args!(
            "<g><title>{which}: {}{outlier}\n{}</title>",
            duration(mean.of(mean.duration_ns)),
            parts.join(", ")
        ));
        let top = HEIGHT - height(mean.of(mean.duration_ns));
        page.add(format_args!(
            "<rect class=\"idle\" x=\"{x}\" y=\"{top}\" width=\"{wide}\" height=\"{}\"/>",
            HEIGHT - top
        ));
        let mut bottom = HEIGHT;
        // What is left over is idle, which is drawn behind all of them.
        for (class, ns) in CLASSES.iter().zip(mean.parts.times()).take(PARTS.len() - 1) {
            let tall = height(mean.of(ns)).min(bottom);
            if tall > 0 {
                bottom -= tall;
                page.add(format_args!(
                    "<rect class=\"{class}\" x=\"{x}\" y=\"{bottom}\" width=\"{wide}\" height=\"{tall}\"/>"
                ));
            }
        }
        page.add("</g>");
    }
    page.add("</svg>");
    if let (Some((first, ..)), Some((_, last, _))) = (bars.first(), bars.last()) {
        let right = 100.0 - (bars.len() * pitch) as f64 / WIDTH as f64 * 100.0;
        page.add(format_args!(
            "<span class=\"ends\" style=\"margin-right:{right:.2}%\"><span>step {first}</span><span>step {last}</span></span>"
        ));
    }
    page.add("</div>\n");
}

fn table(analysis: &Analysis, page: &mut Page) {
    page.add("<div class=\"scroll\"><table><thead><tr><th scope=\"col\">GPU</th>");
    for heading in ["steps", "mean", "deviation", "shortest", "median", "longest"] {
        page.add(format_args!("<th scope=\"col\" class=\"n\">{heading}</th>"));
    }
    page.add("<th scope=\"col\">unlike the others</th></tr></thead><tbody>\n");
    for rank in analysis.ranks.iter().take(MOST_DEVICES) {
        let Some(summary) = &rank.step_summary else {
            continue;
        };
        let outliers = summary.outliers_in_words(|name| super::text::shorten(name, 60));
        let durations = &summary.durations;
        page.add(format_args!(
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
            Escaped(label(rank)),
            thousands(summary.count as u64),
            duration(durations.mean_ns),
            or_dash(Some(summary.standard_deviation_ns.round() as i64), duration),
            duration(durations.min_ns),
            duration(durations.p50_ns),
            duration(durations.max_ns),
            Escaped(outliers),
        ));
    }
    page.add("</tbody></table></div>\n");
    let more = analysis.ranks.len().saturating_sub(MOST_DEVICES);
    if more > 0 {
        page.add(format_args!(
            "<p class=\"more\">{more} more GPUs: <code>gputrace analyze</code> has them.</p>\n"
        ));
    }
}
