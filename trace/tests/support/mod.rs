//! What the tests share: tables of random rows made from nothing but their schemas, and rows as text to compare.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod one_table;
#[path = "../../../tests/common/random.rs"]
mod random;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, DictionaryArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field};
use gputrace_trace::json_file::write_json;
use gputrace_trace::manifest::{MANIFEST_FILE, Manifest, PROCESS_FILE, ProcessHeader};
use gputrace_trace::{Interner, Table};

pub use random::Random;

/// Any number: small ones, large ones and the extremes.
fn number(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.next() % 10,
        1 => u64::MAX - random.next() % 2,
        2 => i64::MAX as u64 + random.next() % 2,
        _ => random.next(),
    }
}

const NAMES: &[&str] = &[
    "",
    "sgemm",
    "名前 — kernel",
    "_Z3addPfi",
    "smile 😀",
    "line\nbreak\0nul",
    "a\u{301}e",
];

fn name(random: &mut Random, vocabulary: u64) -> String {
    match (random.next() % vocabulary) as usize {
        index if index < NAMES.len() => NAMES[index].to_owned(),
        index => format!("kernel_{index}"),
    }
}

fn numbers<T: ArrowPrimitiveType>(
    field: &Field,
    rows: usize,
    random: &mut Random,
    make: impl Fn(u64) -> T::Native,
) -> ArrayRef {
    let value = |random: &mut Random| {
        let null = field.is_nullable() && random.below(3) == 0;
        let number = number(random);
        (!null).then(|| make(number))
    };
    let column: PrimitiveArray<T> = (0..rows).map(|_| value(random)).collect();
    Arc::new(column)
}

/// `rows` random rows; the names come from a vocabulary of that size.
pub fn random_rows<T: Table>(rows: usize, vocabulary: u64, random: &mut Random, names: &mut Interner) -> T {
    let schema = T::schema();
    let columns = schema
        .fields()
        .iter()
        .map(|field| -> ArrayRef {
            match field.data_type() {
                DataType::UInt8 => numbers::<UInt8Type>(field, rows, random, |n| n as u8),
                DataType::UInt16 => numbers::<UInt16Type>(field, rows, random, |n| n as u16),
                DataType::UInt32 => numbers::<UInt32Type>(field, rows, random, |n| n as u32),
                DataType::UInt64 => numbers::<UInt64Type>(field, rows, random, |n| n),
                DataType::Int32 => numbers::<Int32Type>(field, rows, random, |n| n as i32),
                DataType::Int64 => numbers::<Int64Type>(field, rows, random, |n| n as i64),
                DataType::Float64 => numbers::<Float64Type>(field, rows, random, f64::from_bits),
                DataType::Dictionary(..) => {
                    let texts: Vec<Option<String>> = (0..rows)
                        .map(|_| {
                            let null = field.is_nullable() && random.below(3) == 0;
                            let text = name(random, vocabulary);
                            (!null).then_some(text)
                        })
                        .collect();
                    let column: DictionaryArray<Int32Type> = texts.iter().map(Option::as_deref).collect();
                    Arc::new(column)
                }
                other => panic!("no random values of type {other}"),
            }
        })
        .collect();
    let batch = RecordBatch::try_new(schema, columns).unwrap();
    let mut table = T::default();
    assert!(table.append_batch(&batch, names).unwrap().is_empty());
    table
}

/// Every row of a table as text, names resolved and floats by their bits.
pub fn rendered<T: Table>(table: &T, names: &Interner) -> Vec<String> {
    let mut copy = T::default();
    (0..table.len()).for_each(|row| copy.push(table.row(row)));
    let batch = copy.take_batch(&mut Vec::new(), names).unwrap();
    let mut rows = vec![String::new(); batch.num_rows()];
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        for (row, text) in rows.iter_mut().enumerate() {
            text.push_str(&format!("{}={} ", field.name(), cell(column.as_ref(), row)));
        }
    }
    rows
}

fn cell(column: &dyn Array, row: usize) -> String {
    macro_rules! primitive {
        ($($type:ident),*) => {$(
            if let Some(column) = column.as_any().downcast_ref::<PrimitiveArray<$type>>() {
                return if column.is_null(row) { "null".to_owned() } else { column.value(row).to_string() };
            }
        )*};
    }
    if let Some(column) = column.as_any().downcast_ref::<PrimitiveArray<Float64Type>>() {
        return if column.is_null(row) {
            "null".to_owned()
        } else {
            format!("{:x}", column.value(row).to_bits())
        };
    }
    primitive!(
        UInt8Type, UInt16Type, UInt32Type, UInt64Type, Int32Type, Int64Type
    );
    let column = column
        .as_any()
        .downcast_ref::<DictionaryArray<Int32Type>>()
        .unwrap();
    let values = column.values().as_any().downcast_ref::<StringArray>().unwrap();
    match column.key(row) {
        Some(key) => format!("{:?}", values.value(key)),
        None => "null".to_owned(),
    }
}

/// Calls a macro with all tables: field and type.
macro_rules! for_each_table {
    ($macro:ident) => {
        $macro! {
            kernels: Kernels, copies: Copies, memsets: Memsets, graph_nodes: GraphNodes, graph_launches:
            GraphLaunches, untimed_operations: UntimedOperations, collectives: Collectives, nccl_channels:
            NcclChannels, nccl_proxy: NcclProxySteps, communicators: Communicators, api_calls: ApiCalls,
            synchronizations: Synchronizations, event_records: EventRecords, overheads: Overheads, modules:
            Modules, compilations: Compilations, markers: Markers, payload_fields: PayloadFields, object_names:
            ObjectNames, operators: Operators, python_frames: PythonFrames,
            stack_frames: StackFrames, launch_stacks: LaunchStacks, memory: MemoryEvents, memory_pools: MemoryPoolEvents, counters:
            Counters, external_correlations: ExternalCorrelations, contexts: Contexts, streams: Streams, clocks:
            Clocks, windows: Windows, losses: LossRows
        }
    };
}

/// Writes a complete recording's two kinds of JSON around one process folder.
pub fn finish_recording(root: &Path, folder: &str, rows: &[(&'static str, u64)]) {
    let header = ProcessHeader {
        host: "node1".to_owned(),
        pid: 42,
        rank: Some(0),
        world_size: Some(1),
        started_ns: 1,
        ended_ns: Some(2),
        rows: rows
            .iter()
            .map(|(table, rows)| ((*table).to_owned(), *rows))
            .collect(),
        ..ProcessHeader::new()
    };
    write_json(&root.join(folder).join(PROCESS_FILE), &header).unwrap();
    let manifest = Manifest {
        state: "complete".to_owned(),
        device: "sim".to_owned(),
        command: vec!["train".to_owned()],
        ..Manifest::new()
    };
    write_json(&root.join(MANIFEST_FILE), &manifest).unwrap();
}

/// The file of a table.
pub fn table_file(root: &Path, folder: &str, table: &str) -> PathBuf {
    root.join(folder).join(format!("{table}.arrows"))
}
