//! The rows in the order in which they are shown, what each is called, and its name in links.

use std::collections::BTreeMap;
use std::sync::Arc;

use gputrace_trace::{Process, Recording};
use rustc_hash::FxHashMap;

use super::answers::{Row, What};
use super::gather::{Group, Place};
use super::series::Series;
use super::slices::Slices;

/// What a row has.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Slices(Arc<Slices>),
    Series(Arc<Series>),
}

/// Samples of one quantity.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    /// Process and device that it hangs at; neither for what is of a host.
    pub(crate) process: Option<u32>,
    pub(crate) device: Option<u32>,
    /// Behind the process's, device's or host's key.
    pub(crate) key: String,
    /// Behind the process's, device's or host's path.
    pub(crate) path: Vec<String>,
    pub(crate) detail: String,
    pub(crate) what: What,
    pub(crate) unit: &'static str,
    pub(crate) series: Arc<Series>,
}

/// Collectives of a communicator on one device of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Communicator {
    /// As the analysis writes it.
    pub(crate) hash: String,
    pub(crate) label: String,
    pub(crate) process: u32,
    pub(crate) device: u32,
    pub(crate) lanes: Vec<Arc<Slices>>,
}

/// Who processes are.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) rank: Option<u32>,
    /// "rank 3", or what else tells it from others.
    pub(crate) label: String,
    /// "r3.p0": rank, and which of its processes.
    pub(crate) key: String,
}

/// Who the processes of a recording are. Where none says its rank their order is as good as any, as in the analysis.
pub(crate) fn identities(recording: &Recording) -> Vec<Identity> {
    let processes = &recording.processes;
    let any_rank = processes.iter().any(|process| process.header.rank.is_some());
    let mut seen: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    let rank_of = |place: u32, process: &Process| process.header.rank.or((!any_rank).then_some(place));
    let mut count: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for (place, process) in (0..).zip(processes) {
        *count.entry(rank_of(place, process)).or_default() += 1;
    }
    (0..)
        .zip(processes)
        .map(|(place, process)| {
            let rank = rank_of(place, process);
            let number = seen.entry(rank).or_default();
            let own = *number;
            *number += 1;
            let who = rank.map_or_else(|| "no rank".to_owned(), |rank| format!("rank {rank}"));
            let alone = count.get(&rank) == Some(&1) && rank.is_some();
            Identity {
                rank,
                label: if alone {
                    who
                } else {
                    format!("{who} · {}", process.folder)
                },
                key: rank.map_or_else(|| format!("p{own}"), |rank| format!("r{rank}.p{own}")),
            }
        })
        .collect()
}

/// Rows as they are shown, with what each has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    pub(crate) data: Vec<Data>,
    /// The first row of each process's places; lanes follow.
    pub(crate) places: FxHashMap<(u32, Place), (u32, u32)>,
    /// Those of communicators, by hash, process and device.
    pub(crate) communicators: FxHashMap<(String, u32, u32), (u32, u32)>,
    pub(crate) by_key: FxHashMap<String, u32>,
}

/// What lanes of one thing have in common.
struct Thing {
    what: What,
    key: String,
    path: Vec<String>,
    label: String,
    detail: String,
    rank: Option<u32>,
    process: Option<u32>,
    device: Option<u32>,
    stream: Option<u32>,
    thread: Option<u32>,
    communicator: Option<String>,
}

/// What there is of one device, or of none.
#[derive(Default)]
struct Found<'a> {
    groups: Vec<&'a Group>,
    counters: Vec<&'a Counter>,
}

impl Rows {
    fn add_lanes(&mut self, thing: &Thing, lanes: &[Arc<Slices>]) -> (u32, u32) {
        let count = u32::try_from(lanes.len()).unwrap_or(u32::MAX);
        let first = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        for (lane, slices) in (0..).zip(lanes) {
            self.push(Row {
                row: first + lane,
                key: format!("{}/{lane}", thing.key),
                row_type: "slices",
                what: thing.what,
                path: thing.path.clone(),
                label: thing.label.clone(),
                detail: thing.detail.clone(),
                lane,
                lanes: count,
                slices: u32::try_from(slices.len()).unwrap_or(u32::MAX),
                rank: thing.rank,
                process: thing.process,
                device: thing.device,
                stream: thing.stream,
                thread: thing.thread,
                communicator: thing.communicator.clone(),
                unit: None,
                min: None,
                max: None,
                begin: slices.begin(),
                end: slices.end(),
            });
            self.data.push(Data::Slices(slices.clone()));
        }
        (first, count)
    }

