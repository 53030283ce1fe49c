//! Device memory over time, where it is recorded.

use gputrace_trace::tables::{Counters, MemoryEvents};
use gputrace_trace::{Interner, NameId, TimeNs};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Points of a timeline.
const TIMELINE_POINTS: usize = 200;
/// `CUpti_ActivityMemoryOperationType`: memory is given back.
const RELEASE: u8 = 2;
/// Kinds of memory that are the device's own (`CUpti_ActivityMemoryKind`: device, array, managed, device static).
const ON_DEVICE: [u32; 4] = [3, 4, 5, 6];

/// Memory of one device of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryAnalysis {
    /// Most bytes in use at once: by the allocator's own count where it is recorded, else allocations minus frees seen, so
    /// without what was allocated before the recording began.
    pub peak_bytes: u64,
    /// When.
    pub peak_at_ns: TimeNs,
    /// Most bytes that the allocator held at once; null where it did not say.
    pub peak_reserved_bytes: Option<u64>,
    /// The most that memory pools of this process held at once, summed over pools; null without pools.
    pub peak_pool_bytes: Option<u64>,
    /// The most of that which was in use at once.
    pub peak_pool_used_bytes: Option<u64>,
    /// Allocations.
    pub allocations: usize,
    /// Frees.
    pub frees: usize,
    /// "allocator" or "allocations and frees".
    pub counted_by: String,
    /// Time and bytes in use: at most 200 points, each the most until the next.
    pub timeline: Vec<(TimeNs, u64)>,
}

/// At most so many points, each the greatest of its stretch, at the stretch's start.
fn thinned(points: &[(i64, u64)]) -> Vec<(i64, u64)> {
    let each = points.len().div_ceil(TIMELINE_POINTS).max(1);
    points
        .chunks(each)
        .filter_map(|chunk| {
            let greatest = chunk.iter().map(|(_, bytes)| *bytes).max()?;
            Some((chunk[0].0, greatest))
        })
        .collect()
}

/// How long what was allocated stayed in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// It was freed, or given out again, at this moment.
    Freed(i64),
    /// The recording's end.
    End,
    /// Its address is not recorded, so its free can't be told.
    Unknown,
}

/// Memory that was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Row in the table of memory events.
    pub(crate) row: usize,
    pub(crate) bytes: u64,
    pub(crate) until: Until,
}

/// What is in use at an address.
struct Live {
    bytes: u64,
    /// Its place among the allocations.
    place: usize,
    /// What was there before, if it is still to be freed: the moment it was given out again at, and its size.
    before: Option<(i64, u64)>,
}

/// What each event allocates or frees, and all allocations. A free may not say its size: then it is that of what was allocated at
/// its address.
fn paired(events: &MemoryEvents, order: &[usize]) -> (Vec<u64>, Vec<Allocation>) {
    let mut at: FxHashMap<u64, Live> = FxHashMap::default();
    let mut sizes = vec![0; order.len()];
    let mut allocations: Vec<Allocation> = Vec::new();
    // In the order of time, but what is given out at a moment may be freed at the same: so allocations first. Where something was in
    // use at the address, it was the first to be freed.
    let mut by_time: Vec<usize> = (0..order.len()).collect();
    by_time.sort_by_key(|&place| (events.time_ns[order[place]], events.operation[order[place]]));
    for place in by_time {
        let row = order[place];
        let (address, bytes) = (events.address[row], events.bytes[row]);
        let time = events.time_ns[row].0;
        if events.operation[row] == RELEASE {
            let before = at
                .get_mut(&address)
                .and_then(|live| live.before.take_if(|(moment, _)| *moment == time));
            let allocated = before.map(|(_, bytes)| bytes).or_else(|| {
                let live = at.remove(&address)?;
                end(&mut allocations, &live, time);
                Some(live.bytes)
            });
            sizes[place] = if bytes > 0 { bytes } else { allocated.unwrap_or(0) };
        } else {
            let live = Live {
                bytes,
                place: allocations.len(),
                before: None,
            };
            let before = at.insert(address, live).map(|before| {
                end(&mut allocations, &before, time);
                (time, before.bytes)
            });
            if let Some(live) = at.get_mut(&address) {
                live.before = before;
            }
            allocations.push(Allocation {
                row,
                bytes,
                until: if address == 0 { Until::Unknown } else { Until::End },
            });
            sizes[place] = bytes;
        }
    }
    (sizes, allocations)
}

/// What was in use until this moment; where it has no address, nothing is known.
fn end(allocations: &mut [Allocation], live: &Live, time: i64) {
    if let Some(allocation) = allocations.get_mut(live.place)
        && allocation.until == Until::End
    {
        allocation.until = Until::Freed(time);
    }
}

