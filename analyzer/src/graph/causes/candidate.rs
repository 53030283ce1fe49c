//! Something that could be mended, and what is said of it.

use std::cmp::Reverse;

use gputrace_trace::TimeNs;
use rustc_hash::FxHashMap;

use super::replay::{Remedy, Replay};
use crate::facts::Facts;
use crate::finding::{CauseLink, Finding};
use crate::graph::dag::Node;
use crate::graph::edits::label_text;
use crate::graph::nodes::{Label, Part};
use crate::graph::whatif::Interval;

/// What saves less than this share of a step is no finding.
pub(super) const WORTH_A_SENTENCE: f64 = 0.02;
/// So many ranks, sets of them, communicators and names are tried: those with most to mend.
pub(super) const MOST_TRIED: usize = 4;

/// What a candidate is.
pub(super) enum What {
    /// A finding, but for what it saves.
    Finding(Box<Finding>),
    /// What findings of single ranks tell of, which know the figures.
    Told(Told),
}

/// Findings that are made of the ranks' times.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// Communication without compute; whether it is without for want of beginning earlier.
    Communication { can_begin_earlier: bool },
    /// The host is late; most by this, where one thing is most of it.
    Host(Option<CauseLink>),
    /// The host waits for other ranks.
    Peers,
    /// Copies from pageable memory.
    Pageable,
    /// A rank comes late for no reason that is recorded.
    Late(u32),
}

impl Told {
    /// Whether a finding tells it.
    pub(super) fn is_told_by(&self, finding: &Finding) -> bool {
        match (&finding.facts, self) {
            (Facts::ExposedCommunication { .. }, Self::Communication { .. })
            | (Facts::PeerWait { .. }, Self::Peers)
            | (Facts::PageableCopies { .. }, Self::Pageable)
            | (
                Facts::HostLate { .. } | Facts::ShortKernels { .. } | Facts::NothingSubmitted { .. },
                Self::Host(_),
            ) => true,
            (Facts::LateRank { .. }, Self::Late(rank)) => finding.rank == Some(*rank),
            _ => false,
        }
    }
}

/// Something that could be mended.
pub(super) struct Candidate {
    pub(super) what: What,
    pub(super) saved: Interval,
    pub(super) remedy: Remedy,
}

impl Candidate {
    /// Whether it compares ranks with their peers.
    pub(super) fn tells_who(&self) -> bool {
        let What::Finding(finding) = &self.what else {
            return false;
        };
        matches!(
            finding.facts,
            Facts::SlowRank { .. } | Facts::SlowCommunicator { .. }
        )
    }
}

/// The link of a chain that a node is.
pub(super) fn link(replay: &Replay<'_>, what: &str, node: u32) -> CauseLink {
    CauseLink {
        what: what.to_owned(),
        rank: replay.rank(node),
        name: label_text(replay.job, replay.what(node).label, replay.names),
        start_ns: Some(TimeNs(replay.job.began(node))),
    }
}

/// Adds what fits: damaged recordings have times of many years.
pub(super) fn add(sum: &mut i64, ns: i64) {
    *sum = sum.saturating_add(ns);
}

/// What is summed up of one name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) count: usize,
    /// Sum of what is counted, nanoseconds.
    pub(super) total: i64,
    /// Sum of what its nodes take.
    pub(super) work: i64,
    /// The node with most of it, and how much that is.
    pub(super) worst: (i64, Node),
}

/// Times by kind and name of their nodes.
#[derive(Default)]
pub(super) struct ByName(FxHashMap<(Part, Label), Named>);

impl ByName {
    /// Counts some time of a node.
    pub(super) fn add(&mut self, replay: &Replay<'_>, node: Node, ns: i64) {
        let what = replay.what(node);
        let named = self.0.entry((what.part, what.label)).or_insert(Named {
            count: 0,
            total: 0,
            work: 0,
            worst: (ns, node),
        });
        named.count += 1;
        add(&mut named.total, ns);
        add(&mut named.work, replay.work(node));
        // Of equal ones the first.
        let key = |(ns, node): (i64, Node)| (ns, Reverse(replay.job.ends[node as usize]));
        if key((ns, node)) > key(named.worst) {
            named.worst = (ns, node);
        }
    }

    /// The names by their totals, the greatest first; equal ones by their texts, as names are numbered in the order in which they
    /// were met.
    pub(super) fn sorted(self, replay: &Replay<'_>) -> Vec<(Part, Label, Named)> {
        let named = self.0.into_iter();
        let mut all: Vec<(Part, Label, Named)> =
            named.map(|((part, label), named)| (part, label, named)).collect();
        let text = |label: Label| label_text(replay.job, label, replay.names);
        all.sort_by(|a, b| {
            let by_total = b.2.total.cmp(&a.2.total).then(a.0.cmp(&b.0));
            by_total.then_with(|| text(a.1).cmp(&text(b.1)))
        });
        all
    }
}
