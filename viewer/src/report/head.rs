//! The page's beginning and end: what was recorded, the figures that sum it up, what stands out.

use gputrace_analyzer::{Analysis, Facts, Parts};
use gputrace_trace::Recording;

use super::text::{Escaped, Page, counted, date, duration, or_dash, percent, shorten};

/// The look.
const STYLE: &str = include_str!("style.css");
/// More findings are counted, not shown.
const MOST_FINDINGS: usize = 20;
/// What a command may take.
const COMMAND: usize = 400;

/// What the recording is called: the last part of where it is.
fn title(recording: &Recording) -> String {
    let name = recording.path.file_name().unwrap_or(recording.path.as_os_str());
    shorten(&name.to_string_lossy(), 120)
}

/// Everything up to the first section.
pub fn begin(recording: &Recording, analysis: &Analysis, page: &mut Page) {
    let title = title(recording);
    page.add(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"gputrace {}\">\n\
         <title>{title} \u{b7} gputrace</title>\n<style>\n{STYLE}</style></head>\n<body>\n<main>\n<header>\n",
        env!("CARGO_PKG_VERSION"),
        title = Escaped(&title),
    ));
    page.add(format_args!("<h1>{}</h1>\n", Escaped(&title)));
    if recording.is_simulated() {
        page.add("<p class=\"banner simulated\"><strong>Simulated GPUs.</strong> Device times are modelled, not measured.</p>\n");
    }
    if !analysis.losses.is_empty() {
        page.add(format_args!(
            "<p class=\"banner lost\"><strong>Not everything is in this recording.</strong> \
             <a href=\"#losses\">What is missing</a> is listed with the numbers that it touches ({}).</p>\n",
            counted(analysis.losses.len(), "entry").replace("entrys", "entries")
        ));
    }
    facts(recording, analysis, page);
    page.add("</header>\n<section>\n");
}

fn facts(recording: &Recording, analysis: &Analysis, page: &mut Page) {
    let manifest = &recording.manifest;
    let mut facts: Vec<(&str, String)> = Vec::new();
    if !manifest.command.is_empty() {
        facts.push(("Command", shorten(&manifest.command.join(" "), COMMAND)));
    }
    if manifest.started_ns > 0 {
        facts.push(("Recorded", date(manifest.started_ns)));
    }
    let mut hosts: Vec<&str> = analysis.ranks.iter().map(|rank| rank.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.retain(|host| !host.is_empty());
    match hosts.as_slice() {
        [] => {}
        [one] => facts.push(("Host", shorten(one, 80))),
        many => facts.push(("Hosts", counted(many.len(), "host"))),
    }
    let mut devices: Vec<(&str, usize)> = Vec::new();
    for rank in &analysis.ranks {
        let name = rank.device_name.as_deref().unwrap_or("GPU");
        match devices.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => devices.push((name, 1)),
        }
    }
    let devices: Vec<String> = devices
        .iter()
        .map(|(name, count)| format!("{count} \u{d7} {}", shorten(name, 60)))
        .collect();
    if !devices.is_empty() {
        facts.push(("GPUs", devices.join(", ")));
    }
    if manifest.device == "imported" {
        facts.push(("Imported from", title(recording)));
    }
    page.add("<dl class=\"facts\">");
    for (what, text) in facts {
        page.add(format_args!(
            "<div><dt>{what}</dt><dd>{}</dd></div>",
            Escaped(text)
        ));
    }
    page.add("</dl>\n");
}

/// The figures that sum it up.
pub fn figures(analysis: &Analysis, page: &mut Page) {
    if analysis.ranks.is_empty() {
        page.add("<p class=\"lead\">No operation of a GPU was recorded.</p>\n");
        return;
    }
    let (mut parts, mut span) = (Parts::default(), 0);
    for rank in &analysis.ranks {
        parts += rank.parts;
        span += rank.measures.span_ns;
    }
    let share = |part: i64, whole: i64| (whole > 0).then(|| part as f64 / whole as f64);
    let step = analysis.step.as_ref();
    let steps = step.map_or_else(
        || "no steps are known".to_owned(),
        |step| {
            let left_out = match step.warm_up.len() {
                0 => String::new(),
                warm_up => format!(", without {warm_up} of warm-up"),
            };
            format!(
                "on its slowest rank, of {}{left_out}",
                counted(step.count, "step")
            )
        },
    );
    let figures = [
        (
            "a step (mean)",
            or_dash(step.map(|step| step.mean_ns), duration),
            steps,
        ),
        (
            "GPUs busy",
            percent(share(span - parts.idle, span)),
            "of their span".to_owned(),
        ),
        (
            "communication hidden",
            percent(share(parts.hidden, parts.hidden + parts.exposed)),
            "behind compute".to_owned(),
        ),
        (
            "communication exposed",
            percent(share(parts.exposed, span)),
            "of the GPUs' span".to_owned(),
        ),
        (
            "idle",
            percent(share(parts.idle, span)),
            "of the GPUs' span".to_owned(),
        ),
    ];
    page.add("<ul class=\"figures\">");
    for (what, value, of) in figures {
        page.add(format_args!(
            "<li><span class=\"figure\">{value}</span> <span class=\"what\">{what}</span> <span class=\"of\">{of}</span></li>"
        ));
    }
    page.add("</ul>\n");
}

