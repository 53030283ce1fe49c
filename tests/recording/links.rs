//! The analysis shows what each link carried: copies by pair of GPUs, unequal where the links are.

use crate::common;

use common::{expect_status, fresh_folder, gputrace, record_workload, stdout};
use serde_json::Value;

/// GB/s from GPU 0 to each of the others, as the analysis says it.
fn bandwidths(folder: &std::path::Path, others: u32) -> Vec<f64> {
    let analysis = common::analysis(folder);
    let copies: Vec<&Value> = analysis["ranks"][0]["copies"]
        .as_array()
        .expect("copies")
        .iter()
        .collect();
    (1..=others)
        .map(|peer| {
            let copy = copies
                .iter()
                .find(|copy| copy["source"] == "GPU 0" && copy["destination"] == format!("GPU {peer}"))
                .unwrap_or_else(|| panic!("copies to GPU {peer} among {copies:?}"));
            assert_eq!(copy["direction"], "PtoP");
            // Two tensors, two measured rounds and those before.
            assert!(copy["count"].as_u64().is_some_and(|count| count >= 4), "{copy}");
            copy["bandwidth"].as_f64().expect("a bandwidth")
        })
        .collect()
}

#[test]
fn unequal_links_are_seen_in_the_copies_by_pair() {
    common::schedule::alone();
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    let settings = [("SCALE", "1000"), ("TOPOLOGY", "pcie")];
    let workload = "p2p --ranks 5 --tensors 256K,1M --iterations 2 --no-check";
    expect_status(
        &mut record_workload(&folder, &truth, &settings, workload.split(' ')),
        0,
    );
    let found = bandwidths(&folder, 4);
    // One switch, two times the root complex of the socket, the link between the sockets: all four share GPU 0's way out,
    // each by its weight.
    let [switch, near, near_too, far] = found[..] else {
        panic!("{found:?}");
    };
    assert!((near / near_too - 1.0).abs() < 0.15, "{found:?}");
    assert!(switch > 1.15 * near.max(near_too), "{found:?}");
    assert!(far < 0.7 * near.min(near_too), "{found:?}");
    // A thousandth of what PCIe 5.0 carries: together no more than GPU 0's way out.
    assert!(switch < 0.063, "{found:?}");
    // People read them with digits enough to tell them apart.
    let text = stdout(&expect_status(gputrace().arg("analyze").arg(&folder), 0));
    for bandwidth in &found {
        let words = format!("{:.2} MB/s", bandwidth * 1e3);
        assert!(text.contains(&words), "{words} in\n{text}");
    }
}

#[test]
fn equal_links_are_seen_as_equal() {
    common::schedule::alone();
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    let settings = [("SCALE", "1000"), ("TOPOLOGY", "hgx")];
    let workload = "p2p --ranks 4 --tensors 1M,4M --iterations 2 --no-check";
    expect_status(
        &mut record_workload(&folder, &truth, &settings, workload.split(' ')),
        0,
    );
    let found = bandwidths(&folder, 3);
    let (least, most) = (
        found.iter().copied().fold(f64::INFINITY, f64::min),
        found.iter().copied().fold(0.0, f64::max),
    );
    assert!(most < 1.15 * least, "{found:?}");
    // Three copies at once share 370 GB/s.
    assert!((0.1..0.37).contains(&least), "{found:?}");
}
