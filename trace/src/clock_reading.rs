//! Readings of all clocks at one moment, by which steps of one are undone on reading.

use crate::tables::Clock;
use crate::time::{now, read_clock};

/// How far apart the clocks of one reading may be read.
const READING_NS: i64 = 20_000;

/// One reading of all clocks, taken within 20 microseconds unless each of several attempts was interrupted: what undoes
/// steps of NTP on reading.
#[must_use]
pub fn clock_snapshot() -> Clock {
    const ATTEMPTS: u32 = 8;
    let mut best: Option<(i64, Clock)> = None;
    for _ in 0..ATTEMPTS {
        let clock = Clock {
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

/// The kernel's number of this boot of the machine; `None` where it does not say.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
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
