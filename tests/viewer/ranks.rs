//! Ranks by steps: what the server says of jobs of a few ranks and of many, from recordings and from partials, and the picture of it in a
//! browser.

use crate::common;

use std::path::{Path, PathBuf};

use common::browser::{self, Browser};
use common::http::{Viewer, view};
use common::{analysis, expect_status, gputrace};
use serde_json::{Value, json};

/// The recording of a job that never ran.
fn synthetic(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let path = folder.join(name);
    common::synthetic(&path, options);
    path
}

/// A partial of some ranks of a recording, beside it.
fn partial(recording: &Path, ranks: &str) -> PathBuf {
    let path = recording.with_file_name(format!("{ranks}.partial"));
    let mut command = gputrace();
    command
        .arg("partial")
        .arg(recording)
        .args(["--ranks", ranks, "-o"]);
    expect_status(command.arg(&path), 0);
    path
}

/// The one recording that is listed, when it has been read as a whole.
fn whole(viewer: &Viewer) -> (String, String) {
    let list = viewer.json("/api/recordings");
    let all = list["recordings"].as_array().expect("a list");
    assert_eq!(all.len(), 1, "{list}");
    let id = all[0]["id"].as_str().expect("a number").to_owned();
    let info = viewer.info(&id, |info| info["analysed"] == true && info["reading"].is_null());
    let base = format!("/api/rec/{id}/{}", info["generation"]);
    (id, base)
}

/// What the table has of a measure is what the analysis says of each rank's steps.
fn assert_is_of(viewer: &Viewer, base: &str, analysis: &Value) {
    let overview = viewer.json(&format!("{base}/ranks"));
    let ranks = analysis["ranks"].as_array().expect("ranks");
    assert_eq!(overview["compared"], true);
    assert_eq!(overview["here"], ranks.len());
    for measure in [
        "duration_ns",
        "compute_ns",
        "communication_exposed_ns",
        "idle_ns",
        "idle_ratio",
    ] {
        let cells = viewer.json(&format!("{base}/ranks/{measure}"));
        for (row, rank) in overview["rows"].as_array().expect("rows").iter().zip(ranks) {
            assert_eq!((&row["rank"], &row["host"]), (&rank["rank"], &rank["host"]));
        }
        for (values, rank) in cells["values"].as_array().expect("values").iter().zip(ranks) {
            let steps = rank["steps"].as_array().expect("steps").iter();
            let expected: Vec<&Value> = steps.map(|step| &step[measure]).collect();
            let values: Vec<&Value> = values.as_array().expect("a row").iter().collect();
            assert_eq!(values, expected, "{measure} of rank {}", rank["rank"]);
        }
    }
    // What ranks waited in all steps is what they waited in all: each collective is in one step of each.
    for (measure, member) in [("wait_ns", "wait_ns"), ("late_ns", "cost_ns")] {
        let cells = viewer.json(&format!("{base}/ranks/{measure}"));
        let arrivals = analysis["arrivals"].as_array().expect("arrivals");
        assert_eq!(arrivals.len(), ranks.len());
        let mut any = 0;
        for (values, arrival) in cells["values"].as_array().expect("values").iter().zip(arrivals) {
            let sum: i64 = values
                .as_array()
                .expect("a row")
                .iter()
                .filter_map(Value::as_i64)
                .sum();
            assert_eq!(sum, arrival[member], "{measure} of rank {}", arrival["rank"]);
            any += sum;
        }
        assert!(any > 0, "{measure}");
    }
}

