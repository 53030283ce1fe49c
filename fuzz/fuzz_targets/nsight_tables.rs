//! Exports of Nsight Systems made table by table: every row of device work is kept or counted as lost, and the analysis of
//! what was kept sums up.
#![no_main]

use gputrace_fuzz::{analyses, exports, recordings, scratch};
use gputrace_interchange::import::{Progress, open};
use gputrace_trace::{Recording, Table};
use libfuzzer_sys::{Corpus, fuzz_target};

/// Rows of a table that stand in the losses.
fn lost(recording: &Recording, table: &str) -> u64 {
    recording
        .losses
        .iter()
        .filter(|loss| loss.what.contains(table))
        .filter_map(|loss| loss.count)
        .sum()
}

/// Rows of device work that are neither kept nor lost, or are both.
fn check_rows(recording: &Recording, written: &[exports::Written]) {
    let kept = |rows: fn(&gputrace_trace::tables::Tables) -> usize| -> u64 {
        recording
            .processes
            .iter()
            .map(|process| rows(&process.tables) as u64)
            .sum()
    };
    let rows = |table: &str| -> u64 {
        written
            .iter()
            .filter(|written| written.table == table)
            .map(|written| written.rows)
            .sum()
    };
    // Launches of whole graphs are kernels too; those whose nodes are there are left out on purpose.
    if rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE") == 0 {
        let table = "CUPTI_ACTIVITY_KIND_KERNEL";
        assert_eq!(
            kept(|tables| tables.kernels.len()) + lost(recording, table),
            rows(table),
            "{table}"
        );
    }
    let table = "CUPTI_ACTIVITY_KIND_MEMCPY";
    assert_eq!(
        kept(|tables| tables.copies.len()) + lost(recording, table),
        rows(table),
        "{table}"
    );
    let table = "CUPTI_ACTIVITY_KIND_MEMSET";
    assert_eq!(
        kept(|tables| tables.memsets.len()) + lost(recording, table),
        rows(table),
        "{table}"
    );
}

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok((bytes, written)) = exports::database(data) else {
        return Corpus::Reject;
    };
    let path = scratch::write("report.sqlite", &bytes);
    match open(&[path], &Progress::default()) {
        Ok(recording) => {
            recordings::check_import(&recording);
            check_rows(&recording, &written);
            analyses::check(&recording);
        }
        Err(error) => recordings::check_refusal(&error),
    }
    Corpus::Keep
});
