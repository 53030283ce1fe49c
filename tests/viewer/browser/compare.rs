//! Two recordings in one page: their timelines show the same time, aligned by step.

use super::common::browser::{self, Browser};
use super::{assert_clean, begin_recording, drawn, recordings, view};

/// The pair of timelines, in the page.
const PAIR: &str = "viewer.page.mounted.get('compare').handle.pair";

/// Waits until both timelines have all that they show.
#[track_caller]
fn both_drawn(browser: &mut Browser) {
    browser.wait_for(&format!(
        "{PAIR}.summary().sides.every((side) => side.records > 0 && side.settled && !side.missing && !side.busy)"
    ));
}

/// Where the chosen step begins on each side, as a share of the width.
fn step_begins(browser: &mut Browser) -> [f64; 2] {
    let begins = browser.evaluate(&format!(
        "{PAIR}.sides.map((side, at) => {{
            const [from, to] = side.shown;
            return ({PAIR}.steps[at][{PAIR}.settings.step].begin - from) / (to - from);
        }})"
    ));
    [0, 1].map(|side| begins[side].as_f64().expect("a share"))
}

/// What each side shows, ns of its own recording.
fn windows(browser: &mut Browser) -> [[f64; 2]; 2] {
    let shown = browser.evaluate(&format!("{PAIR}.sides.map((side) => side.shown)"));
    [0, 1].map(|side| [0, 1].map(|end| shown[side][end].as_f64().expect("a time")))
}

#[track_caller]
fn assert_aligned(browser: &mut Browser) {
    let [first, second] = step_begins(browser);
    // A pixel is more than a thousandth of the width.
    assert!((first - second).abs() < 1e-6, "{first} and {second}");
}

fn number(browser: &mut Browser, expression: &str) -> f64 {
    let value = browser.evaluate(expression);
    value.as_f64().unwrap_or_else(|| panic!("{expression}: {value}"))
}

