//! Processes' files: segments, tables and headers, and what is written down of jobs and captures. One thread does this, in the order in
//! which processes want it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use gputrace_trace::json_file::{Json, read_json, write_json};
use gputrace_trace::manifest::{MANIFEST_FILE, Manifest, PROCESS_FILE, ProcessHeader};
use gputrace_trace::tables::TABLE_NAMES;
use gputrace_trace::writer::make_folder;

use super::task::{Asker, Done, Given, Task, Want};
use crate::jobs::saved;
use crate::peer::user_name;

/// A header's text, at the most.
const MOST_HEADER_BYTES: u64 = 1 << 20;
/// Segments that a process may begin at once...
const SEGMENTS_BURST: f64 = 32.0;
/// ... and a second.
const SEGMENTS_PER_SECOND: f64 = 2.0;
/// A segment's number, at the most.
const MOST_SEGMENTS: u32 = 1 << 30;

/// Whether a process may begin with this segment.
///
/// # Errors
/// When it may not.
pub fn check_segment(segment: u32) -> Result<(), String> {
    if segment >= MOST_SEGMENTS {
        return Err(format!("segment {segment} is too high"));
    }
    Ok(())
}

/// The files of all processes.
#[derive(Debug, Default)]
pub(super) struct Files(BTreeMap<PathBuf, ProcessFiles>);

impl Files {
    /// Does it. Tasks that are not for this thread come to nothing.
    pub(super) fn work(&mut self, task: Task) -> Option<Done> {
        match task {
            Task::Make {
                job,
                uid,
                folder,
                manifest,
            } => {
                let result = make(&folder, &manifest).map(|()| user_name(uid));
                let result =
                    result.map_err(|error| (error.to_string(), error.kind() == io::ErrorKind::AlreadyExists));
                Some(Done::Made { job, result })
            }
            Task::Want { asker, want } => Some(self.give(asker, want)),
            Task::Forget(process) => {
                self.0.remove(&process);
                None
            }
            Task::Manifest {
                job,
                folder,
                manifest,
            } => Some(Done::Manifest {
                job,
                result: write_json(&folder.join(MANIFEST_FILE), &*manifest)
                    .map_err(|error| error.to_string()),
            }),
            Task::Note { of, path, text } => Some(Done::Noted {
                of,
                result: saved::write(&path, &text).map_err(|error| error.to_string()),
            }),
            _ => None,
        }
    }

    /// Something is done by another thread, behind us.
    pub(super) fn goes(&mut self, task: &Task) {
        if let Task::Remove { folder, .. } = task {
            self.0.retain(|process, _| !process.starts_with(folder));
        }
    }

    fn give(&mut self, asker: Asker, want: Want) -> Done {
        let bytes = want.bytes();
        let process = self.0.entry(asker.path.clone()).or_default();
        if let Some(segment) = asker.begins {
            process.begins_at(segment);
        }
        let given = match want {
            Want::Segment(segment) => Given::Segment(segment, process.begin_segment(&asker.path, segment)),
            Want::Open { table, segment } => Given::Open(process.open_table(&asker.path, &table, segment)),
            Want::Header {
                segment,
                text,
                first,
                done,
            } => {
                let taken = process.take_header(&asker.path, segment, &text, (first, done));
                // What is damaged says nothing of the whole.
                let read = |path: PathBuf| read_json::<ProcessHeader>(&path).ok().and_then(Json::ok);
                Given::Header(taken.map(|path| path.and_then(read).map(Box::new)))
            }
        };
        Done::Given { asker, bytes, given }
    }
}

/// Makes a job's folder. On a full disk that can be made and the manifest can't: no empty folder is left.
fn make(folder: &Path, manifest: &Manifest) -> io::Result<()> {
    make_folder(folder)?;
    write_json(&folder.join(MANIFEST_FILE), manifest).inspect_err(|_| drop(fs::remove_dir_all(folder)))
}

/// The files of one process.
#[derive(Debug)]
struct ProcessFiles {
    /// The segment that is written now.
    segment: Option<u32>,
    /// The lowest that may be begun.
    next: u32,
    /// The header that has come in part: of which segment, and its bytes.
    header: Option<(u32, u64)>,
    allowance: (f64, Instant),
}

impl Default for ProcessFiles {
    fn default() -> Self {
        Self {
            segment: None,
            next: 0,
            header: None,
            allowance: (SEGMENTS_BURST, Instant::now()),
        }
    }
}

impl ProcessFiles {
    /// It comes (again) and begins with this segment.
    fn begins_at(&mut self, segment: u32) {
        self.next = self.next.max(segment);
        self.segment = None;
        self.header = None;
    }

