//! What communication costs the steps, and what of that its order and its sizes cost.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::candidate::{Candidate, MOST_TRIED, Told, WORTH_A_SENTENCE, What, add};
use super::replay::{Remedy, Replay};
use crate::facts::Facts;
use crate::finding::{CauseLink, Finding};
use crate::graph::dag::Node;
use crate::graph::edits::{Change, Edit, Target};
use crate::graph::nodes::{Label, NO_STEP, Part};
use crate::graph::whatif::Interval;
use crate::units::duration;

/// Fewer of a kind in a step are not worth putting together.
const MANY: usize = 8;
/// No collective takes longer than this without its bytes: NCCL's take some ten microseconds on a node, and a few hundred over
/// thousands of ranks.
const LONGEST_FIXED_NS: i64 = 500_000;
/// Of the compute before a train of collectives so much is beside them at least, when each begins as soon as it can.
const SURELY_BESIDE: f64 = 0.5;

/// Communication that the steps wait for: what beginning earlier hides, where that would hide anything; else anything between
/// nothing and what free communication saves.
pub(super) fn exposed(replay: &Replay<'_>) -> Option<Candidate> {
    let free = replay.remedy(Edit {
        target: Target::Communication,
        change: Change::None,
    })?;
    let [least, most] = [SURELY_BESIDE, 1.0].map(|beside| earlier(replay, beside));
    let (low, high) = (replay.saved(&[&least]), replay.saved(&[&most]));
    let worth = WORTH_A_SENTENCE * replay.baseline.kept_ns;
    let (saved, can_begin_earlier) = if low.middle() > worth {
        let saved = low.hull(high);
        (saved, true)
    } else {
        let saved = Interval {
            low: 0.0,
            high: replay.saved(&[&free]).high,
        };
        (saved, false)
    };
    Some(Candidate {
        what: What::Told(Told::Communication { can_begin_earlier }),
        saved,
        remedy: if can_begin_earlier { most } else { free },
    })
}

/// What collectives would take of the steps if they began earlier, with this share of the compute before them beside them.
///
/// - Collectives that follow each other without any that waited for compute meanwhile: all had their data when the first of them
///   began. All but one could have run beside the compute before them.
/// - An AllGather that waits for compute, on a communicator that also has ReduceScatters: it gathers a layer's parameters, which
///   are there since the last step, and could be fetched ahead.
fn earlier(replay: &Replay<'_>, beside: f64) -> Remedy {
    let job = replay.job;
    let mut arrivals: FxHashMap<(u16, u32), Node> = FxHashMap::default();
    for node in replay.nodes(|what| what.part == Part::Arrival) {
        let what = replay.what(node);
        arrivals.insert((what.device, what.row), node);
    }
    // By device and communicator, in order.
    let mut lines: BTreeMap<(u16, &str), Vec<Node>> = BTreeMap::new();
    for node in replay.nodes(|what| what.part == Part::Communication && what.step != NO_STEP) {
        let what = replay.what(node);
        if let Label::Collective(kind) = what.label {
            let line = lines.entry((what.device, job.kinds[kind as usize].label()));
            line.or_default().push(node);
        }
    }
    let mut compute: FxHashMap<u16, Vec<(i64, i64)>> = FxHashMap::default();
    for node in replay.nodes(|what| what.part == Part::Compute) {
        let end = job.ends[node as usize];
        compute
            .entry(replay.what(node).device)
            .or_default()
            .push((end, replay.work(node)));
    }
    compute.values_mut().for_each(|all| all.sort_unstable());
    let is_named = |node: Node, name: &str| match replay.what(node).label {
        Label::Collective(kind) => job.kinds[kind as usize].name == name,
        _ => false,
    };
    let mut remedy = Remedy::default();
    for ((device, _), mut line) in lines {
        let shards = line.iter().any(|node| is_named(*node, "ReduceScatter"));
        line.sort_unstable_by_key(|node| job.ends[*node as usize]);
        let began = |node: Node| {
            let arrival = arrivals.get(&(device, replay.what(node).row));
            arrival.map_or(job.ends[node as usize] - replay.work(node), |arrival| {
                job.ends[*arrival as usize]
            })
        };
        // When the last compute that it waited for had ended.
        let ready = |node: Node| {
            let of = arrivals.get(&(device, replay.what(node).row)).copied();
            let waits = job.graph.waits(of.unwrap_or(node)).iter();
            let compute = waits.filter(|wait| replay.what(wait.of).part.is_device_work());
            compute.map(|wait| job.ends[wait.of as usize]).max()
        };
        let mut before = i64::MIN;
        let mut place = 0;
        while place < line.len() {
            let first = began(line[place]);
            let mut end = place + 1;
            while end < line.len()
                && began(line[end]) <= job.ends[line[end - 1] as usize].saturating_add(NEXT_NS)
                && ready(line[end]).is_none_or(|ready| ready <= first)
                && replay.what(line[end]).step == replay.what(line[place]).step
            {
                end += 1;
            }
            // Its step's first has no compute before it.
            let waits_for_compute = before > i64::MIN
                && ready(line[place])
                    .is_some_and(|ready| ready > before && ready.saturating_add(NEXT_NS) >= first);
            let gathers = shards && is_named(line[place], "AllGather") && waits_for_compute;
            if end - place > 1 || gathers {
                let all = compute.get(&device).map_or(&[][..], Vec::as_slice);
                let from = all.partition_point(|(end, _)| *end <= before);
                let to = all.partition_point(|(end, _)| *end <= first);
                let before = all[from..to.max(from)].iter();
                let room = before.fold(0i64, |sum, (_, work)| sum.saturating_add(*work));
                // The last one's data comes last, whatever the order; parameters are there.
                let hidden = &line[place..if gathers { end } else { end - 1 }];
                let each = hidden.iter().map(|node| replay.work(*node));
                let total = each.fold(0i64, i64::saturating_add);
                let left = (1.0 - beside * room as f64 / total.max(1) as f64).max(0.0);
                for node in hidden {
                    let work = (replay.work(*node) as f64 * left).round() as i64;
                    remedy.work.push((*node, work));
                }
            }
            before = job.ends[line[end - 1] as usize];
            place = end;
        }
    }
    remedy
}

