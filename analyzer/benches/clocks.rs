//! Estimated clocks against true ones: 99 % intervals that cover in 99 % of moments, in every setting, and what it costs.
//!
//! `cargo bench -p gputrace-analyzer --bench clocks`. How many seeds, only settings whose names have a text in them, and the first
//! seed: `-- 5 wander 1000`. An empty text is for all; `-- 200 gap` prints what docs/clocks.md says is not covered.

#[path = "../tests/support/clock_world.rs"]
mod clock_world;

use std::time::Instant;

use clock_world::{Outcome, PLAIN, World, gaps, settings};
use gputrace_analyzer::clocks::estimate;

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let seeds = words.first().and_then(|word| word.parse().ok()).unwrap_or(20);
    let wanted = words.get(1).map_or("", String::as_str);
    let first: u64 = words.get(2).and_then(|word| word.parse().ok()).unwrap_or(0);
    println!(
        "{:26} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "setting",
        "moments",
        "covered",
        "bounded",
        "error p50",
        "rms",
        "p99",
        "half p50",
        "half/rms",
        "half/p99"
    );
    let mut worst: f64 = 1.0;
    let mut all_bounded = true;
    // Gaps are no part of the worst coverage, unless they are asked for.
    let all = match wanted.starts_with("gap") {
        true => gaps().to_vec(),
        false => settings(),
    };
    for (name, world) in all {
        if !name.contains(wanted) {
            continue;
        }
        let outcome = world.judge(first..first + seeds);
        worst = worst.min(outcome.coverage());
        all_bounded &= outcome.is_always_bounded();
        let us = |ns: f64| format!("{:.2}", ns / 1e3);
        let half = Outcome::quantile(&outcome.widths, 0.5);
        let p99 = Outcome::quantile(&outcome.errors, 0.99);
        println!(
            "{name:26} {:8} {:7.2}% {:>8} {:>9} {:>9} {:>9} {:>9} {:9.1} {:9.1}",
            outcome.moments,
            100.0 * outcome.coverage(),
            if outcome.is_always_bounded() {
                "always"
            } else {
                "NOT"
            },
            us(Outcome::quantile(&outcome.errors, 0.5)),
            us(outcome.deviation()),
            us(p99),
            us(half),
            half / outcome.deviation(),
            half / p99,
        );
    }
    println!(
        "worst coverage {:.2} %, bounds {}",
        100.0 * worst,
        if all_bounded { "always" } else { "NOT always" }
    );
    if wanted.is_empty() {
        for hosts in [125, 1000] {
            let world = World {
                hosts,
                ranks: 1000 / hosts,
                collectives: 10_000,
                wander_us: 3.0,
                ..PLAIN
            };
            let (meetings, judge) = world.meet(1);
            let (begun, cpu_s) = (Instant::now(), cpu_s());
            let estimated = estimate(hosts, &meetings);
            let (took, cpu_s) = (begun.elapsed().as_secs_f64(), self::cpu_s() - cpu_s);
            let mut outcome = Outcome::default();
            judge(&estimated, &mut outcome);
            println!(
                "1,000 ranks on {hosts} hosts x 10,000 collectives: {took:.2} s, CPU time {cpu_s:.2} s, covered {:.2} %",
                100.0 * outcome.coverage()
            );
        }
    }
}

/// CPU time of this process, seconds.
fn cpu_s() -> f64 {
    let ns = gputrace_trace::time::process_cpu_ns(std::process::id());
    ns.map_or(f64::NAN, |ns| ns as f64 / 1e9)
}
