//! The picture of a stretch of time over all ranks.
//!
//! What is at least a pixel wide is drawn alone and says what it is. What is thinner is drawn together with its neighbours
//! in that pixel, fainter where less of the time is covered, and counted.

mod drawing;

use std::collections::BTreeMap;

use gputrace_analyzer::Analysis;
use gputrace_trace::derived::{Derived, DerivedProcess};
use gputrace_trace::{Process, Recording};

use super::stretch::{Place, Shown, Stretch, stretch};
use super::text::{Escaped, Page, counted, duration, shorten, thousands};
use super::{CAUSES, Summary, cause_number};
use drawing::Drawing;

/// The picture's width in its own units,
const WIDTH: i64 = 12_000;
/// of which a pixel of a usual screen has so many.
const PIXEL: i64 = 10;
/// GPUs in one picture.
const MOST_DEVICES: usize = 32;
/// Streams of a GPU that have rows of their own.
const MOST_STREAMS: usize = 8;
/// What is drawn alone in the whole picture: about 200 bytes each.
const MOST_ALONE: usize = 4000;
/// Ranges of the program that are named, for each GPU.
const MOST_RANGES: usize = 120;
/// Characters of a name on pointing at it.
const NAME: usize = 100;

/// How things are drawn: kinds of operations, then causes of idle time.
const CLASSES: [&str; 11] = [
    "compute",
    "communication",
    "copy",
    "memset",
    "cause0",
    "cause1",
    "cause2",
    "cause3",
    "cause4",
    "cause5",
    "cause6",
];
const COMPUTE: u8 = 0;
const COMMUNICATION: u8 = 1;
const COPY: u8 = 2;
const MEMSET: u8 = 3;
const FIRST_CAUSE: u8 = 4;

/// Something with a start and an end, counted from the stretch's start.
#[derive(Clone, Copy)]
struct Item {
    start_ns: i64,
    end_ns: i64,
    class: u8,
    what: What,
}

/// Where it is told what it is.
#[derive(Clone, Copy)]
enum What {
    Kernel(u32),
    Copy(u32),
    Memset(u32),
    Graph(u32),
    Gap,
}

/// One row of the picture.
struct Row {
    label: String,
    items: Vec<Item>,
    is_idle: bool,
}

/// One GPU.
struct Device {
    place: Place,
    rows: Vec<Row>,
}

/// Draws the stretch, and says how much is in the picture.
pub fn draw(
    recording: &Recording,
    analysis: &Analysis,
    derived: &Derived,
    shown: Shown,
    page: &mut Page,
) -> Summary {
    let mut summary = Summary::default();
    let Some(stretch) = stretch(recording, derived, shown) else {
        return summary;
    };
    let none = DerivedProcess::default();
    let devices = devices(recording, derived, &stretch);
    summary.devices_left_out = stretch.places.len() - devices.len();
    let operations = || {
        devices
            .iter()
            .flat_map(|device| &device.rows)
            .filter(|row| !row.is_idle)
    };
    summary.operations = operations().map(|row| row.items.len() as u64).sum();
    let least = least_alone(&devices, stretch.length_ns);
    let is_thin = |item: &&Item| width(item, stretch.length_ns) < least;
    let thin: u64 = operations()
        .map(|row| row.items.iter().filter(is_thin).count() as u64)
        .sum();

    page.section(
        "timeline",
        &format!("Timeline of {}", stretch.words),
        &lead(&stretch, summary.operations, thin),
    );
    legend(&devices, page);
    page.add("<div class=\"timeline\">\n");
    axis(stretch.length_ns, page);
    for device in &devices {
        let process = &recording.processes[device.place.process];
        let drawing = Drawing {
            recording,
            analysis,
            process,
            derived: derived.processes.get(device.place.process).unwrap_or(&none),
            length_ns: stretch.length_ns,
            least,
        };
        page.add(format_args!(
            "<div class=\"device\"><h3>{}</h3>\n",
            Escaped(device_label(recording, device.place))
        ));
        drawing.ranges(device.place, page);
        for row in &device.rows {
            let (alone, together) = drawing.row(row, page);
            if !row.is_idle {
                summary.drawn_alone += alone;
                summary.drawn_together += together;
            }
        }
        page.add("</div>\n");
    }
    page.add("</div>\n");
    if summary.devices_left_out > 0 {
        page.add(format_args!(
            "<p class=\"more\">{} more are not in the picture: <code>--ranks</code> chooses.</p>\n",
            counted(summary.devices_left_out, "GPU")
        ));
    }
    summary
}

