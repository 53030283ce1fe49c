//! Theoretical occupancy: how many of a multiprocessor's warps a kernel can keep there at a time, by what its blocks need.
//!
//! The rules are those of CUDA's occupancy calculator (`cuda_occupancy.h` of the toolkit and the tables "Technical
//! Specifications per Compute Capability" of the CUDA C++ Programming Guide), for compute capability 7.0 and later:
//! registers are allocated to warps in units of 256, each quarter of a multiprocessor has a quarter of its registers,
//! shared memory is allocated to blocks in units, and from 8.0 on the system takes 1 KiB of each block's. The whole of the
//! multiprocessor's shared memory is taken to be there, as the calculator does. Clusters and grids too small to fill the
//! device are not looked at.

use gputrace_trace::manifest::{Device, Limits};
use gputrace_trace::tables::Kernels;
use rustc_hash::FxHashMap;

/// Registers are allocated to a warp in units of so many.
const REGISTER_UNIT: u32 = 256;
/// Parts of a multiprocessor with registers and schedulers of their own.
const PARTS: u32 = 4;

/// What a compute capability adds to its device's limits.
struct Rules {
    /// Shared memory is allocated in units of so many bytes.
    shared_unit: u32,
    /// What the system takes of each block's shared memory, bytes.
    shared_taken: u32,
}

fn rules(capability: (u32, u32)) -> Option<Rules> {
    match capability.0 {
        7 => Some(Rules {
            shared_unit: 256,
            shared_taken: 0,
        }),
        8.. => Some(Rules {
            shared_unit: 128,
            shared_taken: 1024,
        }),
        _ => None,
    }
}

/// The limits of a compute capability, for recordings that do not say them.
fn known_limits(capability: (u32, u32)) -> Option<Limits> {
    const KIB: u32 = 1024;
    // Warps, blocks, shared memory of a multiprocessor.
    let (warps, blocks, shared) = match capability {
        (7, 0 | 2) => (64, 32, 96 * KIB),
        (7, 5) => (32, 16, 64 * KIB),
        (8, 0) => (64, 32, 164 * KIB),
        (8, 6) => (48, 16, 100 * KIB),
        (8, 7) => (48, 16, 164 * KIB),
        (9, 0) | (10, 0 | 3) => (64, 32, 228 * KIB),
        (8, 9) | (12, 0 | 1) => (48, 24, 100 * KIB),
        _ => return None,
    };
    Some(Limits {
        warp_threads: 32,
        warps,
        blocks,
        registers: 64 * KIB,
        shared_bytes: shared,
        registers_a_block: 64 * KIB,
        shared_bytes_a_block: 48 * KIB,
        threads_a_block: 1024,
    })
}

/// What a block of a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Block {
    threads: u32,
    registers_a_thread: u32,
    shared_bytes: u32,
}

impl Block {
    /// What the block of a kernel in the table needs; `None` where the record does not say it.
    fn of(kernels: &Kernels, row: usize) -> Option<Self> {
        let threads = [kernels.block_x[row], kernels.block_y[row], kernels.block_z[row]]
            .into_iter()
            .try_fold(1u32, |threads, side| {
                threads.checked_mul(u32::try_from(side).ok()?)
            })?;
        let shared = kernels.static_shared_bytes[row].checked_add(kernels.dynamic_shared_bytes[row])?;
        let registers_a_thread = u32::from(kernels.registers[row]);
        // No kernel does without registers: 0 is "not said".
        (threads > 0 && registers_a_thread > 0).then_some(Self {
            threads,
            registers_a_thread,
            shared_bytes: u32::try_from(shared).ok()?,
        })
    }
}

