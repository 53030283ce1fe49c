//! The page in a real browser: what a user does with it, and what must never happen in it.

use crate::common;
mod compare;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use common::browser::{self, Browser};
use common::http::Viewer;
use common::{expect_status, gputrace};
use serde_json::Value;

/// Names that would do harm if a page took them for more than text.
const HOSTILE: [&str; 4] = [
    "<img src=x onerror=\"window.harmed=1\">",
    "</script><script>window.harmed=1</script>",
    "'\"`${window.harmed=1}",
    "\u{202e}gnp.exe\u{0}\u{1b}[31m",
];

fn recorded(folder: &Path, workload: &[&str]) {
    let mut record = gputrace();
    record
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(folder);
    expect_status(record.args(["--", "workload"]).args(workload), 0);
}

/// Recordings of `ddp` on two simulated GPUs, made once: one, and one with twice the work.
fn recordings() -> &'static [PathBuf; 2] {
    static RECORDINGS: OnceLock<(tempfile::TempDir, [PathBuf; 2])> = OnceLock::new();
    common::schedule::computes();
    let (_, paths) = RECORDINGS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["small", "large"].map(|name| folder.path().join(name));
        recorded(&paths[0], &["ddp", "--ranks", "2", "--steps", "8"]);
        recorded(
            &paths[1],
            &["ddp", "--ranks", "2", "--steps", "8", "--batch", "512"],
        );
        (folder, paths)
    });
    paths
}

fn view(paths: &[&Path]) -> Viewer {
    let mut command = gputrace();
    command
        .args(["view", "--no-open"])
        .args(paths)
        .stderr(Stdio::null());
    Viewer::start(&mut command)
}

/// A browser that shows one recording, drawn.
fn shown(program: &str, viewer: &Viewer) -> Browser {
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    drawn(&mut browser);
    browser
}

/// Waits until everything in view has come, the communicators' rows too, which wait for the analysis.
#[track_caller]
fn drawn(browser: &mut Browser) {
    browser.wait_for(
        "viewer.state().loaded && viewer.page.info.analysed && viewer.state().records > 0 \
         && viewer.state().settled && !viewer.state().missing && !viewer.state().busy \
         && viewer.state().items.some((key) => key.startsWith('communicator'))",
    );
}

/// Nothing failed on the page, nothing was refused, and nobody else was asked for anything.
#[track_caller]
fn assert_clean(browser: &mut Browser, viewer: &Viewer) {
    let errors = browser.evaluate("viewer.state().errors");
    assert_eq!(errors, serde_json::json!([]));
    assert_eq!(browser.complaints, Vec::<String>::new());
    let own = format!("http://127.0.0.1:{}/", viewer.port);
    for request in &browser.requests {
        let is_own = request.starts_with(&own)
            || ["data:", "blob:", "about:"]
                .iter()
                .any(|scheme| request.starts_with(scheme));
        assert!(is_own, "{request}");
    }
    assert_eq!(browser.evaluate("typeof window.harmed"), "undefined");
}

/// Start and end of the window.
fn window(browser: &mut Browser) -> (f64, f64) {
    browser.wait_for("viewer.state().settled");
    let window = browser.evaluate("viewer.state().target");
    let at = |index: usize| window[index].as_f64().expect("a time");
    (at(0), at(1))
}

/// Where on the page the slice lies that a search finds `place`th.
fn place_of(browser: &mut Browser, pattern: &str, place: usize) -> Value {
    browser.evaluate(&format!(
        "(async () => {{
            const t = viewer.page.timeline;
            const found = await viewer.page.api.rec('search', {{q: '{pattern}', limit: 100}});
            const [a, b] = t.target, box = t.over.getBoundingClientRect();
            const inView = (line) => line && line.y >= 0 && line.y + line.height < box.height;
            const hits = found.hits.filter((hit) => inView(t.yOf(hit.row)));
            const hit = hits[{place}];
            const x = box.left + (hit.start + hit.duration / 2 - a) / (b - a) * t.plotWidth;
            const line = t.yOf(hit.row);
            const y = box.top + line.y + line.height / 2;
            return {{x, y, name: hit.name, start: hit.start, row: hit.row}};
        }})()"
    ))
}