    /// Begins a segment. The one that is written is begun already: an answer that came late is asked for again.
    fn begin_segment(&mut self, process: &Path, segment: u32) -> Result<(), String> {
        if self.segment == Some(segment) {
            return Ok(());
        }
        if segment < self.next || segment >= MOST_SEGMENTS {
            return Err(format!(
                "segment {segment} does not follow: expected {} or more",
                self.next
            ));
        }
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.allowance.1).as_secs_f64();
        let allowance = (self.allowance.0 + passed * SEGMENTS_PER_SECOND).min(SEGMENTS_BURST);
        self.allowance = (allowance, now);
        if allowance < 1.0 {
            return Err("segments are begun too often".to_owned());
        }
        self.allowance.0 -= 1.0;
        make_folder(&folder_of(process, segment)).map_err(|error| error.to_string())?;
        self.segment = Some(segment);
        self.next = segment + 1;
        Ok(())
    }

    /// Opens a table for appending.
    fn open_table(&self, process: &Path, table: &str, segment: Option<u32>) -> Result<OwnedFd, String> {
        if !TABLE_NAMES.contains(&table) {
            return Err("no such table".to_owned());
        }
        let current = self.segment.ok_or("no segment was begun")?;
        let segment = segment.unwrap_or(current);
        if segment > current {
            return Err(format!("segment {segment} was not begun"));
        }
        let path = folder_of(process, segment).join(format!("{table}.arrows"));
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NOCTTY)
            .open(path);
        opened.map(Into::into).map_err(|error| error.to_string())
    }

    /// Takes a part of a header, and gives the header's path once it is whole.
    fn take_header(
        &mut self,
        process: &Path,
        segment: u32,
        text: &str,
        (first, done): (bool, bool),
    ) -> Result<Option<PathBuf>, String> {
        if segment >= self.next {
            return Err(format!("segment {segment} was not begun"));
        }
        let folder = folder_of(process, segment);
        let aside = folder.join("process.json.part");
        let written = (|| -> io::Result<Option<PathBuf>> {
            let (mut file, before) = match self.header.take() {
                Some((of, bytes)) if of == segment && !first => {
                    (OpenOptions::new().append(true).open(&aside)?, bytes)
                }
                None if !first => return Err(io::Error::other("its beginning is missing")),
                _ if !first => return Err(io::Error::other("it is of another segment than its beginning")),
                _ => (new_file(&aside)?, 0),
            };
            let bytes = before + text.len() as u64;
            if bytes > MOST_HEADER_BYTES {
                return Err(io::Error::other("the header is too long"));
            }
            file.write_all(text.as_bytes())?;
            if !done {
                self.header = Some((segment, bytes));
                return Ok(None);
            }
            let path = folder.join(PROCESS_FILE);
            fs::rename(&aside, &path)?;
            Ok(Some(path))
        })();
        written.map_err(|error| {
            drop(fs::remove_file(&aside));
            error.to_string()
        })
    }
}

/// A process's folder of a segment: NAME, then NAME.1, NAME.2, ...
fn folder_of(process: &Path, segment: u32) -> PathBuf {
    let mut folder = process.as_os_str().to_owned();
    if segment > 0 {
        folder.push(format!(".{segment}"));
    }
    folder.into()
}

/// A file that was not there before.
fn new_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_without_its_beginning_does_not_replace_a_header() {
        let job = tempfile::tempdir().expect("a folder");
        let folder = job.path().join("p");
        let mut process = ProcessFiles::default();
        process.begin_segment(&folder, 0).expect("begun");
        let path = folder.join(PROCESS_FILE);
        let mut take = |text: &str, first, done| process.take_header(&folder, 0, text, (first, done));
        assert_eq!(take("a", true, false), Ok(None));
        assert_eq!(take("b", false, true), Ok(Some(path.clone())));
        // One that is too long ends in its middle, and its tail comes all the same.
        let long = "x".repeat(MOST_HEADER_BYTES as usize);
        assert_eq!(take("c", true, false), Ok(None));
        let error = take(&long, false, false).expect_err("too long");
        assert!(error.contains("too long"), "{error}");
        let error = take("tail", false, true).expect_err("no beginning");
        assert!(error.contains("beginning is missing"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "ab");
        assert_eq!(take("new", true, true), Ok(Some(path.clone())));
        assert_eq!(fs::read_to_string(&path).expect("there"), "new");
    }

    #[test]
    fn a_segment_whose_answer_came_late_is_begun_once_and_its_files_are_told_from_those_before() {
        let job = tempfile::tempdir().expect("a folder");
        let folder = job.path().join("p");
        let mut process = ProcessFiles::default();
        assert!(
            process.open_table(&folder, "markers", None).is_err(),
            "no segment"
        );
        for segment in [0, 0, 1, 1] {
            process.begin_segment(&folder, segment).expect("begun");
        }
        process.begin_segment(&folder, 0).expect_err("before the last");
        // It may still write the one before, since it does not know of this one yet.
        for (segment, name) in [(None, "p.1/markers.arrows"), (Some(0), "p/markers.arrows")] {
            process.open_table(&folder, "markers", segment).expect("opened");
            assert!(job.path().join(name).exists(), "{name}");
        }
        process
            .open_table(&folder, "markers", Some(2))
            .expect_err("not begun");
        // It comes again, and begins anew.
        process.begins_at(1);
        process.begin_segment(&folder, 1).expect_err("there was one");
        process.begin_segment(&folder, 2).expect("begun");
    }
}
