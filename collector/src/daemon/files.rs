//! A recording's files where a daemon makes them.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gputrace_trace::daemon::{FromCollector, MOST_PACKET_BYTES};
use gputrace_trace::recording::segment_of;
use gputrace_trace::writer::Files;

use super::line::Line;

/// Files that the daemon opens and hands over, by the names that they would have in the process's folder.
pub(crate) struct DaemonFiles {
    line: Arc<Mutex<Line>>,
}

/// JSON makes six bytes of one at the most (`\u0000`), and needs room around.
const PART_BYTES: usize = MOST_PACKET_BYTES / 8;

impl DaemonFiles {
    pub(super) fn new(line: Arc<Mutex<Line>>) -> Self {
        Self { line }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of the segment that a folder is.
fn segment(folder: &Path) -> u32 {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    u32::try_from(segment_of(&name).1).unwrap_or(u32::MAX)
}

impl Files for DaemonFiles {
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let segment = segment(folder);
        self.line().ask(&FromCollector::Segment { segment }).map(drop)
    }

    fn open(&self, path: &Path, _: bool) -> io::Result<File> {
        let table = path.file_stem().unwrap_or_default().to_string_lossy();
        let message = FromCollector::Open {
            table: table.into_owned(),
            segment: path.parent().map(segment),
        };
        match self.line().ask(&message)? {
            Some(file) => Ok(file.into()),
            None => Err(io::Error::other("the daemon handed over no file")),
        }
    }

    fn replace(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let segment = path.parent().map_or(0, segment);
        let text = std::str::from_utf8(text).map_err(io::Error::other)?;
        let mut rest = text;
        let mut first = true;
        loop {
            let whole = |at: &usize| rest.is_char_boundary(*at);
            let end = (0..=PART_BYTES.min(rest.len())).rev().find(whole).unwrap_or(0);
            let part = &rest[..end];
            rest = &rest[part.len()..];
            let done = rest.is_empty();
            self.line().send(&FromCollector::Header {
                segment,
                text: part.to_owned(),
                first,
                done,
            })?;
            first = false;
            if done {
                return Ok(());
            }
        }
    }
}
