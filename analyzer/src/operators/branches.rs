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

/// Sums of all spans of one key.
#[derive(Clone, Copy)]
pub(crate) struct Keyed<const N: usize> {
    /// What they launched themselves.
    pub(crate) direct: [Sum; N],
    /// With what their descendants launched; each operation once.
    pub(crate) subtree: [Sum; N],
}

impl<const N: usize> Branches<N> {
    /// From (place, kind, sum) triples. Those with the place [`NONE`] are skipped.
    pub(crate) fn new(nesting: &Nesting<'_>, launched: impl Iterator<Item = (u32, usize, Sum)>) -> Self {
        let mut launched: Vec<(u32, usize, Sum)> = launched.filter(|(place, ..)| *place != NONE).collect();
        // Operations come nearly in the order of their launches.
        launched.sort_by_key(|(place, ..)| *place);
        let (mut places, mut parents) = (Vec::new(), Vec::new());
        let mut direct: Vec<[Sum; N]> = Vec::new();
        let mut new: Vec<u32> = Vec::new();
        for (place, kind, sum) in launched {
            if places.last() != Some(&place) {
                // What holds this one and begins before the last, or is the last, holds the last too: it is there.
                let first_new = places.last().map_or(0, |last| last + 1);
                let mut around = Some(place);
                while let Some(one) = around.filter(|one| *one >= first_new) {
                    new.push(one);
                    around = nesting.parent(one);
                }
                let mut parent = around.map_or(NONE, |around| {
                    let found = places.binary_search(&around);
                    found.map_or(NONE, |number| u32::try_from(number).unwrap_or(NONE))
                });
                while let Some(one) = new.pop() {
                    parents.push(parent);
                    parent = u32::try_from(places.len()).unwrap_or(NONE);
                    places.push(one);
                    direct.push([Sum::default(); N]);
                }
            }
            if let Some(sums) = direct.last_mut() {
                sums[kind].add(sum);
            }
        }
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

    /// Sums by key of the spans' places.
    pub(crate) fn by_key<K: Copy + Eq + std::hash::Hash>(
        &self,
        key: impl Fn(u32) -> K,
    ) -> FxHashMap<K, Keyed<N>> {
        let keys = Keys::new(self.places.iter().map(|place| key(*place)));
        let outermost = self.outermost(&keys);
        let none = Keyed {
            direct: [Sum::default(); N],
            subtree: [Sum::default(); N],
        };
        let mut all = vec![none; keys.distinct.len()];
        let add = |sums: &mut [Sum; N], more: &[Sum; N]| {
            for (sum, more) in sums.iter_mut().zip(more) {
                sum.add(*more);
            }
        };
        for (number, of_key) in keys.of.iter().enumerate() {
            let of_key = &mut all[*of_key as usize];
            add(&mut of_key.direct, &self.direct[number]);
            if outermost[number] {
                add(&mut of_key.subtree, &self.subtree[number]);
            }
        }
        keys.distinct.into_iter().zip(all).collect()
    }

    /// For each span: whether no ancestor has the same key.
    pub(crate) fn outermost<K>(&self, keys: &Keys<K>) -> Vec<bool> {
        outermost(keys, |number| self.parent(number))
    }
}

/// For each item of a forest in pre-order: whether no ancestor has the same key.
pub(crate) fn outermost<K>(keys: &Keys<K>, parent: impl Fn(usize) -> Option<usize>) -> Vec<bool> {
    let mut open: Vec<usize> = Vec::new();
    let mut counts = vec![0u32; keys.distinct.len()];
    let key = |number: usize| keys.of[number] as usize;
    (0..keys.of.len())
        .map(|number| {
            let parent = parent(number);
            while open.last().copied() != parent
                && let Some(last) = open.pop()
            {
                counts[key(last)] -= 1;
            }
            open.push(number);
            counts[key(number)] += 1;
            counts[key(number)] == 1
        })
        .collect()
}

/// Distinct keys, and which of them each item has.
pub(crate) struct Keys<K> {
    pub(crate) distinct: Vec<K>,
    /// By item: the place in `distinct`.
    pub(crate) of: Vec<u32>,
}

impl<K: Copy + Eq + std::hash::Hash> Keys<K> {
    pub(crate) fn new(items: impl Iterator<Item = K>) -> Self {
        let mut numbers: FxHashMap<K, u32> = FxHashMap::default();
        let mut distinct: Vec<K> = Vec::new();
        // By key: the one that came after it last. Jobs repeat themselves, so it mostly comes again.
        let mut after: Vec<u32> = Vec::new();
        let mut last = 0;
        let of = items
            .map(|key| {
                let likely = after.get(last).copied().unwrap_or(0);
                let number = if distinct.get(likely as usize) == Some(&key) {
                    likely
                } else {
                    *numbers.entry(key).or_insert_with(|| {
                        distinct.push(key);
                        after.push(0);
                        u32::try_from(distinct.len() - 1).unwrap_or(NONE)
                    })
                };
                if let Some(after) = after.get_mut(last) {
                    *after = number;
                }
                last = number as usize;
                number
            })
            .collect();
        Self { distinct, of }
    }
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
        let outermost = branches.outermost(&Keys::new(
            branches.places.iter().map(|place| names[*place as usize]),
        ));
        assert_eq!(outermost, [true, true, false, true]);
    }
}
