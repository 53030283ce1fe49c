//! Who launched what: what the details of operations say, and the view of it in a browser.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common;

use common::browser::{self, Browser};
use common::http::{Viewer, small_recording, view};
use serde_json::{Value, json};

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/operators")
        .join(name)
}

/// Sums of times by what they are of; what has none is left out.
fn sums(parts: impl IntoIterator<Item = (String, i64)>) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (name, time) in parts.into_iter().filter(|(_, time)| *time > 0) {
        *sums.entry(name).or_default() += time;
    }
    sums
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// Each operation is asked for alone. Together they are what the analysis says of all of them.
#[test]
fn details_of_all_operations_sum_to_the_analysis() {
    for name in ["mi300_resnet_ac", "vllm_graph"] {
        let viewer = view(&[&trace(name)]);
        let base = viewer.base(&viewer.id(name));
        let (mut operators, mut modules, mut stacks) = (Vec::new(), Vec::new(), Vec::new());
        let rows = viewer.json(&format!("{base}/rows"));
        for row in rows["rows"].as_array().expect("rows") {
            if row["what"] != "stream" {
                continue;
            }
            for index in 0..row["slices"].as_u64().expect("a number") {
                let slice = viewer.json(&format!("{base}/slice?row={}&index={index}", row["row"]));
                let time = slice["duration"].as_i64().expect("a time");
                let by = &slice["launched_by"];
                if let Some(name) = by["operator"]["name"].as_str() {
                    operators.push((name.to_owned(), time));
                }
                if let Some(module) = by["module"].as_str() {
                    modules.push((format!("{module} {}", text(&by["pass"])), time));
                }
                if let Some(function) = by["stack"][0].as_str() {
                    stacks.push((function.to_owned(), time));
                }
            }
        }
        let analysis = viewer.json(&format!("{base}/analysis"));
        let of = |table: &str, name: &str, member: &str| -> Vec<(String, i64)> {
            let rows = analysis["ranks"][0][table].as_array().expect("a table").iter();
            rows.map(|row| {
                (
                    format!("{}{name}", text(&row["name"])),
                    row[member].as_i64().expect("a time"),
                )
            })
            .collect()
        };
        assert_eq!(sums(operators), sums(of("operators", "", "direct_ns")), "{name}");
        let passes = [
            ("forward", "forward_self_ns"),
            ("recomputed", "recompute_self_ns"),
            ("backward", "backward_self_ns"),
        ];
        let expected = passes.map(|(pass, member)| of("modules", &format!(" {pass}"), member));
        assert_eq!(sums(modules), sums(expected.into_iter().flatten()), "{name}");
        assert_eq!(sums(stacks), sums(of("stacks", "", "direct_ns")), "{name}");
    }
}

