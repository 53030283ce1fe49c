//! What each finding is and names, for programs: its sentences are for people.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The code of a finding, and what it names. The codes do not change; in the JSON they are in small letters with
/// underscores ("exposed_communication").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Matrix products of one size are far slower than others like them, or than the device could be.
    SlowProduct {
        /// The operator: "aten::mm".
        name: String,
        /// Products a call.
        batch: u64,
        /// Rows of the result.
        m: u64,
        /// Its columns.
        n: u64,
        /// What is summed over.
        k: u64,
        /// The type of the first operand.
        dtype: String,
        /// How often it ran.
        calls: u64,
        /// Sum of durations of what it launched.
        time_ns: i64,
        /// How fast it is.
        flops_per_second: f64,
        /// How fast the fastest of like size is; null where none is far faster, and the device's limits are what it is far from.
        others_flops_per_second: Option<f64>,
        /// Its share of the device's peak rate; null where that is not known.
        peak_share: Option<f64>,
        /// "alignment" or "small", where its size says why.
        reason: Option<String>,
    },
    /// Matrix products in float32 on a device that has TF32.
    Tf32Off {
        /// How many.
        calls: u64,
        /// Sum of durations of what they launched.
        time_ns: i64,
    },
    /// The forward pass is done once more in the backward pass.
    Recomputation {
        /// Operations that were launched by it.
        operations: usize,
        /// Sum of their durations.
        time_ns: i64,
        /// Most device memory that was held at once; null where it is not recorded.
        peak_memory_bytes: Option<u64>,
        /// All that the device has; null likewise.
        memory_bytes: Option<u64>,
    },
    /// Tensors are copied on the device.
    CopiesAndCasts {
        /// Operations that copied to another type.
        casts: usize,
        /// Sum of their durations.
        casts_ns: i64,
        /// Other copies.
        copies: usize,
        /// Sum of their durations.
        copies_ns: i64,
    },
    /// Elementwise kernels follow each other on a stream.
    ElementwiseChains {
        /// Two or more that follow each other, over as many numbers where that is known.
        chains: usize,
        /// Kernels in them.
        kernels: usize,
        /// Sum of their durations.
        total_ns: i64,
    },
    /// An optimizer goes over its tensors one by one.
    OptimizerLoop {
        /// "Optimizer.step#AdamW.step".
        name: String,
        /// Its steps.
        steps: u64,
        /// Operations that were launched in them.
        operations: u64,
        /// Sum of their durations.
        time_ns: i64,
        /// How long the steps took on the host.
        host_ns: i64,
    },
    /// The kernels of a class of modules are shorter than the host takes to launch them.
    LaunchBoundModules {
        /// The class.
        class: String,
        /// Calls of its modules.
        calls: u64,
        /// Operations that were launched in them.
        kernels: u64,
        /// Sum of their durations.
        kernels_ns: i64,
        /// How long the calls took on the host.
        host_ns: i64,
    },
}
