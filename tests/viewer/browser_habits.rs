//! Habits that users bring from other tools: flame graphs, times from a moment, whole names, fingers, downloads of a
//! part, links that bring back all of a view.

use crate::common;

use common::browser::{self, Browser};
use common::http::{Viewer, small_recording, view};
use serde_json::{Value, json};

/// A browser that shows the small recording, with all that its analysis adds.
fn shown(program: &str, viewer: &Viewer) -> Browser {
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    browser.wait_for(
        "viewer.state().loaded && viewer.page.info.analysed && viewer.state().records > 0 \
         && viewer.state().settled && !viewer.state().busy",
    );
    browser.evaluate("viewer.page.timeline.over.focus()");
    browser
}

#[track_caller]
fn assert_clean(browser: &mut Browser) {
    assert_eq!(browser.evaluate("viewer.state().errors"), json!([]));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// A number from the page.
#[track_caller]
fn number(browser: &mut Browser, expression: &str) -> f64 {
    let value = browser.evaluate(expression);
    value.as_f64().unwrap_or_else(|| panic!("{expression}: {value}"))
}

#[test]
fn a_flame_graph_leads_to_the_longest() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    browser.press("KeyI", "i");
    browser.wait_for("document.querySelectorAll('.flame-node').length > 5");
    // The four steps are one node, whose own time and children sum to it.
    let step = browser.evaluate(
        "(() => {
            const { nodes } = viewer.page.timeline.area.flame.tree;
            const at = nodes.findIndex((node) => node.name === 'step *');
            const inside = nodes.filter((node) => node.parent === at).reduce((sum, node) => sum + node.total, 0);
            return { ...nodes[at], at, inside };
        })()",
    );
    // Four steps on each rank of which something is in view.
    let ranks = number(
        &mut browser,
        "(() => { const { flame } = viewer.page.timeline.area; \
          return new Set(flame.rows().map((row) => viewer.page.timeline.rows[row].rank)).size; })()",
    );
    assert_eq!(step["count"].as_f64().unwrap(), 4.0 * ranks, "{step}");
    assert_eq!(
        step["total"].as_i64().unwrap(),
        step["self"].as_i64().unwrap() + step["inside"].as_i64().unwrap()
    );
    browser.click_on(&format!(
        "document.querySelector('.flame-node[data-at=\"{}\"]')",
        step["at"]
    ));
    browser.wait_for("viewer.state().selection !== null && viewer.state().settled");
    let selection = browser.evaluate("viewer.state().selection");
    assert_eq!(selection["start"], step["longest"]["start"]);
    assert!(
        selection["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("step "))
    );
    assert_eq!(
        browser.evaluate("viewer.state().area !== null"),
        true,
        "the graph stays"
    );
    // By keys: into it, and that one alone.
    browser.press("ArrowDown", "");
    let below = number(&mut browser, "Number(document.activeElement.dataset.at)");
    assert_eq!(
        browser.evaluate(&format!(
            "viewer.page.timeline.area.flame.tree.nodes[{below}].parent"
        )),
        step["at"]
    );
    browser.press("Equal", "+");
    browser.wait_for(&format!("viewer.page.timeline.area.flame.root === {below}"));
    let width = number(
        &mut browser,
        "document.activeElement.offsetWidth / document.querySelector('.flame').clientWidth",
    );
    assert!(width > 0.99, "{width}");
    // Apart, each step is a node of its own.
    browser.evaluate("document.querySelector('.flame-box .check input').click()");
    browser.wait_for(
        "viewer.page.timeline.area.flame.tree.nodes.filter((node) => /^step [0-9]+$/.test(node.name)).length === 4",
    );
    browser.press("Escape", "");
    browser.wait_for("document.getElementById('details').hidden");
    assert_clean(&mut browser);
}

