//! Device memory by who asked for it.
//!
//! What is allocated belongs to the innermost operator at that moment on the thread that asked for it, until it is freed, wherever
//! that is: most of it is freed outside of all operators.

use std::hash::Hash;

use gputrace_trace::Process;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::branches::{Branches, Keyed, Sum};
use super::launched_by::LaunchedBy;
use super::nesting::NONE;
use crate::calls::Calls;
use crate::memory::{Allocation, Until};

/// Device memory that operators or modules asked for, all null where it is not recorded. What is within others counts once a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedBytes {
    /// Bytes allocated in it itself.
    pub allocated_bytes: Option<u64>,
    /// The same with what is nested in it.
    pub subtree_allocated_bytes: Option<u64>,
    /// The part of `allocated_bytes` that was in use when the device's memory was used most.
    pub live_at_peak_bytes: Option<u64>,
    /// The same with what is nested in it.
    pub subtree_live_at_peak_bytes: Option<u64>,
    /// The part of `allocated_bytes` that was still in use at the recording's end.
    pub live_at_end_bytes: Option<u64>,
    /// The same with what is nested in it.
    pub subtree_live_at_end_bytes: Option<u64>,
}

impl AllocatedBytes {
    /// Each sum, where both are known.
    pub(super) fn add(&mut self, other: &Self) {
        let both = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
        };
        both(&mut self.allocated_bytes, other.allocated_bytes);
        both(&mut self.subtree_allocated_bytes, other.subtree_allocated_bytes);
        both(&mut self.live_at_peak_bytes, other.live_at_peak_bytes);
        both(
            &mut self.subtree_live_at_peak_bytes,
            other.subtree_live_at_peak_bytes,
        );
        both(&mut self.live_at_end_bytes, other.live_at_end_bytes);
        both(
            &mut self.subtree_live_at_end_bytes,
            other.subtree_live_at_end_bytes,
        );
    }
}

/// A part of a device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// What was in use of it when the device's memory was used most.
    pub live_at_peak_bytes: u64,
    /// What was in use of it at the recording's end.
    pub live_at_end_bytes: u64,
}

impl MemoryPart {
    fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.allocated_bytes, other.allocated_bytes),
            (&mut self.live_at_peak_bytes, other.live_at_peak_bytes),
            (&mut self.live_at_end_bytes, other.live_at_end_bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Device memory as a whole, and how much of it nobody is known for. What operators allocated themselves, `no_operator` and
/// `caller_not_recorded` sum to `all`; so do modules', `no_module` and `caller_not_recorded`; at the peak with `not_seen_at_peak_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnattributedMemory {
    /// All that was allocated; at the peak, `peak_bytes` of the device's memory.
    pub all: MemoryPart,
    /// Allocated outside of all operators.
    pub no_operator: MemoryPart,
    /// Allocated outside of all modules, and not in the backward pass of one.
    pub no_module: MemoryPart,
    /// Neither the thread that asked for it nor its call is recorded.
    pub caller_not_recorded: MemoryPart,
    /// In use at the peak, but allocated before the recording began or at an address that is not recorded. Negative where frees are
    /// missing.
    pub not_seen_at_peak_bytes: i64,
}

impl UnattributedMemory {
    /// Its parts with their names.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, MemoryPart)> + use<> {
        [
            ("all", self.all),
            ("no_operator", self.no_operator),
            ("no_module", self.no_module),
            ("caller_not_recorded", self.caller_not_recorded),
        ]
        .into_iter()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.no_operator.add(&other.no_operator);
        self.no_module.add(&other.no_module);
        self.caller_not_recorded.add(&other.caller_not_recorded);
        let not_seen = &mut self.not_seen_at_peak_bytes;
        *not_seen = not_seen.saturating_add(other.not_seen_at_peak_bytes);
    }
}

/// What is known of a device's memory.
pub(crate) struct DeviceMemory {
    pub(crate) allocations: Vec<Allocation>,
    /// When most was in use, and how much.
    pub(crate) peak: (i64, u64),
}

/// An allocation that is known of whom it is.
struct Asked {
    thread_and_time: (u32, i64),
    part: MemoryPart,
}

/// A device's memory by operators and modules. Kinds of sums: allocated, in use at the peak, in use at the end; bytes in place of
/// nanoseconds.
pub(super) struct Allocated {
    by_operator: Branches<3>,
    by_module: Branches<3>,
    pub(super) unattributed: UnattributedMemory,
}

