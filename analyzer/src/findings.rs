//! What stands out, as sentences with their evidence.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::analysis::RankAnalysis;
use crate::arrivals::{ArrivalAnalysis, counts};
use crate::collectives::Collective;
use crate::facts::Facts;
use crate::finding::Finding;
use crate::graph::causes::Causes;
use crate::hangs;
use crate::kernels::KernelAnalysis;
use crate::units::{duration, three_digits};
use gputrace_trace::hang::Hang;

/// Exposed communication is worth a sentence from this share of the span on.
const WORTH_A_SENTENCE: f64 = 0.05;
/// Idle time for which the host is late is worth a sentence from this share of the span on.
const HOST_WORTH_A_SENTENCE: f64 = 0.2;
/// Another cause of idle time is worth one from this share of the span on.
const CAUSE_WORTH_A_SENTENCE: f64 = 0.1;
/// All of these are, from this share on, where a replay says what mending them saves.
const WORTH_A_REPLAY: f64 = 0.01;
/// A rank that is last in more than this share of the collectives is a straggler.
const OFTEN_LAST: f64 = 0.6;
/// Waiting for a straggler, slow copies and uneven steps are worth a sentence from this share of the span on.
const LEAST_COST: f64 = 0.01;
/// A late start is worth one from this share of the span on, and from so many nanoseconds.
const LATE_START: f64 = 0.02;
const LATE_START_NS: i64 = 1_000_000;
/// From so many matched collectives on that share means something.
const ENOUGH_COLLECTIVES: usize = 5;
/// Copies that reach less than this share of the link's nominal bandwidth are slow.
const SLOW_COPY: f64 = 0.4;
/// A rank computes more than the others from this share over their mean on.
const UNEVEN_COMPUTE: f64 = 0.1;

pub(crate) fn label(rank: &RankAnalysis) -> String {
    rank.rank.map_or_else(
        || format!("GPU {}", rank.device_index),
        |number| format!("rank {}", rank_and_device(number, rank.device_index)),
    )
}

/// The device is named where it is not the first: of most jobs each rank has one.
fn rank_and_device(rank: u32, device: u32) -> String {
    if device == 0 || device == rank {
        rank.to_string()
    } else {
        format!("{rank} (GPU {device})")
    }
}

/// "1 copy", "2 copies".
fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn share(part: i64, rank: &RankAnalysis) -> f64 {
    part as f64 / rank.measures.span_ns.max(1) as f64
}

pub(crate) fn percent_of_span(part: i64, rank: &RankAnalysis) -> String {
    format!("{:.1} % of its span", share(part, rank) * 100.0)
}

/// A finding about one rank; what it saves a step follows from the rank's steps.
pub(crate) fn of_rank(
    rank: &RankAnalysis,
    saves_ns: i64,
    facts: Facts,
    text: String,
    evidence: String,
) -> Finding {
    // Sums over operations can be longer than the time they ran in.
    let saves_ns = saves_ns.min(rank.measures.span_ns);
    let steps = i64::try_from(rank.steps.len()).unwrap_or(i64::MAX);
    Finding {
        rank: rank.rank,
        device_index: Some(rank.device_index),
        saves_ns: Some(saves_ns),
        saves_per_step_ns: (steps > 0).then(|| saves_ns / steps.max(1)),
        ..Finding::new(facts, text, evidence)
    }
}

/// The rank on which some time is greatest.
fn worst(ranks: &[RankAnalysis], time: impl Fn(&RankAnalysis) -> i64) -> Option<(&RankAnalysis, i64)> {
    ranks
        .iter()
        .map(|rank| (rank, time(rank)))
        .max_by_key(|(rank, time)| (*time, std::cmp::Reverse(rank.rank)))
}

/// A finding for each hang that no other explains.
fn hanging(hangs: &[Hang]) -> Vec<Finding> {
    let own: Vec<&Hang> = hangs.iter().filter(|hang| !hang.follows).collect();
    let others = hangs.len() - own.len();
    let mut findings: Vec<Finding> = own
        .into_iter()
        .enumerate()
        .map(|(place, hang)| {
            let facts = Facts::Hang {
                communicator: hang.communicator.clone(),
                communicator_name: hang.communicator_name.clone(),
                operation: hang.name.clone(),
                sequence: hang.sequence,
                waiting: hang.waiting.iter().filter_map(|waiting| waiting.rank).collect(),
                absent: hang.absent.iter().filter_map(|absent| absent.rank).collect(),
                followed_by: if place == 0 { others } else { 0 },
            };
            Finding {
                rank: match hang.absent.as_slice() {
                    [only] => only.rank,
                    _ => None,
                },
                ..Finding::new(facts, hangs::text(hang), hangs::evidence(hang))
            }
        })
        .collect();
    if let (Some(first), true) = (findings.first_mut(), others > 0) {
        let operations = counted(others, "operation", "operations");
        let _ = write!(
            first.evidence,
            "; {operations} on other communicators wait because of this"
        );
    }
    findings
}

