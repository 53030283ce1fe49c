//! The promise of at most 12 bytes a row over all tables.

use crate::training;

#[test]
fn a_row_takes_at_most_twelve_bytes() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("rank0");
    let rows = training::write(&folder, 1_000_000);
    let bytes: u64 = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    let a_row = bytes as f64 / rows as f64;
    assert!(rows >= 1_000_000 && a_row <= 12.0, "{a_row:.2} bytes a row");
    // Far less would mean that the rows have lost their jitter and the test its meaning.
    assert!(a_row > 5.0, "{a_row:.2} bytes a row");
}
