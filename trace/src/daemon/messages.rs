//! What is said.

use serde::{Deserialize, Serialize};

use crate::options::CollectorOptions;

/// The first packet of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hello {
    /// A collector: from here on [`FromCollector`] and [`ToCollector`].
    Collector {
        /// The version of gputrace that the collector is of.
        version: String,
    },
    /// A client, with all that it wants: from here on [`Answer`]s.
    Client(Ask),
}

/// What a process's job may be known by. It joins processes of one user only, so that nobody gets into another's job by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobKey {
    /// What the processes of one run have in common: a scheduler's job and step, torchrun's run, a rendezvous, or the parent.
    pub group: String,
    /// A scheduler's own number of the job, as users know it (`slurm-1234`).
    pub scheduler: Option<String>,
    /// The program's name, without its folder.
    pub program: String,
}

/// What a collector says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromCollector {
    /// It wants to record: answered with [`ToCollector::Welcome`] or [`ToCollector::Refused`].
    Join {
        /// Its process's folder, as it would name it (HOST-PID-START). A process that comes again has the same.
        folder: String,
        /// The first segment that it may write: above those that it has written.
        segment: u32,
        /// What its job is known by.
        job: JobKey,
        /// The process's number where it runs; in a container not what the daemon sees.
        pid: u32,
        /// Its rank, where that is known already.
        rank: Option<u32>,
        /// Ranks of the job, where that is known already.
        world_size: Option<u32>,
    },
    /// It begins a segment: answered with [`ToCollector::Made`] or [`ToCollector::Failed`]. The last one may be asked for again.
    Segment {
        /// Its number: one above the last.
        segment: u32,
    },
    /// It wants a file of a segment that it has begun to append to, made when it is not there: answered with [`ToCollector::Made`] and the
    /// descriptor, or [`ToCollector::Failed`].
    Open {
        /// The table ([`crate::tables::TABLE_NAMES`]).
        table: String,
        /// The segment; none: the one that was begun last.
        #[serde(default)]
        segment: Option<u32>,
    },
    /// The text of its header (process.json) of the segment: in several packets where it is long, the last one `done`.
    Header {
        /// Which segment's.
        segment: u32,
        /// The text, or the next part of it.
        text: String,
        /// Whether this is the first part: what came of one before it was not whole.
        #[serde(default)]
        first: bool,
        /// Whether this is the last part.
        done: bool,
    },
    /// What happened since the last report: when something changed, twice a second at most.
    Report {
        /// Steps that have ended, in order.
        steps: Vec<StepReport>,
        /// Sums over the process's life.
        totals: Totals,
    },
    /// A [`ToCollector::Cut`] was done: this segment and those before it are whole.
    Cut {
        /// The last of them.
        segment: u32,
    },
    /// A [`ToCollector::Capture`] is over: all of it is on the disk.
    Captured(Captured),
    /// The process ends as it should. A connection that ends without it is of a process that died.
    Leave,
}

/// A step that has ended on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepReport {
    /// The number in its name, where it has one; else counted from 0 by the collector.
    pub number: u64,
    /// When the host began it, nanoseconds since 1970.
    pub start_ns: i64,
    /// Until it began the next.
    pub duration_ns: i64,
    /// Time in it in which a collective or transfer of NCCL was under way on the device (a union, by the host's notice); null where
    /// NCCL does not tell.
    pub communication_ns: Option<i64>,
    /// Time in it in which a kernel of another kind ran (a union); null unless kernels were recorded throughout.
    pub compute_ns: Option<i64>,
    /// Of [`Self::communication_ns`] by kernels, what no other kernel ran beside; null unless kernels were recorded throughout.
    pub exposed_ns: Option<i64>,
    /// Time in it without any operation on the device; null unless kernels were recorded throughout.
    pub idle_ns: Option<i64>,
}

/// Sums over a process's life, and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Its rank by now.
    pub rank: Option<u32>,
    /// Ranks of the job by now.
    pub world_size: Option<u32>,
    /// GPUs by their number on the host, as NVML counts them; empty until one is used.
    pub devices: Vec<u32>,
    /// Steps that it has told of, and those that it could not tell of: whoever has heard of fewer has missed the rest.
    pub steps: u64,
    /// Rows that were lost.
    pub lost_rows: u64,
    /// Rows written.
    pub rows: u64,
    /// CPU time of the collector's own thread, nanoseconds.
    pub cpu_ns: u64,
    /// Collectives and transfers that were enqueued.
    pub enqueued: u64,
    /// Of these, how many have ended, where NCCL tells.
    pub finished: Option<u64>,
    /// Whether kernels are recorded now.
    pub records_kernels: bool,
}

