//! What must hold of our own Chrome JSON: it is JSON with every event in it, and read again it has the same kernels.

use gputrace_interchange::export::chrome::export_chrome;
use gputrace_interchange::import::{Progress, open};
use gputrace_trace::{Derived, Recording};
use serde::de::IgnoredAny;

use crate::scratch;

/// Starts and durations of all kernels, sorted.
fn kernels(recording: &Recording) -> Vec<(i64, i64)> {
    let mut kernels: Vec<(i64, i64)> = recording
        .processes
        .iter()
        .flat_map(|process| {
            let kernels = &process.tables.kernels;
            kernels.start_ns.iter().zip(&kernels.duration_ns)
        })
        .map(|(start, duration)| (start.0, duration.0))
        .collect();
    kernels.sort_unstable();
    kernels
}

/// Exports a recording and reads the export.
///
/// # Panics
/// When something is lost on the way: a bug of the exporter or of the reader.
pub fn check(recording: &Recording) {
    let mut bytes = Vec::new();
    let summary = export_chrome(recording, &Derived::default(), &mut bytes).expect("an export into memory");
    assert_eq!(summary.events_in, summary.events_out, "events exported");
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(&bytes) {
        panic!("the export is no JSON: {error}");
    }
    let before = kernels(recording);
    // An export counts from its first event on, and a reader takes no times further from that than 73 years.
    if before.is_empty() || before.iter().any(|(start, _)| !(1..1 << 60).contains(start)) {
        return;
    }
    let path = scratch::write("again.json", &bytes);
    let again = open(&[path], &Progress::default()).expect("our own export");
    assert_eq!(
        kernels(&again),
        before,
        "kernels of our own export: {:?}",
        again.losses
    );
}
