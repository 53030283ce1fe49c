//! Host time, and the stamps that CUPTI would deliver for a device whose clock it converts badly.

use crate::config::config;

/// `CLOCK_REALTIME` in nanoseconds.
pub(crate) fn now_ns() -> i64 {
    let mut spec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `spec` is a valid place for the result; CLOCK_REALTIME always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut spec) };
    spec.tv_sec * 1_000_000_000 + spec.tv_nsec
}

/// The stamp that CUPTI gives a true time of the host: with the fault `clock-step`, off by the step once it has come.
pub(crate) fn stamp_ns(true_ns: i64) -> i64 {
    let config = config();
    match config.clock_step {
        Some(step) if true_ns - config.started_ns >= step.after_ns => true_ns + step.by_ns,
        _ => true_ns,
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

/// Sleeps until a moment of `CLOCK_REALTIME`, if it is still to come.
pub(crate) fn sleep_until(moment_ns: i64) {
    let left = moment_ns - now_ns();
    if left > 0 {
        std::thread::sleep(std::time::Duration::from_nanos(left.unsigned_abs()));
    }
}
