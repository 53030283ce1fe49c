//! XSpace files, which TensorBoard's profiler plugin XProf (2.24) opens: one a rank, one session for each active window.
//!
//! What XProf makes of a GPU's events follows from names and members that no schema asks for: planes called
//! `/device:GPU:N`, steps marked as roots, ids that join calls to operations, kernels' shapes as a text, collectives and
//! copies by the first letters of their names. `docs/tensorboard.md` lists them.

mod device;
mod host;
mod part;
mod plane;
mod schema;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;

use gputrace_trace::{Derived, Recording};
use rustc_hash::FxHashMap;

use part::Part;

use super::ExportSummary;
use super::files::Files;
use super::layout::{Layout, Source};
use super::protobuf::ProtoBuffer;
use super::tensorboard::host_steps::{HostStep, host_steps};
use super::tensorboard::spans::Spans;
use super::tensorboard::workers::worker_names;

/// Readers of Protocol Buffers refuse messages from this size on, bytes.
const TOO_LARGE: u64 = 1 << 31;

/// Writes `recording` into the files of a log folder of TensorBoard, each session in a folder of its own.
///
/// Gives what was written, and what XProf will not take, in sentences.
///
/// # Errors
/// When `files` refuses.
pub fn export_xplane(
    recording: &Recording,
    derived: &Derived,
    files: &mut dyn Files,
) -> io::Result<(ExportSummary, Vec<String>)> {
    let mut summary = ExportSummary::default();
    let mut notes = Vec::new();
    let spans = Spans::of(recording, derived);
    let bases_ns = session_bases(recording, derived, &spans);
    let mut hosts = hosts_by_worker(recording, derived);
    for (number, name) in worker_names(recording).iter().enumerate() {
        let layout = Layout::new(recording, derived, number);
        let steps = host_steps(&layout);
        let hosts = hosts.remove(&number).unwrap_or_default();
        summary.events_in += layout.events() + hosts.iter().map(Layout::events).sum::<u64>();
        summary.durations_clamped += layout.durations_clamped;
        let lanes = layout.rows.iter().map(|row| row.lanes as u64 - 1);
        summary.lanes_added += lanes.sum::<u64>();
        for (span, base_ns) in bases_ns.iter().enumerate() {
            let part = Part {
                layout: &layout,
                spans: &spans,
                span,
                steps: steps_of(&steps, &spans, number, span),
                hosts: &hosts,
                base_ns: *base_ns,
                step_ids: (number as u64) << 40,
                extent: OnceCell::new(),
            };
            let path = format!(
                "plugins/profile/{}/{name}.xplane.pb",
                session_name(spans.stamps_ns[span])
            );
            let mut bytes = 0;
            files.file(&path, &mut |out| {
                bytes = write(&part, name, out, &mut summary)?;
                Ok(())
            })?;
            if bytes >= TOO_LARGE {
                notes.push(format!(
                    "{path} has 2 GiB or more, which XProf does not read: export fewer steps"
                ));
            }
        }
    }
    Ok((summary, notes))
}

/// By process: the samples of its host that its files have; of each host the first process has them.
fn hosts_by_worker<'r>(recording: &'r Recording, derived: &'r Derived) -> BTreeMap<usize, Vec<Layout<'r>>> {
    let mut by_worker: BTreeMap<usize, Vec<Layout<'r>>> = BTreeMap::new();
    let mut first: FxHashMap<&str, usize> = FxHashMap::default();
    for (place, process) in recording.processes.iter().enumerate() {
        first.entry(&process.header.host).or_insert(place);
    }
    for host in 0..recording.hosts.len() {
        let layout = Layout::new(recording, derived, recording.processes.len() + host);
        let name = &layout.process.header.host;
        let same = first.get(name.as_str()).copied();
        by_worker.entry(same.unwrap_or(0)).or_default().push(layout);
    }
    by_worker
}

/// The time that each session's times count from: XProf keeps picoseconds in 64 bits, which do not reach back to 1970.
fn session_bases(recording: &Recording, derived: &Derived, spans: &Spans) -> Vec<i64> {
    let mut bases: Vec<Option<i64>> = vec![None; spans.count()];
    for number in 0..recording.processes.len() {
        let layout = Layout::new(recording, derived, number);
        // Of a part of a recording the times at which it was recorded are those of all of it.
        let slices = layout.rows.iter().flat_map(|row| &row.slices);
        for slice in slices.filter(|slice| slice.source() != Source::Window) {
            let base = &mut bases[spans.span_of(&layout, slice)];
            *base = Some(base.map_or(slice.start_ns, |base| base.min(slice.start_ns)));
        }
    }
    let stamps = spans.stamps_ns.iter();
    stamps
        .zip(bases)
        .map(|(stamp, base)| base.unwrap_or(*stamp))
        .collect()
}

/// The steps of a span; where none are known, all of it is one.
fn steps_of(steps: &[HostStep], spans: &Spans, process: usize, span: usize) -> Vec<HostStep> {
    let mut found: Vec<HostStep> = steps
        .iter()
        .filter(|step| spans.place(process, step.start_ns) == span)
        .cloned()
        .collect();
    if found.is_empty() {
        found.push(HostStep {
            number: 0,
            name: "everything: no steps are known".to_owned(),
            start_ns: i64::MIN,
            end_ns: i64::MAX,
            detected: true,
        });
    }
    found
}

/// A session's name, as XProf itself makes them of the time, with nanoseconds: windows may follow each other within a second.
fn session_name(stamp_ns: i64) -> String {
    const DAY_S: i64 = 86_400;
    let (seconds, ns) = (
        stamp_ns.div_euclid(1_000_000_000),
        stamp_ns.rem_euclid(1_000_000_000),
    );
    let (mut day, second) = (seconds.div_euclid(DAY_S), seconds.rem_euclid(DAY_S));
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    loop {
        let days = if is_leap(year) { 366 } else { 365 };
        if day < days {
            break;
        }
        day -= days;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let day = day + 1;
    format!("{year:04}_{month:02}_{day:02}_{hour:02}_{minute:02}_{second:02}_{ns:09}")
}

/// Writes a part as the space of the worker of this name.
fn write(
    part: &Part<'_>,
    name: &str,
    out: &mut dyn io::Write,
    summary: &mut ExportSummary,
) -> io::Result<u64> {
    let mut head = ProtoBuffer::default();
    head.text(schema::SPACE_HOSTNAMES, name);
    let mut bytes = head.len() as u64;
    head.write_to(out)?;
    bytes += plane::write(&mut host::HostPlane::new(part), out, summary)?;
    for (device, found) in device::devices(part) {
        bytes += plane::write(&mut device::DevicePlane::new(part, device, found), out, summary)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_called_by_their_time() {
        assert_eq!(session_name(0), "1970_01_01_00_00_00_000000000");
        assert_eq!(
            session_name(951_782_400_000_000_001),
            "2000_02_29_00_00_00_000000001"
        );
        assert_eq!(
            session_name(1_790_000_000_123_456_789),
            "2026_09_21_14_13_20_123456789"
        );
        assert_eq!(
            session_name(4_102_444_799_999_999_999),
            "2099_12_31_23_59_59_999999999"
        );
    }
}