/// The GPUs that have room in the picture.
fn devices(recording: &Recording, derived: &Derived, stretch: &Stretch) -> Vec<Device> {
    let none = DerivedProcess::default();
    let places = stretch.places.iter().take(MOST_DEVICES);
    places
        .map(|place| {
            let derived = derived.processes.get(place.process).unwrap_or(&none);
            let rows = rows(
                &recording.processes[place.process],
                derived,
                *place,
                stretch.length_ns,
            );
            Device { place: *place, rows }
        })
        .collect()
}

/// Whether there would be any operation in the picture.
pub fn holds_anything(recording: &Recording, derived: &Derived, shown: Shown) -> bool {
    stretch(recording, derived, shown).is_some_and(|stretch| {
        let devices = devices(recording, derived, &stretch);
        let mut rows = devices.iter().flat_map(|device| &device.rows);
        rows.any(|row| !row.is_idle && !row.items.is_empty())
    })
}

fn lead(stretch: &Stretch, operations: u64, together: u64) -> String {
    let mut text = format!(
        "{}, {}",
        duration(stretch.length_ns),
        counted_operations(operations)
    );
    if together > 0 {
        text += &format!(
            "; {} of them too thin to be drawn alone: drawn together with their neighbours, fainter where less of the time \
             is covered",
            thousands(together)
        );
    }
    text += ".";
    if stretch.is_apart {
        text += " The ranks' times can't be set side by side: each begins with its own step.";
    }
    text
}

fn counted_operations(count: u64) -> String {
    format!(
        "{} GPU operation{}",
        thousands(count),
        if count == 1 { "" } else { "s" }
    )
}

fn device_label(recording: &Recording, place: Place) -> String {
    let header = &recording.processes[place.process].header;
    let who = match header.rank {
        Some(rank) => format!("rank {rank} \u{b7} "),
        None if recording.processes.len() == 1 => String::new(),
        None => {
            // Of an imported file its name, not the whole path.
            let folder = &recording.processes[place.process].folder;
            let name = folder.rsplit('/').next().unwrap_or(folder);
            format!("{} \u{b7} ", shorten(name, 40))
        }
    };
    let device = header.devices.iter().find(|device| device.index == place.device);
    match device.filter(|device| !device.name.is_empty()) {
        Some(device) => format!("{who}GPU {} \u{b7} {}", place.device, shorten(&device.name, 60)),
        None => format!("{who}GPU {}", place.device),
    }
}

/// The rows of a GPU: its streams, or where there are too many its kinds of operations, and when it was idle.
fn rows(process: &Process, derived: &DerivedProcess, place: Place, length_ns: i64) -> Vec<Row> {
    let mut streams: BTreeMap<u32, Vec<Item>> = BTreeMap::new();
    let tables = &process.tables;
    let mut take = |stream: u32, start_ns: i64, duration_ns: i64, class: u8, what: What| {
        let item = Item {
            start_ns: start_ns.saturating_sub(place.from_ns),
            end_ns: start_ns
                .saturating_add(duration_ns.max(0))
                .saturating_sub(place.from_ns),
            class,
            what,
        };
        if item.start_ns < length_ns && (item.end_ns > 0 || item.start_ns >= 0) {
            streams.entry(stream).or_default().push(item);
        }
    };
    macro_rules! take_all {
        ($table:ident, $class:expr, $what:expr) => {
            for row in 0u32..u32::try_from(tables.$table.start_ns.len()).unwrap_or(u32::MAX) {
                let index = row as usize;
                if tables.$table.device[index] == place.device {
                    let (start, duration) = (
                        tables.$table.start_ns[index].0,
                        tables.$table.duration_ns[index].0,
                    );
                    take(
                        tables.$table.stream[index],
                        start,
                        duration,
                        $class(index),
                        $what(row),
                    );
                }
            }
        };
    }
    let communicates = |index: usize| match derived.communicates.get(index) {
        Some(true) => COMMUNICATION,
        _ => COMPUTE,
    };
    take_all!(kernels, communicates, What::Kernel);
    take_all!(copies, |_| COPY, What::Copy);
    take_all!(memsets, |_| MEMSET, What::Memset);
    take_all!(graph_launches, |_| COMPUTE, What::Graph);
    let mut rows: Vec<Row> = Vec::new();
    if streams.len() <= MOST_STREAMS {
        rows.extend(streams.into_iter().map(|(stream, items)| Row {
            label: format!("stream {stream}"),
            items,
            is_idle: false,
        }));
    } else {
        let count = streams.len();
        let all: Vec<Item> = streams.into_values().flatten().collect();
        for (label, of) in [
            ("compute", &[COMPUTE][..]),
            ("communication", &[COMMUNICATION]),
            ("copies, memsets", &[COPY, MEMSET]),
        ] {
            let items: Vec<Item> = all
                .iter()
                .filter(|item| of.contains(&item.class))
                .copied()
                .collect();
            if !items.is_empty() {
                rows.push(Row {
                    label: format!("{label} ({count} streams)"),
                    items,
                    is_idle: false,
                });
            }
        }
    }
    let gaps = derived.gaps.iter().filter(|gap| gap.device == place.device);
    let items: Vec<Item> = gaps
        .map(|gap| Item {
            start_ns: gap.start_ns.saturating_sub(place.from_ns),
            end_ns: gap.end_ns.saturating_sub(place.from_ns),
            class: FIRST_CAUSE + u8::try_from(cause_number(gap.cause)).unwrap_or(0),
            what: What::Gap,
        })
        .filter(|gap| gap.start_ns < length_ns && gap.end_ns > 0)
        .collect();
    if !items.is_empty() {
        rows.push(Row {
            label: "idle".to_owned(),
            items,
            is_idle: true,
        });
    }
    for row in &mut rows {
        row.items.sort_by_key(|item| (item.start_ns, item.end_ns));
    }
    rows
}

