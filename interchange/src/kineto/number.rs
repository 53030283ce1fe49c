//! Decimal text to integers, exactly: microseconds with a fraction become nanoseconds without passing through a float.

/// A number that is not there or can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoNumber {
    /// Not a number at all: `NaN`, `null`, a word.
    NotANumber,
    /// Beyond what nanoseconds in 62 bits can say.
    OutOfRange,
}

/// Times beyond this (73 years around zero, and twice the age of the epoch) are damage, and sums of them would overflow.
const LARGEST_NS: i64 = 1 << 61;

/// Microseconds as text to nanoseconds. A fourth and later decimal place is rounded to the nearest nanosecond.
///
/// # Errors
/// When the text is no number, or more than [`LARGEST_NS`] from zero.
#[inline]
pub(crate) fn microseconds_to_ns(text: &[u8]) -> Result<i64, NoNumber> {
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        _ => (false, text),
    };
    let mut whole: i64 = 0;
    let mut at = 0;
    while let Some(digit) = digits
        .get(at)
        .map(|byte| byte.wrapping_sub(b'0'))
        .filter(|digit| *digit < 10)
    {
        // 2^61 ns are 16 digits of microseconds: eighteen can't overflow, and more are out of range.
        if at >= 18 && whole > LARGEST_NS / 1000 {
            return Err(NoNumber::OutOfRange);
        }
        whole = whole * 10 + i64::from(digit);
        at += 1;
        if at > 30 {
            return slow(text);
        }
    }
    if at == 0 {
        return Err(NoNumber::NotANumber);
    }
    let mut fraction: i64 = 0;
    if digits.get(at) == Some(&b'.') {
        at += 1;
        let mut place = 0;
        while let Some(digit) = digits
            .get(at)
            .map(|byte| byte.wrapping_sub(b'0'))
            .filter(|digit| *digit < 10)
        {
            match place {
                0..3 => fraction = fraction * 10 + i64::from(digit),
                3 => fraction += i64::from(digit >= 5),
                _ => {}
            }
            place += 1;
            at += 1;
        }
        for _ in place..3 {
            fraction *= 10;
        }
    }
    if at != digits.len() {
        return slow(text);
    }
    if whole > LARGEST_NS / 1000 {
        return Err(NoNumber::OutOfRange);
    }
    let ns = whole * 1000 + fraction;
    Ok(if negative { -ns } else { ns })
}

/// The number that `text` begins with, of up to 18 digits, and how many they are. Eight digits are read at once, as bytes of one
/// word whose neighbours are added up.
#[inline]
pub(crate) fn leading_digits(text: &[u8]) -> (u64, usize) {
    const POWERS: [u64; 9] = [
        1,
        10,
        100,
        1000,
        10_000,
        100_000,
        1_000_000,
        10_000_000,
        100_000_000,
    ];
    let each = |byte: u8| u64::from_le_bytes([byte; 8]);
    let (mut value, mut length) = (0u64, 0);
    while length < 16
        && let Some(bytes) = text[length..].first_chunk()
    {
        let word = u64::from_le_bytes(*bytes);
        // A digit is 3 in its upper half, and still is with 6 more. A byte that carries into the next is none itself.
        let high = each(0xf0);
        let others = ((word & high) ^ each(b'0')) | ((word.wrapping_add(each(6)) & high) ^ each(b'0'));
        let digits = (others.trailing_zeros() / 8) as usize;
        if digits == 0 {
            return (value, length);
        }
        let word = (word << (64 - 8 * digits)) & each(0x0f);
        let pairs = (word.wrapping_mul(10) + (word >> 8)) & 0x00ff_00ff_00ff_00ff;
        let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
        let eight = (fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff;
        value = value * POWERS[digits] + eight;
        length += digits;
        if digits < 8 {
            return (value, length);
        }
    }
    while length < 18
        && let Some(digit @ 0..10) = text.get(length).map(|byte| byte.wrapping_sub(b'0'))
    {
        value = value * 10 + u64::from(digit);
        length += 1;
    }
    (value, length)
}

/// The nanoseconds that `text` begins with as microseconds with up to three decimal places, and its length; `None` where
/// [`microseconds_to_ns`] has to look.
#[inline]
pub(crate) fn leading_microseconds(text: &[u8]) -> Option<(i64, usize)> {
    let (whole, mut length) = leading_digits(text);
    let whole = i64::try_from(whole).ok()?;
    if length == 0 || whole > LARGEST_NS / 1000 {
        return None;
    }
    let mut ns = whole * 1000;
    if text.get(length) == Some(&b'.') {
        let (fraction, places) = leading_digits(&text[length + 1..]);
        let scale = [1, 100, 10, 1].get(places)?;
        ns += i64::try_from(fraction).ok()? * scale;
        length += 1 + places;
    }
    Some((ns, length))
}

/// Numbers with an exponent or with very many digits.
#[cold]
fn slow(text: &[u8]) -> Result<i64, NoNumber> {
    if let Some(ns) = with_exponent(text) {
        return Ok(ns);
    }
    let value: f64 = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.bytes().any(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or(NoNumber::NotANumber)?;
    let ns = (value * 1000.0).round();
    if ns.abs() < LARGEST_NS as f64 {
        Ok(ns as i64)
    } else {
        Err(NoNumber::OutOfRange)
    }
}

/// "1.25e3" by moving its point: no digit passes through a float.
fn with_exponent(text: &[u8]) -> Option<i64> {
    let at = text.iter().position(|byte| matches!(byte, b'e' | b'E'))?;
    let exponent: i64 = std::str::from_utf8(&text[at + 1..]).ok()?.parse().ok()?;
    let (negative, digits) = match text[..at].strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, &text[..at]),
    };
    let point = digits
        .iter()
        .position(|byte| *byte == b'.')
        .unwrap_or(digits.len());
    let mut all: Vec<u8> = digits.iter().copied().filter(|byte| *byte != b'.').collect();
    let points = digits.len() - all.len();
    if points > 1
        || !(-40..=40).contains(&exponent)
        || all.is_empty()
        || all.len() > 40
        || !all.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    let point = i64::try_from(point).ok()? + exponent;
    // A digit before the point, whichever way it moved.
    let zeros = usize::try_from((1 - point).max(0)).ok()?;
    all.splice(0..0, std::iter::repeat_n(b'0', zeros));
    let point = usize::try_from(point.max(1)).ok()?;
    while all.len() < point {
        all.push(b'0');
    }
    all.insert(point, b'.');
    let ns = microseconds_to_ns(&all).ok()?;
    Some(if negative { -ns } else { ns })
}

