//! What searches for crashes have found stays harmless: the program reads every file of the corpus.

use crate::common;

use std::time::{Duration, Instant};

use common::{gputrace, stderr, stdout};
use serde_json::Value;

#[test]
fn no_file_of_the_corpus_does_harm() {
    common::schedule::computes();
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut read = 0;
    // Those of the other targets are no files of their own.
    for target in ["kineto", "nsight"] {
        for entry in std::fs::read_dir(corpus.join(target)).expect("the corpus") {
            let path = entry.expect("an entry").path();
            let began = Instant::now();
            let output = gputrace()
                .args(["analyze", "--json"])
                .arg(&path)
                .output()
                .expect("the program starts");
            assert!(began.elapsed() < Duration::from_secs(20), "{}", path.display());
            let said = stderr(&output);
            match output.status.code() {
                Some(0) => drop(serde_json::from_str::<Value>(&stdout(&output)).expect("JSON")),
                Some(2) => assert_eq!(said.lines().count(), 1, "{}: {said}", path.display()),
                other => panic!("{}: {other:?} {said}", path.display()),
            }
            assert!(!said.contains("panicked"), "{}: {said}", path.display());
            read += 1;
        }
    }
    assert!(read > 50, "{read}");
}