/// The middle of one side's plot, CSS pixels of the page.
fn middle(browser: &mut Browser, side: usize) -> (f64, f64) {
    let place = browser.evaluate(&format!(
        "(() => {{ const box = {PAIR}.sides[{side}].over.getBoundingClientRect(); return [box.left + box.width / 2, box.top + 20]; }})()"
    ));
    (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"))
}

#[test]
fn two_recordings_move_as_one() {
    let Some(program) = browser::program() else { return };
    let [small, large] = recordings();
    let viewer = view(&[small, large]);
    let mut browser = Browser::start(program, 1280, 1000);
    browser.open(&viewer.url);
    browser.wait_for("document.getElementById('library').innerText.includes('large')");
    browser.click_on("[...document.querySelectorAll('#library a, #library button, #library td')].find((e) => e.innerText.trim() === 'small')");
    drawn(&mut browser);
    browser.click_on("document.getElementById('tab-compare')");
    browser.wait_for(&format!("{PAIR}.ready"));
    both_drawn(&mut browser);

    // Both are drawn, the answer says what changed, and the same step of both begins at one place.
    for side in 0..2 {
        let colours = number(
            &mut browser,
            &format!(
                "(() => {{
                    const canvas = {PAIR}.sides[{side}].plot;
                    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
                    return new Set(new Uint32Array(data.buffer)).size;
                }})()"
            ),
        );
        assert!(colours > 8.0, "side {side}: {colours} colours");
    }
    let answer = browser.evaluate("document.getElementById('pair').innerText");
    let answer = answer.as_str().expect("text");
    // Which one is slower depends on what else the machine does.
    let said = ["slower", "faster", "as long"];
    assert!(
        said.iter().any(|word| answer.contains(word)) && answer.contains("A step"),
        "{answer}"
    );
    assert_eq!(browser.evaluate(&format!("{PAIR}.settings.align")), "step");
    assert_aligned(&mut browser);

    // One pans, the other follows; either may lead. From a late step to earlier ones: behind the last there is nothing to draw.
    let late = number(&mut browser, &format!("{PAIR}.settings.step")) > 3.0;
    let (key, text, sign) = if late {
        ("KeyA", "a", -1.0)
    } else {
        ("KeyD", "d", 1.0)
    };
    for side in [0, 1] {
        let (x, y) = middle(&mut browser, side);
        browser.point(x, y);
        let before = windows(&mut browser);
        browser.press(key, text);
        browser.wait_for(&format!(
            "({PAIR}.sides[0].shown[0] - {}) * {sign} > 1",
            before[0][0]
        ));
        both_drawn(&mut browser);
        let after = windows(&mut browser);
        let moved = [0, 1].map(|side| (after[side][0] - before[side][0]) * sign);
        assert!(
            moved[0] > 1.0 && (moved[0] - moved[1]).abs() < 1e-6 * moved[0],
            "{moved:?}"
        );
        assert_aligned(&mut browser);
    }
    // Zooming keeps one scale.
    let (x, y) = middle(&mut browser, 1);
    let [before, _] = windows(&mut browser);
    browser.wheel((x, y), -300.0, 2);
    browser.wait_for(&format!(
        "{PAIR}.sides[0].shown[1] - {PAIR}.sides[0].shown[0] < {}",
        0.8 * (before[1] - before[0])
    ));
    both_drawn(&mut browser);
    let [[a, b], [c, d]] = windows(&mut browser);
    assert!(((b - a) / (d - c) - 1.0).abs() < 1e-9, "{a}..{b} and {c}..{d}");
    assert_aligned(&mut browser);

    // The next step; Back leads to the one before.
    let step = number(&mut browser, &format!("{PAIR}.settings.step"));
    let (key, text, other) = if step > 3.0 {
        ("KeyK", "k", step - 1.0)
    } else {
        ("KeyJ", "j", step + 1.0)
    };
    browser.wait_for(&format!("location.hash.includes('align=step:{step}')"));
    browser.press(key, text);
    browser.wait_for(&format!(
        "{PAIR}.settings.step === {other} && location.hash.includes('align=step:{other}')"
    ));
    both_drawn(&mut browser);
    assert_aligned(&mut browser);
    browser.evaluate("history.back()");
    browser.wait_for(&format!("{PAIR}.settings.step === {step}"));
    both_drawn(&mut browser);
    assert_aligned(&mut browser);

    // As wide as each other: the second's step ends where the first's does.
    browser.click_on(
        "[...document.querySelectorAll('.pair-bar button')].find((e) => e.innerText === 'Same width')",
    );
    both_drawn(&mut browser);
    assert_aligned(&mut browser);
    let ratio = number(
        &mut browser,
        &format!(
            "(() => {{ const [a, b] = {PAIR}.steps.map((steps) => steps[{step}]); return (b.end - b.begin) / (a.end - a.begin); }})()"
        ),
    );
    let [[a, b], [c, d]] = windows(&mut browser);
    assert!(((d - c) / (b - a) / ratio - 1.0).abs() < 1e-9, "{ratio}");
    browser.click_on(
        "[...document.querySelectorAll('.pair-bar button')].find((e) => e.innerText === 'Same scale')",
    );
    both_drawn(&mut browser);

    an_operation_has_its_twin(&mut browser);

    // A row of a table leads to both.
    browser.evaluate("[...document.querySelectorAll('.panel-compare tbody tr')].find((row) => row.innerText.includes('step 3')).click()");
    browser.wait_for(&format!("{PAIR}.settings.step === 3"));
    both_drawn(&mut browser);
    assert_aligned(&mut browser);

    // The link shows the same to another.
    browser.wait_for("location.hash.includes('align=step:3')");
    let link = browser.evaluate("location.href");
    let shown = windows(&mut browser);
    browser.open("about:blank");
    browser.open(link.as_str().expect("a link"));
    browser.wait_for(&format!("{PAIR}.ready && {PAIR}.settings.step === 3"));
    both_drawn(&mut browser);
    assert_aligned(&mut browser);
    let again = windows(&mut browser);
    assert!((again[0][0] - shown[0][0]).abs() < 2.0, "{shown:?} and {again:?}");

    // Narrow windows hold it.
    browser.resize(900, 800);
    both_drawn(&mut browser);
    let wide = number(
        &mut browser,
        "Math.max(document.documentElement.scrollWidth, document.getElementById('panel').scrollWidth)",
    );
    assert!(wide <= 900.0, "{wide} pixels wide");
    assert_clean(&mut browser, &viewer);
}

