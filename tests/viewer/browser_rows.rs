//! Rows whose pixels are kept while the window stands still: what they show is what drawing them anew shows.

use crate::common;

use common::browser::{self, Browser};
use common::http::{small_recording, view};

/// A number for the pixels of the timeline, which other pixels hardly ever have (FNV-1a).
const PIXELS: &str = "(() => {
    const canvas = viewer.page.timeline.plot;
    const data = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    let hash = 0x811c9dc5;
    for (const pixel of data) hash = Math.imul(hash ^ pixel, 0x01000193) >>> 0;
    return hash;
})()";

/// Draws at once, and says what is in the picture.
fn drawn(browser: &mut Browser, forget: bool) -> (f64, u64) {
    let forget = if forget { "t.painter.madeFor = [];" } else { "" };
    browser.evaluate(&format!(
        "(() => {{ const t = viewer.page.timeline; {forget} t.draw(); }})()"
    ));
    let pixels = browser.evaluate(PIXELS).as_f64().expect("a number");
    (
        pixels,
        browser
            .evaluate("viewer.state().records")
            .as_u64()
            .expect("a count"),
    )
}

#[test]
fn rows_that_scroll_into_view_look_as_if_drawn_anew() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    // Low, so that there is something to scroll.
    let mut browser = Browser::start(program, 1280, 520);
    browser.open(&viewer.url);
    browser.wait_for(
        "viewer.state().loaded && viewer.page.info.analysed && viewer.state().records > 0 \
         && viewer.state().settled && !viewer.state().missing && !viewer.state().busy",
    );
    let mut pictures = Vec::new();
    for down in [0, 60, 133, 400, 90] {
        browser.evaluate(&format!("viewer.page.timeline.scroller.scrollTop = {down}"));
        browser.wait_for(&format!(
            "Math.abs(viewer.page.timeline.scrollTop - Math.min({down}, viewer.page.timeline.scroller.scrollHeight - \
             viewer.page.timeline.scroller.clientHeight)) < 2 && !viewer.state().missing && !viewer.state().busy"
        ));
        // Names are asked for by the first picture that has room for them.
        drawn(&mut browser, false);
        browser.wait_for(
            "(({wanted, asked, texts}) => !wanted.size && [...asked].every((id) => texts.has(id)))(viewer.page.timeline.cache.names)",
        );
        let kept = drawn(&mut browser, false);
        let again = drawn(&mut browser, false);
        let anew = drawn(&mut browser, true);
        assert_eq!(kept, anew, "scrolled by {down}");
        assert_eq!(again, anew, "scrolled by {down}");
        assert!(anew.1 > 0);
        pictures.push(anew.0.to_bits());
    }
    pictures.dedup();
    assert!(pictures.len() >= 4, "the picture hardly changed: {pictures:?}");
    assert_eq!(browser.complaints, Vec::<String>::new());
}
