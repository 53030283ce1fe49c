//! A step of a job, over its ranks.

use gputrace_trace::daemon::StepReport;

/// A step's times, at the most, nanoseconds: a hundred years, so that sums of many have room.
const MOST_NS: i64 = 100 * 365 * 86_400 * 1_000_000_000;

/// Whether a step is one that can have been: others can't be reckoned with.
#[must_use]
pub fn is_sane(step: &StepReport) -> bool {
    let times = [
        Some(step.start_ns),
        Some(step.duration_ns),
        step.communication_ns,
        step.compute_ns,
        step.exposed_ns,
        step.idle_ns,
    ];
    step.number < 1 << 62 && times.into_iter().flatten().all(|ns| (0..=MOST_NS).contains(&ns))
}

/// A step on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankStep {
    /// The rank.
    pub rank: u32,
    /// What it said.
    pub report: StepReport,
    /// Whether another node's daemon told of it. Its durations are as good as ours; when it was is known by when it was heard alone.
    pub elsewhere: bool,
    /// How much longer the others' communication took than its own, nanoseconds: so long they waited for it. The median of the
    /// others' minus its own; below 0 where it waited itself. Null where NCCL does not tell, and for a rank alone.
    pub late_ns: Option<i64>,
}

impl From<(u32, StepReport)> for RankStep {
    fn from((rank, report): (u32, StepReport)) -> Self {
        Self {
            rank,
            report,
            ..Self::default()
        }
    }
}

/// A step of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Its number.
    pub number: u64,
    /// When the first rank of this node began it, nanoseconds since 1970; where none did, of the others.
    pub start_ns: i64,
    /// When the last of these ranks ended it.
    pub end_ns: i64,
    /// How long it took on the slowest rank.
    pub step_ns: i64,
    /// The ranks, by their number.
    pub ranks: Vec<RankStep>,
    /// Ranks that had not told of it when it was summed up.
    pub missing: u32,
}

impl Step {
    /// Of what the ranks said.
    #[must_use]
    pub fn of(number: u64, ranks: Vec<impl Into<RankStep>>, missing: u32) -> Self {
        let mut ranks: Vec<RankStep> = ranks.into_iter().map(Into::into).collect();
        let known: Vec<i64> = ranks
            .iter()
            .filter_map(|rank| rank.report.communication_ns)
            .collect();
        let any_here = ranks.iter().any(|rank| !rank.elsewhere);
        let mut step = Self {
            number,
            start_ns: i64::MAX,
            end_ns: i64::MIN,
            missing,
            ..Self::default()
        };
        for rank in &mut ranks {
            let report = &rank.report;
            // Clocks of nodes are not compared.
            if !rank.elsewhere || !any_here {
                step.start_ns = step.start_ns.min(report.start_ns);
                step.end_ns = step
                    .end_ns
                    .max(report.start_ns.saturating_add(report.duration_ns));
            }
            step.step_ns = step.step_ns.max(report.duration_ns);
            rank.late_ns = report.communication_ns.filter(|_| known.len() > 1).map(|own| {
                let mut others = known.clone();
                if let Some(place) = others.iter().position(|other| *other == own) {
                    others.swap_remove(place);
                }
                median(&mut others).saturating_sub(own)
            });
        }
        ranks.sort_by_key(|rank| rank.rank);
        step.ranks = ranks;
        step
    }

    /// The rank that the others waited for the longest, and how long, nanoseconds; null where that is not known of any.
    #[must_use]
    pub fn latest(&self) -> Option<(u32, i64)> {
        let late = self
            .ranks
            .iter()
            .filter_map(|rank| Some((rank.rank, rank.late_ns?)));
        late.max_by_key(|(_, late_ns)| *late_ns)
    }

    /// Exposed communication of the median rank, nanoseconds; null where it is not known of all.
    #[must_use]
    pub fn exposed_ns(&self) -> Option<i64> {
        let mut exposed: Vec<i64> = self
            .ranks
            .iter()
            .map(|rank| rank.report.exposed_ns)
            .collect::<Option<_>>()?;
        (!exposed.is_empty()).then(|| median(&mut exposed))
    }

    /// The share of the step that it takes up.
    #[must_use]
    pub fn exposed_share(&self) -> Option<f64> {
        let exposed_ns = self.exposed_ns()?;
        (self.step_ns > 0).then(|| exposed_ns as f64 / self.step_ns as f64)
    }
}

/// The middle one; of an even number the mean of the two, rounded down. 0 for none.
#[must_use]
pub fn median(values: &mut [i64]) -> i64 {
    let Some(last) = values.len().checked_sub(1) else {
        return 0;
    };
    let (_, upper, _) = values.select_nth_unstable(values.len() / 2);
    let upper = *upper;
    if last % 2 == 0 {
        return upper;
    }
    let (_, lower, _) = values.select_nth_unstable(last / 2);
    lower.midpoint(upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(duration_ns: i64, communication_ns: Option<i64>) -> StepReport {
        StepReport {
            start_ns: 1000,
            duration_ns,
            communication_ns,
            ..StepReport::default()
        }
    }

    #[test]
    fn others_wait_for_who_communicates_least() {
        let reports = vec![
            (0, report(100, Some(40))),
            (1, report(103, Some(10))),
            (2, report(101, Some(42))),
            (3, report(102, Some(41))),
        ];
        let step = Step::of(7, reports, 0);
        assert_eq!((step.step_ns, step.start_ns, step.end_ns), (103, 1000, 1103));
        let late: Vec<_> = step.ranks.iter().map(|rank| rank.late_ns).collect();
        // The others of rank 1 have 40, 41, 42; of rank 0 10, 41, 42.
        assert_eq!(late, [Some(1), Some(31), Some(-2), Some(-1)]);
    }

    #[test]
    fn ranks_of_other_nodes_count_for_durations_and_not_for_when_it_was() {
        let elsewhere = RankStep {
            elsewhere: true,
            ..RankStep::from((
                1,
                StepReport {
                    start_ns: 5,
                    ..report(120, Some(10))
                },
            ))
        };
        let here = RankStep::from((0, report(100, Some(40))));
        let step = Step::of(7, vec![here, elsewhere.clone()], 0);
        assert_eq!((step.step_ns, step.start_ns, step.end_ns), (120, 1000, 1100));
        assert_eq!(step.ranks[1].late_ns, Some(30));
        let alone = Step::of(7, vec![elsewhere], 1);
        assert_eq!((alone.start_ns, alone.end_ns), (5, 125));
    }

    #[test]
    fn what_is_not_known_is_not_0() {
        let alone = Step::of(0, vec![(0, report(5, Some(1)))], 0);
        assert_eq!(alone.ranks[0].late_ns, None);
        let silent = Step::of(0, vec![(0, report(5, None)), (1, report(6, None))], 0);
        assert!(silent.ranks.iter().all(|rank| rank.late_ns.is_none()));
        assert_eq!(silent.exposed_share(), None);
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&mut []), 0);
        assert_eq!(median(&mut [3]), 3);
        assert_eq!(median(&mut [9, 1, 5]), 5);
        assert_eq!(median(&mut [9, 1, 5, 2]), 3);
        assert_eq!(median(&mut [i64::MAX, i64::MAX]), i64::MAX);
    }
}
