//! What each rule is for, planted twenty times: caught in time, and with the steps before it in what was kept.
//!
//!     cargo test --release -p gputrace-daemon --test daemon planted -- --nocapture
//!
//! prints the table. Jobs are of two ranks with ten steps a second, of which each rank writes a row; the daemon is a real one, with
//! its usual rules.

use std::time::{Duration, Instant};

use gputrace_daemon::devices::{Seen, Xid};
use gputrace_trace::daemon::{Ask, StepReport};
use gputrace_trace::{Recording, now};

use crate::fake::{Fake, Running};

const MS: i64 = 1_000_000;
/// Tries of each kind.
const TRIES: u32 = 20;
/// Healthy steps before what is planted.
const BEFORE: u64 = 30;
/// Between two steps.
const STEP: Duration = Duration::from_millis(100);
/// In time.
const SECONDS: f64 = 15.0;
const STEPS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Hang,
    SlowSteps,
    OneSlowStep,
    LateRank,
    OverlapLost,
    ProcessDead,
    Xid,
    Throttling,
    RowsLost,
}

const ALL: [(What, &str); 9] = [
    (What::Hang, "hang"),
    (What::SlowSteps, "slow-step"),
    (What::OneSlowStep, "slow-step"),
    (What::LateRank, "late-rank"),
    (What::OverlapLost, "overlap-lost"),
    (What::ProcessDead, "process-dead"),
    (What::Xid, "xid"),
    (What::Throttling, "throttling"),
    (What::RowsLost, "rows-lost"),
];

/// What came of a try.
struct Caught {
    seconds: f64,
    steps: u64,
    /// Steps of each rank before it, in what was kept.
    before: usize,
    /// Of what else was fired.
    others: usize,
    /// The longest that this machine held the job up by itself, seconds: such pauses are learned.
    held_up: f64,
}

impl Caught {
    fn is_in_time(&self, what: What) -> bool {
        let is_soon = self.seconds <= SECONDS.max(2.0 * self.held_up + 3.0) + self.held_up;
        // Of a hang there are no steps.
        is_soon || what != What::Hang && self.steps <= STEPS
    }
}

/// A step as it is in health or not.
fn report(number: u64, rank: u32, what: Option<What>, try_number: u32) -> StepReport {
    // No two steps are alike.
    let noise = ((number * 7 + u64::from(rank) * 3 + u64::from(try_number)) % 11) as i64 * MS / 20;
    let (mut step_ns, mut communication_ns, mut exposed_ns) =
        (100 * MS + noise, 20 * MS + noise / 2, 10 * MS);
    match what {
        Some(What::SlowSteps) => step_ns += step_ns * 45 / 100,
        Some(What::OneSlowStep) => step_ns *= 4,
        // Rank 0 waits for rank 1.
        Some(What::LateRank) => {
            step_ns += 15 * MS;
            communication_ns += if rank == 0 { 15 * MS } else { 0 };
        }
        Some(What::OverlapLost) => exposed_ns += 15 * MS,
        _ => {}
    }
    StepReport {
        number,
        start_ns: now().0 - step_ns,
        duration_ns: step_ns,
        communication_ns: Some(communication_ns),
        exposed_ns: Some(exposed_ns),
        ..StepReport::default()
    }
}

