//! Each rule, with noise: what was planted is found, and healthy days are not.

use gputrace_trace::daemon::StepReport;

use super::fired::Fired;
use super::hang::Live;
use super::rules::{Kind, Rules};
use super::watch::Watch;
use crate::history::step::Step;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;

#[path = "../../../tests/common/random.rs"]
mod random;

use random::Random;

/// About normal, between -1 and 1 in most cases.
fn noise(random: &mut Random) -> f64 {
    let sum: f64 = (0..12).map(|_| random.share()).sum();
    (sum - 6.0) / 2.0
}

/// A job of some ranks: what a step of it is like.
struct Model {
    random: Random,
    ranks: u32,
    usual_ns: i64,
    /// Deviation of the step, as a share.
    jitter: f64,
    now_ns: i64,
}

/// What is different about a step.
#[derive(Clone, Copy, Default)]
struct Odd {
    /// So many times as long.
    factor: Option<f64>,
    /// This rank comes so much later than the others.
    late: Option<(u32, i64)>,
    /// Exposed communication, as a share of the step.
    exposed: Option<f64>,
}

impl Model {
    fn new(seed: u64, ranks: u32, usual_ns: i64, jitter: f64) -> Self {
        Self {
            random: Random(seed),
            ranks,
            usual_ns,
            jitter,
            now_ns: SECOND,
        }
    }

    fn step(&mut self, number: u64, odd: Odd) -> Step {
        // The first steps compile and allocate.
        let warm_up = [30.0, 4.0, 1.5];
        let factor = warm_up.get(number as usize).copied().unwrap_or(1.0) * odd.factor.unwrap_or(1.0);
        let own = self.usual_ns as f64 * (1.0 + self.jitter * noise(&mut self.random)).max(0.3) * factor;
        let late_ns = odd.late.map_or(0, |(_, by)| by);
        let step_ns = own as i64 + late_ns;
        let communication_ns = (own * 0.25) as i64;
        let reports = (0..self.ranks).map(|rank| {
            let jitter = (own * 0.01 * noise(&mut self.random)) as i64;
            let is_late = odd.late.is_some_and(|(late, _)| late == rank);
            let report = StepReport {
                number,
                start_ns: self.now_ns,
                duration_ns: step_ns + jitter / 10,
                communication_ns: Some(communication_ns + if is_late { 0 } else { late_ns } + jitter),
                exposed_ns: Some(
                    (step_ns as f64 * (odd.exposed.unwrap_or(0.1) + 0.01 * noise(&mut self.random))) as i64,
                ),
                ..StepReport::default()
            };
            (rank, report)
        });
        let step = Step::of(number, reports.collect(), 0);
        self.now_ns = step.end_ns;
        step
    }
}

/// Steps of a model, with what is odd about each; all that fires.
fn fired(model: &mut Model, steps: std::ops::Range<u64>, odd: impl Fn(u64) -> Odd) -> Vec<Fired> {
    let (mut watch, rules) = (Watch::default(), Rules::default());
    steps
        .flat_map(|number| watch.step(&rules, &model.step(number, odd(number))))
        .collect()
}

#[test]
fn a_day_of_healthy_steps_fires_nothing() {
    // 80 ms a step, a day of them compressed to one in ten; checkpoints each 500 steps, evaluations each 1000.
    for (seed, jitter) in [(1, 0.01), (2, 0.05), (3, 0.2)] {
        let mut model = Model::new(seed, 4, 80 * MS, jitter);
        let found = fired(&mut model, 0..108_000, |number| Odd {
            factor: match number {
                0 => None,
                number if number % 1000 == 0 => Some(60.0),
                number if number % 500 == 0 => Some(25.0 + (number % 7) as f64),
                _ => None,
            },
            ..Odd::default()
        });
        assert_eq!(found, [], "{jitter}");
    }
}

