//! The soak: what an attacker, a dying machine and a careless user do to gputrace, for as long as one likes.
//!
//! `tests/soak MINUTES` runs it; here it is a test that gives each kind a few tries. A kind is a row of [`KINDS`]; a try is
//! a function of the seed, the kind and its number, so that a failure can be repeated by the line that it prints.

mod arena;
mod bytes;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod kinds;
mod program;
mod runner;
mod seeds;
mod world;

use common::random;

// What holds of whatever a reader hands over: the fuzz targets' checks.
#[path = "../../fuzz/src/again.rs"]
mod again;
#[path = "../../fuzz/src/analyses.rs"]
mod analyses;
#[path = "../../fuzz/src/recordings.rs"]
mod recordings;
#[path = "../../fuzz/src/scratch.rs"]
mod scratch;

/// Without `tests/soak`: a minute of everything.
#[test]
fn soak() {
    let asked = runner::Asked::from_environment();
    if let Err(line) = runner::run(&asked) {
        // The line that repeats it stands last, where it is seen.
        panic!("{line}");
    }
}
