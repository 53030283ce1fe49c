//! Waiting across ranks that nothing tells of: a barrier on the host, a group that was not recorded, a receive that was posted
//! late.
//!
//! An operation that begins long after all that its rank's rules explain has waited for something. It is told by time, where time
//! is clear about it:
//!
//! - Ranks that begin the same thing of a step at the same time, each after a gap far longer than they are apart, met there.
//! - Where in most steps it begins equally long after the end of one certain operation of another rank (far more equally than the
//!   gap is long), it waited for that.
//!
//! What is left of the gap stays unexplained.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::dag::Node;
use super::nodes::{Label, NO_STEP, Nodes, Part, What};

/// Gaps shorter than this, or than this share of a step, are left alone.
const LEAST_GAP_NS: i64 = 1_000_000;
const LEAST_SHARE: i64 = 200;
/// Ranks begin at the same time where their starts are apart by at most this share of the shortest gap.
const APART_SHARE: i64 = 200;
/// What is waited for ends at most this share of the gap before the start,
const BEFORE_SHARE: i64 = 20;
/// in nearly the same distance: distances vary by at most this share of the gap,
const VARIES_SHARE: i64 = 100;
/// in so many steps at least, and in four of five.
const LEAST_STEPS: usize = 3;
/// Stamps may be rounded by so much.
const ROUNDING_NS: i64 = 100_000;
/// Of the operations that ended in that time so many are looked at, the last ones.
const MOST_LOOKED_AT: usize = 1_000;
/// More gaps than this are no exceptions.
const MOST_GAPS: usize = 20_000;

/// A thing in a step: device, kind and name, and its number among the equal ones of the step.
pub(crate) type Thing = (u16, Part, Label, u32);

/// An operation that began later than explained.
struct Gap {
    node: Node,
    start: i64,
    /// Since what it waited for, as far as that is known.
    ready: i64,
    step: u32,
    thing: Thing,
}

/// Adds what is found to the nodes of all ranks. Returns how many operations that explains.
pub(crate) fn explain(all: &mut Nodes, step_ns: i64) -> u64 {
    let least = LEAST_GAP_NS.max(step_ns / LEAST_SHARE);
    let things = things(&all.what, &all.ends, |part| {
        part.is_operation() || part == Part::Arrival
    });
    let waiting: FxHashSet<Node> = all.builder.waiting().collect();
    let mut gaps: Vec<Gap> = Vec::new();
    for (node, what) in (0u32..).zip(&all.what) {
        let (work, gap) = all.builder.get(node);
        let begins = matches!(
            what.part,
            Part::Arrival | Part::Compute | Part::Copy | Part::Memset | Part::Communication
        );
        if begins && gap >= least && what.step != NO_STEP && waiting.contains(&node) {
            let start = all.ends[node as usize] - work;
            gaps.push(Gap {
                node,
                start,
                ready: start - gap,
                step: what.step,
                thing: things[node as usize],
            });
        }
    }
    if gaps.is_empty() || gaps.len() > MOST_GAPS {
        return 0;
    }
    let mut barriers: FxHashMap<Node, (usize, i64)> = FxHashMap::default();
    let mut together: Vec<Vec<usize>> = Vec::new();
    gaps.sort_by_key(|gap| {
        (
            gap.step,
            gap.thing.1,
            gap.thing.2,
            gap.thing.3,
            gap.start,
            gap.node,
        )
    });
    let mut place = 0;
    while place < gaps.len() {
        let first = &gaps[place];
        let alike = |gap: &Gap| {
            (gap.step, gap.thing.1, gap.thing.2, gap.thing.3)
                == (first.step, first.thing.1, first.thing.2, first.thing.3)
        };
        let mut shortest = first.start - first.ready;
        let mut end = place + 1;
        while let Some(next) = gaps.get(end).filter(|next| alike(next)) {
            shortest = shortest.min(next.start - next.ready);
            if next.start - first.start > shortest / APART_SHARE {
                break;
            }
            end += 1;
        }
        if end - place > 1 {
            let ready = gaps[place..end]
                .iter()
                .map(|gap| gap.ready)
                .max()
                .unwrap_or(i64::MIN);
            for gap in &gaps[place..end] {
                barriers.insert(gap.node, (together.len(), ready));
            }
            together.push((place..end).collect());
        }
        place = end;
    }
    let before = ended_before(all, &gaps, &barriers, &things);
    // What each waited for goes to a node before it, so that a meeting can wait for that as well.
    let mut split: FxHashMap<Node, Node> = FxHashMap::default();
    for gap in &gaps {
        if barriers.contains_key(&gap.node) {
            let what = What {
                part: Part::Meeting,
                label: Label::None,
                ..all.what[gap.node as usize]
            };
            let ready = all.add(what, 0, gap.ready);
            split.insert(gap.node, ready);
        }
    }
    all.builder.wait_instead(&split);
    for members in &together {
        let ready = members.iter().map(|place| gaps[*place].ready).max().unwrap_or(0);
        let what = What {
            part: Part::Meeting,
            label: Label::None,
            ..all.what[gaps[members[0]].node as usize]
        };
        let meeting = all.add(what, 0, ready);
        for place in members {
            let node = gaps[*place].node;
            all.builder.wait(meeting, split[&node], 0);
            all.builder.wait(node, split[&node], 0);
            all.builder.wait(node, meeting, 0);
        }
    }
    let mut explained = 0;
    for (place, gap) in gaps.iter().enumerate() {
        let met = barriers.get(&gap.node).map_or(gap.ready, |(_, ready)| *ready);
        let mut ready = met;
        if let Some(of) = before.get(&place) {
            let end = all.ends[*of as usize];
            let lag = (gap.start - end).min(0);
            all.builder.wait(gap.node, *of, i32::try_from(lag).unwrap_or(0));
            ready = ready.max(end + lag);
        }
        if ready > gap.ready {
            let (work, _) = all.builder.get(gap.node);
            all.builder.set(gap.node, work, gap.start - ready);
            explained += 1;
        }
    }
    explained
}

