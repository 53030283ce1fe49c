//! JSON as text, without trees of values: numbers and strings appended to bytes.

use std::io::Write;

/// The decimal digits of 00 to 99.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Appends a number that is not negative.
#[inline]
pub(crate) fn push_unsigned(out: &mut Vec<u8>, mut value: u64) {
    // The longest has 20 digits.
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    while value >= 100 {
        let pair = PAIRS[(value % 100) as usize];
        value /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&pair);
    }
    if value >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[value as usize]);
    } else {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends any number of a column.
#[inline]
pub(crate) fn push_integer(out: &mut Vec<u8>, value: i128) {
    if value < 0 {
        out.push(b'-');
    }
    push_unsigned(out, u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX));
}

/// Appends nanoseconds as microseconds with three decimals, from integers alone; what is negative as 0.
#[inline]
pub(crate) fn push_microseconds(out: &mut Vec<u8>, ns: i64) {
    let ns = ns.max(0).unsigned_abs();
    push_unsigned(out, ns / 1000);
    let below = (ns % 1000) as usize;
    let [tens, ones] = PAIRS[below % 100];
    out.extend_from_slice(&[b'.', b'0' + (below / 100) as u8, tens, ones]);
}

/// Appends a finite number; JSON has no others. As many digits as tell it from all others.
pub(crate) fn push_float(out: &mut Vec<u8>, value: f64) {
    let size = value.abs();
    // Writing to a vector cannot fail.
    drop(if size != 0.0 && !(1e-5..1e16).contains(&size) {
        write!(out, "{value:e}")
    } else {
        write!(out, "{value}")
    });
}

/// Appends a number, or as a string what JSON has no number for.
pub(crate) fn push_float_or_text(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        push_float(out, value);
    } else {
        drop(write!(out, "\"{value}\""));
    }
}

/// Appends a string with its quotes. Letters stay as they are, in UTF-8: Perfetto refuses files with escaped pairs of
/// surrogates. Control characters become spaces: escaped or not, some consumers refuse them.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let replaced: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            0..0x20 | 0x7f => b" ",
            // U+0080 to U+009f, of which this is the first of two bytes.
            0xc2 if bytes.get(at + 1).is_some_and(|next| *next < 0xa0) => b" ",
            0x80..0xa0 if at > 0 && bytes[at - 1] == 0xc2 => b"",
            _ => continue,
        };
        out.extend_from_slice(&bytes[from..at]);
        out.extend_from_slice(replaced);
        from = at + 1;
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_have_all_their_nanoseconds() {
        for (ns, expected) in [
            (0, "0.000"),
            (7, "0.007"),
            (90, "0.090"),
            (1_234_567, "1234.567"),
            (-3, "0.000"),
            (i64::MAX, "9223372036854775.807"),
        ] {
            assert_eq!(text(|out| push_microseconds(out, ns)), expected);
        }
    }

    #[test]
    fn floats_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (2.0, "2"),
            (0.1, "0.1"),
            (f64::MAX, "1.7976931348623157e308"),
            (-5e-324, "-5e-324"),
            (1e16, "1e16"),
        ] {
            assert_eq!(text(|out| push_float(out, value)), expected);
        }
        assert_eq!(text(|out| push_float_or_text(out, f64::NAN)), "\"NaN\"");
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_standard_library(number in any::<u64>(), signed in any::<i64>(), shift in 0u32..64) {
            let number = number >> shift;
            prop_assert_eq!(text(|out| push_unsigned(out, number)), number.to_string());
            prop_assert_eq!(text(|out| push_integer(out, signed.into())), signed.to_string());
        }

        #[test]
        fn strings_are_what_serde_writes(text_in in any::<String>()) {
            let clean: String = text_in.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let expected = serde_json::to_string(&clean).unwrap();
            prop_assert_eq!(text(|out| push_string(out, &text_in)), expected);
        }
    }
}