#[test]
fn steps_that_recur_are_learned_wherever_they_are() {
    let mut model = Model::new(5, 2, 80 * MS, 0.03);
    let found = fired(&mut model, 0..20_000, |number| Odd {
        factor: (number % 317 == 45).then_some(12.0),
        ..Odd::default()
    });
    // The first two are not known yet, and the second is within the first's quiet time.
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].trigger, found[0].step), (Kind::SlowStep, Some(45)));
}

#[test]
fn slow_steps_are_caught_within_three() {
    for seed in 0..40u64 {
        let mut model = Model::new(seed, 4, 80 * MS, 0.03);
        let at = 130 + seed * 13 + u64::from(seed % 2 == 0);
        let factor = 1.4 + 0.05 * seed as f64;
        let found = fired(&mut model, 0..at + 300, |number| Odd {
            factor: (number >= at).then_some(factor),
            ..Odd::default()
        });
        assert_eq!(found.len(), 1, "{seed}: {found:?}");
        assert_eq!(found[0].trigger, Kind::SlowStep);
        let step = found[0].step.expect("a step");
        assert!(step >= at && step - at < 3, "{seed}: {step} for {at}");
    }
    for seed in 0..40u64 {
        let mut model = Model::new(seed, 4, 80 * MS, 0.05);
        let at = 105 + seed * 11;
        // At a round number it is taken for a checkpoint: said so in the documents.
        let at = if (at + 1) % 100 <= 2 { at + 5 } else { at };
        let found = fired(&mut model, 0..at + 50, |number| Odd {
            factor: (number == at).then_some(4.0),
            ..Odd::default()
        });
        assert_eq!(
            (found.len(), found.first().and_then(|fired| fired.step)),
            (1, Some(at)),
            "{seed}"
        );
        assert!(found[0].title.contains("times the usual"), "{}", found[0].title);
    }
}

#[test]
fn late_ranks_are_caught_and_named() {
    for seed in 0..40u64 {
        let ranks = [2, 4, 8, 16][seed as usize % 4];
        let rank = (seed % u64::from(ranks)) as u32;
        let mut model = Model::new(seed, ranks, 80 * MS, 0.03);
        let at = 60 + seed * 7;
        let found = fired(&mut model, 0..at + 400, |number| Odd {
            late: (number >= at).then_some((rank, 14 * MS)),
            ..Odd::default()
        });
        let late: Vec<&Fired> = found
            .iter()
            .filter(|fired| fired.trigger == Kind::LateRank)
            .collect();
        assert_eq!(late.len(), 1, "{seed}: {found:?}");
        assert_eq!(late[0].rank, Some(rank), "{seed}");
        let step = late[0].step.expect("a step");
        assert!(
            step >= at && (step - at) as i64 * 94 * MS < 15 * SECOND && step - at < 8,
            "{seed}: {step} for {at}"
        );
        assert!(
            late[0].title.contains(&format!("since step {at}; before: ")),
            "{}",
            late[0].title
        );
    }
}

#[test]
fn lost_overlap_is_caught_within_three_steps() {
    for seed in 0..20u64 {
        let mut model = Model::new(seed, 4, 80 * MS, 0.03);
        let at = 40 + seed * 9;
        let found = fired(&mut model, 0..at + 100, |number| Odd {
            exposed: (number >= at).then_some(0.26),
            ..Odd::default()
        });
        assert_eq!(
            (found.len(), found.first().map(|fired| fired.trigger)),
            (1, Some(Kind::OverlapLost)),
            "{found:?}"
        );
        assert!(found[0].step.is_some_and(|step| step - at < 3), "{seed}");
    }
}

