//! Traces of PyTorch's profiler (Kineto) and other Chrome trace event JSON, read into a recording.
//!
//! A file is one rank, unless it is our own export of several. Files are read in parallel and in blocks: what stays in memory are the columns of the tables. Times
//! become integer nanoseconds without passing through a float. Whatever can't be used is counted, by what it is, in the
//! recording's losses; what is left alone on purpose stands in its notes.

mod args;
mod blocks;
mod collective;
mod convert;
mod copy_names;
mod event;
mod frame;
mod number;
mod owners;
mod reader;
mod scan;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use gputrace_trace::manifest::{Manifest, ProcessHeader};
use gputrace_trace::{DurationNs, Loss, Process, Recording};

use crate::import::{ImportError, Progress};
use crate::rank_names::{natural_order, rank_in_name};
use convert::{Converter, Counts};
use frame::Frame;
use reader::{Ending, ReadFile, Unreadable};

/// A file and how it came to be read.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// Found in a folder instead of being named: one that is no trace is left out instead of refused.
    pub from_folder: bool,
}

/// How a loss or a note names a file.
fn short(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// Reads files of one run into a recording, one process a file.
///
/// # Errors
/// When a file that was named can't be read or is no trace, or no file has any event.
pub fn import(sources: &[Source], progress: &Progress) -> Result<Recording, ImportError> {
    let results = read_all(sources, progress);
    let mut recording = Recording {
        manifest: Manifest {
            device: "imported".to_owned(),
            state: "complete".to_owned(),
            ..Manifest::new()
        },
        ..Recording::default()
    };
    let mut files = Vec::new();
    for (source, result) in sources.iter().zip(results) {
        let name = short(&source.path);
        match result {
            Ok(file) => files.extend(split(file, &name).map(|(name, file)| (source, name, file))),
            Err(Unreadable::Io(error)) => {
                return Err(ImportError::new(&source.path, format!("cannot be read: {error}")));
            }
            Err(Unreadable::NotATrace(why)) if source.from_folder => {
                // Analyses and notes lie beside traces; only what looks like a trace of a rank is a loss.
                if why.starts_with("has no \"traceEvents\": ") {
                    recording.notes.push(format!("{name}: left out: it {why}"));
                } else {
                    recording.losses.push(Loss {
                        what: format!("{name}: left out: it {why}"),
                        count: Some(1),
                        affects: "the rank of that file".to_owned(),
                    });
                }
            }
            Err(Unreadable::NotATrace(why)) => return Err(ImportError::new(&source.path, why)),
        }
    }
    let taken = ranks(&files, &mut recording);
    for (index, (source, name, file)) in files.into_iter().enumerate() {
        if let Some((rank, rank_source)) = taken[index].clone() {
            add(&mut recording, &source.path, &name, file, rank, rank_source);
        }
    }
    recording.sort_processes();
    let starts = recording
        .processes
        .iter()
        .map(|process| process.header.started_ns);
    recording.manifest.started_ns = starts.filter(|&start| start > 0).min().unwrap_or(0);
    Ok(recording)
}

/// Finds the events of a file and uses none of them: how many there are. [`import`]'s limit, for benchmarks.
///
/// # Errors
/// When the file can't be read or is no trace.
pub fn count_events(path: &Path) -> Result<u64, ImportError> {
    reader::scan(path).map_err(|error| match error {
        Unreadable::Io(error) => ImportError::new(path, format!("cannot be read: {error}")),
        Unreadable::NotATrace(why) => ImportError::new(path, why),
    })
}

/// Reads all files, the largest first, on all cores.
fn read_all(sources: &[Source], progress: &Progress) -> Vec<Result<ReadFile, Unreadable>> {
    let mut order: Vec<usize> = (0..sources.len()).collect();
    let size = |index: &usize| std::fs::metadata(&sources[*index].path).map_or(0, |metadata| metadata.len());
    order.sort_by_key(|index| std::cmp::Reverse(size(index)));
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, Result<ReadFile, Unreadable>>> = Mutex::default();
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(sources.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = reader::read(&sources[index].path, &progress.done_bytes);
                    if let Ok(mut results) = results.lock() {
                        results.insert(index, result);
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_default();
    results.into_values().collect()
}

/// One process of a file.
struct ReadProcess {
    /// The file has others too.
    several: bool,
    converter: Converter,
    frame: Frame,
    ending: Ending,
}

/// The processes of a file, each with the name that losses and notes call it by.
fn split(file: ReadFile, name: &str) -> impl Iterator<Item = (String, ReadProcess)> {
    let ReadFile {
        owners,
        frame,
        ending,
    } = file;
    let several = owners.all.len() > 1;
    let name = name.to_owned();
    owners.all.into_iter().enumerate().map(move |(place, owner)| {
        let mut frame = frame.clone();
        let mut name = name.clone();
        if several {
            frame.rank = owner.rank;
            frame.world_size = owner.world_size;
            frame.host = owner.host;
            frame.devices.retain(|(rank, _)| *rank == owner.rank);
            let number = owner
                .rank
                .map_or_else(|| format!("process {place}"), |rank| format!("rank {rank}"));
            name = format!("{name} ({number})");
        }
        let ending = ending.clone();
        let process = ReadProcess {
            several,
            converter: owner.converter,
            frame,
            ending,
        };
        (name, process)
    })
}

/// A rank and where it is known from.
type Rank = (Option<u32>, Option<String>);

/// Each file's rank; `None` for a file that is left out because another has its rank.
fn ranks(files: &[(&Source, String, ReadProcess)], recording: &mut Recording) -> Vec<Option<Rank>> {
    let mut found: Vec<Option<Rank>> = files
        .iter()
        .map(|(_, name, file)| {
            let said = |rank, by: &str| Some((Some(rank), Some(by.to_owned())));
            match file.frame.rank {
                Some(rank) if file.several => said(rank, "names of the file's processes"),
                Some(rank) => said(rank, "distributedInfo"),
                None if file.several => None,
                None => rank_in_name(name).and_then(|rank| said(rank, "file name")),
            }
        })
        .collect();
    // A lone file whose name gives no rank has none; of several, the order of their names is all there is.
    let unknown: Vec<usize> = (0..files.len()).filter(|&index| found[index].is_none()).collect();
    if unknown.len() == files.len() && files.len() > 1 {
        let mut order = unknown.clone();
        order.sort_by_key(|&index| (natural_order(&files[index].1), &files[index].0.path));
        for (rank, index) in order.into_iter().enumerate() {
            found[index] = Some((
                u32::try_from(rank).ok(),
                Some("order of the files' names".to_owned()),
            ));
        }
        recording
            .notes
            .push("no file says its rank: they are numbered in the order of their names".to_owned());
    } else {
        for index in unknown {
            found[index] = Some((None, None));
            if files.len() > 1 {
                recording.losses.push(Loss {
                    what: format!(
                        "{}: its rank stands neither in the file nor in its name",
                        files[index].1
                    ),
                    count: Some(1),
                    affects: "matching of that rank's collectives".to_owned(),
                });
            }
        }
    }
    let mut owner: BTreeMap<u32, usize> = BTreeMap::new();
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by(|a, b| files[*a].0.path.cmp(&files[*b].0.path));
    for index in order {
        let Some(rank) = found[index].as_ref().and_then(|(rank, _)| *rank) else {
            continue;
        };
        if let Some(&first) = owner.get(&rank) {
            recording.losses.push(Loss {
                what: format!(
                    "{}: of rank {rank}, as {} is: left out with its device operations; analyse it alone",
                    files[index].1, files[first].1
                ),
                count: Some(files[index].2.converter.counts.device_operations),
                affects: format!("everything of rank {rank}"),
            });
            found[index] = None;
        } else {
            owner.insert(rank, index);
        }
    }
    found
}

/// Makes a process of a file.
fn add(
    recording: &mut Recording,
    path: &Path,
    name: &str,
    file: ReadProcess,
    rank: Option<u32>,
    rank_source: Option<String>,
) {
    let ReadProcess {
        mut converter,
        frame,
        ending,
        ..
    } = file;
    converter.tables.communicators = {
        let mut rows = gputrace_trace::tables::Communicators::default();
        for row in converter.communicators.rows(rank) {
            gputrace_trace::Table::push(&mut rows, row);
        }
        rows
    };
    let tables = &mut converter.tables;
    let places: BTreeMap<u64, u32> = tables
        .communicators
        .communicator
        .iter()
        .copied()
        .zip(tables.communicators.rank.iter().copied())
        .collect();
    for (communicator, place) in tables
        .collectives
        .communicator
        .iter()
        .zip(&mut tables.collectives.rank)
    {
        *place = places.get(communicator).copied().unwrap_or(0);
    }
    if frame.base_ns != 0 {
        tables.shift(DurationNs(frame.base_ns));
    }
    tables.renumber(&recording.names.absorb(&converter.names.interner));
    tables.shrink();
    let started = [
        tables.kernels.start_ns.first(),
        tables.operators.start_ns.first(),
        tables.api_calls.start_ns.first(),
    ];
    let header = ProcessHeader {
        host: frame.host.clone().unwrap_or_default(),
        pid: converter
            .host_pids
            .iter()
            .max_by_key(|(pid, events)| (**events, **pid))
            .map_or(0, |(pid, _)| *pid),
        rank,
        rank_source,
        world_size: frame.world_size,
        devices: frame.devices.iter().map(|(_, device)| device.clone()).collect(),
        started_ns: started
            .into_iter()
            .flatten()
            .map(|time| time.0)
            .min()
            .unwrap_or(0),
        ended_ns: None,
        ..ProcessHeader::new()
    };
    say_what_is_lost(
        recording,
        name,
        &ending,
        &converter.counts,
        &converter.names.trouble,
        &frame.unread,
    );
    say_what_is_unused(recording, name, &ending, &converter.counts);
    recording.processes.push(Process {
        folder: path.display().to_string(),
        header,
        tables: std::mem::take(&mut converter.tables),
    });
}

/// What a loss touches that may have cost any event: they stand in no order of time.
const EVERY_NUMBER: &str = "every number of that rank";

fn say_what_is_lost(
    recording: &mut Recording,
    name: &str,
    ending: &Ending,
    counts: &Counts,
    trouble: &text::TextTrouble,
    unread: &[String],
) {
    let mut lose = |what: String, count: Option<u64>, affects: &str| {
        if count != Some(0) {
            recording.losses.push(Loss {
                what: format!("{name}: {what}"),
                count,
                affects: affects.to_owned(),
            });
        }
    };
    match ending {
        Ending::Whole => {}
        Ending::Cut(why, at) => lose(
            format!(
                "{why}, after {} events (byte {at}); they are analysed",
                counts.events
            ),
            None,
            EVERY_NUMBER,
        ),
        Ending::Damaged(at) => lose(
            format!(
                "not JSON at byte {at}, after {} events; what follows was not read",
                counts.events
            ),
            None,
            EVERY_NUMBER,
        ),
        Ending::Followed(bytes) => lose(
            format!(
                "{bytes} bytes behind the end of its JSON were not read: are these several files in one?"
            ),
            Some(1),
            "every number of that rank, if they are of the trace",
        ),
        Ending::FollowedByDamage(why) => lose(
            format!("bytes behind the end of its JSON can't be unpacked ({why})"),
            Some(1),
            "nothing, if they are not of the trace",
        ),
        Ending::ChecksumDiffers => lose(
            "its packed bytes have another checksum: any event may be damaged".to_owned(),
            None,
            EVERY_NUMBER,
        ),
    }
    lose(
        "lists of events after the first: all are taken".to_owned(),
        Some(counts.more_lists),
        EVERY_NUMBER,
    );
    lose(
        "events whose args could not be read, or not to their end".to_owned(),
        Some(counts.damaged_args),
        "devices, streams, launches, bytes and collectives",
    );
    lose(
        "device operations without a device's number: taken for device 0".to_owned(),
        Some(counts.odd_devices),
        "every number of that device",
    );
    lose(
        "elements that are no JSON".to_owned(),
        Some(counts.damaged),
        EVERY_NUMBER,
    );
    lose(
        "elements of more than 16 MiB".to_owned(),
        Some(counts.too_long),
        EVERY_NUMBER,
    );
    lose(
        "elements that are no events".to_owned(),
        Some(counts.not_events),
        "nothing, if they were none",
    );
    lose(
        "events with a time or duration out of range".to_owned(),
        Some(counts.out_of_range),
        EVERY_NUMBER,
    );
    lose(
        "events without a time or a duration".to_owned(),
        Some(counts.no_time),
        EVERY_NUMBER,
    );
    lose(
        "events that end before they begin, left out".to_owned(),
        Some(counts.backwards),
        "every duration of that rank",
    );
    lose(
        "events without a name".to_owned(),
        Some(counts.no_name),
        EVERY_NUMBER,
    );
    lose(
        "correlation ids of more than 32 bits".to_owned(),
        Some(counts.odd_correlations),
        "idle causes and launch statistics",
    );
    lose(
        "strings with bytes that are no UTF-8, replaced".to_owned(),
        Some(trouble.not_utf8),
        "names",
    );
    lose(
        "strings with broken escapes, replaced".to_owned(),
        Some(trouble.bad_escapes),
        "names",
    );
    lose(
        "names of more than 64 KiB, cut".to_owned(),
        Some(trouble.too_long),
        "names",
    );
    for member in unread {
        lose(
            format!("{member} could not be used"),
            Some(1),
            "the rank, its times beside those of others, or names of devices",
        );
    }
    if counts.duplicates > 0 {
        recording.notes.push(format!(
            "{name}: {} twice in an object; the last of them counts",
            if counts.duplicates == 1 {
                "1 member stands".to_owned()
            } else {
                format!("{} members stand", counts.duplicates)
            }
        ));
    }
}

fn say_what_is_unused(recording: &mut Recording, name: &str, ending: &Ending, counts: &Counts) {
    // The profiler's own frame and what only repeats other events.
    const EXPECTED: &[&str] = &["Trace", "gpu_user_annotation", "ac2g", "fwdbwd", "cuda_event"];
    let unused: Vec<String> = counts
        .unused
        .iter()
        .filter(|((_, category), _)| !convert::is_used(category.as_bytes()))
        .filter(|((phase, category), _)| {
            let an_instant = matches!(phase, b'i' | b'I') && category.is_empty();
            !an_instant && !matches!(phase, b'B' | b'E') && !EXPECTED.contains(&category.as_str())
        })
        .map(|((phase, category), count)| {
            let phase = char::from(*phase);
            if category.is_empty() {
                format!("{count} of phase {phase:?} without a category")
            } else {
                format!("{count} of {category}")
            }
        })
        .collect();
    if !unused.is_empty() {
        recording.notes.push(format!(
            "{name}: events that no measure uses are left out: {}",
            unused.join(", ")
        ));
    }
    // Complete events are the ones that carry what is measured.
    for ((phase, category), count) in &counts.unused {
        if convert::is_used(category.as_bytes()) || matches!(phase, b'B' | b'E') {
            let phase = match phase {
                0 => "without a phase".to_owned(),
                phase => format!("of phase {:?}", char::from(*phase)),
            };
            let category = if category.is_empty() {
                "no category"
            } else {
                category
            };
            recording.losses.push(Loss {
                what: format!("{name}: events {phase} ({category}), where complete ones (\"X\") are read"),
                count: Some(*count),
                affects: EVERY_NUMBER.to_owned(),
            });
        }
    }
    if counts.device_operations == 0 && *ending == Ending::Whole {
        recording.notes.push(format!(
            "{name}: no GPU operation in it: it was profiled without GPU activities, or the rank used no GPU"
        ));
    }
}