/// By node: which thing of its step it is, of those parts that are meant.
pub(crate) fn things(what: &[What], ends: &[i64], is_meant: impl Fn(Part) -> bool) -> Vec<Thing> {
    let mut order: Vec<Node> = (0u32..).take(what.len()).collect();
    order.sort_unstable_by_key(|node| (ends[*node as usize], *node));
    let mut seen: FxHashMap<(u32, u16, Part, Label), u32> = FxHashMap::default();
    let mut things = vec![(0, Part::Meeting, Label::None, 0); what.len()];
    for node in order {
        let what = &what[node as usize];
        if is_meant(what.part) {
            let count = seen
                .entry((what.step, what.device, what.part, what.label))
                .or_default();
            things[node as usize] = (what.device, what.part, what.label, *count);
            *count += 1;
        }
    }
    things
}

/// By gap: the operation of another device whose end it waited for, as the steps together show.
fn ended_before(
    all: &Nodes,
    gaps: &[Gap],
    barriers: &FxHashMap<Node, (usize, i64)>,
    things: &[Thing],
) -> FxHashMap<usize, Node> {
    let mut ends: Vec<(i64, Node)> = (0u32..)
        .zip(&all.what)
        .filter(|(_, what)| what.part.is_operation())
        .map(|(node, _)| (all.ends[node as usize], node))
        .collect();
    ends.sort_unstable();
    let mut classes: BTreeMap<Thing, Vec<usize>> = BTreeMap::new();
    for (place, gap) in gaps.iter().enumerate() {
        classes.entry(gap.thing).or_default().push(place);
    }
    let mut found = FxHashMap::default();
    for (thing, places) in classes {
        if places.len() < LEAST_STEPS {
            continue;
        }
        let mut delays: FxHashMap<Thing, Vec<(i64, usize, Node)>> = FxHashMap::default();
        let mut shortest = i64::MAX;
        for place in &places {
            let gap = &gaps[*place];
            let ready = barriers.get(&gap.node).map_or(gap.ready, |(_, ready)| *ready);
            let length = gap.start - ready;
            if length <= 0 {
                continue;
            }
            shortest = shortest.min(length);
            let from = ends.partition_point(|(end, _)| *end < gap.start - length / BEFORE_SHARE);
            let to =
                ends.partition_point(|(end, _)| *end <= gap.start + ROUNDING_NS.min(length / BEFORE_SHARE));
            for (end, node) in &ends[from.max(to.saturating_sub(MOST_LOOKED_AT))..to] {
                if all.what[*node as usize].device != thing.0 {
                    delays
                        .entry(things[*node as usize])
                        .or_default()
                        .push((gap.start - end, *place, *node));
                }
            }
        }
        let steady = delays.into_values().filter_map(|mut delays| {
            delays.sort_unstable();
            delays.dedup_by_key(|(_, place, _)| *place);
            let enough = delays.len() >= LEAST_STEPS && delays.len() * 5 >= places.len() * 4;
            // The middle eight tenths.
            let tenth = delays.len() / 10;
            let varies = delays[delays.len() - 1 - tenth].0 - delays[tenth].0;
            (enough && varies <= shortest / VARIES_SHARE).then_some((varies, delays))
        });
        // Of several that end equally long before the last one.
        let best = steady.min_by_key(|(varies, delays)| (*varies, delays[delays.len() / 2]));
        for (_, place, node) in best.into_iter().flat_map(|(_, delays)| delays) {
            found.insert(place, node);
        }
    }
    found
}
