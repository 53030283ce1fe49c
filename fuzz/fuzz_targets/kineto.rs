//! Trace files of PyTorch's profiler and other Chrome JSON, plain or packed: any bytes are a recording that is sound or one
//! line that refuses them; and of what serde_json reads too, every kernel is kept or counted as lost.
#![no_main]

use std::sync::atomic::Ordering;

use gputrace_fuzz::{expected, recordings, scratch};
use gputrace_interchange::import::{Progress, open};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = scratch::write("trace.json", data);
    let progress = Progress::default();
    let expected = expected::expected(data);
    match open(&[path], &progress) {
        Ok(recording) => {
            recordings::check_import(&recording);
            if let Some(expected) = &expected {
                expected::compare(expected, &recording);
            }
        }
        Err(error) => {
            assert!(expected.is_none(), "a trace to serde_json: {error}");
            recordings::check_refusal(&error);
        }
    }
    let (done, total) = (
        progress.done_bytes.load(Ordering::Relaxed),
        progress.total_bytes.load(Ordering::Relaxed),
    );
    assert!(done <= total, "{done} of {total} bytes");
});
