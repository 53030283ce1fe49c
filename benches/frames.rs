//! Frames of the page while a user moves through ten million rows: how far apart they are, and what they cost.
//!
//! `cargo bench --bench frames [-- ROWS]` writes a run of eight ranks, opens it in Chromium without a GPU at 1920x1080 with
//! compact rows, and holds keys down: panning at several zooms, zooming in from the whole run and out again; then the same
//! zooms by wheel and by pinch, and scrolling the rows. It prints percentiles of the time between frames (the screen asks for
//! one every 16.7 ms) and of the script's own part in a frame, what the page's thread computes a frame as a share of those
//! 16.7 ms, and how many tiles came and how many were asked for in vain. An idle machine, please.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../trace/tests/support/training.rs"]
mod training;

use std::time::{Duration, Instant};

use common::browser::{self, Browser};
use common::gputrace;
use common::http::Viewer;
use serde_json::json;

const RANKS: u64 = 8;
/// A hundred million rows take minutes.
const ANALYSED: Duration = Duration::from_secs(600);
/// Between two frames of a screen of 60 Hz, milliseconds.
const FRAME_MS: f64 = 1000.0 / 60.0;

/// Notes when each frame of the page begins, from now on.
const WATCH: &str = "(() => { globalThis.begun = []; if (globalThis.watching) return; globalThis.watching = true; \
     const note = (now) => { begun.push(now); requestAnimationFrame(note); }; requestAnimationFrame(note); })()";

/// Waits until the picture is whole.
fn settled(browser: &mut Browser) {
    browser.wait_for("viewer.state().settled && !viewer.state().missing && !viewer.state().busy");
}

fn key(browser: &mut Browser, code: &str, text: &str, kind: &str) {
    let mut event = json!({"type": kind, "code": code, "key": text});
    if kind == "keyDown" {
        event["text"] = text.into();
    }
    browser.call("Input.dispatchKeyEvent", &event);
}

/// The 50th, 95th and 99th percentile, and the most.
fn percentiles(mut values: Vec<f64>) -> [f64; 4] {
    values.sort_by(f64::total_cmp);
    let at =
        |share: f64| values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1)));
    [0.5, 0.95, 0.99, 1.0].map(|share| at(share).copied().unwrap_or(f64::NAN))
}

/// What the page's thread has computed so far: its own time, however busy the machine is.
fn main_thread_seconds(browser: &mut Browser) -> f64 {
    let metrics = browser.call("Performance.getMetrics", &json!({}));
    let all = metrics["metrics"].as_array().expect("a list");
    let task = all.iter().find(|metric| metric["name"] == "TaskDuration");
    task.and_then(|metric| metric["value"].as_f64()).expect("seconds")
}

/// Does something for a while and says how the frames came meanwhile.
fn measure(browser: &mut Browser, what: &str, act: impl FnOnce(&mut Browser)) {
    settled(browser);
    browser.evaluate(WATCH);
    browser.evaluate("viewer.page.timeline.frames.length = 0");
    let tiles = "(({fetched, aborted}) => [fetched, aborted])(viewer.page.timeline.cache)";
    let had = browser.evaluate(tiles);
    let before = main_thread_seconds(browser);
    act(browser);
    let used = main_thread_seconds(browser) - before;
    let has = browser.evaluate(tiles);
    let more = |at: usize| has[at].as_u64().unwrap_or(0) - had[at].as_u64().unwrap_or(0);
    let noted = browser.evaluate("({begun, drawn: viewer.page.timeline.frames, records: viewer.state().records, lines: viewer.state().lines})");
    let numbers = |name: &str| -> Vec<f64> {
        let values = noted[name].as_array().expect("a list");
        values.iter().filter_map(serde_json::Value::as_f64).collect()
    };
    let begun = numbers("begun");
    let between: Vec<f64> = begun.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let frames = between.len();
    let late = between.iter().filter(|ms| **ms > FRAME_MS * 1.5).count();
    let [p50, p95, p99, most] = percentiles(between);
    let [script50, script95, script99, _] = percentiles(numbers("drawn"));
    println!(
        "{what:<21} {frames:>4}   {p50:>5.1} {p95:>5.1} {p99:>5.1} {most:>6.1}  {late:>4}   {script50:>5.1} {script95:>5.1} {script99:>5.1}   {:>5.2}   {:>6} in {:<5} {:>4} {:>4}",
        used / (frames.max(1) as f64) * 1e3 / FRAME_MS,
        noted["records"].as_u64().unwrap_or(0),
        noted["lines"].as_u64().unwrap_or(0),
        more(0),
        more(1)
    );
}