/// Blocks of a kernel that one multiprocessor holds at a time.
fn blocks_a_multiprocessor(block: Block, limits: &Limits, rules: &Rules) -> u32 {
    let warps = block.threads.div_ceil(limits.warp_threads.max(1));
    if warps == 0 || block.threads > limits.threads_a_block {
        return 0;
    }
    let by_warps = limits.warps / warps;
    let registers_a_warp = (block.registers_a_thread * limits.warp_threads).next_multiple_of(REGISTER_UNIT);
    // The hardware's check of a block assumes that its warps come in fours.
    let by_registers =
        if registers_a_warp.saturating_mul(warps.next_multiple_of(PARTS)) > limits.registers_a_block {
            0
        } else {
            limits.registers / PARTS / registers_a_warp * PARTS / warps
        };
    let shared = block
        .shared_bytes
        .saturating_add(rules.shared_taken)
        .checked_next_multiple_of(rules.shared_unit);
    let by_shared = match shared {
        Some(0) => u32::MAX,
        Some(shared) => limits.shared_bytes / shared,
        None => 0,
    };
    limits.blocks.min(by_warps).min(by_registers).min(by_shared)
}

/// The share of a multiprocessor's warps that the kernel in this row can keep busy, 0 to 1; `None` where it is not known.
#[must_use]
pub fn theoretical_occupancy(kernels: &Kernels, row: usize, device: Option<&Device>) -> Option<f64> {
    Occupancy::new(device).of(kernels, row)
}

/// The occupancy of kernels on one device, each way to launch worked out once.
pub(crate) struct Occupancy {
    limits: Option<(Limits, Rules)>,
    worked_out: FxHashMap<Block, Option<f64>>,
    last: Option<(Block, Option<f64>)>,
}

impl Occupancy {
    pub(crate) fn new(device: Option<&Device>) -> Self {
        let limits = device.and_then(|device| {
            let capability = device.compute_capability?;
            // A damaged file may say anything.
            let said = device.limits.filter(|limits| {
                (1..=1024).contains(&limits.warp_threads)
                    && (1..=4096).contains(&limits.warps)
                    && limits.registers <= 1 << 24
                    && limits.blocks > 0
            });
            Some((said.or_else(|| known_limits(capability))?, rules(capability)?))
        });
        Self {
            limits,
            worked_out: FxHashMap::default(),
            last: None,
        }
    }

