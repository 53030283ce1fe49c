//! The daemon's soak: jobs of two users that join and leave, while it and they are killed, suspended, robbed of their files and their
//! disk, and lied to.
//!
//! `tests/daemon_soak MINUTES` runs it; here it is a test of less than a minute. It prints tries and failures by kind, and what
//! the daemon cost. A job fails that was not harmed on purpose and did not end as it does alone, with the same losses, or of whose
//! steps some are neither told of nor counted as missed.

mod cost;
mod daemon;
mod faults;
mod jobs;
mod ledger;
#[path = "../common/random.rs"]
mod random;

use std::time::{Duration, Instant};

use daemon::Daemon;
use faults::KINDS;
use ledger::Ledger;
use random::Random;

/// Jobs at a time.
const JOBS: usize = 6;

fn number(name: &str) -> Option<f64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: expected a number")),
    )
}

#[test]
fn the_daemon_and_its_jobs_live_through_faults() {
    let minutes = number("DAEMON_SOAK_MINUTES");
    let seed = number("DAEMON_SOAK_SEED").unwrap_or(1.0) as u64;
    let last = Duration::from_secs_f64(60.0 * minutes.unwrap_or(0.5));
    let pause = Duration::from_secs_f64(number("DAEMON_SOAK_PAUSE").unwrap_or(1.5));
    let ledger = Ledger::default();
    let place = tempfile::tempdir().expect("a folder");
    let usual = jobs::usual(place.path());
    let daemon = Daemon::new(place.path(), &ledger);
    let cost = cost::measure(&daemon);
    let started = Instant::now();
    let until = started + last;
    std::thread::scope(|scope| {
        for slot in 0..JOBS {
            let (daemon, ledger, usual) = (&daemon, &ledger, &usual);
            scope.spawn(move || {
                let mut random = Random::of(seed, "job", slot as u64);
                // They don't come all at once.
                std::thread::sleep(Duration::from_millis(700 * slot as u64));
                while Instant::now() < until {
                    jobs::run_one(daemon, ledger, usual, slot, &mut random);
                }
            });
        }
        scope.spawn(|| daemon.watch(&ledger, until));
        let mut random = Random::of(seed, "fault", 0);
        let mut turn = 0;
        std::thread::sleep(Duration::from_secs(5));
        while Instant::now() < until {
            // Each in its turn at first, then any.
            let kind = if turn < KINDS.len() {
                &KINDS[turn]
            } else {
                random.one_of(&KINDS)
            };
            turn += 1;
            let begun = Instant::now();
            let tried = (kind.run)(&daemon, &mut random);
            if std::env::var_os("DAEMON_SOAK_TELL").is_some() {
                eprintln!(
                    "{:>8.1} s {:<26} {:.1} s",
                    started.elapsed().as_secs_f64(),
                    kind.name,
                    begun.elapsed().as_secs_f64()
                );
            }
            ledger.count(kind.name, tried);
            let lives = daemon.answers();
            ledger.count("answers after it", lives);
            std::thread::sleep(pause.mul_f64(0.5 + random.below(100) as f64 / 100.0));
        }
    });
    let (cpu, peak_kib, jobs) = daemon.end(&ledger);
    ledger.print(seed, last, cpu, peak_kib, jobs);
    cost.print();
    let failures = ledger.failures();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(peak_kib < 256 << 10, "the daemon had {peak_kib} KiB");
}
