//! What must hold of every recording that a reader hands over, whatever it read.

use gputrace_trace::column::Dictionary;
use gputrace_trace::tables::TABLE_NAMES;
use gputrace_trace::{Interner, Recording, Table};

/// Writes a table and reads it again, in memory: that needs columns of equal length, and names that are known.
fn round_trip<T: Table>(table: &mut T, names: &Interner) {
    let rows = table.len();
    if rows == 0 {
        return;
    }
    let mut dictionaries: Vec<Dictionary> = Vec::new();
    let batch = table
        .take_batch(&mut dictionaries, names)
        .expect("columns of equal length");
    assert_eq!(batch.num_rows(), rows, "{}: rows", T::NAME);
    let mut again = T::default();
    let unknown = again.append_batch(&batch, &mut Interner::default());
    assert_eq!(
        unknown.as_deref(),
        Ok([].as_slice()),
        "{}: its own columns",
        T::NAME
    );
    assert_eq!(again.len(), rows, "{}: rows read again", T::NAME);
}

/// Checks what holds of every recording.
///
/// # Panics
/// When it does not: a bug of the reader.
pub fn check(recording: &Recording) {
    for process in &recording.processes {
        let mut tables = process.tables.clone();
        let mut known = 0;
        macro_rules! each {
            ($($table:ident)*) => {
                $( round_trip(&mut tables.$table, &recording.names); known += 1; )*
            };
        }
        each! {
            kernels copies memsets graph_nodes graph_launches untimed_operations collectives nccl_channels nccl_proxy
            communicators api_calls synchronizations event_records overheads modules compilations markers payload_fields
            object_names operators python_frames stack_frames launch_stacks memory memory_pools counters external_correlations contexts streams
            clocks windows losses
        }
        assert_eq!(known, TABLE_NAMES.len(), "every table is checked here");
    }
    let order = |index: usize| {
        let process = &recording.processes[index];
        (process.header.rank.unwrap_or(u32::MAX), &process.folder)
    };
    for next in 1..recording.processes.len() {
        assert!(
            order(next - 1) <= order(next),
            "processes come by rank and folder"
        );
    }
}

/// Checks what holds of an imported recording of one file besides: what can't be used is a loss and not a row.
///
/// # Panics
/// When it does not: a bug of the importer.
pub fn check_import(recording: &Recording) {
    check(recording);
    for process in &recording.processes {
        let tables = &process.tables;
        let durations = [
            &tables.kernels.duration_ns,
            &tables.copies.duration_ns,
            &tables.memsets.duration_ns,
            &tables.api_calls.duration_ns,
            &tables.operators.duration_ns,
            &tables.synchronizations.duration_ns,
            &tables.overheads.duration_ns,
        ];
        assert!(
            durations.into_iter().flatten().all(|duration| duration.0 >= 0),
            "nothing ends before it begins"
        );
        for kernel in tables.collectives.kernel.iter().flatten() {
            assert!(
                (*kernel as usize) < tables.kernels.len(),
                "a collective's kernel is a row"
            );
        }
    }
    for loss in &recording.losses {
        assert_ne!(loss.count, Some(0), "a loss of nothing: {}", loss.what);
    }
}

/// Checks the text that refuses a path: one line, and nothing in it that steers a terminal.
///
/// # Panics
/// When it is not.
pub fn check_refusal(error: &dyn std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.contains(char::is_control), "more than one line: {text:?}");
}
