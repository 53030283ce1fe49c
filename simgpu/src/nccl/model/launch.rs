//! How large a collective's kernel is: NCCL's enqueue.cc, with 16 channels at the most for NVLS.

use super::Function;
use super::shape::Shape;
use super::tuning::{Algorithm, Protocol};

/// Channels of NVLS.
const NVLS_CHANNELS: u32 = 16;
/// The most threads of a block, and what trees, PAT and NVLS always have.
const MOST_THREADS: u32 = 640;
/// A channel is worth its block from this much traffic on, in bytes.
const LEAST_TRAFFIC_BYTES: u64 = 32 << 10;

/// Channels (blocks) and threads of a block for `bytes` as NCCL's model counts them.
pub(super) fn channels_and_threads(
    shape: &Shape,
    function: Function,
    algorithm: Algorithm,
    protocol: Protocol,
    bytes: u64,
) -> (u8, u32) {
    let nvls = matches!(algorithm, Algorithm::Nvls | Algorithm::NvlsTree);
    // The channels of the search are doubled.
    let mut channels = if nvls { NVLS_CHANNELS } else { 2 * shape.rings().0 };
    let mut threads = match (algorithm, protocol) {
        (Algorithm::Ring | Algorithm::Tree, Protocol::Ll | Protocol::Simple) => 512,
        _ => MOST_THREADS,
    };
    // Bytes that a thread should have.
    let share = match (algorithm, protocol) {
        (Algorithm::Ring, Protocol::Ll) => 8 * u64::from(shape.ranks),
        (_, Protocol::Ll | Protocol::Ll128) => 8,
        (_, Protocol::Simple) => 64,
    };
    if !nvls {
        let wanted = |channels: u32, threads: u32| u64::from(channels) * u64::from(threads) * share;
        while channels > 1 && bytes < wanted(channels, threads) {
            channels -= 1;
        }
        while threads % 128 == 0 && bytes < wanted(channels, threads) {
            threads /= 2;
        }
    }
    // One warp more keeps Simple's flags.
    if (algorithm, protocol) == (Algorithm::Ring, Protocol::Simple) {
        threads += 32;
    }
    threads = if algorithm == Algorithm::Ring {
        threads.max(96)
    } else {
        MOST_THREADS
    };
    // All ranks' data pass through a rank in a gather, and twice its own in an all-reduce; LL sends four times that.
    let passes = match function {
        Function::AllReduce => 2,
        Function::AllGather | Function::ReduceScatter | Function::Broadcast | Function::Reduce => 1,
    };
    let flags = if protocol == Protocol::Ll { 4 } else { 1 };
    let worth = (bytes * passes * flags).div_ceil(LEAST_TRAFFIC_BYTES).max(1);
    let channels = u64::from(channels).min(worth);
    (u8::try_from(channels).unwrap_or(u8::MAX), threads)
}