/// All findings: hangs first, then by what mending them surely saves, then by what it may save. `from_the_start`: whether the
/// ranks' first steps are the run's. `advised` is what operators could do better.
pub(crate) fn findings(
    hangs: &[Hang],
    ranks: &[RankAnalysis],
    collectives: &[Collective],
    arrivals: &[ArrivalAnalysis],
    by_state: Vec<Finding>,
    replayed: Option<Causes>,
    advised: Vec<Finding>,
    from_the_start: bool,
) -> Vec<Finding> {
    let from = |share: f64| if replayed.is_some() { WORTH_A_REPLAY } else { share };
    let mut findings: Vec<Finding> = [
        exposed(ranks, from(WORTH_A_SENTENCE)),
        host_late(ranks, from(HOST_WORTH_A_SENTENCE)),
        slow_copies(ranks),
        pageable_copies(ranks),
        uneven_compute(ranks),
        uneven_steps(ranks),
        short_kernels(ranks, from(HOST_WORTH_A_SENTENCE)),
        straggler(ranks, collectives, arrivals),
        late_start(ranks).filter(|_| from_the_start),
    ]
    .into_iter()
    .flatten()
    .collect();
    findings.extend(by_state);
    type OfIdle = fn(i64) -> Facts;
    let causes: [(_, OfIdle, _); 4] = [
        (
            "event_wait",
            |idle_ns| Facts::EventWait { idle_ns },
            "Streams wait for events of other streams while the GPU has nothing to run: look at what those events wait for",
        ),
        (
            "peer_wait",
            |idle_ns| Facts::PeerWait { idle_ns },
            "The host waits for other ranks (Gloo, MPI or a barrier) while the GPU has nothing to run",
        ),
        (
            "queue_full",
            |idle_ns| Facts::QueueFull { idle_ns },
            "Launches wait for room in a stream's queue: give work for other streams or devices earlier, or from another thread",
        ),
        (
            "nothing_submitted",
            |idle_ns| Facts::NothingSubmitted { idle_ns },
            "No thread submits anything for long stretches: the program waits for something outside it, or does work that is not recorded",
        ),
    ];
    for (cause, facts, text) in causes {
        let time = |rank: &RankAnalysis| rank.idle_causes.get(cause).copied().unwrap_or(0);
        if let Some((rank, time)) =
            worst(ranks, time).filter(|(rank, time)| share(*time, rank) > from(CAUSE_WORTH_A_SENTENCE))
        {
            let evidence = format!(
                "{}: idle for {} by {cause}, {}",
                label(rank),
                duration(time),
                percent_of_span(time, rank)
            );
            findings.push(of_rank(rank, time, facts(time), text.to_owned(), evidence));
        }
    }
    // A replay says how much of it counts, and drops what does not.
    if let Some(causes) = replayed {
        causes.replace_symptoms(&mut findings);
    }
    findings.extend(advised);
    // What is surely saved comes first, and then what could be at most.
    let surely = |finding: &Finding| finding.saves_low_ns.unwrap_or(0).max(0);
    findings.sort_by(|a, b| {
        surely(b)
            .cmp(&surely(a))
            .then_with(|| b.saves_ns.cmp(&a.saves_ns))
            .then_with(|| a.text.cmp(&b.text))
    });
    findings.splice(0..0, hanging(hangs));
    findings
}