#[test]
fn times_count_from_a_step_and_by_the_clock() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    let step = browser.evaluate("viewer.page.info.steps[2]");
    // The pointer in the middle of a step: times count from its begin.
    browser.evaluate(
        "(() => {
            const t = viewer.page.timeline, [a, b] = t.target, step = viewer.page.info.steps[2];
            t.pointer = { x: ((step.begin + step.end) / 2 - a) / (b - a) * t.plotWidth, y: 100 };
        })()",
    );
    browser.press("KeyZ", "z");
    browser.wait_for("viewer.state().zero !== null");
    assert_eq!(browser.evaluate("viewer.state().zero"), step["begin"]);
    browser.wait_for(&format!("location.hash.includes('zero={}')", step["begin"]));
    // What is selected says so too.
    browser.evaluate(
        "(async () => {
            const found = await viewer.page.api.rec('search', {q: 'sgemm', limit: 1});
            viewer.page.timeline.select(found.hits[0], {reveal: true});
        })()",
    );
    browser.wait_for("document.querySelector('#details .facts')?.innerText.includes('\u{2212}')");
    browser.press("Escape", "");
    // A link has it, and Back takes it away.
    let link = browser.evaluate("location.hash");
    browser.evaluate("viewer.page.context.state.set({ zero: 'clock' })");
    browser.wait_for("location.hash.includes('zero=clock')");
    browser.evaluate("history.back()");
    browser.wait_for("viewer.state().zero !== 'clock'");
    assert!(link.as_str().is_some_and(|link| link.contains("zero=")));
    // The ruler's own menu.
    browser.evaluate(
        "(() => {
            const ruler = document.querySelector('.tl-ruler'), box = ruler.getBoundingClientRect();
            ruler.dispatchEvent(new MouseEvent('contextmenu', { clientX: box.x + 400, clientY: box.y + 10, bubbles: true }));
        })()",
    );
    browser.wait_for("document.querySelector('.menu.at-pointer')?.contains(document.activeElement)");
    browser.evaluate(
        "[...document.querySelectorAll('.menu.at-pointer button')].find((button) => button.innerText.includes('from the beginning')).click()",
    );
    browser.wait_for("viewer.state().zero === null && !document.querySelector('.menu.at-pointer')");
    assert_clean(&mut browser);
}

#[test]
fn the_menu_of_rows_opens_and_closes_by_its_button_and_goes_by_keys() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    let button = "document.querySelector('.tl-tools [aria-haspopup=menu]')";
    let click = format!("{button}.click()");
    let open = format!("document.querySelector('.menu') && {button}.ariaExpanded === 'true'");
    let closed = format!("!document.querySelector('.menu.at-pointer') && {button}.ariaExpanded === 'false'");
    browser.evaluate(&click);
    browser.wait_for(&open);
    browser.evaluate(&click);
    browser.wait_for(&closed);
    // Down three times from the first, and it is the fourth that is chosen.
    browser.evaluate(&click);
    browser.wait_for(&open);
    assert_eq!(
        browser.evaluate("document.activeElement.textContent"),
        "Open all groups"
    );
    for _ in 0..3 {
        browser.press("ArrowDown", "");
    }
    browser.wait_for("document.activeElement.innerText.includes('Hide empty rows')");
    assert_eq!(browser.evaluate("document.activeElement.ariaChecked"), "true");
    browser.evaluate("document.activeElement.click()");
    browser.wait_for(&closed);
    browser.wait_for("viewer.page.timeline.state.get().filter.hideEmpty === false");
    // The button has the focus again, and Escape closes too.
    assert_eq!(
        browser.evaluate(&format!("document.activeElement === {button}")),
        true
    );
    browser.evaluate(&click);
    browser.wait_for(&open);
    browser.press("Escape", "");
    browser.wait_for(&closed);
    assert_clean(&mut browser);
}

#[test]
fn names_are_written_whole_everywhere() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    browser.press("KeyV", "v");
    browser.wait_for("viewer.state().names === 'full' && location.hash.includes('names=full')");
    // The names in view are asked for anew, and are there.
    browser.wait_for("viewer.page.timeline.names.texts.size > 0");
    let asked = browser
        .requests
        .iter()
        .filter(|request| request.contains("/names?"));
    assert!(
        asked.clone().any(|request| request.contains("full=1")),
        "{:?}",
        asked.collect::<Vec<_>>()
    );
    let pressed = |title: &str| {
        format!(
            "[...document.querySelectorAll('.panel-kernels .p-choice button')].find((button) => button.innerText === '{title}')?.getAttribute('aria-pressed') === 'true'"
        )
    };
    // The table of kernels does as the timeline does, and the other way round.
    browser.evaluate("viewer.page.show('kernels')");
    browser.wait_for(&pressed("Full"));
    browser.evaluate("[...document.querySelectorAll('.panel-kernels .p-choice button')].find((button) => button.innerText === 'Short names').click()");
    browser.wait_for("viewer.state().names === 'short'");
    browser.wait_for(&pressed("Short names"));
    assert_clean(&mut browser);
}

/// Fingers: each is where it is told to be.
fn touch(browser: &mut Browser, sort: &str, fingers: &[(f64, f64)]) {
    let points: Vec<Value> = fingers
        .iter()
        .zip(0..)
        .map(|((x, y), id)| json!({"x": x, "y": y, "id": id}))
        .collect();
    browser.call(
        "Input.dispatchTouchEvent",
        &json!({"type": sort, "touchPoints": points}),
    );
}

