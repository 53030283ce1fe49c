//! What a synthetic job does, and when: computed for all ranks together, since they wait for each other.
//!
//! The job trains a transformer sharded over the GPUs of each host and replicated over hosts (PyTorch's HSDP). In the forward pass
//! each layer's weights are gathered while the layer before it computes; in the backward pass they are gathered again, gradients are
//! scattered within the host, and summed over hosts. Compute and communication have a stream each. Kernels take what a share of an
//! H200 takes for them; a collective takes its bytes over the bandwidth of its links, and a latency for each of its hops, from when
//! its last rank has come.

use super::plan::{GPUS, Plan};

/// Collectives of a layer in a step: gathered forward, gathered backward, scattered, summed over hosts.
pub const COLLECTIVES: usize = 4;

/// Nanoseconds of a layer's kernels in the forward pass; the backward pass takes twice as long.
const FORWARD_NS: i64 = 2_400_000;
/// Of the optimizer.
const OPTIMIZER_NS: i64 = 1_500_000;
/// Bytes of a layer's weights, and a GPU's part of NVLink and of the network in bytes a nanosecond.
pub const LAYER_BYTES: u64 = 400_000_000;
const NVLINK: f64 = 360.0;
const NETWORK: f64 = 40.0;
const HOP_NS: i64 = 4_000;
/// From a call to its operation on an idle stream.
pub const LAUNCH_NS: i64 = 30_000;
/// What the host does between two steps.
const HOST_NS: i64 = 400_000;

/// From when to when something ran.
pub type Time = (i64, i64);

/// What a rank did in each step.
pub struct RankStep {
    /// When the host began it.
    pub host_start: i64,
    /// By layer: compute, forward and backward.
    pub forward: Vec<Time>,
    pub backward: Vec<Time>,
    /// By layer.
    pub collectives: Vec<[Time; COLLECTIVES]>,
    pub optimizer: Time,
}

