//! When CUPTI is on and whose it is, and which times were recorded.

use std::time::{Duration, Instant};

use gputrace_trace::tables;

use super::{Sink, WHOLE_AFTER};
use crate::complain::complain;
use crate::rivals::Taken;
use crate::windows::{Phase, watch};
use crate::{buffers, config, power};

/// For how long nothing must have been wanted until CUPTI is switched off.
const OFF_AFTER: Duration = Duration::from_secs(2);

impl Sink {
    /// Switches CUPTI off when nothing is wanted for long, and on again before something is.
    pub(super) fn switch_by_phase(&mut self) {
        let is_off_for_long = matches!(self.gate.phase(), Phase::Off { soon: false }) && !self.gate.detects();
        if !is_off_for_long && !self.is_unwanted {
            self.off_since = None;
            power::on();
            return;
        }
        let after = if config::options().measure_overhead_steps.is_some() {
            // Each step that is measured as one without recording should be one.
            Duration::ZERO
        } else {
            OFF_AFTER
        };
        let is_due = self.off_since.get_or_insert_with(Instant::now).elapsed() >= after;
        // Another profiler's kinds would be switched off with ours.
        let is_alone = self.cupti.is_some_and(|cupti| cupti.is_one_of_several()) || self.rivals.is_alone();
        if is_due && !power::is_off() && is_alone {
            self.was_off |= power::off();
        }
    }

    /// Says so where blocks of steps were to be compared in which CUPTI was on throughout, or from some moment on.
    pub(super) fn note_measure(&mut self) {
        let Some(steps) = config::options().measure_overhead_steps else {
            return;
        };
        let why = if let Some(why) = power::why_on() {
            why
        } else if self.was_off {
            return;
        } else if self.gate.detects() {
            "steps have no names here, and are detected by their kernels"
        } else if steps <= 1 {
            "each second step is recorded"
        } else {
            "no block without recording was long enough"
        };
        self.disk.header.notes.push(format!(
            "--measure-overhead: CUPTI stayed on in blocks without recording, since {why}: what was measured is the cost of keeping rows alone"
        ));
    }

    /// Looks for another profiler.
    pub(super) fn look_for_rivals(&mut self) {
        if let Some(cupti) = self.cupti.filter(|cupti| !cupti.is_one_of_several())
            && let Some(taken) = self.rivals.look(&cupti)
        {
            self.note_taken(taken);
        }
        let foreign = buffers::take_foreign();
        self.disk.writer.lose(
            "buffers of another profiler that came here",
            foreign,
            "what it shows",
        );
    }

    /// Writes down a time in which another profiler had CUPTI's buffers.
    pub(super) fn note_taken(&mut self, taken: Taken) {
        let row = tables::Window {
            start_ns: taken.start,
            duration_ns: taken.end - taken.start,
            what: self.disk.writer.names.intern_own("taken by another profiler"),
            first_step: None,
            repeat: None,
        };
        self.disk.writer.tables.windows.push(row);
        let what = "times in which another profiler in the process had CUPTI's records";
        self.disk
            .writer
            .lose(what, 1, "all GPU activity and calls in them");
        let buffers = taken.buffers as u64;
        self.disk.writer.lose(
            "CUPTI buffers that went to another profiler",
            buffers,
            "everything in them",
        );
    }

    /// Writes down the windows that have ended; gives whether an active one has.
    pub(super) fn note_windows(&mut self) -> bool {
        let what = "beginnings and ends of steps and ranges that decide what is recorded";
        self.disk
            .writer
            .lose(what, watch::take_lost(), "which times are recorded");
        let what = "times that began while recording was being switched on or off";
        self.disk
            .writer
            .lose(what, power::take_began_late(), "their first moments");
        for note in self.gate.take_notes() {
            complain(&note);
            self.disk.header.notes.push(note);
            self.disk.header_changed = true;
        }
        let mut has_ended = false;
        for window in self.gate.take_ended() {
            let what = if window.is_warm_up { "warm-up" } else { "active" };
            let row = tables::Window {
                start_ns: window.start,
                duration_ns: window.end - window.start,
                what: self.disk.writer.names.intern_own(what),
                first_step: window.first_step,
                repeat: window.repeat,
            };
            self.disk.writer.tables.windows.push(row);
            if !window.is_warm_up {
                has_ended = true;
                self.ended.push(Instant::now());
            }
        }
        has_ended
    }

    /// Puts all there is on the disk, and counts the windows that are whole with it.
    pub(super) fn count_whole_windows(&mut self) {
        self.disk.rows_written(0);
        let before = self.ended.len();
        self.ended.retain(|ended| ended.elapsed() < WHOLE_AFTER);
        self.disk.header.windows += (before - self.ended.len()) as u64;
        self.disk.header_changed = true;
    }
}
