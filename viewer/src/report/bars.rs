//! Bars: where each GPU's time went, and why it was idle.

use gputrace_analyzer::{Analysis, CATALOGUE, PARTS, RankAnalysis};

use super::text::{Escaped, Page, duration, percent};
use super::{CAUSES, cause_number, label};

/// More GPUs than this are not shown one by one.
const MOST_DEVICES: usize = 128;

/// The classes of the parts' colours, in the order of [`PARTS`].
pub const CLASSES: [&str; PARTS.len()] = ["compute", "hidden", "exposed", "copy", "idle"];

/// Parts with their classes and words.
fn classed(parts: &gputrace_analyzer::Parts) -> Vec<(&'static str, &'static str, i64)> {
    let parts = CLASSES.iter().zip(parts.each());
    parts
        .map(|(class, (part, ns))| (*class, part.label, ns))
        .collect()
}

/// One bar of parts; `whole` is its full width.
fn bar(page: &mut Page, words: &str, parts: &[(&str, &str, i64)], whole: i64) {
    page.add(format_args!(
        "<div class=\"bar\" role=\"img\" aria-label=\"{}\">",
        Escaped(words)
    ));
    for (class, word, ns) in parts {
        if *ns > 0 {
            let share = *ns as f64 / whole.max(1) as f64;
            page.add(format_args!(
                "<i class=\"{class}\" style=\"width:{:.3}%\" title=\"{word}: {} ({})\"></i>",
                share * 100.0,
                duration(*ns),
                percent(Some(share))
            ));
        }
    }
    page.add("</div>");
}

fn legend(page: &mut Page, kinds: &[(&str, &str)]) {
    page.add("<p class=\"legend\">");
    for (class, word) in kinds {
        page.add(format_args!("<span><i class=\"{class}\"></i>{word}</span> "));
    }
    page.add("</p>\n");
}

fn said(parts: &[(&str, &str, i64)]) -> String {
    let parts: Vec<String> = parts
        .iter()
        .filter(|(.., ns)| *ns > 0)
        .map(|(_, word, ns)| format!("{word} {}", duration(*ns)))
        .collect();
    parts.join(", ")
}

/// A line about GPUs that are not shown.
fn left_out(analysis: &Analysis, page: &mut Page) {
    let more = analysis.ranks.len().saturating_sub(MOST_DEVICES);
    if more > 0 {
        page.add(format_args!(
            "<p class=\"more\">{more} more GPUs: <code>gputrace analyze</code> has them, <code>--ranks</code> chooses.</p>\n"
        ));
    }
}

/// Where each GPU's time went.
pub fn ranks(analysis: &Analysis, page: &mut Page) {
    if analysis.ranks.is_empty() {
        return;
    }
    page.section(
        "ranks",
        "Where the time goes",
        "Each GPU's span, from its first operation to its last. Each moment counts once: the parts of a bar sum to the span.",
    );
    let kinds: Vec<(&str, &str)> = CLASSES
        .into_iter()
        .zip(PARTS.iter().map(|part| part.label))
        .collect();
    legend(page, &kinds);
    let longest = analysis
        .ranks
        .iter()
        .map(|rank| rank.measures.span_ns)
        .max()
        .unwrap_or(0);
    page.add("<div class=\"scroll\"><table class=\"bars\"><thead><tr><th scope=\"col\">GPU</th><th scope=\"col\" class=\"wide\">span</th>");
    for measure in CATALOGUE {
        page.add(format_args!(
            "<th scope=\"col\" class=\"n\" title=\"{}\">{}</th>",
            Escaped(measure.definition),
            measure.label
        ));
    }
    page.add("</tr></thead><tbody>\n");
    for rank in analysis.ranks.iter().take(MOST_DEVICES) {
        let measures = &rank.measures;
        let parts = classed(&rank.parts);
        page.add(format_args!(
            "<tr><th scope=\"row\">{}</th><td class=\"wide\">",
            Escaped(label(rank))
        ));
        bar(page, &said(&parts), &parts, longest);
        page.add("</td>");
        for measure in CATALOGUE {
            page.add(format_args!(
                "<td class=\"n\">{}</td>",
                measure.text(measures, duration, percent)
            ));
        }
        page.add("</tr>\n");
    }
    page.add("</tbody></table></div>\n");
    left_out(analysis, page);
}

/// Parts of a bar: their class, what they are, and how long.
type Parts = Vec<(String, &'static str, i64)>;

/// A rank's idle time by cause, in the order of [`CAUSES`].
fn causes(rank: &RankAnalysis) -> Parts {
    let mut parts: Parts = CAUSES
        .iter()
        .enumerate()
        .map(|(number, (_, word))| (format!("cause{number}"), *word, 0))
        .collect();
    for (cause, ns) in &rank.idle_causes {
        parts[cause_number(cause)].2 += ns;
    }
    parts
}

/// Why each GPU was idle.
pub fn idle_causes(analysis: &Analysis, page: &mut Page) {
    if analysis.ranks.iter().all(|rank| rank.measures.idle_ns == 0) {
        return;
    }
    page.section(
        "idle",
        "Why the GPUs waited",
        "Gaps between a GPU's first and last operation, by cause. The causes sum to the idle time.",
    );
    let all: Vec<(&RankAnalysis, Parts)> = analysis.ranks.iter().map(|rank| (rank, causes(rank))).collect();
    let found: Vec<usize> = (0..CAUSES.len())
        .filter(|&cause| all.iter().any(|(_, parts)| parts[cause].2 > 0))
        .collect();
    let classes: Vec<(String, &str)> = found
        .iter()
        .map(|cause| (format!("cause{cause}"), CAUSES[*cause].1))
        .collect();
    let kinds: Vec<(&str, &str)> = classes
        .iter()
        .map(|(class, word)| (class.as_str(), *word))
        .collect();
    legend(page, &kinds);
    let most = analysis
        .ranks
        .iter()
        .map(|rank| rank.measures.idle_ns)
        .max()
        .unwrap_or(0);
    page.add("<div class=\"scroll\"><table class=\"bars\"><thead><tr><th scope=\"col\">GPU</th><th scope=\"col\" class=\"wide\">idle time by cause</th><th scope=\"col\" class=\"n\">idle</th>");
    for (_, word) in &kinds {
        page.add(format_args!("<th scope=\"col\" class=\"n\">{word}</th>"));
    }
    page.add("<th scope=\"col\">the host was mostly in</th></tr></thead><tbody>\n");
    for (rank, parts) in all.iter().take(MOST_DEVICES) {
        let parts: Vec<(&str, &str, i64)> = parts
            .iter()
            .map(|(class, word, ns)| (class.as_str(), *word, *ns))
            .collect();
        page.add(format_args!(
            "<tr><th scope=\"row\">{}</th><td class=\"wide\">",
            Escaped(label(rank))
        ));
        bar(page, &said(&parts), &parts, most);
        page.add(format_args!(
            "</td><td class=\"n\">{}</td>",
            duration(rank.measures.idle_ns)
        ));
        for cause in &found {
            page.add(format_args!("<td class=\"n\">{}</td>", duration(parts[*cause].2)));
        }
        let host = rank.host_late_by.iter().max_by_key(|(_, ns)| **ns);
        let host = host.map_or_else(String::new, |(what, ns)| {
            format!(
                "{} ({})",
                super::text::name(&super::text::shorten(what, 200)),
                duration(*ns)
            )
        });
        page.add(format_args!("<td>{host}</td></tr>\n"));
    }
    page.add("</tbody></table></div>\n");
    left_out(analysis, page);
}
