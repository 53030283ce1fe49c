//! Traces of PyTorch's profiler (Kineto) and other Chrome trace event JSON, read into a recording.
//!
//! A file is one rank, unless it is our own export of several. Files are read in parallel and in blocks: what stays in
//! memory are the columns of the tables. Times become integer nanoseconds without passing through a float. Whatever can't be
//! used is counted, by what it is, in the recording's losses; what is left alone on purpose stands in its notes.

mod after;
mod args;
mod blocks;
mod brackets;
mod collective;
mod convert;
mod converter;
mod copy_names;
mod event;
mod frame;
mod gputrace_members;
mod gputrace_process;
mod ids;
mod losses;
mod number;
pub(crate) mod operator_args;
mod owners;
mod reader;
mod repeated_row;
mod repeats;
mod scan;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gputrace_trace::manifest::{Device, Manifest, ProcessHeader};
use gputrace_trace::{DurationNs, Loss, Process, Recording, beneath, parallel};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::import::{Arrive, ImportError, Progress};
use crate::limits::Memory;
use crate::rank_names::{natural_order, rank_in_name};
use converter::Converter;
use frame::Frame;
use gputrace_members::OwnRecording;
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

/// Whether this is why a file is no trace and need not be one: analyses and notes lie beside traces, and only what looks like a trace
/// of a rank is a loss.
fn lies_beside(why: &str) -> bool {
    why.starts_with("has no \"traceEvents\": ")
}

/// What is noted of a file of a folder that was refused by name with this line; `None` if it is a loss.
pub(crate) fn beside_note(path: &Path, line: &str) -> Option<String> {
    let why = line.strip_prefix(&format!("{}: ", path.display()))?;
    lies_beside(why).then(|| format!("{}: left out: it {why}", short(path)))
}

