//! Partials in files.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gputrace_trace::alignment::Alignment;
use gputrace_trace::manifest::{Manifest, ProcessHeader};
use gputrace_trace::sections::{Section, Sections};
use gputrace_trace::table_bytes::{from_bytes, to_bytes};
use gputrace_trace::tables::Tables;
use gputrace_trace::{Interner, Loss, Process, Recording};
use serde::{Deserialize, Serialize};

use super::parts::{Base, Part, Partial, Wrong};
use crate::alone::Alone;
use crate::graph::rows::Kept;
use crate::options::Options;

/// What a file says that it is, under the key `format` of its schema's metadata.
pub const FORMAT: &str = "gputrace.partial";
/// Its version: files of another one are not read.
pub const VERSION: &str = "2";

#[derive(Serialize, Deserialize)]
struct StoredBase {
    path: PathBuf,
    manifest: Manifest,
    losses: Vec<Loss>,
    notes: Vec<String>,
    unaligned: Option<String>,
    clocks: Option<Alignment>,
    processes: BTreeMap<String, Option<u32>>,
    fingerprint: String,
    folders: usize,
    unchecked: usize,
    was_aligned: bool,
    /// The processes of recorders, without their tables.
    hosts: Vec<(String, ProcessHeader)>,
}

#[derive(Serialize, Deserialize)]
struct StoredPart {
    base: usize,
    header: ProcessHeader,
    alone: Alone,
    kept: Option<Kept>,
    losses: Vec<Loss>,
    notes: Vec<String>,
    used_cuda: bool,
    unchecked: usize,
}

/// What a file says of itself: its format, whose it is, and what was asked for.
fn about(options: &Options, version: &str) -> HashMap<String, String> {
    let pairs = [
        ("format", FORMAT.to_owned()),
        ("version", VERSION.to_owned()),
        ("gputrace", version.to_owned()),
        ("options", options.text()),
    ];
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// The sections of a file, if it is a partial of this version.
pub(super) fn about_of(path: &Path, read: io::Result<Sections>, version: &str) -> Result<Sections, Wrong> {
    let name = path.display();
    let sections = read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => Wrong(format!(
            "{name}: {error}: expected a partial that `gputrace partial` made; make it again"
        )),
        _ => Wrong(format!("{name}: cannot be read: {error}")),
    })?;
    let said = |key: &str| sections.about.get(key).map_or("", String::as_str);
    if said("format") != FORMAT {
        return Err(Wrong(format!(
            "{name}: no partial: expected a file that `gputrace partial` made"
        )));
    }
    if (said("version"), said("gputrace")) != (VERSION, version) {
        return Err(Wrong(format!(
            "{name}: made by gputrace {} (partials of version {}), and this is {version} ({VERSION}): make it again",
            said("gputrace"),
            said("version")
        )));
    }
    Ok(sections)
}