    fn add_counter(&mut self, counter: &Counter, key: String, path: Vec<String>, rank: Option<u32>) {
        let extremes = counter.series.extremes();
        self.push(Row {
            row: u32::try_from(self.rows.len()).unwrap_or(u32::MAX),
            key,
            row_type: "counter",
            what: counter.what,
            label: path.last().cloned().unwrap_or_default(),
            path,
            detail: counter.detail.clone(),
            lane: 0,
            lanes: 1,
            slices: u32::try_from(counter.series.len()).unwrap_or(u32::MAX),
            rank,
            process: counter.process,
            device: counter.device,
            stream: None,
            thread: None,
            communicator: None,
            unit: Some(counter.unit.to_owned()),
            min: extremes.map(|(min, _)| f64::from(min)),
            max: extremes.map(|(_, max)| f64::from(max)),
            begin: counter.series.begin(),
            end: counter.series.end(),
        });
        self.data.push(Data::Series(counter.series.clone()));
    }

    fn push(&mut self, row: Row) {
        self.by_key.insert(row.key.clone(), row.row);
        self.rows.push(row);
    }

    /// The slices of a row; `None` for counters and rows that are not there.
    pub(crate) fn slices(&self, row: u32) -> Option<&Arc<Slices>> {
        match self.data.get(row as usize)? {
            Data::Slices(slices) => Some(slices),
            Data::Series(_) => None,
        }
    }

    /// All rows, with times as they are in the recording.
    pub(crate) fn new(
        recording: &Recording,
        identities: &[Identity],
        groups: &[Group],
        projected: &[Group],
        counters: &[Counter],
        communicators: &[Communicator],
    ) -> Self {
        let mut rows = Self::default();
        let mut lines: BTreeMap<(&str, u32), usize> = BTreeMap::new();
        for communicator in communicators {
            *lines
                .entry((&communicator.hash, communicator.process))
                .or_default() += 1;
        }
        for communicator in communicators {
            let alone = lines[&(communicator.hash.as_str(), communicator.process)] == 1;
            rows.add_communicator(communicator, identities, alone);
        }
        // By process, and there by device or none: a file can have a hundred thousand of either.
        let mut of_processes: BTreeMap<u32, BTreeMap<Option<u32>, Found<'_>>> = BTreeMap::new();
        for group in projected.iter().chain(groups) {
            let device = match group.place {
                Place::Stream(device, _) | Place::Projected(device, _) => Some(device),
                _ => None,
            };
            let found = of_processes.entry(group.process).or_default();
            found.entry(device).or_default().groups.push(group);
        }
        for counter in counters {
            if let Some(process) = counter.process {
                let found = of_processes.entry(process).or_default();
                found.entry(counter.device).or_default().counters.push(counter);
            }
        }
        for (process, identity) in (0..).zip(identities) {
            let mut of_process = of_processes.remove(&process).unwrap_or_default();
            let of_none = of_process.remove(&None).unwrap_or_default();
            let header = &recording.processes[process as usize];
            for (device, found) in of_process {
                let device = device.unwrap_or_default();
                let gpu = vec![identity.label.clone(), format!("GPU {device}")];
                let key = format!("{}/gpu{device}", identity.key);
                for group in found.groups {
                    rows.add_group(group, header, recording, identity, gpu.clone(), &key);
                }
                for counter in found.counters {
                    let path = gpu.iter().chain(&counter.path).cloned().collect();
                    rows.add_counter(counter, format!("{key}/{}", counter.key), path, identity.rank);
                }
            }
            let top = vec![identity.label.clone()];
            for group in of_none.groups {
                rows.add_group(group, header, recording, identity, top.clone(), &identity.key);
            }
            for counter in of_none.counters {
                let path = top.iter().chain(&counter.path).cloned().collect();
                rows.add_counter(
                    counter,
                    format!("{}/{}", identity.key, counter.key),
                    path,
                    identity.rank,
                );
            }
        }
        for counter in counters.iter().filter(|counter| counter.process.is_none()) {
            rows.add_counter(counter, counter.key.clone(), counter.path.clone(), None);
        }
        rows
    }

    fn add_communicator(
        &mut self,
        communicator: &Communicator,
        identities: &[Identity],
        // A rank with several GPUs has a line for each.
        alone: bool,
    ) {
        let Some(identity) = identities.get(communicator.process as usize) else {
            return;
        };
        let label = if alone {
            identity.label.clone()
        } else {
            format!("{} · GPU {}", identity.label, communicator.device)
        };
        let thing = Thing {
            what: What::Communicator,
            key: format!(
                "communicator/{}/{}/gpu{}",
                communicator.hash, identity.key, communicator.device
            ),
            path: vec![
                "communicators".to_owned(),
                communicator.label.clone(),
                label.clone(),
            ],
            label,
            detail: format!("communicator {}", communicator.hash),
            rank: identity.rank,
            process: Some(communicator.process),
            device: Some(communicator.device),
            stream: None,
            thread: None,
            communicator: Some(communicator.hash.clone()),
        };
        let lanes = self.add_lanes(&thing, &communicator.lanes);
        let key = (
            communicator.hash.clone(),
            communicator.process,
            communicator.device,
        );
        self.communicators.insert(key, lanes);
    }

