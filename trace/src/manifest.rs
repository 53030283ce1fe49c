//! The two JSON files of a recording: `manifest.json`, one a recording, and `process.json`, one a process.
//!
//! Both are replaced whole (written aside, then renamed), so a reader never sees half of one. Unknown members of
//! newer minor versions are ignored; a newer major version is refused. From version 1.1 on each ends with a checksum.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::alignment::ClockEstimate;
use crate::hang::Hang;
use crate::options::CollectorOptions;
use crate::redact;
use crate::seal::{Identity, id_text};
use crate::topology::Topology;

/// The `format` member of every manifest.
pub const FORMAT: &str = "gputrace.recording";
/// The version that this crate writes.
pub const VERSION: Version = Version { major: 1, minor: 1 };
/// From this minor version on files have checksums.
const CHECKED_MINOR: u32 = 1;
/// The manifest's file name.
pub const MANIFEST_FILE: &str = "manifest.json";
/// Whether a file of a recording is a manifest, by its name: each recorder that shares the folder has its own.
#[must_use]
pub fn is_manifest_name(name: &str) -> bool {
    name == MANIFEST_FILE || name.starts_with("manifest-") && name.ends_with(".json")
}

/// The process header's file name.
pub const PROCESS_FILE: &str = "process.json";

/// A format version: readers of the same major version read it, ignoring what they don't know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Changes when old readers would read wrongly.
    pub major: u32,
    /// Changes when something is added.
    pub minor: u32,
}

impl Version {
    /// Whether files of this version have checksums.
    #[must_use]
    pub fn has_checksums(self) -> bool {
        self.major > 1 || self.minor >= CHECKED_MINOR
    }
}

/// Something lost: never zero, never silent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossEntry {
    /// What was lost, in a few words.
    pub what: String,
    /// How many; `None` where that can't be known.
    pub count: Option<u64>,
    /// Which numbers it touches.
    pub affects: String,
}

/// `manifest.json`: what is true of the whole recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the format.
    pub version: Version,
    /// Version of gputrace that wrote it.
    pub gputrace: String,
    /// A random number of the recording, 16 hexadecimal digits: its processes' headers have it too.
    pub recording: String,
    /// The numbers of the recordings that were merged into this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<String>,
    /// "recording" while it grows, "complete" after, "rebuilt" when the file was missing.
    pub state: String,
    /// The launch that the recorder was started with together with others: "slurm JOB STEP", ...; recorders of one launch
    /// share a recording.
    pub launch: Option<String>,
    /// What was asked to be recorded.
    pub options: CollectorOptions,
    /// What the recorder does by itself.
    pub recorder: RecorderOptions,
    /// When the recorder switched recording on and off; nothing where it was on throughout.
    pub switches: Vec<Switch>,
    /// How the hosts' GPUs are connected.
    pub topology: Vec<Topology>,
    /// "cuda", "sim" or "imported"; "unknown" where it was rebuilt and no process's header is left to say.
    pub device: String,
    /// The command that was recorded.
    pub command: Vec<String>,
    /// Host name.
    pub host: String,
    /// Start, nanoseconds since the epoch.
    pub started_ns: i64,
    /// End; `None` while it grows or when the recorder was killed.
    pub ended_ns: Option<i64>,
    /// The command's exit status as a shell gives it.
    pub exit_status: Option<i32>,
    /// After how long without any finished operation the recorder looked for hangs, nanoseconds; 0 for never, `None` where no
    /// recorder looked.
    pub hang_after_ns: Option<i64>,
    /// The hangs that the recorder noticed.
    pub hangs: Vec<Hang>,
    /// Whether the recorder ended the command because of one.
    pub ended_on_hang: bool,
    /// NCCL_*, CUDA_* and SIMGPU_* variables of the command.
    pub environment: BTreeMap<String, String>,
    /// Rows of each process's tables at the end, by process folder and table.
    pub rows: BTreeMap<String, BTreeMap<String, u64>>,
    /// How the clocks of several hosts were found to stand when the recording was closed or merged. Stamps are as they came: whoever
    /// reads them compares clocks anew.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<ClockEstimate>,
    /// What the recorder knows to be lost.
    pub losses: Vec<LossEntry>,
    /// What could not be recorded and why, and other things worth knowing.
    pub notes: Vec<String>,
    /// Why a daemon kept this of a job that it watches; `None` in recordings of a recorder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// Why, and of what, a daemon kept a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// What was found, or who asked, as a sentence.
    pub title: String,
    /// The rule that fired; "capture" or "snapshot" where somebody asked.
    pub trigger: String,
    /// The job, as the daemon calls it.
    pub job: String,
    /// From when on it holds what was asked for, nanoseconds since the epoch; earlier rows may be in it too.
    pub start_ns: i64,
    /// Until when.
    pub end_ns: i64,
    /// Ranks whose part is missing or shorter than asked, and why.
    pub missing: Vec<String>,
}

