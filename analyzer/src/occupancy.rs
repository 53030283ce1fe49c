//! Theoretical occupancy of kernels: the share of a multiprocessor's warps that one can keep there at a time
//! ([`gputrace_trace::occupancy`] has the rules).

use gputrace_trace::manifest::Device;
use gputrace_trace::occupancy::{Block, Multiprocessor};
use gputrace_trace::tables::Kernels;
use rustc_hash::FxHashMap;

/// The share of a multiprocessor's warps that the kernel in this row can keep busy, 0 to 1; `None` where it is not known.
#[must_use]
pub fn theoretical_occupancy(kernels: &Kernels, row: usize, device: Option<&Device>) -> Option<f64> {
    Occupancy::new(device).of(kernels, row)
}

/// The occupancy of kernels on one device, each way to launch worked out once.
pub(crate) struct Occupancy {
    multiprocessor: Option<Multiprocessor>,
    worked_out: FxHashMap<Block, Option<f64>>,
    last: Option<(Block, Option<f64>)>,
}

impl Occupancy {
    pub(crate) fn new(device: Option<&Device>) -> Self {
        Self {
            multiprocessor: device.and_then(Multiprocessor::of),
            worked_out: FxHashMap::default(),
            last: None,
        }
    }

    /// The share of the multiprocessor's warps that the kernel in this row can keep busy, 0 to 1; `None` where it is not known.
    pub(crate) fn of(&mut self, kernels: &Kernels, row: usize) -> Option<f64> {
        let multiprocessor = self.multiprocessor.as_ref()?;
        let block = Block::of(kernels, row)?;
        if let Some((last, occupancy)) = self.last
            && last == block
        {
            return occupancy;
        }
        let occupancy = *self.worked_out.entry(block).or_insert_with(|| {
            let fit = multiprocessor.fit(block)?;
            Some(f64::from(fit.blocks * fit.warps_a_block) / f64::from(multiprocessor.limits.warps))
        });
        self.last = Some((block, occupancy));
        occupancy
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::Table;
    use gputrace_trace::manifest::Limits;
    use gputrace_trace::occupancy::known_limits;
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
