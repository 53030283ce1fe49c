//! Chrome JSON as PyTorch's Kineto writes it: for Perfetto's page, chrome://tracing, Holistic Trace Analysis and scripts.
//!
//! Every event of the recording becomes exactly one event of the file (launch arrows and names come on top), and the
//! counts of both are in the [`ExportSummary`]. Consumers drop slices that overlap others of the same row, so whatever
//! overlaps moves to a further lane. Times are relative to `baseTimeNanoseconds`, with all nanoseconds: consumers parse
//! them as doubles, and a double has no room for nanoseconds since the epoch.

pub(super) mod event;
mod frame;
mod process;
mod process_events;
mod process_names;

use std::io::{self, Write};

use gputrace_trace::{Derived, Recording};

use super::ExportSummary;
use super::layout::layouts;
use event::EventWriter;

/// Writes `recording` to `out` as JSON, event by event.
///
/// Beside the recording itself, memory goes to an index of one process's events at a time (24 bytes an event, 24 more a call).
///
/// # Errors
/// When `out` refuses.
pub fn export_chrome(
    recording: &Recording,
    derived: &Derived,
    out: &mut dyn Write,
) -> io::Result<ExportSummary> {
    let base_ns = frame::base_time_ns(recording);
    frame::write_head(recording, base_ns, out)?;
    let mut writer = EventWriter::new(out, base_ns);
    let mut summary = ExportSummary::default();
    let mut identifiers = process::Identifiers::default();
    for layout in layouts(recording, derived) {
        process::write(&layout, &mut identifiers, &mut writer, &mut summary)?;
    }
    // Nothing but closing brackets after the events: one consumer cuts the file at its last bracket.
    out.write_all(b"\n]}\n")?;
    out.flush()?;
    Ok(summary)
}
