//! Reading one process's folder: its tables, and what of them is missing.

use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use arrow_array::RecordBatch;

use super::header::{Known, files_in, last_written_ns};
use super::stamps::Life;
use super::{Loss, NO_END_MARK, NOT_WHOLE, OpenError, Process, Recording, WITHOUT_CLOSING, cannot_read};
use crate::beneath::{self, Kind, Refused};
use crate::stream::{Checks, Damage, StreamEnd, StreamFile};
use crate::tables::{TABLE_NAMES, Tables};

impl Recording {
    /// Reads a process's folder; gives whether it was written without checksums.
    pub(super) fn read_process(&mut self, folder: &Path, tables: &[&str]) -> Result<bool, OpenError> {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Known {
            header,
            checks,
            is_trusted,
            wrong,
        } = Known::read(folder, &name)?;
        self.losses.extend(wrong);
        let mut is_unchecked = is_trusted && !header.version.has_checksums();
        for note in &header.notes {
            self.notes.push(format!("{name}: {note}"));
        }
        let mut process = Process {
            folder: name.clone(),
            header,
            tables: Tables::default(),
        };
        let mut found = files_in(folder)?;
        found.retain(|entry| {
            let file = entry.path.file_name().unwrap_or_default().to_string_lossy();
            let what = match entry.stat.kind {
                Kind::File => return true,
                Kind::LeadsOut => format!("{name}/{file}: {}", Refused::LeadsOut),
                Kind::Folder | Kind::Special | Kind::Broken => format!("{name}/{file} is no file"),
            };
            self.lose(what, Some(1), "that table");
            false
        });
        let written_ns = last_written_ns(&found);
        let mut files: Vec<PathBuf> = found.into_iter().map(|entry| entry.path).collect();
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
            let read = match self.take_table(&mut process, &name, &table, file, checks) {
                // Another file than a moment ago.
                Err(error) if beneath::refused(&error).is_some() => Read {
                    end: StreamEnd::Damaged(error.to_string()),
                    damage: Vec::new(),
                    is_checked: true,
                },
                read => read.map_err(|error| cannot_read(file, &error))?,
            };
            is_unchecked |= !is_trusted && !read.is_checked;
            self.tell_of_damage(&process, &table, &read);
            if read.end == StreamEnd::Open {
                unclosed.push(table);
            }
        }
        if is_unchecked {
            let life = Life::of(&process.header, written_ns, &process.tables.clocks);
            for (table, rows) in life.leave_out_impossible(&mut process.tables) {
                self.lose(
                    format!("{name}/{table}.arrows has rows from hours before or after the process, which were left out"),
                    Some(rows),
                    table,
                );
            }
        }
        // A table that the process says it wrote and whose file is gone.
        for (table, rows) in &process.header.rows {
            if *rows > 0
                && TABLE_NAMES.contains(&table.as_str())
                && !beneath::exists(&folder.join(format!("{table}.arrows")))
            {
                self.losses.push(Loss {
                    what: format!("{name}/{table}.arrows is missing"),
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
        if process.header.is_host() {
            self.hosts.push(process);
        } else {
            self.processes.push(process);
        }
        Ok(is_unchecked)
    }

    /// Says what of a table's file could not be read.
    fn tell_of_damage(&mut self, process: &Process, table: &str, read: &Read) {
        let file = format!("{}/{table}.arrows", process.folder);
        for Damage { what, rows } in &read.damage {
            let (left_out, count) = match rows {
                0 => ("what does not belong there was left out".to_owned(), None),
                rows => (format!("{rows} rows were left out"), Some(*rows)),
            };
            self.lose(format!("{file} is damaged ({what}); {left_out}"), count, table);
        }
        match &read.end {
            StreamEnd::Closed | StreamEnd::Open => {}
            StreamEnd::Cut(bytes) => {
                self.lose(
                    format!("{file} ends in {bytes} bytes {NOT_WHOLE}"),
                    Some(1),
                    table,
                );
            }
            StreamEnd::Damaged(wrong) => {
                self.lose(
                    format!("{file} is damaged ({wrong}); what follows was not read"),
                    None,
                    table,
                );
            }
        }
        let told = read.damage.iter().map(|damage| damage.rows).sum();
        self.compare_rows(process, table, matches!(read.end, StreamEnd::Cut(_)), told);
    }

    /// Reads a table's file. Of a large one another thread unpacks batches while this one takes them in; no more than a few
    /// wait, since touching memory costs more than unpacking.
    fn take_table(
        &mut self,
        process: &mut Process,
        name: &str,
        table: &str,
        file: &Path,
        checks: Checks,
    ) -> io::Result<Read> {
        const AHEAD: usize = 4;
        const LARGE_BYTES: u64 = 1 << 20;
        // Growing by doubling would touch half as much memory again. A damaged file is not believed beyond what its bytes
        // could hold, packed as well as anything packs.
        let bytes = beneath::bytes(file);
        let most = usize::try_from(bytes).unwrap_or(0).saturating_mul(64);
        let written = process.header.rows.get(table).copied().unwrap_or(0);
        process
            .tables
            .reserve(table, usize::try_from(written).unwrap_or(0).min(most));
        let mut stream = StreamFile::with_checks(file, checks);
        if bytes < LARGE_BYTES {
            let batches = stream.read()?;
            let taken = self.take_batches(&mut process.tables, name, table, batches);
            return Ok(Read::of(stream, taken));
        }
        let (sender, batches) = sync_channel(AHEAD);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                stream.read_each(|batch| sender.send(batch).is_ok())?;
                Ok::<_, io::Error>(stream)
            });
            let taken = self.take_batches(&mut process.tables, name, table, batches);
            let stream = reader.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok(Read::of(stream, taken))
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
    /// `told`: rows of which it was said that they were left out.
    fn compare_rows(&mut self, process: &Process, table: &str, cut: bool, told: u64) {
        let Some(&written) = process.header.rows.get(table) else {
            return;
        };
        let written = written.saturating_sub(told);
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
                    "{}/{table}.arrows: {read} of {written} rows could be read ({why})",
                    process.folder
                ),
                Some(written - read),
                table,
            );
        } else if read > written {
            self.lose(
                format!(
                    "{}/{table}.arrows: {read} rows where the process wrote {written}",
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

/// How the reading of a table's file went.
struct Read {
    end: StreamEnd,
    damage: Vec<Damage>,
    is_checked: bool,
}

impl Read {
    /// `taken`: what was wrong with a batch, which is wrong however the file ends.
    fn of(mut stream: StreamFile, taken: Result<(), String>) -> Self {
        Self {
            damage: stream.take_damage(),
            is_checked: stream.is_checked(),
            end: taken.map_or_else(StreamEnd::Damaged, |()| stream.end().clone()),
        }
    }
}
