//! How long a collective takes: NCCL 2.30's own model (graph/tuning.cc) on one HGX H200 node.
//!
//! time = latency + bytes / bandwidth, the least over algorithm and protocol. Latencies in microseconds and bus
//! bandwidths in GB/s; the algorithm's bandwidth is the bus bandwidth times ranks over steps.

use std::ffi::CStr;

use crate::config::{Topology, config};

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
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) algorithm: &'static CStr,
    pub(super) protocol: &'static CStr,
    pub(super) channels: u8,
    pub(super) threads: u32,
    pub(super) transfer_ns: i64,
}

/// Protocol name, base latency, latency a step over NVLink, bus bandwidth, threads (ring; tuning.cc's tables).
const PROTOCOLS: [(&CStr, f64, f64, f64, u32); 3] = [
    (c"LL", 6.6, 0.6, 141.0, 512),
    (c"LL128", 14.0, 1.9, 331.0, 640),
    (c"SIMPLE", 8.4, 3.4, 360.0, 544),
];
/// NVLS's all-reduce: latency, and algorithm bandwidth by ranks.
const NVLS_LATENCY: f64 = 25.0;
const NVLS_BANDWIDTH: [(u32, f64); 2] = [(4, 160.0), (8, 272.0)];
/// What PCIe leaves of the bus bandwidth.
const PCIE_BUS_BANDWIDTH: f64 = 24.0;
/// Ring channels of the graph search on 8 GPUs.
const MOST_CHANNELS: u8 = 24;

/// The choice for `bytes` as NCCL counts them: count x size, and ranks times that for AllGather and ReduceScatter.
pub(super) fn choose(function: Function, bytes: u64, ranks: u32, link_factor: f64) -> Choice {
    let steps = f64::from(match function {
        Function::AllReduce => 2 * (ranks - 1),
        Function::AllGather | Function::ReduceScatter => ranks - 1,
        Function::Broadcast | Function::Reduce => 1,
    });
    let slow = config().scale * link_factor;
    let time_ns =
        |latency_us: f64, bandwidth: f64| (latency_us * 1e3 + bytes as f64 * slow / bandwidth).round() as i64;
    let over_ranks = match function {
        Function::Broadcast | Function::Reduce => 1.0,
        _ => f64::from(ranks) / steps,
    };
    let on_pcie = config().topology == Topology::Pcie;
    let mut choices: Vec<Choice> = PROTOCOLS
        .iter()
        .map(|&(protocol, base, step, bus, threads)| {
            let bus = if on_pcie { bus.min(PCIE_BUS_BANDWIDTH) } else { bus };
            Choice {
                algorithm: c"RING",
                protocol,
                channels: channels(bytes, threads),
                threads,
                transfer_ns: time_ns(base + steps * step, bus * over_ranks),
            }
        })
        .collect();
    let nvls = NVLS_BANDWIDTH.iter().find(|(count, _)| *count == ranks);
    if let (Function::AllReduce, Some((_, bandwidth)), false) = (function, nvls, on_pcie) {
        choices.push(Choice {
            algorithm: c"NVLS",
            protocol: c"SIMPLE",
            channels: 16,
            threads: 640,
            transfer_ns: time_ns(NVLS_LATENCY, *bandwidth),
        });
    }
    let first = choices[0];
    choices.into_iter().fold(first, |best, choice| {
        if choice.transfer_ns < best.transfer_ns {
            choice
        } else {
            best
        }
    })
}

/// As many channels as get 64 bytes a thread each, between one and the graph's number.
fn channels(bytes: u64, threads: u32) -> u8 {
    let wanted = bytes
        .div_ceil(u64::from(threads) * 64)
        .clamp(1, u64::from(MOST_CHANNELS));
    u8::try_from(wanted).unwrap_or(MOST_CHANNELS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_and_bandwidths_are_those_of_nccl() {
        // From NCCL's tables for 8 GPUs: all-reduce ring LL 15.0 us, all-gather ring LL 10.8 us, both at small sizes.
        let microseconds =
            |function, bytes, ranks| choose(function, bytes, ranks, 1.0).transfer_ns as f64 / 1e3;
        assert!((microseconds(Function::AllReduce, 0, 8) - 15.0).abs() < 0.01);
        assert!((microseconds(Function::AllGather, 0, 8) - 10.8).abs() < 0.01);
        assert!((microseconds(Function::AllReduce, 0, 2) - 7.8).abs() < 0.01);
        // A large all-reduce on 2 GPUs goes by Ring/Simple at 360 GB/s, here divided by the scale of 1000.
        let large = choose(Function::AllReduce, 360_000_000, 2, 1.0);
        assert_eq!((large.algorithm, large.protocol), (c"RING", c"SIMPLE"));
        assert!((large.transfer_ns as f64 / 1e9 - 1.0).abs() < 0.001);
    }
}
