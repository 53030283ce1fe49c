//! Embeds the page: every file under `web/` but its tests, and nothing else, becomes a row of one table.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        if path.is_dir() && !hidden && name != "tests" {
            files(&path, found);
        } else if path.is_file() && !hidden {
            found.push(path);
        }
    }
}

fn main() {
    println!("cargo::rerun-if-changed=web");
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let web = Path::new(&manifest).join("web");
    let mut found = Vec::new();
    files(&web, &mut found);
    found.sort();
    let mut table = String::from("&[\n");
    for path in &found {
        let name = path.strip_prefix(&web).expect("found below it");
        let name = name.to_str().expect("our own files have plain names");
        writeln!(
            table,
            "    ({:?}, include_bytes!({path:?})),",
            name.replace('\\', "/")
        )
        .expect("a string grows");
    }
    table.push_str("]\n");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("embedded.rs"), table)
        .expect("the build's own folder can be written");
}