#[test]
fn a_few_ranks_are_those_of_the_analysis() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = synthetic(
        folder.path(),
        "run",
        &["--ranks", "8", "--events", "6000", "--slow-rank", "3"],
    );
    let viewer = view(&[&run]);
    let (_, base) = whole(&viewer);
    assert_is_of(&viewer, &base, &analysis(&run));
    // The slow rank computes longest, and waits least.
    let cells = viewer.json(&format!("{base}/ranks/compute_ns"));
    let far: Vec<f64> = cells["distances"]
        .as_array()
        .expect("distances")
        .iter()
        .filter_map(Value::as_f64)
        .collect();
    let farthest = (0..far.len()).max_by(|a, b| far[*a].total_cmp(&far[*b]));
    assert_eq!(farthest, Some(3));
    // One column for all steps is the greatest of them.
    let single: Vec<Vec<i64>> = serde_json::from_value(cells["values"].clone()).expect("values");
    let one = viewer.json(&format!("{base}/ranks/compute_ns?columns=1"));
    let one: Vec<Vec<i64>> = serde_json::from_value(one["values"].clone()).expect("values");
    for (single, one) in single.iter().zip(one) {
        assert_eq!(one, [*single.iter().max().expect("steps")]);
    }
    for (path, status) in [
        ("ranks/none", 404),
        ("ranks/compute_ns?columns=0", 400),
        ("ranks/compute_ns?columns=5000", 400),
        ("ranks/compute_ns?binned=mean", 400),
        ("ranks/compute_ns?steps=x", 400),
        ("ranks?more=1", 400),
    ] {
        let answer = viewer.get(&format!("{base}/{path}"));
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.json()["error"].is_string(), "{path}");
    }
}

#[test]
fn partials_show_their_ranks_and_a_rank_s_rows_are_read_when_it_is_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = synthetic(
        folder.path(),
        "run",
        &["--ranks", "8", "--events", "6000", "--one-host"],
    );
    let partials = [partial(&run, "0..3"), partial(&run, "4..7")];
    let viewer = view(&[&partials[0], &partials[1]]);
    let (id, base) = whole(&viewer);
    let info = viewer.json(&format!("/api/rec/{id}/info"));
    assert_eq!((&info["by_rank"], &info["events"]), (&json!(true), &json!(0)));
    assert_is_of(&viewer, &base, &analysis(&run));
    // What needs rows says so.
    let whatif = viewer.get(&format!("{base}/whatif"));
    assert_eq!(whatif.status, 404);
    assert!(
        whatif.json()["error"]
            .as_str()
            .expect("a line")
            .contains("-rank7")
    );
    // A rank's rows are in the recording beside the partials.
    let rank = format!("{id}-rank5");
    let own = viewer.info(&rank, |info| info["analysed"] == true);
    assert_eq!(
        (&own["ranks"], &own["rank_of"], &own["by_rank"]),
        (&json!(1), &json!(id), &json!(false))
    );
    assert!(own["events"].as_u64().expect("a count") > 6000);
    assert_eq!(own["bands"][0]["rank"], 5);
    assert!(
        own["notes"].to_string().contains("1 of 8 ranks are read here"),
        "{}",
        own["notes"]
    );
    // It is in no list.
    assert_eq!(
        viewer.json("/api/recordings")["recordings"]
            .as_array()
            .expect("a list")
            .len(),
        1
    );
    for wrong in ["-rank8", "-rank05", "-rank", "-rank5-rank5", "-rank99999999999"] {
        assert_eq!(
            viewer.get(&format!("/api/rec/{id}{wrong}/info")).status,
            404,
            "{wrong}"
        );
    }
}

#[test]
fn ranks_that_are_not_here_are_rows_that_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = synthetic(
        folder.path(),
        "run",
        &["--ranks", "6", "--events", "3000", "--one-host"],
    );
    let first = partial(&run, "0..3");
    // Elsewhere, without the recording.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let alone = elsewhere.path().join("alone.partial");
    std::fs::copy(&first, &alone).expect("a copy");
    let viewer = view(&[&alone]);
    let (id, base) = whole(&viewer);
    let overview = viewer.json(&format!("{base}/ranks"));
    assert_eq!((&overview["here"], &overview["all"]), (&json!(4), &json!(6)));
    let states: Vec<&str> = overview["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["state"].as_str().expect("a word"))
        .collect();
    assert_eq!(states, ["here", "here", "here", "here", "missing", "missing"]);
    let cells = viewer.json(&format!("{base}/ranks/duration_ns"));
    assert!(
        cells["values"][5]
            .as_array()
            .expect("a row")
            .iter()
            .all(Value::is_null)
    );
    assert_eq!(cells["distances"][5], Value::Null);
    let answer = viewer.get(&format!("/api/rec/{id}-rank2/info"));
    assert_eq!(answer.status, 404);
    let line = answer.json()["error"].as_str().expect("a line").to_owned();
    assert!(line.contains("gputrace view RECORDING FILES"), "{line}");
    // With the recording named too it is one run, and its other ranks are read.
    let named = view(&[&run, &alone]);
    let (id, base) = whole(&named);
    assert_eq!(named.json(&format!("{base}/ranks"))["here"], 6);
    assert_is_of(&named, &base, &analysis(&run));
    assert_eq!(
        named.info(&format!("{id}-rank5"), |info| info["analysed"] == true)["ranks"],
        1
    );
    // A damaged partial is no recording.
    let mut bytes = std::fs::read(&alone).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&alone, bytes).expect("written");
    let mut refused = gputrace();
    refused.args(["view", "--no-open"]).arg(&alone);
    let line = common::one_line(&expect_status(&mut refused, 2));
    assert!(
        line.contains("alone.partial") && line.contains("make it again"),
        "{line}"
    );
}