/// What the recorder was asked that is not for the collector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecorderOptions {
    /// Samples of devices and hosts a second; 0 for none.
    pub sample_hz: f64,
    /// Seconds after the command's start before recording begins.
    pub delay_s: Option<f64>,
    /// Seconds of recording, after which it is switched off.
    pub duration_s: Option<f64>,
    /// Bytes that the recording may hold; the oldest are removed.
    pub max_size_bytes: Option<u64>,
}

/// Recording was switched on or off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Switch {
    /// When, nanoseconds since the epoch.
    pub time_ns: i64,
    /// Whether it was switched on.
    pub on: bool,
    /// What did it: "--delay", "--duration", "SIGUSR1".
    pub by: String,
}

/// One GPU that a process could see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Index within the process.
    pub index: u32,
    /// The name; a stand-in's begins with "Simulated".
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Memory bandwidth in bytes a second.
    pub memory_bandwidth_bytes_per_s: Option<u64>,
    /// UUID as 32 hexadecimal digits.
    pub uuid: Option<String>,
    /// What a multiprocessor holds at most.
    pub limits: Option<Limits>,
}

/// What one multiprocessor of a device, and one block on it, can hold: what occupancy follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Threads a warp.
    pub warp_threads: u32,
    /// Warps that a multiprocessor runs at a time.
    pub warps: u32,
    /// Blocks that it runs at a time.
    pub blocks: u32,
    /// Its registers.
    pub registers: u32,
    /// Its shared memory, bytes.
    pub shared_bytes: u32,
    /// Registers that a block may have.
    pub registers_a_block: u32,
    /// Shared memory that a block has without asking for more, bytes.
    pub shared_bytes_a_block: u32,
    /// Threads that a block may have.
    pub threads_a_block: u32,
}

/// Callbacks of one kind: the program's threads inside the collector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallbackCost {
    /// How many there were, but for fewer than 64 on each thread.
    pub calls: u64,
    /// How many of them were timed.
    pub samples: u64,
    /// Nanoseconds in all of them, by the samples.
    pub time_ns: u64,
    /// The longest that was timed, nanoseconds.
    pub longest_ns: u64,
}

/// What recording cost in one process, as the collector measured it itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CollectorCost {
    /// Nanoseconds since the collector began.
    pub wall_ns: u64,
    /// CPU time of the whole process, the collector in it, nanoseconds.
    pub process_cpu_ns: u64,
    /// CPU time of the collector's own threads, nanoseconds.
    pub own_cpu_ns: u64,
    /// Callbacks on the program's threads (and CUPTI's) by their kind: "buffers", "nvtx", "nccl", "calls", "others", "stacks".
    pub callbacks: BTreeMap<String, CallbackCost>,
    /// Buffers that CUPTI asked for.
    pub buffers_requested: u64,
    /// Buffers that CUPTI gave back.
    pub buffers_completed: u64,
    /// Buffers that CUPTI asked for in vain.
    pub buffers_refused: u64,
    /// Bytes of records that CUPTI delivered.
    pub bytes_from_cupti: u64,
    /// Records in them.
    pub records: u64,
    /// Driver calls among them that are no rows, since a runtime call made them.
    pub folded_calls: u64,
    /// Rows written, of all tables.
    pub rows: u64,
    /// Bytes of them on the disk.
    pub bytes_written: u64,
    /// The most memory that the collector's buffers, queues and waiting rows took at a time, bytes.
    pub peak_memory_bytes: u64,
    /// How often CUPTI was asked for its buffers.
    pub flushes: u64,
    /// Nanoseconds that this took in all.
    pub flush_ns: u64,
    /// Nanoseconds of the longest.
    pub longest_flush_ns: u64,
}

impl CollectorCost {
    /// Nanoseconds of the program's threads inside callbacks.
    #[must_use]
    pub fn callback_ns(&self) -> u64 {
        self.callbacks.values().map(|cost| cost.time_ns).sum()
    }
}

/// A thread that was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Its process.
    pub pid: u32,
    /// Its own number (`gettid`).
    pub thread: u32,
    /// The name that the kernel has of it, 15 bytes at most.
    pub name: String,
}

/// The role of a folder that holds a host's samples.
pub const HOST_ROLE: &str = "host";

