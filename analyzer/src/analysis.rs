//! The analysis of a recording, as programs read it.

use std::collections::BTreeMap;

use gputrace_trace::Loss;
use gputrace_trace::hang::Hang;
use gputrace_trace::measures::{Measure, Measures};
use serde::{Deserialize, Serialize};

use crate::arrivals::{ArrivalAnalysis, CollectiveSize};
use crate::clock_analysis::ClockAnalysis;
use crate::collectives::Collective;
use crate::communication::CommunicationAnalysis;
use crate::communicators::CommunicatorAnalysis;
use crate::copies::CopyAnalysis;
use crate::finding::Finding;
use crate::graph::path::CriticalPath;
use crate::idle::StreamAnalysis;
use crate::idle_causes::Gap;
use crate::job_ranks::JobRanks;
use crate::kernels::{KernelAnalysis, KindAnalysis};
use crate::launches::LaunchAnalysis;
use crate::memory::MemoryAnalysis;
use crate::operators::Attribution;
use crate::overhead::RecordingOverhead;
use crate::parts::Parts;
use crate::queues::QueueAnalysis;
use crate::recording_cost::RecordingCost;
use crate::state::{DeviceState, HostState};
use crate::step_summary::{JobStep, StepSummary};
use crate::steps::StepAnalysis;
use crate::transfers::TransferAnalysis;
use crate::unfinished::UnfinishedOperation;

/// One rank's device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankAnalysis {
    /// The rank in the job, where it is known.
    pub rank: Option<u32>,
    /// Device index within the process.
    pub device_index: u32,
    /// The device's name, where it is known.
    pub device_name: Option<String>,
    /// Host of the process.
    pub host: String,
    /// From the run's first operation (on any device) to this device's; null where the ranks' times do not overlap.
    pub idle_before_ns: Option<i64>,
    /// From this device's last operation to the run's; null where the ranks' times do not overlap.
    pub idle_after_ns: Option<i64>,
    /// The measures over the whole span.
    #[serde(flatten)]
    pub measures: Measures,
    /// What the span is made of; the parts sum to `span_ns`.
    pub parts: Parts,
    /// Idle time by cause; the parts sum to `idle_ns`.
    pub idle_causes: BTreeMap<String, i64>,
    /// The cause `host_late` by what the launching thread was doing; the parts sum to it.
    pub host_late_by: BTreeMap<String, i64>,
    /// The longest gaps, longest first.
    pub longest_gaps: Vec<Gap>,
    /// By stream.
    pub streams: Vec<StreamAnalysis>,
    /// By kind.
    pub kinds: Vec<KindAnalysis>,
    /// By name.
    pub kernels: Vec<KernelAnalysis>,
    /// By communicator and collective.
    pub communication: Vec<CommunicationAnalysis>,
    /// By direction and pair of places.
    pub copies: Vec<CopyAnalysis>,
    /// By launching call.
    pub launches: Vec<LaunchAnalysis>,
    /// How full the streams' queues were.
    pub queues: Vec<QueueAnalysis>,
    /// Device memory; null where it is not recorded.
    pub memory: Option<MemoryAnalysis>,
    /// By who launched it: operators, modules, Python stacks.
    #[serde(flatten)]
    pub attribution: Attribution,
    /// By training step.
    pub steps: Vec<StepAnalysis>,
    /// The steps summed up; null without steps.
    pub step_summary: Option<StepSummary>,
}

/// Everything that is known of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// "gputrace.analysis/1".
    pub schema: &'static str,
    /// Where the recording is.
    pub source: String,
    /// "cuda", "sim" or "imported"; "unknown" where nothing is left that says.
    pub device: String,
    /// What the recorded command ended with, as a shell gives it (128 and the signal's number for a signal); null where that
    /// isn't known.
    pub exit_status: Option<i32>,
    /// How many of the job's ranks all numbers are of, and which are missing.
    pub job_ranks: JobRanks,
    /// The job's step, over all ranks; null without steps.
    pub step: Option<JobStep>,
    /// One entry for each rank and device, by rank.
    pub ranks: Vec<RankAnalysis>,
    /// Who launched what over all of `ranks`: sums by name, shape, size or place in a tree. Null where there is one alone, or
    /// nobody is known.
    pub over_ranks: Option<Attribution>,
    /// Matched over ranks, by when they were enqueued.
    pub collectives: Vec<Collective>,
    /// Who is in which communicator, and what it cost; those first that a rank waits longest on without computing.
    pub communicators: Vec<CommunicatorAnalysis>,
    /// Sends and receives by pair of ranks.
    pub transfers: Vec<TransferAnalysis>,
    /// How fast collectives of each kind and size went, where the source says their bytes.
    pub collective_sizes: Vec<CollectiveSize>,
    /// How each rank came to its collectives.
    pub arrivals: Vec<ArrivalAnalysis>,
    /// The catalogue of measures: what of `ranks` and their `steps` is one, and what each means.
    pub measures: &'static [Measure],
    /// What is assumed of the ranks' clocks wherever ranks are compared.
    pub clock: String,
    /// Each clock that stamped the recording, by its lowest rank.
    pub clocks: Vec<ClockAnalysis>,
    /// Median difference between the first and the last rank's end of collectives that no rank can leave early: about as
    /// much can clocks differ. Null without such collectives.
    pub clock_end_spread_ns: Option<i64>,
    /// Operations that ranks waited in and that never ended: those first that explain others.
    pub hangs: Vec<Hang>,
    /// What had begun and not ended when the recording did; of each process the first hundred.
    pub unfinished: Vec<UnfinishedOperation>,
    /// What recording cost each process, as its collector measured it itself.
    pub recording_cost: Vec<RecordingCost>,
    /// What recording added to the steps; null where it was not switched off and on to measure that.
    pub recording_overhead: Option<RecordingOverhead>,
    /// The GPUs while the run went on, as the recorder sampled them.
    pub device_state: Vec<DeviceState>,
    /// The processes' host side while the run went on, likewise.
    pub host_state: Vec<HostState>,
    /// What the steps' time was spent on, over all ranks; null where nothing ran, or where a single step is too much to follow.
    pub critical_path: Option<CriticalPath>,
    /// Hangs first, then by what mending them surely saves, then by what it may save.
    pub findings: Vec<Finding>,
    /// What was lost, while recording and in the analysis.
    pub losses: Vec<Loss>,
    /// What was ignored, rebuilt or assumed.
    pub notes: Vec<String>,
}

impl Analysis {
    /// Who launched what over all ranks; `None` where nobody is known.
    #[must_use]
    pub fn attribution(&self) -> Option<&Attribution> {
        let of_one = || self.ranks.first().map(|rank| &rank.attribution);
        self.over_ranks
            .as_ref()
            .or_else(of_one)
            .filter(|all| all.unattributed.is_some())
    }

    /// Keeps of each device's kernels the first `top`, in the order in which they are.
    pub fn keep_top_kernels(&mut self, top: usize) {
        for rank in &mut self.ranks {
            rank.kernels.truncate(top);
        }
    }
}
