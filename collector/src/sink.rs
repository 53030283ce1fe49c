//! The one thread that decodes and writes.
//!
//! It takes CUPTI's full buffers and the host's events, appends rows, and decides when batches go to the disk: the
//! first within 100 ms of the first record, then one a second or each 16 k rows. It is also the only one to flush
//! CUPTI, since two at a time deadlock.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::now;
use gputrace_trace::options::DEFAULT_MEMORY_BYTES;
use gputrace_trace::tables;
use gputrace_trace::time::clock_snapshot;
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter};

use crate::buffers;
use crate::cost;
use crate::cupti::Cupti;
use crate::decode::{Decoder, RecordSizes};
use crate::header;
use crate::host_events;

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

/// The thread's state.
pub(crate) struct Sink {
    writer: ProcessWriter,
    header: ProcessHeader,
    header_changed: bool,
    header_written: Instant,
    cupti: Option<Cupti>,
    decoder: Decoder,
    dump: Option<PathBuf>,
    host_events: host_events::Rows,
    /// When rows were last written that filled no batch; `None` before the first.
    written: Option<Instant>,
    disk_complained: bool,
}

impl Sink {
    /// Starts the thread.
    pub(crate) fn start(
        writer: ProcessWriter,
        header: ProcessHeader,
        cupti: Option<Cupti>,
    ) -> io::Result<()> {
        host_events::begin(DEFAULT_MEMORY_BYTES / host_events::SHARE_OF_MEMORY);
        let sizes = cupti
            .as_ref()
            .map_or_else(RecordSizes::default, Cupti::record_sizes);
        let names = move |kind, callback| cupti.as_ref()?.callback_name(kind, callback);
        let mut sink = Self {
            writer,
            header,
            header_changed: true,
            header_written: Instant::now(),
            cupti,
            decoder: Decoder::new(sizes, Box::new(names)),
            dump: std::env::var_os("GPUTRACE_DUMP").map(PathBuf::from),
            host_events: host_events::Rows::default(),
            written: None,
            disk_complained: false,
        };
        let body = move || {
            // A panic of ours must cost the recording only: the program's exit would wait for the mark below.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                sink.run();
            })));
            *FINISHED.lock().unwrap_or_else(PoisonError::into_inner) = true;
            FINISHED_CHANGED.notify_all();
        };
        // Signals are the program's: none is to be handled on our thread.
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are valid places; the thread inherits the mask, and ours is put back right after.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        }
        let spawned = std::thread::Builder::new()
            .name("gputrace".to_owned())
            .spawn(body);
        // SAFETY: `before` was filled in above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
        spawned.map(|_| ())
    }

    fn run(&mut self) {
        let mut flushed = Instant::now();
        let mut clocks = Instant::now();
        self.writer.tables.clocks.push(clock_snapshot());
        while !STOP.load(Ordering::Acquire) {
            self.take(TICK);
            let period = if self.written.is_some() {
                FLUSH
            } else {
                FIRST_FLUSH
            };
            if flushed.elapsed() >= period {
                flushed = Instant::now();
                if let Some(cupti) = &self.cupti {
                    cupti.flush(false);
                    cost::flushed(flushed.elapsed());
                }
                self.take(Duration::from_millis(2));
            }
            if clocks.elapsed() >= SECOND {
                clocks = Instant::now();
                self.writer.tables.clocks.push(clock_snapshot());
            }
            self.write();
        }
        self.close();
    }

    /// Decodes what has come; waits up to `patience` for it.
    fn take(&mut self, patience: Duration) {
        for full in buffers::take_full(patience) {
            if full.over_cap {
                self.lose(
                    "CUPTI buffers beyond the memory limit",
                    1,
                    "all GPU activity in them",
                );
            } else {
                self.dump(full.bytes());
                // SAFETY: CUPTI just delivered the buffer to this process, so the names in it are text.
                let decoded = unsafe { self.decoder.decode(full.bytes(), &mut self.writer) };
                cost::records_read(decoded.records);
                self.lose(
                    "operations without time stamps",
                    decoded.without_times,
                    "every time of the device",
                );
                let unread = "bytes of CUPTI records of unknown length";
                self.lose(unread, decoded.unread_bytes, "everything");
                self.rows_written(BATCH_ROWS);
            }
            buffers::recycle(&full);
            if let Some(cupti) = &self.cupti {
                let dropped = cupti.dropped();
                self.lose("CUPTI records dropped for want of buffers", dropped, "everything");
            }
        }
        if self.decoder.devices.len() != self.header.devices.len() {
            self.header.devices.clone_from(&self.decoder.devices);
            self.header_changed = true;
        }
        self.take_host_events();
    }

    fn take_host_events(&mut self) {
        self.header_changed |= self.host_events.take(&mut self.writer, &mut self.header);
    }

    fn lose(&mut self, what: &str, count: u64, affects: &str) {
        if count > 0 {
            let names = &mut self.writer.names;
            let row = tables::LossRow {
                time_ns: now(),
                what: names.intern(what),
                count,
                affects: names.intern(affects),
            };
            self.writer.tables.losses.push(row);
        }
    }

    /// Writes what is due.
    fn write(&mut self) {
        let due = self
            .written
            .map_or_else(|| self.has_events(), |written| written.elapsed() >= WRITE);
        if due {
            self.rows_written(0);
            self.written = Some(Instant::now());
        } else {
            self.rows_written(BATCH_ROWS);
        }
        if self.header_changed || self.header_written.elapsed() >= HEADER {
            self.header_changed = false;
            self.header_written = Instant::now();
            self.count_cost();
            let written = header::write(self.writer.folder(), &mut self.header);
            self.complain_of_disk(written);
        }
    }

    /// Brings the counts that only this thread knows up to date.
    fn count_cost(&mut self) {
        let (rows, bytes) = self.writer.totals();
        cost::on_disk(rows, bytes);
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
        let written = self.writer.flush(at_least.max(1));
        self.complain_of_disk(written);
        for (table, count) in self.writer.take_lost_rows() {
            self.lose(
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
            crate::session::complain(&format!("{}: {error}", self.writer.folder().display()));
        }
    }

    fn dump(&self, bytes: &[u8]) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let Some(folder) = &self.dump else { return };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let version = self.header.cupti_version.unwrap_or(0);
        let path = folder.join(format!("cupti{version}-{}-{number}.bin", self.header.pid));
        if let Err(error) = std::fs::write(&path, bytes) {
            crate::session::complain(&format!("{}: {error}", path.display()));
        }
    }

    fn close(&mut self) {
        if let Some(cupti) = &self.cupti {
            cupti.flush(true);
        }
        // Delivery is asynchronous: the last buffers may come a moment after the flush returns.
        self.take(Duration::from_millis(50));
        self.take(Duration::from_millis(5));
        let open = self.host_events.open_ranges();
        self.lose("NVTX ranges still open at the end", open, "steps and ranges");
        self.writer.tables.clocks.push(clock_snapshot());
        match self.writer.close() {
            Ok(rows) => {
                self.header.rows = rows
                    .into_iter()
                    .map(|(table, rows)| (table.to_owned(), rows))
                    .collect();
                header::close(&mut self.header);
            }
            Err(error) => self
                .header
                .notes
                .push(format!("the recording could not be closed: {error}")),
        }
        self.count_cost();
        if let Err(error) = header::write(self.writer.folder(), &mut self.header) {
            crate::session::complain(&format!("{}: {error}", self.writer.folder().display()));
        }
    }
}
