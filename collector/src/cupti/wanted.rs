//! Which kinds of records the options need.

use gputrace_trace::options::{CollectorOptions, GraphLevel, Kind};

use crate::kinds::{Asked, KINDS};

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
    for kind in &KINDS {
        let by = kind.asked.by();
        let is_hidden = by.is_some_and(|by| !options.records(by));
        let can_be = match kind.asked {
            Asked::Always | Asked::For(_) => true,
            // Settled for the process's life: with launches of whole graphs, their nodes are not recorded.
            Asked::ForWholeGraphs(_) => options.graphs == GraphLevel::Graph,
            Asked::Never => false,
        };
        if can_be && (!is_hidden || by == Some(Kind::Calls) && needs_calls(options)) {
            wanted.push(WantedKind {
                activity: kind.kind,
                what: kind.what,
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
