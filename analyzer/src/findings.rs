//! What stands out, as sentences with their evidence.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::RankAnalysis;
use crate::collectives::Collective;

/// Exposed communication is worth a sentence from this share of the span on.
const WORTH_A_SENTENCE: f64 = 0.05;
/// Idle time for which the host is late is worth a sentence from this share of the span on.
const HOST_WORTH_A_SENTENCE: f64 = 0.2;
/// A rank that is last in more than this share of the collectives is a straggler.
const OFTEN_LAST: f64 = 0.6;
/// Waiting for a straggler is worth a sentence from this share of the span on.
const LEAST_COST: f64 = 0.01;
/// From so many matched collectives on that share means something.
const ENOUGH_COLLECTIVES: usize = 5;

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is and what to try.
    pub text: String,
    /// The figures behind it.
    pub evidence: String,
    /// Time over the whole run that it could save at most, on the rank that it is worst on.
    pub saves_ns: i64,
}

fn label(rank: &RankAnalysis) -> String {
    rank.rank.map_or_else(
        || format!("device {}", rank.device_index),
        |number| format!("rank {number}"),
    )
}

fn milliseconds(ns: i64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// All findings, by what they could save.
pub(crate) fn findings(ranks: &[RankAnalysis], collectives: &[Collective]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let share = |part: i64, rank: &RankAnalysis| part as f64 / rank.measures.span_ns.max(1) as f64;
    let exposed = ranks
        .iter()
        .max_by_key(|rank| rank.measures.communication_exposed_ns);
    if let Some(rank) =
        exposed.filter(|rank| share(rank.measures.communication_exposed_ns, rank) > WORTH_A_SENTENCE)
    {
        let exposed_ns = rank.measures.communication_exposed_ns;
        findings.push(Finding {
            text: "Communication is not hidden behind compute: try smaller or earlier buckets, a larger batch, or less data on the wire".to_owned(),
            evidence: format!(
                "{}: {} of {} communication ran without compute, {:.1} % of its span",
                label(rank),
                milliseconds(exposed_ns),
                milliseconds(rank.measures.communication_ns),
                share(exposed_ns, rank) * 100.0
            ),
            saves_ns: exposed_ns,
        });
    }
    let late = |rank: &RankAnalysis| rank.idle_causes.get("host_late").copied().unwrap_or(0);
    if let Some(rank) = ranks
        .iter()
        .max_by_key(|rank| late(rank))
        .filter(|rank| share(late(rank), rank) > HOST_WORTH_A_SENTENCE)
    {
        findings.push(Finding {
            text: "The GPU waits for the host to launch work: look for synchronisation, data loading or many small kernels".to_owned(),
            evidence: format!(
                "{}: idle for {} before the next launch was called, {:.1} % of its span",
                label(rank),
                milliseconds(late(rank)),
                share(late(rank), rank) * 100.0
            ),
            saves_ns: late(rank),
        });
    }
    let span_ns = ranks.iter().map(|rank| rank.measures.span_ns).max().unwrap_or(0);
    findings.extend(straggler(collectives, span_ns));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.saves_ns));
    findings
}

fn straggler(collectives: &[Collective], span_ns: i64) -> Option<Finding> {
    let matched: Vec<&Collective> = collectives
        .iter()
        .filter(|collective| !collective.warm_up && collective.skew_ns.is_some())
        .collect();
    let mut last: BTreeMap<u32, (usize, i64)> = BTreeMap::new();
    for collective in &matched {
        if let Some(rank) = collective.last_rank {
            let entry = last.entry(rank).or_default();
            entry.0 += 1;
            entry.1 += collective.skew_ns.unwrap_or(0);
        }
    }
    let (rank, (count, cost_ns)) = last
        .into_iter()
        .max_by_key(|(_, (count, cost))| (*count, *cost))?;
    if matched.len() < ENOUGH_COLLECTIVES
        || (count as f64) <= OFTEN_LAST * matched.len() as f64
        || (cost_ns as f64) < LEAST_COST * span_ns as f64
    {
        return None;
    }
    Some(Finding {
        text: format!(
            "Rank {rank} keeps the others waiting: compare its kernels, clocks and data loading with theirs"
        ),
        evidence: format!(
            "it arrived last at {count} of {} collectives; the first rank waited {} for it in all",
            matched.len(),
            milliseconds(cost_ns)
        ),
        saves_ns: cost_ns,
    })
}
