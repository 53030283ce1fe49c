//! TensorBoard's profiler plugin torch-tb-profiler 0.4.3: one file a worker and active window, in its own dialect of
//! Kineto's JSON.
//!
//! The plugin knows no category that Kineto has written since 2022, joins events by numbers that Kineto may leave out, and
//! loses a whole worker over a single event that it did not expect. So this is not Chrome JSON with other names: every
//! event is written in a category in which the plugin reads it rightly, or in one that it does not know and skips (its
//! Trace view shows those too). `docs/tensorboard.md` says which is which.

mod annotations;
mod compare;
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

use std::collections::BTreeMap;
use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;
use gputrace_trace::{Derived, Recording};

pub(in crate::export) use exact::exact_duration;

use super::ExportSummary;
use super::files::Files;
use super::layout::{Layout, first_moment_ns};
use compare::compare_workers;
use host_steps::host_steps;
use plan::Plan;
use spans::Spans;
use worker::{Untold, Worker};

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
    let counts = [
        (
            untold.steps_cut,
            "TensorBoard leaves out steps at the end that have fewer operations than those before",
        ),
        (
            untold.steps_without_time,
            "TensorBoard does not show steps that launched nothing while the GPU was busy with those before",
        ),
        (
            untold.operations_on_further_devices,
            "TensorBoard knows 64 GPUs of a process: operations on others are in its Trace view alone",
        ),
        (
            too_deep,
            "TensorBoard takes no ranges that lie more than 100 deep for operators",
        ),
    ];
    let some = counts.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, text)| format!("{text}: {count}")).collect()
}