#[test]
fn fingers_move_pinch_and_select() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    browser.call(
        "Emulation.setTouchEmulationEnabled",
        &json!({"enabled": true, "maxTouchPoints": 2}),
    );
    browser.evaluate("viewer.page.timeline.zoom(0.3, 400)");
    browser.wait_for("viewer.state().settled && !viewer.state().busy");
    let place = browser.evaluate(
        "(() => { const b = viewer.page.timeline.over.getBoundingClientRect(); return { x: b.x + 400, y: b.y + 120, width: b.width }; })()",
    );
    let at = |name: &str| place[name].as_f64().unwrap();
    let (x, y) = (at("x"), at("y"));
    let window = |browser: &mut Browser| {
        browser.wait_for("viewer.state().settled");
        let target = browser.evaluate("viewer.state().target");
        (target[0].as_f64().unwrap(), target[1].as_f64().unwrap())
    };
    // One finger takes the picture with it.
    let (from, to) = window(&mut browser);
    touch(&mut browser, "touchStart", &[(x, y)]);
    for step in 1..=5 {
        touch(&mut browser, "touchMove", &[(x - 20.0 * f64::from(step), y)]);
    }
    touch(&mut browser, "touchEnd", &[]);
    let (moved, until) = window(&mut browser);
    let expected = 100.0 / at("width") * (to - from);
    assert!(
        ((moved - from) - expected).abs() < 0.05 * expected && ((until - moved) - (to - from)).abs() < 2.0,
        "{} of {expected}",
        moved - from
    );
    // Two fingers that part zoom in, and what lies between them stays.
    touch(&mut browser, "touchStart", &[(x - 50.0, y), (x + 50.0, y)]);
    for step in 1..=5 {
        let apart = 50.0 + 10.0 * f64::from(step);
        touch(&mut browser, "touchMove", &[(x - apart, y), (x + apart, y)]);
    }
    touch(&mut browser, "touchEnd", &[]);
    let (near, close) = window(&mut browser);
    assert!(
        ((close - near) / (until - moved) - 0.5).abs() < 0.05,
        "{} of {}",
        close - near,
        until - moved
    );
    let under = |from: f64, to: f64| from + 400.0 / at("width") * (to - from);
    assert!((under(near, close) - under(moved, until)).abs() < 0.02 * (close - near));
    // A tap selects.
    browser.evaluate("viewer.page.timeline.home()");
    browser.wait_for("viewer.state().settled && !viewer.state().busy");
    let slice = browser.evaluate(
        "(async () => {
            const t = viewer.page.timeline;
            const found = await viewer.page.api.rec('search', {q: 'sgemm', limit: 100});
            const [a, b] = t.target, box = t.over.getBoundingClientRect();
            const hit = found.hits.find((hit) => { const line = t.yOf(hit.row); return line && line.y + line.height < box.height; });
            const line = t.yOf(hit.row);
            return { x: box.left + (hit.start + hit.duration / 2 - a) / (b - a) * t.plotWidth, y: box.top + line.y + line.height / 2 };
        })()",
    );
    let tapped = (slice["x"].as_f64().unwrap(), slice["y"].as_f64().unwrap());
    touch(&mut browser, "touchStart", &[tapped]);
    touch(&mut browser, "touchEnd", &[]);
    browser.wait_for("viewer.state().selection?.name.includes('sgemm')");
    assert_clean(&mut browser);
}

#[test]
fn the_menu_saves_steps_of_ranks() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    browser.evaluate("document.querySelector('#actions button').click()");
    browser.wait_for("document.querySelectorAll('.menu-fields input').length === 2");
    browser.evaluate("document.querySelector('.menu-fields input').focus()");
    browser.write("1-2");
    browser.evaluate("document.querySelectorAll('.menu-fields input')[1].focus()");
    browser.write("1");
    // Leaving the field is what tells it.
    browser.evaluate("document.querySelector('#actions .menu button').focus()");
    let entry = "[...document.querySelectorAll('#actions .menu button')].find((button) => button.innerText.startsWith('Chrome trace'))";
    browser.wait_for(&format!("{entry}?.innerText.includes('steps 1-2 of rank 1')"));
    browser.evaluate(
        "window.asked = null; HTMLAnchorElement.prototype.click = function () { window.asked = this.getAttribute('href'); };",
    );
    browser.evaluate(&format!("{entry}.click()"));
    let asked = browser.evaluate("window.asked");
    let asked = asked.as_str().expect("an address");
    assert!(
        asked.contains("steps=1-2") && asked.contains("ranks=1"),
        "{asked}"
    );
    let answer = viewer.get(asked);
    assert_eq!(answer.status, 200);
    let kernels = |trace: &Value| {
        let events = trace["traceEvents"].as_array().expect("events");
        events.iter().filter(|event| event["cat"] == "kernel").count()
    };
    let whole = viewer.get(&format!(
        "{}/export?format=chrome",
        viewer.base(&viewer.id("ddp run"))
    ));
    let (some, all) = (kernels(&answer.json()), kernels(&whole.json()));
    assert!(some > 0 && some * 3 < all, "{some} of {all}");
    assert_clean(&mut browser);
}

