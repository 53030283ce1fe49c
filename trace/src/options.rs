//! What the recorder asks of the collector, as JSON in `GPUTRACE_OPTIONS`.
//!
//! Both sides ignore members that they do not know, and fill in what is missing with what is usual, so that a recorder
//! and a collector of neighbouring versions understand each other.

use serde::{Deserialize, Serialize};

/// The variable that holds [`CollectorOptions`] as JSON.
pub const OPTIONS_VARIABLE: &str = "GPUTRACE_OPTIONS";
/// The variable that names the recording's folder.
pub const FOLDER_VARIABLE: &str = "GPUTRACE_DIR";
/// The variable that holds the recording's number: [`crate::manifest::Manifest::recording`].
pub const RECORDING_VARIABLE: &str = "GPUTRACE_RECORDING";
/// The variable that names the control file (see [`crate::control`]).
pub const CONTROL_VARIABLE: &str = "GPUTRACE_CONTROL";

/// Memory for one process's collector, in bytes, unless the user says otherwise.
pub const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;

/// What can be recorded, by the words of `--kinds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Kernels.
    Kernels,
    /// Copies, peer copies among them.
    Copies,
    /// Memsets.
    Memsets,
    /// Launches, copies, allocations and other calls of the driver and the runtime.
    Calls,
    /// Waits of the host for the device, and of streams for events.
    Synchronizations,
    /// NCCL's operations.
    Collectives,
    /// NVTX ranges and marks.
    Ranges,
    /// What CUPTI's own work cost.
    Overheads,
    /// Modules loaded and code compiled at run time.
    Modules,
    /// Allocations, frees and memory pools.
    Memory,
    /// Steps of NCCL's proxy threads.
    Proxy,
    /// NCCL's kernels by channel.
    Channels,
    /// Stacks of the host at launches, copies and memsets.
    Stacks,
    /// Samples of the devices' state (NVML), by the recorder.
    Devices,
    /// Samples of the host's state (/proc), by the recorder.
    Host,
}

impl Kind {
    /// All of them, in the order in which help lists them.
    pub const ALL: [Self; 15] = [
        Self::Kernels,
        Self::Copies,
        Self::Memsets,
        Self::Calls,
        Self::Synchronizations,
        Self::Collectives,
        Self::Ranges,
        Self::Overheads,
        Self::Modules,
        Self::Memory,
        Self::Proxy,
        Self::Channels,
        Self::Stacks,
        Self::Devices,
        Self::Host,
    ];

    /// Whether it is recorded unless asked otherwise: all but those that cost something.
    #[must_use]
    pub fn is_usual(self) -> bool {
        !matches!(self, Self::Memory | Self::Proxy | Self::Channels | Self::Stacks)
    }

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Copies => "copies",
            Self::Memsets => "memsets",
            Self::Calls => "calls",
            Self::Synchronizations => "synchronizations",
            Self::Collectives => "collectives",
            Self::Ranges => "ranges",
            Self::Overheads => "overheads",
            Self::Modules => "modules",
            Self::Memory => "memory",
            Self::Proxy => "proxy",
            Self::Channels => "channels",
            Self::Stacks => "stacks",
            Self::Devices => "devices",
            Self::Host => "host",
        }
    }

    /// The kind of this word.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Which steps are recorded, as PyTorch's profiler counts them: `wait` steps nothing, `warmup` steps nothing but with
/// everything switched on, `active` steps recorded, and that `repeat` times (0: until the end).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Schedule {
    /// Steps that are left alone.
    pub wait: u64,
    /// Steps during which recording is switched on and what comes is thrown away.
    pub warmup: u64,
    /// Steps that are recorded.
    pub active: u64,
    /// How many times; 0 for ever.
    pub repeat: u64,
}

/// How CUDA graphs are recorded. CUPTI settles this once for a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GraphLevel {
    /// Each node's kernel or copy is a row.
    #[default]
    Node,
    /// Each launch of a graph is one row.
    Graph,
}

