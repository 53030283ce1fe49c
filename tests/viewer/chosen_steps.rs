//! All numbers of the page limited to some steps.

use crate::common;

use common::browser::{self, Browser};
use common::http::{small_recording, view};
use serde_json::json;

/// What the figures say of the steps.
const COUNTED: &str = "(document.querySelector('#answer .p-figuremore')?.innerText ?? '')";

/// Clicks the button with this text.
fn choose(browser: &mut Browser, text: &str) {
    browser.click_on(&format!(
        "[...document.querySelectorAll('#steps button, .panel-steps button')].find((one) => one.textContent === '{text}')"
    ));
}

#[test]
fn all_numbers_can_be_of_some_steps() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded && viewer.page.info.analysed && viewer.state().settled");
    browser.wait_for(&format!("{COUNTED}.startsWith('4 steps')"));

    // What is no range is said in a line, and changes nothing.
    choose(&mut browser, "All steps");
    browser.wait_for("document.activeElement.matches('#steps input')");
    browser.write("3-1");
    browser.press("Enter", "");
    browser.wait_for("document.querySelector('#steps [role=\"alert\"]').innerText.includes('written like')");
    assert_eq!(browser.evaluate("viewer.state().steps"), json!(""));
    browser.evaluate("document.querySelector('#steps input').select()");
    browser.write("1..2");
    browser.press("Enter", "");
    browser.wait_for("viewer.state().steps === '1-2' && location.hash.includes('steps=1-2')");
    browser.wait_for(&format!("{COUNTED}.startsWith('2 steps')"));
    browser.wait_for("document.querySelector('#answer').innerText.includes('Only steps 1–2.')");
    // What knows no steps says so.
    browser.wait_for("document.querySelector('#steps').innerText.includes('whole run')");
    browser
        .wait_for("viewer.page.bar.commands().some(({ title }) => title === 'Analysis (JSON), steps 1-2')");

    browser.click_on("document.getElementById('tab-kernels')");
    browser.wait_for("document.querySelector('.panel-kernels').innerText.includes('Only steps 1–2.')");
    assert_eq!(
        browser.evaluate("document.querySelector('#steps').innerText.includes('whole run')"),
        json!(false)
    );
    // The link brings it back.
    browser.wait_for("location.hash.includes('tab=kernels')");
    browser.evaluate("location.reload()");
    browser.wait_for("window.viewer?.state().loaded && viewer.state().steps === '1-2'");
    browser.wait_for(&format!("{COUNTED}.startsWith('2 steps')"));
    browser.click_on("document.querySelector('#steps [aria-label=\"All steps\"]')");
    browser.wait_for(&format!("{COUNTED}.startsWith('4 steps')"));
    browser.wait_for("!location.hash.includes('steps=')");
    browser.evaluate("history.back()");
    browser.wait_for(&format!("{COUNTED}.startsWith('2 steps')"));

    assert_eq!(browser.evaluate("viewer.state().errors"), json!([]));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn steps_are_chosen_in_their_chart_and_table() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded && viewer.page.info.analysed && viewer.state().settled");
    browser.click_on("document.getElementById('tab-steps')");
    browser.wait_for("document.querySelector('.panel-steps svg.p-chart text')");
    let at = |share: f64| {
        format!(
            "(() => {{ const box = document.querySelector('.panel-steps svg.p-chart').getBoundingClientRect(); \
             return [box.x + 104 + {share} * 72, box.y + 60]; }})()"
        )
    };
    let mut place = |share: f64| {
        let place = browser.evaluate(&at(share));
        (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"))
    };
    let (from, to) = (place(0.5), place(1.5));
    browser.drag(from, to);
    browser.wait_for("document.querySelector('.p-range-line').innerText.includes('Steps 0–1')");
    assert_eq!(browser.evaluate("viewer.state().tab"), json!("steps"));
    choose(&mut browser, "Only these");
    browser.wait_for("viewer.state().steps === '0-1'");
    browser.wait_for("document.querySelector('.panel-steps').innerText.includes('Only steps 0–1.')");
    choose(&mut browser, "only");
    browser.wait_for("viewer.state().steps === '0'");
    browser.wait_for("document.querySelector('.panel-steps').innerText.includes('Only step 0.')");
    assert_eq!(browser.evaluate("viewer.state().errors"), json!([]));
    assert_eq!(browser.complaints, Vec::<String>::new());
}
