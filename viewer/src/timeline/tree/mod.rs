//! What host threads were in, merged over a stretch of time: ranges, operators and calls by what they lie in, as a flame
//! graph shows them.
//!
//! The slices of a thread nest by time: one lies in the latest that encloses it as a whole. Slices with the same names from
//! the outermost on are one node. Of a slice that the stretch cuts only the part within is counted.

mod windows;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::atomic::{AtomicBool, Ordering};

use gputrace_trace::parallel;
use rustc_hash::FxHashMap;

use super::Timeline;
use super::answers::{Row, Tree, TreeNode, What};
use super::names::{self, Class};
use super::slices::Slices;
use windows::{Cursor, Window, windows};

/// Nodes that are answered.
const MOST_NODES: usize = 2000;
/// Nodes of one thread; what would need more is counted, and its time is its parent's own.
const MOST_GROWN: usize = 1 << 18;
/// Slices between two looks whether somebody still waits.
const BETWEEN_LOOKS: usize = 1 << 14;
/// The parent of the outermost.
const NONE: u32 = u32::MAX;

/// Which slices a tree is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOf {
    /// NVTX ranges, operators and calls of host threads, one in another.
    Threads,
    /// NVTX ranges of host threads alone.
    Ranges,
    /// Operators and calls of host threads alone.
    Calls,
    /// NVTX ranges as they lie on devices.
    DeviceRanges,
}

