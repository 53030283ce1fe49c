//! When to record: what of the run was asked for, as windows of time.
//!
//! A pure state machine. Steps, ranges, calls of the program's and the recorder's switch go in, each with its moment; out
//! come the phase that the run is in now and the windows that were.

mod detector;
mod filter;
mod gate;
mod held;
mod launched;
mod launches;
mod switch;
#[cfg(test)]
mod tests;
pub(crate) mod watch;

use std::collections::VecDeque;

use gputrace_trace::TimeNs;
use gputrace_trace::options::{CollectorOptions, Schedule};
use gputrace_trace::step_names::StepWord;

pub(crate) use gate::{Decide, Gate, HostRows};
pub(crate) use held::Records;

/// Windows that are remembered, for what is told late of times in them.
const REMEMBERED: usize = 1024;

/// Something that can begin or end a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The recorder's switch.
    Switch(bool),
    /// A step's range has begun.
    Step {
        word: StepWord,
        number: Option<u64>,
        thread: u32,
    },
    /// A step was seen in the pattern of operations.
    DetectedStep,
    /// A range of the asked name has begun.
    RangeBegins,
    /// ... has ended.
    RangeEnds,
    /// cudaProfilerStart or -Stop.
    Profiler(bool),
}

/// What is going on at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// What happens is recorded.
    Active,
    /// Everything is switched on, and what comes is thrown away.
    WarmUp,
    /// Nothing is recorded. `soon`: from the next step on something may be, so that switching off is not worth it.
    Off { soon: bool },
}

/// A time in which something was recorded, or kept warm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: TimeNs,
    /// Not in it any more.
    pub(crate) end: TimeNs,
    pub(crate) is_warm_up: bool,
    /// The first step in it, where steps decide.
    pub(crate) first_step: Option<u64>,
    /// Which of the schedule's repeats.
    pub(crate) repeat: Option<u64>,
}

/// Which step it is, and who says so.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steps {
    current: Option<u64>,
    /// The word, number and thread of the last step's name; `None` where it was detected.
    named: Option<(StepWord, Option<u64>, u32)>,
}

impl Steps {
    /// Whether a range that begins is a new step. Several threads may call the same step by its number, and several
    /// words may be in use: the profiler's comes first, else the first that was seen.
    pub(crate) fn begins(&mut self, word: StepWord, number: Option<u64>, thread: u32) -> bool {
        if let Some((known, last, leader)) = self.named {
            let is_other_word = word != known;
            if is_other_word && (word != StepWord::ProfilerStep || known == StepWord::ProfilerStep) {
                return false;
            }
            let is_ahead = number.zip(last).is_some_and(|(number, last)| number > last);
            if !is_other_word && thread != leader && !is_ahead {
                return false;
            }
            self.named = Some((word, number, thread));
            // The profiler's name for a step that has another one already, around it or in it.
            if is_other_word {
                return self.current.is_none();
            }
        } else {
            self.named = Some((word, number, thread));
        }
        true
    }
}

/// The state machine.
pub(crate) struct Machine {
    schedule: Option<Schedule>,
    only_steps: Option<(u64, u64)>,
    alternate: Option<u64>,
    /// Whether steps decide.
    needs_steps: bool,
    by_range: bool,
    by_profiler: bool,

    switch: bool,
    profiler: bool,
    ranges: u32,
    steps: Steps,
    /// The last moment that is known: time does not run backwards here.
    at: TimeNs,
    phase: Phase,
    open: Option<Window>,
    past: VecDeque<Window>,
    /// How many of the last of `past` were not taken yet.
    fresh: usize,
    /// Whether anything was ever off: until then there is no window to tell of.
    is_partial: bool,
}

impl Machine {
    /// At the beginning of a process's recording.
    pub(crate) fn new(options: &CollectorOptions, at: TimeNs, switch: bool) -> Self {
        let mut machine = Self {
            schedule: options.schedule,
            only_steps: options.steps,
            alternate: options.measure_overhead_steps.map(|steps| steps.max(1)),
            needs_steps: options.needs_steps(),
            by_range: options.range.is_some(),
            by_profiler: options.profiler_calls,
            switch,
            profiler: false,
            ranges: 0,
            steps: Steps::default(),
            at,
            phase: Phase::Off { soon: true },
            open: None,
            past: VecDeque::new(),
            fresh: 0,
            is_partial: options.is_partial(),
        };
        machine.enter();
        machine
    }

    /// Whether steps have names here, so that none need be detected.
    pub(crate) fn has_named_steps(&self) -> bool {
        self.steps.named.is_some()
    }

