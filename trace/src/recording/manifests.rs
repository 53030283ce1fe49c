//! What manifests say of a recording: those of several recorders become one, what they name is compared with what is there, and
//! one that is missing is made of the processes' headers.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::{NOT_CLOSED, OpenError, Process, Recording, cannot_read, check_version, is_simulated};
use crate::beneath;
use crate::json_file::{Json, read_json};
use crate::manifest::{FORMAT, MANIFEST_FILE, Manifest, ProcessHeader, is_manifest_name};

/// The manifests of a recording, `manifest.json` first: recorders that share a folder have one each.
///
/// # Errors
/// When the folder can't be read.
pub fn manifest_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in beneath::entries(path)? {
        let name = entry.path.file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        if is_manifest_name(&name) {
            files.push(path.join(name.as_ref()));
        }
    }
    files.sort_by_key(|file| {
        (
            file.file_name().is_none_or(|name| name != MANIFEST_FILE),
            file.clone(),
        )
    });
    Ok(files)
}

impl Recording {
    /// Takes in the manifests of other recorders that wrote into the same folder.
    pub(super) fn absorb_manifests(&mut self, own: &Path) -> Result<(), OpenError> {
        let files = manifest_files(&self.path).map_err(|error| cannot_read(&self.path, &error))?;
        for path in files.into_iter().filter(|path| path != own) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            match read_json::<Manifest>(&path).map_err(|error| cannot_read(&path, &error))? {
                Json::Read(other) if other.format == FORMAT => {
                    check_version(&path, other.version)?;
                    self.losses.extend(other.losses.iter().cloned());
                    self.notes.extend(other.notes.iter().cloned());
                    if other.state == "recording" {
                        self.lose(
                            format!("{name} {NOT_CLOSED}"),
                            Some(1),
                            "exit status, and whatever is still to come",
                        );
                    }
                    if self.manifest.state == "rebuilt" {
                        // A recorder's own word on the run is better than what headers tell. Which recordings it is made of
                        // stood in the one that is gone.
                        self.manifest = Manifest {
                            recording: String::new(),
                            ..other
                        };
                    } else {
                        self.manifest.absorb(other);
                    }
                }
                Json::Read(_) | Json::Damaged(_) => {
                    self.lose(
                        format!("{name} is damaged"),
                        Some(1),
                        "notes of one of the recorders",
                    );
                }
                Json::Missing => {}
            }
        }
        Ok(())
    }

    /// The recordings whose processes belong here; `None` where all do, since nothing says which. Where no process is of this one,
    /// the manifest is the stranger.
    pub(super) fn known_recordings(&mut self, processes: &[Process]) -> Option<HashSet<String>> {
        let known: HashSet<String> = self
            .manifest
            .merged
            .iter()
            .chain(Some(&self.manifest.recording))
            .filter(|id| !id.is_empty())
            .cloned()
            .collect();
        if known.is_empty() {
            return None;
        }
        let is_known = |process: &Process| {
            let id = &process.header.recording;
            id.is_empty() || known.contains(id)
        };
        if !processes.is_empty() && !processes.iter().any(is_known) {
            self.manifest = Manifest {
                state: "rebuilt".to_owned(),
                ..Manifest::new()
            };
            self.lose(
                format!("{MANIFEST_FILE} is of another recording"),
                Some(1),
                "command, exit status and the recorder's own notes",
            );
            return None;
        }
        Some(known)
    }

    /// What the recorder could read at the end against what is there now. More is none the worse: a process may have outlived
    /// its recorder.
    pub(super) fn compare_with_manifest(&mut self, manifest: &Manifest, tables: &[&str]) {
        let mut missing = Vec::new();
        for process in self.processes.iter().chain(&self.hosts) {
            let Some(counted) = manifest.rows.get(&process.folder) else {
                continue;
            };
            for (table, read) in process.tables.row_counts() {
                let counted = counted.get(table).copied().unwrap_or(0);
                let is_told = || {
                    let mut losses = self.losses.iter();
                    losses.any(|loss| loss.affects == table && loss.what.starts_with(&process.folder))
                };
                if tables.contains(&table) && counted > read as u64 && !is_told() {
                    missing.push((process.folder.clone(), table, read as u64, counted));
                }
            }
        }
        for (folder, table, read, counted) in missing {
            self.lose(
                format!(
                    "{folder}/{table}.arrows: {read} rows, of which there were {counted} when it was recorded"
                ),
                Some(counted - read),
                table,
            );
        }
    }

    /// Makes a manifest of what the processes' headers say.
    pub(super) fn rebuild_manifest(&mut self, headers: &[&ProcessHeader]) {
        let headers = || headers.iter().copied();
        let simulated = headers().flat_map(|header| &header.devices).any(is_simulated);
        let started_ns = headers()
            .map(|header| header.started_ns)
            .filter(|&start| start > 0)
            .min()
            .unwrap_or(0);
        let host = headers()
            .map(|header| header.host.clone())
            .find(|host| !host.is_empty())
            .unwrap_or_default();
        // Where no header says which GPUs there were, they may have been simulated ones.
        let any_known = headers().any(|header| !header.devices.is_empty());
        let command = headers()
            .map(|header| header.command.clone())
            .find(|command| !command.is_empty());
        let manifest = &mut self.manifest;
        let device = match (simulated, any_known) {
            (true, _) => "sim",
            (false, true) => "cuda",
            (false, false) => "unknown",
        };
        device.clone_into(&mut manifest.device);
        manifest.started_ns = started_ns;
        manifest.host = host;
        manifest.command = command.unwrap_or_default();
    }
}