impl TreeOf {
    fn has(self, row: &Row) -> bool {
        match row.what {
            What::Nvtx if row.device.is_some() => self == Self::DeviceRanges,
            What::Nvtx => matches!(self, Self::Threads | Self::Ranges),
            What::Thread => matches!(self, Self::Threads | Self::Calls),
            _ => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    parent: u32,
    name: u32,
    count: u64,
    total: i64,
    /// Of it, the time with a slice that lies in these.
    covered: i64,
    /// Duration, row and place of the longest, whole.
    longest: (i64, u32, usize),
}

/// A slice that has not ended yet where the sweep is.
struct Open {
    end: i64,
    node: u32,
    /// Until where slices in it have been counted as such.
    covered_to: i64,
}

#[derive(Default)]
struct Growing {
    nodes: Vec<Node>,
    places: FxHashMap<(u32, u32), u32>,
    left_out: u64,
}

impl Growing {
    /// The node of a name below another; none where there are too many.
    fn node(&mut self, parent: u32, name: u32) -> Option<u32> {
        if let Some(node) = self.places.get(&(parent, name)) {
            return Some(*node);
        }
        if self.nodes.len() >= MOST_GROWN {
            return None;
        }
        let node = u32::try_from(self.nodes.len()).ok()?;
        self.places.insert((parent, name), node);
        self.nodes.push(Node {
            parent,
            name,
            count: 0,
            total: 0,
            covered: 0,
            longest: (-1, 0, 0),
        });
        Some(node)
    }

    /// Adds what lies in a window of the lanes of one thread, whose names are looked up in `alike`. Nobody may want it any more
    /// while that takes: then the rest is left out.
    fn sweep(
        &mut self,
        lanes: &[(u32, &Slices)],
        window: Window,
        alike: &FxHashMap<u32, u32>,
        wanted: &AtomicBool,
    ) {
        let Window { from, to, is_first } = window;
        let mut cursors: Vec<Cursor<'_>> = lanes
            .iter()
            .map(|(row, slices)| Cursor::new(*row, slices, slices.within(from, to)))
            .collect();
        // The next of each lane: of two that begin together the longer one is outside, then the one of the earlier lane.
        let mut coming: BinaryHeap<_> = cursors
            .iter_mut()
            .enumerate()
            .filter_map(|(lane, cursor)| cursor.next().map(|key| Reverse((key, lane))))
            .collect();
        let mut open: Vec<Open> = Vec::new();
        let mut looked_at = 0usize;
        while let Some(mut next) = coming.peek_mut() {
            let Reverse(((start, Reverse(duration)), lane)) = *next;
            let cursor = &mut cursors[lane];
            let (row, place, name) = (cursor.row, cursor.place(), cursor.name());
            // Putting the lane's next in its stead is one way down the heap; taking it out and putting one in are two.
            match cursor.next() {
                Some(key) => *next = Reverse((key, lane)),
                None => drop(PeekMut::pop(next)),
            }
            looked_at += 1;
            if looked_at.is_multiple_of(BETWEEN_LOOKS) && !wanted.load(Ordering::Relaxed) {
                return;
            }
            let end = start + duration;
            while open
                .last()
                .is_some_and(|outer| outer.end < end || outer.end <= start)
            {
                open.pop();
            }
            let name = match alike.is_empty() {
                true => name,
                false => alike.get(&name).copied().unwrap_or(name),
            };
            let is_new = is_first || start >= from;
            let parent = open.last().map_or(NONE, |outer| outer.node);
            let Some(node) = self.node(parent, name) else {
                self.left_out += u64::from(is_new);
                continue;
            };
            let (begin, stop) = (start.max(from), end.min(to));
            if let Some(outer) = open.last_mut() {
                let covered = &mut self.nodes[outer.node as usize].covered;
                *covered = covered.saturating_add((stop - begin.max(outer.covered_to)).max(0));
                outer.covered_to = outer.covered_to.max(stop);
            }
            let known = &mut self.nodes[node as usize];
            known.count += u64::from(is_new);
            known.total = known.total.saturating_add((stop - begin).max(0));
            if duration > known.longest.0 {
                known.longest = (duration, row, place);
            }
            open.push(Open {
                end,
                node,
                covered_to: i64::MIN,
            });
        }
    }

    fn absorb(&mut self, other: &Self) {
        let mut become_: Vec<Option<u32>> = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            let parent = match node.parent {
                NONE => Some(NONE),
                parent => become_[parent as usize],
            };
            let own = parent.and_then(|parent| self.node(parent, node.name));
            become_.push(own);
            let Some(own) = own else {
                self.left_out += node.count;
                continue;
            };
            let own = &mut self.nodes[own as usize];
            own.count += node.count;
            // Of odd stamps the sums may be more than is possible.
            own.total = own.total.saturating_add(node.total);
            own.covered = own.covered.saturating_add(node.covered);
            if node.longest.0 > own.longest.0 {
                own.longest = node.longest;
            }
        }
        self.left_out += other.left_out;
    }

    /// The numbers of those with the greatest totals, with all that they lie in.
    fn greatest(&self) -> Vec<bool> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|node| (Reverse(self.nodes[*node].total), *node));
        let mut kept = vec![false; self.nodes.len()];
        let mut count = 0;
        for mut node in order {
            if count >= MOST_NODES {
                break;
            }
            while !kept[node] {
                kept[node] = true;
                count += 1;
                match self.nodes[node].parent {
                    NONE => break,
                    parent => node = parent as usize,
                }
            }
        }
        kept
    }
}

/// The text before the digits that it ends with, where it does.
fn stem(text: &str) -> Option<&str> {
    let stem = text.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (stem.len() < text.len() && !stem.is_empty()).then_some(stem)
}

impl Timeline {
    /// The tree of what the threads of some rows were in, in `[from, to)`; of all threads where no rows are named. A row
    /// stands for its whole thread. With `merge_numbers` ranges whose names differ only in the number at their end ("step 3",
    /// "step 4") are one.
    #[must_use]
    pub fn tree(&self, of: TreeOf, from: i64, to: i64, rows: Option<&[u32]>, merge_numbers: bool) -> Tree {
        self.tree_while(of, from, to, rows, merge_numbers, &AtomicBool::new(true))
    }