/// The third `sgemm` of the chosen step is selected by its pixel: the other side's third is selected with it.
fn an_operation_has_its_twin(browser: &mut Browser) {
    let expected = browser.evaluate(&format!(
        "(async () => {{
            const of = async (side) => {{
                const {{begin, end}} = {PAIR}.steps[side][{PAIR}.settings.step];
                const {{context, rows}} = {PAIR}.sides[side];
                const found = await context.api.rec('search', {{q: 'sgemm', limit: 1000}});
                const inStep = found.hits.filter((hit) => hit.start >= begin && hit.start < end && rows[hit.row].rank === 0 && rows[hit.row].what === 'stream');
                const {{name}} = inStep[2];
                return {{hit: inStep[2], place: inStep.filter((hit) => hit.name === name).indexOf(inStep[2]), all: inStep}};
            }};
            const first = await of(0);
            const second = await of(1);
            return {{first: first.hit, second: second.all.filter((hit) => hit.name === first.hit.name)[first.place]}};
        }})()"
    ));
    let place = browser.evaluate(&format!(
        "(() => {{
            const side = {PAIR}.sides[0], box = side.over.getBoundingClientRect(), [from, to] = side.shown;
            const line = side.yOf({row});
            return [box.left + ({start} + {duration} / 2 - from) / (to - from) * side.plotWidth, box.top + line.y + line.height / 2];
        }})()",
        row = expected["first"]["row"], start = expected["first"]["start"], duration = expected["first"]["duration"],
    ));
    let [x, y] = [0, 1].map(|at| place[at].as_f64().expect("a place"));
    browser.point(x, y);
    browser.wait_for("[...document.querySelectorAll('.tooltip')].some((tip) => !tip.hidden && /first .* second /.test(tip.innerText))");
    browser.click(x, y);
    browser.wait_for(&format!("{PAIR}.summary().sides.every((side) => side.selection)"));
    let chosen = browser.evaluate(&format!("{PAIR}.summary().sides.map((side) => side.selection)"));
    for (side, name) in [(0, "first"), (1, "second")] {
        for member in ["row", "index", "start", "duration"] {
            assert_eq!(
                chosen[side][member], expected[name][member],
                "{member} of the {name}"
            );
        }
    }
    browser.wait_for("/sgemm.*first.*second/s.test(document.querySelector('.pair-strip').innerText)");
    browser.press("Escape", "");
    browser.wait_for(&format!(
        "{PAIR}.summary().sides.every((side) => !side.selection)"
    ));
}