#[test]
fn a_recording_of_many_ranks_is_shown_by_rank() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = synthetic(
        folder.path(),
        "many",
        &["--ranks", "136", "--events", "500", "--layers", "2"],
    );
    let viewer = view(&[&run]);
    let (id, base) = whole(&viewer);
    let info = viewer.json(&format!("/api/rec/{id}/info"));
    assert_eq!((&info["by_rank"], &info["ranks"]), (&json!(true), &json!(136)));
    assert_is_of(&viewer, &base, &analysis(&run));
    assert_eq!(
        viewer.info(&format!("{id}-rank135"), |info| info["analysed"] == true)["bands"][0]["rank"],
        135
    );
}

/// A browser that shows the picture.
fn shown(program: &str, viewer: &Viewer, more: &str) -> Browser {
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded && viewer.page.info.analysed");
    if !more.is_empty() {
        browser.evaluate(&format!("location.hash = {more:?}, location.reload()"));
    }
    picture(&mut browser);
    browser
}

/// The part of the page that has the picture.
const PART: &str = "viewer.page.mounted.get('ranks').handle.part";

fn picture(browser: &mut Browser) {
    browser.wait_for(
        "viewer.page?.mounted?.get('ranks')?.handle.part.map.cells && viewer.page.info.analysed \
         && viewer.page.mounted.get('ranks').handle.part.overview.compared",
    );
}

/// Colours in the picture, at the middle of a cell's pixels.
fn colour(browser: &mut Browser, line: usize, column: usize) -> Value {
    browser.evaluate(&format!(
        "(() => {{
            const map = {PART}.map, ratio = map.canvas.width / map.width;
            const x = map.names + ({column} + 0.3) * map.cell, y = map.place.lines[{line}].top + map.place.lines[{line}].height / 2;
            return [...map.canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3);
        }})()"
    ))
}

