//! What `gputrace export --format chrome` writes where: a file by its ending, else a folder with a file a rank.

use crate::common;

use std::path::Path;

use common::{expect_status, fresh_folder, gputrace, names_in};
use gputrace_trace::place::MARK_FILE;
use serde_json::Value;

/// Eight ranks of PyTorch.
fn source() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto/dlrm8_v100")
}

fn export(output: &Path, options: &[&str]) {
    let mut export = gputrace();
    export
        .arg("export")
        .arg(source())
        .args(["--format", "chrome", "-o"])
        .arg(output)
        .args(options);
    expect_status(&mut export, 0);
}

fn text_of(file: &Path) -> String {
    let bytes = std::fs::read(file).expect("a file");
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return std::io::read_to_string(flate2::bufread::GzDecoder::new(&bytes[..])).expect("whole");
    }
    String::from_utf8(bytes).expect("text")
}

#[test]
fn endings_and_merge_decide() {
    let (_keep, folder) = fresh_folder("exported");
    std::fs::create_dir(&folder).expect("a folder");
    let at = |name: &str| folder.join(name);
    export(&at("all.json"), &[]);
    export(&at("all.json.gz"), &[]);
    export(&at("merged"), &["--merge"]);
    export(&at("ranks"), &[]);
    let all = text_of(&at("all.json"));
    assert_eq!(text_of(&at("all.json.gz")), all);
    assert_eq!(text_of(&at("merged")), all);
    assert!(std::fs::read(at("all.json.gz")).expect("a file").len() * 4 < all.len());
    let events = |text: &str| -> usize {
        let file: Value = serde_json::from_str(text).expect("JSON");
        let events = file["traceEvents"].as_array().expect("events");
        events.iter().filter(|event| event["ph"] == "X").count()
    };
    let mut names = names_in(&at("ranks"));
    names.retain(|name| name != MARK_FILE);
    let expected: Vec<String> = (0..8).map(|rank| format!("rank{rank}.json.gz")).collect();
    assert_eq!(names, expected);
    let of_ranks: usize = names
        .iter()
        .map(|name| events(&text_of(&at("ranks").join(name))))
        .sum();
    assert_eq!(of_ranks, events(&all), "each event is in one file");
    // A device is written into, whatever it is called.
    export(Path::new("/dev/null"), &[]);
}

#[test]
fn a_rank_alone_is_a_folder_of_one() {
    let (_keep, folder) = fresh_folder("exported");
    export(&folder, &["--ranks", "3"]);
    let text = text_of(&folder.join("rank3.json.gz"));
    assert!(text.contains("\"rank\": 3,"));
    let entries = std::fs::read_dir(&folder).expect("a folder").count();
    assert!(folder.join(MARK_FILE).exists());
    assert_eq!(entries, 2, "a file and the mark of an export");
}
