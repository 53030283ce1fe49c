//! Host time, and the stamps that CUPTI would deliver for it.
//!
//! Inside, time never jumps: it is the wall clock as it was when the process began, gone on evenly. An administrator who sets the
//! wall clock changes stamps, and neither how long a kernel runs nor when a stream has waited enough.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::config::config;

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut spec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `spec` is a valid place for the result, and the clocks that are asked for always exist.
    unsafe { libc::clock_gettime(clock, &raw mut spec) };
    spec.tv_sec * 1_000_000_000 + spec.tv_nsec
}

/// The wall clock less the monotonic one, by the reading of several that was interrupted least: a thread that lost its core between
/// the two clocks would put every stamp of the process off by that time.
fn offset_ns() -> i64 {
    let reading = |_| {
        let before_ns = clock_ns(libc::CLOCK_MONOTONIC);
        let wall_ns = clock_ns(libc::CLOCK_REALTIME);
        let took_ns = clock_ns(libc::CLOCK_MONOTONIC) - before_ns;
        (took_ns, wall_ns - before_ns - took_ns / 2)
    };
    let (_, offset_ns) = (0..READINGS).map(reading).min().unwrap_or_default();
    offset_ns
}

/// Readings of both clocks of which the quickest counts.
const READINGS: usize = 8;

/// That difference when the process began; 0 before.
static FIRST_OFFSET_NS: AtomicI64 = AtomicI64::new(0);
/// The same at the last look.
static LAST_OFFSET_NS: AtomicI64 = AtomicI64::new(0);
/// Smaller changes are slewing, or a thread that was interrupted between two clocks.
const LEAST_STEP_NS: i64 = 500_000;

/// A moment from which on the wall clock was another.
struct Step {
    since_ns: i64,
    by_ns: i64,
}

static STEPS: Mutex<Vec<Step>> = Mutex::new(Vec::new());
static WAS_SET: AtomicBool = AtomicBool::new(false);

/// Nanoseconds since 1970, as far as nobody has set the clock since the process began.
pub(crate) fn now_ns() -> i64 {
    let first_ns = match FIRST_OFFSET_NS.load(Ordering::Relaxed) {
        0 => {
            let offset_ns = offset_ns();
            match FIRST_OFFSET_NS.compare_exchange(0, offset_ns, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    LAST_OFFSET_NS.store(offset_ns, Ordering::Relaxed);
                    offset_ns
                }
                Err(first_ns) => first_ns,
            }
        }
        first_ns => first_ns,
    };
    let (monotonic_ns, wall_ns) = (clock_ns(libc::CLOCK_MONOTONIC), clock_ns(libc::CLOCK_REALTIME));
    let now_ns = first_ns + monotonic_ns;
    let last_ns = LAST_OFFSET_NS.load(Ordering::Relaxed);
    if last_ns != 0 && (wall_ns - monotonic_ns - last_ns).abs() >= LEAST_STEP_NS {
        note_step(now_ns);
    }
    now_ns
}

/// Looks whether the clock was set, more exactly than between two calls of it.
#[cold]
fn note_step(now_ns: i64) {
    let mut steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let offset_ns = offset_ns();
    let by_ns = offset_ns - LAST_OFFSET_NS.load(Ordering::Relaxed);
    if by_ns.abs() >= LEAST_STEP_NS {
        LAST_OFFSET_NS.store(offset_ns, Ordering::Relaxed);
        steps.push(Step {
            since_ns: now_ns,
            by_ns,
        });
        WAS_SET.store(true, Ordering::Release);
    }
}

/// What the wall clock said at a moment of ours.
fn wall_ns(moment_ns: i64) -> i64 {
    if !WAS_SET.load(Ordering::Acquire) {
        return moment_ns;
    }
    let steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let until = steps.iter().take_while(|step| step.since_ns <= moment_ns);
    moment_ns + until.map(|step| step.by_ns).sum::<i64>()
}

/// The stamp that CUPTI gives a true time of the host: what the wall clock said, and with the fault `clock-step` off by the step
/// once it has come.
pub(crate) fn stamp_ns(true_ns: i64) -> i64 {
    let config = config();
    let stamp_ns = wall_ns(true_ns);
    match config.clock_step {
        Some(step) if true_ns - config.started_ns >= step.after_ns => stamp_ns + step.by_ns,
        _ => stamp_ns,
    }
}

/// The stamp that is delivered for a device's true time: that of the host's, and with SIMGPU_SKEW off by an offset and a
/// drift since the start.
pub(crate) fn delivered_ns(true_ns: i64) -> i64 {
    let config = config();
    let stamp_ns = stamp_ns(true_ns);
    let Some(skew) = &config.skew else {
        return stamp_ns;
    };
    let since_start = true_ns - config.started_ns;
    stamp_ns + skew.offset_ns + (i128::from(since_start) * i128::from(skew.drift_ppm) / 1_000_000) as i64
}

/// Sleeps until a moment of [`now_ns`], if it is still to come.
pub(crate) fn sleep_until(moment_ns: i64) {
    let left = moment_ns - now_ns();
    if left > 0 {
        std::thread::sleep(std::time::Duration::from_nanos(left.unsigned_abs()));
    }
}