/// The most that pools held and used at once: each event says the state of its own pool, the sum is over the pools.
fn pool_peaks(events: &MemoryEvents, order: &[usize]) -> (Option<u64>, Option<u64>) {
    let mut pools: FxHashMap<u64, (u64, u64)> = FxHashMap::default();
    let (mut held, mut used, mut peaks) = (0u64, 0u64, None);
    for &index in order {
        let (Some(pool), Some(bytes), Some(used_bytes)) = (
            events.pool_address[index],
            events.pool_bytes[index],
            events.pool_used_bytes[index],
        ) else {
            continue;
        };
        let before = pools.insert(pool, (bytes, used_bytes)).unwrap_or((0, 0));
        held = held.saturating_sub(before.0).saturating_add(bytes);
        used = used.saturating_sub(before.1).saturating_add(used_bytes);
        let (most_held, most_used) = peaks.unwrap_or((0, 0));
        peaks = Some((held.max(most_held), used.max(most_used)));
    }
    (peaks.map(|(held, _)| held), peaks.map(|(_, used)| used))
}

/// Times and bytes in use from then on.
pub type InUse = Vec<(i64, u64)>;

/// What is recorded of the memory of a process's devices. Gone through once for all of them.
pub struct Memory<'a> {
    events: &'a MemoryEvents,
    /// By device: the events of its own memory by time.
    rows: FxHashMap<u32, Vec<usize>>,
    /// By device: the values of the allocator's counters, sorted by time.
    allocated: FxHashMap<u32, InUse>,
    reserved: FxHashMap<u32, InUse>,
}

/// The values of one counter by device, sorted by time.
fn series(counters: &Counters, name: Option<NameId>) -> FxHashMap<u32, InUse> {
    let mut devices: FxHashMap<u32, InUse> = FxHashMap::default();
    let Some(name) = name else {
        return devices;
    };
    for index in 0..counters.time_ns.len() {
        if let Some(device) = counters.device[index]
            && counters.name[index] == name
        {
            let point = (counters.time_ns[index].0, counters.value[index].max(0.0) as u64);
            devices.entry(device).or_default().push(point);
        }
    }
    for points in devices.values_mut() {
        points.sort_unstable();
    }
    devices
}

impl<'a> Memory<'a> {
    /// Of the tables of one process.
    #[must_use]
    pub fn new(events: &'a MemoryEvents, counters: &Counters, names: &Interner) -> Self {
        let mut rows: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for index in 0..events.time_ns.len() {
            if ON_DEVICE.contains(&events.memory_kind[index]) {
                rows.entry(events.device[index]).or_default().push(index);
            }
        }
        // What is freed and given out again at one moment is not in use twice.
        for order in rows.values_mut() {
            order.sort_by_key(|&index| {
                let released = events.operation[index] == RELEASE;
                (events.time_ns[index], !released, events.bytes[index])
            });
        }
        Self {
            events,
            rows,
            allocated: series(counters, names.find("memory_allocated_bytes")),
            reserved: series(counters, names.find("memory_reserved_bytes")),
        }
    }

    fn order(&self, device: u32) -> &[usize] {
        self.rows.get(&device).map_or(&[], Vec::as_slice)
    }

    /// Times and bytes of a device's memory in use from then on; empty where nothing is recorded of it.
    #[must_use]
    pub fn in_use(&self, device: u32) -> InUse {
        self.counted(device).0
    }

    /// The same, and what counted them.
    fn counted(&self, device: u32) -> (InUse, &'static str) {
        if let Some(allocated) = self.allocated.get(&device) {
            return (allocated.clone(), "allocator");
        }
        let (events, order) = (self.events, self.order(device));
        let mut used = 0i128;
        let points = order
            .iter()
            .zip(paired(events, order).0)
            .map(|(&index, bytes)| {
                let bytes = i128::from(bytes);
                // What was allocated before the recording began is freed too: below nothing there is nothing.
                used = (used
                    + if events.operation[index] == RELEASE {
                        -bytes
                    } else {
                        bytes
                    })
                .max(0);
                (events.time_ns[index].0, u64::try_from(used).unwrap_or(u64::MAX))
            })
            .collect();
        (points, "allocations and frees")
    }

    /// All that was allocated on a device, in the order of time.
    pub(crate) fn allocations(&self, device: u32) -> Vec<Allocation> {
        paired(self.events, self.order(device)).1
    }