#[test]
fn what_is_selected_in_both_is_in_the_link() {
    let Some(program) = browser::program() else { return };
    let [small, large] = recordings();
    let viewer = view(&[small, large]);
    let mut browser = Browser::start(program, 1280, 1000);
    let id = viewer.id("small");
    browser.open(&viewer.url);
    browser.wait_for("document.getElementById('library').innerText.includes('large')");
    browser.evaluate(&format!("location.hash = 'rec={id}&tab=compare'"));
    browser.wait_for(&format!("{PAIR}.ready && {PAIR}.settled"));
    both_drawn(&mut browser);
    // An operation of the second, by way of the table's name, and a stretch of time.
    let select = format!(
        "(async () => {{
            const side = {PAIR}.sides[1], step = {PAIR}.steps[1][{PAIR}.settings.step];
            const found = await side.context.api.rec('search', {{q: 'sgemm', from: step.begin, to: step.end, limit: 10}});
            const hit = found.hits.find((hit) => side.yOf(hit.row));
            side.select(hit);
            return hit;
        }})()"
    );
    let hit = browser.evaluate(&select);
    let both = format!("{PAIR}.summary().sides.every((side) => side.selection)");
    let starts = format!("{PAIR}.summary().sides.map((side) => side.selection?.start)");
    browser.wait_for(&both);
    browser.wait_for("location.hash.includes('csel=2@')");
    let chosen = browser.evaluate(&starts);
    assert_eq!(chosen[1], hit["start"]);
    let link = browser.evaluate("location.href");
    browser.evaluate(&format!("{PAIR}.sides[0].over.focus()"));
    browser.press("Escape", "");
    browser.wait_for(&format!("!({both}) && !location.hash.includes('csel=')"));
    browser.evaluate("history.back()");
    browser.wait_for(&both);
    assert_eq!(browser.evaluate(&starts), chosen);
    browser.evaluate("history.forward()");
    browser.wait_for(&format!("!({both})"));

    // Another reader sees the same selection.
    browser.open("about:blank");
    browser.open(link.as_str().expect("a link"));
    browser.wait_for(&format!("{PAIR}.ready && {both}"));
    assert_eq!(browser.evaluate(&starts), chosen);

    // A stretch of time that was measured, too.
    let (x, y) = middle(&mut browser, 0);
    browser.press("Escape", "");
    browser.drag((x - 150.0, y), (x + 100.0, y));
    browser.wait_for("location.hash.includes('ca=')");
    let areas = format!("{PAIR}.sides.map((side) => Math.round(side.state.get().area?.from))");
    let measured = browser.evaluate(&areas);
    let link = browser.evaluate("location.href");
    browser.open("about:blank");
    browser.open(link.as_str().expect("a link"));
    browser.wait_for(&format!(
        "{PAIR}.ready && {PAIR}.sides.every((side) => side.state.get().area)"
    ));
    let again = browser.evaluate(&areas);
    for side in 0..2 {
        let [was, is] = [&measured, &again].map(|areas| areas[side].as_f64().expect("a time"));
        assert!((was - is).abs() < 2.0, "{measured} and {again}");
    }
    assert_clean(&mut browser, &viewer);
}

#[test]
fn a_second_recording_that_grows_is_followed() {
    let Some(program) = browser::program() else { return };
    let [small, _] = recordings();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("growing");
    let mut child = begin_recording(&path);
    let viewer = view(&[small, &path]);
    let mut browser = Browser::start(program, 1280, 1000);
    browser.open(&viewer.url);
    browser.wait_for("document.getElementById('library').innerText.includes('growing')");
    let id = viewer.id("small");
    browser.evaluate(&format!("location.hash = 'rec={id}&tab=compare'"));
    // It is said that it grows, and nobody has to touch anything for it to be followed.
    browser.wait_for("document.querySelector('.p-comparehead .badge.live')");
    browser.wait_for(&format!("{PAIR}.ready && {PAIR}.steps[1].length > 2"));
    let steps = number(&mut browser, &format!("{PAIR}.steps[1].length"));
    let end = number(&mut browser, &format!("{PAIR}.infos[1].end"));
    browser.wait_for(&format!(
        "{PAIR}.steps[1].length > {steps} + 2 && {PAIR}.infos[1].end > {end} + 1e8"
    ));
    both_drawn(&mut browser);
    // What is selected stays so.
    browser.evaluate(&format!(
        "(async () => {{
            const side = {PAIR}.sides[0];
            const found = await side.context.api.rec('search', {{q: 'sgemm', limit: 200}});
            side.select(found.hits.find((hit) => side.yOf(hit.row)));
        }})()"
    ));
    browser.wait_for(&format!("{PAIR}.sides[0].state.get().selection && {PAIR}.chosen"));
    let chosen = browser.evaluate(&format!("{PAIR}.sides[0].state.get().selection.start"));
    let generation = number(&mut browser, &format!("{PAIR}.infos[1].generation"));
    browser.wait_for(&format!(
        "{PAIR}.settled && {PAIR}.infos[1].generation > {generation} && {PAIR}.chosen"
    ));
    assert_eq!(
        browser.evaluate(&format!("{PAIR}.sides[0].state.get().selection?.start")),
        chosen
    );
    drop(child.kill());
    drop(child.wait());
    // A machine that is very busy may ask for a generation that is no more.
    browser
        .complaints
        .retain(|complaint| !complaint.contains("410 (Gone)"));
    assert_clean(&mut browser, &viewer);
}