fn exposed(ranks: &[RankAnalysis], from: f64) -> Option<Finding> {
    let (rank, exposed_ns) = worst(ranks, |rank| rank.measures.communication_exposed_ns)?;
    if share(exposed_ns, rank) <= from {
        return None;
    }
    let first = rank.communication.first();
    let facts = Facts::ExposedCommunication {
        exposed_ns,
        communication_ns: rank.measures.communication_ns,
        collective: first.map(|most| most.name.clone()),
        communicator: first.map(|most| most.communicator.clone()),
        collective_exposed_ns: first.map(|most| most.exposed_ns),
    };
    let most = first.map_or_else(String::new, |most| {
        format!("; most of it {} ({})", most.name, duration(most.exposed_ns))
    });
    let advice = advice_on(first.map_or("", |most| most.name.as_str()));
    Some(of_rank(
        rank,
        exposed_ns,
        facts,
        format!("Communication is not hidden behind compute: {advice}"),
        format!(
            "{}: {} of {} communication ran without compute, {}{most}",
            label(rank),
            duration(exposed_ns),
            duration(rank.measures.communication_ns),
            percent_of_span(exposed_ns, rank)
        ),
    ))
}

/// What helps against the collective that is exposed most: each way to train has one of its own.
fn advice_on(collective: &str) -> &'static str {
    match collective {
        "SendRecv" | "Send" | "Recv" => "try more microbatches, or stages that take equally long",
        "AllGather" | "ReduceScatter" => "try to prefetch the next layers, a larger batch, or larger units",
        _ => "try smaller or earlier buckets, a larger batch, or less data on the wire",
    }
}

fn host_late(ranks: &[RankAnalysis], from: f64) -> Option<Finding> {
    let (rank, late_ns) = worst(ranks, |rank| {
        rank.idle_causes.get("host_late").copied().unwrap_or(0)
    })?;
    if share(late_ns, rank) <= from {
        return None;
    }
    let mut by: Vec<(&String, i64)> = rank
        .host_late_by
        .iter()
        .map(|(what, time)| (what, *time))
        .collect();
    by.sort_by_key(|(what, time)| (std::cmp::Reverse(*time), *what));
    let by: Vec<String> = by
        .iter()
        .take(3)
        .map(|(what, time)| format!("{} in {what}", duration(*time)))
        .collect();
    Some(of_rank(
        rank,
        late_ns,
        Facts::HostLate {
            idle_ns: late_ns,
            by: rank.host_late_by.clone(),
        },
        "The GPU waits for the host to launch work: look for synchronisation, data loading or many small kernels".to_owned(),
        format!(
            "{}: idle for {} before the next launch was called, {}: {}",
            label(rank),
            duration(late_ns),
            percent_of_span(late_ns, rank),
            by.join(", ")
        ),
    ))
}

fn slow_copies(ranks: &[RankAnalysis]) -> Option<Finding> {
    let slow = ranks
        .iter()
        .flat_map(|rank| rank.copies.iter().map(move |copy| (rank, copy)));
    let (rank, copy, saves_ns) = slow
        .filter_map(|(rank, copy)| Some((rank, copy, copy.bandwidth? / copy.nominal_bandwidth?)))
        .filter(|(rank, copy, reached)| *reached < SLOW_COPY && share(copy.time_ns, rank) >= LEAST_COST)
        .map(|(rank, copy, reached)| (rank, copy, ((1.0 - reached) * copy.time_ns as f64) as i64))
        .max_by_key(|(_, _, saves)| *saves)?;
    Some(of_rank(
        rank,
        saves_ns,
        Facts::SlowCopies {
            direction: copy.direction.clone(),
            source: copy.source.clone(),
            destination: copy.destination.clone(),
            count: copy.count,
            bytes: copy.bytes,
            time_ns: copy.time_ns,
            bandwidth: copy.bandwidth,
            nominal_bandwidth: copy.nominal_bandwidth,
            link: copy.link.clone(),
        },
        "Copies are far from what their link carries: copy larger blocks at a time, from pinned memory"
            .to_owned(),
        format!(
            "{}: {} {} of {} bytes in all took {} at {} GB/s, where {} carries {:.1} GB/s",
            label(rank),
            counted(copy.count, "copy", "copies"),
            copy.direction,
            copy.bytes,
            duration(copy.time_ns),
            three_digits(copy.bandwidth.unwrap_or(0.0)),
            copy.link.as_deref().unwrap_or_default(),
            copy.nominal_bandwidth.unwrap_or(0.0)
        ),
    ))
}

