//! When the devices were busy lately, in the modelled time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::OpKind;
use crate::clock::now_ns;

/// How long operations are remembered.
const REMEMBERED_NS: i64 = 2_000_000_000;
/// Operations of different streams are noted in another order than they end, by no more than this.
const DISORDER_NS: i64 = 200_000_000;
/// More than these are not remembered of one device.
const MOST_REMEMBERED: usize = 1 << 16;

/// Kinds of operations that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Kernels,
    /// Copies and memsets.
    Transfers,
}

impl What {
    fn of(kind: &OpKind) -> Self {
        match kind {
            OpKind::Kernel { .. } => Self::Kernels,
            OpKind::Copy { .. } | OpKind::Memset { .. } => Self::Transfers,
        }
    }
}

#[derive(Default)]
struct Device {
    /// Operations that run: by stream, since when.
    running: BTreeMap<u32, (What, i64)>,
    /// Operations that are done: what, from, to.
    done: VecDeque<(What, i64, i64)>,
}

static DEVICES: Mutex<BTreeMap<u32, Device>> = Mutex::new(BTreeMap::new());

fn devices() -> MutexGuard<'static, BTreeMap<u32, Device>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation begins on a stream of a device.
pub(super) fn begin(device: u32, stream: u32, kind: &OpKind, start_ns: i64) {
    let mut devices = devices();
    let running = &mut devices.entry(device).or_default().running;
    running.insert(stream, (What::of(kind), start_ns));
}

/// It is done.
pub(super) fn end(device: u32, stream: u32, end_ns: i64) {
    let mut devices = devices();
    let device = devices.entry(device).or_default();
    let Some((what, start_ns)) = device.running.remove(&stream) else {
        return;
    };
    device.done.push_back((what, start_ns, end_ns));
    let oldest = now_ns() - REMEMBERED_NS;
    while device.done.len() > MOST_REMEMBERED || device.done.front().is_some_and(|(.., to)| *to < oldest) {
        device.done.pop_front();
    }
}

/// Nanoseconds between two moments in which a device ran at least one operation of a kind.
pub(crate) fn within(device: u32, what: What, from_ns: i64, to_ns: i64) -> i64 {
    let devices = devices();
    let Some(device) = devices.get(&device) else {
        return 0;
    };
    // Operations are done nearly in order: what ended long before is not looked at.
    let done = device
        .done
        .iter()
        .rev()
        .take_while(|(.., to)| *to >= from_ns - DISORDER_NS)
        .filter(|(kind, ..)| *kind == what)
        .map(|(_, from, to)| (*from, *to));
    let running = device.running.values().filter(|(kind, _)| *kind == what);
    covered(
        done.chain(running.map(|(_, from)| (*from, to_ns))),
        from_ns,
        to_ns,
    )
}

/// The length of the union of intervals between two moments.
fn covered(intervals: impl Iterator<Item = (i64, i64)>, from_ns: i64, to_ns: i64) -> i64 {
    let mut inside: Vec<(i64, i64)> = intervals
        .map(|(from, to)| (from.max(from_ns), to.min(to_ns)))
        .filter(|(from, to)| from < to)
        .collect();
    inside.sort_unstable();
    let mut reached = from_ns;
    let mut sum = 0;
    for (from, to) in inside {
        sum += (to - from.max(reached)).max(0);
        reached = reached.max(to);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_operations_count_once() {
        let intervals = [(0, 10), (5, 20), (30, 40), (35, 36), (90, 200)];
        assert_eq!(covered(intervals.into_iter(), 0, 100), 20 + 10 + 10);
        assert_eq!(covered(intervals.into_iter(), 8, 32), 12 + 2);
        assert_eq!(covered([].into_iter(), 0, 100), 0);
    }

    #[test]
    fn what_runs_counts_until_now() {
        let now = now_ns();
        let memset = OpKind::Memset {
            bytes: 1,
            value: 0,
            asynchronous: true,
        };
        begin(900, 1, &memset, now - 500);
        assert_eq!(within(900, What::Transfers, now - 1000, now), 500);
        assert_eq!(within(900, What::Kernels, now - 1000, now), 0);
        end(900, 1, now - 100);
        assert_eq!(within(900, What::Transfers, now - 1000, now), 400);
    }
}
