//! How long things take on the modelled device: an H200's published peaks, divided by the scale.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::links::{self, PCIE_BANDWIDTH, Route};
use crate::config::config;

/// Peak single precision FLOP/s of an H200 outside the tensor cores (NVIDIA's data sheet).
const PEAK_FLOPS: f64 = 67e12;
/// Peak dense bf16 and f16 FLOP/s of its tensor cores (the same).
const TENSOR_PEAK_FLOPS: f64 = 989e12;
/// Memory bandwidth of an H200, bytes/s (data sheet).
pub(crate) const MEMORY_BANDWIDTH: f64 = 4.8e12;
/// Copies from and to pageable memory go through a small pinned buffer, bytes/s.
const PAGEABLE_BANDWIDTH: f64 = 12e9;
/// The shortest kernel and copy, nanoseconds.
const KERNEL_FLOOR_NS: f64 = 2_200.0;
const COPY_FLOOR_NS: f64 = 1_600.0;
/// From the launch call to the start on an idle device, nanoseconds.
pub(crate) const LAUNCH_LATENCY_NS: i64 = 4_000;

/// Which path a copy takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    HostPinned,
    HostPageable,
    Device,
}

/// Up to 3 % more, from the seed and a count: times are never all equal, and the same for the same seed.
fn jitter() -> f64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut bits = config()
        .seed
        .wrapping_add(count)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    1.0 + 0.03 * ((bits >> 40) as f64 / (1u64 << 24) as f64)
}

fn nanoseconds(ns: f64) -> i64 {
    (ns * jitter() * config().slow.device).round() as i64
}

/// A kernel's time by the roofline: the longer of its arithmetic and its memory traffic.
/// `efficiency` is the share of peak FLOP/s that it reaches.
pub(crate) fn kernel_ns(flops: f64, bytes: f64, efficiency: f64) -> i64 {
    let scale = config().scale;
    let arithmetic = flops * scale / (PEAK_FLOPS * efficiency) * 1e9;
    let traffic = bytes * scale / MEMORY_BANDWIDTH * 1e9;
    nanoseconds(KERNEL_FLOOR_NS + arithmetic.max(traffic))
}

/// What a kernel of this name takes that would take so long, where kernels of that name are slow on purpose.
pub(crate) fn named_ns(name: &CStr, ns: i64) -> i64 {
    let slow = &config().slow;
    // This is asked for each launch, and hardly ever are any.
    if !slow.has_kernels() {
        return ns;
    }
    (ns as f64 * slow.kernel(&name.to_string_lossy())).round() as i64
}

/// The time of a batch of matrix products; elements of two bytes go through the tensor cores. Small ones reach a
/// smaller share of the peak: too few tiles to fill all multiprocessors.
pub(crate) fn gemm_ns([m, n, k]: [usize; 3], batch: usize, element_bytes: usize) -> i64 {
    let tiles = (m.div_ceil(128) * n.div_ceil(128) * batch) as f64;
    let filled = (tiles / f64::from(super::MULTIPROCESSORS)).min(1.0);
    let (m, n, k) = (m as f64, n as f64, k as f64);
    let peak = if element_bytes == 2 {
        TENSOR_PEAK_FLOPS / PEAK_FLOPS
    } else {
        1.0
    };
    kernel_ns(
        2.0 * m * n * k * batch as f64,
        element_bytes as f64 * (m * k + k * n + 2.0 * m * n) * batch as f64,
        peak * (0.25 + 0.5 * filled),
    )
}

/// Bandwidth of a path in bytes/s of the modelled machine.
pub(crate) fn bandwidth(path: Path) -> f64 {
    let full = match path {
        Path::HostPinned => PCIE_BANDWIDTH,
        Path::HostPageable => PAGEABLE_BANDWIDTH,
        // Read and written: half the memory's bandwidth.
        Path::Device => MEMORY_BANDWIDTH / 2.0,
    };
    full / config().scale
}

/// A copy's time.
pub(crate) fn copy_ns(path: Path, bytes: u64) -> i64 {
    nanoseconds(COPY_FLOOR_NS + bytes as f64 / bandwidth(path) * 1e9)
}

/// The end of a copy between two devices: blocks until it is known, since copies that come later may slow it down.
pub(crate) fn peer_copy_end(route: Route, bytes: u64, start_ns: i64) -> i64 {
    let slower = jitter() * config().slow.device;
    let begin_ns = start_ns + (COPY_FLOOR_NS * slower).round() as i64;
    links::transfer(route, bytes as f64 * config().scale * slower, begin_ns)
}

/// A memset's time.
pub(crate) fn memset_ns(bytes: u64) -> i64 {
    nanoseconds(COPY_FLOOR_NS + bytes as f64 * config().scale / MEMORY_BANDWIDTH * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roofline_has_two_sides() {
        // 67 MFLOP at full efficiency on a device 1000 times slower: 1 ms; 4.8 MB of traffic: 1 ms.
        let arithmetic = kernel_ns(67e6, 0.0, 1.0);
        let traffic = kernel_ns(0.0, 4.8e6, 1.0);
        for ns in [arithmetic, traffic] {
            assert!((1_002_000..1_040_000).contains(&ns), "{ns}");
        }
    }

    #[test]
    fn links_differ() {
        assert!(bandwidth(Path::HostPinned) > bandwidth(Path::HostPageable));
        assert!(copy_ns(Path::HostPinned, 55_000) >= 1_001_600);
    }
}
