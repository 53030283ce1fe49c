//! The one thread that decodes and writes.
//!
//! It takes CUPTI's full buffers and the host's events, appends rows, and decides when batches go to the disk: the
//! first within 100 ms of the first record, then one a second or each 16 k rows. It is also the only one to flush
//! CUPTI, since two at a time deadlock.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::tables;
use gputrace_trace::time::clock_snapshot;
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter};

use crate::buffers;
use crate::cost;
use crate::cupti::Cupti;
use crate::decode::{self, Decoder, RecordSizes};
use crate::dump;
use crate::host_events;
use crate::rivals::{Rivals, Taken};
use crate::windows::{Gate, Phase, watch};
use crate::{config, graphs, header, power, session, signals, walk};

/// For how long the end of the program is held up for buffers that CUPTI still has.
const LAST_BUFFERS: Duration = Duration::from_millis(500);
/// How often the thread looks around, at most.
const TICK: Duration = Duration::from_millis(20);
/// How often CUPTI is asked for part-full buffers: until the first batch is written, and after.
const FIRST_FLUSH: Duration = Duration::from_millis(30);
const FLUSH: Duration = Duration::from_millis(450);
/// How often rows are written that fill no batch.
const WRITE: Duration = Duration::from_millis(950);
/// How often the header is written although nothing in it changed but what recording has cost: a killed process leaves that.
const HEADER: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
/// For how long nothing must have been wanted until CUPTI is switched off.
const OFF_AFTER: Duration = Duration::from_secs(2);
/// How long after a window's end what was launched in it is waited for, until the window counts as whole.
const WHOLE_AFTER: Duration = Duration::from_millis(300);

static STOP: AtomicBool = AtomicBool::new(false);
static FINISHED: Mutex<bool> = Mutex::new(false);
static FINISHED_CHANGED: Condvar = Condvar::new();

/// Asks the thread to finish and waits for it.
pub(crate) fn finish(patience: Duration) {
    STOP.store(true, Ordering::Release);
    buffers::wake();
    let finished = FINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = FINISHED_CHANGED.wait_timeout_while(finished, patience, |finished| !*finished);
    drop(waited);
}

/// How many flushes were asked for, and how many of those were answered.
static ASKED: AtomicU64 = AtomicU64::new(0);
static ANSWERED: Mutex<u64> = Mutex::new(0);
static ANSWERED_CHANGED: Condvar = Condvar::new();

/// Asks the thread to flush CUPTI at once, because a context is about to go, and waits for it.
pub(crate) fn flush_before_end(patience: Duration) {
    let ticket = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    buffers::wake();
    let answered = ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ANSWERED_CHANGED.wait_timeout_while(answered, patience, |answered| *answered < ticket);
    drop(waited);
}

/// Says that so many flushes were answered.
fn answer(tickets: u64) {
    *ANSWERED.lock().unwrap_or_else(PoisonError::into_inner) = tickets;
    ANSWERED_CHANGED.notify_all();
}

/// The thread's state.
pub(crate) struct Sink {
    writer: ProcessWriter,
    header: ProcessHeader,
    header_changed: bool,
    header_written: Instant,
    cupti: Option<Cupti>,
    decoder: Decoder,
    host_events: host_events::Rows,
    gate: Gate,
    rivals: Rivals,
    /// Since when nothing is wanted.
    off_since: Option<Instant>,
    /// When windows ended that are not yet known to be whole on the disk.
    ended: Vec<Instant>,
    /// Whether CUPTI was ever switched off.
    was_off: bool,
    /// NCCL told of a rank that nobody asked for: nothing is recorded here any more.
    is_unwanted: bool,
    has_told_of_cupti: bool,
    /// When rows were last written that filled no batch; `None` before the first.
    written: Option<Instant>,
    disk_complained: bool,
    /// The folder of the first segment.
    first_folder: PathBuf,
    /// Which segment is written now.
    segment: u32,
    /// Rows and bytes of the segments before.
    before: (u64, u64),
}

