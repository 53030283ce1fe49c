//! The one thread that decodes and writes.
//!
//! It takes CUPTI's full buffers and the host's events, appends rows, and decides when batches go to the disk: the
//! first within 100 ms of the first record, then one a second or each 16 k rows. It is also the only one to flush
//! CUPTI, since two at a time deadlock.

mod asked;
mod daemon;
mod disk;
mod phases;
mod place;
mod served;
mod thread;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gputrace_trace::clock_reading::clock_snapshot;
use gputrace_trace::clock_steps;
use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::now;
use gputrace_trace::tables::Clock;
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter};

use asked::{ASKED, STOP, answer};
pub(crate) use asked::{finish, flush_before_end};
use disk::Disk;
pub(crate) use place::Place;
use served::Served;
pub(crate) use thread::Thread;

use crate::buffers;
use crate::cost;
use crate::cupti::{Cupti, lost};
use crate::decode::Decoder;
use crate::dump;
use crate::host_events;
use crate::records::RecordSizes;
use crate::rivals::Rivals;
use crate::windows::{Decide, Gate, HostRows, Records};
use crate::{config, graphs, kinds, panics, power, stacks, walk};

/// For how long the end of the program is held up for buffers that CUPTI still has.
const LAST_BUFFERS: Duration = Duration::from_millis(500);
/// How often the thread looks around, at most.
const TICK: Duration = Duration::from_millis(20);
/// The same where nobody takes what is recorded.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// How often CUPTI is asked for part-full buffers: until the first batch is written, and after.
const FIRST_FLUSH: Duration = Duration::from_millis(30);
const FLUSH: Duration = Duration::from_millis(450);
const SECOND: Duration = Duration::from_secs(1);
/// How long after a window's end what was launched in it is waited for, until the window counts as whole.
const WHOLE_AFTER: Duration = Duration::from_millis(300);

/// The thread's state.
pub(crate) struct Sink {
    disk: Disk,
    /// The daemon, where the recording is one's.
    served: Option<Served>,
    cupti: Option<Cupti>,
    decoder: Decoder,
    host_events: host_events::Rows,
    stacks: stacks::Rows,
    gate: Gate,
    rivals: Rivals,
    /// Since when nothing is wanted.
    off_since: Option<Instant>,
    /// When windows ended that are not yet known to be whole on the disk.
    ended: Vec<Instant>,
    /// The clocks as they were read last.
    clock: Option<Clock>,
    /// Whether CUPTI was ever switched off.
    was_off: bool,
    /// NCCL told of a rank that nobody asked for: nothing is recorded here any more.
    is_unwanted: bool,
    has_told_of_cupti: bool,
}

impl Sink {
    fn new(mut writer: ProcessWriter, header: ProcessHeader, cupti: Option<Cupti>, place: Place) -> Self {
        host_events::begin(config::options().memory_bytes / host_events::SHARE_OF_MEMORY);
        let sizes = cupti
            .as_ref()
            .map_or_else(RecordSizes::default, Cupti::record_sizes);
        let hidden = cupti.as_ref().map_or(&[][..], |cupti| cupti.hidden);
        let mut gate = Gate::new(config::options(), sizes.clone(), hidden);
        let has_recorder = place.link.is_none();
        if !has_recorder {
            gate.set_host_rows(HostRows::None);
            gate.keep_steps();
            gate.switch(false, now());
        }
        // A sixteenth for the texts themselves; the tables' dictionaries hold each in a column or two once more.
        let room = usize::try_from(config::options().memory_bytes / 16).unwrap_or(usize::MAX);
        writer.names.limit(room);
        let mut sink = Self {
            disk: Disk::new(writer, header, has_recorder),
            served: place.link.map(Served::new),
            cupti,
            decoder: served::decoder(&sizes, cupti),
            host_events: host_events::Rows::default(),
            stacks: stacks::Rows::default(),
            gate,
            rivals: Rivals::new(),
            off_since: None,
            ended: Vec::new(),
            clock: None,
            was_off: false,
            is_unwanted: false,
            has_told_of_cupti: false,
        };
        if let Some(joined) = place.joined {
            sink.handle(joined);
        }
        sink
    }

