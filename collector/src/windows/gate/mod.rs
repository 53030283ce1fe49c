//! The writer's side of windows: which of what comes is recorded.
//!
//! CUPTI's buffers come in no particular order. While parts of the run are left out they wait for the next flush, after
//! which all calls are known that launched what is in them; and where steps have to be detected, until the kernels that
//! they launched have been seen. Then each record is kept or left out, in place.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gputrace_trace::options::{CollectorOptions, Kind};
use gputrace_trace::{TimeNs, now};

use super::detector::{Detector, Seen};
use super::filter::{self, Moment};
use super::held::Records;
use super::launched::Launched;
use super::launches::Launches;
use super::switch::Switch;
use super::{Event, Machine, Phase, Window, watch};
use crate::buffers::Full;
use crate::records::{self, RecordSizes, read};
use crate::{config, kinds, walk};

/// A set of kinds.
fn bits(kinds: &[u32]) -> u128 {
    kinds
        .iter()
        .fold(0, |bits, kind| bits | 1u128.checked_shl(*kind).unwrap_or(0))
}

/// So long a buffer waits for those with the calls that launched what is in it: a flush asks for all, and CUPTI's own thread brings
/// them, which on a busy machine may be held up between two.
const SETTLES_AFTER: Duration = Duration::from_millis(100);

/// Which of the held buffers are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decide {
    /// Those that have waited for [`SETTLES_AFTER`].
    Settled,
    /// Also those that have just come: somebody is about to be told that all is there.
    Come,
    /// Also those of steps that are still looked for: nothing more will come.
    All,
}

struct Held {
    records: Records,
    came: Instant,
    /// The highest correlation id of a call, an operation or what is joined to one in it.
    last_id: u32,
    /// The latest moment of what has no such number.
    last_moment: i64,
    is_scanned: bool,
}

/// See the module's text.
pub(crate) struct Gate {
    options: &'static CollectorOptions,
    machine: Machine,
    /// The recorder's switch, and how the machine knows it.
    switch: Switch,
    was_on: bool,
    detector: Option<Detector>,
    sizes: RecordSizes,
    held: Vec<Held>,
    held_bytes: usize,
    most_held_bytes: usize,
    /// Events of the application's threads are known until here.
    known_until: TimeNs,
    launched: Launched,
    /// Whether calls come at all: without them nobody knows when that was which has no time of its own.
    has_calls: bool,
    /// When detected steps were launched.
    launches: Launches,
    /// Kinds that are switched on for our own sake and make no rows, by bit.
    hidden: u128,
    left_out: BTreeMap<&'static str, u64>,
    /// Which rows of the host are recorded.
    host: HostRows,
    /// Steps that have begun, for those who are told while the program runs.
    steps: Option<Vec<(TimeNs, Event)>>,
}

/// Which rows of the host are recorded: its ranges, and what NCCL says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRows {
    /// Those in windows, as everything else.
    InWindows,
    /// All.
    All,
    /// None, and nobody misses them.
    None,
}

impl Gate {
    /// The gate of a process; `hidden`: kinds that CUPTI delivers and nobody asked for.
    pub(crate) fn new(options: &'static CollectorOptions, sizes: RecordSizes, hidden: &[u32]) -> Self {
        let start = watch::began();
        let switch = Switch::new(config::get().control.as_deref());
        let was_on = switch.is_on();
        let machine = Machine::new(options, start, was_on);
        let detector = options.needs_steps().then(Detector::default);
        Self {
            options,
            machine,
            switch,
            was_on,
            detector,
            sizes,
            held: Vec::new(),
            held_bytes: 0,
            most_held_bytes: usize::try_from(options.memory_bytes / 4).unwrap_or(usize::MAX),
            known_until: start,
            launched: Launched::default(),
            has_calls: options.records(Kind::Calls) || kinds::needs_calls(options),
            launches: Launches::default(),
            hidden: bits(hidden),
            left_out: BTreeMap::new(),
            host: HostRows::InWindows,
            steps: None,
        }
    }

    /// From now on steps that begin are kept for [`Self::take_steps`].
    pub(crate) fn keep_steps(&mut self) {
        self.steps.get_or_insert_default();
    }

