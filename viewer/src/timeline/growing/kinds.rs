//! Which kernels of a process communicate, as more and more is known: what tells it may come before the kernel or behind it.

use gputrace_analyzer::is_communication;
use gputrace_trace::tables::{Collectives, ExternalCorrelations, GraphNodes};
use gputrace_trace::{Interner, NameId};
use rustc_hash::{FxHashMap, FxHashSet};

/// Launches whose collectives are waited for; twice as many at the most. Other tools push ids of their own, that no collective
/// ever names.
const WAITING: usize = 1 << 17;

/// What was learned of kernels that may have come already.
#[derive(Debug, Default, PartialEq)]
pub(super) struct News {
    /// Correlation ids of launches that communicate.
    pub(super) launches: FxHashSet<u32>,
    /// Rows of kernels that collectives are described on.
    pub(super) rows: FxHashSet<u64>,
    /// Nodes of CUDA graphs that communicate.
    pub(super) nodes: FxHashSet<u64>,
}

impl News {
    pub(super) fn is_empty(&self) -> bool {
        self.launches.is_empty() && self.rows.is_empty() && self.nodes.is_empty()
    }
}

/// What tells kernels that communicate from others, so far; says the same as [`gputrace_analyzer::KernelKinds`] of all of it.
#[derive(Default)]
pub(super) struct Kinds {
    known: News,
    /// Numbers by which collectives name their launches.
    plans: FxHashSet<u64>,
    /// Launches by such a number that no collective has named yet.
    waiting: FxHashMap<u64, Vec<u32>>,
    /// The same of those before.
    waiting_longer: FxHashMap<u64, Vec<u32>>,
    /// By name: whether it tells; 0 where nobody asked yet, 1 no, 2 yes.
    by_name: Vec<u8>,
}

impl Kinds {
    /// Takes in what came: what that says of kernels and was not known.
    pub(super) fn learn(
        &mut self,
        collectives: &Collectives,
        external: &ExternalCorrelations,
        nodes: &GraphNodes,
    ) -> News {
        let mut news = News::default();
        for plan in collectives.plan.iter().flatten() {
            if self.plans.insert(*plan) {
                let waiting = [&mut self.waiting, &mut self.waiting_longer];
                news.launches
                    .extend(waiting.into_iter().filter_map(|all| all.remove(plan)).flatten());
            }
        }
        for (id, correlation) in external.id.iter().zip(&external.correlation) {
            if *correlation == 0 {
                continue;
            }
            if self.plans.contains(id) {
                news.launches.insert(*correlation);
            } else {
                if self.waiting.len() >= WAITING {
                    self.waiting_longer = std::mem::take(&mut self.waiting);
                }
                self.waiting.entry(*id).or_default().push(*correlation);
            }
        }
        news.rows.extend(collectives.kernel.iter().flatten());
        news.nodes.extend(&nodes.node);
        news.launches.retain(|launch| self.known.launches.insert(*launch));
        news.rows.retain(|row| self.known.rows.insert(*row));
        news.nodes.retain(|node| self.known.nodes.insert(*node));
        news
    }

    /// Whether the kernel in this row of the table communicates, as far as is known.
    #[inline]
    pub(super) fn communicates(
        &mut self,
        row: usize,
        name: NameId,
        correlation: u32,
        node: Option<u64>,
        names: &Interner,
    ) -> bool {
        let known = &self.known;
        known.launches.contains(&correlation)
            || node.is_some_and(|node| known.nodes.contains(&node))
            || (!known.rows.is_empty() && known.rows.contains(&(row as u64)))
            || self.is_named_so(name, names)
    }

    #[inline]
    fn is_named_so(&mut self, name: NameId, names: &Interner) -> bool {
        let place = name.number() as usize;
        if place >= self.by_name.len() {
            self.by_name.resize(names.len().max(place + 1), 0);
        }
        let known = &mut self.by_name[place];
        if *known == 0 {
            *known = 1 + u8::from(is_communication(names.get(name)));
        }
        *known == 2
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::Table as _;
    use gputrace_trace::tables::{Collective, ExternalCorrelation};

    use super::*;

    fn collectives(plan: u64) -> Collectives {
        let mut collectives = Collectives::default();
        collectives.push(Collective {
            plan: Some(plan),
            ..Collective::default()
        });
        collectives
    }

    fn launched(id: u64, correlation: u32) -> ExternalCorrelations {
        let mut external = ExternalCorrelations::default();
        external.push(ExternalCorrelation {
            id,
            correlation,
            kind: 0,
        });
        external
    }

    #[test]
    fn a_launch_is_known_when_both_of_its_halves_are_and_only_once() {
        let mut kinds = Kinds::default();
        let (none, nodes) = (Collectives::default(), GraphNodes::default());
        assert!(kinds.learn(&none, &launched(7, 70), &nodes).is_empty());
        assert!(kinds.learn(&none, &launched(0, 0), &nodes).is_empty());
        let news = kinds.learn(&collectives(7), &launched(8, 80), &nodes);
        assert_eq!(news.launches, FxHashSet::from_iter([70]));
        // The other way round, and again.
        assert!(
            kinds
                .learn(&collectives(9), &ExternalCorrelations::default(), &nodes)
                .is_empty()
        );
        let news = kinds.learn(&collectives(7), &launched(9, 90), &nodes);
        assert_eq!(news.launches, FxHashSet::from_iter([90]));
        assert!(kinds.learn(&none, &launched(9, 90), &nodes).is_empty());
        // A second launch of the same.
        assert_eq!(kinds.learn(&none, &launched(9, 91), &nodes).launches.len(), 1);
        let names = Interner::default();
        let mut communicates =
            |correlation| kinds.communicates(3, NameId::default(), correlation, None, &names);
        assert_eq!([70, 80, 90, 91].map(&mut communicates), [true, false, true, true]);
    }
}
