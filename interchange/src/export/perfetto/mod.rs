//! Perfetto's own format: for its page, its SQL and scripts.
//!
//! Every event of the recording is one event of the trace, of its category: slices on tracks, samples of counters. What the
//! analysis adds (steps, idle times, collectives) has categories of its own. Events are written one after another; no tree
//! of objects is built, and memory stays with the index of one process.
//!
//! How it is shown: a process for each rank; in it its GPUs, with their streams in order, and below what its host threads
//! did. Slices of a track are disjoint or within each other, so whatever overlaps goes to a further lane.

mod about;
mod analysis;
mod arguments;
mod categories;
mod counters;
mod critical_path;
mod fields;
mod flows;
mod hosts;
mod moments;
mod names;
mod packets;
mod process;
mod slices;
mod span;
mod stage_packets;
mod stages;
mod text;
mod tracks;

use std::io::{self, Write};

use gputrace_trace::{Derived, Recording};
use rustc_hash::FxHashSet;

use super::ExportSummary;
use super::layout::layouts;
pub(crate) use categories::CATEGORY_NAMES as CATEGORIES;
use names::Names;
use packets::Packets;
use process::Exporter;
use stages::{Gpus, StageNumbers};
use tracks::Uuids;

/// What may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfettoOptions {
    /// Whether events say more than their names and times.
    pub arguments: bool,
    /// Whether operations of devices are written in Perfetto's own vocabulary for GPUs (render stages) instead of as slices
    /// of tracks: that fills its GPU tables and plugins, since version 55.
    pub gpu_stages: bool,
}

impl Default for PerfettoOptions {
    fn default() -> Self {
        Self {
            arguments: true,
            gpu_stages: false,
        }
    }
}

/// Writes `recording` to `out`, event by event.
///
/// # Errors
/// When `out` refuses.
pub fn export_perfetto(
    recording: &Recording,
    derived: &Derived,
    options: PerfettoOptions,
    out: &mut dyn Write,
) -> io::Result<ExportSummary> {
    let span = span::of(recording);
    // Perfetto has no times before its epoch.
    let shift_ns = span.0.min(0).saturating_neg();
    let mut packets = Packets::new(out, shift_ns, options.arguments);
    let mut summary = ExportSummary::default();
    let identities = hosts::identities(recording);
    let gpus = Gpus::new(recording, &identities);
    let mut stages = StageNumbers::default();
    let mut names = Names::new(&recording.names);
    let mut uuids = Uuids::default();
    let mut machines_told = 0;
    let mut clocks_told = FxHashSet::default();
    for (layout, &identity) in layouts(recording, derived).zip(&identities) {
        packets.begin_sequence(identity.machine)?;
        names.clear();
        let first = layout.number == 0;
        if first || identity.machine >= machines_told {
            hosts::write_machine(recording, layout.process, shift_ns, &mut packets)?;
            if options.gpu_stages {
                gpus.write(identity.machine, &mut packets)?;
            }
            machines_told = identity.machine + 1;
        }
        let clock = layout.process.header.clock;
        if let Some((alignment, number)) = recording.clocks.as_ref().zip(clock)
            && let Some(clock) = alignment.clocks.get(number as usize)
            && clocks_told.insert(number)
        {
            hosts::write_own_clock(clock, number, &[span.0, span.1], shift_ns, &mut packets)?;
        }
        if first {
            tracks::write_root(&mut packets)?;
            about::write(recording, span, shift_ns, &mut names, &mut uuids, &mut packets)?;
            critical_path::write(&derived.critical_path, &mut names, &mut uuids, &mut packets)?;
        }
        if options.gpu_stages {
            stages.begin_process(&mut packets)?;
        }
        let mut exporter = Exporter::new(
            &layout,
            derived,
            identity,
            (&mut names, &mut uuids),
            options.gpu_stages.then_some((&gpus, &mut stages)),
            &mut summary,
        );
        exporter.write(&mut packets, &mut summary)?;
    }
    packets.finish()?;
    Ok(summary)
}