impl Allocated {
    /// With `chosen`, what was allocated at other times counts only in what is in use at the peak.
    pub(super) fn new(
        process: &Process,
        by: &LaunchedBy<'_>,
        memory: &DeviceMemory,
        chosen: Option<(i64, i64)>,
    ) -> Self {
        let tables = &process.tables;
        let events = &tables.memory;
        let mut calls = Calls::new(&tables.api_calls);
        let (peak_at, peak_bytes) = memory.peak;
        let mut unattributed = UnattributedMemory::default();
        let mut asked: Vec<Asked> = Vec::new();
        for Allocation { row, bytes, until } in &memory.allocations {
            let time = events.time_ns[*row].0;
            let is_chosen = chosen.is_none_or(|(first, end)| (first..end).contains(&time));
            let lasts = match until {
                Until::Freed(end) => *end > peak_at,
                Until::End => true,
                Until::Unknown => false,
            };
            let counted = |counts: bool| if counts { *bytes } else { 0 };
            let part = MemoryPart {
                allocated_bytes: counted(is_chosen),
                live_at_peak_bytes: counted(time <= peak_at && lasts),
                live_at_end_bytes: counted(is_chosen && *until == Until::End),
            };
            unattributed.all.add(&part);
            let call = calls.row(events.correlation[*row]).map(|call| call as usize);
            let thread_and_time = match (call, events.thread[*row]) {
                (Some(call), _) => (tables.api_calls.thread[call], tables.api_calls.start_ns[call].0),
                (None, Some(thread)) => (thread, time),
                (None, None) => {
                    unattributed.caller_not_recorded.add(&part);
                    continue;
                }
            };
            asked.push(Asked {
                thread_and_time,
                part,
            });
        }
        let seen = unattributed.all.live_at_peak_bytes;
        let not_seen = i128::from(peak_bytes) - i128::from(seen);
        unattributed.not_seen_at_peak_bytes =
            i64::try_from(not_seen).unwrap_or(if not_seen < 0 { i64::MIN } else { i64::MAX });
        unattributed.all.live_at_peak_bytes = peak_bytes;
        asked.sort_by_key(|one| one.thread_and_time);
        let moments: Vec<(u32, i64)> = asked.iter().map(|one| one.thread_and_time).collect();
        let of = by.at(&moments);
        for (one, (operator, module)) in asked.iter().zip(&of) {
            if *operator == NONE {
                unattributed.no_operator.add(&one.part);
            }
            if *module == NONE {
                unattributed.no_module.add(&one.part);
            }
        }
        let sums = |place: &dyn Fn(&(u32, u32)) -> u32| -> Vec<(u32, usize, Sum)> {
            let each = asked.iter().zip(&of).flat_map(|(one, of)| {
                let part = &one.part;
                let bytes = [
                    part.allocated_bytes,
                    part.live_at_peak_bytes,
                    part.live_at_end_bytes,
                ];
                let sum = |bytes: u64| Sum::of(i64::try_from(bytes).unwrap_or(i64::MAX));
                (0..)
                    .zip(bytes)
                    .map(|(kind, bytes)| (place(of), kind, sum(bytes)))
                    .collect::<Vec<_>>()
            });
            each.collect()
        };
        Self {
            by_operator: Branches::new(&by.operators, sums(&|(operator, _)| *operator).into_iter()),
            by_module: Branches::new(&by.frames, sums(&|(_, module)| *module).into_iter()),
            unattributed,
        }
    }

    /// By key of operators' places.
    pub(super) fn of_operators<K: Copy + Eq + Hash>(
        &self,
        key: impl Fn(u32) -> K,
    ) -> FxHashMap<K, AllocatedBytes> {
        by_key(&self.by_operator, key)
    }

    /// By key of the places of modules' frames.
    pub(super) fn of_modules<K: Copy + Eq + Hash>(
        &self,
        key: impl Fn(u32) -> K,
    ) -> FxHashMap<K, AllocatedBytes> {
        by_key(&self.by_module, key)
    }
}

fn by_key<K: Copy + Eq + Hash>(
    branches: &Branches<3>,
    key: impl Fn(u32) -> K,
) -> FxHashMap<K, AllocatedBytes> {
    let bytes = |sum: &Sum| Some(u64::try_from(sum.time_ns).unwrap_or(0));
    let sums = branches.by_key(key).into_iter();
    sums.map(|(key, Keyed { direct, subtree })| {
        let of_key = AllocatedBytes {
            allocated_bytes: bytes(&direct[0]),
            subtree_allocated_bytes: bytes(&subtree[0]),
            live_at_peak_bytes: bytes(&direct[1]),
            subtree_live_at_peak_bytes: bytes(&subtree[1]),
            live_at_end_bytes: bytes(&direct[2]),
            subtree_live_at_end_bytes: bytes(&subtree[2]),
        };
        (key, of_key)
    })
    .collect()
}

/// What is said of a key: nothing where memory is not recorded, 0 of one that is not in the map.
pub(super) fn of_key<K: Eq + Hash>(
    allocated: Option<&FxHashMap<K, AllocatedBytes>>,
    key: &K,
) -> AllocatedBytes {
    let none = AllocatedBytes {
        allocated_bytes: Some(0),
        subtree_allocated_bytes: Some(0),
        live_at_peak_bytes: Some(0),
        subtree_live_at_peak_bytes: Some(0),
        live_at_end_bytes: Some(0),
        subtree_live_at_end_bytes: Some(0),
    };
    allocated.map_or_else(AllocatedBytes::default, |known| {
        known.get(key).copied().unwrap_or(none)
    })
}