/// `process.json`: what is true of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessHeader {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the format.
    pub version: Version,
    /// "rank" (or nothing) for a process of the command; "host" for what the recorder sampled of a host itself.
    pub role: String,
    /// The recording that it belongs to: [`Manifest::recording`]; empty where nobody said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub recording: String,
    /// A random number of the process, 16 hexadecimal digits: its tables' files have it too.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// The folder that the file was written into; empty once it was read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// Which part of the process the folder holds, counted from 0; 0 once it was read.
    #[serde(skip_serializing_if = "is_zero")]
    pub segment: u32,
    /// Host name.
    pub host: String,
    /// The kernel's number of the host's boot (`boot_id`): clocks of two boots have nothing in common but the time of day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Which of [`Recording::clocks`](crate::Recording::clocks) stamped it, once they were compared; never on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<u32>,
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub parent_pid: u32,
    /// The command line.
    pub command: Vec<String>,
    /// When the collector was injected, nanoseconds since the epoch.
    pub started_ns: i64,
    /// When the collector closed its files; `None` for a process that was killed or still runs.
    pub ended_ns: Option<i64>,
    /// Global rank.
    pub rank: Option<u32>,
    /// Ranks in all.
    pub world_size: Option<u32>,
    /// Rank within the host.
    pub local_rank: Option<u32>,
    /// Where the rank comes from: "RANK", "OMPI_COMM_WORLD_RANK", ...
    pub rank_source: Option<String>,
    /// CUPTI's version number.
    pub cupti_version: Option<u32>,
    /// How CUPTI recorded: `activity` or `user-defined records`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cupti_backend: Option<String>,
    /// Why it was not the other way, where that was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cupti_backend_why: Option<String>,
    /// CUDA driver's version number.
    pub driver_version: Option<u32>,
    /// NCCL profiler plugin version in use: 4 to 7.
    pub nccl_profiler_version: Option<u32>,
    /// GPUs; of a host's samples those of the host, by NVML's index.
    pub devices: Vec<Device>,
    /// Of a host's samples: the threads that were watched.
    pub threads: Vec<Thread>,
    /// NCCL_*, CUDA_* and SIMGPU_* variables.
    pub environment: BTreeMap<String, String>,
    /// Rows written when the process ended, by table.
    pub rows: BTreeMap<String, u64>,
    /// What could not be recorded and why.
    pub notes: Vec<String>,
    /// Windows of recording that have ended and are whole on the disk: rows of the `windows` table that are "active".
    pub windows: u64,
    /// Rows that were left out because they lay outside all windows, by table: no loss.
    pub left_out: BTreeMap<String, u64>,
    /// What recording has cost so far; `None` in recordings of others.
    pub collector: Option<CollectorCost>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Manifest {
    /// An empty manifest of this version.
    #[must_use]
    pub fn new() -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            ..Self::default()
        }
    }
}

impl Manifest {
    /// Hides what looks like a secret in the command and the variables, unless the recorder was told to keep it.
    pub fn redact(&mut self) {
        if !self.options.keep_arguments {
            redact::command(&mut self.command);
            redact::environment(&mut self.environment);
        }
    }

    /// Takes in the manifest of another recorder of the same recording.
    pub fn absorb(&mut self, other: Self) {
        if other.state == "recording" {
            self.state = other.state;
        }
        if other.recording != self.recording && !self.recording.is_empty() {
            self.merged.push(other.recording);
        }
        self.started_ns = self.started_ns.min(other.started_ns);
        self.ended_ns = self.ended_ns.zip(other.ended_ns).map(|(a, b)| a.max(b));
        // The first that failed; unknown where one is.
        self.exit_status = self
            .exit_status
            .zip(other.exit_status)
            .map(|(a, b)| if a == 0 { b } else { a });
        self.hang_after_ns = self.hang_after_ns.max(other.hang_after_ns);
        // What one recorder was told to keep is not what another was.
        self.options.keep_arguments &= other.options.keep_arguments;
        self.hangs.extend(other.hangs);
        self.ended_on_hang |= other.ended_on_hang;
        self.switches.extend(other.switches);
        self.topology.extend(other.topology);
        self.rows.extend(other.rows);
        for loss in other.losses {
            if !self.losses.contains(&loss) {
                self.losses.push(loss);
            }
        }
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

impl Identity {
    /// Says in the header of a process that `folder` is its own, and whose files are in it.
    pub fn sign(self, folder: &Path, header: &mut ProcessHeader) {
        header.process = id_text(self.process);
        header.segment = self.segment;
        header.folder = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
    }
}

impl ProcessHeader {
    /// Whether it is of a recorder, which samples host and devices, and no rank.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.role == HOST_ROLE
    }

    /// Hides what looks like a secret in the command and the variables.
    pub fn redact(&mut self) {
        redact::command(&mut self.command);
        redact::environment(&mut self.environment);
    }

    /// An empty header of this version.
    #[must_use]
    pub fn new() -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            ..Self::default()
        }
    }
}