    /// The same; once it is not `wanted` any more, what was not looked at yet is left out.
    #[must_use]
    pub fn tree_while(
        &self,
        of: TreeOf,
        from: i64,
        to: i64,
        rows: Option<&[u32]>,
        merge_numbers: bool,
        wanted: &AtomicBool,
    ) -> Tree {
        let (from, to) = (self.absolute(from), self.absolute(to));
        let thread = |row: &Row| (row.process, row.device, row.thread);
        let chosen: Option<std::collections::HashSet<_>> = rows.map(|rows| {
            let rows = rows.iter().filter_map(|row| self.rows.rows.get(*row as usize));
            rows.filter(|row| of.has(row)).map(thread).collect()
        });
        let mut threads: Vec<(_, Vec<(u32, &Slices)>)> = Vec::new();
        let mut places: FxHashMap<_, usize> = FxHashMap::default();
        let is_chosen = |row: &&Row| {
            let named = chosen.as_ref().is_none_or(|chosen| chosen.contains(&thread(row)));
            named && of.has(row)
        };
        for row in self.rows.rows.iter().filter(is_chosen) {
            if let Some(slices) = self.rows.slices(row.row) {
                let place = *places.entry(thread(row)).or_insert_with(|| {
                    threads.push((thread(row), Vec::new()));
                    threads.len() - 1
                });
                threads[place].1.push((row.row, slices));
            }
        }
        let rows = || {
            threads
                .iter()
                .flat_map(|(_, lanes)| lanes.iter().map(|(row, _)| *row))
        };
        let (alike, stems) = if merge_numbers {
            self.alike(rows())
        } else {
            Default::default()
        };
        let parts: Vec<(usize, Window)> = threads
            .iter()
            .enumerate()
            .flat_map(|(thread, (_, lanes))| {
                windows(lanes, from, to).into_iter().map(move |one| (thread, one))
            })
            .collect();
        let mut with_any = 0;
        let (mut all, mut of_thread) = (Growing::default(), Growing::default());
        parallel::in_order(
            parts.len(),
            |part| {
                let (thread, window) = parts[part];
                let mut growing = Growing::default();
                if wanted.load(Ordering::Relaxed) {
                    growing.sweep(&threads[thread].1, window, &alike, wanted);
                }
                growing
            },
            |part, growing| {
                of_thread.absorb(&growing);
                if parts.get(part + 1).is_none_or(|(next, _)| *next != parts[part].0) {
                    with_any += usize::from(!of_thread.nodes.is_empty());
                    all.absorb(&std::mem::take(&mut of_thread));
                }
            },
        );
        self.written(&all, with_any, &stems)
    }

    /// For names of ranges that differ only in the number at their end, the one that stands for them, and what it is called.
    fn alike(&self, rows: impl Iterator<Item = u32>) -> (FxHashMap<u32, u32>, FxHashMap<u32, String>) {
        let on_rows = self.names_on_rows();
        let mut all: Vec<u32> = rows
            .filter_map(|row| on_rows.get(row as usize))
            .flatten()
            .copied()
            .filter(|name| matches!(names::parts(*name), Some((Class::Range, _))))
            .collect();
        all.sort_unstable();
        all.dedup();
        let mut by_stem: FxHashMap<String, Vec<u32>> = FxHashMap::default();
        for name in all {
            if let Some(text) = self.label(name)
                && let Some(stem) = stem(&text)
            {
                by_stem.entry(stem.to_owned()).or_default().push(name);
            }
        }
        let (mut alike, mut stems) = (FxHashMap::default(), FxHashMap::default());
        for (stem, found) in by_stem.into_iter().filter(|(_, found)| found.len() > 1) {
            alike.extend(found.iter().map(|name| (*name, found[0])));
            stems.insert(found[0], format!("{stem}*"));
        }
        (alike, stems)
    }

