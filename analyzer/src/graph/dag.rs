//! A graph of what takes time and what each thing waits for, and its replay.
//!
//! A node is over when the last thing that it waits for is, a lag later, plus its gap (what no rule explains), plus its work:
//!
//! ```text
//! end(n) = max over waits w of n (end(w.of) + w.lag) + gap(n) + work(n)
//! ```
//!
//! A node that waits for nothing begins at 0, so that its gap is when it begins. The gaps are what makes a replay without
//! changes repeat a recording; what matters is what follows when work is changed.

/// A node's number.
pub type Node = u32;

/// One thing that a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What it waits for the end of.
    pub of: Node,
    /// How long after that end the node can go on, nanoseconds; negative where stamps of host and device are apart.
    pub lag_ns: i32,
}

/// Nodes in an order in which each comes after all that it waits for.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// By node: where its waits begin; one more at the end.
    first: Vec<u32>,
    waits: Vec<Wait>,
    /// By node, nanoseconds: how long it takes.
    pub work: Vec<i64>,
    /// By node, nanoseconds: what it began later than all it waits for explains.
    pub gap: Vec<i64>,
}

impl Graph {
    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.work.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// What a node waits for.
    #[must_use]
    pub fn waits(&self, node: Node) -> &[Wait] {
        let node = node as usize;
        &self.waits[self.first[node] as usize..self.first[node + 1] as usize]
    }

    /// Bytes that it holds in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.first.capacity() * 4
            + self.waits.capacity() * size_of::<Wait>()
            + (self.work.capacity() + self.gap.capacity()) * 8
    }

    /// When each node ends, by these works and gaps, into `ends`. Linear in nodes and waits.
    ///
    /// # Panics
    ///
    /// Where `work` or `gap` has not one value for each node.
    pub fn replay(&self, work: &[i64], gap: &[i64], ends: &mut Vec<i64>) {
        assert!(
            work.len() == self.len() && gap.len() == self.len(),
            "a value for each node"
        );
        ends.clear();
        ends.reserve_exact(self.len());
        let mut from = 0;
        for node in 0..self.len() {
            let to = self.first[node + 1] as usize;
            let ready = self.waits[from..to]
                .iter()
                .map(|wait| ends[wait.of as usize].saturating_add(i64::from(wait.lag_ns)))
                .max()
                .unwrap_or(0);
            // Damaged recordings have times of many years.
            ends.push(ready.saturating_add(gap[node]).saturating_add(work[node]));
            from = to;
        }
    }

    /// Makes the lags of some waits (who waits, for whom) so many times as long.
    pub fn scale_lags(&mut self, factor: f64, is_meant: impl Fn(Node, Node) -> bool) {
        for node in 0..self.work.len() {
            for wait in &mut self.waits[self.first[node] as usize..self.first[node + 1] as usize] {
                if wait.lag_ns > 0 && is_meant(u32::try_from(node).unwrap_or(u32::MAX), wait.of) {
                    wait.lag_ns = (f64::from(wait.lag_ns) * factor).round() as i32;
                }
            }
        }
    }

    /// The same without some waits (who waits, for whom). A node keeps the last of those that it has: without any it would begin
    /// at 0.
    #[must_use]
    pub fn without(&self, is_dropped: impl Fn(Node, Node) -> bool) -> Self {
        let mut graph = Self {
            first: Vec::with_capacity(self.first.len()),
            waits: Vec::with_capacity(self.waits.len()),
            work: self.work.clone(),
            gap: self.gap.clone(),
        };
        graph.first.push(0);
        for node in (0u32..).take(self.len()) {
            let kept = graph.waits.len();
            let waits = self.waits(node);
            let stay = waits.iter().filter(|wait| !is_dropped(node, wait.of));
            graph.waits.extend(stay);
            if graph.waits.len() == kept {
                graph.waits.extend(waits.last());
            }
            graph
                .first
                .push(u32::try_from(graph.waits.len()).unwrap_or(u32::MAX));
        }
        graph
    }

    /// Of what a node waits for, what came last when its ends were `ends`, and when that let it go on. `None` where it waits
    /// for nothing.
    #[must_use]
    pub fn last_wait(&self, node: Node, ends: &[i64]) -> Option<(Wait, i64)> {
        let waits = self.waits(node).iter();
        waits
            .map(|wait| {
                (
                    *wait,
                    ends[wait.of as usize].saturating_add(i64::from(wait.lag_ns)),
                )
            })
            .max_by_key(|(_, ready)| *ready)
    }
}

/// A graph while it is put together: nodes in any order.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    work: Vec<i64>,
    gap: Vec<i64>,
    /// Who waits, and for what.
    waits: Vec<(Node, Wait)>,
}

/// A finished graph, and what became of the nodes that it was made of.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// The graph.
    pub graph: Graph,
    /// By number in the builder: the number in the graph.
    pub number: Vec<Node>,
    /// Waits that were left out because they are part of a circle: who waits, and for whom, by number in the builder.
    pub cut: Vec<(Node, Node)>,
}

