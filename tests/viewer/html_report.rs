//! The page that needs nothing else: `gputrace export --format html`.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::browser::{self, Browser};
use common::page::assert_stands_alone;
use common::{expect_status, fresh_folder, gputrace, one_line, record_workload, stderr};
use gputrace_analyzer::{Options, analyze_in_detail, derive_from};
use gputrace_trace::manifest::{Manifest, ProcessHeader};
use gputrace_trace::tables::{Kernel, Marker, Tables};
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs};
use gputrace_viewer::report;

const EPOCH_NS: i64 = 1_790_000_000_000_000_000;

fn html(recording: &Path, page: &Path) -> Command {
    let mut command = gputrace();
    command
        .arg("export")
        .arg(recording)
        .args(["--format", "html", "-o"])
        .arg(page);
    command
}

/// The page of a recording, with what is in its picture.
fn page_of(recording: &Recording, shown: report::Shown) -> (String, report::Summary) {
    let (analysis, details) = analyze_in_detail(recording, &Options::default());
    let derived = derive_from(recording, &analysis, &details);
    let mut page = Vec::new();
    let options = report::Options { shown };
    let summary = report::write(recording, &analysis, &derived, &options, &mut page).unwrap();
    (String::from_utf8(page).unwrap(), summary)
}

/// Steps of a millisecond, in each of them as many kernels, one after another on four streams.
fn many(ranks: u32, steps: i64, kernels_a_step: i64, names: &[&str]) -> Recording {
    let mut recording = Recording {
        path: "/some/where/<run>".into(),
        manifest: Manifest {
            device: "imported".to_owned(),
            command: vec!["<script>alert(1)</script>".to_owned()],
            ..Manifest::new()
        },
        ..Recording::default()
    };
    let names: Vec<_> = names.iter().map(|name| recording.names.intern(name)).collect();
    let empty = recording.names.intern("");
    for rank in 0..ranks {
        let mut tables = Tables::default();
        for step in 0..steps {
            let name = recording.names.intern(&format!("step {step}"));
            let at = EPOCH_NS + step * 1_000_000;
            tables.markers.push(Marker {
                start_ns: TimeNs(at),
                duration_ns: Some(DurationNs(1_000_000)),
                name,
                domain: empty,
                ..Marker::default()
            });
            let pitch = 1_000_000 / kernels_a_step;
            for place in 0..kernels_a_step {
                tables.kernels.push(Kernel {
                    start_ns: TimeNs(at + place * pitch),
                    duration_ns: DurationNs(pitch * 3 / 4),
                    name: names[place as usize % names.len()],
                    stream: 7 + (place % 4) as u32,
                    correlation: 1 + (step * kernels_a_step + place) as u32,
                    ..Kernel::default()
                });
            }
        }
        let mut header = ProcessHeader::new();
        header.rank = Some(rank);
        recording.processes.push(Process {
            folder: format!("rank{rank}"),
            header,
            tables,
        });
    }
    recording
}

#[test]
fn a_page_of_eight_ranks_can_be_mailed_and_counts_everything() {
    let long = "template<".repeat(11_000);
    let names = [
        "<b onmouseover=\"x\">&'",
        "\u{1f600} \u{202e}txt\0",
        &long,
        "add\nmul",
    ];
    // From kernels of 100 pixels to those of which a hundred share one; and more than are drawn alone.
    for kernels in [10, 500, 600, 5000, 30_000] {
        let steps = if kernels > 10_000 { 1 } else { 5 };
        let recording = many(8, steps, kernels, &names);
        let (page, summary) = page_of(&recording, report::Shown::MedianStep);
        assert!(
            page.len() < 2 << 20,
            "{} bytes with {kernels} kernels",
            page.len()
        );
        assert_stands_alone(&page);
        assert!(!page.contains("onmouseover=\"x\"") && !page.contains("<script"));
        assert_eq!(summary.operations, 8 * kernels as u64);
        assert_eq!(summary.devices_left_out, 0);
        // All are drawn alone, or counted on being drawn together.
        let (_, picture) = page.split_once("<section id=\"timeline\">").unwrap();
        let (picture, _) = picture.split_once("</section>").unwrap();
        let alone = picture.matches("<rect class=\"compute\" x=").count() as u64;
        assert_eq!(alone, summary.drawn_alone, "{kernels}");
        let together: u64 = picture
            .split("<title>")
            .filter_map(|text| {
                text.split_once(" operations too thin")
                    .or(text.split_once(" operation too thin"))
            })
            .map(|(count, _)| count.replace(',', "").parse::<u64>().unwrap())
            .sum();
        assert_eq!(alone + together, summary.operations, "{kernels}");
        assert!((1..=4000).contains(&alone) || kernels > 500, "{kernels}: {alone}");
        assert!(alone == 0 || kernels < 5000, "{kernels}: {alone}");
    }
}