/// Whether any two pixels of the timeline's drawing differ, by eye so to say: a blank canvas has one colour.
fn colours(browser: &mut Browser) -> u64 {
    let colours = browser.evaluate(
        "(() => {
            const canvas = viewer.page.timeline.plot;
            const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            const seen = new Set();
            for (let at = 0; at < data.length; at += 4) seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
            return seen.size;
        })()",
    );
    colours.as_u64().expect("a number")
}

#[test]
fn it_draws_moves_and_selects() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[&recordings()[0]]);
    let mut browser = shown(program, &viewer);
    assert!(colours(&mut browser) > 8, "{}", colours(&mut browser));
    let text = browser.evaluate("document.body.innerText");
    let text = text.as_str().expect("text");
    for word in ["Simulated GPU", "Exposed communication", "rank 0", "rank 1"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(
        !browser.evaluate("location.href").to_string().contains("token"),
        "the token is gone"
    );

    // By keys.
    let (from, to) = window(&mut browser);
    browser.evaluate("viewer.page.timeline.over.focus()");
    browser.press("KeyW", "w");
    let (near_from, near_to) = window(&mut browser);
    assert!(near_to - near_from < 0.95 * (to - from) && near_from >= from && near_to <= to);
    browser.press("KeyD", "d");
    let (right, _) = window(&mut browser);
    assert!(right > near_from);
    browser.press("KeyA", "a");
    browser.press("KeyS", "s");
    browser.press("Digit0", "0");
    let (from, to) = window(&mut browser);
    // By the wheel, at the pointer.
    let place = browser.evaluate(
        "(() => { const b = viewer.page.timeline.over.getBoundingClientRect(); return [b.x + b.width * 0.25, b.y + 60]; })()",
    );
    let place = (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
    browser.point(place.0, place.1);
    browser.wheel(place, -400.0, 2);
    browser.wait_for(&format!(
        "viewer.state().target[1] - viewer.state().target[0] < {}",
        0.9 * (to - from)
    ));
    let (near_from, near_to) = window(&mut browser);
    let under = |from: f64, to: f64| from + 0.25 * (to - from);
    let moved = (under(near_from, near_to) - under(from, to)).abs();
    assert!(moved < 0.02 * (to - from), "{moved} of {}", to - from);
    browser.press("Digit0", "0");
    drawn(&mut browser);

    // By clicking.
    for _ in 0..3 {
        // Rows may still move when names come.
        let place = place_of(&mut browser, "sgemm", 3);
        browser.click(place["x"].as_f64().expect("x"), place["y"].as_f64().expect("y"));
        std::thread::sleep(std::time::Duration::from_millis(500));
        if browser.evaluate("viewer.state().selection !== null") == true {
            break;
        }
    }
    browser.wait_for("viewer.state().selection && !document.getElementById('details').hidden");
    browser.wait_for(
        "viewer.state().detail && document.getElementById('details').innerText.includes('Duration')",
    );
    let selected = browser.evaluate("viewer.state().selection.name");
    assert!(
        selected.as_str().is_some_and(|name| name.contains("sgemm")),
        "{selected}"
    );
    let details = browser.evaluate("document.getElementById('details').innerText");
    let details = details.as_str().expect("text");
    for word in ["Grid", "Block", "Leads from"] {
        assert!(details.contains(word), "{word} in {details}");
    }
    // To it, along its row, and away.
    browser.press("KeyF", "f");
    let (from, to) = window(&mut browser);
    let selection = browser.evaluate("viewer.state().selection");
    let start = selection["start"].as_f64().expect("a start");
    assert!(
        from < start && start < to && to - from < 40.0 * selection["duration"].as_f64().expect("a duration")
    );
    browser.press("Period", ".");
    browser.wait_for(&format!("viewer.state().selection.start > {start}"));
    browser.press("Comma", ",");
    browser.wait_for(&format!("viewer.state().selection.start === {start}"));
    browser.press("Escape", "");
    browser.wait_for("!viewer.state().selection");
    assert_clean(&mut browser, &viewer);
}

#[test]
fn arrows_lead_from_the_call_to_the_kernel_and_to_the_other_rank() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[&recordings()[0]]);
    let mut browser = shown(program, &viewer);
    browser.evaluate("viewer.page.timeline.over.focus()");
    browser.evaluate(
        "(async () => {
            const found = await viewer.page.api.rec('search', {q: 'ncclDevKernel_AllReduce', limit: 10});
            viewer.page.timeline.select(found.hits[4], {reveal: true});
        })()",
    );
    browser.wait_for("viewer.state().detail?.collective && viewer.state().settled");
    browser.wait_for("viewer.state().arrows > 0");
    let first = browser.evaluate("viewer.state().detail.rank");
    let participants = browser.evaluate("viewer.state().detail.collective.participants.length");
    assert_eq!(participants, 2);
    // From rank to rank of the collective: `]` until the other rank's kernel is selected.
    for _ in 0..6 {
        if browser.evaluate("viewer.state().detail.rank") != first {
            break;
        }
        let before = browser.evaluate("JSON.stringify(viewer.state().selection)");
        browser.press("BracketRight", "]");
        browser.wait_for(&format!("JSON.stringify(viewer.state().selection) !== {before}"));
        browser.wait_for(
            "viewer.state().detail && viewer.state().detail.row === viewer.state().selection.row \
             && viewer.state().detail.index === viewer.state().selection.index",
        );
    }
    assert_ne!(browser.evaluate("viewer.state().detail.rank"), first);
    // And back to the call that launched a kernel.
    browser.evaluate(
        "(async () => {
            const found = await viewer.page.api.rec('search', {q: 'sgemm', limit: 10});
            viewer.page.timeline.select(found.hits[5], {reveal: true});
        })()",
    );
    browser.wait_for("viewer.state().detail?.links?.some((link) => link.type === 'launch')");
    browser.press("BracketLeft", "[");
    browser.wait_for("viewer.state().selection.name.startsWith('cuLaunchKernel')");
    assert_clean(&mut browser, &viewer);
}

