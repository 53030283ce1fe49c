//! Numbers as people read them.

/// A count with separators: 1234567 is "1,234,567".
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A length of time in the unit that gives three or four digits: "1.234 ms".
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

/// A bandwidth given in GB/s (10^9): "15.70 GB/s", and what is too slow for three digits of it in MB/s or kB/s.
pub fn gigabytes_per_second(value: f64) -> String {
    let (value, unit) = match value {
        _ if value >= 0.995 || value <= 0.0 => (value, "GB/s"),
        _ if value >= 0.000_995 => (value * 1e3, "MB/s"),
        _ => (value * 1e6, "kB/s"),
    };
    format!("{value:.2} {unit}")
}

/// A ratio as a percentage, a dash where it is not known.
pub fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
}

/// Text of a trace for one line of a terminal: control characters, line breaks and marks that turn the direction of writing
/// replaced.
pub fn one_line(text: &str) -> String {
    let speaks = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(speaks) {
        text.replace(speaks, "\u{fffd}")
    } else {
        text.to_owned()
    }
}

/// Text cut to `width` characters, with an ellipsis where something was cut.
pub fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Text broken into lines of at most `width` characters, at spaces; a longer word stands alone.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
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
    fn lines_break_at_spaces() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible", 8), ["incomprehensible"]);
    }

    #[test]
    fn long_names_are_cut_at_characters() {
        assert_eq!(shorten("abcdef", 4), "abc…");
        assert_eq!(shorten("äöü", 3), "äöü");
    }
}
