//! Why: what the server says of causes, the critical path and changes, and the view of them in a browser.

use crate::common;

use common::browser::{self, Browser};
use common::http::{Viewer, small_recording, view};
use common::{expect_status, gputrace, record_slowly, stdout};
use serde_json::{Value, json};

/// A recording of which one rank is slow, made once a test program.
fn slow_rank() -> &'static std::path::Path {
    static RECORDING: std::sync::OnceLock<(tempfile::TempDir, std::path::PathBuf)> =
        std::sync::OnceLock::new();
    common::schedule::computes();
    let (_, path) = RECORDING.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("slow");
        record_slowly(
            &path,
            &["SLOW=rank:1=1.5"],
            &["ddp", "--ranks", "2", "--steps", "6"],
        );
        (folder, path)
    });
    path
}

#[test]
fn a_prediction_is_that_of_the_command_line() {
    let viewer = view(&[small_recording()]);
    let base = viewer.base(&viewer.id("ddp run"));
    for changes in [
        vec![],
        vec!["rank:1=as-others"],
        vec!["communication=0.5x", "host=none"],
    ] {
        let mut command = gputrace();
        command.arg("whatif").arg(small_recording()).arg("--json");
        let mut path = format!("{base}/whatif?steps=1-3");
        command.args(["--steps", "1..3"]);
        for change in changes {
            command.args(["--set", change]);
            path += &format!("&set={}", change.replace('=', "%3D"));
        }
        let said: Value = serde_json::from_str(&stdout(&expect_status(&mut command, 0))).expect("JSON");
        let answer = viewer.json(&path);
        assert_eq!(answer["schema"], "gputrace.whatif/1");
        assert_eq!(answer, said, "{path}");
        // The time of each step, whose means are those of the whole.
        let times = &answer["step_times_ns"];
        let list = |name: &str| times[name].as_array().expect("times").clone();
        assert_eq!(list("names"), ["step 2", "step 3"]);
        let mean = |name: &str| list(name).iter().map(|time| time.as_f64().unwrap()).sum::<f64>() / 2.0;
        let measured = answer["measured_step_ns"].as_f64().unwrap();
        assert!((mean("measured") - measured).abs() < 1.0, "{times}");
        let speedup = answer["speedup"].as_f64().unwrap();
        assert!(
            (mean("predicted") * speedup / measured - 1.0).abs() < 1e-6,
            "{times}"
        );
    }
    let wrong = viewer.get(&format!("{base}/whatif?set=kernel:nothing*%3Dnone"));
    assert_eq!(wrong.status, 400);
    let line = wrong.json()["error"].as_str().expect("a reason").to_owned();
    assert!(
        line.starts_with("kernel:nothing*=none matches nothing: there are ") && line.lines().count() == 1,
        "{line}"
    );
    let request = format!(
        "GET {base}/whatif HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n",
        viewer.port
    );
    let unasked = viewer.raw(request.as_bytes());
    assert_eq!(unasked.status, 401);
}

/// The columns of an answer of pieces: how many there are in all, starts, ends, parts, rows and places on them.
type Pieces = (u32, Vec<f64>, Vec<f64>, Vec<u32>, Vec<u32>, Vec<u32>);

fn pieces(viewer: &Viewer, path: &str) -> Pieces {
    let answer = viewer.get(path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let word = |at: usize| u32::from_le_bytes(answer.body[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4)), (0x4854_4150, 1));
    let count = word(12) as usize;
    assert_eq!(answer.body.len(), 16 + 28 * count);
    let times = |from: usize| {
        let numbers = answer.body[from..from + 8 * count].chunks_exact(8);
        numbers
            .map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()))
            .collect::<Vec<_>>()
    };
    let words = |from: usize| (0..count).map(|at| word(from + 4 * at)).collect::<Vec<_>>();
    let after = 16 + 16 * count;
    (
        word(8),
        times(16),
        times(16 + 8 * count),
        words(after),
        words(after + 4 * count),
        words(after + 8 * count),
    )
}

#[test]
fn the_path_goes_through_slices_of_the_timeline() {
    let viewer = view(&[small_recording()]);
    let id = viewer.id("ddp run");
    let base = viewer.base(&id);
    let path = viewer.json(&format!("{base}/critical_path"));
    assert_eq!(path, viewer.json(&format!("{base}/whatif"))["critical_path"]);
    let parts = path["parts"].as_array().unwrap();
    let (total, starts, ends, of, rows, indices) = pieces(&viewer, &format!("{base}/critical_path/pieces"));
    assert_eq!(total as usize, starts.len());
    // One after the other, within the recording; by part they sum to what is said of it.
    let end = viewer.json(&format!("/api/rec/{id}/info"))["end"]
        .as_f64()
        .unwrap();
    assert!(starts[0] >= 0.0 && *ends.last().unwrap() <= end);
    assert!(starts.iter().zip(&ends).all(|(start, end)| start < end));
    assert!(ends.iter().zip(&starts[1..]).all(|(end, next)| end == next));
    let mut sums = vec![0.0; parts.len()];
    for ((start, end), part) in starts.iter().zip(&ends).zip(&of) {
        sums[*part as usize] += end - start;
    }
    let said: Vec<f64> = parts
        .iter()
        .map(|part| part["time_ns"].as_f64().unwrap())
        .collect();
    assert_eq!(sums, said);
    assert_eq!(sums.iter().sum::<f64>(), path["total_ns"].as_f64().unwrap());
    // A kernel's piece lies within that kernel's slice; what the host does has its thread's row and no slice.
    let all = viewer.json(&format!("{base}/rows"));
    let (mut kernels, mut hosts) = (0, 0);
    for at in 0..starts.len() {
        let part = &parts[of[at] as usize];
        if part["what"] == "kernel" && kernels < 20 {
            let slice = viewer.json(&format!("{base}/slice?row={}&index={}", rows[at], indices[at]));
            assert_eq!((&slice["rank"], &slice["name"]), (&part["rank"], &part["name"]));
            assert!(
                slice["start"].as_f64().unwrap() <= starts[at] && slice["end"].as_f64().unwrap() >= ends[at]
            );
            kernels += 1;
        } else if part["what"] == "host" {
            assert_eq!(all["rows"][rows[at] as usize]["what"], "thread");
            assert_eq!(indices[at], u32::MAX);
            hosts += 1;
        }
    }
    assert!(kernels > 0 && hosts > 0, "{path}");
    // In parts.
    let (again, some, ..) = pieces(&viewer, &format!("{base}/critical_path/pieces?offset=3&limit=4"));
    assert_eq!((again, some), (total, starts[3..7].to_vec()));
}

