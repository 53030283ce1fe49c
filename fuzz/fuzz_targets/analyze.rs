//! Trace files of several ranks, read and analysed: parts sum to their wholes, tables can be made of it, and what is exported
//! can be read again. Zero bytes divide the input into files.
#![no_main]

use gputrace_fuzz::{again, analyses, recordings, scratch};
use gputrace_interchange::import::{Progress, open};
use libfuzzer_sys::fuzz_target;

/// Files of one input; the last of them is whatever is left.
const FILES: usize = 4;

fuzz_target!(|data: &[u8]| {
    let files: Vec<_> = data
        .splitn(FILES, |byte| *byte == 0)
        .enumerate()
        .map(|(rank, bytes)| scratch::write(&format!("rank{rank}.json"), bytes))
        .collect();
    match open(&files, &Progress::default()) {
        Ok(recording) => {
            recordings::check(&recording);
            analyses::check(&recording);
            again::check(&recording);
            if data.len().is_multiple_of(16) {
                analyses::check_tables(&recording);
            }
        }
        Err(error) => recordings::check_refusal(&error),
    }
});
