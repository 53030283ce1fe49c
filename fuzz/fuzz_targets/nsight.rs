//! SQLite files, such as Nsight Systems exports: any bytes are a recording that is sound or one line that refuses them.
#![no_main]

use gputrace_fuzz::{recordings, scratch};
use gputrace_interchange::import::{Progress, open};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = scratch::write("report.sqlite", data);
    match open(&[path], &Progress::default()) {
        Ok(recording) => recordings::check_import(&recording),
        Err(error) => recordings::check_refusal(&error),
    }
});
