//! Communication that is exposed and was hidden before.

use std::collections::VecDeque;

use super::rules::OverlapLost;
use crate::history::step::Step;

/// Steps that are compared with.
const STEPS: usize = 64;
/// So many have to be there.
const LEAST_STEPS: usize = 16;

/// What is known of a job's overlap.
#[derive(Debug, Default)]
pub struct Overlap {
    usual: VecDeque<f64>,
    /// Since which step it is worse, and for how many.
    row: Option<(u64, u32)>,
}

impl Overlap {
    /// Takes a step, and says what is wrong with it.
    pub fn step(&mut self, rule: &OverlapLost, step: &Step) -> Option<String> {
        let share = step.exposed_share()?;
        if self.usual.len() >= LEAST_STEPS {
            let mut usual: Vec<f64> = self.usual.iter().copied().collect();
            usual.sort_by(f64::total_cmp);
            let before = usual[usual.len() / 2];
            if share > before + rule.share {
                let (first, length) = self
                    .row
                    .map_or((step.number, 1), |(first, length)| (first, length + 1));
                self.row = Some((first, length));
                if length < rule.in_a_row {
                    return None;
                }
                self.push(share);
                return (length == rule.in_a_row).then(|| {
                    format!(
                        "overlap is lost since step {first}: exposed communication takes {:.0} % of the step, {:.0} % before",
                        share * 100.0,
                        before * 100.0
                    )
                });
            }
        }
        self.row = None;
        self.push(share);
        None
    }

    fn push(&mut self, share: f64) {
        if self.usual.len() == STEPS {
            self.usual.pop_front();
        }
        self.usual.push_back(share);
    }
}
