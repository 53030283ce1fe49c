//! Steps of programs that do not name them, noticed as they go: a training loop launches the same kernels again and again.
//!
//! The definition is the analyzer's ([`gputrace_trace::step_detection`]). Here what repeats is looked for in what has come so far,
//! and once found, each of its kernels is a step.

use gputrace_trace::TimeNs;
use gputrace_trace::step_detection::{Anchor, LEAST_OPERATIONS, Ran, find};

/// Kernels of the first look.
const FIRST_LOOK: usize = 4 * LEAST_OPERATIONS;
/// Kernels that are kept for looking: a step of more than a third of them is not found.
const MOST_KEPT: usize = 1 << 16;
/// After so many periods without the kernel that begins a step, the program does something else: the search begins anew.
const PATIENCE: usize = 8;

/// A kernel as it is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) stream: u32,
    /// Any number that is the same for the same name.
    pub(super) name: u64,
    pub(super) start: TimeNs,
    pub(super) end: TimeNs,
    pub(super) correlation: u32,
}

impl Seen {
    fn ran(&self) -> Ran<u64> {
        Ran {
            stream: self.stream,
            name: self.name,
            start: self.start,
            end: self.end,
        }
    }
}

/// Looks for steps.
#[derive(Default)]
pub(super) struct Detector {
    seen: Vec<Seen>,
    next_look: usize,
    anchor: Option<Anchor<u64>>,
    /// Kernels of the anchor's stream since its last.
    since: usize,
    /// The highest correlation id of a kernel that came.
    pub(super) horizon: u32,
}

impl Detector {
    /// Whether a pattern is known.
    pub(super) fn has_pattern(&self) -> bool {
        self.anchor.is_some()
    }

    /// Takes in kernels in the order of their starts. Gives those that begin a step.
    pub(super) fn take(&mut self, kernels: &[Seen]) -> Vec<Seen> {
        let mut begins = Vec::new();
        for kernel in kernels {
            self.horizon = self.horizon.max(kernel.correlation);
            match self.anchor {
                Some(anchor) if anchor.stream == kernel.stream => {
                    self.since += 1;
                    if anchor.name == kernel.name {
                        self.since = 0;
                        begins.push(*kernel);
                    } else if self.since > PATIENCE * anchor.period {
                        self.anchor = None;
                        self.next_look = FIRST_LOOK;
                    }
                }
                Some(_) => {}
                None => self.look_with(*kernel, &mut begins),
            }
        }
        begins
    }

    fn look_with(&mut self, kernel: Seen, begins: &mut Vec<Seen>) {
        self.seen.push(kernel);
        if self.seen.len() < self.next_look.max(FIRST_LOOK) {
            return;
        }
        if let Some(anchor) = find(&self.seen, Seen::ran) {
            // The steps that led to it count: who asked for steps 5 to 9 means the program's.
            let is_anchor = |kernel: &&Seen| kernel.stream == anchor.stream && kernel.name == anchor.name;
            begins.extend(self.seen.iter().filter(is_anchor));
            let on_stream = self
                .seen
                .iter()
                .rev()
                .filter(|kernel| kernel.stream == anchor.stream);
            self.since = on_stream.take_while(|kernel| kernel.name != anchor.name).count();
            self.anchor = Some(anchor);
            self.seen = Vec::new();
            return;
        }
        if self.seen.len() >= MOST_KEPT {
            self.seen.drain(..MOST_KEPT / 2);
        }
        // The cost of all looks together stays that of some passes over all kernels.
        self.next_look = (self.seen.len() + self.seen.len() / 2).min(MOST_KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(names: &[u64], idle_before: &dyn Fn(u64) -> i64) -> Vec<Seen> {
        let mut at = 0;
        (1..)
            .zip(names)
            .map(|(correlation, &name)| {
                at += idle_before(name);
                let start = TimeNs(at);
                at += 10;
                Seen {
                    stream: 7,
                    name,
                    start,
                    end: TimeNs(at),
                    correlation,
                }
            })
            .collect()
    }

    #[test]
    fn what_repeats_is_a_step_and_the_steps_that_led_to_it_count() {
        let names: Vec<u64> = [9, 8]
            .into_iter()
            .chain([1, 2, 2, 2, 3, 4, 5, 5, 5, 6].repeat(12))
            .collect();
        let kernels = run(&names, &|name| if name == 1 { 100 } else { 0 });
        for piece in [1, 7, names.len()] {
            let mut detector = Detector::default();
            let begins: Vec<u32> = kernels
                .chunks(piece)
                .flat_map(|kernels| detector.take(kernels))
                .map(|kernel| kernel.correlation)
                .collect();
            assert_eq!(
                begins,
                (0..12).map(|step| 3 + 10 * step).collect::<Vec<u32>>(),
                "{piece} at a time"
            );
            assert_eq!(detector.horizon, 122);
        }
    }

    #[test]
    fn what_does_not_repeat_has_no_steps_and_memory_is_bounded() {
        let mut detector = Detector::default();
        let names: Vec<u64> = (0..3 * MOST_KEPT as u64).collect();
        assert!(detector.take(&run(&names, &|_| 0)).is_empty());
        assert!(detector.seen.len() <= MOST_KEPT && !detector.has_pattern());
        assert!(Detector::default().take(&run(&[1; 500], &|_| 0)).is_empty());
    }

    #[test]
    fn a_program_that_goes_on_with_something_else_is_looked_at_anew() {
        let mut names: Vec<u64> = [1, 2, 3, 4, 5, 6, 7, 8].repeat(10);
        names.extend([11, 12, 13, 14, 15, 16, 17, 18, 19].repeat(40));
        let mut detector = Detector::default();
        let begins = detector.take(&run(&names, &|name| if name % 10 == 1 { 50 } else { 0 }));
        assert_eq!(begins.iter().filter(|kernel| kernel.name == 1).count(), 10);
        assert!(begins.iter().filter(|kernel| kernel.name == 11).count() > 25);
    }
}