fn pageable_copies(ranks: &[RankAnalysis]) -> Option<Finding> {
    let pageable = |kernel: &&KernelAnalysis| kernel.kind == "copy" && kernel.name.contains("Pageable");
    let time = |rank: &RankAnalysis| {
        rank.kernels
            .iter()
            .filter(pageable)
            .map(|kernel| kernel.total_ns)
            .fold(0, i64::saturating_add)
    };
    let (rank, time_ns) = worst(ranks, time)?;
    if share(time_ns, rank) < LEAST_COST {
        return None;
    }
    let count: usize = rank
        .kernels
        .iter()
        .filter(pageable)
        .map(|kernel| kernel.count)
        .sum();
    Some(of_rank(
        rank,
        time_ns,
        Facts::PageableCopies {
            count,
            total_ns: time_ns,
        },
        "Copies go through pageable memory, which holds the host up: pin it (pin_memory=True and non_blocking=True in PyTorch)"
            .to_owned(),
        format!(
            "{}: {} took {} in all",
            label(rank),
            counted(count, "such copy", "such copies"),
            duration(time_ns)
        ),
    ))
}

fn uneven_compute(ranks: &[RankAnalysis]) -> Option<Finding> {
    if ranks.len() < 2 {
        return None;
    }
    let (rank, most_ns) = worst(ranks, |rank| rank.measures.compute_ns)?;
    // Of many long ranks the sum does not fit 64 bits; the mean does.
    let all: i128 = ranks
        .iter()
        .map(|rank| i128::from(rank.measures.compute_ns))
        .sum();
    let mean_ns = ((all - i128::from(most_ns)) / (ranks.len() as i128 - 1)) as i64;
    let more_ns = most_ns.saturating_sub(mean_ns);
    if (more_ns as f64) < UNEVEN_COMPUTE * mean_ns as f64 || share(more_ns, rank) < LEAST_COST {
        return None;
    }
    Some(of_rank(
        rank,
        more_ns,
        Facts::UnevenCompute {
            compute_ns: most_ns,
            others_ns: mean_ns,
        },
        format!(
            "{} computes longer than the others: balance its share of the work, or look at its clocks",
            label(rank)
        ),
        format!(
            "{} of compute, where the others have {} in the mean",
            duration(most_ns),
            duration(mean_ns)
        ),
    ))
}

fn uneven_steps(ranks: &[RankAnalysis]) -> Option<Finding> {
    let cost = |rank: &RankAnalysis| {
        let median = rank
            .step_summary
            .as_ref()
            .map_or(0, |summary| summary.durations.p50_ns);
        rank.steps
            .iter()
            .filter(|step| step.outlier && !step.warm_up)
            .map(|step| step.duration_ns.saturating_sub(median).max(0))
            .fold(0, i64::saturating_add)
    };
    let (rank, cost_ns) = worst(ranks, cost)?;
    let summary = rank.step_summary.as_ref()?;
    if share(cost_ns, rank) < LEAST_COST {
        return None;
    }
    let longer = rank
        .steps
        .iter()
        .filter(|step| step.outlier && !step.warm_up && step.duration_ns > summary.durations.p50_ns);
    let longer: Vec<&str> = longer.map(|step| step.name.as_str()).collect();
    let names = &longer[..longer.len().min(5)];
    Some(of_rank(
        rank,
        cost_ns,
        Facts::UnevenSteps {
            steps: longer.iter().map(|&name| name.to_owned()).collect(),
            count: summary.count,
            median_ns: summary.durations.p50_ns,
        },
        "Some steps take much longer than the others: look at what only they do".to_owned(),
        format!(
            "{}: {} of {} steps, among them {}; the median is {}",
            label(rank),
            longer.len(),
            summary.count,
            names.join(", "),
            duration(summary.durations.p50_ns)
        ),
    ))
}

fn short_kernels(ranks: &[RankAnalysis], from: f64) -> Option<Finding> {
    /// A kernel of this mean length takes no longer than its launch.
    const SHORT_NS: i64 = 5_000;
    let counts = |rank: &RankAnalysis| {
        let compute = rank.kernels.iter().filter(|kernel| kernel.kind == "compute");
        compute.fold((0usize, 0usize), |(short, all), kernel| {
            let is_short = kernel.durations.mean_ns < SHORT_NS;
            (
                short + if is_short { kernel.count } else { 0 },
                all + kernel.count,
            )
        })
    };
    let late = |rank: &RankAnalysis| {
        let causes = ["host_late", "launch_latency"];
        causes
            .iter()
            .filter_map(|cause| rank.idle_causes.get(*cause))
            .fold(0i64, |sum, time| sum.saturating_add(*time))
    };
    let (rank, late_ns) = worst(ranks, late)?;
    let (short, all) = counts(rank);
    if short * 2 < all || all < 100 || share(late_ns, rank) <= from {
        return None;
    }
    Some(of_rank(
        rank,
        late_ns,
        Facts::ShortKernels {
            short,
            kernels: all,
            below_ns: SHORT_NS,
            idle_ns: late_ns,
        },
        "Most kernels are shorter than a launch takes: fuse them (torch.compile) or launch them as a CUDA graph".to_owned(),
        format!(
            "{}: {short} of {all} compute kernels are of names with a mean below {} us, and the GPU was idle for {} around launches",
            label(rank),
            SHORT_NS / 1000,
            duration(late_ns)
        ),
    ))
}

