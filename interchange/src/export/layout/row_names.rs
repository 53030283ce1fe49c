//! What rows and communicators are called, with the names that the program gave.

use gputrace_trace::{Process, Recording};
use rustc_hash::FxHashMap;

use super::RowKey;

/// What rows are called, with the names that the program gave.
pub(super) struct RowNames<'r> {
    recording: &'r Recording,
    process: &'r Process,
    threads: FxHashMap<u64, &'r str>,
    streams: FxHashMap<u32, &'r str>,
}

impl<'r> RowNames<'r> {
    pub(super) fn new(recording: &'r Recording, process: &'r Process) -> Self {
        let named = &process.tables.object_names;
        let (mut threads, mut streams) = (FxHashMap::default(), FxHashMap::default());
        for (row, kind) in named.kind.iter().enumerate() {
            let name = recording.names.get(named.name[row]);
            // The latest name counts.
            match (kind, named.cupti[row]) {
                (1, _) => drop(threads.insert(named.identifier[row], name)),
                (4, Some(stream)) => drop(streams.insert(stream, name)),
                _ => {}
            }
        }
        Self {
            recording,
            process,
            threads,
            streams,
        }
    }

    fn thread(&self, thread: u32) -> String {
        match self.threads.get(&thread.into()) {
            Some(name) => format!("thread {thread} ({name})"),
            None => format!("thread {thread}"),
        }
    }

    fn stream(&self, stream: u32) -> String {
        match self.streams.get(&stream) {
            Some(name) => format!("stream {stream} ({name})"),
            None => format!("stream {stream}"),
        }
    }

    pub(super) fn of(&self, key: RowKey) -> String {
        match key {
            RowKey::Windows => "recording".to_owned(),
            RowKey::Thread(thread) | RowKey::Overhead(Some(thread)) => self.thread(thread),
            RowKey::Ranges(thread) => format!("{}: start/end ranges", self.thread(thread)),
            RowKey::Proxy(thread) => format!("{}: NCCL proxy", self.thread(thread)),
            RowKey::NoThread | RowKey::Overhead(None) => "no known thread".to_owned(),
            RowKey::Stream { stream, .. } => self.stream(stream),
            RowKey::Graphs { stream, .. } => format!("{}: graphs", self.stream(stream)),
            RowKey::StreamWaits {
                stream: Some(stream), ..
            } => format!("{} (sync)", self.stream(stream)),
            RowKey::StreamWaits { device, .. } => format!("device {device} (sync)"),
            RowKey::Channel {
                communicator,
                channel,
            } => {
                let name = communicator_name(self.recording, self.process, communicator);
                format!("NCCL {name} channel {channel}")
            }
        }
    }
}

/// The communicator's own name, or its hash where the program gave none.
#[must_use]
pub fn communicator_name(recording: &Recording, process: &Process, communicator: u64) -> String {
    let table = &process.tables.communicators;
    (0..table.communicator.len())
        .filter(|&row| table.communicator[row] == communicator)
        .find_map(|row| table.name[row])
        .map(|name| recording.names.get(name).to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("{communicator:#x}"))
}
