//! How kernels were launched, as Kineto says it: put into words once for each way, since a run launches millions of
//! kernels in few ways.

use gputrace_trace::manifest::{Device, ProcessHeader};
use gputrace_trace::occupancy::{Block, Fit, Multiprocessor};
use gputrace_trace::tables::Kernels;
use rustc_hash::FxHashMap;

use crate::json;

/// All that the words follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    device: u32,
    grid: [i32; 3],
    block: [i32; 3],
    registers: u16,
    static_shared_bytes: i32,
    dynamic_shared_bytes: i32,
}

/// The ways in which a process's kernels were launched.
pub struct Shapes<'r> {
    kernels: &'r Kernels,
    devices: FxHashMap<u32, (&'r Device, Option<Multiprocessor>)>,
    known: FxHashMap<Key, u32>,
    /// `"registers per thread":32,...`, without commas around it.
    words: Vec<Box<[u8]>>,
    last: Option<(Key, u32)>,
}

impl<'r> Shapes<'r> {
    pub fn new(header: &'r ProcessHeader, kernels: &'r Kernels) -> Self {
        let devices = header
            .devices
            .iter()
            .map(|device| (device.index, (device, Multiprocessor::of(device))))
            .collect();
        Self {
            kernels,
            devices,
            known: FxHashMap::default(),
            words: Vec::new(),
            last: None,
        }
    }

    /// The members of the kernel in this row.
    pub fn members(&mut self, row: usize) -> &[u8] {
        let table = self.kernels;
        let key = Key {
            device: table.device[row],
            grid: [table.grid_x[row], table.grid_y[row], table.grid_z[row]],
            block: [table.block_x[row], table.block_y[row], table.block_z[row]],
            registers: table.registers[row],
            static_shared_bytes: table.static_shared_bytes[row],
            dynamic_shared_bytes: table.dynamic_shared_bytes[row],
        };
        let place = match self.last {
            Some((last, place)) if last == key => place,
            _ => match self.known.get(&key) {
                Some(&place) => place,
                None => {
                    let place = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
                    self.words.push(self.put(&key, row).into());
                    self.known.insert(key, place);
                    place
                }
            },
        };
        self.last = Some((key, place));
        &self.words[place as usize]
    }

    fn put(&self, key: &Key, row: usize) -> Vec<u8> {
        let mut out = b"\"registers per thread\":".to_vec();
        json::push_unsigned(&mut out, key.registers.into());
        out.extend_from_slice(b",\"shared memory\":");
        let shared = i128::from(key.static_shared_bytes) + i128::from(key.dynamic_shared_bytes);
        json::push_integer(&mut out, shared);
        let known = self.devices.get(&key.device);
        let multiprocessors = known.and_then(|(device, _)| device.multiprocessors);
        let product = |sizes: [i32; 3]| -> f64 { sizes.iter().map(|&size| f64::from(size)).product() };
        let threads = product(key.block);
        let mut blocks_each = None;
        if let Some(multiprocessors) = multiprocessors.filter(|&count| count > 0) {
            let each = product(key.grid) / f64::from(multiprocessors);
            blocks_each = Some(each);
            out.extend_from_slice(b",\"blocks per SM\":");
            json::push_float(&mut out, each);
            out.extend_from_slice(b",\"warps per SM\":");
            json::push_float(&mut out, each * (threads / 32.0).ceil());
        }
        for (name, sizes) in [(",\"grid\":[", key.grid), (",\"block\":[", key.block)] {
            out.extend_from_slice(name.as_bytes());
            for (place, size) in sizes.into_iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                json::push_integer(&mut out, size.into());
            }
            out.push(b']');
        }
        let multiprocessor = known.and_then(|(_, multiprocessor)| multiprocessor.as_ref());
        let block = Block::of(self.kernels, row);
        if let (Some(multiprocessor), Some(block), Some(each)) = (multiprocessor, block, blocks_each)
            && let Some(fit) = multiprocessor.fit(block)
        {
            push_occupancy(&mut out, multiprocessor, &fit, each, threads);
        }
        out
    }
}

/// The theoretical occupancy as Kineto gives it (DeviceProperties.cpp): of the whole grid in percent, and where it comes from.
fn push_occupancy(out: &mut Vec<u8>, of: &Multiprocessor, fit: &Fit, blocks_each: f64, threads: f64) {
    let most_threads = f64::from(of.limits.warps) * f64::from(of.limits.warp_threads);
    let active = f64::from(fit.blocks).min(blocks_each);
    let percent = (active * threads / most_threads * 100.0).round();
    out.extend_from_slice(b",\"est. achieved occupancy %\":");
    json::push_float(out, percent);
    out.extend_from_slice(b",\"occupancy\":{\"activeBlocksPerMultiprocessor\":");
    json::push_unsigned(out, fit.blocks.into());
    let limits = [
        ("WARPS", fit.by_warps),
        ("REGS", fit.by_registers),
        ("SMEM", fit.by_shared),
        ("BLOCKS", fit.by_blocks),
    ];
    let factors: Vec<&str> = limits
        .iter()
        .filter(|(_, blocks)| *blocks == fit.blocks)
        .map(|(name, _)| *name)
        .collect();
    out.extend_from_slice(b",\"limitingFactors\":\"");
    out.extend_from_slice(factors.join("|").as_bytes());
    out.push(b'"');
    for (name, value) in [
        ("blockLimitRegs", fit.by_registers),
        ("blockLimitSharedMem", fit.by_shared),
        ("blockLimitWarps", fit.by_warps),
        ("blockLimitBlocks", fit.by_blocks),
        ("allocatedRegistersPerBlock", fit.registers_a_block),
        ("allocatedSharedMemPerBlock", fit.shared_a_block_bytes),
    ] {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        json::push_unsigned(out, value.into());
    }
    out.push(b'}');
}
