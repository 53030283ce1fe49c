//! Sends and receives. NCCL's tuning has no model of them; this one follows how they are carried out.
//!
//! time = 7 us with LL, 12 us with Simple, + bytes / (0.85 x the lesser of the path and its channels): the base
//! latencies are near those of a ring's single step with each protocol, and 0.85 is what copies through buffers of a
//! channel reach of a link.

use super::Choice;
use super::shape::{Link, NETWORK_BANDWIDTH, NVLINK_BANDWIDTH, ONE_NVLINK_BANDWIDTH, Shape};
use super::tuning::Protocol;

/// Latencies in microseconds.
const LL_US: f64 = 7.0;
const SIMPLE_US: f64 = 12.0;
/// LL carries as much as this a channel, bytes.
const LL_BYTES_A_CHANNEL: u64 = 16 << 10;
/// What is reached of a link.
const EFFICIENCY: f64 = 0.85;
/// The most channels of sends and receives.
const MOST_CHANNELS: u32 = 32;
/// Threads of a block.
const THREADS: u32 = 640;

/// One send with its receive between two ranks, whose shape is that of a communicator of just these two.
pub(in crate::nccl) fn send_receive(pair: &Shape, bytes: u64) -> Choice {
    let (path, channels) = match pair.link {
        _ if pair.nodes > 1 => (NETWORK_BANDWIDTH, 2),
        Link::NvSwitch => {
            let links = (NVLINK_BANDWIDTH / ONE_NVLINK_BANDWIDTH) as u32;
            // A power of two, at most what there are.
            (
                NVLINK_BANDWIDTH,
                (2 * links).next_power_of_two().min(MOST_CHANNELS),
            )
        }
        Link::PcieSocket => (40.0, 2),
        Link::PcieSystem => (20.0, 2),
    };
    let (protocol, latency_us) = if bytes <= u64::from(channels) * LL_BYTES_A_CHANNEL {
        (Protocol::Ll, LL_US)
    } else {
        (Protocol::Simple, SIMPLE_US)
    };
    let bandwidth = EFFICIENCY * path.min(f64::from(channels) * ONE_NVLINK_BANDWIDTH);
    let time_us = latency_us + bytes as f64 * pair.slower / (1e3 * bandwidth);
    Choice {
        algorithm: c"RING",
        protocol: protocol.name(),
        channels: u8::try_from(channels).unwrap_or(u8::MAX),
        threads: THREADS,
        transfer_ns: (time_us * 1e3).round() as i64,
    }
}