/// The section that tells more of a finding, where one does.
fn section_of(facts: &Facts) -> Option<(&'static str, &'static str)> {
    match facts {
        Facts::ExposedCommunication { .. } | Facts::UnevenCompute { .. } | Facts::UnevenWork { .. } => {
            Some(("ranks", "Where the time goes"))
        }
        Facts::UnevenSteps { .. } => Some(("steps", "Steps")),
        Facts::HostLate { .. }
        | Facts::Synchronization { .. }
        | Facts::EventWait { .. }
        | Facts::PeerWait { .. }
        | Facts::QueueFull { .. }
        | Facts::NothingSubmitted { .. } => Some(("idle", "Why the GPUs waited")),
        Facts::LateRank { .. }
        | Facts::LateStart { .. }
        | Facts::SlowRank { .. }
        | Facts::SlowCommunicator { .. }
        | Facts::SmallCollectives { .. } => Some(("collectives", "Collectives")),
        Facts::ShortKernels { .. }
        | Facts::PageableCopies { .. }
        | Facts::SlowCopies { .. }
        | Facts::SlowProduct { .. }
        | Facts::Tf32Off { .. }
        | Facts::Recomputation { .. }
        | Facts::CopiesAndCasts { .. }
        | Facts::ElementwiseChains { .. }
        | Facts::OptimizerLoop { .. }
        | Facts::LaunchBoundModules { .. } => Some(("kernels", "Operations")),
        Facts::Hang { .. }
        | Facts::ClockHeldDown { .. }
        | Facts::StarvedThread { .. }
        | Facts::DiskFaults { .. } => None,
    }
}

/// What stands out.
pub fn findings(analysis: &Analysis, page: &mut Page) {
    page.section("findings", "What stands out", "");
    if analysis.findings.is_empty() {
        page.add("<p class=\"lead\">Nothing does.</p>\n");
        return;
    }
    page.add("<ol class=\"findings\">\n");
    let promises = |saves_ns: &i64| *saves_ns > 0;
    for finding in analysis.findings.iter().take(MOST_FINDINGS) {
        page.add(format_args!("<li><p>{}", Escaped(shorten(&finding.text, 600))));
        if let Some((section, words)) = section_of(&finding.facts) {
            page.add(format_args!(" <a href=\"#{section}\">{words}</a>"));
        }
        page.add("</p>");
        page.add(format_args!(
            "<p class=\"evidence\">{}",
            Escaped(shorten(&finding.evidence, 600))
        ));
        match (
            finding.saves_per_step_ns.filter(promises),
            finding.saves_ns.filter(promises),
        ) {
            (Some(step), _) => drop(page.add(format_args!(
                " <span class=\"saves\">at most {} a step</span>",
                duration(step)
            ))),
            (None, Some(run)) => drop(page.add(format_args!(
                " <span class=\"saves\">at most {} over the run</span>",
                duration(run)
            ))),
            // A finding that promises nothing says what was seen.
            (None, None) => {}
        }
        page.add("</p></li>\n");
    }
    page.add("</ol>\n");
    let more = analysis.findings.len().saturating_sub(MOST_FINDINGS);
    if more > 0 {
        page.add(format_args!(
            "<p class=\"more\">{more} more: <code>gputrace analyze</code> has them.</p>\n"
        ));
    }
}

/// The end of the page.
pub fn end(page: &mut Page) {
    page.add(format_args!(
        "</section>\n<footer>Made by gputrace {} with <code>gputrace export --format html</code>. Times are unions of what ran, \
         never sums over streams, unless a table says so.</footer>\n</main>\n</body></html>\n",
        env!("CARGO_PKG_VERSION")
    ));
}
