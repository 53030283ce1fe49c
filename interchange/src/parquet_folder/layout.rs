//! What lies where in a folder of Parquet files: what the exporter writes and the importer finds.
//!
//! `recording.json` says what is true of the whole, `TABLE/PROCESS.parquet` holds one process's rows of one table, and
//! `derived/` what the analysis adds. A table is a folder so that every reader takes all ranks of it with one path.

use std::collections::BTreeMap;

use gputrace_trace::alignment::Alignment;
use gputrace_trace::manifest::{Manifest, ProcessHeader, Version};
use gputrace_trace::{Loss, Process, Recording};
use serde::{Deserialize, Serialize};

/// The file that says what is true of the whole recording.
pub const FACTS_FILE: &str = "recording.json";
/// The `format` member of that file, and of every Parquet file's metadata.
pub const FORMAT: &str = "gputrace.parquet";
/// The version that this crate writes.
pub const VERSION: Version = Version { major: 1, minor: 0 };
/// How the files of tables end.
pub const ENDING: &str = "parquet";
/// The folder of what the analysis adds: it is not read back.
pub const DERIVED: &str = "derived";

/// Keys of each Parquet file's own metadata.
pub mod key {
    /// [`super::FORMAT`].
    pub const FORMAT: &str = "gputrace.format";
    /// The major and minor version: "1.0".
    pub const VERSION: &str = "gputrace.version";
    /// The table's name.
    pub const TABLE: &str = "gputrace.table";
    /// The process, by its folder in the recording.
    pub const PROCESS: &str = "gputrace.process";
    /// The process's rank; absent where it is not known.
    pub const RANK: &str = "gputrace.rank";
    /// "true" for what a host's recorder sampled, which is no process of the run.
    pub const HOST: &str = "gputrace.host_samples";
    /// "cuda", "sim" or "imported".
    pub const DEVICE: &str = "gputrace.device";
    /// "true" where the GPUs were simulated.
    pub const SIMULATED: &str = "gputrace.simulated";
}

/// Columns that stand in front of a table's own: which process the row is of, and which of its rows.
pub const RANK: &str = "rank";
/// The process, by its folder in the recording.
pub const PROCESS: &str = "process";
/// The row's number in the recording: rows are sorted by time here, and other tables name them by it.
pub const ROW: &str = "row";
/// What a table's own column "rank" is called here, where "rank" is the process's in all tables.
const COMMUNICATOR_RANK: &str = "communicator_rank";
/// Further columns of kernels: the name as its author wrote it,
pub const DEMANGLED: &str = "demangled";
/// and whether the kernel communicates, as the analysis knows it.
pub const COMMUNICATES: &str = "communicates";

/// What a column of the recording is called in a file.
pub fn column_to_file(column: &str) -> &str {
    if column == RANK { COMMUNICATOR_RANK } else { column }
}

/// What a column of a file is called in the recording.
pub fn column_from_file(column: &str) -> &str {
    if column == COMMUNICATOR_RANK { RANK } else { column }
}

/// `recording.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the format.
    pub version: Version,
    /// Version of gputrace that wrote it.
    pub gputrace: String,
    /// Whether the GPUs were simulated.
    pub simulated: bool,
    /// The recording's manifest.
    pub manifest: Manifest,
    /// Its processes, in their order.
    pub processes: Vec<ProcessFacts>,
    /// What recorders sampled of their hosts.
    pub hosts: Vec<ProcessFacts>,
    /// What was lost, while recording and on reading.
    pub losses: Vec<Loss>,
    /// What was ignored, rebuilt or not recorded.
    pub notes: Vec<String>,
    /// Why stamps of different processes have no time zero in common.
    pub unaligned: Option<String>,
    /// How the clocks stand that stamped it, where stamps were moved to one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Alignment>,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFacts {
    /// The name of its folder in the recording.
    pub folder: String,
    /// What its files are called, without their ending.
    pub file: String,
    /// Its header.
    pub header: ProcessHeader,
    /// Rows by table, as they were written.
    pub rows: BTreeMap<String, u64>,
}

/// What a process's files are called: by its rank, or else by its folder in the recording; never the same twice.
fn file_name(rank: Option<u32>, folder: &str, taken: &[String]) -> String {
    const LONGEST: usize = 100;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    // An imported one is a whole path: its last part says most.
    let last = folder.rsplit(['/', '\\']).find(|part| !part.is_empty());
    let plain: String = last
        .unwrap_or_default()
        .chars()
        .take(LONGEST)
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    // Readers leave alone what begins with a dot or an underscore.
    let plain = plain.trim_start_matches(['.', '_']);
    let stem = match rank {
        Some(rank) => format!("rank{rank}"),
        None if plain.is_empty() => "process".to_owned(),
        None => plain.to_owned(),
    };
    (1u32..)
        .map(|number| match number {
            1 => stem.clone(),
            _ => format!("{stem}-{number}"),
        })
        // Some file systems know no case.
        .find(|name| !taken.iter().any(|other| other.eq_ignore_ascii_case(name)))
        .unwrap_or_default()
}

impl Facts {
    /// What is true of a recording.
    pub fn of(recording: &Recording) -> Self {
        let mut taken = Vec::new();
        let mut facts = |process: &Process| {
            let file = file_name(process.header.rank, &process.folder, &taken);
            taken.push(file.clone());
            ProcessFacts {
                folder: process.folder.clone(),
                file,
                header: process.header.clone(),
                rows: process
                    .tables
                    .row_counts()
                    .into_iter()
                    .filter(|(_, rows)| *rows > 0)
                    .map(|(table, rows)| (table.to_owned(), rows as u64))
                    .collect(),
            }
        };
        let processes = recording.processes.iter().map(&mut facts).collect();
        let hosts = recording.hosts.iter().map(&mut facts).collect();
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            gputrace: env!("CARGO_PKG_VERSION").to_owned(),
            simulated: recording.is_simulated(),
            manifest: recording.manifest.clone(),
            processes,
            hosts,
            losses: recording.losses.clone(),
            notes: recording.notes.clone(),
            unaligned: recording.unaligned.clone(),
            clocks: recording.clocks.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_plain_names_that_differ() {
        let mut taken = Vec::new();
        let names: Vec<String> = [
            "rank0",
            "/a b/rank0",
            "Rank0",
            "",
            "_x",
            "pid 7 on 0x3",
            "a\u{1f600}/",
        ]
        .iter()
        .map(|folder| {
            taken.push(file_name(None, folder, &taken));
            taken[taken.len() - 1].clone()
        })
        .collect();
        assert_eq!(
            names,
            [
                "rank0",
                "rank0-2",
                "Rank0-3",
                "process",
                "x",
                "pid-7-on-0x3",
                "a-"
            ]
        );
        assert_eq!(file_name(Some(7), "vm-1", &taken), "rank7");
        assert_eq!(file_name(Some(0), "vm-2", &taken), "rank0-4");
    }
}
