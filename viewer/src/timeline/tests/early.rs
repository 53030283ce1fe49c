//! A first look shows what the whole recording does.

use std::path::Path;

use gputrace_trace::json_file::write_json;

use gputrace_trace::manifest::{FORMAT, MANIFEST_FILE, Manifest, PROCESS_FILE, VERSION};
use gputrace_trace::tables::{
    ApiCalls, Clocks, Collectives, Communicators, Copies, Counters, ExternalCorrelations, Kernels, Markers,
    Memsets, NcclChannels, Operators, Overheads, PythonFrames,
};
use gputrace_trace::tables::{
    GraphNode, GraphNodes, LaunchStacks, StackFrames, Synchronizations, UntimedOperation, UntimedOperations,
};
use gputrace_trace::writer::ProcessWriter;

use super::*;

/// Writes a recording as a collector does, each table in batches of so many rows.
pub(crate) fn write(recording: &Recording, folder: &Path, rows: usize) {
    for process in &recording.processes {
        let own = folder.join(&process.folder);
        let mut writer = ProcessWriter::create(&own).unwrap();
        writer.names = recording.names.clone();
        macro_rules! write {
            ($($field:ident: $Columns:ident),*) => {$(
                let table: &$Columns = &process.tables.$field;
                for row in 0..table.len() {
                    writer.tables.$field.push(table.row(row));
                    if (row + 1).is_multiple_of(rows) {
                        writer.flush(1).unwrap();
                    }
                }
            )*};
        }
        write!(
            kernels: Kernels, api_calls: ApiCalls, markers: Markers, copies: Copies, synchronizations: Synchronizations,
            collectives: Collectives, communicators: Communicators, external_correlations: ExternalCorrelations,
            graph_nodes: GraphNodes, untimed_operations: UntimedOperations, operators: Operators, memsets: Memsets,
            overheads: Overheads, nccl_channels: NcclChannels, counters: Counters, clocks: Clocks,
            python_frames: PythonFrames, stack_frames: StackFrames, launch_stacks: LaunchStacks
        );
        writer.close().unwrap();
        let mut header = process.header.clone();
        header.ended_ns = Some(i64::MAX / 4);
        header.version = VERSION;
        writer.sign(&mut header);
        write_json(&own.join(PROCESS_FILE), &header).unwrap();
    }
    let manifest = Manifest {
        state: "complete".to_owned(),
        format: FORMAT.to_owned(),
        ..Manifest::new()
    };
    write_json(&folder.join(MANIFEST_FILE), &manifest).unwrap();
}

/// A job with many more kernels, calls and nested ranges, some of them out of order.
pub(crate) fn larger() -> Recording {
    let mut recording = recording();
    let mut names = std::mem::take(&mut recording.names);
    let texts = [
        "_Z4gemmPf",
        "relu",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ];
    let kernels = texts.map(|text| names.intern(text));
    let (launch, outer) = (names.intern("cuLaunchKernel"), names.intern("epoch"));
    for (place, process) in recording.processes.iter_mut().enumerate() {
        let tables = &mut process.tables;
        for number in 0..500i64 {
            let at = 2000 + number * 100 + place as i64;
            let id = 100 + number as u32;
            kernel(
                tables,
                kernels[number as usize % 3],
                7 + number as u32 % 3,
                id,
                at + 40,
                at + 90 + number % 70,
            );
            call(
                tables,
                launch,
                11 + number as u32 % 2,
                id + 1000,
                at + 11,
                at + 15,
            );
            call(tables, kernels[1], 11 + number as u32 % 2, id, at + 10, at + 20);
            range(tables, outer, 11, at, at + 50);
        }
        range(tables, outer, 11, 1500, 60_000);
    }
    recording.names = names;
    recording
}

