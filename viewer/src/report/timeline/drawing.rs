//! One GPU's rows, drawn.

use std::collections::BTreeMap;

use gputrace_analyzer::{Analysis, demangled, step_number};
use gputrace_interchange::export::words::copy_name;
use gputrace_trace::derived::DerivedProcess;
use gputrace_trace::{Process, Recording};

use super::super::CAUSES;
use super::super::stretch::Place;
use super::super::text::{Escaped, Page, bytes, duration, gigabytes_per_second, shorten, thousands};
use super::{CLASSES, FIRST_CAUSE, Item, MOST_RANGES, NAME, PIXEL, Row, WIDTH, What, units, width};

/// What is needed to draw one GPU's rows.
pub(super) struct Drawing<'a> {
    pub(super) recording: &'a Recording,
    pub(super) analysis: &'a Analysis,
    pub(super) process: &'a Process,
    pub(super) derived: &'a DerivedProcess,
    pub(super) length_ns: i64,
    pub(super) least: i64,
}

impl Drawing<'_> {
    /// Draws a row: how many of its items alone, and how many together.
    pub(super) fn row(&self, row: &Row, page: &mut Page) -> (u64, u64) {
        let idle = if row.is_idle { " idle" } else { "" };
        page.add(format_args!(
            "<div class=\"row{idle}\"><span class=\"label\">{}</span><svg viewBox=\"0 0 {WIDTH} 10\" preserveAspectRatio=\"none\" \
             role=\"img\" aria-label=\"{}: {}\">",
            Escaped(&row.label),
            Escaped(&row.label),
            thousands(row.items.len() as u64),
        ));
        let thin: Vec<&Item> = row
            .items
            .iter()
            .filter(|item| width(item, self.length_ns) < self.least)
            .collect();
        self.together(&thin, row.is_idle, page);
        let mut alone = 0;
        for item in row
            .items
            .iter()
            .filter(|item| width(item, self.length_ns) >= self.least)
        {
            self.alone(item, page);
            alone += 1;
        }
        page.add("</svg></div>\n");
        (alone, thin.len() as u64)
    }

    fn alone(&self, item: &Item, page: &mut Page) {
        let x = units(item.start_ns, self.length_ns);
        let wide = width(item, self.length_ns);
        // A little less than it is, so that neighbours can be told apart.
        let drawn = if wide > 3 * PIXEL { wide - PIXEL / 2 } else { wide };
        page.add(format_args!(
            "<rect class=\"{}\" x=\"{x}\" width=\"{drawn}\" height=\"10\"><title>{}</title></rect>",
            CLASSES[item.class as usize],
            self.told(item)
        ));
        if let Some(wait_ns) = self.wait_ns(item) {
            let end = units(item.start_ns.saturating_add(wait_ns), self.length_ns).min(x + drawn);
            if end > x {
                page.add(format_args!(
                    "<rect class=\"wait\" x=\"{x}\" width=\"{}\" height=\"10\"/>",
                    end - x
                ));
            }
        }
    }

    /// How long a collective's kernel waited for other ranks.
    fn wait_ns(&self, item: &Item) -> Option<i64> {
        let What::Kernel(row) = item.what else { return None };
        self.derived.parts_of_kernel(row).first()?.wait_ns
    }

    /// What something is, in escaped words.
    fn told(&self, item: &Item) -> String {
        let names = &self.recording.names;
        let tables = &self.process.tables;
        let mut text = match item.what {
            What::Kernel(row) => {
                let name = demangled(names.get(tables.kernels.name[row as usize]));
                Escaped(shorten(&name, NAME)).to_string()
            }
            What::Copy(row) => {
                let (copies, row) = (&tables.copies, row as usize);
                let name = copy_name(
                    copies.copy_kind[row],
                    copies.source_kind[row],
                    copies.destination_kind[row],
                );
                Escaped(format!("{name}, {}", bytes(copies.bytes[row]))).to_string()
            }
            What::Memset(row) => format!("Memset, {}", bytes(tables.memsets.bytes[row as usize])),
            What::Graph(row) => format!("CUDA graph {}", tables.graph_launches.graph[row as usize]),
            What::Gap => {
                let cause = usize::from(item.class - FIRST_CAUSE);
                format!("idle: {}", CAUSES[cause].1)
            }
        };
        text += &format!(
            "\n{} at {}",
            duration(item.end_ns - item.start_ns),
            duration(item.start_ns)
        );
        if let What::Kernel(row) = item.what {
            for part in self.derived.parts_of_kernel(row).iter().take(3) {
                let Some(collective) = self.analysis.collectives.get(part.collective as usize) else {
                    continue;
                };
                text += &format!("\n{}", Escaped(shorten(&collective.name, NAME)));
                if let Some(count) = collective.bytes {
                    text += &format!(", {}", bytes(count));
                }
                if let Some(busbw) = collective.busbw {
                    text += &format!(", busbw {}", gigabytes_per_second(busbw));
                }
                if let Some(wait_ns) = part.wait_ns {
                    text += &format!(", waits {}", duration(wait_ns));
                }
            }
        }
        text
    }

    /// Draws what is too thin to be drawn alone: of each pixel what covers most of it.
    fn together(&self, items: &[&Item], is_idle: bool, page: &mut Page) {
        const BINS: usize = (WIDTH / PIXEL) as usize;
        /// Of how many strengths.
        const LEVELS: i64 = 4;
        if items.is_empty() {
            return;
        }
        let bin_ns = |bin: usize| {
            i64::try_from(i128::from(self.length_ns) * bin as i128 / BINS as i128).unwrap_or(self.length_ns)
        };
        let mut covered = vec![[0i64; CLASSES.len()]; BINS];
        // How many more, from each bin on, cover bins whole: what is long costs no more than what is short.
        let mut whole = vec![[0i64; CLASSES.len()]; BINS + 1];
        let mut total_ns = 0i64;
        for item in items {
            let (start, end) = (
                item.start_ns.clamp(0, self.length_ns),
                item.end_ns.clamp(0, self.length_ns),
            );
            total_ns += end - start;
            let first = usize::try_from(units(start, self.length_ns) / PIXEL)
                .unwrap_or(0)
                .min(BINS - 1);
            let last = usize::try_from(units(end, self.length_ns) / PIXEL)
                .unwrap_or(0)
                .min(BINS - 1);
            let class = item.class as usize;
            let ends = [first, last];
            for bin in &ends[..if first == last { 1 } else { 2 }] {
                let inside = end.min(bin_ns(bin + 1)) - start.max(bin_ns(*bin));
                // What has no length is seen, too.
                covered[*bin][class] += inside.max(1);
            }
            if last > first + 1 {
                whole[first + 1][class] += 1;
                whole[last][class] -= 1;
            }
        }
        let mut open = [0i64; CLASSES.len()];
        for (bin, (covered, whole)) in covered.iter_mut().zip(&whole).enumerate() {
            let width = (bin_ns(bin + 1) - bin_ns(bin)).max(1);
            for ((covered, open), more) in covered.iter_mut().zip(&mut open).zip(whole) {
                *open += more;
                *covered = covered.saturating_add(open.saturating_mul(width));
            }
        }
        let mut paths: BTreeMap<(usize, i64), String> = BTreeMap::new();
        let look = |bin: usize| -> Option<(usize, i64)> {
            let covered = covered.get(bin)?;
            let class = (0..CLASSES.len()).rev().max_by_key(|class| covered[*class])?;
            let all: i64 = covered.iter().sum();
            let bin_ns = (bin_ns(bin + 1) - bin_ns(bin)).max(1);
            (all > 0).then(|| (class, (all.saturating_mul(LEVELS) / bin_ns + 1).min(LEVELS)))
        };
        let mut bin = 0;
        while bin < BINS {
            let Some(found) = look(bin) else {
                bin += 1;
                continue;
            };
            let first = bin;
            while bin < BINS && look(bin) == Some(found) {
                bin += 1;
            }
            let (x, wide) = (first * PIXEL as usize, (bin - first) * PIXEL as usize);
            *paths.entry(found).or_default() += &format!("M{x} 0h{wide}v10h-{wide}z");
        }
        let noun = match (is_idle, items.len()) {
            (true, 1) => "gap",
            (true, _) => "gaps",
            (false, 1) => "operation",
            (false, _) => "operations",
        };
        page.add(format_args!(
            "<g><title>{} {noun} too thin to be drawn alone, {} in all</title>",
            thousands(items.len() as u64),
            duration(total_ns)
        ));
        for ((class, level), path) in paths {
            page.add(format_args!(
                "<path class=\"{} l{level}\" d=\"{path}\"/>",
                CLASSES[class]
            ));
        }
        page.add("</g>");
    }

    /// The program's own ranges, the outermost within a step, with their names.
    pub(super) fn ranges(&self, place: Place, page: &mut Page) {
        let markers = &self.process.tables.markers;
        let names = &self.recording.names;
        let mut threads: BTreeMap<u32, Vec<(i64, i64, &str)>> = BTreeMap::new();
        for index in 0..markers.start_ns.len() {
            let Some(length) = markers.duration_ns[index] else {
                continue;
            };
            let start = markers.start_ns[index].0.saturating_sub(place.from_ns);
            let end = start.saturating_add(length.0);
            let name = names.get(markers.name[index]);
            let is_step = step_number(name).is_some();
            let has_part = start < self.length_ns && end > 0;
            if markers.kind[index] == 0
                && has_part
                && !is_step
                && width_of(start, end, self.length_ns) >= PIXEL
            {
                threads
                    .entry(markers.thread[index])
                    .or_default()
                    .push((start, end, name));
            }
        }
        // Those of the thread that has most to say.
        let length = |ranges: &Vec<(i64, i64, &str)>| -> i64 {
            ranges.iter().map(|(start, end, _)| end - start).sum()
        };
        let found = threads
            .into_values()
            .map(|ranges| outermost(ranges, self.length_ns))
            .max_by_key(length)
            .unwrap_or_default();
        if found.is_empty() {
            return;
        }
        page.add(
            "<div class=\"row ranges\"><span class=\"label\">ranges on the host</span><div class=\"strip\">",
        );
        for (start, end, name) in found.iter().take(MOST_RANGES) {
            let from = units(*start, self.length_ns) as f64 / WIDTH as f64 * 100.0;
            let wide = width_of(*start, *end, self.length_ns) as f64 / WIDTH as f64 * 100.0;
            let text = Escaped(shorten(name, NAME)).to_string();
            page.add(format_args!(
                "<span style=\"left:{from:.2}%;width:{wide:.2}%\" title=\"{text}: {}\">{text}</span>",
                duration(end - start)
            ));
        }
        page.add("</div></div>\n");
    }
}

fn width_of(start: i64, end: i64, length_ns: i64) -> i64 {
    units(end, length_ns) - units(start, length_ns)
}

/// The ranges that lie in no other; what goes on all the time says nothing.
fn outermost(mut ranges: Vec<(i64, i64, &str)>, length_ns: i64) -> Vec<(i64, i64, &str)> {
    ranges.retain(|(start, end, _)| *start > 0 || *end < length_ns);
    ranges.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
    let mut reached = i64::MIN;
    ranges.retain(|(start, end, _)| {
        let is_outer = *start >= reached;
        if is_outer {
            reached = *end;
        }
        is_outer
    });
    ranges
}