/// Everything that the collector is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CollectorOptions {
    /// The words of the kinds to record ([`Kind::name`]); `None` for the usual ones. A word that is not known is ignored.
    pub kinds: Option<Vec<String>>,
    /// Memory that the collector may use in each process, in bytes.
    pub memory_bytes: u64,
    /// Record only the active steps of a schedule.
    pub schedule: Option<Schedule>,
    /// Record only these steps, counted from 0, both included.
    pub steps: Option<(u64, u64)>,
    /// Record only inside NVTX ranges of this name.
    pub range: Option<String>,
    /// Record only these ranks.
    pub ranks: Option<Vec<u32>>,
    /// How graphs are recorded.
    pub graphs: GraphLevel,
    /// Whether cudaProfilerStart and -Stop (cuProfilerStart, -Stop) begin and end what is recorded; nothing is before the first.
    pub profiler_calls: bool,
    /// Switch off on alternate blocks of so many steps, to measure what recording costs.
    pub measure_overhead_steps: Option<u64>,
    /// Begin new files once those written hold so many bytes, so that the recorder can remove the oldest.
    pub segment_bytes: Option<u64>,
    /// Write command lines and variables as they are, with what looks like a secret.
    pub keep_arguments: bool,
    /// Make files as the umask allows, not for their owner alone.
    pub follow_umask: bool,
}

impl Default for CollectorOptions {
    fn default() -> Self {
        Self {
            kinds: None,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            schedule: None,
            steps: None,
            range: None,
            ranks: None,
            graphs: GraphLevel::Node,
            profiler_calls: false,
            measure_overhead_steps: None,
            segment_bytes: None,
            keep_arguments: false,
            follow_umask: false,
        }
    }
}

impl CollectorOptions {
    /// From the text of [`OPTIONS_VARIABLE`].
    ///
    /// # Errors
    /// Why the text is not understood, as a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("{OPTIONS_VARIABLE} is not understood: {error}"))
    }

    /// The text for [`OPTIONS_VARIABLE`].
    #[must_use]
    pub fn to_text(&self) -> String {
        // Plain members: writing them as JSON cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether a kind is to be recorded.
    #[must_use]
    pub fn records(&self, kind: Kind) -> bool {
        match &self.kinds {
            Some(words) => words.iter().any(|word| word == kind.name()),
            None => kind.is_usual(),
        }
    }

    /// Whether steps decide what is recorded.
    #[must_use]
    pub fn needs_steps(&self) -> bool {
        self.schedule.is_some() || self.steps.is_some() || self.measure_overhead_steps.is_some()
    }

    /// Whether only parts of the run are recorded, so that windows have to be kept.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.needs_steps() || self.range.is_some() || self.profiler_calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_as_they_were() {
        let options = CollectorOptions {
            kinds: Some(vec!["kernels".to_owned(), "memory".to_owned()]),
            memory_bytes: 64 << 20,
            schedule: Some(Schedule {
                wait: 1,
                warmup: 1,
                active: 3,
                repeat: 2,
            }),
            steps: Some((5, 9)),
            range: Some("train \"it\"".to_owned()),
            ranks: Some(vec![0, 8]),
            graphs: GraphLevel::Graph,
            profiler_calls: true,
            measure_overhead_steps: Some(10),
            segment_bytes: Some(1 << 20),
            keep_arguments: true,
            follow_umask: true,
        };
        assert_eq!(CollectorOptions::parse(&options.to_text()), Ok(options));
    }

    #[test]
    fn what_is_missing_is_as_usual_and_what_is_unknown_is_ignored() {
        let options = CollectorOptions::parse(r#"{"later": [1], "memory_bytes": 5}"#);
        let expected = CollectorOptions {
            memory_bytes: 5,
            ..CollectorOptions::default()
        };
        assert_eq!(options, Ok(expected));
        assert!(CollectorOptions::parse("{").is_err());
    }

    #[test]
    fn usual_kinds_are_those_that_cost_little() {
        let options = CollectorOptions::default();
        assert!(options.records(Kind::Kernels) && !options.records(Kind::Proxy));
        let only = CollectorOptions {
            kinds: Some(vec!["proxy".to_owned(), "unheard-of".to_owned()]),
            ..CollectorOptions::default()
        };
        assert!(only.records(Kind::Proxy) && !only.records(Kind::Kernels));
    }

    #[test]
    fn every_kind_has_one_word() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
            let json = serde_json::to_string(&kind).expect("a word");
            assert_eq!(json, format!("\"{}\"", kind.name()));
        }
    }
}
