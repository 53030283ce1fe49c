//! TensorBoard's profiler plugin torch-tb-profiler 0.4.3: one file a worker and active window, in its own dialect of
//! Kineto's JSON.
//!
//! The plugin knows no category that Kineto has written since 2022, joins events by numbers that Kineto may leave out, and
//! loses a whole worker over a single event that it did not expect. So this is not Chrome JSON with other names: every
//! event is written in a category in which the plugin reads it rightly, or in one that it does not know and skips (its
//! Trace view shows those too). `docs/tensorboard.md` says which is which.

mod annotations;
mod event;
mod events;
mod exact;
pub(in crate::export) mod host_steps;
mod moments;
mod plan;
mod plugin_steps;
pub(in crate::export) mod spans;
mod worker;
pub(in crate::export) mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;
use gputrace_trace::{Derived, Recording};
use rustc_hash::FxHashSet;

pub(in crate::export) use exact::exact_duration;

use super::ExportSummary;
use super::files::Files;
use super::layout::{Layout, first_moment_ns};
use host_steps::host_steps;
use plan::Plan;
use spans::Spans;
use worker::{Untold, Worker};

/// A rank whose collectives are common to all ranks but for this share of them is compared with the others.
const LEAST_COMMON: f64 = 0.9;

/// Writes `recording` into files that TensorBoard shows as one run.
///
/// Gives what was written, and what the plugin will not show or show otherwise, in sentences.
///
/// # Errors
/// When `files` refuses.
pub fn export_tensorboard(
    recording: &Recording,
    derived: &Derived,
    files: &mut dyn Files,
) -> io::Result<(ExportSummary, Vec<String>)> {
    let mut summary = ExportSummary::default();
    let mut untold = Untold::default();
    let spans = Spans::of(recording, derived);
    let names = workers::worker_names(recording);
    let (plain, mut notes) = compare_workers(recording, derived, &spans);
    let base_ns = first_moment_ns(recording).map_or(0, |time| time - time % 1_000_000_000);
    let host_layouts: Vec<Layout<'_>> = (0..recording.hosts.len())
        .map(|host| Layout::new(recording, derived, recording.processes.len() + host))
        .collect();
    let mut hosts = hosts_by_worker(recording, host_layouts);
    let mut too_deep = 0;
    for (number, name) in names.iter().enumerate() {
        let layout = Layout::new(recording, derived, number);
        let steps = host_steps(&layout);
        let mut plan = Plan::new(&layout, &steps, &spans);
        plan.settle(&plain[number]);
        too_deep += plan.too_deep;
        let hosts = hosts.remove(&number).unwrap_or_default();
        summary.events_in += layout.events() + hosts.iter().map(Layout::events).sum::<u64>();
        summary.durations_clamped += layout.durations_clamped;
        let mut worker = Worker::new(&layout, &plan, &spans, &steps, &hosts, base_ns);
        for (span, stamp_ns) in spans.stamps_ns.iter().enumerate() {
            files.file(&workers::file_name(name, *stamp_ns), &mut |out| {
                let mut encoder = GzEncoder::new(out, Compression::new(4));
                worker.write(span, &mut encoder, &mut summary, &mut untold)?;
                encoder.finish().map(drop)
            })?;
        }
    }
    notes.extend(told(untold, too_deep));
    Ok((summary, notes))
}

/// By process: the samples of its host that its files have; of each host the first process has them.
fn hosts_by_worker<'r>(recording: &Recording, hosts: Vec<Layout<'r>>) -> BTreeMap<usize, Vec<Layout<'r>>> {
    let mut by_worker: BTreeMap<usize, Vec<Layout<'r>>> = BTreeMap::new();
    for host in hosts {
        let name = &host.process.header.host;
        let same = recording
            .processes
            .iter()
            .position(|process| process.header.host == *name);
        by_worker.entry(same.unwrap_or(0)).or_default().push(host);
    }
    by_worker
}

fn told(untold: Untold, too_deep: u64) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |count: u64, text: &str| {
        if count > 0 {
            notes.push(format!("{count} {text}"));
        }
    };
    note(
        untold.steps_cut,
        "steps at the end have fewer operations than those before: TensorBoard leaves them out of its views",
    );
    note(
        untold.steps_without_time,
        "steps launched nothing while the GPU was busy with those before: TensorBoard does not show them",
    );
    note(
        untold.operations_on_further_devices,
        "operations are on more GPUs of one process than TensorBoard knows (64): they are in its Trace view alone",
    );
    note(
        too_deep,
        "ranges lie more than 100 deep in others: they are in TensorBoard's Trace view alone",
    );
    notes
}

/// A collective, over all workers.
type Collective = Option<u32>;

/// Whether the plugin will compare the workers, and what can be done that it does: by process, the kernels that are not to be
/// collectives, and what there is to say.
///
/// It matches the collectives of all workers by their order, and shows its Distributed view only where each worker has as
/// many. Where all but a few are those of every worker, the few are written as kernels like any other; where workers do
/// different things, all stay what they are.
fn compare_workers(
    recording: &Recording,
    derived: &Derived,
    spans: &Spans,
) -> (Vec<FxHashSet<u32>>, Vec<String>) {
    let count = recording.processes.len();
    let mut plain = vec![FxHashSet::default(); count];
    let mut notes = Vec::new();
    // By process: which collective each kernel is, with its span.
    let mut kernels: Vec<Vec<(u32, usize, Collective)>> = Vec::with_capacity(count);
    let mut nameless = 0;
    for number in 0..count {
        let layout = Layout::new(recording, derived, number);
        let plan = Plan::new(&layout, &[], spans);
        nameless += plan.nameless_communication;
        let of_plan = plan.collectives.values();
        kernels.push(
            of_plan
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
    for span in 0..spans.count() {
        let of_span = |number: usize| kernels[number].iter().filter(move |(_, at, _)| *at == span);
        let counts: Vec<usize> = (0..count).map(|number| of_span(number).count()).collect();
        let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else {
            continue;
        };
        if least == most {
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
    (plain, notes)
}
