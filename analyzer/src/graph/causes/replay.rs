//! Replays of a job with something mended.

use gputrace_trace::Interner;
use rustc_hash::FxHashSet;

use crate::graph::dag::Node;
use crate::graph::edits::{self, Changed, Edit};
use crate::graph::job::Job;
use crate::graph::nodes::{Part, What};
use crate::graph::peers;
use crate::graph::whatif::{Baseline, Interval};

/// What is different when something is mended.
#[derive(Clone, Debug, Default)]
pub(super) struct Remedy {
    /// What nodes take then.
    pub(super) work: Vec<(Node, i64)>,
    /// Nodes that begin without the gap that nothing explains.
    pub(super) no_gap: Vec<Node>,
    /// Waits that are gone: who waits, and for whom.
    pub(super) dropped: FxHashSet<(Node, Node)>,
}

/// One job, replayed again and again.
pub(super) struct Replay<'a> {
    pub(super) job: &'a Job,
    pub(super) names: &'a Interner,
    pub(super) baseline: &'a Baseline,
}

impl Replay<'_> {
    /// What a step loses with all of these at once.
    pub(super) fn saved(&self, remedies: &[&Remedy]) -> Interval {
        let base = &self.job.graph;
        let mut changed = Changed {
            work: base.work.clone(),
            gap: base.gap.clone(),
            graph: None,
        };
        for remedy in remedies {
            for (node, work) in &remedy.work {
                let node = *node as usize;
                // Of two that mend the same thing the one that mends it more.
                if *work < changed.work[node] || changed.work[node] == base.work[node] {
                    changed.work[node] = *work;
                }
            }
            for node in &remedy.no_gap {
                changed.gap[*node as usize] = changed.gap[*node as usize].min(0);
            }
        }
        if remedies.iter().any(|remedy| !remedy.dropped.is_empty()) {
            let is_dropped = |node, of| {
                let mut all = remedies.iter();
                all.any(|remedy| remedy.dropped.contains(&(node, of)))
            };
            changed.graph = Some(base.without(is_dropped));
        }
        let predicted = self.baseline.predict(self.job, &changed);
        Interval {
            low: self.baseline.kept_ns - predicted.high,
            high: self.baseline.kept_ns - predicted.low,
        }
    }

    /// An edit's changes.
    pub(super) fn remedy(&self, edit: Edit) -> Option<Remedy> {
        let changed = edits::apply(self.job, &[edit], self.names).ok()?;
        Some(self.changing((0u32..).zip(changed.work)))
    }

    /// The nodes that are meant, by number.
    pub(super) fn nodes(&self, is_meant: impl Fn(&What) -> bool) -> Vec<Node> {
        let all = (0u32..).zip(&self.job.what);
        all.filter(|(_, what)| is_meant(what))
            .map(|(node, _)| node)
            .collect()
    }

    /// What nodes of such parts would take if each was as its peers, of those for which that is something else. Each is compared
    /// with all other devices (or communicators), so that one pass says it for all of them.
    pub(super) fn typical(&self, is_meant: impl Fn(Part) -> bool) -> Remedy {
        let nodes = self.nodes(|what| is_meant(what.part));
        let works = peers::as_others(self.job, &nodes, false, true);
        self.changing(nodes.into_iter().zip(works))
    }

    /// The remedy that gives nodes these works, of those for which that is something else.
    pub(super) fn changing(&self, works: impl Iterator<Item = (Node, i64)>) -> Remedy {
        Remedy {
            work: works.filter(|(node, work)| self.work(*node) != *work).collect(),
            ..Remedy::default()
        }
    }

    /// What a node takes.
    pub(super) fn work(&self, node: Node) -> i64 {
        self.job.graph.work[node as usize]
    }

    /// What a node is.
    pub(super) fn what(&self, node: Node) -> &What {
        &self.job.what[node as usize]
    }

    /// Whose it is.
    pub(super) fn rank(&self, node: Node) -> Option<u32> {
        self.job.rank(node)
    }

    /// A time over all steps, in the mean of one.
    pub(super) fn a_step(&self, ns: i64) -> i64 {
        ns / i64::try_from(self.job.steps.len()).unwrap_or(i64::MAX).max(1)
    }
}

impl Remedy {
    /// The part of it that is about some nodes.
    pub(super) fn only(&self, is_meant: impl Fn(Node) -> bool) -> Self {
        let work = self.work.iter().filter(|(node, _)| is_meant(*node));
        Self {
            work: work.copied().collect(),
            ..Self::default()
        }
    }
}
