//! Points and lengths of time, in nanoseconds, and the clock they are read from.

use std::cell::Cell;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize, Serializer};

/// A point in time: nanoseconds since the Unix epoch by `CLOCK_REALTIME`, the clock that CUPTI stamps with on Linux.
///
/// In JSON it is a number: of nanoseconds since the epoch, or within [`relative_to`] since another moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[repr(transparent)]
pub struct TimeNs(pub i64);

thread_local! {
    /// What stamps that this thread serialises count from.
    static ORIGIN_NS: Cell<i64> = const { Cell::new(0) };
}

impl Serialize for TimeNs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0.saturating_sub(ORIGIN_NS.get()))
    }
}

/// Runs `serialize` so that every [`TimeNs`] that it serialises on this thread counts from `origin`: a page's numbers have no
/// room for single nanoseconds since the epoch.
pub fn relative_to<T>(origin: TimeNs, serialize: impl FnOnce() -> T) -> T {
    /// Puts back what was, however the closure ends.
    struct Restore(i64);
    impl Drop for Restore {
        fn drop(&mut self) {
            ORIGIN_NS.set(self.0);
        }
    }
    let _restore = Restore(ORIGIN_NS.replace(origin.0));
    serialize()
}

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

/// What a clock of the system shows, in nanoseconds.
pub(crate) fn read_clock(clock: libc::clockid_t) -> i64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_count_from_the_origin_that_is_asked_for() {
        let all = (TimeNs(1005), vec![(TimeNs(990), 1005)], None::<TimeNs>);
        let text = || serde_json::to_string(&all).unwrap();
        assert_eq!(text(), "[1005,[[990,1005]],null]");
        assert_eq!(relative_to(TimeNs(1000), text), "[5,[[-10,1005]],null]");
        assert_eq!(text(), "[1005,[[990,1005]],null]");
        assert_eq!(serde_json::from_str::<TimeNs>("1005").unwrap(), TimeNs(1005));
    }
}