#[test]
fn causes_lead_to_the_timeline_and_changes_to_predictions() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[slow_rank()]);
    let mut browser = Browser::start(program, 1280, 900);
    browser.open(&viewer.url);
    browser.wait_for(
        "viewer.state().loaded && viewer.page.info.analysed && viewer.state().records > 0 \
         && viewer.state().settled && !viewer.state().missing && !viewer.state().busy",
    );
    browser.press("KeyY", "y");
    browser.wait_for("viewer.state().tab === 'why' && document.querySelector('.p-cause[data-code=slow_rank] .p-chain .p-link')");

    // A change is ticked: the step is predicted, and the link says what was.
    let tick = "[...document.querySelectorAll('.p-whatif input[type=checkbox]')].find((box) => box.ariaLabel === 'Try rank:1=as-others')";
    browser.wait_for(tick);
    browser.click_on(tick);
    browser.wait_for("document.querySelector('.p-predicted') || document.querySelector('.p-verdict')");
    let base = viewer.base(&viewer.id("slow"));
    let expected = viewer.json(&format!("{base}/whatif?set=rank:1%3Das-others"))["speedup"]
        .as_f64()
        .unwrap();
    let said = browser.evaluate("document.querySelector('.p-verdict').innerText");
    assert!(
        said.as_str().unwrap().contains(&format!("{expected:.2} times")),
        "{said}"
    );
    assert!(expected > 1.1, "{expected}");
    browser.wait_for("location.hash.includes('tab=why') && location.hash.includes('set=rank:1%3Das-others')");

    // By a slider, and on from there: everything that is chosen is tried together.
    let choose = "document.querySelector('.p-control select')";
    browser.evaluate(&format!(
        "(() => {{ const one = {choose}; one.value = 'times'; one.dispatchEvent(new Event('change')); }})()"
    ));
    browser.wait_for("document.querySelector('.p-slider')");
    browser.evaluate("(() => { const one = document.querySelector('.p-slider'); one.value = 2; one.dispatchEvent(new Event('input')); })()");
    browser.wait_for("document.querySelector('.p-verdict').innerText.includes('more a step')");
    assert_eq!(browser.evaluate("viewer.state().changes"), json!(["rank:1=2x"]));
    browser.wait_for("location.hash.includes('set=rank:1%3D2x')");
    browser.evaluate("history.back()");
    browser.wait_for("viewer.state().changes[0] === 'rank:1=as-others' && viewer.state().tab === 'why'");

    // A link of the chain leads to the kernel that is slow.
    browser.click_on("document.querySelector('.p-cause[data-code=slow_rank] .p-chain .p-link')");
    browser.wait_for(
        "viewer.state().tab === 'timeline' && viewer.state().settled && viewer.state().detail?.rank === 1",
    );
    let findings = viewer.json(&format!("{base}/analysis"))["findings"].clone();
    let slow = findings
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["code"] == "slow_rank")
        .unwrap();
    let link = slow["cause"]
        .as_array()
        .unwrap()
        .iter()
        .find(|link| !link["start_ns"].is_null())
        .unwrap();
    assert_eq!(
        browser.evaluate("viewer.state().selection.start"),
        link["start_ns"]
    );

    // Along the path by keys: each piece ends where the next begins, and is what is selected.
    browser.press("KeyB", "b");
    browser.wait_for("viewer.state().path.at >= 0 && viewer.state().settled");
    let first = browser.evaluate("viewer.state().path.at").as_u64().unwrap();
    browser.press("KeyB", "b");
    browser.wait_for(&format!(
        "viewer.state().path.at === {} && viewer.state().settled",
        first + 1
    ));
    browser.wait_for("viewer.state().window[0] < viewer.state().path.start && viewer.state().window[1] > viewer.state().path.start");
    browser.wait_for("document.querySelector('#details').innerText.includes('of the critical path')");
    browser.wait_for("location.hash.includes('path=shown')");
    browser.call(
        "Input.dispatchKeyEvent",
        &json!({"type": "keyDown", "code": "KeyB", "key": "B", "text": "B", "modifiers": 8}),
    );
    browser.wait_for(&format!("viewer.state().path.at === {first}"));
    browser.press("KeyO", "o");
    browser.wait_for("viewer.page.context.state.get().path === false");
    assert_eq!(browser.evaluate("viewer.state().errors"), json!([]));
    assert_eq!(browser.complaints, Vec::<String>::new());
}
