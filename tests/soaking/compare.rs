//! What a damaged recording still says, beside what it said when it was whole.

use std::path::Path;

use gputrace_analyzer::{Options, analyze};
use gputrace_trace::{Interner, Recording, Table};
use serde_json::Value;

/// A recording with its analysis, as JSON and without what tells where it was read from.
pub struct Read {
    pub recording: Recording,
    pub analysis: Value,
}

/// Opens and analyses; a refusal must be one line.
pub fn read(folder: &Path) -> Result<Read, String> {
    let recording = Recording::open(folder).map_err(|error| {
        let line = error.to_string();
        assert!(!line.contains('\n'), "not one line: {line}");
        line
    })?;
    let mut analysis = serde_json::to_value(analyze(&recording, &Options::default())).expect("JSON");
    if let Some(members) = analysis.as_object_mut() {
        members.remove("source");
        members.remove("losses");
        members.remove("notes");
    }
    Ok(Read { recording, analysis })
}

/// What two readings of a table have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    Same,
    /// Rows of the whole one in their order, some of them missing.
    Fewer,
    /// Rows that the whole one has not.
    Others,
}

fn compare<T: Table>(whole: &T, names: &Interner, left: &T, left_names: &Interner) -> Rows {
    let batch = |table: &T, names: &Interner| {
        let mut copy = T::default();
        (0..table.len()).for_each(|row| copy.push(table.row(row)));
        copy.take_batch(&mut Vec::new(), names)
            .expect("columns of equal length")
    };
    let (whole, left) = (batch(whole, names), batch(left, left_names));
    if whole == left {
        return Rows::Same;
    }
    // Each row in its turn: the next of the whole that is equal.
    let mut next = 0;
    for row in 0..left.num_rows() {
        let wanted = left.slice(row, 1);
        while next < whole.num_rows() && whole.slice(next, 1) != wanted {
            next += 1;
        }
        if next == whole.num_rows() {
            return Rows::Others;
        }
        next += 1;
    }
    Rows::Fewer
}

macro_rules! compare_each {
    ($whole:expr, $left:expr, $differ:expr, $process:expr, $($table:ident)*) => {$(
        let rows = compare(&$whole.0.$table, $whole.1, &$left.0.$table, $left.1);
        if rows != Rows::Same {
            $differ.push(($process.to_owned(), stringify!($table), rows));
        }
    )*};
}

/// The tables that differ: process folder, table, how. A process that is gone has lost what it had.
pub fn differences(whole: &Recording, left: &Recording) -> Vec<(String, &'static str, Rows)> {
    let mut differ = Vec::new();
    for process in &whole.processes {
        let Some(still) = left.processes.iter().find(|other| other.folder == process.folder) else {
            differ.push((process.folder.clone(), "process", Rows::Fewer));
            continue;
        };
        let (all, now) = ((&process.tables, &whole.names), (&still.tables, &left.names));
        compare_each!(
            all, now, differ, process.folder,
            kernels copies memsets graph_nodes graph_launches untimed_operations collectives nccl_channels nccl_proxy
            communicators api_calls synchronizations event_records overheads modules compilations markers
            payload_fields object_names operators python_frames stack_frames launch_stacks memory memory_pools counters
            external_correlations contexts streams clocks windows losses
        );
    }
    differ
}

/// What `left` says of losses and odd things that `whole` did not.
pub fn said(whole: &Recording, left: &Recording) -> Vec<String> {
    let all = |recording: &Recording| -> Vec<String> {
        let losses = recording
            .losses
            .iter()
            .map(|loss| format!("{}; affects {}", loss.what, loss.affects));
        losses.chain(recording.notes.iter().cloned()).collect()
    };
    let before = all(whole);
    let mut now = all(left);
    now.retain(|text| !before.contains(text));
    now
}
