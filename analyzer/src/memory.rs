//! Device memory over time, where it is recorded.

use gputrace_trace::tables::{Counters, MemoryEvents};
use gputrace_trace::{Interner, NameId};
use serde::Serialize;

/// Points of a timeline.
const TIMELINE_POINTS: usize = 200;
/// `CUpti_ActivityMemoryOperationType`: memory is given back.
const RELEASE: u8 = 2;
/// Kinds of memory that are the device's own (`CUpti_ActivityMemoryKind`: device, array, managed, device static).
const ON_DEVICE: [u32; 4] = [3, 4, 5, 6];

/// Memory of one device of one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryAnalysis {
    /// Most bytes in use at once: by the allocator's own count where it is recorded, else allocations minus frees seen, so
    /// without what was allocated before the recording began.
    pub peak_bytes: u64,
    /// When.
    pub peak_at_ns: i64,
    /// Most bytes that the allocator held at once; null where it did not say.
    pub peak_reserved_bytes: Option<u64>,
    /// Allocations.
    pub allocations: usize,
    /// Frees.
    pub frees: usize,
    /// "allocator" or "allocations and frees".
    pub counted_by: String,
    /// Time and bytes in use: at most 200 points, each the most until the next.
    pub timeline: Vec<(i64, u64)>,
}

/// The values of one counter of a device, sorted by time.
fn series(counters: &Counters, device: u32, name: Option<NameId>) -> Vec<(i64, u64)> {
    let Some(name) = name else {
        return Vec::new();
    };
    let mut points: Vec<(i64, u64)> = (0..counters.time_ns.len())
        .filter(|&index| counters.name[index] == name && counters.device[index] == Some(device))
        .map(|index| (counters.time_ns[index].0, counters.value[index].max(0.0) as u64))
        .collect();
    points.sort_unstable();
    points
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

/// The memory of a device; `None` where nothing is recorded of it.
pub(crate) fn memory(
    events: &MemoryEvents,
    counters: &Counters,
    device: u32,
    names: &Interner,
) -> Option<MemoryAnalysis> {
    let mut order: Vec<usize> = (0..events.time_ns.len())
        .filter(|&index| events.device[index] == device && ON_DEVICE.contains(&events.memory_kind[index]))
        .collect();
    // What is freed and given out again at one moment is not in use twice.
    order.sort_by_key(|&index| {
        let released = events.operation[index] == RELEASE;
        (events.time_ns[index], !released, events.bytes[index])
    });
    let frees = order
        .iter()
        .filter(|&&index| events.operation[index] == RELEASE)
        .count();
    let allocated = series(counters, device, names.find("memory_allocated_bytes"));
    let reserved = series(counters, device, names.find("memory_reserved_bytes"));
    let (points, counted_by) = if allocated.is_empty() {
        let mut used = 0i128;
        let points: Vec<(i64, u64)> = order
            .iter()
            .map(|&index| {
                let bytes = i128::from(events.bytes[index]);
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
    } else {
        (allocated, "allocator")
    };
    // The first of several equal peaks.
    let (peak_at_ns, peak_bytes) = points
        .iter()
        .copied()
        .max_by_key(|(time, bytes)| (*bytes, std::cmp::Reverse(*time)))?;
    Some(MemoryAnalysis {
        peak_bytes,
        peak_at_ns,
        peak_reserved_bytes: reserved.iter().map(|(_, bytes)| *bytes).max(),
        allocations: order.len() - frees,
        frees,
        counted_by: counted_by.to_owned(),
        timeline: thinned(&points),
    })
}

#[cfg(test)]
mod tests {
    use gputrace_trace::tables::MemoryEvent;
    use gputrace_trace::{Table, TimeNs};

    use super::*;

    #[test]
    fn a_peak_is_allocations_minus_frees() {
        let mut events = MemoryEvents::default();
        for (time, operation, bytes, device) in [
            (10, 1, 100, 0),
            (20, 1, 50, 0),
            (25, 1, 999, 1),
            (30, 2, 100, 0),
            (40, 1, 60, 0),
        ] {
            events.push(MemoryEvent {
                time_ns: TimeNs(time),
                operation,
                memory_kind: 3,
                bytes,
                device,
                ..MemoryEvent::default()
            });
        }
        let memory = memory(&events, &Counters::default(), 0, &Interner::default()).unwrap();
        assert_eq!(
            (
                memory.peak_bytes,
                memory.peak_at_ns,
                memory.allocations,
                memory.frees
            ),
            (150, 20, 3, 1)
        );
        assert_eq!(memory.timeline, [(10, 100), (20, 150), (30, 50), (40, 110)]);
    }
}