#[test]
fn search_areas_marks_and_links() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[&recordings()[0]]);
    let mut browser = shown(program, &viewer);
    browser.evaluate("viewer.page.timeline.over.focus()");
    browser.press("Slash", "/");
    browser.wait_for("document.activeElement === document.getElementById('query')");
    browser.write("allreduce");
    browser.wait_for("viewer.state().search.total > 4");
    browser.press("Enter", "");
    browser.wait_for("viewer.state().selection?.name.toLowerCase().includes('allreduce')");
    let first = browser.evaluate("viewer.state().selection.start");
    browser.press("Enter", "");
    browser.wait_for(&format!("viewer.state().selection.start !== {first}"));
    browser.evaluate("viewer.page.timeline.over.focus()");
    browser.press("KeyM", "m");
    browser.wait_for("viewer.state().marks.length === 1");

    // What the address says is what a colleague sees.
    browser.wait_for("location.hash.includes('sel=') && location.hash.includes('mark=')");
    let link = browser.evaluate("location.href");
    let selection = browser.evaluate("JSON.stringify(viewer.state().selection)");
    let (from, to) = window(&mut browser);
    browser.open("about:blank");
    browser.open(link.as_str().expect("an address"));
    drawn(&mut browser);
    browser.wait_for("viewer.state().selection && viewer.state().marks.length === 1");
    assert_eq!(
        browser.evaluate("JSON.stringify(viewer.state().selection)"),
        selection
    );
    let (again_from, again_to) = window(&mut browser);
    assert!(
        (again_from - from).abs() < 2.0 && (again_to - to).abs() < 2.0,
        "{again_from} {again_to}"
    );

    // An area over all in view.
    browser.press("Escape", "");
    browser.press("Digit0", "0");
    drawn(&mut browser);
    let place = place_of(&mut browser, "sgemm", 0);
    let (x, y) = (place["x"].as_f64().expect("x"), place["y"].as_f64().expect("y"));
    let whole = browser.evaluate("JSON.stringify(viewer.state().target)");
    browser.call(
        "Input.dispatchKeyEvent",
        &serde_json::json!({"type": "rawKeyDown", "key": "Shift", "code": "ShiftLeft", "modifiers": 8}),
    );
    browser.drag((x - 200.0, y), (x + 100.0, y + 30.0));
    browser.wait_for("viewer.state().area");
    browser.wait_for("document.getElementById('details').innerText.includes('operations on')");
    assert_eq!(
        browser.evaluate("JSON.stringify(viewer.state().target)"),
        whole,
        "selecting does not move"
    );
    assert_clean(&mut browser, &viewer);
}

