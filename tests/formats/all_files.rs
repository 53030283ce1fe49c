//! Test files are modules of a program by a line in its main.rs: one without would never run.

use std::path::Path;

#[test]
fn every_test_file_is_in_a_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates =
        ["analyzer", "daemon", "interchange", "simgpu", "trace"].map(|name| root.join(name).join("tests"));
    let ours = ["daemon_soaking", "formats", "recording", "soaking", "viewer"]
        .map(|name| root.join("tests").join(name));
    for folder in crates.iter().chain(&ours) {
        let main = std::fs::read_to_string(folder.join("main.rs")).expect("a program");
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = path.file_stem().expect("a name").to_string_lossy();
            let is_in = name == "main" || main.lines().any(|line| line == format!("mod {name};"));
            let is_file = path.extension().is_some_and(|extension| extension == "rs");
            assert!(
                is_in || !is_file && !path.join("mod.rs").exists(),
                "{} lacks `mod {name};`",
                folder.join("main.rs").display()
            );
        }
    }
    // Cargo would make a program of each of these.
    let beside = std::fs::read_dir(root.join("tests")).expect("a folder").flatten();
    let mut beside = beside.filter(|entry| {
        entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "rs")
    });
    assert!(beside.next().is_none(), "tests belong into a folder of tests/");
}
