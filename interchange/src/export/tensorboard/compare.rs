//! Whether torch-tb-profiler will compare the ranks of a recording, and what can be done that it does.

use std::collections::BTreeSet;

use gputrace_trace::{Derived, Recording};
use rustc_hash::FxHashSet;

use super::plan::Plan;
use super::spans::Spans;
use crate::export::layout::Layout;

/// A rank whose collectives are common to all ranks but for this share of them is compared with the others.
const LEAST_COMMON: f64 = 0.9;

/// A collective, over all workers.
type Collective = Option<u32>;

/// Whether the plugin will compare the workers, and what can be done that it does: by process, the kernels that are not to be
/// collectives, and what there is to say.
///
/// It matches the collectives of all workers by their order, and shows its Distributed view only where each worker has as
/// many. Where all but a few are those of every worker, the few are written as kernels like any other; where workers do
/// different things, all stay what they are.
pub(super) fn compare_workers(
    recording: &Recording,
    derived: &Derived,
    spans: &Spans,
) -> (Vec<FxHashSet<u32>>, Vec<String>) {
    let count = recording.processes.len();
    let mut plain = vec![FxHashSet::default(); count];
    let mut notes = Vec::new();
    // By process and in the order of their calls: which collective each kernel is, with its span.
    let mut kernels: Vec<Vec<(u32, usize, Collective)>> = Vec::with_capacity(count);
    let mut nameless = 0;
    for number in 0..count {
        let layout = Layout::new(recording, derived, number);
        let plan = Plan::new(&layout, &[], spans);
        nameless += plan.nameless_communication;
        let mut of_plan: Vec<_> = plan.collectives.values().collect();
        of_plan.sort_by_key(|found| (found.enqueued_ns(), found.start_ns, found.kernel));
        kernels.push(
            of_plan
                .into_iter()
                .map(|found| (found.kernel, found.span, found.collective))
                .collect(),
        );
    }
    if nameless > 0 {
        notes.push(format!(
            "{nameless} kernels communicate in ways that TensorBoard has no name for (Send, Recv, AlltoAll, ...): it counts \
             them as computation"
        ));
    }
    let mut missing = 0;
    let mut mixed = 0;
    for span in 0..spans.count() {
        let of_span = |number: usize| kernels[number].iter().filter(move |(_, at, _)| *at == span);
        let counts: Vec<usize> = (0..count).map(|number| of_span(number).count()).collect();
        let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else {
            continue;
        };
        if least == most {
            let ids: Vec<Vec<Collective>> = (0..count)
                .map(|number| of_span(number).map(|(_, _, id)| *id).collect())
                .collect();
            let is_mixed = |place: &usize| {
                let mut known = ids.iter().filter_map(|of_rank| of_rank[*place]);
                let first = known.next();
                known.any(|id| Some(id) != first)
            };
            mixed += (0..*most).filter(is_mixed).count();
            continue;
        }
        let ids = |number: usize| -> BTreeSet<u32> { of_span(number).filter_map(|(_, _, id)| *id).collect() };
        let common = (1..count).fold(ids(0), |common, number| &common & &ids(number));
        let in_common =
            |number: usize| of_span(number).filter(|(_, _, id)| id.is_some_and(|id| common.contains(&id)));
        let common_counts: Vec<usize> = (0..count).map(|number| in_common(number).count()).collect();
        let is_alike = common_counts.iter().all(|common| *common == common_counts[0]);
        let is_most =
            (0..count).all(|number| common_counts[number] as f64 >= LEAST_COMMON * counts[number] as f64);
        if !is_alike || !is_most || common.is_empty() {
            missing += 1;
            continue;
        }
        let mut left = 0;
        for (number, plain) in plain.iter_mut().enumerate() {
            for (kernel, _, id) in of_span(number) {
                if !id.is_some_and(|id| common.contains(&id)) {
                    plain.insert(*kernel);
                    left += 1;
                }
            }
        }
        notes.push(format!(
            "{left} collectives were not recorded on all ranks: TensorBoard counts them as computation, so that it can \
             compare the others"
        ));
    }
    if missing > 0 {
        let of = match spans.count() {
            1 => String::new(),
            all => format!(" of {missing} of {all} windows"),
        };
        let counts = |number: usize| kernels[number].len();
        let (least, most) = ((0..count).map(counts).min(), (0..count).map(counts).max());
        notes.push(format!(
            "TensorBoard will not show its Distributed view{of}: it wants as many collectives on each rank, and they have \
             {} to {}",
            least.unwrap_or(0),
            most.unwrap_or(0)
        ));
    }
    if mixed > 0 {
        notes.push(format!(
            "TensorBoard compares the first collective of each rank, then the second, and so on: {mixed} times these are not \
             one and the same, so waiting in its Distributed view is not what it was"
        ));
    }
    (plain, notes)
}