/// Says in a header which rows were written.
fn set_rows(header: &mut ProcessHeader, rows: Vec<(&'static str, u64)>) {
    header.rows = rows
        .into_iter()
        .map(|(table, rows)| (table.to_owned(), rows))
        .collect();
}

/// The thread, before it has anything to do.
pub(crate) struct Thread(Sender<Sink>);

impl Thread {
    /// Starts the thread. Before CUPTI is: without a thread nobody would take CUPTI's buffers.
    ///
    /// # Errors
    /// When the process may not have another thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Sink>();
        let body = move || {
            // A panic of ours must cost the recording only: the program's exit would wait for the mark below.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                if let Ok(mut sink) = receiver.recv() {
                    sink.run();
                }
            })));
            // From here on nobody flushes: contexts that end later, as in handlers behind ours, wait for nothing.
            answer(u64::MAX);
            *FINISHED.lock().unwrap_or_else(PoisonError::into_inner) = true;
            FINISHED_CHANGED.notify_all();
        };
        let thread = std::thread::Builder::new().name("gputrace".to_owned());
        signals::all_blocked(|| thread.spawn(body))?;
        Ok(Self(sender))
    }

    /// Gives it its work, from now until the process ends.
    pub(crate) fn begin(self, writer: ProcessWriter, header: ProcessHeader, cupti: Option<Cupti>) {
        // It waits for just this, so it is there.
        drop(self.0.send(Sink::new(writer, header, cupti)));
    }
}

impl Sink {
    fn new(mut writer: ProcessWriter, header: ProcessHeader, cupti: Option<Cupti>) -> Self {
        host_events::begin(config::get().options.memory_bytes / host_events::SHARE_OF_MEMORY);
        let sizes = cupti
            .as_ref()
            .map_or_else(RecordSizes::default, Cupti::record_sizes);
        let names = move |kind, callback| cupti.as_ref()?.callback_name(kind, callback);
        let hidden = cupti.as_ref().map_or(&[][..], |cupti| cupti.hidden);
        let gate = Gate::new(&config::get().options, sizes.clone(), hidden);
        // A sixteenth for the texts themselves; the tables' dictionaries hold each in a column or two once more.
        let room = usize::try_from(config::get().options.memory_bytes / 16).unwrap_or(usize::MAX);
        writer.names.limit(room);
        Self {
            first_folder: writer.folder().to_owned(),
            segment: 0,
            before: (0, 0),
            writer,
            header,
            header_changed: true,
            header_written: Instant::now(),
            cupti,
            decoder: Decoder::new(sizes, Box::new(names)),
            host_events: host_events::Rows::default(),
            gate,
            rivals: Rivals::new(),
            off_since: None,
            ended: Vec::new(),
            was_off: false,
            is_unwanted: false,
            has_told_of_cupti: false,
            written: None,
            disk_complained: false,
        }
    }

    fn run(&mut self) {
        let mut flushed = Instant::now();
        let mut clocks = Instant::now();
        let mut answered = 0;
        self.writer.tables.clocks.push(clock_snapshot());
        while !STOP.load(Ordering::Acquire) {
            self.take(TICK);
            self.gate.look();
            let has_ended = self.note_windows();
            let asked = ASKED.load(Ordering::Acquire);
            let is_ended_window_due = self
                .ended
                .first()
                .is_some_and(|ended| ended.elapsed() >= WHOLE_AFTER);
            let period = if self.written.is_some() {
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
                self.count_whole_windows();
            }
            if asked != answered {
                answered = asked;
                answer(answered);
            }
            self.look_for_rivals();
            self.switch_by_phase();
            if clocks.elapsed() >= SECOND {
                clocks = Instant::now();
                self.writer.tables.clocks.push(clock_snapshot());
                buffers::shrink();
            }
            self.write();
        }
        self.close();
    }

    /// Asks CUPTI for what is complete, and takes it in.
    fn flush(&mut self) {
        if let Some(cupti) = &self.cupti {
            let begun = Instant::now();
            cupti.flush(false);
            cost::flushed(begun.elapsed());
        }
        self.take(Duration::from_millis(2));
        self.release(false);
    }