#[test]
fn every_panel_shows_numbers_that_lead_back() {
    let Some(program) = browser::program() else { return };
    let [small, _] = recordings();
    let viewer = view(&[small]);
    let mut browser = shown(program, &viewer);
    let analysis: Value = {
        let mut command = gputrace();
        let output = expect_status(command.args(["analyze", "--json"]).arg(small), 0);
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    for (panel, word) in [
        ("steps", "step"),
        ("idle", "nothing"),
        ("kernels", "sgemm"),
        ("collectives", "AllReduce"),
        ("copies", "HtoD"),
        ("memory", "memory"),
        ("devices", "Simulated"),
        ("compare", "ompar"),
    ] {
        browser.click_on(&format!("document.getElementById('tab-{panel}')"));
        let lower = word.to_lowercase();
        browser.wait_for(&format!(
            "document.querySelector('.panel-{panel}')?.innerText.toLowerCase().includes('{lower}')"
        ));
    }
    // The table's numbers are the analysis's.
    browser.click_on("document.getElementById('tab-kernels')");
    let ranks = analysis["ranks"].as_array().expect("ranks");
    let kernels = ranks
        .iter()
        .flat_map(|rank| rank["kernels"].as_array().expect("kernels"));
    let count: u64 = kernels
        .filter(|kernel| {
            kernel["name"]
                .as_str()
                .is_some_and(|name| name.contains("sgemm_128x128_nn"))
        })
        .map(|kernel| kernel["count"].as_u64().expect("a count"))
        .sum();
    browser.wait_for(&format!(
        "[...document.querySelectorAll('.panel-kernels tbody tr')].some((row) => row.innerText.includes('sgemm_128x128_nn') \
         && [...row.cells].some((cell) => cell.innerText.replace(/[^0-9]/g, '') === '{count}'))"
    ));
    // A longest gap leads to the timeline.
    browser.click_on("document.getElementById('tab-idle')");
    browser.wait_for("document.querySelector('.panel-idle table tbody tr')");
    assert_clean(&mut browser, &viewer);
}

#[test]
fn names_are_text_whatever_is_in_them() {
    let Some(program) = browser::program() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let long = format!("{}<b>", "x".repeat(100_000));
    let mut events = Vec::new();
    for (place, name) in HOSTILE.iter().copied().chain([long.as_str()]).enumerate() {
        let ts = 1000 * place;
        let event = |category: &str, thread: u64| {
            serde_json::json!({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": thread, "ts": ts, "dur": 900,
                "args": {"device": 0, "stream": 7, "correlation": place + 1, "External id": place}})
        };
        events.extend([event("kernel", 7), event("user_annotation", 1)]);
    }
    let trace = serde_json::json!({
        "traceEvents": events,
        "distributedInfo": {"rank": 0, "world_size": 1, "backend": HOSTILE[0]},
        "deviceProperties": [{"id": 0, "name": HOSTILE[1]}],
    });
    let path = folder.path().join(format!("{}.json", "<i>run"));
    std::fs::write(&path, trace.to_string()).expect("written");
    let viewer = view(&[&path]);
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded && viewer.state().records > 0 && viewer.page.info.analysed");
    browser.evaluate("viewer.page.timeline.over.focus()");
    for place in 0..=HOSTILE.len() {
        browser.evaluate(&format!(
            "(async () => {{
                const ref = await viewer.page.api.hit(viewer.page.timeline.rows.find((row) => row.what === 'stream').row, {place} * 1e6 + 1000, 1e5);
                viewer.page.timeline.select(ref, {{reveal: true}});
            }})()"
        ));
        browser.wait_for(&format!(
            "viewer.state().detail && Math.abs(viewer.state().detail.start - {place} * 1e6) < 1e5"
        ));
    }
    // The longest name, which was selected last, is cut where it is drawn; all of it is in the details, and is copied.
    let whole = format!(
        "[...document.querySelectorAll('.details-full')].some((e) => e.textContent.length === {})",
        long.len()
    );
    browser.wait_for(&whole);
    browser.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }");
    browser.press("KeyC", "c");
    browser.wait_for(&format!("window.copied?.length === {}", long.len()));
    let written = browser.evaluate("document.querySelector('#details .details-name').textContent.length");
    assert!(
        written.as_u64().is_some_and(|letters| letters < 1000),
        "{written}"
    );
    for panel in ["kernels", "idle", "steps", "devices", "timeline"] {
        browser.click_on(&format!("document.getElementById('tab-{panel}')"));
    }
    assert_eq!(
        browser.evaluate("document.querySelectorAll('#main img, #details img, #main script').length"),
        0
    );
    assert_clean(&mut browser, &viewer);
}