#[test]
fn the_picture_shows_who_is_slow_and_leads_to_its_timeline_and_back() {
    let Some(program) = browser::program() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let run = synthetic(
        folder.path(),
        "run",
        &[
            "--ranks",
            "8",
            "--events",
            "7000",
            "--slow-rank",
            "5",
            "--one-host",
        ],
    );
    let partials = [partial(&run, "0..3"), partial(&run, "4..6")];
    // One rank is in none of them: it is read from the recording.
    let viewer = view(&[&run, &partials[0], &partials[1]]);
    let mut browser = shown(program, &viewer, "");
    // The page begins with it, since partials were named.
    assert_eq!(browser.evaluate("viewer.state().tab"), "ranks");
    browser.evaluate(&format!(
        "{PART}.choose({{measure: 'compute_ns', sort: 'outliers'}})"
    ));
    browser.wait_for(&format!(
        "{PART}.map.cells.measure === 'compute_ns' && {PART}.map.place.lines[0].row === 5"
    ));
    // The slow rank is the lightest, and the others are darker.
    let sum = |value: &Value| {
        value
            .as_array()
            .expect("a colour")
            .iter()
            .filter_map(Value::as_i64)
            .sum::<i64>()
    };
    let (first, second) = (colour(&mut browser, 0, 2), colour(&mut browser, 1, 2));
    assert!(sum(&first) > sum(&second) + 60, "{first} {second}");
    // A pointer says the exact figure.
    let at = browser.evaluate(&format!(
        "(() => {{ const map = {PART}.map, box = map.body.getBoundingClientRect();
            return [box.left + map.names + 2.5 * map.cell, box.top + map.place.lines[0].height / 2]; }})()"
    ));
    browser.point(at[0].as_f64().expect("x"), at[1].as_f64().expect("y"));
    browser.wait_for("/rank 5.*step/.test(document.querySelector('.p-tip')?.textContent)");
    // Keys: the second row's first cell, then back up, then right, then to the timeline.
    browser.evaluate(&format!("{PART}.map.body.focus()"));
    for key in ["ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight"] {
        browser.press(key, "");
    }
    browser.wait_for("viewer.state().heat.cell?.rank === '5'");
    let step = browser.evaluate("viewer.state().heat.cell.step");
    browser.press("Enter", "\r");
    browser
        .wait_for("location.hash.includes('-rank5') && viewer.state().loaded && viewer.page.info.analysed");
    browser.wait_for("viewer.state().records > 0 && viewer.state().settled && viewer.page.step === null");
    assert_eq!(
        browser.evaluate("viewer.page.info.bands.map((band) => band.rank)"),
        json!([5])
    );
    // What is in view is that step.
    let inside = browser.evaluate(&format!(
        "(() => {{ const one = viewer.page.info.steps.find(({{number}}) => number === {step}), [from, to] = viewer.state().target;
            return [one.begin - from, to - one.end].every((room) => room > 0 && room < (one.end - one.begin)); }})()"
    ));
    assert_eq!(inside, true);
    // Back leads to the picture, as it was.
    browser.evaluate("history.back()");
    browser.wait_for("!location.hash.includes('-rank') && viewer.state().tab === 'ranks'");
    picture(&mut browser);
    browser.wait_for(&format!(
        "{PART}.map.cells.measure === 'compute_ns' && {PART}.map.chosen?.line === 0"
    ));
    browser.evaluate(&format!("{PART}.map.body.focus()"));
    browser.press("Escape", "");
    browser.wait_for("viewer.state().heat?.cell === null");
    assert_eq!(browser.evaluate("viewer.state().errors"), json!([]));
    // While the rank was being read it was asked for again, and so was the analysis of what had been read so far.
    browser
        .complaints
        .retain(|one| !one.contains("503") && !one.contains("410"));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn two_ranks_and_a_link_and_lost_ones() {
    let Some(program) = browser::program() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let run = synthetic(
        folder.path(),
        "run",
        &["--ranks", "2", "--events", "3000", "--one-host"],
    );
    let viewer = view(&[&run]);
    let mut browser = shown(program, &viewer, "#tab=ranks&measure=idle_ns&group=name:nobody");
    assert_eq!(browser.evaluate(&format!("{PART}.map.cells.measure")), "idle_ns");
    assert_eq!(browser.evaluate(&format!("{PART}.map.place.lines.length")), 2);
    // On the same page: this recording's rows are here.
    browser.evaluate(&format!("{PART}.map.body.focus()"));
    browser.press("ArrowDown", "");
    browser.press("ArrowDown", "");
    browser.press("Enter", "\r");
    browser.wait_for("viewer.state().tab === 'timeline' && viewer.state().settled");
    assert_eq!(browser.evaluate("viewer.state().errors"), json!([]));
    // Three ranks of which one is lost.
    let more = synthetic(
        folder.path(),
        "more",
        &["--ranks", "3", "--events", "3000", "--one-host"],
    );
    let alone = folder.path().join("lost").join("x.partial");
    std::fs::create_dir(alone.parent().expect("a folder")).expect("made");
    std::fs::rename(partial(&more, "0..1"), &alone).expect("moved");
    let viewer = view(&[&alone]);
    let mut browser = shown(program, &viewer, "");
    let text = browser.evaluate("document.querySelector('.panel-ranks').innerText");
    let text = text.as_str().expect("text");
    assert!(text.contains("2 of 3 ranks are here"), "{text}");
    assert!(text.contains("of 1 there is no recording"), "{text}");
}