    /// Switches CUPTI off when nothing is wanted for long, and on again before something is.
    fn switch_by_phase(&mut self) {
        let is_off_for_long = matches!(self.gate.phase(), Phase::Off { soon: false }) && !self.gate.detects();
        if !is_off_for_long && !self.is_unwanted {
            self.off_since = None;
            power::on();
            return;
        }
        let after = if config::get().options.measure_overhead_steps.is_some() {
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

    /// Says so where blocks of steps were to be compared in which CUPTI was on throughout.
    fn note_measure(&mut self) {
        let Some(steps) = config::get()
            .options
            .measure_overhead_steps
            .filter(|_| !self.was_off)
        else {
            return;
        };
        let why = if let Some(why) = power::why_on() {
            why
        } else if self.gate.detects() {
            "steps have no names here, and are detected by their kernels"
        } else if steps <= 1 {
            "each second step is recorded"
        } else {
            "no block without recording was long enough"
        };
        self.header.notes.push(format!(
            "--measure-overhead: CUPTI was never switched off, since {why}: what was measured is the cost of keeping rows alone"
        ));
    }

    /// Looks for another profiler.
    fn look_for_rivals(&mut self) {
        if let Some(cupti) = self.cupti.filter(|cupti| !cupti.is_one_of_several())
            && let Some(taken) = self.rivals.look(&cupti)
        {
            self.note_taken(taken);
        }
        let foreign = buffers::take_foreign();
        self.writer.lose(
            "buffers of another profiler that came here",
            foreign,
            "what it shows",
        );
    }

    /// Writes down a time in which another profiler had CUPTI's buffers.
    fn note_taken(&mut self, taken: Taken) {
        let row = tables::Window {
            start_ns: taken.start,
            duration_ns: taken.end - taken.start,
            what: self.writer.names.intern_own("taken by another profiler"),
            first_step: None,
            repeat: None,
        };
        self.writer.tables.windows.push(row);
        let what = "times in which another profiler in the process had CUPTI's records";
        self.writer.lose(what, 1, "all GPU activity and calls in them");
        let buffers = taken.buffers as u64;
        self.writer.lose(
            "CUPTI buffers that went to another profiler",
            buffers,
            "everything in them",
        );
    }

    /// Writes down the windows that have ended; gives whether an active one has.
    fn note_windows(&mut self) -> bool {
        let what = "beginnings and ends of steps and ranges that decide what is recorded";
        self.writer
            .lose(what, watch::take_lost(), "which times are recorded");
        let mut has_ended = false;
        for window in self.gate.take_ended() {
            let what = if window.is_warm_up { "warm-up" } else { "active" };
            let row = tables::Window {
                start_ns: window.start,
                duration_ns: window.end - window.start,
                what: self.writer.names.intern_own(what),
                first_step: window.first_step,
                repeat: window.repeat,
            };
            self.writer.tables.windows.push(row);
            if !window.is_warm_up {
                has_ended = true;
                self.ended.push(Instant::now());
            }
        }
        has_ended
    }

    /// Puts all there is on the disk, and counts the windows that are whole with it.
    fn count_whole_windows(&mut self) {
        self.rows_written(0);
        let before = self.ended.len();
        self.ended.retain(|ended| ended.elapsed() < WHOLE_AFTER);
        self.header.windows += (before - self.ended.len()) as u64;
        self.header_changed = true;
    }

    /// Decodes what has come; waits up to `patience` for it.
    fn take(&mut self, patience: Duration) {
        buffers::wait(patience);
        let mut any = false;
        while let Some(mut full) = buffers::take() {
            any = true;
            if self.is_unwanted {
                self.discard(&full);
            } else if full.over_cap || buffers::is_behind() {
                self.throw_away(&full);
            } else {
                self.dump(full.bytes());
                let unread = "bytes of CUPTI records of unknown layout";
                self.writer.lose(unread, full.unread_bytes as u64, "everything");
                let changed = "changes of layout of CUPTI's records";
                self.writer
                    .lose(changed, crate::second::changed_layouts(), "everything until then");
                if self.gate.is_partial() {
                    self.gate.hold(full);
                    if self.gate.is_full() {
                        // The next flush decides what is recorded of it.
                        break;
                    }
                } else {
                    // SAFETY: CUPTI just delivered the buffer to this process.
                    let kept = unsafe { self.gate.leave_out(full.bytes_mut()) };
                    self.decode(&full, kept);
                }
            }
        }
        if any && let Some(cupti) = &self.cupti {
            let dropped = cupti.dropped();
            self.writer
                .lose("CUPTI records dropped for want of buffers", dropped, "everything");
        }
        if session::has_lost_cupti() && !self.has_told_of_cupti {
            self.has_told_of_cupti = true;
            self.writer.lose(
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
    fn release(&mut self, all: bool) {
        for (full, kept) in self.gate.release(all) {
            self.decode(&full, kept);
        }
        if all && self.gate.is_undecided() {
            self.take_host_events();
        }
    }

    /// Makes rows of the first `length` bytes of a buffer, and gives it back.
    fn decode(&mut self, full: &buffers::Full, length: usize) {
        // SAFETY: CUPTI just delivered the buffer to this process, so the names in it are text.
        let decoded = unsafe { self.decoder.decode(&full.bytes()[..length], &mut self.writer) };
        cost::records_read(decoded.records);
        self.writer.lose(
            "operations without time stamps",
            decoded.without_times,
            "every time of the device",
        );
        self.writer.lose(
            "operations that had not ended",
            decoded.unfinished,
            "their durations",
        );
        cost::calls_folded(decoded.folded);
        for (kind, count) in self.decoder.take_unknown_kinds() {
            self.writer.lose(
                &format!("CUPTI records of kind {kind}"),
                count,
                "what this version of gputrace does not know",
            );
        }
        let unread = "bytes of CUPTI records of unknown length";
        self.writer.lose(unread, decoded.unread_bytes, "everything");
        self.rows_written(BATCH_ROWS);
        buffers::recycle(full);
        if self.decoder.devices.len() != self.header.devices.len() {
            self.header.devices.clone_from(&self.decoder.devices);
            self.header_changed = true;
        }
    }

    /// Gives a buffer back of which nothing becomes a row; gives how many records it had for each table.
    fn discard(&mut self, full: &buffers::Full) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        walk::walk(full.bytes(), self.decoder.sizes(), |record_kind, record| {
            *counts.entry(walk::table(record_kind)).or_default() += 1;
            // SAFETY: CUPTI just delivered the buffer to this process, and nobody else looks at it.
            unsafe { decode::discard(record_kind, record) };
        });
        buffers::recycle(full);
        counts
    }

    /// Counts what is in a buffer that there is no time or no room to decode, and gives it back.
    fn throw_away(&mut self, full: &buffers::Full) {
        for (table, count) in self.discard(full) {
            let what = format!("{table} in buffers that were thrown away: the writer fell behind");
            self.writer.lose(&what, count, table);
        }
    }

    /// The process is of a rank that nobody asked for, as NCCL tells late: what was recorded of it is taken away.
    fn abandon(&mut self) {
        self.is_unwanted = true;
        power::off();
        for folder in (0..=self.segment).map(|segment| self.segment_folder(segment)) {
            // The recorder may have removed the oldest.
            if let Err(error) = std::fs::remove_dir_all(&folder)
                && error.kind() != io::ErrorKind::NotFound
            {
                session::complain(&format!("{}: {error}", folder.display()));
            }
        }
    }

    /// The folder of a segment: NAME, then NAME.1, NAME.2, ...
    fn segment_folder(&self, segment: u32) -> PathBuf {
        let mut folder = self.first_folder.clone().into_os_string();
        if segment > 0 {
            folder.push(format!(".{segment}"));
        }
        folder.into()
    }

    fn take_host_events(&mut self) {
        let (nodes, lost) = graphs::take();
        for node in nodes {
            self.writer.tables.graph_nodes.push(node);
        }
        self.writer.lose(
            "nodes of graphs beyond those that are followed",
            lost,
            "collectives in graphs",
        );
        self.header_changed |= self
            .host_events
            .take(&mut self.writer, &mut self.header, &mut self.gate);
        if !self.is_unwanted && !config::get().wants_rank(self.header.rank) {
            self.abandon();
        }
    }

    /// Writes what is due.
    fn write(&mut self) {
        if self.is_unwanted {
            return;
        }
        let due = self
            .written
            .map_or_else(|| self.has_events(), |written| written.elapsed() >= WRITE);
        if due {
            self.rows_written(0);
            self.written = Some(Instant::now());
        } else {
            self.rows_written(BATCH_ROWS);
        }
        self.begin_segment_if_due();
        if self.header_changed || self.header_written.elapsed() >= HEADER {
            self.header_changed = false;
            self.header_written = Instant::now();
            self.count_cost();
            let written = header::write(self.writer.folder(), &mut self.header);
            self.complain_of_disk(written);
        }
    }

    /// Begins new files when those that are written hold enough.
    fn begin_segment_if_due(&mut self) {
        let Some(most) = config::get().options.segment_bytes else {
            return;
        };
        let (rows, bytes) = self.writer.totals();
        if bytes < most {
            return;
        }
        let closed_folder = self.writer.folder().to_owned();
        let next = self.segment_folder(self.segment + 1);
        match self.writer.begin_segment(&next) {
            Ok(rows_by_table) => {
                self.before.0 += rows;
                self.before.1 += bytes;
                let mut closed = self.header.clone();
                set_rows(&mut closed, rows_by_table);
                header::close(&mut closed);
                let written = header::write(&closed_folder, &mut closed);
                self.complain_of_disk(written);
                self.segment += 1;
                self.writer.tables.clocks.push(clock_snapshot());
                self.header_changed = true;
            }
            Err(error) => self.complain_of_disk(Err(error)),
        }
    }

    /// Brings the counts that only this thread knows up to date.
    fn count_cost(&mut self) {
        let left_out = self.gate.left_out().iter();
        self.header.left_out = left_out
            .map(|(table, rows)| ((*table).to_owned(), *rows))
            .collect();
        let (rows, bytes) = self.writer.totals();
        cost::on_disk(self.before.0 + rows, self.before.1 + bytes);
        cost::own_thread();
    }

    /// Whether there are rows of events: those about the recording itself are no reason to hurry.
    fn has_events(&mut self) -> bool {
        let mut any = false;
        self.writer.tables.each(&mut |table| {
            any |=
                table.pending() > 0 && !matches!(table.name(), "clocks" | "contexts" | "streams" | "losses");
        });
        any
    }

    /// Writes tables that hold at least so many rows.
    fn rows_written(&mut self, at_least: usize) {
        let refused = self.writer.names.take_refused();
        self.writer
            .lose("names beyond the memory for names", refused, "names");
        let written = self.writer.flush(at_least.max(1));
        self.complain_of_disk(written);
        for (table, count) in self.writer.take_lost_rows() {
            self.writer.lose(
                &format!("rows of {table} that the disk had no room for"),
                count,
                table,
            );
        }
    }

    fn complain_of_disk(&mut self, written: io::Result<()>) {
        if let Err(error) = written
            && !self.disk_complained
        {
            self.disk_complained = true;
            self.header
                .notes
                .push(format!("the recording could not always be written: {error}"));
            session::complain(&format!("{}: {error}", self.writer.folder().display()));
        }
    }

    fn dump(&self, bytes: &[u8]) {
        let version = self.header.cupti_version.unwrap_or(0);
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
            self.writer
                .lose(what, missing as u64, "everything in the last moments");
        }
        self.release(true);
        // What is held may have kept others waiting.
        while buffers::is_waiting() {
            self.take(Duration::ZERO);
            self.release(true);
        }
        self.header_changed |= self
            .host_events
            .finish(&mut self.writer, &mut self.header, &mut self.gate);
        if self.gate.is_partial() {
            self.gate.end();
            self.note_windows();
            self.header.windows += self.ended.len() as u64;
        }
        self.note_measure();
        let open = self.host_events.open_ranges();
        self.writer
            .lose("NVTX ranges still open at the end", open, "steps and ranges");
        self.writer.tables.clocks.push(clock_snapshot());
        match self.writer.close() {
            Ok(rows) => {
                set_rows(&mut self.header, rows);
                header::close(&mut self.header);
            }
            Err(error) => self
                .header
                .notes
                .push(format!("the recording could not be closed: {error}")),
        }
        self.count_cost();
        if let Err(error) = header::write(self.writer.folder(), &mut self.header) {
            session::complain(&format!("{}: {error}", self.writer.folder().display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_the_thread_has_ended_nobody_waits_for_it() {
        let thread = Thread::start().expect("a thread");
        // Without work it ends.
        drop(thread);
        let begun = Instant::now();
        finish(Duration::from_secs(60));
        flush_before_end(Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(50));
    }
}
