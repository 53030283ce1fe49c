//! How long operations take among a communicator's ranks: the one place that asks the model.

use super::mesh::Mesh;
use super::model::{self, Choice};
use super::operation::Operation;
use crate::config::config;
use crate::device::model::{Path, bandwidth};

/// How many times slower the slowest link among the ranks is.
fn link_factor(mesh: &Mesh) -> f64 {
    let devices: Vec<u32> = mesh.members().map(|member| member.device).collect();
    config()
        .slow_links
        .iter()
        .filter(|(a, b, _)| devices.contains(a) && devices.contains(b))
        .map(|(.., factor)| *factor)
        .fold(1.0, f64::max)
}

/// What NCCL would choose for a collective, and its time.
pub(super) fn collective(operation: &Operation, mesh: &Mesh) -> Choice {
    if mesh.ranks == 1 {
        return Choice {
            algorithm: c"RING",
            protocol: c"SIMPLE",
            channels: 1,
            threads: 512,
            transfer_ns: own_copy_ns(operation.bytes() as u64),
        };
    }
    model::choose(
        operation.function,
        operation.model_bytes(mesh.ranks),
        mesh.ranks,
        link_factor(mesh),
    )
}

/// Channels, threads and time of a send: 7 us and the link's bandwidth up to 16 KiB a channel (LL), 12 us and it above.
pub(super) fn send(bytes: u64, from: u32, to: u32, mesh: &Mesh) -> Choice {
    let (from, to) = (mesh.member(from as usize), mesh.member(to as usize));
    let path = Path::Peer(from.device, to.device);
    const CHANNELS: u8 = 16;
    let few = bytes <= u64::from(CHANNELS) * (16 << 10);
    let latency_ns = if few { 7e3 } else { 12e3 };
    let transfer_ns = latency_ns + bytes as f64 / (0.85 * bandwidth(path)) * 1e9;
    Choice {
        algorithm: c"RING",
        protocol: if few { c"LL" } else { c"SIMPLE" },
        channels: bytes.div_ceil(16 << 10).clamp(1, u64::from(CHANNELS)) as u8,
        threads: 640,
        transfer_ns: transfer_ns.round() as i64,
    }
}

/// A copy within the device, which is what a send to oneself is.
pub(super) fn own_copy_ns(bytes: u64) -> i64 {
    (7e3 + bytes as f64 / bandwidth(Path::Device) * 1e9).round() as i64
}
