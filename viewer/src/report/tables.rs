//! Tables of collectives and kernels, and what was lost.

use std::collections::BTreeMap;

use gputrace_analyzer::{Analysis, Collective};

use super::text::{
    Escaped, Page, bytes, counted, duration, gigabytes_per_second, name, or_dash, percent, shorten, thousands,
};

/// Rows of a table.
const MOST_ROWS: usize = 24;
/// Losses and notes: whatever was lost is said.
const MOST_LOSSES: usize = 200;

/// Begins a table: headings, those with a `#` in front for numbers.
fn begin(page: &mut Page, caption: &str, headings: &[&str]) {
    page.add(format_args!(
        "<div class=\"scroll\"><table><caption>{}</caption><thead><tr>",
        Escaped(caption)
    ));
    for heading in headings {
        match heading.strip_prefix('#') {
            Some(number) => page.add(format_args!("<th scope=\"col\" class=\"n\">{number}</th>")),
            None => page.add(format_args!("<th scope=\"col\">{heading}</th>")),
        };
    }
    page.add("</tr></thead><tbody>\n");
}

fn end(page: &mut Page, rows: usize) {
    page.add("</tbody></table></div>\n");
    let more = rows.saturating_sub(MOST_ROWS);
    if more > 0 {
        page.add(format_args!(
            "<p class=\"more\">{} more: <code>gputrace analyze --json</code> has them.</p>\n",
            thousands(more as u64)
        ));
    }
}

/// How fast collectives went, and which cost most.
pub fn collectives(analysis: &Analysis, page: &mut Page) {
    if analysis.collectives.is_empty() {
        return;
    }
    page.section(
        "collectives",
        "Collectives",
        &format!(
            "{} over all ranks. {} algbw and busbw are those of nccl-tests, over the transfer without the waiting.",
            counted(analysis.collectives.len(), "operation"),
            sentence(&analysis.clock),
        ),
    );
    begin(
        page,
        "By kind and size",
        &[
            "collective",
            "#ranks",
            "#bytes",
            "#count",
            "#kernel p50",
            "#algbw",
            "#busbw",
            "#with waiting",
        ],
    );
    for size in analysis.collective_sizes.iter().take(MOST_ROWS) {
        page.add(format_args!(
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{} to {}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            name(&size.name),
            or_dash(size.ranks, |ranks| ranks.to_string()),
            bytes(size.bytes_from),
            bytes(size.bytes_below),
            thousands(size.count as u64),
            duration(size.kernel.p50_ns),
            or_dash(size.algbw, gigabytes_per_second),
            or_dash(size.busbw, gigabytes_per_second),
            or_dash(size.algbw_with_waiting, gigabytes_per_second),
        ));
    }
    end(page, analysis.collective_sizes.len());
    let longest_wait = |collective: &Collective| collective.wait_ns.values().copied().max();
    let mut dearest: Vec<&Collective> = analysis
        .collectives
        .iter()
        .filter(|collective| !collective.warm_up && longest_wait(collective).is_some_and(|wait| wait > 0))
        .collect();
    dearest.sort_by_key(|collective| std::cmp::Reverse(longest_wait(collective)));
    if dearest.is_empty() {
        return;
    }
    begin(
        page,
        "Those that a rank waited longest in",
        &[
            "collective",
            "communicator",
            "#number",
            "#bytes",
            "#longest wait",
            "came last",
            "#skew",
            "#busbw",
        ],
    );
    for collective in dearest.iter().take(MOST_ROWS / 2) {
        let communicator = collective
            .communicator_name
            .as_ref()
            .unwrap_or(&collective.communicator);
        page.add(format_args!(
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            name(&collective.name),
            name(&shorten(communicator, 24)),
            or_dash(collective.sequence, thousands),
            or_dash(collective.bytes, bytes),
            or_dash(longest_wait(collective), duration),
            or_dash(collective.last_rank, |rank| format!("rank {rank}")),
            or_dash(collective.skew_ns, duration),
            or_dash(collective.busbw, gigabytes_per_second),
        ));
    }
    page.add("</tbody></table></div>\n");
}

/// A text of the analysis as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => format!(
            "{}{}.",
            first.to_uppercase(),
            letters.as_str().trim_end_matches('.')
        ),
        None => String::new(),
    }
}

/// Kernels, summed over all ranks.
pub fn kernels(analysis: &Analysis, page: &mut Page) {
    #[derive(Default)]
    struct Sum {
        count: u64,
        total_ns: i64,
        max_ns: i64,
    }
    let mut sums: BTreeMap<(&str, &str), Sum> = BTreeMap::new();
    for kernel in analysis.ranks.iter().flat_map(|rank| &rank.kernels) {
        let sum = sums.entry((&kernel.name, kernel.kind)).or_default();
        sum.count += kernel.count as u64;
        sum.total_ns += kernel.total_ns;
        sum.max_ns = sum.max_ns.max(kernel.durations.max_ns);
    }
    if sums.is_empty() {
        return;
    }
    let whole: i64 = sums.values().map(|sum| sum.total_ns).sum();
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by(|a, b| b.1.total_ns.cmp(&a.1.total_ns).then(a.0.cmp(&b.0)));
    page.section(
        "kernels",
        "Operations",
        "By name over all ranks. Totals are sums over streams, not time passed.",
    );
    begin(
        page,
        "",
        &["name", "kind", "#count", "#total", "#share", "#mean", "#longest"],
    );
    for ((kernel, kind), sum) in rows.iter().take(MOST_ROWS) {
        page.add(format_args!(
            "<tr><td>{}</td><td><i class=\"dot {kind}\"></i>{kind}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            name(&gputrace_analyzer::demangled(kernel)),
            thousands(sum.count),
            duration(sum.total_ns),
            percent((whole > 0).then(|| sum.total_ns as f64 / whole as f64)),
            duration(sum.total_ns / i64::try_from(sum.count.max(1)).unwrap_or(i64::MAX)),
            duration(sum.max_ns),
        ));
    }
    end(page, rows.len());
}

/// What was lost, and what else is worth knowing.
pub fn losses_and_notes(analysis: &Analysis, page: &mut Page) {
    page.section("losses", "What is missing", "");
    if analysis.losses.is_empty() {
        page.add("<p class=\"lead\">Nothing was lost.</p>\n");
    } else {
        page.add("<ul class=\"losses\">\n");
        for loss in analysis.losses.iter().take(MOST_LOSSES) {
            let count = match loss.count {
                Some(1) | None => String::new(),
                Some(count) => format!(": {}", thousands(count)),
            };
            page.add(format_args!(
                "<li>{}{count} <span class=\"evidence\">(touches {})</span></li>\n",
                Escaped(shorten(&loss.what, 400)),
                Escaped(shorten(&loss.affects, 400))
            ));
        }
        page.add("</ul>\n");
        let more = analysis.losses.len().saturating_sub(MOST_LOSSES);
        if more > 0 {
            page.add(format_args!(
                "<p class=\"more\">{more} more: <code>gputrace analyze</code> has them.</p>\n"
            ));
        }
    }
    if !analysis.notes.is_empty() {
        page.add("<details><summary>Notes</summary><ul>\n");
        for note in analysis.notes.iter().take(MOST_LOSSES) {
            page.add(format_args!("<li>{}</li>\n", Escaped(shorten(note, 400))));
        }
        page.add("</ul></details>\n");
    }
}