/// Reads files of one run into a recording: a process a file, of our own exports as many as they hold.
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
    let is_own = restore_recording(&mut recording, &results);
    let mut files = Vec::new();
    for (source, result) in sources.iter().zip(results) {
        let name = short(&source.path);
        match result {
            Ok(file) => files.extend(split(file, &name).map(|(name, file)| (source, name, file))),
            Err(Unreadable::Io(error)) if source.from_folder => recording.losses.push(Loss {
                what: format!("{name}: left out: it cannot be read: {error}"),
                count: Some(1),
                affects: "the rank of that file".to_owned(),
            }),
            Err(Unreadable::Io(error)) => {
                return Err(ImportError::new(&source.path, format!("cannot be read: {error}")));
            }
            Err(Unreadable::NotATrace(why)) if source.from_folder => {
                if lies_beside(&why) {
                    recording.notes.push(format!("{name}: left out: it {why}"));
                } else {
                    recording.losses.push(Loss {
                        what: format!("{name}: left out: it {why}"),
                        count: Some(1),
                        affects: "the rank of that file".to_owned(),
                    });
                }
            }
            Err(Unreadable::TooMuch(why)) if source.from_folder => recording.losses.push(Loss {
                what: format!("{name}: left out: it {why}"),
                count: Some(1),
                affects: "the rank of that file".to_owned(),
            }),
            Err(Unreadable::NotATrace(why) | Unreadable::TooMuch(why)) => {
                return Err(ImportError::new(&source.path, why));
            }
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
    if !is_own {
        recording.manifest.started_ns = starts.filter(|&start| start > 0).min().unwrap_or(0);
    }
    Ok(recording)
}

/// Takes back what our own export says of the recording, where every file is one. Whether it is so.
fn restore_recording(recording: &mut Recording, results: &[Result<ReadFile, Unreadable>]) -> bool {
    let files = results.iter().filter_map(|result| result.as_ref().ok());
    let own: Option<Vec<&OwnRecording>> = files.map(|file| file.frame.own.as_ref()).collect();
    let Some((first, own)) = own.as_ref().and_then(|own| Some((own.first()?, own))) else {
        return false;
    };
    recording.manifest = first.manifest.clone();
    recording.unaligned.clone_from(&first.unaligned);
    recording.clocks.clone_from(&first.clocks);
    // Each file of a recording says the same.
    let mut known = FxHashSet::default();
    for loss in own.iter().flat_map(|one| &one.losses) {
        if known.insert((&loss.what, loss.count, &loss.affects)) {
            recording.losses.push(loss.clone());
        }
    }
    let mut known = FxHashSet::default();
    for note in own.iter().flat_map(|one| &one.notes) {
        if known.insert(note) {
            recording.notes.push(note.clone());
        }
    }
    true
}

/// Cuts every member of every event of a file out and uses none: how many events there are. What [`import`] is measured beside.
///
/// # Errors
/// When the file can't be read or is no trace.
pub fn count_events(path: &Path) -> Result<u64, ImportError> {
    reader::scan(path).map_err(|error| match error {
        Unreadable::Io(error) => ImportError::new(path, format!("cannot be read: {error}")),
        Unreadable::NotATrace(why) | Unreadable::TooMuch(why) => ImportError::new(path, why),
    })
}

/// Shows the processes of a file that is one of several.
fn show(file: &mut ReadFile, path: &Path, arrived: &Arrive) {
    let (frame, several) = (&file.frame, file.owners.all.len() > 1);
    for owner in &mut file.owners.all {
        let converter = &mut owner.converter;
        let (folder, header) = match &converter.own {
            Some(own) if own.is_host() => continue,
            Some(own) => (own.folder.clone(), own.header.clone()),
            None => {
                let rank = if several { owner.rank } else { frame.rank };
                let header = ProcessHeader {
                    host: frame.host.clone().unwrap_or_default(),
                    rank: rank.or_else(|| rank_in_name(&short(path))),
                    devices: frame.devices.iter().map(|(_, device)| device.clone()).collect(),
                    ..ProcessHeader::new()
                };
                (path.display().to_string(), header)
            }
        };
        let mut tables = std::mem::take(&mut converter.tables);
        if frame.base_ns != 0 {
            tables.shift(DurationNs(frame.base_ns));
        }
        let mut process = Process {
            folder,
            header,
            tables,
        };
        arrived(&process, &converter.names.interner);
        if frame.base_ns != 0 {
            process.tables.shift(DurationNs(-frame.base_ns));
        }
        converter.tables = process.tables;
    }
}

/// Reads all files, the largest first, on all cores; of those that are about as large those first whose names come first.
fn read_all(sources: &[Source], progress: &Progress) -> Vec<Result<ReadFile, Unreadable>> {
    let mut order: Vec<usize> = (0..sources.len()).collect();
    let size = |index: &usize| beneath::bytes(&sources[*index].path);
    let names: Vec<String> = sources.iter().map(|source| short(&source.path)).collect();
    order.sort_by_key(|index| {
        let doublings = size(index).checked_ilog2();
        (
            std::cmp::Reverse(doublings),
            natural_order(&names[*index]),
            *index,
        )
    });
    let memory = Memory::default();
    let results = parallel::map(order.len(), |place| {
        let path = &sources[order[place]].path;
        let mut read = reader::read(path, &progress.done_bytes, &memory);
        if let Ok(file) = &mut read {
            for owner in &mut file.owners.all {
                owner.converter.tables.shrink();
            }
        }
        if let (Ok(file), Some(arrived)) = (&mut read, progress.arrived())
            && order.len() > 1
        {
            show(file, path, arrived);
        }
        read
    });
    let mut results: Vec<_> = order.into_iter().zip(results).collect();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
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
        mut owners,
        frame,
        ending,
    } = file;
    owners.all[0].converter.counts.unowned = owners.unowned;
    owners.all[0].converter.counts.named_late = u64::from(owners.late);
    let several = owners.all.len() > 1;
    let name = name.to_owned();
    let mut frame = frame;
    let mut devices: FxHashMap<Option<u32>, Vec<(Option<u32>, Device)>> = FxHashMap::default();
    if several {
        // What is said of the whole file was taken already; what is left of it here is each process's own.
        frame.own = None;
        for device in std::mem::take(&mut frame.devices) {
            devices.entry(device.0).or_default().push(device);
        }
    }
    owners.all.into_iter().enumerate().map(move |(place, owner)| {
        let mut frame = frame.clone();
        let mut name = name.clone();
        if several {
            frame.rank = owner.rank;
            frame.world_size = owner.world_size;
            frame.host = owner.host;
            frame.devices = devices.get(&owner.rank).cloned().unwrap_or_default();
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
            if let Some(own) = &file.converter.own {
                return Some((own.header.rank, own.header.rank_source.clone()));
            }
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
        // Several processes of one rank may be in one recording, and so in our export of it.
        let other_file = |first: &&usize| files[**first].0.path != files[index].0.path;
        if let Some(&first) = owner.get(&rank).filter(other_file) {
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
            owner.entry(rank).or_insert(index);
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
    let renumbered = converter.settle_streams();
    let own = converter.own.take();
    match &own {
        Some(own) => gputrace_members::rename(&mut converter.tables, own, &mut converter.names.interner),
        None => add_communicators(&mut converter, rank),
    }
    let tables = &mut converter.tables;
    if frame.base_ns != 0 {
        tables.shift(DurationNs(frame.base_ns));
    }
    let too_many = converter.names.interner.take_refused();
    if let Some(numbers) = recording
        .names
        .take_in(std::mem::take(&mut converter.names.interner))
    {
        tables.renumber(&numbers);
    }
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
    losses::of_file(
        recording,
        name,
        &ending,
        &converter.counts,
        converter.calling_pids.len(),
        &converter.names.trouble,
        &frame.unread,
    );
    if own.is_none() {
        losses::note_unused(recording, name, &ending, &converter.counts);
    }
    if too_many > 0 {
        recording.losses.push(Loss {
            what: format!("{name}: names for which there was no memory, told as \"(too many names)\""),
            count: Some(too_many),
            affects: "whatever is told apart by names".to_owned(),
        });
    }
    losses::renumbered_streams(recording, name, &renumbered);
    let tables = std::mem::take(&mut converter.tables);
    match own {
        Some(own) => {
            let list = match own.is_host() {
                true => &mut recording.hosts,
                false => &mut recording.processes,
            };
            list.push(Process {
                folder: own.folder,
                header: own.header,
                tables,
            });
        }
        None => recording.processes.push(Process {
            folder: path.display().to_string(),
            header,
            tables,
        }),
    }
}

/// Makes the rows of communicators, and says in the collectives which rank of theirs the process is.
fn add_communicators(converter: &mut Converter, rank: Option<u32>) {
    let tables = &mut converter.tables;
    for row in converter.communicators.rows(rank) {
        gputrace_trace::Table::push(&mut tables.communicators, row);
    }
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
    // Of two ranks the other one is the peer, whether or not the trace says so.
    let communicators = &tables.communicators;
    let pairs: BTreeSet<u64> = communicators
        .communicator
        .iter()
        .zip(&communicators.ranks)
        .filter(|(_, ranks)| **ranks == 2)
        .map(|(communicator, _)| *communicator)
        .collect();
    let collectives = &mut tables.collectives;
    for row in 0..collectives.peer.len() {
        let function = converter.names.interner.get(collectives.function[row]);
        if collectives.peer[row].is_none()
            && matches!(function, "Send" | "Recv")
            && pairs.contains(&collectives.communicator[row])
        {
            collectives.peer[row] = i32::try_from(1 - collectives.rank[row].min(1)).ok();
        }
    }
}
