//! Times as names and as texts have them.

use gputrace_trace::now;

/// Nanoseconds since 1970.
#[must_use]
pub fn now_ns() -> i64 {
    now().0
}

/// A time as `20261123-213004`, in UTC: for names.
#[must_use]
pub fn stamp(time_ns: i64) -> String {
    let seconds = time_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!(
        "{year:04}{month:02}{day:02}-{:02}{:02}{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of days since 1970 (H. Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A duration in a few digits: `12.1 ms`.
#[must_use]
pub fn duration(ns: i64) -> String {
    let (value, unit) = match ns.unsigned_abs() {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0} {unit}"),
        _ => format!("{value:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_399_000_000_000), "20000228-235959");
        assert_eq!(stamp(951_782_400_000_000_000), "20000229-000000");
        assert_eq!(stamp(1_795_469_404_999_999_999), "20261123-213004");
    }

    #[test]
    fn durations_have_a_few_digits() {
        assert_eq!(duration(12_100_000), "12.1 ms");
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(2_500), "2.5 us");
        assert_eq!(duration(61_234_000_000), "61.2 s");
        assert_eq!(duration(250_400_000), "250 ms");
    }
}
