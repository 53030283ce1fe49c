//! Theoretical occupancy: how many of a multiprocessor's warps a kernel can keep there at a time, by what its blocks need.
//!
//! The rules are those of CUDA's occupancy calculator (`cuda_occupancy.h` of the toolkit and the tables "Technical
//! Specifications per Compute Capability" of the CUDA C++ Programming Guide), for compute capability 7.0 and later:
//! registers are allocated to warps in units of 256, each quarter of a multiprocessor has a quarter of its registers,
//! shared memory is allocated to blocks in units, and from 8.0 on the system takes 1 KiB of each block's. The whole of the
//! multiprocessor's shared memory is taken to be there, as the calculator does. Clusters and grids too small to fill the
//! device are not looked at.

use crate::manifest::{Device, Limits};
use crate::tables::Kernels;

/// Registers are allocated to a warp in units of so many.
const REGISTER_UNIT: u32 = 256;
/// Parts of a multiprocessor with registers and schedulers of their own.
const PARTS: u32 = 4;

/// What a compute capability adds to its device's limits.
#[derive(Clone, Copy, Debug)]
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
#[must_use]
pub fn known_limits(capability: (u32, u32)) -> Option<Limits> {
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
pub struct Block {
    /// Threads.
    pub threads: u32,
    /// Registers of each.
    pub registers_a_thread: u32,
    /// Static and dynamic shared memory, bytes.
    pub shared_bytes: u32,
}

impl Block {
    /// What the block of a kernel in the table needs; `None` where the record does not say it.
    #[must_use]
    pub fn of(kernels: &Kernels, row: usize) -> Option<Self> {
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

/// How many blocks one multiprocessor holds at a time, and what limits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Blocks: the least of what follows.
    pub blocks: u32,
    /// As many as the warps allow.
    pub by_warps: u32,
    /// As many as the registers allow.
    pub by_registers: u32,
    /// As many as the shared memory allows; `u32::MAX` where a block takes none.
    pub by_shared: u32,
    /// As many as a multiprocessor runs at most.
    pub by_blocks: u32,
    /// Warps of a block.
    pub warps_a_block: u32,
    /// Registers that a block takes, in units of their allocation.
    pub registers_a_block: u32,
    /// Shared memory that a block takes, with the system's, in units of its allocation; bytes.
    pub shared_a_block_bytes: u32,
}

/// What a device's multiprocessors hold.
#[derive(Clone, Copy, Debug)]
pub struct Multiprocessor {
    /// The device's own limits, or those of its compute capability.
    pub limits: Limits,
    rules: Rules,
}

impl Multiprocessor {
    /// That of a device; `None` where too little is known of it.
    #[must_use]
    pub fn of(device: &Device) -> Option<Self> {
        let capability = device.compute_capability?;
        // A damaged file may say anything.
        let said = device.limits.filter(|limits| {
            (1..=1024).contains(&limits.warp_threads)
                && (1..=4096).contains(&limits.warps)
                && limits.registers <= 1 << 24
                && limits.blocks > 0
        });
        Some(Self {
            limits: said.or_else(|| known_limits(capability))?,
            rules: rules(capability)?,
        })
    }

    /// How many of these blocks fit; `None` where none does: it ran, so a limit that forbids it is not the device's.
    #[must_use]
    pub fn fit(&self, block: Block) -> Option<Fit> {
        let (limits, rules) = (&self.limits, &self.rules);
        let warps = block.threads.div_ceil(limits.warp_threads.max(1));
        if warps == 0 || block.threads > limits.threads_a_block {
            return None;
        }
        let by_warps = limits.warps / warps;
        let registers_a_warp =
            (block.registers_a_thread * limits.warp_threads).next_multiple_of(REGISTER_UNIT);
        // The hardware's check of a block assumes that its warps come in fours.
        let registers_a_block = registers_a_warp.saturating_mul(warps.next_multiple_of(PARTS));
        let by_registers = if registers_a_block > limits.registers_a_block {
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
        let blocks = limits.blocks.min(by_warps).min(by_registers).min(by_shared);
        (blocks > 0).then_some(Fit {
            blocks,
            by_warps,
            by_registers,
            by_shared,
            by_blocks: limits.blocks,
            warps_a_block: warps,
            registers_a_block: registers_a_warp.saturating_mul(warps),
            shared_a_block_bytes: shared.unwrap_or(0),
        })
    }
}