    /// The share of the multiprocessor's warps that the kernel in this row can keep busy, 0 to 1; `None` where it is not known.
    pub(crate) fn of(&mut self, kernels: &Kernels, row: usize) -> Option<f64> {
        let (limits, rules) = self.limits.as_ref()?;
        let block = Block::of(kernels, row)?;
        if let Some((last, occupancy)) = self.last
            && last == block
        {
            return occupancy;
        }
        let occupancy = *self.worked_out.entry(block).or_insert_with(|| {
            let blocks = blocks_a_multiprocessor(block, limits, rules);
            let warps = block.threads.div_ceil(limits.warp_threads);
            // It ran, so a limit that forbids it is not the device's.
            (blocks > 0).then(|| f64::from(blocks * warps) / f64::from(limits.warps))
        });
        self.last = Some((block, occupancy));
        occupancy
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::Table;
    use gputrace_trace::tables::Kernel;

    use super::*;

    fn occupancy(capability: (u32, u32), threads: i32, registers: u16, shared: i32) -> Option<f64> {
        let device = Device {
            compute_capability: Some(capability),
            ..Device::default()
        };
        let mut kernels = Kernels::default();
        kernels.push(Kernel {
            block_x: threads,
            block_y: 1,
            block_z: 1,
            registers,
            dynamic_shared_bytes: shared,
            ..Kernel::default()
        });
        Occupancy::new(Some(&device)).of(&kernels, 0)
    }

    /// Each by hand, in warps of the multiprocessor's warps.
    #[test]
    fn occupancy_is_what_the_calculator_says() {
        for (capability, threads, registers, shared, warps, of) in [
            // Nothing limits but warps.
            ((7, 0), 256, 32, 0, 64, 64),
            ((9, 0), 1024, 32, 0, 64, 64),
            // 33 registers: 33 * 32 = 1056, in units of 256 that is 1280; 16384 / 1280 = 12 a quarter, 48 warps, 6 blocks of 8.
            ((7, 0), 256, 33, 0, 48, 64),
            // 64 registers: 2048 a warp, 8 warps a quarter, 32 in all.
            ((8, 0), 256, 64, 0, 32, 64),
            ((8, 6), 256, 64, 0, 32, 48),
            // 168 registers: 5376 a warp, 3 a quarter, 12 in all: one block of 12.
            ((9, 0), 384, 168, 0, 12, 64),
            // 255 registers: 8160 becomes 8192, 2 a quarter, 8 in all: 2 blocks of 3.
            ((8, 0), 96, 255, 0, 6, 64),
            // Blocks: 16 of one warp on 7.5 and 8.6, 24 on 8.9 and 12.0, 32 on 9.0.
            ((7, 5), 32, 16, 0, 16, 32),
            ((8, 6), 32, 16, 0, 16, 48),
            ((8, 9), 32, 16, 0, 24, 48),
            ((12, 0), 32, 16, 0, 24, 48),
            ((9, 0), 32, 16, 0, 32, 64),
            // A part of a warp is a warp.
            ((9, 0), 33, 16, 0, 64, 64),
            // 48 warps hold one block of 32.
            ((12, 0), 1024, 32, 0, 32, 48),
            ((8, 9), 1024, 32, 0, 32, 48),
            // 48 KiB and the system's 1 KiB: 167936 / 50176 = 3 blocks of 4 warps.
            ((8, 0), 128, 32, 48 << 10, 12, 64),
            // The same without the system's: 98304 / 49152 = 2 blocks.
            ((7, 0), 128, 32, 48 << 10, 8, 64),
            // 227 KiB are all that a block can have on 9.0, and leave room for one.
            ((9, 0), 512, 64, 227 << 10, 16, 64),
            ((10, 0), 512, 64, 113 << 10, 32, 64),
            // In units of 128: 7169 + 1024 = 8193 becomes 8320; 233472 / 8320 = 28 blocks of 2 warps.
            ((9, 0), 64, 32, 7169, 56, 64),
            // A kernel of cuDNN on A100, which PyTorch's profiler calls 75 %: 40 registers are 1280 a warp, 12 a quarter.
            ((8, 0), 512, 40, 400, 48, 64),
        ] {
            let expected = f64::from(warps) / f64::from(of);
            assert_eq!(
                occupancy(capability, threads, registers, shared),
                Some(expected),
                "{capability:?}: {threads} threads, {registers} registers, {shared} bytes"
            );
        }
    }

    #[test]
    fn what_is_not_known_has_no_occupancy() {
        // A device that is not known, a record without registers or threads, a block that cannot be.
        assert_eq!(occupancy((6, 0), 256, 32, 0), None);
        assert_eq!(occupancy((8, 8), 256, 32, 0), None);
        assert_eq!(occupancy((9, 0), 256, 0, 0), None);
        assert_eq!(occupancy((9, 0), 0, 32, 0), None);
        assert_eq!(occupancy((9, 0), -5, 32, 0), None);
        assert_eq!(occupancy((9, 0), 2048, 32, 0), None);
        assert_eq!(occupancy((9, 0), 256, 32, i32::MAX), None);
        assert_eq!(occupancy((9, 0), 1024, 255, 0), None);
        assert_eq!(Occupancy::new(None).of(&Kernels::default(), 0), None);
    }

    #[test]
    fn a_device_s_own_limits_come_before_the_table() {
        let half = Limits {
            warps: 32,
            ..known_limits((9, 0)).expect("in the table")
        };
        let device = Device {
            compute_capability: Some((9, 0)),
            limits: Some(half),
            ..Device::default()
        };
        let mut kernels = Kernels::default();
        kernels.push(Kernel {
            block_x: 768,
            block_y: 1,
            block_z: 1,
            registers: 32,
            ..Kernel::default()
        });
        assert_eq!(Occupancy::new(Some(&device)).of(&kernels, 0), Some(0.75));
    }
}