/// What the daemon says to a collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToCollector {
    /// It may record.
    Welcome {
        /// How.
        options: Box<CollectorOptions>,
        /// The recording's number ([`crate::manifest::Manifest::recording`]).
        recording: String,
        /// Whether kernels are recorded from the beginning to the end; else in captures alone, and CUPTI is left alone until then.
        full: bool,
    },
    /// It may not.
    Refused {
        /// Why, as a sentence.
        why: String,
    },
    /// What it asked for was made; a file's descriptor is beside it.
    Made,
    /// What it asked for can't be.
    Failed {
        /// Why.
        why: String,
    },
    /// Write out what there is, begin a new segment, and say so: [`FromCollector::Cut`].
    Cut,
    /// Record kernels for a while.
    Capture(Capture),
}

/// For how long kernels are recorded. It ends by itself, and at once when the daemon is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capture {
    /// The daemon's number of it.
    pub id: u64,
    /// From the next step that begins, so many steps; null: by time alone.
    pub steps: Option<u64>,
    /// For so long at most, nanoseconds.
    pub most_ns: i64,
    /// Only these kinds, by the words of [`crate::options::Kind`]; null: those that [`ToCollector::Welcome`] said.
    pub kinds: Option<Vec<String>>,
    /// Whether the next follows soon, so that it is not worth it to let CUPTI go in between.
    pub repeats: bool,
}

/// How a capture ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Captured {
    /// The daemon's number of it.
    pub id: u64,
    /// Whole steps in it.
    pub steps: u64,
    /// From when on kernels were recorded, nanoseconds since 1970.
    pub start_ns: i64,
    /// Until when.
    pub end_ns: i64,
    /// Why there is less than was asked for, if there is.
    pub why: Option<String>,
}

/// How much of a job is recorded all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Steps, ranges and collectives as NCCL and NVTX tell of them; CUPTI is left alone.
    #[default]
    Steps,
    /// That, and the kernels of one step in some.
    Sampled,
    /// Everything.
    Full,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Steps, Self::Sampled, Self::Full];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Sampled => "sampled",
            Self::Full => "full",
        }
    }
}

/// What is kept, and for how long, of one capture or snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// From the next step that begins, so many steps.
    pub steps: Option<u64>,
    /// For so long, seconds; with steps: at most.
    pub seconds: Option<f64>,
    /// Only these ranks.
    pub ranks: Option<Vec<u32>>,
    /// Only these kinds ([`crate::options::Kind`]).
    pub kinds: Option<Vec<String>>,
}

/// What a client wants. A job is named by its id or the beginning of it; none: the only one there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// The jobs that the caller may see, as "gputrace.jobs/1".
    Jobs,
    /// One job in detail, as "gputrace.job/1": each rank's last steps, state and GPUs.
    Job {
        /// Which.
        job: Option<String>,
    },
    /// Kernels of the next while, as a recording.
    Capture {
        /// Which job.
        job: Option<String>,
        /// How much.
        limits: Limits,
        /// Whether the answer comes when it is done.
        wait: bool,
    },
    /// What the ring holds, as a recording.
    Snapshot {
        /// Which job.
        job: Option<String>,
        /// Of the last so many seconds; none: all of it.
        last_s: Option<f64>,
    },
    /// A recording's files, each as an [`Answer::File`] with its descriptor.
    Fetch {
        /// Its name, as capture and snapshot said it.
        recording: String,
    },
    /// The triggers that are set, and when each fired for a job, as "gputrace.triggers/1".
    Triggers {
        /// Which job.
        job: Option<String>,
    },
    /// Keep a recording whatever the rules say, or not any more.
    Pin {
        /// Its name.
        recording: String,
        /// Whether.
        pinned: bool,
    },
    /// The recordings that the daemon has kept, as "gputrace.captures/1".
    Captures,
}

/// What the daemon answers a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// A JSON document, or the next part of it.
    Text {
        /// The text.
        text: String,
        /// Whether this was the last part.
        done: bool,
    },
    /// A file, with its descriptor beside it.
    File {
        /// Its path within the recording.
        path: String,
    },
    /// All is said.
    Done,
    /// It can't be done.
    Failed {
        /// Why, and what to do, as a sentence.
        why: String,
    },
}