fn straggler(
    ranks: &[RankAnalysis],
    collectives: &[Collective],
    arrivals: &[ArrivalAnalysis],
) -> Option<Finding> {
    let span_ns = ranks.iter().map(|rank| rank.measures.span_ns).max().unwrap_or(0);
    let last = arrivals.iter().max_by_key(|arrival| {
        (
            arrival.last_count,
            arrival.skew_ns,
            std::cmp::Reverse((arrival.rank, arrival.device_index)),
        )
    })?;
    let matched = collectives.iter().filter(|collective| counts(collective)).count();
    if matched < ENOUGH_COLLECTIVES
        || (last.last_count as f64) <= OFTEN_LAST * matched as f64
        || (last.cost_ns as f64) < LEAST_COST * span_ns as f64
    {
        return None;
    }
    let steps = ranks.iter().map(|rank| rank.steps.len()).max().unwrap_or(0);
    let facts = Facts::LateRank {
        last_count: last.last_count,
        collectives: matched,
        skew_ns: last.skew_ns,
        cost_ns: last.cost_ns,
    };
    let text = format!(
        "Rank {} keeps the others waiting: compare its kernels, clocks and data loading with theirs",
        rank_and_device(last.rank, last.device_index)
    );
    let evidence = format!(
        "it arrived last at {} of {matched} collectives; the first rank waited {} for it in all, and {} of that for it alone",
        last.last_count,
        duration(last.skew_ns),
        duration(last.cost_ns)
    );
    Some(Finding {
        rank: Some(last.rank),
        device_index: Some(last.device_index),
        saves_ns: Some(last.cost_ns),
        saves_per_step_ns: i64::try_from(steps)
            .ok()
            .filter(|steps| *steps > 0)
            .map(|steps| last.cost_ns / steps),
        ..Finding::new(facts, text, evidence)
    })
}

/// The rank that began its first step long after the others: what comes once is in no mean step.
fn late_start(ranks: &[RankAnalysis]) -> Option<Finding> {
    let span_ns = ranks.iter().map(|rank| rank.measures.span_ns).max()?;
    // Of ranks whose times can be compared.
    let comparable = ranks.iter().filter(|rank| rank.idle_before_ns.is_some());
    let mut first: BTreeMap<u32, i64> = BTreeMap::new();
    for rank in comparable {
        let step = rank.steps.first().filter(|step| !step.detected);
        if let (Some(rank), Some(step)) = (rank.rank, step) {
            let first = first.entry(rank).or_insert(step.start_ns.0);
            *first = (*first).min(step.start_ns.0);
        }
    }
    let mut starts: Vec<(i64, u32)> = first.into_iter().map(|(rank, start)| (start, rank)).collect();
    starts.sort_unstable();
    let [.., (before, _), (start, rank)] = *starts.as_slice() else {
        return None;
    };
    let late_ns = start.saturating_sub(before);
    if (late_ns as f64) < LATE_START * span_ns as f64 || late_ns < LATE_START_NS {
        return None;
    }
    let text = format!(
        "Rank {rank} starts late: look at what it does before the first step (loading, compiling, its file system)"
    );
    let evidence = format!(
        "its first step began {} after that of all others; this is lost once, and not in each step",
        duration(late_ns)
    );
    Some(Finding {
        rank: Some(rank),
        saves_ns: Some(late_ns),
        ..Finding::new(Facts::LateStart { late_ns }, text, evidence)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_collective() {
        assert!(advice_on("SendRecv").contains("microbatches"));
        assert!(advice_on("AllGather").contains("prefetch"));
        assert!(advice_on("AllReduce").contains("buckets"));
        assert!(advice_on("").contains("buckets"));
    }
}