/// What is found of a module or a function is what the analysis says that it launched.
#[test]
fn a_search_by_who_launched_finds_what_the_analysis_counts() {
    let viewer = view(&[&trace("mi300_resnet_ac")]);
    let base = viewer.base(&viewer.id("mi300_resnet_ac"));
    let analysis = viewer.json(&format!("{base}/analysis"));
    let rank = &analysis["ranks"][0];
    let found = |by: &str, pattern: &str| {
        let pattern: String = pattern.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let (mut hits, mut time_ns) = (0, 0);
        loop {
            let search = format!("search?by={by}&regex=1&case=1&limit=1000&offset={hits}&q={pattern}");
            let answer = viewer.json(&format!("{base}/{search}"));
            let page = answer["hits"].as_array().expect("hits");
            hits += page.len();
            time_ns += page
                .iter()
                .map(|hit| hit["duration"].as_i64().expect("a time"))
                .sum::<i64>();
            if answer["truncated"] == false {
                assert_eq!(answer["total"], hits);
                return (hits as u64, time_ns);
            }
        }
    };
    let exactly = |name: &str| {
        let letters = name
            .chars()
            .map(|letter| format!("\\x{{{:x}}}", u32::from(letter)));
        format!("^{}$", letters.collect::<String>())
    };
    for module in rank["modules"].as_array().expect("modules") {
        let times = ["forward_ns", "recompute_ns", "backward_ns"]
            .map(|member| module[member].as_i64().expect("a time"));
        assert_eq!(
            found("module", &exactly(text(&module["name"]))).1,
            times.iter().sum::<i64>(),
            "{module}"
        );
    }
    assert!(found("module", "^ResNet_0$").0 > 100);
    let stacks = rank["stacks"].as_array().expect("stacks");
    // Each under what it was called from: those of a name that are in none of the name.
    let mut expected: BTreeMap<&str, i64> = BTreeMap::new();
    for stack in stacks {
        let mut parent = stack["parent"].as_u64();
        let mut is_outermost = true;
        while let Some(place) = parent {
            is_outermost &= stacks[place as usize]["name"] != stack["name"];
            parent = stacks[place as usize]["parent"].as_u64();
        }
        let time = if is_outermost {
            stack["subtree_ns"].as_i64().expect("a time")
        } else {
            0
        };
        *expected.entry(text(&stack["name"])).or_default() += time;
    }
    for (name, time) in expected.into_iter().take(60) {
        assert_eq!(found("function", &exactly(name)).1, time, "{name}");
    }
    assert_eq!(found("function", "^no such function$"), (0, 0));
}

fn shown(program: &str, viewer: &Viewer) -> Browser {
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded && viewer.page.info.analysed && viewer.state().settled");
    browser
}

