//! A job's ranks on other nodes, and what those nodes are still to be told of the ranks here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gputrace_trace::daemon::StepReport;

/// Steps of single ranks that wait to be told. They are told four times a second, so that no job fills this.
const MOST_UNTOLD: usize = 1 << 13;
/// A node may tell of a rank's steps before it lists its process.
const NOT_LISTED_YET: Duration = Duration::from_secs(3);

/// A rank on another node.
#[derive(Debug)]
struct Away {
    host: String,
    since: Instant,
}

/// The ranks of a job beyond this node's.
#[derive(Debug, Default)]
pub struct Ranks {
    away: BTreeMap<u32, Away>,
    untold: Vec<(u32, StepReport)>,
    /// Whether it was said that a rank is claimed twice.
    pub(super) has_complained: bool,
}

impl Ranks {
    /// A rank here has ended a step: the other nodes are to know. Says whether there was room.
    pub fn tell(&mut self, rank: u32, step: &StepReport) -> bool {
        let has_room = self.untold.len() < MOST_UNTOLD;
        if has_room {
            self.untold.push((rank, step.clone()));
        }
        has_room
    }

    /// What is to be told now.
    pub(super) fn take_untold(&mut self) -> Vec<(u32, StepReport)> {
        std::mem::take(&mut self.untold)
    }

    /// Whether a rank is this node's, as far as is known; one that is new becomes so.
    pub(super) fn is_of(&mut self, rank: u32, host: &str) -> bool {
        let away = self.away.entry(rank).or_insert_with(|| Away {
            host: host.to_owned(),
            since: Instant::now(),
        });
        away.host == host
    }

    /// Takes what other nodes list as running now, with their names. Gives the ranks that have come, and those that have gone.
    pub(super) fn listed(
        &mut self,
        listed: &[(u32, String)],
        is_here: impl Fn(u32) -> bool,
    ) -> (Vec<u32>, Vec<u32>) {
        let mut gone = Vec::new();
        self.away.retain(|rank, away| {
            let is_listed = || listed.iter().any(|(of, host)| (of, host) == (rank, &away.host));
            let stays = !is_here(*rank) && (away.since.elapsed() < NOT_LISTED_YET || is_listed());
            if !stays && !is_here(*rank) {
                gone.push(*rank);
            }
            stays
        });
        let mut come = Vec::new();
        for (rank, host) in listed {
            if !is_here(*rank) && !self.away.contains_key(rank) {
                self.is_of(*rank, host);
                come.push(*rank);
            }
        }
        (come, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_of_one_node_at_a_time() {
        let mut ranks = Ranks::default();
        let listed = [(1, "b".to_owned()), (2, "b".to_owned()), (0, "b".to_owned())];
        let is_here = |rank| rank == 0;
        assert_eq!(ranks.listed(&listed, is_here), (vec![1, 2], vec![]));
        assert!(ranks.is_of(1, "b") && !ranks.is_of(1, "c"));
        for away in ranks.away.values_mut() {
            away.since -= NOT_LISTED_YET;
        }
        // One has moved, one is gone; one that is not listed yet stays for a moment.
        assert!(ranks.is_of(3, "c"));
        let (come, gone) = ranks.listed(&[(1, "c".to_owned())], is_here);
        assert_eq!((come, gone), (vec![1], vec![1, 2]));
        assert!(ranks.is_of(1, "c") && ranks.is_of(3, "c"));
        // And one has come here.
        assert_eq!(ranks.listed(&[], |rank| rank == 3), (vec![], vec![]));
        assert_eq!(ranks.away.len(), 1);
    }

    #[test]
    fn what_is_untold_is_bounded() {
        let mut ranks = Ranks::default();
        let step = StepReport::default();
        let told = (0..MOST_UNTOLD + 7).filter(|_| ranks.tell(0, &step)).count();
        assert_eq!((told, ranks.take_untold().len()), (MOST_UNTOLD, MOST_UNTOLD));
        assert!(ranks.take_untold().is_empty());
    }
}
