//! What each finding is and names, for programs: its sentences are for people.

use std::collections::BTreeMap;

use serde::Serialize;

/// The code of a finding, and what it names. The codes do not change; in the JSON they are in small letters with
/// underscores ("exposed_communication").
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "code", content = "facts", rename_all = "snake_case")]
pub enum Facts {
    /// An operation of a communicator that ranks wait in does not end.
    Hang {
        /// The communicator's hash, in hexadecimal.
        communicator: String,
        /// Its name, where it has one.
        communicator_name: Option<String>,
        /// "AllReduce", ..., "Send" or "Recv".
        operation: String,
        /// NCCL's number of it.
        sequence: Option<u64>,
        /// The ranks that wait in it, those that are known.
        waiting: Vec<u32>,
        /// The ranks that it waits for, those that are known.
        absent: Vec<u32>,
        /// Hangs that this one explains.
        followed_by: usize,
    },
    /// Communication is not hidden behind compute.
    ExposedCommunication {
        /// Communication without compute.
        exposed_ns: i64,
        /// All communication.
        communication_ns: i64,
        /// The collective that is exposed most, where any is known: "AllReduce", ...
        collective: Option<String>,
        /// Its communicator's hash, in hexadecimal, or "unknown".
        communicator: Option<String>,
        /// How much of it is exposed.
        collective_exposed_ns: Option<i64>,
    },
    /// The GPU waits for the host to launch work.
    HostLate {
        /// Idle time before the next launch was called.
        idle_ns: i64,
        /// What the launching thread was doing, as in `host_late_by`.
        by: BTreeMap<String, i64>,
    },
    /// Streams wait for events of other streams while the GPU is idle.
    EventWait {
        /// Idle time by this cause.
        idle_ns: i64,
    },
    /// The host waits for other ranks while the GPU is idle.
    PeerWait {
        /// Idle time by this cause.
        idle_ns: i64,
    },
    /// Launches wait for room in a stream's queue while the GPU is idle.
    QueueFull {
        /// Idle time by this cause.
        idle_ns: i64,
    },
    /// No thread submits anything while the GPU is idle.
    NothingSubmitted {
        /// Idle time by this cause.
        idle_ns: i64,
    },
    /// Most kernels are shorter than a launch takes.
    ShortKernels {
        /// Compute kernels of names whose mean is short.
        short: usize,
        /// All compute kernels.
        kernels: usize,
        /// What is short: a mean below this.
        below_ns: i64,
        /// Idle time around launches.
        idle_ns: i64,
    },
    /// Copies are far from what their link carries.
    SlowCopies {
        /// "HtoD", ...
        direction: String,
        /// Where they come from: as in `copies`.
        source: String,
        /// Where they go to.
        destination: String,
        /// How many.
        count: usize,
        /// Bytes in all.
        bytes: u64,
        /// Time with one of them.
        time_ns: i64,
        /// What they reach, GB/s.
        bandwidth: Option<f64>,
        /// What the link carries, GB/s.
        nominal_bandwidth: Option<f64>,
        /// The link's name.
        link: Option<String>,
    },
    /// Copies go through pageable memory.
    PageableCopies {
        /// How many.
        count: usize,
        /// Sum of their durations.
        total_ns: i64,
    },
    /// A rank computes longer than the others.
    UnevenCompute {
        /// Its `compute_ns`.
        compute_ns: i64,
        /// The mean of the others'.
        others_ns: i64,
    },
    /// Some steps take much longer than the others.
    UnevenSteps {
        /// The names of the longer ones.
        steps: Vec<String>,
        /// How many steps there are.
        count: usize,
        /// The median of their durations.
        median_ns: i64,
    },
    /// Kernels' sizes differ from rank to rank: one has more to do than another.
    UnevenWork {
        /// What the rank with most of it computes of these kernels in a step.
        most_ns: i64,
        /// The mean of all ranks.
        mean_ns: i64,
        /// Whether another rank has most in most steps: no one rank is to blame.
        differs_by_step: bool,
    },
    /// The host waits for the GPU within the step.
    Synchronization {
        /// The call that waits most.
        name: String,
        /// Calls of it in a step and rank, but for the step's last wait.
        count: usize,
        /// How long they wait, in a step and rank.
        waits_ns: i64,
    },
    /// Many small collectives, of which each costs a fixed time.
    SmallCollectives {
        /// "AllReduce", ...
        collective: String,
        /// The communicator's hash, in hexadecimal.
        communicator: String,
        /// How many in a step and rank.
        count: usize,
        /// Their bytes in the mean.
        mean_bytes: f64,
        /// What each costs without its bytes.
        fixed_ns: i64,
    },
    /// A rank began its first step long after the others.
    LateStart {
        /// How long after the last but one.
        late_ns: i64,
    },
    /// Ranks take longer than the others for the same things, and the others wait for them.
    SlowRank {
        /// "kernel", "copy", "memset", "host" or "call": what most of it is.
        by: String,
        /// The name of what takes most of it.
        name: String,
        /// What that takes these ranks in the mean, in a step.
        own_ns: i64,
        /// What it takes the others.
        others_ns: i64,
        /// How long each other rank waits for these in collectives, in the mean of a step.
        waited_ns: i64,
    },
    /// The collectives of one communicator take longer than those of others like it.
    SlowCommunicator {
        /// Its hash, in hexadecimal.
        communicator: String,
        /// Its name, where it has one.
        communicator_name: Option<String>,
        /// What its transfers take in a step.
        own_ns: i64,
        /// What those of the others take, or what they should.
        others_ns: i64,
        /// What the NVLinks between its ranks carry, GB/s in one direction; null where that is not known.
        link_gb_per_s: Option<f64>,
    },
    /// A rank keeps the others waiting.
    LateRank {
        /// Collectives at which it arrived last,
        last_count: usize,
        /// of so many.
        collectives: usize,
        /// How long the first rank waited for it, summed over those.
        skew_ns: i64,
        /// What of that it alone cost.
        cost_ns: i64,
    },
    /// A GPU's clock is held down.
    ClockHeldDown {
        /// The GPU's host.
        host: String,
        /// NVML's index of the GPU there.
        index: u32,
        /// The share of samples in which it was held down.
        share: f64,
        /// Its clock then, MHz.
        clock_mhz: f64,
        /// The greatest clock seen, MHz.
        greatest_mhz: f64,
        /// By reason, the share of samples in which NVML gave it.
        reasons: BTreeMap<String, f64>,
    },
    /// The thread that launches work waits for a processor.
    StarvedThread {
        /// The thread's id.
        thread: u32,
        /// Its name.
        name: String,
        /// The share of time in which it could have run and had no processor.
        run_delay_ratio: f64,
        /// Idle time of the GPU in which nothing was launched.
        idle_ns: i64,
    },
    /// The process waits for pages from the disk.
    DiskFaults {
        /// Page faults a second that needed the disk, in the mean.
        mean_per_second: f64,
        /// The most in a second.
        max_per_second: f64,
        /// Idle time of the GPU in which nothing was launched.
        idle_ns: i64,
    },
}