#[track_caller]
fn assert_clean(browser: &mut Browser) {
    assert_eq!(browser.evaluate("viewer.state().errors"), json!([]));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// The first cells of the rows of the table that shows.
const NAMES: &str =
    "[...document.querySelectorAll('.panel-operators tbody tr')].map((row) => row.cells[0].innerText.trim())";

fn choose(browser: &mut Browser, title: &str) {
    browser.click_on(&format!(
        "[...document.querySelectorAll('.panel-operators .p-choice button')].find((one) => one.textContent === '{title}')"
    ));
}

#[test]
fn the_tables_lead_to_the_timeline_and_are_in_the_link() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[&trace("mi300_resnet_ac")]);
    let mut browser = shown(program, &viewer);
    browser.evaluate("viewer.page.timeline.over.focus()");
    browser.press("KeyU", "u");
    browser.wait_for(&format!("({NAMES})[0] === 'record_param_comms'"));
    browser.wait_for("document.querySelector('.panel-operators').innerText.includes('launch not recorded')");
    browser.wait_for("document.querySelector('.panel-operators').innerText.includes('TFLOP/s')");
    browser.wait_for("location.hash.includes('tab=operators')");

    // A tree: what is opened is in the link, and a click on a heading too.
    choose(&mut browser, "Modules");
    browser.wait_for(&format!(
        "({NAMES}).slice(0, 3).join() === 'DistributedDataParallel_0,ResNet_0,CheckpointWrapper_0'"
    ));
    browser.wait_for("location.hash.includes('by=modules')");
    browser.evaluate("document.querySelector('.panel-operators tr[tabindex=\"0\"]').focus()");
    browser.press("ArrowDown", "");
    browser.press("ArrowDown", "");
    browser.press("ArrowRight", "");
    browser.wait_for(&format!("({NAMES})[3] === 'Sequential_0'"));
    browser.wait_for("location.hash.includes('open=0')");
    browser.click_on("[...document.querySelectorAll('.panel-operators .p-sort')].find((one) => one.textContent === 'Backward')");
    browser.wait_for("location.hash.includes('sort=-backward_ns')");
    let link = browser.evaluate("location.href");
    let names = browser.evaluate(NAMES);

    // Each of it was a step that Back takes back.
    choose(&mut browser, "Stacks");
    browser.wait_for("location.hash.includes('by=stacks')");
    browser.evaluate("history.back()");
    browser.wait_for(&format!("JSON.stringify({NAMES}) === JSON.stringify({names})"));
    browser.evaluate("history.back()");
    browser.wait_for(
        "document.querySelector('.panel-operators [aria-sort=\"descending\"]').innerText.includes('Total')",
    );
    browser.evaluate("history.back()");
    browser.wait_for(&format!(
        "({NAMES}).length < {}",
        names.as_array().expect("names").len()
    ));
    browser.evaluate("history.back()");
    browser.wait_for(&format!("({NAMES})[0] === 'record_param_comms'"));

    // An operator is found on the timeline.
    browser.click_on("[...document.querySelectorAll('.panel-operators tbody .p-open')].find((one) => one.innerText === 'aten::mm')");
    browser.wait_for(
        "viewer.state().tab === 'timeline' && document.getElementById('query').value === 'aten::mm'",
    );
    browser.wait_for("document.querySelector('#search .hits').innerText.includes('6')");
    browser.wait_for("location.hash.includes('q=aten')");
    browser.evaluate("history.back()");
    browser.wait_for("viewer.state().tab === 'operators'");

    // And what a module launched.
    choose(&mut browser, "Modules");
    browser.wait_for("location.hash.includes('by=modules')");
    browser.wait_for(&format!("({NAMES}).includes('ResNet_0')"));
    browser.click_on(
        "[...document.querySelectorAll('.panel-operators tbody tr')].find((row) => row.cells[0].innerText.trim() === 'ResNet_0')\
         .querySelector('button.icon-button')",
    );
    browser.wait_for(
        "viewer.state().tab === 'timeline' && document.getElementById('query').value === 'module: \"ResNet_0\"'",
    );
    browser
        .wait_for("parseInt(document.querySelector('#search .hits').innerText.replaceAll(/\\D/g, '')) > 100");
    browser.wait_for("decodeURIComponent(location.hash).includes('module:')");
    let found = browser.evaluate("location.href");
    browser.evaluate("history.back()");
    browser.wait_for("viewer.state().tab === 'operators' && location.hash.includes('by=modules')");
    browser.evaluate(&format!("location.assign({found}); location.reload()"));
    browser.wait_for("document.getElementById('query').value === 'module: \"ResNet_0\"'");
    browser
        .wait_for("parseInt(document.querySelector('#search .hits').innerText.replaceAll(/\\D/g, '')) > 100");

    // The link brings all of it back.
    browser.evaluate(&format!("location.assign({link}); location.reload()"));
    browser.wait_for(&format!("JSON.stringify({NAMES}) === JSON.stringify({names})"));
    assert_clean(&mut browser);
}

/// The width of the outermost boxes of a flame graph as a share of all.
const OUTERMOST: &str = "[...document.querySelectorAll('.p-flame .flame-node')].filter((box) => box.style.top === '0px')\
     .reduce((sum, box) => sum + box.getBoundingClientRect().width + 1, 0) / document.querySelector('.p-flame .flame').clientWidth";

