//! A process of a job, and its files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use gputrace_trace::daemon::Totals;
use gputrace_trace::manifest::PROCESS_FILE;
use gputrace_trace::tables::TABLE_NAMES;
use gputrace_trace::writer::make_folder;

/// A header's text, at the most.
const MOST_HEADER_BYTES: u64 = 1 << 20;
/// Segments that a process may begin at once...
const SEGMENTS_BURST: f64 = 32.0;
/// ... and a second.
const SEGMENTS_PER_SECOND: f64 = 2.0;
/// A process whose first call came to nothing has called again within this, nanoseconds.
const CALLS_AGAIN_NS: i64 = 10_000_000_000;
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

/// How a process went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It said so.
    Left,
    /// Its connection ended.
    Died,
}

/// A process of a job.
#[derive(Debug)]
pub struct Process {
    /// Its folder's name, without a number.
    pub folder: String,
    /// Its number as this machine counts.
    pub pid: u32,
    /// Who it is on the socket; nobody when it is gone, or was not heard of since the daemon began.
    pub caller: Option<u64>,
    /// When it went, and how.
    pub gone: Option<(i64, Gone)>,
    /// Sums, as it last said.
    pub totals: Totals,
    /// When it last said so.
    pub heard_ns: i64,
    /// When its steps or finished collectives last grew.
    pub progressed_ns: i64,
    /// Steps that it told of, and that were heard.
    pub told_steps: u64,
    /// The last number of a step that it told of.
    pub last_step: Option<u64>,
    /// How many cuts it was asked for, and how many it has done.
    pub cuts: (u64, u64),
    /// The last segment that a cut ended.
    pub cut_segment: Option<u32>,
    /// Whether it joined and has begun no segment yet.
    pub is_new: bool,
    /// The segment that is written now.
    segment: Option<u32>,
    /// The lowest that may be begun.
    next: u32,
    header: Option<(u32, u64)>,
    allowance: (f64, Instant),
}

impl Process {
    /// One that has joined, or that was known before the daemon began.
    pub fn new(folder: String, pid: u32, now_ns: i64) -> Self {
        Self {
            folder,
            pid,
            caller: None,
            gone: None,
            totals: Totals::default(),
            heard_ns: now_ns,
            progressed_ns: now_ns,
            told_steps: 0,
            last_step: None,
            cuts: (0, 0),
            cut_segment: None,
            is_new: false,
            segment: None,
            next: 0,
            header: None,
            allowance: (SEGMENTS_BURST, Instant::now()),
        }
    }

    /// One that joins.
    pub fn joining(folder: String, pid: u32, now_ns: i64) -> Self {
        Self {
            is_new: true,
            ..Self::new(folder, pid, now_ns)
        }
    }

    /// Whether it is connected.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.caller.is_some()
    }

    /// Steps of it that no daemon has heard of: from before there was one, or told to one that was killed.
    #[must_use]
    pub fn missed_steps(&self) -> u64 {
        self.totals.steps.saturating_sub(self.told_steps)
    }

    /// The segment that it writes, or wrote last.
    #[must_use]
    pub fn segment(&self) -> Option<u32> {
        self.segment
    }

    /// It comes (again) and begins with this segment.
    pub fn begins_at(&mut self, segment: u32) {
        self.next = self.next.max(segment);
        self.segment = None;
        self.header = None;
    }

    /// Whether it is there, or is expected: one that waited too short for our answer to its first call comes again in a moment.
    #[must_use]
    pub fn is_awaited(&self, now_ns: i64) -> bool {
        self.gone
            .is_none_or(|(when_ns, _)| self.is_new && now_ns.saturating_sub(when_ns) < CALLS_AGAIN_NS)
    }

    /// Its folder of a segment: NAME, then NAME.1, NAME.2, ...
    fn folder_in(&self, job: &Path, segment: u32) -> PathBuf {
        match segment {
            0 => job.join(&self.folder),
            segment => job.join(format!("{}.{segment}", self.folder)),
        }
    }

    /// Begins a segment.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub fn begin_segment(&mut self, job: &Path, segment: u32) -> Result<(), String> {
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
        make_folder(&self.folder_in(job, segment)).map_err(|error| error.to_string())?;
        self.segment = Some(segment);
        self.is_new = false;
        self.next = segment + 1;
        Ok(())
    }

    /// Opens a table of the current segment for appending.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub fn open_table(&self, job: &Path, table: &str) -> Result<OwnedFd, String> {
        if !TABLE_NAMES.contains(&table) {
            return Err("no such table".to_owned());
        }
        let segment = self.segment.ok_or("no segment was begun")?;
        let path = self.folder_in(job, segment).join(format!("{table}.arrows"));
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NOCTTY)
            .open(path);
        opened.map(Into::into).map_err(|error| error.to_string())
    }

    /// Takes a part of a header, and gives the header's path once it is whole.
    ///
    /// # Errors
    /// Why it can't be written, as a sentence.
    pub fn take_header(
        &mut self,
        job: &Path,
        segment: u32,
        text: &str,
        (first, done): (bool, bool),
    ) -> Result<Option<PathBuf>, String> {
        if segment >= self.next {
            return Err(format!("segment {segment} was not begun"));
        }
        let folder = self.folder_in(job, segment);
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
        let mut process = Process::new("p".to_owned(), 1, 0);
        process.begin_segment(job.path(), 0).expect("begun");
        let path = job.path().join("p").join(PROCESS_FILE);
        let mut take = |text: &str, first, done| process.take_header(job.path(), 0, text, (first, done));
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
}
