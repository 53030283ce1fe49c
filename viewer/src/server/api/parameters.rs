//! Parameters of requests, and their limits.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use regex::RegexBuilder;

use super::Refusal;
use crate::timeline::MOST_LEVEL;

/// Rows of one tile: each has at most 2048 records of 20 bytes.
pub const MOST_TILE_ROWS: usize = 256;
/// Rows, or ranks, of anything else.
pub const MOST_ROWS: usize = 4096;
/// Names of one request.
pub const MOST_NAMES: usize = 1000;
/// Bins of an overview.
pub const MOST_BINS: u32 = 4096;
/// Slices or collectives of one answer.
pub const MOST_LISTED: usize = 1000;
/// Pieces of the critical path of one answer.
pub const MOST_PIECES: usize = 1 << 16;
/// Changes that are tried together.
pub const MOST_CHANGES: usize = 64;
/// Characters of a search.
const MOST_PATTERN: usize = 1000;
/// Bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// The parameters behind `?`.
///
/// # Errors
/// When one can't be read, is missing, or is not known.
pub fn query<T>(parameters: Result<Query<T>, QueryRejection>) -> Result<T, Refusal> {
    parameters
        .map(|Query(parameters)| parameters)
        .map_err(|error| Refusal::wrong(format!("parameters: {}", one_line(&error.body_text()))))
}

/// The parameters in the path.
///
/// # Errors
/// When one is no number.
pub fn path<T>(parameters: Result<Path<T>, PathRejection>) -> Result<T, Refusal> {
    parameters
        .map(|Path(parameters)| parameters)
        .map_err(|error| Refusal::wrong(format!("address: {}", one_line(&error.body_text()))))
}

fn one_line(text: &str) -> String {
    let text = text.rsplit_once(": ").map_or(text, |(_, end)| end);
    text.replace(char::is_control, " ")
}

/// "0-5,9" as numbers, each once, in their order.
///
/// # Errors
/// When it is something else, or too many.
pub fn numbers(text: &str, most: usize) -> Result<Vec<u32>, Refusal> {
    let wrong = || Refusal::wrong("numbers are written like 0-5,9");
    let too_many = || {
        Refusal::new(
            axum::http::StatusCode::PAYLOAD_TOO_LARGE,
            format!("at most {most} at a time"),
        )
    };
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| wrong())?;
        let last: u32 = last.parse().map_err(|_| wrong())?;
        if last < first {
            return Err(wrong());
        }
        if (last - first) as usize >= most {
            return Err(too_many());
        }
        numbers.extend(first..=last);
        if numbers.len() > most {
            return Err(too_many());
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// Rows or ranks, where only some are asked for.
///
/// # Errors
/// When they are not written as [`numbers`] are, or too many.
pub fn chosen(text: Option<String>) -> Result<Option<Vec<u32>>, Refusal> {
    text.map(|text| numbers(&text, MOST_ROWS)).transpose()
}

/// A level of tiles.
///
/// # Errors
/// When there is no such level.
pub fn level(level: u32) -> Result<u32, Refusal> {
    if level > MOST_LEVEL {
        return Err(Refusal::wrong(format!("level must be 0 to {MOST_LEVEL}")));
    }
    Ok(level)
}

/// A stretch of time that may be empty.
///
/// # Errors
/// When it ends before it begins.
pub fn window(from: i64, to: i64) -> Result<(i64, i64), Refusal> {
    if to < from {
        return Err(Refusal::wrong("to must not be before from"));
    }
    Ok((from, to))
}

/// "0" or "1".
///
/// # Errors
/// When it is something else.
pub fn flag(value: Option<u8>, name: &str) -> Result<bool, Refusal> {
    match value {
        None | Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(_) => Err(Refusal::wrong(format!("{name} must be 0 or 1"))),
    }
}

/// How many at most.
///
/// # Errors
/// When it is none, or more than `most`.
pub fn limit(value: Option<usize>, otherwise: usize, most: usize) -> Result<usize, Refusal> {
    let limit = value.unwrap_or(otherwise);
    if limit > most {
        return Err(Refusal::wrong(format!("limit must be at most {most}")));
    }
    Ok(limit)
}

/// The steps "A-B", or "A" alone.
///
/// # Errors
/// When it is something else.
pub fn steps(text: &str) -> Result<(u64, u64), Refusal> {
    let wrong = || Refusal::wrong("steps are written like 3-7");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first: u64 = first.parse().map_err(|_| wrong())?;
    let last: u64 = last.parse().map_err(|_| wrong())?;
    if last < first {
        Err(wrong())
    } else {
        Ok((first, last))
    }
}

/// What to search for: words as they are, or a regular expression, which takes time linear in the text.
///
/// # Errors
/// When it is too long, or no expression.
pub fn pattern(text: &str, is_regex: bool, with_case: bool) -> Result<regex::Regex, Refusal> {
    if text.is_empty() || text.len() > MOST_PATTERN {
        return Err(Refusal::wrong(format!("q must have 1 to {MOST_PATTERN} bytes")));
    }
    let escaped = regex::escape(text);
    RegexBuilder::new(if is_regex { text } else { &escaped })
        .case_insensitive(!with_case)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => Refusal::wrong("the expression is too large"),
            other => {
                // Its last line says what is wrong, those before it where.
                let text = other.to_string();
                let last = text.lines().last().unwrap_or_default();
                Refusal::wrong(format!(
                    "not a regular expression: {}",
                    last.trim_start_matches("error: ")
                ))
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers() {
        let numbers = |text| numbers(text, 10).ok();
        assert_eq!(numbers("0-2,9"), Some(vec![0, 1, 2, 9]));
        assert_eq!(numbers("3,1,3"), Some(vec![1, 3]));
        assert_eq!(numbers(""), Some(vec![]));
        for wrong in ["x", "1-", "-1", "3-1", "1 2", "1-2-3", "99999999999"] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
        assert_eq!(numbers("0-9"), Some((0..10).collect()));
        assert_eq!(numbers("0-10"), None);
        assert_eq!(numbers("0-4294967295"), None);
        assert_eq!(numbers("0-5,6-11"), None);
    }

    #[test]
    fn patterns() {
        let matches = |text: &str, is_regex, with_case| {
            pattern(text, is_regex, with_case)
                .unwrap()
                .is_match("gemm<float>(A)")
        };
        assert!(matches("FLOAT>(", false, false) && !matches("FLOAT", false, true));
        assert!(matches("^gemm.*\\)$", true, true));
        for wrong in ["(", "a{1000}{1000}{1000}", ""] {
            assert!(pattern(wrong, true, false).is_err(), "{wrong}");
        }
        assert!(pattern(&"a".repeat(2000), false, false).is_err());
    }

    #[test]
    fn chosen_steps() {
        assert_eq!(steps("3-7").ok(), Some((3, 7)));
        assert_eq!(steps("3").ok(), Some((3, 3)));
        for wrong in ["", "7-3", "a-b", "1-2-3", "-1"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
    }
}
