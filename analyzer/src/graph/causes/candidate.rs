//! Something that could be mended, and what is said of it.

use gputrace_trace::TimeNs;

use super::replay::{Remedy, Replay};
use crate::facts::Facts;
use crate::finding::{CauseLink, Finding};
use crate::graph::edits::label_text;
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
