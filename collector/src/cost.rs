//! What recording costs, measured by the collector itself.
//!
//! Counters are relaxed atomics. Time inside callbacks is sampled: on each thread the first call of each kind and then
//! each 64th is timed, and stands for those since the sample before it; a call between two samples costs one count in
//! thread-local memory and touches nothing that threads share.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gputrace_trace::manifest::{CallbackCost, CollectorCost};

/// Why the program's threads come into this library. The numbers are places in the tables below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callback {
    /// CUPTI wants a buffer or gives one back.
    Buffer = 0,
    /// A call of NVTX.
    Nvtx = 1,
    /// A call of NCCL's profiler plugin.
    Nccl = 2,
    /// A callback of a driver or runtime call.
    Call = 3,
    /// Any other callback of CUPTI: graphs, states.
    Other = 4,
    /// A call that puts work on a device begins or ends, and its stack is wanted.
    Stack = 5,
}

const KINDS: usize = 6;
const NAMES: [&str; KINDS] = ["buffers", "nvtx", "nccl", "calls", "others", "stacks"];
/// One call in so many is timed. Buffers come so seldom that each is.
const EVERY: [u32; KINDS] = [1, 64, 64, 64, 64, 64];

struct Counted {
    /// Calls up to each thread's last sample.
    calls: AtomicU64,
    samples: AtomicU64,
    /// Ticks of the samples, each times the calls that it stands for.
    ticks: AtomicU64,
    longest_ticks: AtomicU64,
}

static CALLBACKS: [Counted; KINDS] = [const {
    Counted {
        calls: AtomicU64::new(0),
        samples: AtomicU64::new(0),
        ticks: AtomicU64::new(0),
        longest_ticks: AtomicU64::new(0),
    }
}; KINDS];

static OWN_CPU_NS: AtomicU64 = AtomicU64::new(0);
static BUFFERS_REQUESTED: AtomicU64 = AtomicU64::new(0);
static BUFFERS_COMPLETED: AtomicU64 = AtomicU64::new(0);
static BUFFERS_REFUSED: AtomicU64 = AtomicU64::new(0);
static BYTES_FROM_CUPTI: AtomicU64 = AtomicU64::new(0);
static RECORDS: AtomicU64 = AtomicU64::new(0);
static FOLDED_CALLS: AtomicU64 = AtomicU64::new(0);
static ROWS: AtomicU64 = AtomicU64::new(0);
static BYTES_WRITTEN: AtomicU64 = AtomicU64::new(0);
static MEMORY: AtomicU64 = AtomicU64::new(0);
static PEAK_MEMORY: AtomicU64 = AtomicU64::new(0);
static FLUSHES: AtomicU64 = AtomicU64::new(0);
static FLUSH_NS: AtomicU64 = AtomicU64::new(0);
static LONGEST_FLUSH_NS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Calls of each kind until the next that is timed; 0 before the first.
    static UNTIL_SAMPLE: [Cell<u32>; KINDS] = const { [const { Cell::new(0) }; KINDS] };
    static OWN_CPU_SEEN_NS: Cell<u64> = const { Cell::new(0) };
}

/// A cheap clock: the processor's counter, or nanoseconds where there is none that we know.
#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the time stamp counter. Linux leaves it to programs, but for those that forbid it to themselves
    // (PR_SET_TSC), which no call of clock_gettime survives either.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: reads the virtual counter, which Linux leaves to programs.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
        count
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place is valid for the result.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Ticks and monotonic nanoseconds at one moment: the beginning, from which the length of a tick is known later.
static BEGINNING: OnceLock<(u64, u64)> = OnceLock::new();

/// Begins to measure. What comes before it is counted too, but the time it took can be told only after it.
pub(crate) fn begin() {
    BEGINNING.get_or_init(|| (ticks(), clock_ns(libc::CLOCK_MONOTONIC)));
}

/// A callback that is being measured, or is one of those between the samples.
#[must_use = "the callback is measured until this is dropped"]
pub(crate) struct Measured {
    callback: Callback,
    /// How many calls it stands for; 0 for one that is not timed.
    stands_for: u32,
    began: u64,
}

/// Enters a callback: to be called first in it, and the result kept until its end.
#[inline]
pub(crate) fn enter(callback: Callback) -> Measured {
    let kind = callback as usize;
    let stands_for = UNTIL_SAMPLE.with(|until| {
        let until = &until[kind];
        match until.get() {
            // This thread's first.
            0 => {
                until.set(EVERY[kind]);
                1
            }
            1 => {
                until.set(EVERY[kind]);
                EVERY[kind]
            }
            left => {
                until.set(left - 1);
                0
            }
        }
    });
    Measured {
        callback,
        stands_for,
        began: if stands_for == 0 { 0 } else { ticks() },
    }
}

impl Drop for Measured {
    #[inline]
    fn drop(&mut self) {
        if self.stands_for != 0 {
            self.count();
        }
    }
}

impl Measured {
    #[cold]
    fn count(&self) {
        let took = ticks().saturating_sub(self.began);
        let counted = &CALLBACKS[self.callback as usize];
        let calls = u64::from(self.stands_for);
        counted.calls.fetch_add(calls, Ordering::Relaxed);
        counted.samples.fetch_add(1, Ordering::Relaxed);
        counted
            .ticks
            .fetch_add(took.saturating_mul(calls), Ordering::Relaxed);
        counted.longest_ticks.fetch_max(took, Ordering::Relaxed);
    }
}

