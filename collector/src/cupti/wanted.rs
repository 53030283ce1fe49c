//! Which kinds of records the options need.

use gputrace_trace::options::{CollectorOptions, GraphLevel, Kind};

use crate::records::{RECORDED_KINDS, kind};

/// The word that asks for a kind; `None` for what is always recorded.
pub(super) fn asked_by(activity: u32) -> Option<Kind> {
    match activity {
        kind::CONCURRENT_KERNEL | kind::KERNEL | kind::GRAPH_TRACE => Some(Kind::Kernels),
        kind::MEMCPY | kind::MEMCPY2 => Some(Kind::Copies),
        kind::MEMSET => Some(Kind::Memsets),
        kind::DRIVER | kind::RUNTIME => Some(Kind::Calls),
        kind::SYNCHRONIZATION => Some(Kind::Synchronizations),
        kind::OVERHEAD => Some(Kind::Overheads),
        kind::EXTERNAL_CORRELATION => Some(Kind::Collectives),
        kind::MODULE | kind::JIT => Some(Kind::Modules),
        kind::MEMORY2 | kind::MEMORY_POOL => Some(Kind::Memory),
        _ => None,
    }
}

/// A kind that is to be switched on.
pub(super) struct WantedKind {
    pub(super) activity: u32,
    pub(super) what: &'static str,
    /// Needed, and asked for by nobody.
    pub(super) is_hidden: bool,
}

/// The kinds that these options need, in the order in which they are switched on.
pub(super) fn wanted_kinds(options: &CollectorOptions) -> Vec<WantedKind> {
    let mut wanted = Vec::new();
    for (activity, what) in RECORDED_KINDS {
        let by = asked_by(activity);
        let is_hidden = by.is_some_and(|by| !options.records(by));
        // Settled for the process's life: with launches of whole graphs, their nodes are not recorded.
        if activity == kind::GRAPH_TRACE && options.graphs != GraphLevel::Graph {
            continue;
        }
        if !is_hidden || by == Some(Kind::Calls) && needs_calls(options) {
            wanted.push(WantedKind {
                activity,
                what,
                is_hidden,
            });
        }
    }
    wanted
}

/// Whether calls are needed although nobody asked for them: an operation belongs to the window that it was launched in, and
/// the ids that join kernels to collectives come with calls only.
fn needs_calls(options: &CollectorOptions) -> bool {
    let asked = |kind| options.records(kind);
    let operations = asked(Kind::Kernels) || asked(Kind::Copies) || asked(Kind::Memsets);
    operations && (asked(Kind::Collectives) || options.is_partial())
}
