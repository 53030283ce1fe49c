//! Numbers as people read them, the same in a terminal, on a page and in what findings say.

/// A count with separators: 1234567 is "1,234,567".
#[must_use]
pub fn thousands(count: u64) -> String {
    grouped(count, ',')
}

/// A count with its digits in groups of three.
#[must_use]
pub fn grouped(count: u64, separator: char) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

/// A length of time, given in nanoseconds, in the unit that gives three or four digits: "1.23 ms".
#[must_use]
pub fn duration(ns: i64) -> String {
    let magnitude = ns.unsigned_abs();
    let value = ns as f64;
    match magnitude {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.3} s", value / 1e9),
    }
}

/// Bytes in the unit that gives up to four digits: "1.5 MiB".
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    let text = if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    };
    format!("{text} {unit}")
}

/// A bandwidth given in GB/s (10^9 bytes a second): "15.70 GB/s", and what is too slow for three digits of it in MB/s or kB/s.
#[must_use]
pub fn gigabytes_per_second(value: f64) -> String {
    let (value, unit) = match value {
        _ if value >= 0.995 || value <= 0.0 => (value, "GB/s"),
        _ if value >= 0.000_995 => (value * 1e3, "MB/s"),
        _ => (value * 1e6, "kB/s"),
    };
    format!("{value:.2} {unit}")
}

/// A number with three digits that count.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = if value <= 0.0 {
        0.0
    } else {
        (2.0 - value.log10().floor()).clamp(0.0, 9.0)
    };
    format!("{value:.*}", decimals as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_get_separators() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }

    #[test]
    fn lengths_of_time_choose_their_unit() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_500), "1.50 µs");
        assert_eq!(duration(-2_500_000), "-2.50 ms");
        assert_eq!(duration(3_000_000_000), "3.000 s");
    }

    #[test]
    fn bytes_choose_their_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(150 * (1 << 20) + 1), "150 MiB");
    }

    #[test]
    fn slow_bandwidths_keep_three_digits() {
        assert_eq!(gigabytes_per_second(15.7), "15.70 GB/s");
        assert_eq!(gigabytes_per_second(0.0012), "1.20 MB/s");
        assert_eq!(gigabytes_per_second(0.000_001_5), "1.50 kB/s");
        assert_eq!(gigabytes_per_second(0.0), "0.00 GB/s");
    }
}