    /// Whether only parts are recorded.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes in what happened at a moment. What comes late happened, for us, at the last moment that is known.
    pub(crate) fn apply(&mut self, at: TimeNs, event: Event) {
        self.at = self.at.max(at);
        match event {
            Event::Switch(on) => self.switch = on,
            Event::Step { word, number, thread } => {
                // From the first name on nothing is detected any more.
                if self.steps.begins(word, number, thread) {
                    self.next_step();
                }
            }
            Event::DetectedStep => {
                if self.steps.named.is_none() {
                    self.next_step();
                }
            }
            Event::RangeBegins => self.ranges = self.ranges.saturating_add(1),
            Event::RangeEnds => self.ranges = self.ranges.saturating_sub(1),
            Event::Profiler(on) => self.profiler = on,
        }
        self.enter();
    }

    fn next_step(&mut self) {
        self.steps.current = Some(self.steps.current.map_or(0, |step| step.saturating_add(1)));
    }

    /// What steps alone would have, and which repeat it is.
    fn phase_of_step(&self, step: Option<u64>) -> (Phase, Option<u64>) {
        let off = Phase::Off { soon: false };
        let mut repeat = None;
        let mut phase = Phase::Active;
        if let Some(schedule) = self.schedule {
            let Schedule {
                wait, warmup, active, ..
            } = schedule;
            let cycle = wait.saturating_add(warmup).saturating_add(active);
            let Some(step) = step.filter(|_| active > 0) else {
                return (off, None);
            };
            let (round, within) = (step / cycle, step % cycle);
            if schedule.repeat > 0 && round >= schedule.repeat || within < wait {
                return (off, None);
            }
            if within < wait.saturating_add(warmup) {
                phase = Phase::WarmUp;
            } else {
                repeat = Some(round);
            }
        }
        if let Some((first, last)) = self.only_steps
            && !step.is_some_and(|step| (first..=last).contains(&step))
        {
            return (off, None);
        }
        if let (Some(block), Some(step)) = (self.alternate, step)
            && (step / block) % 2 == 1
        {
            return (off, None);
        }
        (phase, repeat)
    }

    fn wanted(&self) -> (Phase, Option<u64>) {
        if !self.switch {
            return (Phase::Off { soon: false }, None);
        }
        let (phase, repeat) = self.phase_of_step(self.steps.current);
        if matches!(phase, Phase::Off { .. }) {
            let next = self.steps.current.map_or(0, |step| step.saturating_add(1));
            let soon = !matches!(self.phase_of_step(Some(next)).0, Phase::Off { .. });
            return (Phase::Off { soon }, None);
        }
        // The thread on which the range or the call comes switches on itself.
        if self.by_range && self.ranges == 0 || self.by_profiler && !self.profiler {
            return (Phase::Off { soon: false }, None);
        }
        (phase, repeat)
    }

    /// Goes over to the phase that is wanted now.
    fn enter(&mut self) {
        let (phase, repeat) = self.wanted();
        let was = (self.phase, self.open.and_then(|open| open.repeat));
        self.phase = phase;
        if was == (phase, repeat) && (self.open.is_some() || matches!(phase, Phase::Off { .. })) {
            return;
        }
        self.close(self.at);
        let is_warm_up = match phase {
            Phase::Active => false,
            Phase::WarmUp => true,
            Phase::Off { .. } => {
                self.is_partial = true;
                return;
            }
        };
        self.open = Some(Window {
            start: self.at,
            end: TimeNs(i64::MAX),
            is_warm_up,
            first_step: self.steps.current.filter(|_| self.needs_steps),
            repeat,
        });
    }

    fn close(&mut self, at: TimeNs) {
        let Some(mut window) = self.open.take() else {
            return;
        };
        window.end = at;
        // One that begins and ends at the same moment never was.
        if window.end > window.start {
            self.past.push_back(window);
            self.fresh += 1;
            if self.past.len() > REMEMBERED {
                self.past.pop_front();
                self.fresh = self.fresh.min(REMEMBERED);
            }
        }
    }

    /// The end of the recording.
    pub(crate) fn end(&mut self, at: TimeNs) {
        self.at = self.at.max(at);
        self.close(self.at);
        self.phase = Phase::Off { soon: false };
    }

    /// The windows that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<Window> {
        let fresh = std::mem::take(&mut self.fresh);
        self.past.iter().skip(self.past.len() - fresh).copied().collect()
    }

    /// The active window that a moment lies in: its number by its place in time (`None` for the one that is open).
    pub(crate) fn window_at(&self, at: TimeNs) -> Option<&Window> {
        if let Some(open) = self.open.as_ref().filter(|open| at >= open.start) {
            return Some(open).filter(|open| !open.is_warm_up);
        }
        let after = self.past.partition_point(|window| window.start <= at);
        let last = self.past.get(after.checked_sub(1)?)?;
        (at < last.end && !last.is_warm_up).then_some(last)
    }
}