#[test]
fn modules_as_a_flame_graph_sum_to_all_gpu_time() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[&trace("mi300_resnet_ac")]);
    let mut browser = shown(program, &viewer);
    browser.click_on("document.getElementById('tab-operators')");
    browser.wait_for("document.querySelector('.panel-operators .p-choice')");
    choose(&mut browser, "Modules");
    choose(&mut browser, "Flame graph");
    browser.wait_for("document.querySelectorAll('.p-flame .flame-node').length > 5");
    browser.wait_for(&format!("Math.abs({OUTERMOST} - 1) < 0.01"));
    browser.wait_for("document.querySelector('.p-flame').innerText.includes('launch not recorded')");
    browser.wait_for("location.hash.includes('graph=flame')");

    // By keys to the network and into it; Back leads out again.
    browser.evaluate("document.querySelector('.p-flame .flame-node[tabindex=\"0\"]').focus()");
    browser.press("ArrowDown", "");
    browser.wait_for("document.activeElement.innerText === 'ResNet_0'");
    browser.wait_for("document.querySelector('.p-tip').innerText.includes('backward')");
    browser.press("Equal", "+");
    browser.wait_for("document.querySelector('.p-flame .flame-said').innerText.includes('ResNet_0')");
    browser.wait_for("location.hash.includes('zoom=1')");
    browser.evaluate("history.back()");
    browser.wait_for("!document.querySelector('.p-flame .outer') && !location.hash.includes('zoom')");
    choose(&mut browser, "Stacks");
    browser.wait_for("document.querySelector('.p-flame').innerText.includes('no function')");
    // The roofline leads to its rows.
    choose(&mut browser, "Products");
    browser.wait_for("document.querySelector('.p-roofline path.p-points')");
    browser.evaluate("document.querySelector('.p-roofline svg.p-chart').focus()");
    browser.press("ArrowRight", "");
    browser.wait_for("document.querySelector('.p-tip').innerText.includes('FLOP for each byte')");
    browser.press("Enter", "");
    browser.wait_for("document.activeElement.matches('.panel-operators tbody .p-open')");
    browser.wait_for(
        "!document.querySelector('.p-flame') && document.querySelector('.panel-operators tbody tr')",
    );
    assert_clean(&mut browser);
}

#[test]
fn details_name_the_operator_and_the_stack() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[&trace("mi300_resnet_ac")]);
    let mut browser = shown(program, &viewer);
    browser.evaluate(
        "(async () => { const { context } = viewer.page; const found = await context.api.search('batch_norm_backward', { limit: 1000 }); \
         viewer.page.timeline.select(found.hits.findLast((hit) => hit.kind === 0), { reveal: true }); })()",
    );
    browser.wait_for("document.querySelector('.details-launcher')");
    let said = browser.evaluate("document.querySelector('.details-launcher').innerText");
    for word in [
        "Launched by",
        "aten::",
        "BFloat16",
        "BatchNorm2d_",
        "backward",
        "Python",
    ] {
        assert!(text(&said).contains(word), "{word}: {said}");
    }
    // From there to the row of each table, and back.
    browser.wait_for("location.hash.includes('sel=')");
    for (table, row) in [
        ("operators", "batch_norm_backward"),
        ("modules", "^BatchNorm2d_"),
        ("stacks", "."),
    ] {
        let button = format!("document.querySelector('.details-launcher [title$=\"table of {table}\"]')");
        browser.wait_for(&button);
        browser.click_on(&button);
        let is_there = format!(
            "(() => {{ const row = document.activeElement?.closest('.panel-operators tbody tr'); \
             return row && /{row}/.test(row.cells[0].innerText.trim()); }})()"
        );
        browser.wait_for(&is_there);
        browser.wait_for(&format!("location.hash.includes('by={table}')"));
        browser.evaluate("history.back()");
        browser.wait_for("viewer.state().tab === 'timeline' && viewer.state().selection");
    }
    browser.click_on("document.querySelector('.launcher-stack summary .quiet')");
    browser.wait_for("document.querySelectorAll('.launcher-stack li').length > 5");
    // The operator's own details have its inputs.
    browser.click_on("document.querySelector('.details-launcher dd .link')");
    browser.wait_for("document.querySelector('#details').innerText.includes('Shapes of inputs')");
    browser.wait_for("document.querySelector('.details-launcher h2').innerText === 'Called in'");
    assert_clean(&mut browser);
}

#[test]
fn without_operators_the_view_says_how_to_record_them() {
    let Some(program) = browser::program() else { return };
    let viewer = view(&[small_recording()]);
    let mut browser = shown(program, &viewer);
    browser.click_on("document.getElementById('tab-operators')");
    browser.wait_for("document.querySelector('.panel-operators').innerText.includes('with_stack=True')");
    assert_clean(&mut browser);
}
