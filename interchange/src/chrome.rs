//! Chrome JSON as PyTorch's Kineto writes it: for Perfetto's page, chrome://tracing, Holistic Trace Analysis and scripts.
//!
//! Every event of the recording becomes exactly one event of the file (launch arrows and names come on top), and the
//! counts of both are in the [`ExportSummary`]. Consumers drop slices that overlap others of the same row, so whatever
//! overlaps moves to a further lane. Times are relative to `baseTimeNanoseconds`, with all nanoseconds: consumers parse
//! them as doubles, and a double has no room for nanoseconds since the epoch.

mod event;
mod frame;
mod lanes;
mod process;
mod process_events;
mod process_names;
mod words;

use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use gputrace_trace::Recording;

use crate::aside::write_aside;
use event::EventWriter;

/// What an export did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// Events in the recording.
    pub events_in: u64,
    /// Events written; without launch arrows, names and other additions.
    pub events_out: u64,
    /// Rows that were added because operations of one row overlap.
    pub lanes_added: u64,
    /// Arrows from a call to the operation that it launched.
    pub flows: u64,
    /// Operations without an arrow because their call was not recorded.
    pub launches_unknown: u64,
    /// Operations without an arrow because they begin before their call: the clocks disagree.
    pub launches_later: u64,
    /// Events whose duration is negative and was written as 0.
    pub durations_clamped: u64,
}

/// Writes `recording` to `out` as JSON, event by event.
///
/// Beside the recording itself, memory goes to an index of one process's events at a time (32 bytes an event).
///
/// # Errors
/// When `out` refuses.
pub fn export_chrome(recording: &Recording, out: &mut dyn Write) -> io::Result<ExportSummary> {
    let base_ns = frame::base_time_ns(recording);
    frame::write_head(recording, base_ns, out)?;
    let mut writer = EventWriter::new(out, base_ns);
    let mut summary = ExportSummary::default();
    let mut identifiers = process::Identifiers::default();
    for (index, process) in recording.processes.iter().enumerate() {
        process::write(
            recording,
            index,
            process,
            &mut identifiers,
            &mut writer,
            &mut summary,
        )?;
    }
    // Nothing but closing brackets after the events: one consumer cuts the file at its last bracket.
    out.write_all(b"\n]}\n")?;
    out.flush()?;
    Ok(summary)
}

/// Writes `recording` to the file `path`: gzip where the name ends in `.gz`. The file is written aside and renamed, so
/// that `path` is never half an export; an existing file is replaced, a device or a pipe written into.
///
/// # Errors
/// When the disk refuses. Nothing new is left behind then.
pub fn export_chrome_file(recording: &Recording, path: &Path) -> io::Result<ExportSummary> {
    let gzip = path.extension().is_some_and(|end| end == "gz");
    write_aside(path, |file| {
        let file = BufWriter::with_capacity(1 << 18, file);
        if gzip {
            let mut encoder = GzEncoder::new(file, Compression::new(4));
            let summary = export_chrome(recording, &mut encoder)?;
            encoder.finish()?.flush()?;
            Ok(summary)
        } else {
            let mut file = file;
            export_chrome(recording, &mut file)
        }
    })
}
