//! Graphs to CUPTI: events about them, and their launches as wholes where these are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::callbacks::{GraphData, resource};
use super::layouts::kind;
use super::{delivery, in_flight, is_enabled, records};
use crate::device::{CompletedOp, GraphRun};

/// Launches of graphs are traced as wholes, and their nodes not: once GRAPH_TRACE was enabled, for ever.
static WHOLE: AtomicBool = AtomicBool::new(false);

/// GRAPH_TRACE was enabled.
pub(super) fn trace_whole() {
    WHOLE.store(true, Ordering::Relaxed);
}

/// Whether nodes get no records.
pub(super) fn are_traced_whole() -> bool {
    WHOLE.load(Ordering::Relaxed)
}

/// Tells subscribers about a graph, an executable one or a node (`event`).
pub(crate) fn graph_event(event: u32, context: u64, data: &GraphData) {
    resource(event, context, 0, Some(data));
}

/// A graph is launched.
pub(crate) fn graph_launched(run: &Arc<GraphRun>) {
    if is_enabled(kind::GRAPH_TRACE) {
        in_flight::graph_launched(run);
    }
}

/// An operation is done: if it is the last of a graph, so is that.
pub(super) fn operation_done(op: &CompletedOp) {
    let Some(place) = &op.graph else { return };
    if place.run.done(op) && in_flight::done(place.run.ticket.load(Ordering::Relaxed)) {
        delivery::emit_for_device(&records::graph(&place.run));
    }
}
