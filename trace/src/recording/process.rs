//! Reading one process's folder: its header, its tables, and what of them is missing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use arrow_array::RecordBatch;

use super::{
    Json, Loss, NO_END_MARK, NOT_WHOLE, OpenError, Process, Recording, WITHOUT_CLOSING, check_version,
    read_json,
};
use crate::manifest::{HOST_ROLE, PROCESS_FILE, ProcessHeader};
use crate::stream::{StreamEnd, StreamFile};
use crate::table::NAME_KEY;
use crate::tables::{TABLE_NAMES, Tables};

impl Recording {
    pub(super) fn read_process(&mut self, folder: &Path, tables: &[&str]) -> Result<(), OpenError> {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let header_path = folder.join(PROCESS_FILE);
        let header = read_json::<ProcessHeader>(&header_path)
            .map_err(|error| OpenError(format!("{}: cannot be read: {error}", header_path.display())))?;
        let header = match header {
            Json::Read(header) => {
                check_version(&header_path, header.version)?;
                header
            }
            Json::Missing | Json::Damaged(_) => {
                let state = if matches!(header, Json::Missing) {
                    "missing"
                } else {
                    "damaged"
                };
                self.lose(
                    format!("{name}/{PROCESS_FILE} is {state}"),
                    Some(1),
                    "rank, host and devices of that process",
                );
                ProcessHeader::new()
            }
        };
        for note in &header.notes {
            self.notes.push(format!("{name}: {note}"));
        }
        let mut process = Process {
            folder: name.clone(),
            header,
            tables: Tables::default(),
        };
        let mut files: Vec<PathBuf> = fs::read_dir(folder)
            .map_err(|error| OpenError(format!("{}: cannot be read: {error}", folder.display())))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|file| file.extension().is_some_and(|extension| extension == "arrows"))
            .collect();
        files.sort();
        // Opening a pipe would wait for somebody to write into it.
        files.retain(|file| {
            let is_file = file.is_file();
            if !is_file {
                let file = file.file_name().unwrap_or_default().to_string_lossy();
                self.lose(format!("{name}/{file} is no file"), Some(1), "that table");
            }
            is_file
        });
        let table_of = |file: &Path| {
            file.file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        files.retain(|file| {
            let table = table_of(file);
            let is_known = TABLE_NAMES.contains(&table.as_str());
            if !is_known {
                self.notes.push(format!(
                    "{name}: table {table} is of a newer version and was ignored"
                ));
            }
            is_known && tables.contains(&table.as_str())
        });
        let mut unclosed = Vec::new();
        for file in &files {
            let table = table_of(file);
            let end = self
                .take_table(&mut process, &name, &table, file)
                .map_err(|error| OpenError(format!("{}: cannot be read: {error}", file.display())))?;
            let cut = matches!(end, StreamEnd::Cut(_));
            match end {
                StreamEnd::Closed => {}
                StreamEnd::Open => unclosed.push(table.clone()),
                StreamEnd::Cut(bytes) => {
                    self.lose(
                        format!("{name}: {table} ends in {bytes} bytes {NOT_WHOLE}"),
                        Some(1),
                        &table,
                    );
                }
                StreamEnd::Damaged(wrong) => {
                    self.lose(
                        format!("{name}: {table} is damaged ({wrong}); what follows was not read"),
                        None,
                        &table,
                    );
                }
            }
            self.compare_rows(&process, &table, cut);
        }
        // A table that the process says it wrote and whose file is gone.
        for (table, rows) in &process.header.rows {
            if *rows > 0
                && TABLE_NAMES.contains(&table.as_str())
                && !folder.join(format!("{table}.arrows")).exists()
            {
                self.losses.push(Loss {
                    what: format!("{name}: {table} is missing"),
                    count: Some(*rows),
                    affects: table.clone(),
                });
            }
        }
        if process.header.ended_ns.is_none() {
            self.lose(
                format!("{name}: the process {WITHOUT_CLOSING}"),
                None,
                "everything in its last moments (up to a second)",
            );
        } else if !unclosed.is_empty() {
            self.lose(
                format!("{name}: {} {NO_END_MARK}", unclosed.join(", ")),
                None,
                &unclosed.join(", "),
            );
        }
        self.collect_losses(&process);
        if process.header.role == HOST_ROLE {
            self.hosts.push(process);
        } else {
            self.processes.push(process);
        }
        Ok(())
    }