impl Builder {
    /// A node of so much work and gap, nanoseconds.
    pub fn add(&mut self, work: i64, gap: i64) -> Node {
        self.work.push(work);
        self.gap.push(gap);
        // More nodes than that would need 100 GB.
        u32::try_from(self.work.len() - 1).unwrap_or(u32::MAX)
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.work.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Has `node` wait for the end of `of`, and so long after it.
    pub fn wait(&mut self, node: Node, of: Node, lag_ns: i32) {
        self.waits.push((node, Wait { of, lag_ns }));
    }

    /// Sets what a node takes, and how much later than explained it began.
    pub fn set(&mut self, node: Node, work: i64, gap: i64) {
        self.work[node as usize] = work;
        self.gap[node as usize] = gap;
    }

    /// What a node takes, and how much later than explained it began.
    #[must_use]
    pub fn get(&self, node: Node) -> (i64, i64) {
        (self.work[node as usize], self.gap[node as usize])
    }

    /// Those that wait for something.
    pub fn waiting(&self) -> impl Iterator<Item = Node> + '_ {
        self.waits.iter().map(|(node, _)| *node)
    }

    /// Has others wait in the place of some, for all that these wait for.
    pub fn wait_instead<S: std::hash::BuildHasher>(
        &mut self,
        instead: &std::collections::HashMap<Node, Node, S>,
    ) {
        for (node, _) in &mut self.waits {
            *node = instead.get(node).copied().unwrap_or(*node);
        }
    }

    /// Takes over all nodes of another, and returns what is to be added to their numbers.
    pub fn append(&mut self, other: Self) -> Node {
        let offset = u32::try_from(self.work.len()).unwrap_or(u32::MAX);
        self.work.extend(other.work);
        self.gap.extend(other.gap);
        self.waits.extend(other.waits.into_iter().map(|(node, wait)| {
            let of = wait.of + offset;
            (node + offset, Wait { of, ..wait })
        }));
        offset
    }

    /// Orders the nodes so that each comes after what it waits for. Of a circle the waits are left out that end it: those
    /// of the node that is over first by `ends` (when each ended, where that is known; by number else).
    #[must_use]
    pub fn finish(mut self, ends: &[i64]) -> Finished {
        let count = self.work.len();
        self.waits.sort_unstable_by_key(|(node, wait)| (*node, wait.of));
        let first = starts(count, self.waits.iter().map(|(node, _)| *node));
        // The same the other way round: who waits for each.
        let mut followers: Vec<(Node, Node)> =
            self.waits.iter().map(|(node, wait)| (wait.of, *node)).collect();
        followers.sort_unstable();
        let first_follower = starts(count, followers.iter().map(|(of, _)| *of));
        let mut missing: Vec<u32> = first.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut order: Vec<Node> = Vec::with_capacity(count);
        order.extend(
            (0..)
                .zip(&missing)
                .filter(|(_, missing)| **missing == 0)
                .map(|(node, _)| node),
        );
        let mut cut = Vec::new();
        let mut done = 0;
        // Those that are left when nothing can go on, by when they ended.
        let mut left: Option<std::vec::IntoIter<Node>> = None;
        loop {
            while let Some(&node) = order.get(done) {
                done += 1;
                let node = node as usize;
                for (_, follower) in
                    &followers[first_follower[node] as usize..first_follower[node + 1] as usize]
                {
                    let missing = &mut missing[*follower as usize];
                    // One that was cut from a circle is there already.
                    if *missing > 0 {
                        *missing -= 1;
                        if *missing == 0 {
                            order.push(*follower);
                        }
                    }
                }
            }
            if done == count {
                break;
            }
            let left = left.get_or_insert_with(|| {
                let waiting = (0..).zip(&missing).filter(|(_, missing)| **missing > 0);
                let mut left: Vec<Node> = waiting.map(|(node, _)| node).collect();
                left.sort_by_key(|node| (ends.get(*node as usize).copied().unwrap_or(0), *node));
                left.into_iter()
            });
            // One of them is part of a circle or behind one: what it still waits for is left out.
            let Some(node) = left.find(|node| missing[*node as usize] > 0) else {
                break;
            };
            missing[node as usize] = 0;
            order.push(node);
            cut.push(node);
        }
        let mut number = vec![0; count];
        for (place, node) in (0..).zip(&order) {
            number[*node as usize] = place;
        }
        let mut graph = Graph {
            first: Vec::with_capacity(count + 1),
            waits: Vec::with_capacity(self.waits.len()),
            work: order.iter().map(|node| self.work[*node as usize]).collect(),
            gap: order.iter().map(|node| self.gap[*node as usize]).collect(),
        };
        graph.first.push(0);
        let mut left_out = Vec::new();
        for (place, node) in (0..).zip(&order) {
            let index = *node as usize;
            for (_, wait) in &self.waits[first[index] as usize..first[index + 1] as usize] {
                let of = number[wait.of as usize];
                if of < place {
                    graph.waits.push(Wait { of, ..*wait });
                } else {
                    left_out.push((*node, wait.of));
                }
            }
            graph
                .first
                .push(u32::try_from(graph.waits.len()).unwrap_or(u32::MAX));
        }
        Finished {
            graph,
            number,
            cut: left_out,
        }
    }
}