/// Begins to record, and waits until there is something to be seen of it.
#[track_caller]
fn begin_recording(path: &Path) -> Child {
    let mut record = gputrace();
    record
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(path);
    record.args(["--", "workload", "ddp", "--ranks", "2", "--steps", "400"]);
    let child = record
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let begun = std::time::Instant::now();
    while !std::fs::read_dir(path).is_ok_and(|entries| {
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.path().join("kernels.arrows").is_file())
    }) {
        assert!(begun.elapsed().as_secs() < 30, "no kernels are written");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child
}

#[test]
fn a_recording_that_grows_is_followed() {
    let Some(program) = browser::program() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("growing");
    let mut child = begin_recording(&path);
    let viewer = view(&[&path]);
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded && viewer.state().follow && viewer.page.info.growing");
    let end = "viewer.page.info.end";
    let first = browser.evaluate(end);
    browser.wait_for(&format!("{end} > {first} + 3e8 && viewer.state().records > 0"));
    // The window goes with the end, until the user moves it.
    browser.wait_for(&format!("viewer.state().target[1] >= 0.9 * {end}"));
    browser.evaluate("viewer.page.timeline.over.focus()");
    browser.press("KeyA", "a");
    browser.wait_for("!viewer.state().follow");
    let (_, to) = window(&mut browser);
    let then = browser.evaluate(end);
    browser.wait_for(&format!("{end} > {then}"));
    let (_, later) = window(&mut browser);
    assert!((later - to).abs() < 1.0, "it stays where the user put it");
    drop(child.kill());
    drop(child.wait());
    // A machine that is very busy may ask for a generation that is no more: the page then asks for the newest.
    browser
        .complaints
        .retain(|complaint| !complaint.contains("410 (Gone)"));
    assert_clean(&mut browser, &viewer);
}

#[test]
fn it_fits_narrow_windows_and_both_themes() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[&recordings()[0]]);
    let mut browser = shown(program, &viewer);
    let mut pictures = Vec::new();
    for (theme, width) in [("light", 1280), ("dark", 1280), ("light", 600), ("dark", 600)] {
        browser.prefers(theme);
        browser.resize(width, 800);
        browser.wait_for(&format!("document.documentElement.dataset.theme === '{theme}'"));
        drawn(&mut browser);
        assert!(colours(&mut browser) > 8);
        let wider = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert!(
            wider.as_f64().is_some_and(|pixels| pixels <= 0.0),
            "{width}: {wider} px too wide"
        );
        for panel in [
            "steps",
            "idle",
            "kernels",
            "collectives",
            "copies",
            "memory",
            "devices",
            "timeline",
        ] {
            browser.evaluate(&format!("viewer.page.show('{panel}')"));
            let wider = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
            assert!(
                wider.as_f64().is_some_and(|pixels| pixels <= 0.0),
                "{panel} at {width}: {wider} px too wide"
            );
        }
        pictures.push(browser.screenshot());
    }
    pictures.dedup();
    assert_eq!(pictures.len(), 4, "they differ");
    assert_clean(&mut browser, &viewer);
}

/// The tests of the page's pure parts, which are modules beside it.
#[test]
fn the_page_s_own_tests_pass() {
    let Some(program) = browser::program() else { return };
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("viewer/web");
    let mut command: Command = gputrace();
    command.env("GPUTRACE_VIEWER_WEB", &web);
    command
        .args(["view", "--no-open"])
        .arg(&recordings()[0])
        .stderr(Stdio::null());
    let viewer = Viewer::start(&mut command);
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded");
    let files = std::fs::read_dir(web.join("tests"))
        .expect("the tests")
        .filter_map(Result::ok);
    let mut files: Vec<String> = files
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".test.js"))
        .collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    let mut passed = 0;
    for file in files {
        let outcome = browser.evaluate(&format!(
            "(async () => {{
                const {{ tests }} = await import('/tests/{file}');
                const failures = [];
                for (const [name, test] of Object.entries(tests)) {{
                    try {{ await test(); }} catch (error) {{ failures.push(`${{name}}: ${{error.message}}`); }}
                }}
                return {{ count: Object.keys(tests).length, failures }};
            }})()"
        ));
        assert_eq!(outcome["failures"], serde_json::json!([]), "{file}");
        passed += outcome["count"].as_u64().expect("a number");
    }
    assert!(passed > 40, "{passed} tests");
}
