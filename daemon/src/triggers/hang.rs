//! A job in which nothing goes on though its processes live.

use super::rules::Hang as Rule;
use super::slow::is_round;
use crate::clock::duration;

/// A pause that ended by itself makes pauses up to so many times as long usual...
const LEARNED: i64 = 2;
/// ... but none longer than so many times the rule's.
const MOST_LEARNED: i64 = 10;
/// Where a pause is no surprise, because the first steps compile and round ones are followed by checkpoints, it waits so many times as
/// long.
const PATIENT: i64 = 5;
/// First steps.
const WARM_UP: u64 = 3;

/// A process that lives.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Its rank.
    pub rank: u32,
    /// When its steps or finished collectives last grew, nanoseconds since 1970.
    pub progressed_ns: i64,
    /// The last step that it told of.
    pub last_step: Option<u64>,
    /// Collectives that it has enqueued.
    pub enqueued: u64,
    /// Of these how many have ended, where NCCL tells.
    pub finished: Option<u64>,
}

/// What is known of a job's pauses.
#[derive(Debug, Default)]
pub struct Hang {
    progressed_ns: Option<i64>,
    longest_ns: i64,
    has_fired: bool,
}

impl Hang {
    /// Looks at a job's living processes now, and says what is wrong. `steps`: how many there were, and their median.
    pub fn look(
        &mut self,
        rule: &Rule,
        live: &[Live],
        steps: (u64, Option<i64>),
        now_ns: i64,
    ) -> Option<String> {
        let progressed_ns = live.iter().map(|process| process.progressed_ns).max()?;
        if let Some(before_ns) = self.progressed_ns.filter(|before_ns| *before_ns < progressed_ns) {
            self.longest_ns = self.longest_ns.max(progressed_ns - before_ns);
            self.has_fired = false;
        }
        self.progressed_ns = Some(progressed_ns);
        let last_step = live.iter().filter_map(|process| process.last_step).max();
        let has_steps = live.iter().any(|process| process.last_step.is_some());
        let outstanding = |process: &Live| {
            process
                .finished
                .map(|finished| process.enqueued.saturating_sub(finished))
        };
        let waiting = live.iter().filter_map(outstanding).fold(0, u64::saturating_add);
        // A process that has done nothing yet may load its data for an hour.
        if self.has_fired || !has_steps && waiting == 0 {
            return None;
        }
        let after_ns = (rule.after_s * 1e9) as i64;
        let learned_ns = self
            .longest_ns
            .saturating_mul(LEARNED)
            .min(after_ns.saturating_mul(MOST_LEARNED));
        let by_steps_ns = (steps.1.unwrap_or(0) as f64 * rule.after_steps) as i64;
        let silent_ns = now_ns.saturating_sub(progressed_ns);
        let is_usual = steps.0 < WARM_UP || last_step.is_some_and(is_round);
        let patient_ns = if is_usual {
            after_ns.saturating_mul(PATIENT)
        } else {
            0
        };
        if silent_ns < after_ns.max(by_steps_ns).max(learned_ns).max(patient_ns) {
            return None;
        }
        self.has_fired = true;
        let mut title = format!("nothing has gone on for {}", duration(silent_ns));
        if waiting > 0 {
            title.push_str(&format!(", {waiting} collectives are outstanding"));
        }
        // Whoever has enqueued least, or has come least far, is what the others wait for.
        let at = |process: &Live| (process.last_step, process.enqueued);
        let most = live.iter().map(at).max();
        let behind: Vec<String> = live
            .iter()
            .filter(|process| Some(at(process)) < most)
            .map(|process| process.rank.to_string())
            .collect();
        if !behind.is_empty() && behind.len() * 2 <= live.len() {
            let ranks = if behind.len() == 1 { "rank" } else { "ranks" };
            title.push_str(&format!("; {ranks} {} behind the others", behind.join(", ")));
        }
        if let Some(step) = last_step {
            title.push_str(&format!("; the last step was {step}"));
        }
        Some(title)
    }
}