    /// Reads a table's file. Of a large one another thread unpacks batches while this one takes them in; no more than a few
    /// wait, since touching memory costs more than unpacking.
    fn take_table(
        &mut self,
        process: &mut Process,
        name: &str,
        table: &str,
        file: &Path,
    ) -> io::Result<StreamEnd> {
        const AHEAD: usize = 4;
        const LARGE_BYTES: u64 = 1 << 20;
        // Growing by doubling would touch half as much memory again. A damaged file is not believed beyond what its bytes
        // could hold, packed as well as anything packs.
        let bytes = fs::metadata(file).map_or(0, |metadata| metadata.len());
        let most = usize::try_from(bytes).unwrap_or(0).saturating_mul(64);
        let written = process.header.rows.get(table).copied().unwrap_or(0);
        process
            .tables
            .reserve(table, usize::try_from(written).unwrap_or(0).min(most));
        if bytes < LARGE_BYTES {
            let mut stream = StreamFile::new(file);
            let batches = stream.read()?;
            let taken = self.take_batches(&mut process.tables, name, table, batches);
            return Ok(taken.map_or_else(StreamEnd::Damaged, |()| stream.end().clone()));
        }
        let (sender, batches) = sync_channel(AHEAD);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut stream = StreamFile::new(file);
                stream.read_each(|batch| sender.send(batch).is_ok())?;
                Ok(stream.end().clone())
            });
            let taken = self.take_batches(&mut process.tables, name, table, batches);
            let read = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
            // What is wrong with a batch is wrong however the file ends.
            match taken {
                Ok(()) => read,
                Err(wrong) => Ok(StreamEnd::Damaged(wrong)),
            }
        })
    }

    fn take_batches(
        &mut self,
        tables: &mut Tables,
        process: &str,
        table: &str,
        batches: impl IntoIterator<Item = RecordBatch>,
    ) -> Result<(), String> {
        let mut noted = false;
        for batch in batches {
            if let Some(holds) = batch.schema_ref().metadata().get(NAME_KEY)
                && holds != table
            {
                return Err(format!("it holds the table {holds}"));
            }
            match tables.append_batch(table, &batch, &mut self.names) {
                Some(Ok(unknown)) if !unknown.is_empty() && !noted => {
                    noted = true;
                    self.notes.push(format!(
                        "{process}: columns of a newer version ignored in {table}: {}",
                        unknown.join(", ")
                    ));
                }
                Some(Err(wrong)) => return Err(wrong),
                Some(Ok(_)) | None => {}
            }
        }
        Ok(())
    }

    /// "n of m": what the process wrote by its own count against what is there.
    fn compare_rows(&mut self, process: &Process, table: &str, cut: bool) {
        let Some(&written) = process.header.rows.get(table) else {
            return;
        };
        let read = process
            .tables
            .row_counts()
            .iter()
            .find(|(name, _)| *name == table)
            .map_or(0, |(_, rows)| *rows as u64);
        if read < written {
            let why = if cut {
                "the file is cut"
            } else {
                "the file is not whole"
            };
            self.lose(
                format!(
                    "{}: {read} of {written} rows of {table} could be read ({why})",
                    process.folder
                ),
                Some(written - read),
                table,
            );
        } else if read > written {
            self.lose(
                format!(
                    "{}: {read} rows of {table} where the process wrote {written}",
                    process.folder
                ),
                Some(read - written),
                table,
            );
        }
    }

    /// The process's own loss rows, summed by what and affects.
    fn collect_losses(&mut self, process: &Process) {
        let rows = &process.tables.losses;
        let mut sums = BTreeMap::new();
        for index in 0..rows.count.len() {
            let sum = sums
                .entry((rows.what[index], rows.affects[index]))
                .or_insert(0u64);
            *sum = sum.saturating_add(rows.count[index]);
        }
        for ((what, affects), count) in sums {
            let loss = Loss {
                what: format!("{}: {}", process.folder, self.names.get(what)),
                count: Some(count),
                affects: self.names.get(affects).to_owned(),
            };
            self.losses.push(loss);
        }
    }
}
