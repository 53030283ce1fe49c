//! Streams and events, with CUDA's ordering rules, each stream on a thread of its own.
//!
//! A stream's worker computes operations ahead of the modelled time by a little, so that short operations don't each
//! cost a sleep; whoever waits for an operation waits until its modelled end. All waiting blocks.
//!
//! On a loaded CPU the arithmetic may also come late. What has been enqueued in time then keeps its modelled stamps: the
//! device's clock lags behind the host's, as far as [`MOST_LAG_NS`], and hosts that wait are woken when the arithmetic
//! is done. Nothing starts before it was launched, so that the lag is gone as soon as the device has nothing to do.
//! Beyond that an operation is stretched to its real end, and counted.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{CompletedOp, Submission, busy, model, traffic};
use crate::clock::{now_ns, sleep_until};
use crate::driver::error;
use crate::{cupti, truth};

/// How far ahead of the modelled time a worker computes: a thread that is woken late is still in time then.
const AHEAD_NS: i64 = 2_000_000;
/// How late the arithmetic may be without the operation being stretched to its real end. Longer than a time slice of
/// every thread of a small machine, shorter than anything that hosts wait for with a limit.
const MOST_LAG_NS: i64 = 50_000_000;
/// Arithmetic that is later than this is counted as late.
const LATE_NS: i64 = 1_000_000;

/// One recording of an event: done at a moment of device time, once all work before it is.
#[derive(Default)]
pub(crate) struct EventRecord {
    /// Tells recordings apart, from 1 on.
    pub(crate) number: u64,
    done_ns: Mutex<Option<i64>>,
    changed: Condvar,
}

impl EventRecord {
    fn set(&self, moment_ns: i64) {
        *lock(&self.done_ns) = Some(moment_ns);
        self.changed.notify_all();
    }

    /// Blocks until the record is reached in the worker's order, and gives its device time (which may be just ahead).
    fn reached(&self) -> i64 {
        let mut done = lock(&self.done_ns);
        loop {
            if let Some(moment) = *done {
                return moment;
            }
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until the device's time has passed the record.
    pub(crate) fn wait(&self) -> i64 {
        let moment = self.reached();
        sleep_until(moment);
        moment
    }

    /// Whether the device's time has passed the record.
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.done_ns).is_some_and(|moment| moment <= now_ns())
    }

    /// The device's time of the record, if it has passed.
    pub(crate) fn moment_ns(&self) -> Option<i64> {
        (*lock(&self.done_ns)).filter(|moment| *moment <= now_ns())
    }
}

/// A CUDA event: its newest recording, if any.
#[derive(Default)]
pub(crate) struct Event {
    /// CUPTI's id of the event.
    pub(crate) id: u32,
    /// CUPTI's id of the context that it was made in, and that context's device.
    pub(crate) context: u32,
    pub(crate) device: u32,
    /// The newest recording. Waiting for the event means waiting for this one, whatever is recorded later.
    pub(crate) record: Mutex<Option<Arc<EventRecord>>>,
}

impl Event {
    /// The newest recording.
    pub(crate) fn current(&self) -> Option<Arc<EventRecord>> {
        lock(&self.record).clone()
    }
}

enum Item {
    /// With CUPTI's ticket and when it was submitted.
    Operation(Submission, u64, i64),
    Record(Arc<EventRecord>, i64),
    Wait(Arc<EventRecord>),
    HostFunction(Box<dyn FnOnce() + Send>),
    End,
}

/// A CUDA stream.
pub(crate) struct Stream {
    /// CUPTI's stream id.
    pub(crate) id: u32,
    /// CUPTI's context id.
    pub(crate) context: u32,
    /// The device.
    pub(crate) device: u32,
    /// Whether it serialises with the default stream.
    pub(crate) blocking: bool,
    /// Priority, lower is more urgent.
    pub(crate) priority: i32,
    queue: Mutex<VecDeque<Item>>,
    arrived: Condvar,
}

thread_local! {
    /// When the arithmetic of the operation that this worker runs was done, if the operation waited after that.
    static KEPT_UP_NS: Cell<Option<i64>> = const { Cell::new(None) };
}

