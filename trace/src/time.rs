//! Points and lengths of time, in nanoseconds, and the clock they are read from.

use std::ops::{Add, Sub};

/// A point in time: nanoseconds since the Unix epoch by `CLOCK_REALTIME`, the clock that CUPTI stamps with on Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct TimeNs(pub i64);

/// A length of time in nanoseconds. Negative where a clock stepped back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DurationNs(pub i64);

impl Sub for TimeNs {
    type Output = DurationNs;
    fn sub(self, earlier: Self) -> DurationNs {
        DurationNs(self.0.saturating_sub(earlier.0))
    }
}

impl Add<DurationNs> for TimeNs {
    type Output = TimeNs;
    fn add(self, length: DurationNs) -> TimeNs {
        TimeNs(self.0.saturating_add(length.0))
    }
}

fn read_clock(clock: libc::clockid_t) -> i64 {
    let mut spec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `spec` is a valid timespec for the call to fill; the clock ids used here exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut spec) };
    spec.tv_sec * 1_000_000_000 + spec.tv_nsec
}

/// The moment of the call. Every stamp that gputrace itself takes comes from here.
#[must_use]
pub fn now() -> TimeNs {
    TimeNs(read_clock(libc::CLOCK_REALTIME))
}

/// One reading of all clocks, taken within a microsecond: what undoes steps of NTP on reading.
#[must_use]
pub fn clock_snapshot() -> crate::tables::Clock {
    crate::tables::Clock {
        realtime_ns: now(),
        monotonic_ns: read_clock(libc::CLOCK_MONOTONIC),
        boottime_ns: read_clock(libc::CLOCK_BOOTTIME),
        tsc: time_stamp_counter(),
    }
}

/// The processor's time stamp counter; `None` on processors other than x86-64.
fn time_stamp_counter() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC exists on every x86-64 processor and touches no memory.
        Some(unsafe { core::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}