    /// The memory of a device; `None` where nothing is recorded of it.
    pub(crate) fn analysis(&self, device: u32) -> Option<MemoryAnalysis> {
        let (events, order) = (self.events, self.order(device));
        let frees = order
            .iter()
            .filter(|&&index| events.operation[index] == RELEASE)
            .count();
        let (points, counted_by) = self.counted(device);
        // The first of several equal peaks.
        let (peak_at_ns, peak_bytes) = points
            .iter()
            .copied()
            .max_by_key(|(time, bytes)| (*bytes, std::cmp::Reverse(*time)))?;
        let (peak_pool_bytes, peak_pool_used_bytes) = pool_peaks(events, order);
        let reserved = self.reserved.get(&device);
        Some(MemoryAnalysis {
            peak_pool_bytes,
            peak_pool_used_bytes,
            peak_bytes,
            peak_at_ns: TimeNs(peak_at_ns),
            peak_reserved_bytes: reserved.and_then(|points| points.iter().map(|(_, bytes)| *bytes).max()),
            allocations: order.len() - frees,
            frees,
            counted_by: counted_by.to_owned(),
            timeline: thinned(&points)
                .into_iter()
                .map(|(time, bytes)| (TimeNs(time), bytes))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::Table;
    use gputrace_trace::tables::MemoryEvent;

    use super::*;

    #[test]
    fn pools_are_summed_and_frees_without_a_size_have_their_allocation_s() {
        let mut events = MemoryEvents::default();
        for (time, operation, address, bytes, pool, pool_bytes, pool_used) in [
            (10, 1, 0x10, 100, 0xa, 1000, 100),
            (20, 1, 0x20, 300, 0xb, 500, 300),
            (30, 2, 0x10, 0, 0xa, 1000, 0),
            (40, 1, 0x30, 50, 0xb, 800, 350),
            (50, 2, 0x20, 0, 0xb, 0, 50),
        ] {
            events.push(MemoryEvent {
                time_ns: TimeNs(time),
                operation,
                memory_kind: 3,
                address,
                bytes,
                pool_type: Some(1),
                pool_address: Some(pool),
                pool_bytes: Some(pool_bytes),
                pool_used_bytes: Some(pool_used),
                ..MemoryEvent::default()
            });
        }
        let memory = Memory::new(&events, &Counters::default(), &Interner::default());
        let memory = memory.analysis(0).unwrap();
        assert_eq!(
            memory.timeline,
            [(10, 100), (20, 400), (30, 300), (40, 350), (50, 50)].map(|(time, bytes)| (TimeNs(time), bytes))
        );
        assert_eq!(
            (memory.peak_pool_bytes, memory.peak_pool_used_bytes),
            (Some(1800), Some(400))
        );
    }

    /// Events on GPU memory: time, operation, address, bytes, device.
    fn events(rows: &[(i64, u8, u64, u64, u32)]) -> MemoryEvents {
        let mut events = MemoryEvents::default();
        for (time, operation, address, bytes, device) in rows {
            events.push(MemoryEvent {
                time_ns: TimeNs(*time),
                operation: *operation,
                memory_kind: 3,
                address: *address,
                bytes: *bytes,
                device: *device,
                ..MemoryEvent::default()
            });
        }
        events
    }

    #[test]
    fn what_is_given_out_again_at_the_moment_of_its_free_stays_in_use() {
        let events = events(&[
            (10, 1, 0x10, 100, 0),
            // Within one microsecond: freed and given out again.
            (20, 2, 0x10, 100, 0),
            (20, 1, 0x10, 70, 0),
            // Given out and freed at once.
            (30, 1, 0x20, 5, 0),
            (30, 2, 0x20, 5, 0),
            // Its free was lost.
            (40, 1, 0x30, 8, 0),
            (50, 1, 0x30, 9, 0),
            (60, 2, 0x30, 0, 0),
            // Without an address.
            (70, 1, 0, 3, 0),
            (80, 2, 0, 3, 0),
        ]);
        let memory = Memory::new(&events, &Counters::default(), &Interner::default());
        let found: Vec<(u64, Until)> = memory
            .allocations(0)
            .into_iter()
            .map(|allocation| (allocation.bytes, allocation.until))
            .collect();
        assert_eq!(
            found,
            [
                (100, Until::Freed(20)),
                (70, Until::End),
                (5, Until::Freed(30)),
                (8, Until::Freed(50)),
                (9, Until::Freed(60)),
                (3, Until::Unknown),
            ]
        );
    }

    #[test]
    fn a_peak_is_allocations_minus_frees() {
        let events = events(&[
            (10, 1, 0, 100, 0),
            (20, 1, 0, 50, 0),
            (25, 1, 0, 999, 1),
            (30, 2, 0, 100, 0),
            (40, 1, 0, 60, 0),
        ]);
        let memory = Memory::new(&events, &Counters::default(), &Interner::default());
        let memory = memory.analysis(0).unwrap();
        assert_eq!(
            (
                memory.peak_bytes,
                memory.peak_at_ns,
                memory.allocations,
                memory.frees
            ),
            (150, TimeNs(20), 3, 1)
        );
        assert_eq!(
            memory.timeline,
            [(10, 100), (20, 150), (30, 50), (40, 110)].map(|(time, bytes)| (TimeNs(time), bytes))
        );
    }
}