fn try_one(daemon: &Running, what: What, word: &str, number: u32, kind: u32) -> Result<Caught, String> {
    let device = kind * 100 + number;
    let group = format!("slurm-{}", 10_000 + device);
    let mut ranks: Vec<Fake> = (0..2)
        .map(|rank| {
            let name = format!("node7-{}-5", 2 * device + rank + 1);
            let mut fake = Fake::new(&daemon.socket, &name, &group, rank);
            fake.totals.devices = vec![device];
            fake
        })
        .collect();
    let mut step = 0;
    let mut planted = None;
    let (mut others, mut held_up, mut last) = (0, 0.0f64, Instant::now());
    // At a round step it would be taken for a checkpoint, which the documents say.
    let at = BEFORE + u64::from(number) * 2;
    let until = Instant::now() + Duration::from_secs(90);
    while Instant::now() < until {
        let begun = Instant::now();
        held_up = held_up.max(begun.duration_since(last).as_secs_f64());
        last = begun;
        let is_planted = step >= at;
        let is_it = is_planted && (what != What::OneSlowStep || step == at);
        if step == at && planted.is_none() {
            planted = Some((Instant::now(), now().0));
            match what {
                What::ProcessDead => drop(ranks.pop()),
                What::RowsLost => ranks[0].totals.lost_rows = 7,
                What::Xid => daemon.tell(Seen {
                    device,
                    xid: Some(Xid(Some(79))),
                    ..Seen::default()
                }),
                _ => {}
            }
        }
        if is_planted && what == What::Throttling {
            daemon.tell(Seen {
                device,
                throttled: Some("heat".to_owned()),
                ..Seen::default()
            });
        }
        for (rank, fake) in ranks.iter_mut().enumerate() {
            if !(is_planted && what == What::Hang) {
                fake.write_row();
                fake.totals.enqueued += 4;
                fake.totals.finished = Some(fake.totals.enqueued);
                fake.report(vec![report(step, rank as u32, is_it.then_some(what), number)]);
            }
            fake.obey(Duration::from_millis(1));
        }
        step += 1;
        if let Some((planted, planted_ns)) = planted {
            // The daemon need not be asked more often than it looks.
            if step % 2 == 0 {
                let fired = daemon.ask(Ask::Triggers {
                    job: Some(group.clone()),
                })?["fired"]
                    .clone();
                let fired = fired.as_array().cloned().unwrap_or_default();
                others = fired.iter().filter(|fired| fired["trigger"] != word).count();
                let it = fired.iter().find(|fired| fired["trigger"] == word);
                if let Some(it) = it.filter(|it| it["recording"].is_string()) {
                    let time_ns = it["time_ns"].as_i64().ok_or("no time")?;
                    let name = it["recording"].as_str().unwrap_or_default();
                    let path = daemon.state().join("captures").join(name);
                    let kept = Recording::open(&path).map_err(|error| format!("{name}: {error}"))?;
                    let before = kept.processes.iter().map(|process| {
                        let starts = &process.tables.markers.start_ns;
                        starts.iter().filter(|start| start.0 < planted_ns).count()
                    });
                    return Ok(Caught {
                        seconds: (time_ns - planted_ns) as f64 / 1e9,
                        steps: it["step"]
                            .as_u64()
                            .map_or(u64::MAX, |step| step.saturating_sub(at) + 1),
                        before: before.min().unwrap_or(0),
                        others,
                        held_up,
                    });
                }
            }
            if planted.elapsed() > Duration::from_secs(40) {
                break;
            }
        } else if step % 10 == 0 {
            let fired = daemon.ask(Ask::Triggers {
                job: Some(group.clone()),
            })?["fired"]
                .clone();
            if fired.as_array().is_some_and(|fired| !fired.is_empty()) {
                return Err(format!("in health: {fired}"));
            }
        }
        std::thread::sleep(STEP.saturating_sub(begun.elapsed()));
    }
    Err(format!("not caught; {others} others fired"))
}

#[test]
fn what_is_planted_is_caught_in_time_with_the_steps_before_it() {
    let daemon = Running::new("[keep]\nfree_mib = 0\n");
    let tried: Vec<Vec<Result<Caught, String>>> = std::thread::scope(|scope| {
        let kinds: Vec<_> = (0u32..)
            .zip(ALL)
            .map(|(kind, (what, word))| {
                let tries: Vec<_> = (0..TRIES)
                    .map(|number| {
                        let daemon = &daemon;
                        scope.spawn(move || {
                            // Not all at the same moment, as no jobs do.
                            std::thread::sleep(Duration::from_millis(u64::from(number * 137 + kind * 411)));
                            try_one(daemon, what, word, number, kind)
                        })
                    })
                    .collect();
                tries
            })
            .collect();
        kinds
            .into_iter()
            .map(|tries| {
                tries
                    .into_iter()
                    .map(|one| one.join().expect("no panic"))
                    .collect()
            })
            .collect()
    });
    eprintln!(
        "{:<14} {:>6} {:>7} {:>12} {:>12} {:>12}  beside it",
        "planted", "tries", "caught", "seconds", "steps", "steps kept"
    );
    let mut wrong = Vec::new();
    for ((what, _), tries) in ALL.iter().zip(&tried) {
        let caught: Vec<&Caught> = tries.iter().filter_map(|one| one.as_ref().ok()).collect();
        let count = caught.iter().filter(|one| one.is_in_time(*what)).count();
        let held_up = caught.iter().map(|one| one.held_up).fold(0.0, f64::max);
        let most_s = caught.iter().map(|one| one.seconds).fold(0.0, f64::max);
        let least_s = caught.iter().map(|one| one.seconds).fold(f64::MAX, f64::min);
        let steps = caught
            .iter()
            .map(|one| one.steps)
            .filter(|steps| *steps < u64::MAX)
            .max();
        let before = caught.iter().map(|one| one.before).min().unwrap_or(0);
        let others: usize = caught.iter().map(|one| one.others).sum();
        eprintln!(
            "{:<14} {:>6} {count:>7} {:>12} {:>12} {before:>12}  {others} others; the machine held one up by {held_up:.1} s",
            format!("{what:?}"),
            tries.len(),
            format!("{least_s:.1}-{most_s:.1}"),
            steps.map_or("-".to_owned(), |steps| format!("{steps} at most")),
        );
        wrong.extend(
            tries
                .iter()
                .filter_map(|one| one.as_ref().err())
                .map(|why| format!("{what:?}: {why}")),
        );
        if count < tries.len() {
            wrong.push(format!("{what:?}: {count} of {} in time", tries.len()));
        }
        if before < BEFORE as usize {
            wrong.push(format!(
                "{what:?}: {before} of {BEFORE} steps before it were kept"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