/// By node: where its entries begin in a list that is sorted by node; one more at the end.
fn starts(count: usize, nodes: impl Iterator<Item = Node>) -> Vec<u32> {
    let mut first = vec![0u32; count + 1];
    for node in nodes {
        first[node as usize + 1] += 1;
    }
    for node in 0..count {
        first[node + 1] += first[node];
    }
    first
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_node_ends_when_the_last_that_it_waits_for_lets_it() {
        let mut builder = Builder::default();
        // The last of two kernels is added first: order does not matter.
        let kernel = builder.add(50, 3);
        let launch = builder.add(10, 100);
        let before = builder.add(40, 90);
        builder.wait(kernel, launch, 5);
        builder.wait(kernel, before, 1);
        let finished = builder.finish(&[]);
        assert!(finished.cut.is_empty());
        let graph = &finished.graph;
        let mut ends = Vec::new();
        graph.replay(&graph.work, &graph.gap, &mut ends);
        let end = |node: Node| ends[finished.number[node as usize] as usize];
        assert_eq!((end(launch), end(before), end(kernel)), (110, 130, 131 + 3 + 50));
        // Half the work before: now the launch decides.
        let mut work = graph.work.clone();
        work[finished.number[before as usize] as usize] = 20;
        graph.replay(&work, &graph.gap, &mut ends);
        assert_eq!(ends[finished.number[kernel as usize] as usize], 115 + 3 + 50);
    }

    #[test]
    fn a_wait_that_is_dropped_holds_nothing_up() {
        let mut builder = Builder::default();
        let (first, second, last) = (builder.add(10, 0), builder.add(30, 0), builder.add(1, 0));
        builder.wait(last, first, 0);
        builder.wait(last, second, 0);
        let graph = builder.finish(&[]).graph;
        let mut ends = Vec::new();
        let without = graph.without(|_, of| of == second);
        without.replay(&without.work, &without.gap, &mut ends);
        assert_eq!(ends, [10, 30, 11]);
        // The only one that is left stays.
        let without = graph.without(|_, _| true);
        without.replay(&without.work, &without.gap, &mut ends);
        assert_eq!(ends, [10, 30, 31]);
    }

    #[test]
    fn a_circle_is_cut_where_it_ended_first() {
        let mut builder = Builder::default();
        let nodes: Vec<Node> = (0..4).map(|_| builder.add(10, 0)).collect();
        builder.wait(nodes[1], nodes[0], 0);
        builder.wait(nodes[1], nodes[3], 0);
        builder.wait(nodes[2], nodes[1], 0);
        builder.wait(nodes[3], nodes[2], 0);
        let finished = builder.finish(&[10, 20, 30, 40]);
        assert_eq!(finished.cut, [(1, 3)]);
        let mut ends = Vec::new();
        finished
            .graph
            .replay(&finished.graph.work, &finished.graph.gap, &mut ends);
        assert_eq!(ends, [10, 20, 30, 40]);
    }

    proptest! {
        /// Against the definition, by recursion; in whatever order the nodes were added, and with circles.
        #[test]
        fn replay_is_the_longest_path(
            nodes in proptest::collection::vec((0i64..100, 0i64..10), 1..40),
            waits in proptest::collection::vec((0usize..40, 0usize..40, -3i32..20), 0..120),
            circles: bool,
        ) {
            let mut builder = Builder::default();
            for (work, gap) in &nodes {
                builder.add(*work, *gap);
            }
            let count = nodes.len();
            for (a, b, lag) in waits {
                let (a, b) = (a % count, b % count);
                if a != b && (circles || a > b) {
                    builder.wait(a as Node, b as Node, lag);
                }
            }
            let finished = builder.clone().finish(&[]);
            prop_assert!(circles || finished.cut.is_empty());
            let kept: Vec<(Node, Wait)> = builder.waits.iter().copied()
                .filter(|(node, wait)| !finished.cut.contains(&(*node, wait.of))).collect();
            fn end(node: Node, nodes: &[(i64, i64)], kept: &[(Node, Wait)], depth: usize) -> i64 {
                assert!(depth < 50, "no circle is left");
                let ready = kept.iter().filter(|(of, _)| *of == node)
                    .map(|(_, wait)| end(wait.of, nodes, kept, depth + 1) + i64::from(wait.lag_ns)).max();
                ready.unwrap_or(0) + nodes[node as usize].0 + nodes[node as usize].1
            }
            if count <= 12 {
                let mut ends = Vec::new();
                finished.graph.replay(&finished.graph.work, &finished.graph.gap, &mut ends);
                for node in 0..count {
                    let place = finished.number[node] as usize;
                    prop_assert_eq!(ends[place], end(node as Node, &nodes, &kept, 0));
                }
            }
        }
    }
}