    /// The ranges that name steps and have begun since the last call.
    pub(crate) fn take_steps(&mut self) -> Vec<(TimeNs, Event)> {
        self.steps.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// From now on those rows of the host's.
    pub(crate) fn set_host_rows(&mut self, host: HostRows) {
        self.host = host;
    }

    /// CUPTI was started, or other options hold. `hidden`: kinds that it delivers and nobody asked for.
    pub(crate) fn set_records(
        &mut self,
        options: &'static CollectorOptions,
        sizes: RecordSizes,
        hidden: &[u32],
    ) {
        self.options = options;
        self.sizes = sizes;
        self.hidden = bits(hidden);
        self.has_calls = options.records(Kind::Calls) || kinds::needs_calls(options);
    }

    /// Switches as the recorder's switch does, at a moment that may be a little ago.
    pub(crate) fn switch(&mut self, on: bool, at: TimeNs) {
        self.look();
        self.machine.apply(at, Event::Switch(on));
    }

    /// Whether rows of this kind were asked for.
    pub(crate) fn wants(&self, kind: Kind) -> bool {
        self.options.records(kind)
    }

    /// Whether steps are recorded in any case, to measure what recording costs.
    pub(crate) fn is_measuring(&self) -> bool {
        self.options.measure_overhead_steps.is_some()
    }

    /// Whether buffers are to be given to [`Self::hold`] rather than decoded at once.
    pub(crate) fn is_partial(&self) -> bool {
        self.machine.is_partial()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.machine.phase()
    }

    /// Whether steps are neither named nor detected yet, so that nothing of the host can be told apart.
    pub(crate) fn is_undecided(&self) -> bool {
        self.detects() && !self.detector.as_ref().is_some_and(Detector::has_pattern)
    }

    /// Whether steps are detected, so that kernels must come however little is recorded.
    pub(crate) fn detects(&self) -> bool {
        self.detector.is_some() && !self.machine.has_named_steps()
    }

    /// Takes in the switch and what the application's threads have noted.
    pub(crate) fn look(&mut self) {
        let until = now();
        for (at, event) in watch::take() {
            if let Some(steps) = &mut self.steps
                && matches!(event, Event::Step { .. })
            {
                steps.push((at, event));
            }
            self.machine.apply(at, event);
        }
        self.switch.look();
        let is_on = self.switch.is_on();
        if is_on != self.was_on {
            self.was_on = is_on;
            self.machine.apply(until, Event::Switch(is_on));
        }
        self.known_until = until;
    }

    /// What is to be told of the recorder's switch since the last call.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        self.switch.take_notes()
    }

    /// Whether a row of the host's that began at this moment is recorded. Those that are not are counted.
    pub(crate) fn keeps(&mut self, at: TimeNs, table: &'static str) -> bool {
        match self.host {
            HostRows::All => return true,
            HostRows::None => return false,
            HostRows::InWindows => {}
        }
        self.keeps_call(at, table)
    }

    /// Whether what is said of a call at this moment is recorded, as the call is. What is not is counted.
    pub(crate) fn keeps_call(&mut self, at: TimeNs, table: &'static str) -> bool {
        if !self.machine.is_partial() {
            return true;
        }
        if at > self.known_until {
            self.look();
        }
        let keeps = self.machine.window_at(at).is_some();
        if !keeps {
            *self.left_out.entry(table).or_default() += 1;
        }
        keeps
    }