#[test]
fn hangs_are_caught_and_pauses_that_end_are_learned() {
    let rules = Rules::default();
    let steps = (1000, Some(80 * MS));
    for seed in 0..20i64 {
        let mut watch = Watch::default();
        let stops_ns = (100 + seed * 37) * SECOND;
        let mut found = Vec::new();
        for tick in 0..4 * (stops_ns / SECOND + 60) {
            let now_ns = tick * SECOND / 4;
            let progressed_ns = now_ns.min(stops_ns);
            let live = |rank: u32| Live {
                rank,
                progressed_ns,
                last_step: Some(progressed_ns as u64 / 80_000_000 * 100 + 50),
                enqueued: if now_ns > stops_ns && rank == 3 { 500 } else { 501 },
                finished: Some(500),
            };
            let live: Vec<Live> = (0..4).map(live).collect();
            found.extend(watch.look(&rules, &live, steps, now_ns));
        }
        assert_eq!(found.len(), 1, "{seed}");
        let after_ns = found[0].time_ns - stops_ns;
        assert!((12 * SECOND..13 * SECOND).contains(&after_ns), "{after_ns}");
        assert!(
            found[0]
                .title
                .contains("3 collectives are outstanding; rank 3 behind"),
            "{}",
            found[0].title
        );
    }
    // An evaluation of 25 s behind each thousand steps, and once one of 45 s.
    let mut watch = Watch::default();
    let mut found = Vec::new();
    let (mut progressed_ns, mut step) = (0, 0);
    for tick in 0..4 * 3600 {
        let now_ns = tick * SECOND / 4;
        let (round, of_round) = (now_ns / SECOND / 100, now_ns % (100 * SECOND));
        let pause = if round > 30 { 45 } else { 25 };
        if of_round >= pause * SECOND {
            progressed_ns = now_ns;
            step = round * 1000 + (of_round - pause * SECOND) * 999 / ((100 - pause) * SECOND - SECOND / 4);
        }
        let live = Live {
            rank: 0,
            progressed_ns,
            last_step: Some(step as u64),
            enqueued: 1,
            finished: Some(1),
        };
        found.extend(watch.look(&rules, &[live], steps, now_ns));
    }
    assert_eq!(found, []);
    // The first steps compile for half a minute each.
    let mut watch = Watch::default();
    for tick in 0..4 * 90 {
        let live = Live {
            rank: 0,
            progressed_ns: tick / 120 * 30 * SECOND,
            last_step: Some(tick as u64 / 120),
            ..Live::default()
        };
        assert_eq!(
            watch.look(&rules, &[live], (tick as u64 / 120, None), tick * SECOND / 4),
            []
        );
    }
    // A job that has not begun may load its data.
    let idle = Live {
        rank: 0,
        ..Live::default()
    };
    assert_eq!(
        Watch::default().look(&rules, &[idle], (0, None), 9000 * SECOND),
        []
    );
}

#[test]
fn a_process_that_dies_alone_is_told_of_and_a_job_that_ends_is_not() {
    let rules = Rules::default();
    let other = Live {
        rank: 1,
        ..Live::default()
    };
    let mut watch = Watch::default();
    watch.died(3, 100 * SECOND);
    assert_eq!(
        watch.look(&rules, std::slice::from_ref(&other), (9, None), 101 * SECOND),
        []
    );
    let found = watch.look(&rules, &[other], (9, None), 102 * SECOND);
    assert_eq!((found[0].trigger, found[0].rank), (Kind::ProcessDead, Some(3)));
    let mut watch = Watch::default();
    watch.died(3, 100 * SECOND);
    assert_eq!(watch.look(&rules, &[], (9, None), 200 * SECOND), []);
}

#[test]
fn rules_are_quiet_for_as_long_as_they_say_and_can_be_switched_off() {
    let mut rules = Rules::default();
    let mut watch = Watch::default();
    let mut lost = |rules: &Rules, rank, at| {
        watch
            .event(rules, Kind::RowsLost, Some(rank), String::new(), at * SECOND)
            .is_some()
    };
    assert!(lost(&rules, 0, 0));
    assert!(!lost(&rules, 0, 599));
    assert!(lost(&rules, 1, 599), "another rank");
    assert!(lost(&rules, 0, 600));
    rules.rows_lost.enabled = false;
    assert!(!lost(&rules, 0, 9999));
}