/// An integer; a fraction of zeros is allowed ("7.0").
#[inline]
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        _ => (false, text),
    };
    let mut value: i64 = 0;
    for (index, &byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            value = value.checked_mul(10)?.checked_add(i64::from(digit))?;
        } else if index > 0 && byte == b'.' && digits[index + 1..].iter().all(|byte| *byte == b'0') {
            break;
        } else {
            let value = float(text)?;
            let is_whole = value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64;
            return is_whole.then_some(value as i64);
        }
    }
    (!digits.is_empty()).then_some(if negative { -value } else { value })
}

/// A number with a fraction; `None` for what is none, `NaN` and infinities among it.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_nanosecond_is_lost() {
        assert_eq!(
            microseconds_to_ns(b"4458676522690.655"),
            Ok(4_458_676_522_690_655)
        );
        assert_eq!(
            microseconds_to_ns(b"1694128201427784"),
            Ok(1_694_128_201_427_784_000)
        );
        assert_eq!(
            microseconds_to_ns(b"1790000000000000.123"),
            Ok(1_790_000_000_000_000_123)
        );
        assert_eq!(microseconds_to_ns(b"0.1"), Ok(100));
        assert_eq!(
            microseconds_to_ns(b"1.6941282014284835e15"),
            Ok(1_694_128_201_428_483_500)
        );
        assert_eq!(microseconds_to_ns(b"-12e-2"), Ok(-120));
        assert_eq!(microseconds_to_ns(b"1.5E+3"), Ok(1_500_000));
        assert_eq!(microseconds_to_ns(b"5e-1"), Ok(500));
        assert_eq!(microseconds_to_ns(b"1.2.3e4"), Err(NoNumber::NotANumber));
        assert_eq!(microseconds_to_ns(b"-2.5"), Ok(-2_500));
        assert_eq!(microseconds_to_ns(b"1.0005"), Ok(1_001));
        assert_eq!(microseconds_to_ns(b"1.9996"), Ok(2_000));
        assert_eq!(microseconds_to_ns(b"1.5e3"), Ok(1_500_000));
        assert_eq!(microseconds_to_ns(b"3."), Ok(3_000));
    }

    #[test]
    fn what_is_no_time_says_so() {
        for text in ["NaN", "null", "", "-", "Infinity", "nan", "abc", "."] {
            assert_eq!(
                microseconds_to_ns(text.as_bytes()),
                Err(NoNumber::NotANumber),
                "{text}"
            );
        }
        for text in [
            "9223372036854775808",
            "1e30",
            "123456789012345678901234567890123456",
            "-9223372036854775808",
        ] {
            assert_eq!(
                microseconds_to_ns(text.as_bytes()),
                Err(NoNumber::OutOfRange),
                "{text}"
            );
        }
    }

    #[test]
    fn integers_are_read_as_they_are_meant() {
        assert_eq!(integer(b"42"), Some(42));
        assert_eq!(integer(b"-1"), Some(-1));
        assert_eq!(integer(b"7.0"), Some(7));
        assert_eq!(integer(b"1e3"), Some(1000));
        assert_eq!((integer(b"1.9"), integer(b"1e30")), (None, None));
        assert_eq!(integer(b"NaN"), None);
        assert_eq!(integer(b""), None);
        assert_eq!(integer(b"99999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn every_nanosecond_comes_back(ns in -LARGEST_NS + 1000..LARGEST_NS - 1000) {
            let sign = if ns < 0 { "-" } else { "" };
            let text = format!("{sign}{}.{:03}", ns.unsigned_abs() / 1000, ns.unsigned_abs() % 1000);
            prop_assert_eq!(microseconds_to_ns(text.as_bytes()), Ok(ns));
        }

        #[test]
        fn numbers_at_the_beginning_are_what_they_are_alone(
            digits in "[0-9]{0,18}",
            fraction in "(\\.[0-9]{0,3})?",
            behind in proptest::collection::vec(any::<u8>(), 0..12),
        ) {
            let text = format!("{digits}{fraction}");
            let mut bytes = text.clone().into_bytes();
            // A digit more, or a point, would be of the number.
            bytes.push(b',');
            bytes.extend(&behind);
            let (value, length) = leading_digits(&bytes);
            prop_assert_eq!((value, length), (digits.parse().unwrap_or(0), digits.len()));
            let read = leading_microseconds(&bytes);
            prop_assert_eq!(read.map(|(ns, _)| ns), microseconds_to_ns(text.as_bytes()).ok());
            prop_assert!(read.is_none_or(|(_, length)| length == text.len()));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), digits in "[-0-9.eE]{0,40}") {
            let _ = (microseconds_to_ns(&bytes), integer(&bytes), float(&bytes));
            let _ = (leading_digits(&bytes), leading_microseconds(&bytes));
            let _ = (microseconds_to_ns(digits.as_bytes()), integer(digits.as_bytes()));
        }
    }
}