    /// The windows that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<Window> {
        self.machine.take_ended()
    }

    /// Ends the window that is open.
    pub(crate) fn end(&mut self) {
        self.machine.end(now());
    }

    /// Rows that were left out so far, by table.
    pub(crate) fn left_out(&self) -> &BTreeMap<&'static str, u64> {
        &self.left_out
    }

    /// Keeps a buffer's records until the next flush.
    pub(crate) fn hold(&mut self, full: Full) {
        let records = Records::waiting(full);
        self.held_bytes += records.capacity();
        self.held.push(Held {
            records,
            came: Instant::now(),
            last_id: 0,
            last_moment: i64::MIN,
            is_scanned: false,
        });
    }

    /// Whether so much is held that the next flush must come now.
    pub(crate) fn is_full(&self) -> bool {
        self.held_bytes >= self.most_held_bytes
    }

    /// After a flush: the held records of which all can be decided, with only what is recorded at the front, and the length of
    /// that.
    pub(crate) fn release(&mut self, decide: Decide) -> Vec<(Records, usize)> {
        self.look();
        let all = decide == Decide::All || self.is_full();
        let is_settling = decide == Decide::Settled && !all && self.has_calls;
        if self.detects() {
            self.detect(all);
        }
        // Until where it is known what steps things belong to: a number of calls, and a moment.
        let (mut until, mut moment) = (u32::MAX, i64::MAX);
        if self.detects() && !all {
            let horizon = self.detector.as_ref().map_or(0, |detector| detector.horizon);
            (until, moment) = match self.is_undecided() {
                true => (0, i64::MIN),
                false => self.launches.known_until(horizon),
            };
        }
        let held = std::mem::take(&mut self.held);
        // Of what is decided the calls may be in a buffer that is not.
        if until > 0 {
            for held in &held {
                self.learn_launches(held.records.bytes(), until);
            }
        }
        let waits = |held: &Held| {
            until == 0
                || held.last_id > until
                || held.last_moment > moment
                || is_settling && held.came.elapsed() < SETTLES_AFTER
        };
        let (held, decided): (Vec<Held>, Vec<Held>) = held.into_iter().partition(waits);
        self.held = held;
        let mut released = Vec::new();
        for Held { mut records, .. } in decided {
            self.held_bytes -= records.capacity();
            // SAFETY: CUPTI delivered the records to this process, and they are decided once.
            let kept = unsafe { self.leave_out(records.bytes_mut()) };
            released.push((records, kept));
        }
        released
    }

    /// Finds the steps in what has come. `all`: calls that have not come are not waited for.
    fn detect(&mut self, all: bool) {
        let Some(detector) = &mut self.detector else {
            return;
        };
        let mut kernels = Vec::new();
        for held in self.held.iter_mut().filter(|held| !held.is_scanned) {
            held.is_scanned = true;
            let (launches, last_id, last_moment) =
                (&mut self.launches, &mut held.last_id, &mut held.last_moment);
            walk::walk(held.records.bytes(), &self.sizes, |record_kind, bytes| {
                match filter::moment(record_kind, bytes) {
                    Moment::Call { start, correlation } => {
                        *last_id = correlation.max(*last_id);
                        launches.add_call(correlation, start);
                    }
                    Moment::Operation { correlation, .. } | Moment::Joined { correlation } => {
                        *last_id = correlation.max(*last_id);
                    }
                    Moment::Began { start } => *last_moment = start.max(*last_moment),
                    Moment::Always => {}
                }
                if kinds::is_kernels(record_kind) {
                    let record: records::Kernel = read(bytes);
                    if record.start != 0 {
                        kernels.push(Seen {
                            stream: record.stream,
                            name: record.name,
                            start: TimeNs(record.start.cast_signed()),
                            end: TimeNs(record.end.cast_signed()),
                            correlation: record.correlation,
                        });
                    }
                }
            });
        }
        kernels.sort_by_key(|kernel| kernel.start);
        let begins = detector.take(&kernels);
        for at in self
            .launches
            .place(begins, all || !self.has_calls, Instant::now())
        {
            self.machine.apply(at, Event::DetectedStep);
        }
    }

    /// Learns which calls up to a number were made in windows.
    fn learn_launches(&mut self, bytes: &[u8], until: u32) {
        let (machine, launched) = (&self.machine, &mut self.launched);
        walk::walk(bytes, &self.sizes, |record_kind, bytes| {
            let Moment::Call { start, correlation } = filter::moment(record_kind, bytes) else {
                return;
            };
            if correlation > until {
                return;
            }
            if let Some(window) = machine.window_at(TimeNs(start)) {
                launched.learn(window, correlation);
            }
        });
        self.launched.forget();
    }

    /// Leaves out what is not recorded; gives the length of what is.
    ///
    /// # Safety
    /// As [`crate::decode::Decoder::decode`], which is to get what is kept.
    pub(crate) unsafe fn leave_out(&mut self, bytes: &mut [u8]) -> usize {
        let is_partial = self.machine.is_partial();
        if !is_partial && self.hidden == 0 {
            return bytes.len();
        }
        let (machine, launched, left_out) = (&self.machine, &self.launched, &mut self.left_out);
        let has_calls = self.has_calls;
        let is_launched = |correlation, start| launched.has(correlation, start);
        let is_in = |start: i64| machine.window_at(TimeNs(start)).is_some();
        let discard = |record_kind, record: &[u8]| {
            // SAFETY: the caller's promise, and the record is left out.
            unsafe { kinds::discard(record_kind, record) };
        };
        walk::compact(bytes, &self.sizes, |record_kind, record| {
            if self.hidden.checked_shr(record_kind).unwrap_or(0) & 1 == 1 {
                discard(record_kind, record);
                return false;
            }
            let keeps = !is_partial
                || match filter::moment(record_kind, record) {
                    // Without times it is a loss, where it was launched in a window.
                    Moment::Operation {
                        start: 0,
                        correlation,
                    } => is_launched(correlation, i64::MIN),
                    Moment::Joined { correlation } => !has_calls || is_launched(correlation, i64::MIN),
                    Moment::Operation { start, correlation } => {
                        is_in(start) || is_launched(correlation, start)
                    }
                    Moment::Call { start, .. } | Moment::Began { start } => is_in(start),
                    Moment::Always => true,
                };
            if !keeps {
                *left_out.entry(kinds::counted_as(record_kind)).or_default() += 1;
                discard(record_kind, record);
            }
            keeps
        })
    }
}

#[cfg(test)]
mod tests;