/// Turns the wheel at the pointer with Ctrl, in steps that are some time apart.
fn turned(browser: &mut Browser, by: f64, apart: Duration, seconds: f64) {
    let begun = Instant::now();
    for step in 0.. {
        let due = apart * step;
        if due.as_secs_f64() >= seconds {
            break;
        }
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        browser.wheel((1100.0, 700.0), by, 2);
    }
}

/// Holds a key down for some seconds.
fn held(browser: &mut Browser, code: &str, text: &str, seconds: f64) {
    key(browser, code, text, "keyDown");
    std::thread::sleep(Duration::from_secs_f64(seconds));
    key(browser, code, text, "keyUp");
}

fn main() {
    let rows: u64 = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(10_000_000);
    let Some(program) = browser::program() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    std::fs::create_dir(&run).expect("a folder");
    let written: u64 = (0..RANKS)
        .map(|rank| training::write(&run.join(format!("rank{rank}")), rows / RANKS))
        .sum();
    let mut command = gputrace();
    let viewer = Viewer::start(command.args(["view", "--no-open"]).arg(&run));
    let id = viewer.id("run");
    let info = viewer.info(&id, |_| true);
    let opened = Instant::now();
    while viewer.json(&format!("/api/rec/{id}/live"))["analysed"] != true {
        assert!(opened.elapsed() < ANALYSED, "not analysed in {ANALYSED:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    println!(
        "{written} rows on {RANKS} ranks, {} events in the page",
        info["events"]
    );
    println!(
        "times are milliseconds: p50 p95 p99, and the most; CPU is the page's thread, as a share of a frame's {FRAME_MS:.1} ms\n"
    );
    println!(
        "                    frames   between two                 late   script                CPU   slices in rows  tiles, vain"
    );

    let mut browser = Browser::start(program, 1920, 1080);
    browser.call("Performance.enable", &json!({"timeDomain": "threadTicks"}));
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded && viewer.page.info.analysed && viewer.state().records > 0");
    while browser.evaluate("viewer.page.timeline.state.get().rowHeight") != "compact" {
        browser.press("KeyH", "h");
    }
    // The pointer is in the middle of the rows: that is what zooming goes to.
    browser.point(1100.0, 700.0);
    measure(&mut browser, "whole run, nothing", |_| {
        std::thread::sleep(Duration::from_secs(2));
    });
    measure(&mut browser, "zoom in, 64 x", |browser| {
        held(browser, "KeyW", "w", 3.0);
    });
    for zoom in 0..3 {
        let shown = browser.evaluate("(() => { const [a, b] = viewer.state().window; return b - a; })()");
        let what = format!("pan, {:.3} s in view", shown.as_f64().unwrap_or(f64::NAN) / 1e9);
        measure(&mut browser, &what, |browser| {
            held(browser, "KeyD", "d", 2.0);
            held(browser, "KeyA", "a", 2.0);
        });
        if zoom < 2 {
            held(&mut browser, "KeyW", "w", 1.5);
        }
    }
    measure(&mut browser, "zoom out", |browser| {
        held(browser, "KeyS", "s", 3.0);
    });
    // A wheel has notches; a pinch on a touchpad comes as many small turns of it.
    for (what, by, apart) in [("wheel", 120.0, 60), ("pinch", 6.0, 16)] {
        browser.press("Digit0", "0");
        std::thread::sleep(Duration::from_secs(1));
        let apart = Duration::from_millis(apart);
        measure(&mut browser, &format!("zoom in by {what}"), |browser| {
            turned(browser, -by, apart, 1.0);
        });
        measure(&mut browser, &format!("zoom out by {what}"), |browser| {
            turned(browser, by, apart, 1.0);
        });
    }
    browser.press("Digit0", "0");
    while browser.evaluate("viewer.page.timeline.state.get().rowHeight") != "tall" {
        browser.press("KeyH", "h");
    }
    std::thread::sleep(Duration::from_secs(1));
    measure(&mut browser, "scroll rows", |browser| {
        for turn in 0..60 {
            browser.wheel((1100.0, 700.0), if turn < 30 { 40.0 } else { -40.0 }, 0);
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    measure(&mut browser, "pointer over slices", |browser| {
        for turn in 0..100 {
            browser.point(
                400.0 + f64::from(turn) * 14.0,
                500.0 + f64::from(turn % 10) * 20.0,
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(browser.complaints, Vec::<String>::new());
    println!(
        "tiles fetched: {}, failed: {}",
        browser.evaluate("viewer.state().fetched"),
        browser.evaluate("viewer.state().failedTiles")
    );
}
