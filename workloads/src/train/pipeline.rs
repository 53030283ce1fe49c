//! Pipeline schedules: in which order a stage takes the microbatches of a step, and what it sends and receives between.

use clap::ValueEnum;

/// A way to order forward and backward passes.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Schedule {
    /// All forward passes, then all backward passes
    Gpipe,
    /// One forward, one backward: each stage holds few microbatches at once
    #[default]
    #[value(name = "1f1b")]
    OneForwardOneBackward,
}

/// One thing that a stage does. Numbers are microbatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Forward(usize),
    Backward(usize),
    /// Sends and receives that go together, so that neighbours that send to each other don't block each other.
    Exchange {
        send_output: Option<usize>,
        receive_delta: Option<usize>,
        send_delta: Option<usize>,
        receive_input: Option<usize>,
    },
}

const NOTHING: Action = Action::Exchange {
    send_output: None,
    receive_delta: None,
    send_delta: None,
    receive_input: None,
};

/// How many microbatches a stage holds at once.
pub(crate) fn slots(schedule: Schedule, stage: usize, stages: usize, microbatches: usize) -> usize {
    match schedule {
        Schedule::Gpipe => microbatches,
        Schedule::OneForwardOneBackward => (stages - stage).min(microbatches),
    }
}

/// What stage `stage` of `stages` does in a step of so many microbatches.
pub(crate) fn actions(schedule: Schedule, stage: usize, stages: usize, microbatches: usize) -> Vec<Action> {
    let (first, last) = (stage == 0, stage + 1 == stages);
    let mut all = Vec::new();
    // An exchange between first and last stage loses what has no neighbour there.
    let exchange = |all: &mut Vec<Action>,
                    output: Option<usize>,
                    delta_in: Option<usize>,
                    delta_out: Option<usize>,
                    input: Option<usize>| {
        let action = Action::Exchange {
            send_output: output.filter(|_| !last),
            receive_delta: delta_in.filter(|_| !last),
            send_delta: delta_out.filter(|_| !first),
            receive_input: input.filter(|_| !first),
        };
        if action != NOTHING {
            all.push(action);
        }
    };
    let warm_up = match schedule {
        Schedule::Gpipe => microbatches,
        Schedule::OneForwardOneBackward => (stages - 1 - stage).min(microbatches),
    };
    for microbatch in 0..warm_up {
        exchange(&mut all, None, None, None, Some(microbatch));
        all.push(Action::Forward(microbatch));
        exchange(&mut all, Some(microbatch), None, None, None);
    }
    let steady = microbatches - warm_up;
    if steady > 0 {
        exchange(&mut all, None, None, None, Some(warm_up));
    }
    for microbatch in 0..steady {
        all.push(Action::Forward(warm_up + microbatch));
        exchange(&mut all, Some(warm_up + microbatch), Some(microbatch), None, None);
        all.push(Action::Backward(microbatch));
        let next = (microbatch + 1 < steady).then_some(warm_up + microbatch + 1);
        exchange(&mut all, None, None, Some(microbatch), next);
    }
    for microbatch in steady..microbatches {
        exchange(&mut all, None, Some(microbatch), None, None);
        all.push(Action::Backward(microbatch));
        exchange(&mut all, None, None, Some(microbatch), None);
    }
    all
}

/// The share of a step in which a stage has nothing to compute, if all stages take equally long: (p-1)/(m+p-1).
pub(crate) fn bubble(stages: usize, microbatches: usize) -> f64 {
    (stages - 1) as f64 / (microbatches + stages - 1) as f64
}

