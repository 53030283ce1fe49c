//! How long NCCL's operations take: the model of NCCL 2.30 itself (graph/tuning.cc), on modelled topologies.
//!
//! time = latency x count + bytes / bandwidth, the least over algorithm and protocol. Latencies are microseconds and
//! bandwidths GB/s (1e9 bytes/s), as in NCCL. Everything here is a pure function of a [`Shape`]: which nodes the ranks
//! are on, what links them, how many times slower than the real thing bandwidths are. Latencies are not scaled.

mod launch;
mod point_to_point;
mod print;
mod shape;
mod tuning;

use std::ffi::CStr;

pub use print::times;

pub(super) use point_to_point::send_receive;
pub(super) use shape::{Link, RankPlace, Shape};
pub(super) use tuning::{Algorithm, Protocol, estimate};

/// What kind of collective it is, for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
}

impl Function {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
    ];

    /// NCCL's name.
    pub(super) fn name(self) -> &'static CStr {
        match self {
            Self::AllReduce => c"AllReduce",
            Self::AllGather => c"AllGather",
            Self::ReduceScatter => c"ReduceScatter",
            Self::Broadcast => c"Broadcast",
            Self::Reduce => c"Reduce",
        }
    }
}

/// What NCCL would choose, and its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// NCCL's word for the algorithm: RING, TREE, NVLS, NVLS_TREE, PAT.
    pub(super) algorithm: &'static CStr,
    /// NCCL's word for the protocol: LL, LL128, SIMPLE.
    pub(super) protocol: &'static CStr,
    /// Channels, which are the kernel's blocks.
    pub(super) channels: u8,
    /// Threads of a block.
    pub(super) threads: u32,
    /// From the arrival of the last rank to the end.
    pub(super) transfer_ns: i64,
}

/// The choice for `operations` collectives of one kind that a group has fused, `bytes` in all as NCCL counts them
/// (count x size, and ranks times that for AllGather and ReduceScatter): the least time of all algorithms and
/// protocols, the first of equals in NCCL's order.
pub(super) fn choose_on(shape: &Shape, function: Function, bytes: u64, operations: u32) -> Choice {
    let mut best: Option<(f64, Algorithm, Protocol)> = None;
    for algorithm in Algorithm::ALL {
        for protocol in Protocol::ALL {
            let time_us = estimate(shape, function, algorithm, protocol)
                .map(|estimate| estimate.time_us(bytes, operations));
            if let Some(time_us) = time_us
                && best.is_none_or(|(least, ..)| time_us < least)
            {
                best = Some((time_us, algorithm, protocol));
            }
        }
    }
    // Ring with Simple exists for every shape, so that there always is a best.
    let (time_us, algorithm, protocol) = best.unwrap_or((0.0, Algorithm::Ring, Protocol::Simple));
    let (channels, threads) = launch::channels_and_threads(shape, function, algorithm, protocol, bytes);
    Choice {
        algorithm: algorithm.name(),
        protocol: protocol.name(),
        channels,
        threads,
        transfer_ns: (time_us * 1e3).round() as i64,
    }
}

#[cfg(test)]
mod tests;
