//! A second opinion on the kernels of a trace, for inputs that are JSON by serde_json's word: found and counted without any
//! code of the reader's, their times by arithmetic on 128 bits.
//!
//! Only what needs no judgement is compared. An input with escapes in it, or with members of the frame that stand twice, is
//! left alone, and so are times that are written otherwise than as plain decimals.

use gputrace_trace::Recording;
use serde_json::value::RawValue;

use crate::members::Members;

/// The reader's bound of times: what is further from zero is a loss.
const LARGEST_NS: i64 = 1 << 61;
const LARGEST_US: i128 = LARGEST_NS as i128 / 1000;

/// What a trace says of its kernels.
#[derive(Debug, Default)]
pub struct Expected {
    /// Elements that are complete events of a kernel's category.
    pub events: usize,
    /// Start and duration of each that is to be kept, sorted; `None` where one is written in a way that only the reader can
    /// judge.
    pub kernels: Option<Vec<(i64, i64)>>,
}

/// A time as it is written.
enum Time {
    Nanoseconds(i128),
    OutOfRange,
    /// Absent, or something that is no plain decimal.
    Unclear,
}

/// Microseconds as plain decimals: a sign, digits, a fraction. The fourth decimal rounds the third, away from zero.
fn nanoseconds(text: &str) -> Time {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 30 || !plain(whole) || !plain(fraction) {
        return Time::Unclear;
    }
    let whole: i128 = whole.parse().unwrap_or(i128::MAX);
    if whole > LARGEST_US {
        return Time::OutOfRange;
    }
    let place = |index: usize| i128::from(fraction.as_bytes().get(index).map_or(0, |byte| byte - b'0'));
    let part = place(0) * 100 + place(1) * 10 + place(2) + i128::from(place(3) >= 5);
    Time::Nanoseconds(sign * (whole * 1000 + part))
}

/// Reads a trace with serde_json; `None` where that is no trace to it, or one that is left alone.
#[must_use]
pub fn expected(bytes: &[u8]) -> Option<Expected> {
    if bytes.contains(&b'\\') {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let (elements, base) = match text.trim_start().bytes().next()? {
        b'[' => (serde_json::from_str::<Vec<&RawValue>>(text).ok()?, 0),
        _ => {
            let frame: Members<'_> = serde_json::from_str(text).ok()?;
            if frame.count("traceEvents") != 1 || frame.count("baseTimeNanoseconds") > 1 {
                return None;
            }
            let base: i64 = match frame.value("baseTimeNanoseconds") {
                // One beyond the bound is the reader's to judge.
                Some(base) => base
                    .get()
                    .parse()
                    .ok()
                    .filter(|base: &i64| base.unsigned_abs() < LARGEST_NS as u64)?,
                None => 0,
            };
            (
                serde_json::from_str(frame.value("traceEvents")?.get()).ok()?,
                base,
            )
        }
    };
    let mut found = Expected {
        events: 0,
        kernels: Some(Vec::new()),
    };
    for element in elements {
        let Ok(event) = serde_json::from_str::<Members<'_>>(element.get()) else {
            continue;
        };
        if event.count("ph") > 1 {
            return None;
        }
        let is_kernel = matches!(event.text("cat"), Some("kernel" | "Kernel" | "mtia_ccp_events"));
        if !is_kernel || !event.text("ph").is_some_and(|phase| phase.starts_with('X')) {
            continue;
        }
        found.events += 1;
        let time = |key| nanoseconds(event.text(key).unwrap_or_default());
        match (time("ts"), time("dur")) {
            (Time::Unclear, _) | (_, Time::Unclear) => found.kernels = None,
            (Time::Nanoseconds(start), Time::Nanoseconds(duration))
                if duration >= 0 && event.count("name") > 0 =>
            {
                let shifted = (start + i128::from(base)).clamp(i64::MIN.into(), i64::MAX.into());
                if let Some(kernels) = &mut found.kernels {
                    kernels.push((shifted as i64, duration as i64));
                }
            }
            _ => {}
        }
    }
    if let Some(kernels) = &mut found.kernels {
        kernels.sort_unstable();
    }
    Some(found)
}

/// Compares a recording of one file with what was expected of it.
///
/// # Panics
/// When they differ: a bug of the reader, or of this module.
pub fn compare(expected: &Expected, recording: &Recording) {
    let mut kernels: Vec<(i64, i64)> = recording
        .processes
        .iter()
        .flat_map(|process| {
            let kernels = &process.tables.kernels;
            kernels.start_ns.iter().zip(&kernels.duration_ns)
        })
        .map(|(start, duration)| (start.0, duration.0))
        .collect();
    kernels.sort_unstable();
    let lost: u64 = recording.losses.iter().filter_map(|loss| loss.count).sum();
    assert!(
        kernels.len() <= expected.events && expected.events as u64 <= kernels.len() as u64 + lost,
        "{} events of kernels: {} kept, {lost} of all losses",
        expected.events,
        kernels.len()
    );
    if let Some(expected) = &expected.kernels {
        assert_eq!(&kernels, expected, "starts and durations of kernels");
    }
    for loss in &recording.losses {
        for words in ["no JSON", "not JSON", "ends in the middle"] {
            assert!(!loss.what.contains(words), "it is JSON, and yet: {}", loss.what);
        }
    }
}