impl Partial {
    /// Writes it. `version` is that of the program, `input` what the file is known by when it is to be made again.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn write(
        &self,
        out: &mut dyn Write,
        options: &Options,
        version: &str,
        input: &str,
    ) -> io::Result<()> {
        let mut about = about(options, version);
        about.insert("input".to_owned(), input.to_owned());
        let (here, all) = self.here();
        about.insert("processes".to_owned(), format!("{here} of {all}"));
        let mut sections = Sections {
            about,
            all: Vec::new(),
        };
        for (number, base) in self.bases.iter().enumerate() {
            let recording = &base.recording;
            let hosts = recording.hosts.iter();
            let stored = StoredBase {
                path: recording.path.clone(),
                manifest: recording.manifest.clone(),
                losses: recording.losses.clone(),
                notes: recording.notes.clone(),
                unaligned: recording.unaligned.clone(),
                clocks: recording.clocks.clone(),
                processes: base.processes.clone(),
                fingerprint: base.fingerprint.clone(),
                folders: base.folders,
                unchecked: base.unchecked,
                was_aligned: base.was_aligned,
                hosts: hosts
                    .map(|host| (host.folder.clone(), host.header.clone()))
                    .collect(),
            };
            let mut push = |name: String, data: Vec<u8>| {
                sections.all.push(Section {
                    of: String::new(),
                    rank: None,
                    name,
                    data,
                });
            };
            push(format!("base {number}"), serde_json::to_vec(&stored)?);
            for (place, host) in recording.hosts.iter().enumerate() {
                for (table, bytes) in to_bytes(&mut host.tables.clone(), &recording.names)? {
                    push(format!("host {number} {place} {table}"), bytes);
                }
            }
        }
        for (base, parts) in self.parts.iter().enumerate() {
            for part in parts {
                let mut push = |name: String, data: Vec<u8>| {
                    sections.all.push(Section {
                        of: part.folder.clone(),
                        rank: part.header.rank,
                        name,
                        data,
                    });
                };
                let stored = StoredPart {
                    base,
                    header: part.header.clone(),
                    alone: part.alone.clone(),
                    kept: part.kept.clone(),
                    losses: part.losses.clone(),
                    notes: part.notes.clone(),
                    used_cuda: part.used_cuda,
                    unchecked: part.unchecked,
                };
                push("process".to_owned(), serde_json::to_vec(&stored)?);
                for (word, tables) in [("rows", &part.rows), ("hang", &part.hang)] {
                    for (table, bytes) in to_bytes(&mut tables.clone(), &part.names)? {
                        push(format!("{word} {table}"), bytes);
                    }
                }
            }
        }
        sections.write(out)
    }

    /// What a file was made of and with, where it is a partial of this version and these options.
    #[must_use]
    pub fn input_of(path: &Path, options: &Options, version: &str) -> Option<String> {
        let sections = Sections::read(path).ok()?;
        let expected = about(options, version);
        let same = expected
            .iter()
            .all(|(key, value)| sections.about.get(key) == Some(value));
        sections.about.get("input").filter(|_| same).cloned()
    }

    /// Reads a file, with the options that it was made with.
    ///
    /// # Errors
    /// When it can't be read, is damaged, is no partial, or one of another version.
    pub fn read(path: &Path, version: &str) -> Result<(Self, Options), Wrong> {
        let name = path.display();
        let sections = about_of(path, Sections::read(path), version)?;
        let said = |key: &str| sections.about.get(key).map_or("", String::as_str);
        let broken = |why: &dyn fmt::Display| Wrong(format!("{name}: damaged ({why}): make it again"));
        let options = Options::parse(said("options")).ok_or_else(|| broken(&"its options can't be read"))?;
        let mut partial = Self::default();
        for section in &sections.all {
            partial.take(section).map_err(|error| broken(&error))?;
        }
        Ok((partial, options))
    }

    fn take(&mut self, section: &Section) -> io::Result<()> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let words: Vec<&str> = section.name.split(' ').collect();
        match words.as_slice() {
            ["base", _] => {
                let stored: StoredBase = serde_json::from_slice(&section.data)?;
                let hosts = stored.hosts.into_iter();
                self.bases.push(Base {
                    recording: Recording {
                        path: stored.path,
                        manifest: stored.manifest,
                        losses: stored.losses,
                        notes: stored.notes,
                        unaligned: stored.unaligned,
                        clocks: stored.clocks,
                        hosts: hosts
                            .map(|(folder, header)| Process {
                                folder,
                                header,
                                tables: Tables::default(),
                            })
                            .collect(),
                        ..Recording::default()
                    },
                    processes: stored.processes,
                    fingerprint: stored.fingerprint,
                    folders: stored.folders,
                    unchecked: stored.unchecked,
                    was_aligned: stored.was_aligned,
                });
                self.parts.push(Vec::new());
            }
            ["host", base, place, table] => {
                let number = |text: &str| {
                    text.parse::<usize>()
                        .map_err(|_| invalid("a number that is none"))
                };
                let base = self.bases.get_mut(number(base)?);
                let recording = &mut base
                    .ok_or_else(|| invalid("a recording that is not there"))?
                    .recording;
                let host = recording.hosts.get_mut(number(place)?);
                let host = host.ok_or_else(|| invalid("a host that is not there"))?;
                from_bytes(&mut host.tables, table, &section.data, &mut recording.names)?;
            }
            ["process"] => {
                let stored: StoredPart = serde_json::from_slice(&section.data)?;
                let parts = self.parts.get_mut(stored.base);
                parts
                    .ok_or_else(|| invalid("a recording that is not there"))?
                    .push(Part {
                        folder: section.of.clone(),
                        header: stored.header,
                        alone: stored.alone,
                        rows: Tables::default(),
                        kept: stored.kept,
                        hang: Tables::default(),
                        names: Interner::default(),
                        losses: stored.losses,
                        notes: stored.notes,
                        used_cuda: stored.used_cuda,
                        unchecked: stored.unchecked,
                    });
            }
            [word @ ("rows" | "hang"), table] => {
                let own = |parts: &&mut Vec<Part>| parts.last().is_some_and(|part| part.folder == section.of);
                let parts = self.parts.iter_mut().rev().find(own);
                let part = parts.and_then(|parts| parts.last_mut());
                let part = part.ok_or_else(|| invalid("rows of no process"))?;
                let tables = if *word == "rows" {
                    &mut part.rows
                } else {
                    &mut part.hang
                };
                from_bytes(tables, table, &section.data, &mut part.names)?;
            }
            _ => return Err(invalid("a section of no known name")),
        }
        Ok(())
    }
}