    /// The tree as it is answered: every node behind its parent, greatest first among those of one parent.
    fn written(&self, all: &Growing, threads: usize, stems: &FxHashMap<u32, String>) -> Tree {
        let kept = all.greatest();
        let mut below: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (number, node) in (0u32..).zip(&all.nodes) {
            if kept[number as usize] {
                below.entry(node.parent).or_default().push(number);
            }
        }
        for children in below.values_mut() {
            children.sort_by_key(|number| (Reverse(all.nodes[*number as usize].total), *number));
        }
        let outermost = all.nodes.iter().filter(|node| node.parent == NONE);
        let mut tree = Tree {
            threads,
            total: outermost.fold(0, |sum, node| sum.saturating_add(node.total)),
            more: kept.iter().filter(|kept| !**kept).count(),
            left_out: all.left_out,
            nodes: Vec::new(),
        };
        let mut coming: Vec<(u32, Option<u32>)> = Vec::new();
        let push = |coming: &mut Vec<(u32, Option<u32>)>, parent: u32, place: Option<u32>| {
            let children = below.get(&parent).map_or(&[][..], Vec::as_slice);
            coming.extend(children.iter().rev().map(|child| (*child, place)));
        };
        push(&mut coming, NONE, None);
        while let Some((number, parent)) = coming.pop() {
            let node = &all.nodes[number as usize];
            let (_, row, place) = node.longest;
            let Some(slices) = self.rows.slices(row) else {
                continue;
            };
            let longest = self.reference(row, slices, place);
            let name = stems.get(&node.name).cloned();
            let own = u32::try_from(tree.nodes.len()).unwrap_or(u32::MAX);
            tree.nodes.push(TreeNode {
                parent,
                id: node.name,
                name: name.unwrap_or_else(|| {
                    self.label(node.name)
                        .map(|text| text.to_string())
                        .unwrap_or_default()
                }),
                kind: names::kind(node.name),
                count: node.count,
                total: node.total,
                self_ns: node.total.saturating_sub(node.covered),
                longest,
            });
            push(&mut coming, number, Some(own));
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::lanes::{Item, lay_out};
    use super::*;

    fn lanes(of: &[(i64, i64, u32)]) -> Vec<Slices> {
        let mut items: Vec<Item> = of
            .iter()
            .zip(0..)
            .map(|((start, end, name), source)| Item {
                start: *start,
                duration: end - start,
                name: *name,
                source,
            })
            .collect();
        lay_out(&mut items, |_| false).0
    }

    fn swept_in(lanes: &[(u32, &Slices)], windows: &[Window]) -> Growing {
        let mut growing = Growing::default();
        for window in windows {
            let mut of_window = Growing::default();
            of_window.sweep(lanes, *window, &FxHashMap::default(), &AtomicBool::new(true));
            growing.absorb(&of_window);
        }
        growing
    }

    /// Path of names, count, total and own time of each node.
    fn swept(of: &[(i64, i64, u32)], from: i64, to: i64) -> Vec<(Vec<u32>, u64, i64, i64)> {
        let lanes = lanes(of);
        let lanes: Vec<(u32, &Slices)> = (0..).zip(&lanes).collect();
        let growing = swept_in(&lanes, &windows(&lanes, from, to));
        let whole = Window {
            from,
            to,
            is_first: true,
        };
        assert_eq!(
            growing.nodes,
            swept_in(&lanes, &[whole]).nodes,
            "in one window or in several"
        );
        let path = |mut node: u32| {
            let mut path = Vec::new();
            while node != NONE {
                path.insert(0, growing.nodes[node as usize].name);
                node = growing.nodes[node as usize].parent;
            }
            path
        };
        (0u32..)
            .zip(&growing.nodes)
            .map(|(number, node)| (path(number), node.count, node.total, node.total - node.covered))
            .collect()
    }

    #[test]
    fn slices_of_the_same_names_are_one_node() {
        // 1 has 2 and 3 in it, twice; 2 has 3 in it, once.
        let all = [
            (0, 100, 1),
            (10, 40, 2),
            (20, 25, 3),
            (50, 60, 3),
            (200, 300, 1),
            (200, 300, 2),
            (310, 320, 3),
        ];
        assert_eq!(
            swept(&all, 0, 1000),
            [
                (vec![1], 2, 200, 100 - 30 - 10),
                (vec![1, 2], 2, 130, 25 + 100),
                (vec![1, 2, 3], 1, 5, 5),
                (vec![1, 3], 1, 10, 10),
                (vec![3], 1, 10, 10),
            ]
        );
        // Cut at 22 and 250.
        assert_eq!(
            swept(&all, 22, 250),
            [
                (vec![1], 2, 78 + 50, 78 - 18 - 10),
                (vec![1, 2], 2, 18 + 50, 15 + 50),
                (vec![1, 2, 3], 1, 3, 3),
                (vec![1, 3], 1, 10, 10),
            ]
        );
        assert_eq!(swept(&all, 150, 160), []);
    }

    #[test]
    fn what_overlaps_without_lying_inside_stands_beside_it() {
        // 3 outlasts 2: both lie in 1, whose own time is what neither covers.
        assert_eq!(
            swept(&[(0, 100, 1), (10, 40, 2), (30, 60, 3), (35, 39, 4)], 0, 100),
            [
                (vec![1], 1, 100, 50),
                (vec![1, 2], 1, 30, 30),
                (vec![1, 3], 1, 30, 26),
                (vec![1, 3, 4], 1, 4, 4),
            ]
        );
        // What ends with its outer one is in it, what begins there is not; a mark takes no time.
        assert_eq!(
            swept(&[(0, 10, 1), (5, 10, 2), (10, 20, 3), (15, 15, 4)], 0, 100),
            [
                (vec![1], 1, 10, 5),
                (vec![1, 2], 1, 5, 5),
                (vec![3], 1, 10, 10),
                (vec![3, 4], 1, 0, 0),
            ]
        );
    }

    #[test]
    fn many_slices_are_swept_in_windows_and_each_is_counted_once() {
        // An outer slice over all windows, and in it forty of two names.
        let mut all = vec![(0, 1000, 9)];
        all.extend((0..40).map(|number| (number * 20, number * 20 + 15, 1 + (number % 2) as u32)));
        let lanes = lanes(&all);
        let lanes: Vec<(u32, &Slices)> = (0..).zip(&lanes).collect();
        assert_eq!(windows(&lanes, 0, 1000).len(), 6);
        assert_eq!(
            swept(&all, 0, 1000),
            [
                (vec![9], 1, 1000, 400),
                (vec![9, 1], 20, 300, 300),
                (vec![9, 2], 20, 300, 300),
            ]
        );
    }

    #[test]
    fn what_nobody_wants_is_not_swept() {
        let all: Vec<(i64, i64, u32)> = (0..BETWEEN_LOOKS as i64 * 3).map(|at| (at, at + 1, 1)).collect();
        let lanes = lanes(&all);
        let window = Window {
            from: 0,
            to: i64::MAX / 4,
            is_first: true,
        };
        let mut growing = Growing::default();
        growing.sweep(
            &[(0, &lanes[0])],
            window,
            &FxHashMap::default(),
            &AtomicBool::new(false),
        );
        assert!(growing.nodes[0].count <= BETWEEN_LOOKS as u64);
    }

    #[test]
    fn numbers_at_the_end() {
        assert_eq!(stem("step 12"), Some("step "));
        assert_eq!(stem("ProfilerStep#3"), Some("ProfilerStep#"));
        assert_eq!(stem("forward"), None);
        assert_eq!(stem("42"), None);
    }

    proptest! {
        /// Whatever overlaps whatever: own times are never negative, and no moment with a slice is in none. Where slices
        /// lie in each other or apart, each moment is in just one.
        #[test]
        fn own_times_sum_to_the_union(all in proptest::collection::vec((0i64..200, 0i64..60, 0u32..4), 0..40), from in 0i64..100, length in 0i64..150) {
            let all: Vec<(i64, i64, u32)> = all.into_iter().map(|(start, duration, name)| (start, start + duration, name)).collect();
            let nodes = swept(&all, from, from + length);
            for (path, _, total, own) in &nodes {
                prop_assert!(*own >= 0 && own <= total, "{path:?}: {own} of {total}");
            }
            let covered = (from..from + length).filter(|at| all.iter().any(|(start, end, _)| start <= at && at < end)).count() as i64;
            let own: i64 = nodes.iter().map(|(.., own)| own).sum();
            prop_assert!(own >= covered, "{own} of {covered}");
            let mut nested: Vec<(i64, i64, u32)> = Vec::new();
            for one in &all {
                let crosses = |other: &(i64, i64, u32)| (other.0 < one.0 && one.0 < other.1 && other.1 < one.1) || (one.0 < other.0 && other.0 < one.1 && one.1 < other.1);
                if !nested.iter().any(crosses) {
                    nested.push(*one);
                }
            }
            let covered = (from..from + length).filter(|at| nested.iter().any(|(start, end, _)| start <= at && at < end)).count() as i64;
            let own: i64 = swept(&nested, from, from + length).iter().map(|(.., own)| own).sum();
            prop_assert_eq!(own, covered);
        }
    }
}