    /// Runs until the process ends. After a panic of ours the header says why the rest is missing.
    fn run_to_the_end(&mut self) {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.run()));
        if ended.is_err() {
            let what = panics::take().map_or_else(String::new, |(_, what)| what);
            self.disk.give_up(&format!("recording ended early: {what}"));
        }
    }

    fn run(&mut self) {
        let mut flushed = Instant::now();
        let mut clocks = Instant::now();
        let mut answered = 0;
        self.disk.writer.tables.clocks.push(clock_snapshot());
        while !STOP.load(Ordering::Acquire) {
            self.take(if self.is_waiting_for_daemon() {
                IDLE_TICK
            } else {
                TICK
            });
            self.gate.look();
            self.serve();
            let has_ended = self.note_windows();
            let asked = ASKED.load(Ordering::Acquire);
            let is_ended_window_due = self
                .ended
                .first()
                .is_some_and(|ended| ended.elapsed() >= WHOLE_AFTER);
            let period = if self.disk.has_written() {
                FLUSH
            } else {
                FIRST_FLUSH
            };
            let is_due = flushed.elapsed() >= period && !power::is_off();
            if is_due || has_ended || is_ended_window_due || asked != answered || self.gate.is_full() {
                flushed = Instant::now();
                self.flush();
            }
            if is_ended_window_due {
                self.release(Decide::Come);
                self.count_whole_windows();
            }
            if asked != answered {
                answered = asked;
                answer(answered);
            }
            self.look_for_rivals();
            self.switch_by_phase();
            self.look_at_the_clock();
            if clocks.elapsed() >= SECOND {
                clocks = Instant::now();
                self.disk.writer.tables.clocks.push(clock_snapshot());
                self.note_panics();
                buffers::shrink();
            }
            if !self.is_unwanted {
                self.disk.write(self.gate.left_out());
            }
        }
        self.close();
    }

    /// Where the wall clock was set since the last look, writes down the readings of both: between them it was.
    fn look_at_the_clock(&mut self) {
        let is_other = |a: &Clock, b: &Clock| {
            let offset = |clock: &Clock| clock.realtime_ns.0.saturating_sub(clock.monotonic_ns);
            offset(a).saturating_sub(offset(b)).saturating_abs() >= clock_steps::LEAST_STEP_NS
        };
        let mut reading = clock_snapshot();
        if let Some(before) = &self.clock
            && is_other(before, &reading)
        {
            // Once more: the thread may only have been interrupted between two clocks.
            reading = clock_snapshot();
            if is_other(before, &reading) {
                self.disk.writer.tables.clocks.push(before.clone());
                self.disk.writer.tables.clocks.push(reading.clone());
            }
        }
        self.clock = Some(reading);
    }

    /// Writes down errors of ours in callbacks.
    fn note_panics(&mut self) {
        if let Some((count, what)) = panics::take() {
            self.disk
                .writer
                .lose(&what, count, "what was being recorded then");
        }
    }

    /// Asks CUPTI for what is complete, and takes it in.
    fn flush(&mut self) {
        if let Some(cupti) = &self.cupti {
            let begun = Instant::now();
            cupti.flush(false);
            cost::flushed(begun.elapsed());
        }
        self.take(Duration::from_millis(2));
        self.release(Decide::Settled);
    }

    /// Decodes what has come; waits up to `patience` for it.
    fn take(&mut self, patience: Duration) {
        buffers::wait(patience);
        let mut any = false;
        while let Some(mut full) = buffers::take() {
            any = true;
            if self.is_unwanted {
                self.discard(full);
            } else if full.over_cap || buffers::is_behind() {
                self.throw_away(full);
            } else {
                self.dump(full.bytes());
                let unread = "bytes of CUPTI records of unknown layout";
                self.disk
                    .writer
                    .lose(unread, full.unread_bytes as u64, "everything");
                if self.gate.is_partial() {
                    self.gate.hold(full);
                    if self.gate.is_full() {
                        // The next flush decides what is recorded of it.
                        break;
                    }
                } else {
                    // SAFETY: CUPTI just delivered the buffer to this process.
                    let kept = unsafe { self.gate.leave_out(full.bytes_mut()) };
                    self.decode(Records::Buffer(full), kept);
                }
            }
        }
        if any && let Some(cupti) = &self.cupti {
            let dropped = cupti.dropped();
            self.disk
                .writer
                .lose("CUPTI records dropped for want of buffers", dropped, "everything");
        }
        if lost::is_lost() && !self.has_told_of_cupti {
            self.has_told_of_cupti = true;
            self.disk.writer.lose(
                "CUPTI ended itself after an error",
                1,
                "all GPU activity from here on",
            );
        }
        // As long as nobody can tell which step it is, what the host did waits too.
        if !self.gate.is_undecided() {
            self.take_host_events();
        }
    }

    /// Decodes the held buffers of which it is known what is recorded.
    fn release(&mut self, decide: Decide) {
        for (records, kept) in self.gate.release(decide) {
            self.decode(records, kept);
        }
        if decide == Decide::All && self.gate.is_undecided() {
            self.take_host_events();
        }
    }

    /// Makes rows of the first `length` bytes of a buffer, and gives it back.
    fn decode(&mut self, records: Records, length: usize) {
        // SAFETY: CUPTI just delivered the buffer to this process, so the names in it are text.
        let decoded = unsafe {
            self.decoder
                .decode(&records.bytes()[..length], &mut self.disk.writer)
        };
        cost::records_read(decoded.records);
        self.disk.writer.lose(
            "operations without time stamps",
            decoded.without_times,
            "every time of the device",
        );
        self.disk.writer.lose(
            "operations that had not ended",
            decoded.unfinished,
            "their durations",
        );
        cost::calls_folded(decoded.folded);
        for (kind, count) in self.decoder.take_unknown_kinds() {
            self.disk.writer.lose(
                &format!("CUPTI records of kind {kind}"),
                count,
                "what this version of gputrace does not know",
            );
        }
        let unread = "bytes of CUPTI records of unknown length";
        self.disk.writer.lose(unread, decoded.unread_bytes, "everything");
        self.disk.rows_written(BATCH_ROWS);
        records.recycle();
        if self.decoder.devices().len() != self.disk.header.devices.len() {
            self.disk.header.devices = self.decoder.devices().to_vec();
            self.disk.header_changed = true;
        }
    }

    /// Gives a buffer back of which nothing becomes a row; gives how many records it had for each table.
    fn discard(&mut self, full: buffers::Full) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        walk::walk(full.bytes(), self.decoder.sizes(), |record_kind, record| {
            *counts.entry(kinds::counted_as(record_kind)).or_default() += 1;
            // SAFETY: CUPTI just delivered the buffer to this process, and nobody else looks at it.
            unsafe { kinds::discard(record_kind, record) };
        });
        buffers::recycle(full);
        counts
    }

    /// Counts what is in a buffer that there is no time or no room to decode, and gives it back.
    fn throw_away(&mut self, full: buffers::Full) {
        for (table, count) in self.discard(full) {
            let what = format!("{table} in buffers that were thrown away: the writer fell behind");
            self.disk.writer.lose(&what, count, table);
        }
    }

    /// The process is of a rank that nobody asked for, as NCCL tells late: what was recorded of it is taken away.
    fn abandon(&mut self) {
        self.is_unwanted = true;
        power::off();
        self.disk.remove();
    }

    fn take_host_events(&mut self) {
        let (nodes, lost) = graphs::take();
        for node in nodes {
            self.disk.writer.tables.graph_nodes.push(node);
        }
        self.disk.writer.lose(
            "nodes of graphs beyond those that are followed",
            lost,
            "collectives in graphs",
        );
        self.disk.header_changed |=
            self.host_events
                .take(&mut self.disk.writer, &mut self.disk.header, &mut self.gate);
        let launches = &mut self.host_events.launches;
        self.stacks.take(launches, &mut self.disk.writer);
        if !self.is_unwanted && !config::wants_rank(config::options(), self.disk.header.rank) {
            self.abandon();
        }
    }

    fn dump(&self, bytes: &[u8]) {
        let version = self.disk.header.cupti_version.unwrap_or(0);
        let call_name = |kind, callback| self.decoder.call_name(kind, callback);
        // SAFETY: CUPTI just delivered the buffer to this process, so the names in it are text.
        unsafe { dump::buffer(bytes, self.decoder.sizes(), version, &call_name) };
    }

    fn close(&mut self) {
        if let Some(cupti) = &self.cupti {
            cupti.flush(true);
        }
        // Delivery is asynchronous: the last buffers may come a while after the flush returns.
        let begun = Instant::now();
        self.take(Duration::from_millis(50));
        self.take(Duration::from_millis(5));
        while buffers::outstanding() > 0 && begun.elapsed() < LAST_BUFFERS {
            self.take(Duration::from_millis(20));
        }
        let missing = buffers::outstanding();
        if self.is_unwanted {
            return;
        }
        if let Some(taken) = self.rivals.end() {
            self.note_taken(taken);
        } else {
            let what = "CUPTI buffers that had not come back at the end, with whatever is in them";
            self.disk
                .writer
                .lose(what, missing as u64, "everything in the last moments");
        }
        self.release(Decide::All);
        // What is held may have kept others waiting.
        while buffers::is_waiting() {
            self.take(Duration::ZERO);
            self.release(Decide::All);
        }
        self.disk.header_changed |=
            self.host_events
                .finish(&mut self.disk.writer, &mut self.disk.header, &mut self.gate);
        let launches = &mut self.host_events.launches;
        self.stacks.take(launches, &mut self.disk.writer);
        if self.gate.is_partial() {
            self.gate.end();
            self.note_windows();
            self.disk.header.windows += self.ended.len() as u64;
        }
        self.note_measure();
        let open = self.host_events.open_ranges();
        self.disk
            .writer
            .lose("NVTX ranges still open at the end", open, "steps and ranges");
        self.note_panics();
        self.disk.writer.tables.clocks.push(clock_snapshot());
        self.disk.close(self.gate.left_out());
        self.leave_daemon();
    }
}