/// A number between 0 and 1 that follows from what it is of.
fn share(seed: u64, rank: u32, step: u32, layer: u32, what: u32) -> f64 {
    let mut hash = seed;
    for part in [rank, step, layer, what] {
        hash = (hash ^ u64::from(part)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// The job's steps one after another.
pub struct Job<'a> {
    plan: &'a Plan,
    /// By rank: when its streams of compute and communication are free, and its host.
    compute: Vec<i64>,
    communication: Vec<i64>,
    host: Vec<i64>,
    step: u32,
}

impl<'a> Job<'a> {
    /// A job that begins at a moment.
    pub fn new(plan: &'a Plan, start_ns: i64) -> Self {
        let ranks = plan.ranks as usize;
        // Ranks do not start at the same moment.
        let host = (0..plan.ranks)
            .map(|rank| start_ns + (share(plan.seed, rank, 0, 0, 99) * 5e6) as i64)
            .collect();
        Self {
            plan,
            compute: vec![start_ns; ranks],
            communication: vec![start_ns; ranks],
            host,
            step: 0,
        }
    }

    fn work(&self, rank: u32, layer: u32, what: u32, time_ns: i64) -> i64 {
        let noise = 0.98 + 0.04 * share(self.plan.seed, rank, self.step, layer, what);
        let slow = if self.plan.slow_rank == Some(rank) {
            self.plan.slow_by
        } else {
            1.0
        };
        (time_ns as f64 * noise * slow) as i64
    }

    /// Ranks that take part in a collective together: those of a host, or those of one number on all hosts.
    fn groups(&self, over_hosts: bool) -> impl Iterator<Item = Vec<usize>> + use<> {
        let (ranks, hosts) = (self.plan.ranks as usize, self.plan.hosts() as usize);
        let gpus = GPUS as usize;
        let count = if over_hosts { gpus.min(ranks) } else { hosts };
        (0..count).map(move |group| match over_hosts {
            true => (group..ranks).step_by(gpus).collect(),
            false => (group * gpus..ranks.min((group + 1) * gpus)).collect(),
        })
    }

    /// Runs a collective on all ranks: each comes when it is `ready` and its stream is free.
    fn meet(&mut self, ready: &[i64], over_hosts: bool) -> Vec<Time> {
        let mut times = vec![(0, 0); ready.len()];
        for members in self.groups(over_hosts) {
            let ranks = members.len() as f64;
            let bytes = LAYER_BYTES as f64 / if over_hosts { f64::from(GPUS) } else { 1.0 };
            let (factor, bandwidth) = match over_hosts {
                true => (2.0 * (ranks - 1.0) / ranks, NETWORK),
                false => ((ranks - 1.0) / ranks, NVLINK),
            };
            let transfer = (bytes * factor / bandwidth) as i64 + HOP_NS * (ranks.log2().ceil() as i64 + 1);
            let come = |rank: &usize| ready[*rank].max(self.communication[*rank]);
            let last = members.iter().map(come).max().unwrap_or(0);
            for rank in members {
                let begin = come(&rank);
                times[rank] = (begin, last + transfer);
            }
        }
        for (free, (_, end)) in self.communication.iter_mut().zip(&times) {
            *free = end + 2_000;
        }
        times
    }

    /// Computes on all ranks from when each is `ready` and its stream is free.
    fn compute(&mut self, ready: &[i64], layer: u32, what: u32, time_ns: i64) -> Vec<Time> {
        (0u32..)
            .zip(ready)
            .map(|(rank, ready)| {
                let begin = (*ready).max(self.compute[rank as usize]);
                let end = begin + self.work(rank, layer, what, time_ns);
                self.compute[rank as usize] = end + 1_500;
                (begin, end)
            })
            .collect()
    }

    /// The next step of all ranks.
    pub fn step(&mut self) -> Vec<RankStep> {
        let layers = self.plan.layers as usize;
        for rank in 0..self.plan.ranks {
            let pauses = self.plan.pausing_rank == Some(rank) && self.step % 4 == 1;
            let pause = if pauses { self.plan.pause_ns } else { 0 };
            self.host[rank as usize] += self.work(rank, 0, 50, HOST_NS) + pause;
        }
        let host_start = self.host.clone();
        let launched: Vec<i64> = host_start.iter().map(|host| host + LAUNCH_NS).collect();
        let mut collectives = vec![vec![[(0, 0); COLLECTIVES]; layers]; host_start.len()];
        let mut forward = Vec::new();
        let mut gathered = self.meet(&launched, false);
        for layer in 0..layers {
            for (of_rank, time) in collectives.iter_mut().zip(&gathered) {
                of_rank[layer][0] = *time;
            }
            let ready: Vec<i64> = gathered.iter().map(|(_, end)| end + 2_000).collect();
            let times = self.compute(&ready, layer as u32, 1, FORWARD_NS);
            if layer + 1 < layers {
                let begun: Vec<i64> = times.iter().map(|(begin, _)| *begin).collect();
                gathered = self.meet(&begun, false);
            }
            forward.push(times);
        }
        let mut backward = vec![Vec::new(); layers];
        let mut ready: Vec<i64> = self.compute.clone();
        let mut summed: Vec<Time> = Vec::new();
        for layer in (0..layers).rev() {
            let gathered = self.meet(&ready, false);
            let begin: Vec<i64> = gathered.iter().map(|(_, end)| end + 2_000).collect();
            let times = self.compute(&begin, layer as u32, 2, 2 * FORWARD_NS);
            let done: Vec<i64> = times.iter().map(|(_, end)| end + 2_000).collect();
            ready = times.iter().map(|(begin, _)| *begin).collect();
            let scattered = self.meet(&done, false);
            let come: Vec<i64> = scattered.iter().map(|(_, end)| *end).collect();
            summed = self.meet(&come, true);
            for (rank, of_rank) in collectives.iter_mut().enumerate() {
                of_rank[layer][1..].copy_from_slice(&[gathered[rank], scattered[rank], summed[rank]]);
            }
            backward[layer] = times;
        }
        let ready: Vec<i64> = summed.iter().map(|(_, end)| end + 2_000).collect();
        let optimizer = self.compute(&ready, 0, 3, OPTIMIZER_NS);
        for (host, (_, end)) in self.host.iter_mut().zip(&optimizer) {
            // The loss is read at the end of each step.
            *host = end + 20_000;
        }
        self.step += 1;
        let mut collectives = collectives.into_iter();
        (0..host_start.len())
            .map(|rank| RankStep {
                host_start: host_start[rank],
                forward: forward.iter().map(|times| times[rank]).collect(),
                backward: backward.iter().map(|times| times[rank]).collect(),
                collectives: collectives.next().unwrap_or_default(),
                optimizer: optimizer[rank],
            })
            .collect()
    }
}
