//! Ranks whose clocks differ, on the page: rows are aligned, and a selected collective has the clocks' error as bands.

use crate::common;

use std::process::Stdio;

use common::browser::{self, Browser};
use common::gputrace;
use common::http::Viewer;
use common::moved_clocks::{CLOCKS, base_ns, write};

#[test]
fn a_selected_collective_shows_how_far_clocks_may_be_off() {
    let Some(program) = browser::program() else { return };
    let traces = tempfile::tempdir().expect("a folder");
    write(traces.path(), &CLOCKS, base_ns());
    let mut command = gputrace();
    command
        .args(["view", "--no-open"])
        .arg(traces.path())
        .stderr(Stdio::null());
    let viewer = Viewer::start(&mut command);
    let mut browser = Browser::start(program, 1280, 1000);
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded && viewer.page.info.analysed && viewer.state().settled");
    // The whole job lies within a second, though its files' clocks differ by more.
    let length = browser.evaluate("viewer.page.info.end - viewer.page.info.begin");
    assert!(length.as_f64().expect("a length") < 1e9, "{length}");
    browser.evaluate(
        "(async () => {
            const found = await viewer.page.api.rec('search', {q: 'ncclKernel_AllReduce', limit: 10});
            viewer.page.timeline.select(found.hits[0], {reveal: true});
        })()",
    );
    browser.wait_for("viewer.state().detail?.collective?.clock_error_ns > 0 && viewer.state().settled");
    let detail = browser
        .evaluate("viewer.state().detail.collective.participants.map((one) => [one.clock, one.clock_error])");
    let parts = detail.as_array().expect("participants");
    assert_eq!(parts.len(), 8, "{detail}");
    for part in parts {
        let [clock, error] = [0, 1].map(|place| part[place].as_i64().expect("a number"));
        assert_eq!(error > 0, clock != 0, "{detail}");
    }
    // So near that bands are wider than a pixel.
    browser.evaluate(
        "(() => {
            const { selection } = viewer.state();
            viewer.page.timeline.moveTo(selection.start - 40000, selection.start + 40000);
        })()",
    );
    browser.wait_for("viewer.state().bands > 0");
    let bands = browser.evaluate("viewer.state().bands").as_u64();
    assert!(bands.is_some_and(|bands| (1..=7).contains(&bands)), "{bands:?}");
    browser.press("Escape", "");
    browser.wait_for("!viewer.state().selection && viewer.state().bands === 0");
}
