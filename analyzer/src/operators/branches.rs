//! The part of a forest that has time on a device: sums by what holds what.

use rustc_hash::FxHashMap;

use super::nesting::{NONE, Nesting};

/// Durations of operations on a device, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) time_ns: i64,
    pub(crate) operations: u64,
}

impl Sum {
    pub(crate) fn of(time_ns: i64) -> Self {
        Self {
            time_ns,
            operations: 1,
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        // Sums of a damaged trace may be as great as numbers go.
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.operations += other.operations;
    }
}

/// The spans that launched something on a device, with all their ancestors, in pre-order. Only these are stored, since a process
/// may have many devices.
///
/// Each span has `N` sums, one for each kind of time.
pub(crate) struct Branches<const N: usize> {
    pub(crate) places: Vec<u32>,
    /// By index in `places`: the parent's index, or [`NONE`].
    parents: Vec<u32>,
    /// What it launched itself.
    pub(crate) direct: Vec<[Sum; N]>,
    /// What it and its descendants launched.
    pub(crate) subtree: Vec<[Sum; N]>,
}

impl<const N: usize> Branches<N> {
    /// From (place, kind, sum) triples. Those with the place [`NONE`] are skipped.
    pub(crate) fn new(nesting: &Nesting<'_>, launched: impl Iterator<Item = (u32, usize, Sum)>) -> Self {
        let mut sums: FxHashMap<u32, [Sum; N]> = FxHashMap::default();
        for (place, kind, sum) in launched {
            if place != NONE {
                sums.entry(place).or_insert([Sum::default(); N])[kind].add(sum);
            }
        }
        let mut places: Vec<u32> = sums.keys().copied().collect();
        let mut at = 0;
        while at < places.len() {
            if let Some(parent) = nesting.parent(places[at]) {
                sums.entry(parent).or_insert_with(|| {
                    places.push(parent);
                    [Sum::default(); N]
                });
            }
            at += 1;
        }
        places.sort_unstable();
        let number_of = |place: u32| {
            let found = places.binary_search(&place);
            found.map_or(NONE, |number| u32::try_from(number).unwrap_or(NONE))
        };
        let parents: Vec<u32> = places
            .iter()
            .map(|place| nesting.parent(*place).map_or(NONE, number_of))
            .collect();
        let direct: Vec<[Sum; N]> = places.iter().map(|place| sums[place]).collect();
        let mut subtree = direct.clone();
        for number in (0..places.len()).rev() {
            let parent = parents[number];
            if parent != NONE {
                let own = subtree[number];
                for (sum, own) in subtree[parent as usize].iter_mut().zip(own) {
                    sum.add(own);
                }
            }
        }
        Self {
            places,
            parents,
            direct,
            subtree,
        }
    }

    /// The parent of the span at an index.
    pub(crate) fn parent(&self, number: usize) -> Option<usize> {
        let parent = self.parents[number];
        (parent != NONE).then_some(parent as usize)
    }

    /// For each span: whether no ancestor has the same key.
    pub(crate) fn outermost<K: Copy + Eq + std::hash::Hash>(&self, key: impl Fn(u32) -> K) -> Vec<bool> {
        let keys: Vec<K> = self.places.iter().map(|place| key(*place)).collect();
        outermost(&keys, |number| self.parent(number))
    }
}

/// For each item of a forest in pre-order: whether no ancestor has the same key.
pub(crate) fn outermost<K: Copy + Eq + std::hash::Hash>(
    keys: &[K],
    parent: impl Fn(usize) -> Option<usize>,
) -> Vec<bool> {
    let mut open: Vec<usize> = Vec::new();
    let mut counts: FxHashMap<K, u32> = FxHashMap::default();
    (0..keys.len())
        .map(|number| {
            let parent = parent(number);
            while open.last().copied() != parent
                && let Some(last) = open.pop()
            {
                *counts.entry(keys[last]).or_default() -= 1;
            }
            open.push(number);
            let count = counts.entry(keys[number]).or_default();
            *count += 1;
            *count == 1
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use gputrace_trace::{DurationNs, TimeNs};

    use super::*;

    /// a(0..100) holds b(0..60), which holds a(10..30); b(70..90) is a's too. c(200..300) launches nothing.
    fn forest() -> ([u32; 5], [TimeNs; 5], [DurationNs; 5], [char; 5]) {
        (
            [1; 5],
            [0, 0, 10, 70, 200].map(TimeNs),
            [100, 60, 20, 20, 100].map(DurationNs),
            ['a', 'b', 'a', 'b', 'c'],
        )
    }

    #[test]
    fn each_operation_counts_once_for_each_name_that_holds_it() {
        let (threads, starts, durations, names) = forest();
        let nesting = Nesting::new(&threads, &starts, &durations, &[]);
        let launched = [
            (2, 0, Sum::of(5)),
            (1, 0, Sum::of(7)),
            (3, 1, Sum::of(11)),
            (2, 0, Sum::of(1)),
            (NONE, 0, Sum::of(99)),
        ];
        let branches: Branches<2> = Branches::new(&nesting, launched.into_iter());
        assert_eq!(branches.places, [0, 1, 2, 3]);
        let times: Vec<[i64; 2]> = branches
            .subtree
            .iter()
            .map(|sums| sums.map(|sum| sum.time_ns))
            .collect();
        assert_eq!(times, [[13, 11], [13, 0], [6, 0], [0, 11]]);
        assert_eq!(
            branches.direct[2][0],
            Sum {
                time_ns: 6,
                operations: 2
            }
        );
        let outermost = branches.outermost(|place| names[place as usize]);
        assert_eq!(outermost, [true, true, false, true]);
    }
}