#[test]
fn more_ranks_than_a_picture_holds_are_counted() {
    let recording = many(200, 2, 100, &["k"]);
    let (page, summary) = page_of(&recording, report::Shown::MedianStep);
    assert_eq!(summary.devices_left_out, 200 - 32);
    assert!(
        page.contains("168 GPUs are not in the picture")
            || page.contains("168 GPUs more are not in the picture")
    );
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
    assert_stands_alone(&page);
}

#[test]
fn steps_and_ranges_choose_what_is_shown() {
    let recording = many(2, 6, 100, &["k"]);
    let shown = |shown| page_of(&recording, shown);
    assert_eq!(shown(report::Shown::Steps(2, 3)).1.operations, 400);
    assert!(
        shown(report::Shown::Steps(2, 3))
            .0
            .contains("Timeline of steps 2 to 3")
    );
    // The first half of a millisecond; the second half of the last, with an open end.
    assert_eq!(shown(report::Shown::Range(0, 500_000)).1.operations, 100);
    assert_eq!(shown(report::Shown::Range(5_500_000, i64::MAX)).1.operations, 100);
    // Without steps it is everything; without operations there is a page all the same.
    let mut without = recording.clone();
    for process in &mut without.processes {
        process.tables.markers = Default::default();
    }
    let (page, _) = page_of(&without, report::Shown::MedianStep);
    assert_stands_alone(&page);
    let (page, summary) = page_of(&many(1, 0, 1, &["k"]), report::Shown::MedianStep);
    assert_stands_alone(&page);
    assert_eq!(summary, report::Summary::default());
    assert!(page.contains("No operation of a GPU was recorded"));
}

#[test]
fn a_browser_shows_the_page_of_a_recording_at_any_width() {
    let (_keep, place) = fresh_folder("run");
    let truth = place.with_file_name("truth");
    let options = ["ddp", "--ranks", "2", "--steps", "4"];
    expect_status(
        &mut record_workload(&place, &truth, &[("SCALE", "20")], options),
        0,
    );
    let (page, again) = (
        place.with_file_name("run.html"),
        place.with_file_name("again.html"),
    );
    let output = expect_status(&mut html(&place, &page), 0);
    assert!(
        stderr(&output).contains("(simulated GPUs)"),
        "{}",
        stderr(&output)
    );
    expect_status(&mut html(&place, &again), 0);
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(
        text == std::fs::read_to_string(&again).unwrap(),
        "two pages of one recording differ"
    );
    assert_stands_alone(&text);
    assert!(text.contains("Simulated GPUs."));
    let line = one_line(&expect_status(&mut html(&place, &page), 2));
    assert!(line.contains("exists already"), "{line}");
    let mut wrong = html(&place, &again);
    let line = one_line(&expect_status(wrong.args(["--force", "--steps", "70..80"]), 2));
    assert!(line.contains("70..80"), "{line}");

    // Every number of the ranks' table is that of the analysis.
    let analysis = common::analysis(&place);
    assert_eq!(
        text.matches("<th scope=\"row\">rank 0</th>").count(),
        3,
        "ranks, steps, idle causes"
    );
    for finding in analysis["findings"].as_array().unwrap() {
        let words: Vec<&str> = finding["text"]
            .as_str()
            .unwrap()
            .split_whitespace()
            .take(3)
            .collect();
        let words = words.join(" ").replace('&', "&amp;");
        assert!(text.contains(&words), "{words}");
    }

    let Some(program) = browser::program() else {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "under CI there must be a browser"
        );
        return;
    };
    let mut browser = Browser::start(program, 1280, 900);
    browser.open(&format!("file://{}", page.display()));
    browser
        .wait_for("document.readyState === 'complete' && document.querySelectorAll('.device').length === 2");
    let number = |browser: &mut Browser, expression: &str| browser.evaluate(expression).as_f64().unwrap();
    assert!(
        number(
            &mut browser,
            "document.querySelectorAll('.device svg rect, .device svg path').length"
        ) > 20.0
    );
    for (width, theme) in [(1280, "light"), (1280, "dark"), (390, "light")] {
        browser.resize(width, 900);
        browser.prefers(theme);
        browser.wait_for(&format!("innerWidth === {width}"));
        let wide = number(&mut browser, "document.documentElement.scrollWidth");
        assert!(wide <= f64::from(width), "{wide} at {width}");
        // What is drawn fills the width that it has.
        let drawn = number(
            &mut browser,
            "document.querySelector('.device svg').getBoundingClientRect().width",
        );
        assert!(drawn > f64::from(width) * 0.6, "{drawn} at {width}");
        let background = browser.evaluate("getComputedStyle(document.body).backgroundColor");
        assert_eq!(background == "rgb(20, 23, 27)", theme == "dark", "{background}");
    }
    assert_eq!(
        number(&mut browser, "performance.getEntriesByType('resource').length"),
        0.0
    );
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}
