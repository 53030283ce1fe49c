//! Chrome JSON as PyTorch's Kineto writes it: for Perfetto's page, chrome://tracing, Holistic Trace Analysis and scripts.
//!
//! Every event of the recording becomes exactly one event of the file (launch arrows and names come on top), and the
//! counts of both are in the [`ExportSummary`]. Consumers drop slices that overlap others of the same row, so whatever
//! overlaps moves to a further lane. Times are relative to `baseTimeNanoseconds`, with all nanoseconds: consumers parse
//! them as doubles, and a double has no room for nanoseconds since the epoch. What Kineto has no words for stands under
//! `gputrace`, so that the importer gives the recording back as it was.

mod collectives;
mod event;
mod frame;
mod gputrace_members;
mod moments;
mod names;
mod operator_args;
mod process;
mod process_names;
mod shapes;
mod slices;

use std::collections::BTreeMap;
use std::io::{self, Write};

use gputrace_trace::{Derived, Process, Recording};

use super::ExportSummary;
use super::files::Files;
use super::gzip::ParallelGzip;
use super::layout::Layout;
use event::EventWriter;
pub(crate) use frame::BEGINNING;

/// Writes `recording` to `out` as JSON, event by event: all ranks in one file.
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
    let all: Vec<usize> = (0..recording.processes.len() + recording.hosts.len()).collect();
    write_processes(recording, derived, &all, out)
}

/// Writes a file for each rank, as Holistic Trace Analysis and others want them: `rank0.json`, packed with a further
/// `.gz`. What was sampled of a host is in the file of its first rank.
///
/// # Errors
/// When `files` refuses.
pub fn export_chrome_ranks(
    recording: &Recording,
    derived: &Derived,
    packed: bool,
    files: &mut dyn Files,
) -> io::Result<ExportSummary> {
    let mut summary = ExportSummary::default();
    for (name, numbers) in rank_files(recording) {
        let name = if packed { format!("{name}.gz") } else { name };
        files.file(&name, &mut |out| {
            summary += if packed {
                let mut gzip = ParallelGzip::new(out);
                let of_file = write_processes(recording, derived, &numbers, &mut gzip)?;
                gzip.finish()?;
                of_file
            } else {
                write_processes(recording, derived, &numbers, out)?
            };
            Ok(())
        })?;
    }
    Ok(summary)
}

/// The files of a recording, each with the numbers of its processes; hosts' samples are numbered behind those.
fn rank_files(recording: &Recording) -> Vec<(String, Vec<usize>)> {
    let mut files: Vec<(String, Vec<usize>)> = Vec::new();
    let mut of_rank: BTreeMap<u32, usize> = BTreeMap::new();
    for (number, process) in recording.processes.iter().enumerate() {
        let name = match process.header.rank {
            Some(rank) => {
                if let Some(&file) = of_rank.get(&rank) {
                    files[file].1.push(number);
                    continue;
                }
                of_rank.insert(rank, files.len());
                format!("rank{rank}.json")
            }
            None if recording.processes.len() == 1 => "trace.json".to_owned(),
            None => format!("process{number}.json"),
        };
        files.push((name, vec![number]));
    }
    for (place, host) in recording.hosts.iter().enumerate() {
        let number = recording.processes.len() + place;
        let is_on_it = |numbers: &[usize]| recording.processes[numbers[0]].header.host == host.header.host;
        let on_it = files
            .iter()
            .position(|(_, numbers)| numbers[0] < recording.processes.len() && is_on_it(numbers));
        match files.get_mut(on_it.unwrap_or(0)) {
            Some((_, numbers)) => numbers.push(number),
            None => files.push(("host.json".to_owned(), vec![number])),
        }
    }
    files
}

/// Writes one file with the processes of these numbers.
fn write_processes(
    recording: &Recording,
    derived: &Derived,
    numbers: &[usize],
    out: &mut dyn Write,
) -> io::Result<ExportSummary> {
    let base_ns = frame::base_time_ns(recording);
    let processes: Vec<&Process> = numbers
        .iter()
        .filter_map(|&number| recording.processes.get(number))
        .collect();
    frame::write_head(recording, &processes, base_ns, out)?;
    let mut writer = EventWriter::new(out, base_ns);
    let mut summary = ExportSummary::default();
    let mut identifiers = process::Identifiers::default();
    // Numbers within the file: arrows of a rank alone have Kineto's numbers, whichever rank it is.
    for (place, &number) in numbers.iter().enumerate() {
        let layout = Layout::new(recording, derived, number);
        process::write(&layout, place as u64, &mut identifiers, &mut writer, &mut summary)?;
    }
    writer.finish()?;
    Ok(summary)
}
