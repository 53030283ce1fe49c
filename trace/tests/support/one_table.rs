//! A recording of one process with one table, and ways to change its files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Field, Schema};
use gputrace_trace::json_file::write_json;
use gputrace_trace::manifest::PROCESS_FILE;
use gputrace_trace::seal::Identity;
use gputrace_trace::tables::Tables;
use gputrace_trace::writer::{AnyTableWriter, OwnFiles, TableWriter};
use gputrace_trace::{Interner, Recording, Table};

use super::{Random, finish_recording, random_rows, rendered, table_file};

/// One table in one process, in three batches: the rows as text, and the file's length after each batch.
pub struct Written {
    pub rows: Vec<String>,
    pub batches: Vec<(u64, usize)>,
}

/// Writes a recording with eight rows of a table.
pub fn write_one_table<T: Table>(root: &Path) -> Written {
    let mut names = Interner::default();
    let mut random = Random(3);
    let folder = root.join("rank0");
    fs::create_dir(&folder).unwrap();
    let mut writer = TableWriter::<T>::new(&OwnFiles::shared(), &folder, Identity::default());
    let mut all = T::default();
    let mut batches = Vec::new();
    for rows in [3usize, 1, 4] {
        let fresh: T = random_rows(rows, 4 + all.len() as u64 * 4, &mut random, &mut names);
        for row in 0..rows {
            writer.push(fresh.row(row));
            all.push(fresh.row(row));
        }
        writer.flush(&names).unwrap();
        let bytes = fs::metadata(table_file(root, "rank0", T::NAME)).unwrap().len();
        batches.push((bytes, all.len()));
    }
    writer.close(&names).unwrap();
    finish_recording(root, "rank0", &[(T::NAME, all.len() as u64)]);
    Written {
        rows: rendered(&all, &names),
        batches,
    }
}

/// The process's rows of a table as text.
pub fn read_back<T: Table>(recording: &Recording, table: impl Fn(&Tables) -> &T) -> Vec<String> {
    rendered(table(&recording.processes[0].tables), &recording.names)
}

/// Rewrites a JSON file of the recording.
pub fn edit(file: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    json.as_object_mut().unwrap().remove("checksum");
    change(&mut json);
    write_json(file, &json).unwrap();
}

/// Makes the process one of an earlier version, whose tables may be without checksums.
pub fn allow_plain_tables(root: &Path) {
    edit(&root.join(format!("rank0/{PROCESS_FILE}")), |json| {
        json["version"]["minor"] = 0.into();
        // Random stamps lie outside any life.
        json["started_ns"] = 0.into();
    });
}

/// Writes a table as another program might, without checksums.
pub fn write_stream(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, c)| c).collect()).unwrap();
    let mut writer = StreamWriter::try_new(fs::File::create(path).unwrap(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}