/// CUPTI asked for a buffer; `given`: and got one.
pub(crate) fn buffer_requested(given: bool) {
    BUFFERS_REQUESTED.fetch_add(1, Ordering::Relaxed);
    if !given {
        BUFFERS_REFUSED.fetch_add(1, Ordering::Relaxed);
    }
}

/// CUPTI gave a buffer back with so many bytes of records.
pub(crate) fn buffer_completed(bytes: usize) {
    BUFFERS_COMPLETED.fetch_add(1, Ordering::Relaxed);
    BYTES_FROM_CUPTI.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// So many records were read out of a buffer.
pub(crate) fn records_read(records: u64) {
    RECORDS.fetch_add(records, Ordering::Relaxed);
}

/// So many driver calls were left out as parts of runtime calls.
pub(crate) fn calls_folded(calls: u64) {
    FOLDED_CALLS.fetch_add(calls, Ordering::Relaxed);
}

/// CUPTI was asked for its buffers, which took so long.
pub(crate) fn flushed(took: Duration) {
    let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    FLUSHES.fetch_add(1, Ordering::Relaxed);
    FLUSH_NS.fetch_add(took, Ordering::Relaxed);
    LONGEST_FLUSH_NS.fetch_max(took, Ordering::Relaxed);
}

/// The collector took memory that it bounds: CUPTI's buffers, queues, rows that wait for the disk.
pub(crate) fn memory_taken(bytes: usize) {
    let now = MEMORY.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
    PEAK_MEMORY.fetch_max(now, Ordering::Relaxed);
}

/// The collector gave memory back.
pub(crate) fn memory_given_back(bytes: usize) {
    MEMORY.fetch_sub(bytes as u64, Ordering::Relaxed);
}

/// Rows and bytes on the disk so far.
pub(crate) fn on_disk(rows: u64, bytes: u64) {
    ROWS.store(rows, Ordering::Relaxed);
    BYTES_WRITTEN.store(bytes, Ordering::Relaxed);
}

/// Adds up the CPU time of the calling thread, one of the collector's own: to be called now and then, and at its end.
pub(crate) fn own_thread() {
    let now = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let before = OWN_CPU_SEEN_NS.replace(now);
    OWN_CPU_NS.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
}

/// All of it, as it stands.
pub(crate) fn so_far() -> CollectorCost {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (ticks_then, ns_then) = BEGINNING.get().copied().unwrap_or((0, 0));
    let wall_ns = clock_ns(libc::CLOCK_MONOTONIC).saturating_sub(ns_then);
    let ns_a_tick = wall_ns as f64 / ticks().saturating_sub(ticks_then).max(1) as f64;
    let mut callbacks = BTreeMap::new();
    for (name, counted) in NAMES.iter().zip(&CALLBACKS) {
        let calls = load(&counted.calls);
        if calls > 0 {
            let cost = CallbackCost {
                calls,
                samples: load(&counted.samples),
                time_ns: (load(&counted.ticks) as f64 * ns_a_tick) as u64,
                longest_ns: (load(&counted.longest_ticks) as f64 * ns_a_tick) as u64,
            };
            callbacks.insert((*name).to_owned(), cost);
        }
    }
    CollectorCost {
        wall_ns,
        process_cpu_ns: clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID),
        own_cpu_ns: load(&OWN_CPU_NS),
        callbacks,
        buffers_requested: load(&BUFFERS_REQUESTED),
        buffers_completed: load(&BUFFERS_COMPLETED),
        buffers_refused: load(&BUFFERS_REFUSED),
        bytes_from_cupti: load(&BYTES_FROM_CUPTI),
        records: load(&RECORDS),
        folded_calls: load(&FOLDED_CALLS),
        rows: load(&ROWS),
        bytes_written: load(&BYTES_WRITTEN),
        peak_memory_bytes: load(&PEAK_MEMORY),
        flushes: load(&FLUSHES),
        flush_ns: load(&FLUSH_NS),
        longest_flush_ns: load(&LONGEST_FLUSH_NS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_for_the_calls_since_the_last() {
        begin();
        // A kind that no other test of this crate enters.
        let before = so_far()
            .callbacks
            .get("others")
            .map_or((0, 0), |cost| (cost.calls, cost.samples));
        let threads = (0..4).map(|_| {
            std::thread::spawn(|| {
                for _ in 0..1000 {
                    let _measured = enter(Callback::Other);
                    std::hint::black_box(0);
                }
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            thread.join().expect("no panic");
        }
        let cost = so_far();
        let others = &cost.callbacks["others"];
        // On each thread the 1st and then each 64th: 1 + 15 * 64 = 961 calls in 16 samples.
        assert_eq!(
            (others.calls - before.0, others.samples - before.1),
            (4 * 961, 4 * 16)
        );
        assert!(others.time_ns > 0 && others.longest_ns > 0 && others.longest_ns <= others.time_ns);
    }

    #[test]
    fn a_thread_of_our_own_counts_its_cpu_time_once() {
        std::thread::spawn(|| {
            let before = so_far().own_cpu_ns;
            own_thread();
            let mut sum = 0u64;
            while clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) < 3_000_000 {
                sum = std::hint::black_box(sum + 1);
            }
            own_thread();
            own_thread();
            let used = so_far().own_cpu_ns - before;
            assert!((3_000_000..60_000_000).contains(&used), "{used} ns");
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn memory_has_a_peak() {
        memory_taken(1 << 40);
        memory_given_back(1 << 40);
        assert!(so_far().peak_memory_bytes >= 1 << 40);
    }
}