/// A moment in the picture's units.
fn units(ns: i64, length_ns: i64) -> i64 {
    let ns = i128::from(ns.clamp(0, length_ns));
    i64::try_from(ns * i128::from(WIDTH) / i128::from(length_ns)).unwrap_or(WIDTH)
}

/// How wide something is in the picture, in its units.
fn width(item: &Item, length_ns: i64) -> i64 {
    units(item.end_ns, length_ns) - units(item.start_ns, length_ns)
}

/// From which width on things are drawn alone: a pixel, or as much more as it takes for a page that can be mailed.
fn least_alone(devices: &[Device], length_ns: i64) -> i64 {
    let mut widths: Vec<i64> = devices
        .iter()
        .flat_map(|device| &device.rows)
        .flat_map(|row| &row.items)
        .map(|item| width(item, length_ns))
        .filter(|width| *width >= PIXEL)
        .collect();
    widths.sort_unstable_by(|a, b| b.cmp(a));
    match widths.get(MOST_ALONE) {
        Some(width) => width + 1,
        None => PIXEL,
    }
}

fn legend(devices: &[Device], page: &mut Page) {
    let has = |class: u8| {
        let mut items = devices
            .iter()
            .flat_map(|device| &device.rows)
            .flat_map(|row| &row.items);
        items.any(|item| item.class == class)
    };
    page.add("<p class=\"legend\">");
    let kinds = ["compute", "communication", "copy", "memset"].into_iter();
    let causes = CAUSES.iter().map(|(_, word)| *word);
    for ((number, class), word) in (0u8..).zip(CLASSES).zip(kinds.chain(causes)) {
        if has(number) {
            let idle = if number >= FIRST_CAUSE { "idle: " } else { "" };
            page.add(format_args!(
                "<span><i class=\"{class}\"></i>{idle}{word}</span> "
            ));
            if number == COMMUNICATION {
                page.add("<span><i class=\"wait\"></i>waiting for other ranks</span> ");
            }
        }
    }
    page.add("</p>\n");
}

/// The ruler: five to ten marks.
fn axis(length_ns: i64, page: &mut Page) {
    let mut step = 1i64;
    'found: loop {
        for of in [1, 2, 5] {
            if length_ns / (step * of) <= 8 {
                step *= of;
                break 'found;
            }
        }
        step = step.saturating_mul(10);
        if step > i64::MAX / 100 {
            break;
        }
    }
    page.add("<div class=\"row axis\"><span class=\"label\"></span><div class=\"strip\">");
    let mut at = 0i64;
    while at < length_ns {
        let left = at as f64 / length_ns as f64 * 100.0;
        let text = if at == 0 {
            "0".to_owned()
        } else {
            round_duration(at)
        };
        page.add(format_args!("<span style=\"left:{left:.3}%\">{text}</span>"));
        at += step;
    }
    page.add("</div></div>\n");
}

/// A round length of time without decimals that say nothing.
fn round_duration(ns: i64) -> String {
    for (unit, of) in [("s", 1_000_000_000), ("ms", 1_000_000), ("\u{b5}s", 1_000)] {
        if ns >= of {
            let text = format!("{:.3}", ns as f64 / of as f64);
            return format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{ns} ns")
}