#[test]
fn a_first_look_is_as_the_whole_and_has_its_details_when_that_is_read() {
    for (recording, rows) in [(recording(), 1), (larger(), 64), (larger(), 1 << 14)] {
        let folder = tempfile::tempdir().unwrap();
        write(&recording, folder.path(), rows);
        let read = Recording::open(folder.path()).unwrap();
        assert_eq!(read.losses, []);
        let whole = Timeline::build(&Arc::new(read.clone()));
        let (early, promise) =
            Timeline::first_look(folder.path(), false).expect("it is as our writer leaves it");
        assert_eq!(early.rows(), whole.rows());
        assert_eq!(
            (early.begin(), early.end(), early.events()),
            (whole.begin(), whole.end(), whole.events())
        );
        assert_eq!(early.bands(), whole.bands());
        let window = (whole.begin() - 10, whole.end() + 10);
        assert_eq!(
            early.overview(window.0, window.1, 333),
            whole.overview(window.0, window.1, 333)
        );
        let rows: Vec<u32> = (0..whole.rows().len() as u32).collect();
        for row in &rows {
            let (early, whole) = (early.slices(*row), whole.slices(*row));
            let parts = |slices: &Slices| -> Vec<(i64, i64, u32)> {
                (0..slices.len())
                    .map(|at| (slices.start(at), slices.duration(at), slices.source(at)))
                    .collect()
            };
            assert_eq!(early.map(parts), whole.map(parts));
        }
        assert!(early.is_waiting());
        let kept = promise.keep(read).expect("the same rows");
        assert!(!early.is_waiting() && Arc::ptr_eq(&early.recording(), &kept));
        for row in whole.rows() {
            for index in 0..row.slices {
                assert_eq!(early.slice(row.row, index), whole.slice(row.row, index));
            }
        }
        // And so does what the analysis adds.
        let analysed = |timeline: &Timeline| {
            let (analysis, details) = analyze_in_detail(&timeline.recording(), &Options::default());
            timeline.with_analysis(&Arc::new(analysis), &details)
        };
        let (early, whole) = (analysed(&early), analysed(&whole));
        assert_eq!(early.rows(), whole.rows());
        assert_eq!(
            early.overview(window.0, window.1, 100),
            whole.overview(window.0, window.1, 100)
        );
    }
}

#[test]
fn kernels_that_graphs_carry_communicate_at_first_look_too() {
    let mut recording = larger();
    let tables = &mut recording.processes[0].tables;
    tables.graph_nodes.push(GraphNode {
        node: 77,
        plan: 5,
        ..GraphNode::default()
    });
    tables.kernels.graph_node[20] = Some(77);
    let folder = tempfile::tempdir().unwrap();
    write(&recording, folder.path(), 100);
    let whole = Timeline::build(&Arc::new(Recording::open(folder.path()).unwrap()));
    let (early, _promise) = Timeline::first_look(folder.path(), false).unwrap();
    let window = (whole.begin(), whole.end());
    assert_eq!(
        early.overview(window.0, window.1, 1000),
        whole.overview(window.0, window.1, 1000)
    );
}

#[test]
fn what_grew_since_is_no_longer_the_same() {
    let folder = tempfile::tempdir().unwrap();
    write(&recording(), folder.path(), 10);
    let (early, promise) = Timeline::first_look(folder.path(), false).unwrap();
    let other = tempfile::tempdir().unwrap();
    write(&larger(), other.path(), 10);
    assert!(promise.keep(Recording::open(other.path()).unwrap()).is_err());
    // Nobody waits for what will not come.
    assert!(!early.is_waiting());
    assert!(early.slice(0, 0).is_some());
}

#[test]
fn no_first_look_where_it_might_differ() {
    let mut recording = recording();
    recording.processes[0]
        .tables
        .untimed_operations
        .push(UntimedOperation {
            kind: 10,
            start_ns: Some(TimeNs(STARTED + 950)),
            ..UntimedOperation::default()
        });
    let folder = tempfile::tempdir().unwrap();
    write(&recording, folder.path(), 10);
    assert!(Timeline::first_look(folder.path(), false).is_none());
    assert!(Timeline::first_look(&folder.path().join("nothing"), false).is_none());
    // A damaged batch: the whole is read as far as it goes.
    let folder = tempfile::tempdir().unwrap();
    write(&larger(), folder.path(), 64);
    let file = folder.path().join("rank0/kernels.arrows");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    for byte in &mut bytes[middle..middle + 600] {
        *byte ^= 0x5a;
    }
    std::fs::write(&file, bytes).unwrap();
    assert!(Timeline::first_look(folder.path(), false).is_none());
}