    fn add_group(
        &mut self,
        group: &Group,
        process: &Process,
        recording: &Recording,
        identity: &Identity,
        mut path: Vec<String>,
        key: &str,
    ) {
        let mut thing = Thing {
            what: What::Thread,
            key: String::new(),
            path: Vec::new(),
            label: String::new(),
            detail: String::new(),
            rank: identity.rank,
            process: Some(group.process),
            device: None,
            stream: None,
            thread: None,
            communicator: None,
        };
        let thread_name = |thread: u32| match thread_name(recording, process, thread) {
            Some(name) => format!("thread {thread} · {name}"),
            None => format!("thread {thread}"),
        };
        match group.place {
            Place::Stream(device, stream) => {
                (thing.what, thing.device, thing.stream) = (What::Stream, Some(device), Some(stream));
                thing.key = format!("{key}/stream{stream}");
                thing.label = match stream_name(recording, process, stream) {
                    Some(name) => format!("stream {stream} · {name}"),
                    None => format!("stream {stream}"),
                };
                thing.detail = stream_detail(process, device, stream);
            }
            Place::Projected(device, thread) => {
                (thing.what, thing.device) = (What::Nvtx, Some(device));
                thing.thread = Some(thread);
                thing.key = format!("{key}/nvtx/{thread}");
                path.push("NVTX on the GPU".to_owned());
                thing.label = thread_name(thread);
            }
            Place::Ranges(thread) => {
                (thing.what, thing.thread) = (What::Nvtx, Some(thread));
                thing.key = format!("{key}/nvtx/{thread}");
                path.push("NVTX".to_owned());
                thing.label = thread_name(thread);
            }
            Place::Thread(thread) => {
                thing.thread = Some(thread);
                thing.key = format!("{key}/thread/{thread}");
                thing.label = thread_name(thread);
            }
            Place::NoThread => {
                thing.key = format!("{key}/host");
                thing.label = "host, thread not known".to_owned();
            }
            Place::Proxy(thread) => {
                thing.thread = Some(thread);
                thing.key = format!("{key}/proxy/{thread}");
                path.push("NCCL proxy".to_owned());
                thing.label = thread_name(thread);
            }
            Place::Channel(channel) => {
                thing.key = format!("{key}/channel/{channel}");
                path.push("NCCL channels".to_owned());
                thing.label = format!("channel {channel}");
            }
        }
        path.push(thing.label.clone());
        thing.path = path;
        let lanes = self.add_lanes(&thing, &group.lanes);
        self.places.insert((group.process, group.place), lanes);
    }
}

/// `kind` of an [`gputrace_trace::tables::ObjectName`]: a thread.
const THREAD: u8 = 1;
/// The same: a stream.
const STREAM: u8 = 4;

/// What the program, or else the host's kernel, calls a thread.
fn thread_name(recording: &Recording, process: &Process, thread: u32) -> Option<String> {
    let names = &process.tables.object_names;
    let named = (0..names.name.len())
        .rev()
        .find(|&row| names.kind[row] == THREAD && names.identifier[row] == u64::from(thread))
        .map(|row| recording.names.get(names.name[row]).to_owned());
    let sampled = || {
        let hosts = recording.hosts.iter();
        let mut threads = hosts
            .filter(|host| host.header.host == process.header.host)
            .flat_map(|host| &host.header.threads);
        threads
            .find(|known| known.pid == process.header.pid && known.thread == thread)
            .map(|known| known.name.clone())
    };
    named.or_else(sampled).filter(|name| !name.is_empty())
}

/// What the program calls a stream.
fn stream_name(recording: &Recording, process: &Process, stream: u32) -> Option<String> {
    let names = &process.tables.object_names;
    (0..names.name.len())
        .rev()
        .find(|&row| names.kind[row] == STREAM && names.cupti[row] == Some(stream))
        .map(|row| recording.names.get(names.name[row]).to_owned())
        .filter(|name| !name.is_empty())
}

/// Flag and priority of a stream, where they are told.
fn stream_detail(process: &Process, device: u32, stream: u32) -> String {
    let (streams, contexts) = (&process.tables.streams, &process.tables.contexts);
    let on_device = |context: u32| {
        contexts.context.is_empty()
            || (0..contexts.context.len())
                .any(|row| contexts.context[row] == context && contexts.device[row] == device)
    };
    let row = (0..streams.stream.len())
        .find(|&row| streams.stream[row] == stream && on_device(streams.context[row]));
    row.map_or_else(String::new, |row| {
        let flag = match streams.flag[row] {
            1 => "default stream",
            2 => "non-blocking",
            3 => "null stream",
            _ => "stream",
        };
        format!("{flag}, priority {}", streams.priority[row])
    })
}
