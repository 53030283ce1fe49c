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

/// CPU time that a process of this host has used, in nanoseconds, all its threads together; `None` when it is gone.
///
/// The clock's id is made of the process's as the kernel does it (`MAKE_PROCESS_CPUCLOCK`, `CPUCLOCK_SCHED`).
#[must_use]
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    const SCHEDULER: libc::clockid_t = 2;
    let clock = (!pid.cast_signed() << 3) | SCHEDULER;
    let mut spec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `spec` is a valid timespec for the call to fill; a process that is gone gives an error.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut spec) } != 0;
    u64::try_from(spec.tv_sec * 1_000_000_000 + spec.tv_nsec)
        .ok()
        .filter(|_| !failed)
}

/// The moment of the call. Every stamp that gputrace itself takes comes from here.
#[must_use]
pub fn now() -> TimeNs {
    TimeNs(read_clock(libc::CLOCK_REALTIME))
}

/// How far apart the clocks of one reading may be read.
const READING_NS: i64 = 20_000;

/// One reading of all clocks, taken within 20 microseconds unless each of several attempts was interrupted: what undoes
/// steps of NTP on reading.
#[must_use]
pub fn clock_snapshot() -> crate::tables::Clock {
    const ATTEMPTS: u32 = 8;
    let mut best: Option<(i64, crate::tables::Clock)> = None;
    for _ in 0..ATTEMPTS {
        let clock = crate::tables::Clock {
            realtime_ns: now(),
            monotonic_ns: read_clock(libc::CLOCK_MONOTONIC),
            boottime_ns: read_clock(libc::CLOCK_BOOTTIME),
            tsc: time_stamp_counter(),
        };
        // By a clock that no one sets.
        let took_ns =
            read_clock(libc::CLOCK_MONOTONIC) - clock.monotonic_ns + (now().0 - clock.realtime_ns.0).abs();
        if best.as_ref().is_none_or(|(least, _)| took_ns < *least) {
            best = Some((took_ns, clock));
        }
        if took_ns <= READING_NS {
            break;
        }
    }
    best.map(|(_, clock)| clock).unwrap_or_default()
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