/// A collective begins within this time after the one before it on its communicator where it only waited for that.
const NEXT_NS: i64 = 100_000;

/// One kind of collective on one communicator.
#[derive(Default)]
struct Sizes {
    nodes: Vec<Node>,
    bytes: f64,
    total_ns: i64,
    shortest_ns: i64,
}

/// Many small collectives, of which each costs a fixed time besides its bytes: put together they cost it once.
pub(super) fn small(replay: &Replay<'_>) -> Option<Candidate> {
    let job = replay.job;
    let mut kinds: BTreeMap<u32, Sizes> = BTreeMap::new();
    for node in replay.nodes(|what| what.part == Part::Communication && what.step != NO_STEP) {
        let (Label::Collective(kind), size) = (replay.what(node).label, replay.what(node).size) else {
            continue;
        };
        // What goes to one other rank has nothing to be put together with.
        if size == 0 || job.kinds[kind as usize].is_pair {
            continue;
        }
        let sizes = kinds.entry(kind).or_insert_with(|| Sizes {
            shortest_ns: i64::MAX,
            ..Sizes::default()
        });
        sizes.bytes += f64::from(size);
        add(&mut sizes.total_ns, replay.work(node));
        sizes.shortest_ns = sizes.shortest_ns.min(replay.work(node));
        sizes.nodes.push(node);
    }
    let mut kinds: Vec<(u32, Sizes)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(kind, sizes)| (std::cmp::Reverse(sizes.total_ns), *kind));
    kinds.truncate(MOST_TRIED);
    let candidates = kinds.into_iter().filter_map(|(kind, sizes)| {
        let members = job.kinds[kind as usize].ranks.len().max(1) * job.steps.len().max(1);
        let count = sizes.nodes.len() / members;
        if count < MANY {
            return None;
        }
        let (low, high) = fixed_cost(replay, &sizes);
        let with = |fixed: f64| Remedy {
            work: sizes
                .nodes
                .iter()
                .map(|node| {
                    let less = (fixed * (1.0 - 1.0 / count as f64)) as i64;
                    (*node, (replay.work(*node) - less).max(0))
                })
                .collect(),
            ..Remedy::default()
        };
        let remedies = [with(low), with(high)];
        let [least, most] = [0, 1].map(|place: usize| replay.saved(&[&remedies[place]]));
        let saved = least.hull(most);
        let fixed_ns = f64::midpoint(low, high) as i64;
        let of_kind = &job.kinds[kind as usize];
        let finding = Finding {
            ranks: of_kind.ranks.clone(),
            cause: vec![CauseLink {
                what: "collective".to_owned(),
                rank: None,
                name: of_kind.name.clone(),
                start_ns: None,
            }],
            ..Finding::new(
                Facts::SmallCollectives {
                    collective: of_kind.name.clone(),
                    communicator: of_kind.communicator.clone(),
                    count,
                    mean_bytes: sizes.bytes / sizes.nodes.len() as f64,
                    fixed_ns,
                },
                "Many small collectives: each costs a fixed time besides its bytes; put them together in larger buckets".to_owned(),
                format!(
                    "{count} {} a step and rank of {:.0} bytes in the mean on communicator {}; about {} of each is not for its bytes",
                    of_kind.name,
                    sizes.bytes / sizes.nodes.len() as f64,
                    of_kind.label(),
                    duration(fixed_ns)
                ),
            )
        };
        let [_, remedy] = remedies;
        Some(Candidate {
            what: What::Finding(Box::new(finding)),
            saved,
            remedy,
        })
    });
    candidates.max_by(|a, b| a.saved.middle().total_cmp(&b.saved.middle()))
}

/// What a collective of this kind takes without any bytes, nanoseconds: where a straight line through times over bytes meets no
/// bytes, and no more than the shortest. Where all have the same bytes it is anything up to that.
fn fixed_cost(replay: &Replay<'_>, sizes: &Sizes) -> (f64, f64) {
    let count = sizes.nodes.len() as f64;
    let (mean_bytes, mean_ns) = (sizes.bytes / count, sizes.total_ns as f64 / count);
    let (mut square, mut product) = (0.0, 0.0);
    for node in &sizes.nodes {
        let bytes = f64::from(replay.what(*node).size) - mean_bytes;
        square += bytes * bytes;
        product += bytes * (replay.work(*node) as f64 - mean_ns);
    }
    let most = sizes.shortest_ns.clamp(0, LONGEST_FIXED_NS) as f64;
    // Sizes that hardly differ say nothing.
    if (square / count).sqrt() < 0.1 * mean_bytes {
        return (0.0, most);
    }
    let fixed = (mean_ns - product / square * mean_bytes).clamp(0.0, most);
    (fixed, fixed)
}