/// The arithmetic of the running operation is done: whatever it waits for from now on does not stretch it.
pub(crate) fn arithmetic_done() {
    KEPT_UP_NS.set(Some(now_ns()));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// A stream with its worker running; without a thread for that the driver is out of memory.
    pub(crate) fn start(
        id: u32,
        context: u32,
        device: u32,
        blocking: bool,
        priority: i32,
    ) -> Result<Arc<Self>, u32> {
        let stream = Arc::new(Self {
            id,
            context,
            device,
            blocking,
            priority,
            queue: Mutex::new(VecDeque::new()),
            arrived: Condvar::new(),
        });
        let worker = Arc::clone(&stream);
        let spawned = std::thread::Builder::new()
            .name(format!("simgpu-s{id}"))
            .spawn(move || worker.work());
        if let Err(failure) = spawned {
            eprintln!("simgpu: no thread for stream {id}: {failure}");
            return Err(error::OUT_OF_MEMORY);
        }
        Ok(stream)
    }

    fn push(&self, item: Item) {
        lock(&self.queue).push_back(item);
        self.arrived.notify_one();
    }

    /// Puts an operation at the stream's end.
    pub(crate) fn submit(&self, submission: Submission) {
        let ticket = cupti::operation_launched(self.operation(&submission, 0, 0, false));
        self.push(Item::Operation(submission, ticket, now_ns()));
    }

    fn operation(&self, submission: &Submission, start_ns: i64, end_ns: i64, stretched: bool) -> CompletedOp {
        CompletedOp {
            device: self.device,
            context: self.context,
            // A graph's nodes are told of as on the stream that it was launched on.
            stream: submission
                .graph
                .as_ref()
                .map_or(self.id, |graph| graph.run.stream),
            priority: self.priority,
            correlation: submission.correlation,
            start_ns,
            end_ns,
            stretched,
            kind: submission.kind.clone(),
            graph: submission.graph.clone(),
        }
    }

    /// Records at the stream's end: done once all work before it is.
    pub(crate) fn record(&self) -> Arc<EventRecord> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let record = Arc::new(EventRecord {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            ..EventRecord::default()
        });
        self.push(Item::Record(Arc::clone(&record), now_ns()));
        record
    }

    /// Work submitted from now on waits for the record.
    pub(crate) fn wait_for(&self, record: Arc<EventRecord>) {
        self.push(Item::Wait(record));
    }

    /// Calls a host function in the stream's order.
    pub(crate) fn call(&self, function: Box<dyn FnOnce() + Send>) {
        self.push(Item::HostFunction(function));
    }

    /// Blocks until all work submitted so far is done.
    pub(crate) fn synchronize(&self) {
        self.record().wait();
    }

    /// Whether all work submitted so far is done.
    pub(crate) fn is_idle(&self) -> bool {
        // A record behind everything else is reached at once when the queue is empty.
        let record = self.record();
        if lock(&self.queue).len() > 1 {
            return false;
        }
        std::thread::yield_now();
        record.is_done()
    }

    /// Ends the worker after the work submitted so far.
    pub(crate) fn end(&self) {
        self.push(Item::End);
    }

    fn work(&self) {
        // The device's time on this stream: the modelled end of the last operation, or what was waited for.
        let mut clock_ns = 0;
        loop {
            let item = {
                let mut queue = lock(&self.queue);
                loop {
                    match queue.pop_front() {
                        Some(item) => break item,
                        None => queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner),
                    }
                }
            };
            match item {
                Item::Operation(submission, ticket, submitted_ns) => {
                    let start_ns = clock_ns.max(submitted_ns + model::LAUNCH_LATENCY_NS);
                    let op = self.run(submission, ticket, start_ns);
                    clock_ns = op.end_ns;
                    if clock_ns > now_ns() + AHEAD_NS {
                        sleep_until(clock_ns - AHEAD_NS / 2);
                    }
                    // Profilers hear of it when it is done, or shortly before.
                    cupti::operation_done(ticket, &op);
                }
                Item::Record(record, recorded_ns) => {
                    clock_ns = clock_ns.max(recorded_ns);
                    record.set(clock_ns);
                }
                Item::Wait(record) => clock_ns = clock_ns.max(record.reached()),
                Item::HostFunction(function) => {
                    sleep_until(clock_ns);
                    function();
                    clock_ns = clock_ns.max(now_ns());
                }
                Item::End => return,
            }
        }
    }

    fn run(&self, submission: Submission, ticket: u64, start_ns: i64) -> CompletedOp {
        busy::begin(self.device, self.id, &submission.kind, start_ns);
        cupti::operation_started(ticket, start_ns);
        let mut op = self.operation(&submission, start_ns, 0, false);
        let mut end_ns = (submission.work)(start_ns).max(start_ns + 1);
        let now = KEPT_UP_NS.take().unwrap_or_else(now_ns);
        let lag_ns = now - end_ns;
        let stretched = lag_ns > MOST_LAG_NS;
        if stretched {
            end_ns = now;
        }
        if lag_ns > LATE_NS {
            truth::count_late(lag_ns);
        }
        busy::end(self.device, self.id, end_ns);
        (op.end_ns, op.stretched) = (end_ns, stretched);
        traffic::count(&op);
        truth::record(&op);
        op
    }
}

/// All streams by handle.
static STREAMS: Mutex<BTreeMap<u64, Arc<Stream>>> = Mutex::new(BTreeMap::new());

/// Makes a stream known under its handle.
pub(crate) fn register_stream(handle: u64, stream: Arc<Stream>) {
    lock(&STREAMS).insert(handle, stream);
}

/// Takes a stream out of the books.
pub(crate) fn forget_stream(handle: u64) -> Option<Arc<Stream>> {
    lock(&STREAMS).remove(&handle)
}

/// All streams with their handles.
pub(crate) fn all_streams() -> Vec<(u64, Arc<Stream>)> {
    lock(&STREAMS)
        .iter()
        .map(|(handle, stream)| (*handle, Arc::clone(stream)))
        .collect()
}
