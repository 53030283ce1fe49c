//! What rows and communicators are called, with the names that the program gave.

use gputrace_trace::{Process, Recording};
use rustc_hash::FxHashMap;

use super::row_key::RowKey;

/// What rows are called, with the names that the program gave.
pub(super) struct RowNames<'r> {
    communicators: &'r CommunicatorNames<'r>,
    threads: FxHashMap<u64, &'r str>,
    streams: FxHashMap<u32, &'r str>,
}

impl<'r> RowNames<'r> {
    pub(super) fn new(
        recording: &'r Recording,
        process: &'r Process,
        communicators: &'r CommunicatorNames<'r>,
    ) -> Self {
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
            communicators,
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
            RowKey::Python(thread) => format!("{}: Python", self.thread(thread)),
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
                let name = self.communicators.of(communicator);
                format!("NCCL {name} channel {channel}")
            }
        }
    }
}

/// The communicators of a process, which may have as many as kernels.
pub struct CommunicatorNames<'r> {
    names: FxHashMap<u64, &'r str>,
}

impl<'r> CommunicatorNames<'r> {
    /// Those that the program named.
    #[must_use]
    pub fn new(recording: &'r Recording, process: &'r Process) -> Self {
        let table = &process.tables.communicators;
        let mut names = FxHashMap::default();
        for (communicator, name) in table.communicator.iter().zip(&table.name) {
            if let Some(name) = name {
                names.entry(*communicator).or_insert(recording.names.get(*name));
            }
        }
        Self { names }
    }

    /// The communicator's own name, or its hash where the program gave none.
    #[must_use]
    pub fn of(&self, communicator: u64) -> String {
        match self.names.get(&communicator) {
            Some(name) if !name.is_empty() => (*name).to_owned(),
            _ => format!("{communicator:#x}"),
        }
    }
}