/// Waits until the address is as the view is: it follows when the view has rested.
#[track_caller]
fn address_has(browser: &mut Browser, part: &str) {
    browser.wait_for(&format!("location.hash.includes('{part}')"));
}

#[test]
fn a_link_brings_back_the_area_the_rows_and_the_search() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    let old = browser.evaluate("location.href");
    let box_of =
        "(() => { const b = viewer.page.timeline.over.getBoundingClientRect(); return [b.x, b.y]; })()";
    let corner = browser.evaluate(box_of);
    let corner = [0, 1].map(|at| corner[at].as_f64().expect("a place"));
    browser.drag(
        (corner[0] + 150.0, corner[1] + 30.0),
        (corner[0] + 450.0, corner[1] + 160.0),
    );
    browser.wait_for("viewer.state().area && document.querySelector('#details table')");
    address_has(&mut browser, "area=");
    let rows = browser.evaluate("viewer.state().area.rows");
    assert!(rows.as_array().is_some_and(|rows| rows.len() > 1), "{rows}");
    browser.press("KeyI", "i");
    address_has(&mut browser, "as=flame");
    browser.press("KeyH", "h");
    address_has(&mut browser, "height=tall");
    let link = browser.evaluate("location.href");

    // Back takes one after the other away, and Forward brings them again.
    browser.evaluate("history.back()");
    browser.wait_for("viewer.state().rowHeight === 'normal' && viewer.state().flame");
    browser.evaluate("history.back()");
    browser.wait_for("!viewer.state().flame && viewer.state().area");
    browser.evaluate("history.back()");
    browser.wait_for("!viewer.state().area && document.getElementById('details').hidden");
    browser.evaluate("history.forward()");
    browser.wait_for("viewer.state().area && !document.getElementById('details').hidden");
    assert_eq!(browser.evaluate("viewer.state().area.rows"), rows);

    // Another reader sees the same.
    let opened = |browser: &mut Browser, link: &Value| {
        browser.open("about:blank");
        browser.open(link.as_str().expect("a link"));
        browser.wait_for("viewer.state().loaded && viewer.state().records > 0 && viewer.state().settled");
    };
    opened(&mut browser, &link);
    browser.wait_for("viewer.state().area && document.querySelector('.flame-node')");
    assert_eq!(browser.evaluate("viewer.state().area.rows"), rows);
    assert_eq!(browser.evaluate("viewer.state().rowHeight"), "tall");

    // An expression is searched for as one.
    browser.press("Escape", "");
    browser.press("Slash", "/");
    browser.write("sgemm|Memcpy");
    browser.evaluate("document.querySelector('#search .toggle[title=\"Regular expression\"]').click()");
    browser.wait_for("viewer.state().search.total > 0");
    let total = browser.evaluate("viewer.state().search.total");
    address_has(&mut browser, "qm=regex");
    let link = browser.evaluate("location.href");
    opened(&mut browser, &link);
    browser.wait_for(&format!("viewer.state().search.total === {total}"));

    // A link from before, and one that names what is not there.
    opened(&mut browser, &old);
    assert_eq!(
        browser.evaluate("[viewer.state().area, viewer.state().rowHeight]"),
        json!([null, "normal"])
    );
    let strange = format!(
        "{}&tab=nowhere&area=1~2&on=nothing&height=9&sel=nothing@1",
        old.as_str().expect("a link")
    );
    opened(&mut browser, &strange.into());
    assert_eq!(
        browser.evaluate(
            "[viewer.state().tab, viewer.state().area, document.getElementById('timeline').hidden]"
        ),
        json!(["timeline", null, false])
    );
    // The server says that it has no such row.
    browser.complaints.retain(|complaint| !complaint.contains("404"));
    assert_clean(&mut browser);
}

