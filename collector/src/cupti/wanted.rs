//! Which kinds of records the options need.

use gputrace_trace::options::{CollectorOptions, GraphLevel, Kind};

use crate::kinds::{Asked, KINDS, needs_calls};

/// A kind that is to be switched on.
pub(super) struct WantedKind {
    pub(super) activity: u32,
    pub(super) what: &'static str,
    /// Needed, and asked for by nobody.
    pub(super) is_hidden: bool,
}

/// The kinds that these options need of this version of CUPTI, in the order in which they are switched on.
pub(super) fn wanted_kinds(options: &CollectorOptions, version: u32) -> Vec<WantedKind> {
    let mut wanted = Vec::new();
    for kind in &KINDS {
        let by = kind.asked.by();
        let is_hidden = by.is_some_and(|by| !options.records(by));
        let can_be = match kind.asked {
            Asked::Always | Asked::For(_) => true,
            // Settled for the process's life: with launches of whole graphs, their nodes are not recorded.
            Asked::ForWholeGraphs(_) => options.graphs == GraphLevel::Graph,
            Asked::ForSince(_, since) => version >= since,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::kind;

    /// The kinds that are switched on with these words of `--kinds`, and those of them that make no rows.
    fn wanted(words: &[&str], steps: Option<(u64, u64)>, version: u32) -> (Vec<u32>, Vec<u32>) {
        let options = CollectorOptions {
            kinds: Some(words.iter().map(|word| (*word).to_owned()).collect()),
            steps,
            ..CollectorOptions::default()
        };
        let wanted = wanted_kinds(&options, version);
        let hidden = wanted.iter().filter(|wanted| wanted.is_hidden);
        (
            wanted.iter().map(|wanted| wanted.activity).collect(),
            hidden.map(|wanted| wanted.activity).collect(),
        )
    }

    #[test]
    fn recordings_of_events_are_asked_for_where_cupti_lets_them_be() {
        let asks = |words: &[&str], version| wanted(words, None, version).0.contains(&kind::CUDA_EVENT);
        assert!(asks(&["synchronizations"], 27));
        assert!(!asks(&["synchronizations"], 26), "they come with those");
        assert!(!asks(&["kernels", "calls"], 27));
    }

    #[test]
    fn what_belongs_to_a_call_needs_calls_to_be_in_a_window() {
        let calls = vec![kind::DRIVER, kind::RUNTIME];
        assert_eq!(wanted(&["synchronizations"], Some((1, 2)), 28).1, calls);
        assert_eq!(wanted(&["kernels"], Some((1, 2)), 28).1, calls);
        assert!(wanted(&["synchronizations"], None, 28).1.is_empty());
        assert!(wanted(&["overheads"], Some((1, 2)), 28).1.is_empty());
    }
}
