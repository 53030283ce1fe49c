//! Programs of others that judge what ours write, as `tests/consumers/fetch` fetches them.

#![allow(dead_code)] // Each crate's tests use a part of it.

pub mod hta;
pub mod tensorboard;
pub mod trace_processor;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of `tests/consumers`, whichever package of the workspace the test is of.
pub fn script(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let roots = [Some(package), package.parent()];
    let mut scripts = roots
        .into_iter()
        .flatten()
        .map(|root| root.join("tests/consumers").join(name));
    scripts
        .find(|script| script.exists())
        .expect("a file of tests/consumers")
}

/// The folder of what `tests/consumers/fetch` calls `name`. `None`, said aloud, where it can't be had; in CI it must be.
#[track_caller]
pub fn fetched(name: &str) -> Option<PathBuf> {
    let found = offered(name);
    assert!(
        found.is_some() || std::env::var_os("CI").is_none(),
        "needed in CI: {name}"
    );
    found
}

/// The same of what a machine need not have, in CI neither: packages of its distribution.
pub fn offered(name: &str) -> Option<PathBuf> {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("consumers");
    let fetch = Command::new(script("fetch"))
        .arg(name)
        .env("CONSUMERS", &all)
        .output();
    let why = match fetch {
        Ok(output) if output.status.success() => return Some(all.join(name)),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    eprintln!("SKIPPED: {name} could not be fetched, so it was not asked: {why}");
    None
}

/// Python of the virtual environment `name`, see [`fetched`].
#[track_caller]
pub fn python(name: &str) -> Option<PathBuf> {
    Some(fetched(name)?.join("bin/python"))
}
