//! What each step took, told while the program runs.
//!
//! A step is from the moment that the host begins it to the moment that it begins the next. What a device does is counted by its own
//! time: a host that runs ahead by a step shows what the device did meanwhile, which over some steps is the same.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gputrace_trace::TimeNs;
use gputrace_trace::daemon::StepReport;
use gputrace_trace::step_names::StepWord;

use super::union::{covered, only_first};
use crate::windows::Steps;

/// Intervals that wait to be summed, at the most: beyond them a step's sums are not known.
const MOST_INTERVALS: usize = 1 << 18;
/// Steps that wait to be told, at the most.
const MOST_STEPS: usize = 4096;
/// How long after a step's end what happened in it may become known: NCCL's notice, and CUPTI's flushes.
const NOTICE: Duration = Duration::from_millis(250);
const FLUSHES: Duration = Duration::from_millis(900);

/// What took time on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// NCCL, as it says itself.
    Nccl,
    /// A kernel of NCCL's.
    NcclKernel,
    /// Another kernel.
    Kernel,
    /// A copy or memset.
    Other,
}

/// Something with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) what: What,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
}

/// A step that has ended.
struct Ended {
    number: u64,
    start_ns: i64,
    end_ns: i64,
    at: Instant,
}

/// The steps of this process.
pub(crate) struct Live {
    steps: Steps,
    /// The step that goes on: its number and start.
    current: Option<(u64, i64)>,
    ended: VecDeque<Ended>,
    intervals: Vec<Timed>,
    /// From when on not all intervals were kept.
    is_over: bool,
    /// Since when kernels are recorded without a gap, if they are.
    kernels_since: Option<i64>,
    /// Until when they were, before that.
    kernels: VecDeque<(i64, i64)>,
    /// Whether NCCL tells when its kernels run.
    has_notice: bool,
    /// Steps that have begun.
    begun: u64,
    /// Steps that could not be told.
    lost: u64,
    /// Those, and the ones before anybody listened.
    untold: u64,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self {
            steps: Steps::default(),
            current: None,
            ended: VecDeque::new(),
            intervals: Vec::new(),
            is_over: false,
            kernels_since: None,
            kernels: VecDeque::new(),
            has_notice: false,
            begun: 0,
            lost: 0,
            untold: 0,
        }
    }

    /// A range that names a step has begun.
    pub(crate) fn step(&mut self, at: TimeNs, word: StepWord, number: Option<u64>, thread: u32) {
        if !self.steps.begins(word, number, thread) {
            return;
        }
        let next = number.unwrap_or_else(|| self.current.map_or(0, |(number, _)| number + 1));
        self.begun += 1;
        if let Some((number, start_ns)) = self.current.replace((next, at.0))
            && at.0 > start_ns
        {
            if self.ended.len() >= MOST_STEPS {
                self.ended.pop_front();
                self.lost += 1;
                self.untold += 1;
            }
            self.ended.push_back(Ended {
                number,
                start_ns,
                end_ns: at.0,
                at: Instant::now(),
            });
        }
    }

    /// How many steps have begun, and when the last did.
    pub(crate) fn begun(&self) -> (u64, Option<i64>) {
        (self.begun, self.current.map(|(_, start_ns)| start_ns))
    }

    /// Something ran on the device.
    pub(crate) fn ran(&mut self, timed: Timed) {
        self.has_notice |= timed.what == What::Nccl;
        if self.current.is_none() {
            return;
        }
        if self.intervals.len() < MOST_INTERVALS {
            self.intervals.push(timed);
        } else {
            self.is_over = true;
        }
    }

    /// Kernels are recorded from now on, or no longer.
    pub(crate) fn record_kernels(&mut self, on: bool, at_ns: i64) {
        if on {
            self.kernels_since.get_or_insert(at_ns);
        } else if let Some(since) = self.kernels_since.take() {
            self.kernels.push_back((since, at_ns));
            if self.kernels.len() > 16 {
                self.kernels.pop_front();
            }
        }
    }

    fn has_kernels(&self, step: &Ended) -> bool {
        self.kernels_since.is_some_and(|since| since <= step.start_ns)
            || self
                .kernels
                .iter()
                .any(|(from, to)| *from <= step.start_ns && step.end_ns <= *to)
    }

    /// The steps of which all is known by now; at the end `all` that have ended.
    pub(crate) fn take(&mut self, all: bool) -> Vec<StepReport> {
        let mut reports = Vec::new();
        while let Some(step) = self.ended.front() {
            let has_kernels = self.has_kernels(step);
            if !all && step.at.elapsed() < if has_kernels { FLUSHES } else { NOTICE } {
                break;
            }
            let Some(step) = self.ended.pop_front() else { break };
            let report = self.report(&step, has_kernels && !self.is_over);
            reports.push(report);
            self.intervals.retain(|timed| timed.end_ns > step.end_ns);
            if self.intervals.len() < MOST_INTERVALS / 2 {
                self.is_over = false;
            }
        }
        if self.current.is_none() {
            self.intervals.clear();
        }
        reports
    }

    /// Forgets the steps that were over before anybody wanted to know of them.
    pub(crate) fn forget(&mut self) {
        self.untold += self.ended.len() as u64;
        self.ended.clear();
        self.lost = 0;
    }

    /// Steps that nobody was told of and nobody will be.
    pub(crate) fn untold(&self) -> u64 {
        self.untold
    }

    /// Steps that could not be told.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    fn report(&self, step: &Ended, has_kernels: bool) -> StepReport {
        let (from, to) = (step.start_ns, step.end_ns);
        let of = |wanted: &[What]| -> Vec<(i64, i64)> {
            let wanted = self.intervals.iter().filter(|timed| wanted.contains(&timed.what));
            wanted.map(|timed| (timed.start_ns, timed.end_ns)).collect()
        };
        let mut report = StepReport {
            number: step.number,
            start_ns: from,
            duration_ns: to - from,
            ..StepReport::default()
        };
        if has_kernels {
            let (mut nccl, mut kernels) = (of(&[What::NcclKernel]), of(&[What::Kernel]));
            report.communication_ns = Some(covered(&mut nccl, from, to));
            report.compute_ns = Some(covered(&mut kernels, from, to));
            report.exposed_ns = Some(only_first(&mut nccl, &mut kernels, from, to));
            let mut all = of(&[What::NcclKernel, What::Kernel, What::Other]);
            report.idle_ns = Some(to - from - covered(&mut all, from, to));
        } else if self.has_notice && !self.is_over {
            report.communication_ns = Some(covered(&mut of(&[What::Nccl]), from, to));
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(live: &mut Live, at: i64, number: u64) {
        live.step(TimeNs(at), StepWord::Step, Some(number), 1);
    }

    fn age(live: &mut Live) {
        for step in &mut live.ended {
            step.at -= Duration::from_secs(5);
        }
    }

    #[test]
    fn steps_by_hand() {
        let mut live = Live::new();
        let ran = |live: &mut Live, what, start_ns, end_ns| {
            live.ran(Timed {
                what,
                start_ns,
                end_ns,
            });
        };
        step(&mut live, 100, 7);
        ran(&mut live, What::Nccl, 110, 130);
        ran(&mut live, What::Nccl, 120, 140);
        step(&mut live, 200, 8);
        assert!(live.take(false).is_empty(), "not all is known yet");
        live.record_kernels(true, 150);
        ran(&mut live, What::Kernel, 190, 250);
        ran(&mut live, What::NcclKernel, 240, 280);
        ran(&mut live, What::Other, 285, 290);
        step(&mut live, 300, 9);
        age(&mut live);
        let reports = live.take(false);
        let expected = [
            StepReport {
                number: 7,
                start_ns: 100,
                duration_ns: 100,
                communication_ns: Some(30),
                ..StepReport::default()
            },
            StepReport {
                number: 8,
                start_ns: 200,
                duration_ns: 100,
                communication_ns: Some(40),
                compute_ns: Some(50),
                exposed_ns: Some(30),
                idle_ns: Some(15),
            },
        ];
        assert_eq!(reports, expected);
        assert_eq!(live.begun(), (3, Some(300)));
    }

    #[test]
    fn steps_before_anybody_listens_are_no_losses() {
        let mut live = Live::new();
        for number in 0..MOST_STEPS as u64 + 10 {
            step(&mut live, number as i64 * 100, number);
        }
        assert!(live.lost() > 0);
        live.forget();
        assert_eq!((live.lost(), live.take(true).len()), (0, 0));
        assert_eq!(live.untold(), MOST_STEPS as u64 + 9);
    }

    #[test]
    fn what_is_too_much_is_not_known_and_comes_right_again() {
        let mut live = Live::new();
        live.record_kernels(true, 0);
        step(&mut live, 0, 0);
        for _ in 0..=MOST_INTERVALS {
            live.ran(Timed {
                what: What::Kernel,
                start_ns: 1,
                end_ns: 2,
            });
        }
        step(&mut live, 10, 1);
        step(&mut live, 20, 2);
        age(&mut live);
        let reports = live.take(false);
        assert_eq!(
            reports.iter().map(|step| step.compute_ns).collect::<Vec<_>>(),
            [None, Some(0)]
        );
        assert!(live.intervals.is_empty());
    }
}