#[test]
fn all_in_view_is_where_the_window_goes() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    browser.evaluate("viewer.page.timeline.zoom(0.01, 300)");
    browser.wait_for("viewer.state().settled");
    // At once, while the window is on its way.
    browser.evaluate("viewer.page.timeline.home(); viewer.page.timeline.input.run('area')");
    browser.wait_for("viewer.state().area && viewer.state().settled");
    assert_eq!(
        browser.evaluate("[viewer.state().area.from, viewer.state().area.to]"),
        browser.evaluate("viewer.state().target")
    );
    // Words beside the pointer go with the timeline. Kernels fill a stream's row, wherever they are in this recording; other rows have
    // slices that a pointer may pass by.
    browser.press("Escape", "");
    browser.evaluate(
        "(() => { const t = viewer.page.timeline; \
         const item = t.layout.items.find((item) => item.label.startsWith('stream')); \
         t.state.set({ pins: [item.key] }); })()",
    );
    // What the row shows has to be there before anything can be said of it.
    browser.wait_for("viewer.state().pinned.length === 1 && viewer.state().settled");
    let tips = "[...document.querySelectorAll('.tooltip')].some((tip) => !tip.hidden)";
    // Along the row, and again where the page was too busy to say anything the first time.
    let mut points = (0..10).flat_map(|_| 1..45);
    while browser.evaluate(tips) != true {
        let point = points.next().expect("something is said of something on the row");
        // The timeline moves down when findings arrive above it.
        let place = browser.evaluate(
            "(() => { const b = viewer.page.timeline.over.getBoundingClientRect(); return [b.x, b.y]; })()",
        );
        let at = |index: usize| place[index].as_f64().expect("a place");
        browser.point(at(0) + 20.0 * f64::from(point), at(1) + 8.0);
        browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    }
    browser.press("Digit4", "4");
    browser.wait_for(&format!("viewer.state().tab === 'kernels' && !{tips}"));
    assert_clean(&mut browser);
}

#[test]
fn the_focus_goes_with_the_view() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    let focus = "document.activeElement.id || document.activeElement.className";
    browser.press("Digit4", "4");
    browser.wait_for("document.querySelector('.panel-kernels tbody tr')");
    assert_eq!(browser.evaluate(focus), "tab-kernels");
    // A row of a table leads to the timeline, and keys are the timeline's at once.
    browser.evaluate("document.querySelector('.panel-kernels tbody .p-open').focus()");
    browser.press("Enter", "");
    browser.wait_for("viewer.state().tab === 'timeline'");
    browser.wait_for(&format!("({focus}) === 'tl-over'"));
    browser.press("Digit2", "2");
    browser.wait_for(&format!("({focus}) === 'tab-steps'"));
    browser.press("Digit1", "1");
    browser.wait_for(&format!("({focus}) === 'tl-over'"));
    // One row is reached by Tab, wherever the list has been scrolled to.
    browser.evaluate("viewer.page.timeline.foldAll(false)");
    browser.press("ArrowDown", "");
    // As far as there are rows by then.
    browser
        .wait_for("(viewer.page.timeline.scroller.scrollTop = 1e6) && viewer.page.timeline.scrollTop > 400");
    browser.wait_for("document.querySelectorAll('.tl-label[tabindex=\"0\"]').length === 1");
    assert_clean(&mut browser);
}

#[test]
fn a_dropped_file_is_told_how_to_be_opened() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    let before = browser.evaluate("location.href");
    browser.evaluate(
        "(() => {
            const files = new DataTransfer();
            for (const name of ['plain.json', 'it\\'s <b>1.json']) files.items.add(new File(['{}'], name));
            const event = new DragEvent('drop', { dataTransfer: files, bubbles: true, cancelable: true });
            document.getElementById('main').dispatchEvent(event);
            window.kept = event.defaultPrevented;
        })()",
    );
    browser.wait_for("document.querySelector('dialog[open] pre')");
    assert_eq!(
        browser.evaluate("window.kept"),
        true,
        "the browser would have opened it"
    );
    // The names are safe to paste into a shell.
    assert_eq!(
        browser.evaluate("document.querySelector('dialog[open] pre').textContent"),
        r"gputrace view plain.json 'it'\''s <b>1.json'"
    );
    browser.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }");
    browser.click_on(
        "[...document.querySelectorAll('dialog[open] button')].find((e) => e.innerText === 'Copy')",
    );
    browser.wait_for("window.copied?.startsWith('gputrace view plain.json')");
    browser.press("Escape", "");
    browser.wait_for("!document.querySelector('dialog')");
    assert_eq!(browser.evaluate("location.href"), before);
    assert!(
        !browser
            .requests
            .iter()
            .any(|request| request.contains("plain.json")),
        "nothing is uploaded"
    );
    assert_clean(&mut browser);
}