/// Divides units of these weights into `stages` runs of neighbours so that the heaviest is as light as it can be.
/// Gives where each begins, and the end. There are at least as many units as stages.
pub(crate) fn balance(weights: &[f64], stages: usize) -> Vec<usize> {
    let units = weights.len();
    let mut sums = vec![0.0];
    for weight in weights {
        sums.push(sums[sums.len() - 1] + weight);
    }
    // least[s][u]: the heaviest of s stages over the first u units, at best; cut[s][u]: where the last begins then.
    let mut least = vec![vec![f64::INFINITY; units + 1]; stages + 1];
    let mut cut = vec![vec![0; units + 1]; stages + 1];
    least[0][0] = 0.0;
    for stage in 1..=stages {
        for end in stage..=units {
            for start in stage - 1..end {
                let heaviest = least[stage - 1][start].max(sums[end] - sums[start]);
                if heaviest < least[stage][end] {
                    (least[stage][end], cut[stage][end]) = (heaviest, start);
                }
            }
        }
    }
    let mut bounds = vec![units];
    for stage in (1..=stages).rev() {
        bounds.push(cut[stage][bounds[bounds.len() - 1]]);
    }
    bounds.reverse();
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs all stages' actions against each other, each exchange only when both sides are there; gives the time in units of one pass (forward and
    /// backward alike) and the most microbatches that a stage held.
    fn simulate(schedule: Schedule, stages: usize, microbatches: usize) -> (usize, Vec<usize>) {
        let plans: Vec<Vec<Action>> = (0..stages)
            .map(|stage| actions(schedule, stage, stages, microbatches))
            .collect();
        let mut next = vec![0; stages];
        let mut clock = vec![0usize; stages];
        let (mut held, mut most) = (vec![0usize; stages], vec![0usize; stages]);
        // When each message was sent: outputs and deltas by sending stage and microbatch.
        let mut sent = std::collections::BTreeMap::new();
        let mut done = 0;
        while done < plans.iter().map(Vec::len).sum::<usize>() {
            let before = done;
            for stage in 0..stages {
                while let Some(action) = plans[stage].get(next[stage]) {
                    match *action {
                        Action::Forward(_) => {
                            clock[stage] += 1;
                            held[stage] += 1;
                            most[stage] = most[stage].max(held[stage]);
                        }
                        Action::Backward(_) => {
                            clock[stage] += 1;
                            held[stage] -= 1;
                        }
                        Action::Exchange {
                            send_output,
                            receive_delta,
                            send_delta,
                            receive_input,
                        } => {
                            // Sends are buffered, as small ones are; receives wait.
                            for (what, microbatch) in [("output", send_output), ("delta", send_delta)] {
                                if let Some(microbatch) = microbatch {
                                    sent.entry((what, stage, microbatch)).or_insert(clock[stage]);
                                }
                            }
                            let wanted = [
                                receive_delta.map(|microbatch| ("delta", stage + 1, microbatch)),
                                receive_input.map(|microbatch| ("output", stage.wrapping_sub(1), microbatch)),
                            ];
                            if wanted.iter().flatten().any(|key| !sent.contains_key(key)) {
                                break;
                            }
                            for key in wanted.iter().flatten() {
                                clock[stage] = clock[stage].max(sent[key]);
                            }
                        }
                    }
                    next[stage] += 1;
                    done += 1;
                }
            }
            assert!(done > before, "{schedule:?} {stages} {microbatches}: deadlock");
        }
        (clock.into_iter().max().unwrap_or(0), most)
    }

    #[test]
    fn both_schedules_take_as_long_as_the_formula_says() {
        for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
            for stages in 1..6 {
                for microbatches in 1..9 {
                    let (time, most) = simulate(schedule, stages, microbatches);
                    assert_eq!(
                        time,
                        2 * (microbatches + stages - 1),
                        "{schedule:?} {stages} {microbatches}"
                    );
                    for (stage, held) in most.into_iter().enumerate() {
                        assert_eq!(held, slots(schedule, stage, stages, microbatches));
                    }
                }
            }
        }
    }

    #[test]
    fn the_bubble_by_hand() {
        // Four stages, four microbatches: 7 slots, of which 3 are idle.
        assert!((bubble(4, 4) - 3.0 / 7.0).abs() < 1e-12);
        assert!(bubble(1, 8).abs() < 1e-12);
    }

    #[test]
    fn stages_are_as_even_as_can_be() {
        assert_eq!(balance(&[1.0; 8], 4), [0, 2, 4, 6, 8]);
        assert_eq!(balance(&[1.0; 7], 3).len(), 4);
        // The heavy first unit is alone.
        assert_eq!(balance(&[10.0, 1.0, 1.0, 1.0, 1.0], 2), [0, 1, 5]);
        assert_eq!(balance(&[1.0, 1.0, 1.0, 9.0], 2), [0, 3, 4]);
        assert_eq!(balance(&[3.0, 1.0], 2), [0, 1, 2]);
    }
}
