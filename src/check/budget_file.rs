//! A budget as a file: TOML, and lines of TOML's look with a comparison in the equals sign's place.
//!
//!     step.p50 <= "120ms"
//!     kernel."flash_fwd*".mean <= "+3%"
//!     lost.rows = 0
//!
//! A comparison is written where TOML would want `step.p50 = "<= 120ms"`, which is read too.

use std::path::Path;

use gputrace_analyzer::check::Budget;
use toml::{Table, Value};

use crate::failure::Failure;

/// No budget is longer.
const LONGEST: u64 = 1 << 20;

/// Names by the parts between their dots, and limits.
type Lines = Vec<(Vec<String>, String)>;

/// Reads a budget.
pub fn read(path: &Path) -> Result<Budget, Failure> {
    let failed = |why: String| Failure::new(format!("{}: {why}", path.display()));
    let length = std::fs::metadata(path).map(|metadata| metadata.len());
    if length.as_ref().is_ok_and(|length| *length > LONGEST) {
        return Err(failed(format!("it is longer than any budget ({LONGEST} bytes)")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let lines = lines(&text).map_err(failed)?;
    Budget::parse(lines).map_err(failed)
}

fn lines(text: &str) -> Result<Lines, String> {
    let mut compared: Vec<(usize, Vec<String>, String)> = Vec::new();
    let mut plain = String::new();
    let mut section: Vec<String> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            section = parts(name.0)?;
        }
        if let Some((name, limit)) = comparison(trimmed) {
            let mut path = section.clone();
            path.extend(parts(name).map_err(|why| format!("line {}: {why}", number + 1))?);
            compared.push((number, path, limit));
        } else {
            plain.push_str(line);
        }
        // What TOML says of a line has its number.
        plain.push('\n');
    }
    let table: Table = plain.parse().map_err(|error: toml::de::Error| {
        let message = error.to_string();
        format!("it is no TOML: {}", message.trim().replace('\n', " "))
    })?;
    let mut lines = Lines::new();
    flatten(&table, &mut Vec::new(), &mut lines)?;
    lines.extend(compared.into_iter().map(|(_, path, limit)| (path, limit)));
    Ok(lines)
}

/// A line's name and limit, where a comparison stands between them.
fn comparison(line: &str) -> Option<(&str, String)> {
    let mut quoted = None;
    for (at, letter) in line.char_indices() {
        match (letter, quoted) {
            ('"' | '\'', None) => quoted = Some(letter),
            (letter, Some(quote)) if letter == quote => quoted = None,
            ('=' | '#', None) => return None,
            ('<' | '>', None) => {
                let sign = if line[at + 1..].starts_with('=') { 2 } else { 1 };
                let limit = line[at + sign..].split('#').next().unwrap_or_default();
                let limit = limit.trim().trim_matches(['"', '\'']);
                return Some((line[..at].trim(), format!("{} {limit}", &line[at..at + sign])));
            }
            _ => {}
        }
    }
    None
}

/// The parts of a name between its dots, of which some are quoted.
fn parts(name: &str) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    let mut quoted = None;
    for letter in name.trim().chars() {
        match (letter, quoted) {
            ('"' | '\'', None) => quoted = Some(letter),
            (letter, Some(quote)) if letter == quote => quoted = None,
            ('.', None) => parts.push(String::new()),
            (letter, None) if letter.is_whitespace() => {}
            (letter, _) => {
                if let Some(part) = parts.last_mut() {
                    part.push(letter);
                }
            }
        }
    }
    match quoted.is_some() || parts.iter().any(String::is_empty) {
        true => Err(format!(
            "{name}: write parts with dots between them, as in kernel.\"flash*\".mean"
        )),
        false => Ok(parts),
    }
}

fn flatten(table: &Table, path: &mut Vec<String>, lines: &mut Lines) -> Result<(), String> {
    for (name, value) in table {
        // "step.p50" in quotes is meant as step.p50.
        let split = if path.is_empty() {
            parts(name)?
        } else {
            vec![name.clone()]
        };
        let length = path.len();
        path.extend(split);
        match value {
            Value::Table(table) => flatten(table, path, lines)?,
            Value::String(limit) => lines.push((path.clone(), limit.clone())),
            Value::Integer(number) => lines.push((path.clone(), format!("= {number}"))),
            Value::Array(several) if several.iter().all(Value::is_str) => {
                lines.extend(
                    several
                        .iter()
                        .filter_map(Value::as_str)
                        .map(|limit| (path.clone(), limit.to_owned())),
                );
            }
            other => {
                return Err(format!(
                    "{}: a limit is text, as in \"<= 120ms\", and not {}",
                    path.join("."),
                    other.type_str()
                ));
            }
        }
        path.truncate(length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Lines {
        lines(text).unwrap()
    }

    fn line(path: &[&str], limit: &str) -> (Vec<String>, String) {
        (
            path.iter().map(|part| (*part).to_owned()).collect(),
            limit.to_owned(),
        )
    }

    #[test]
    fn comparisons_and_toml_are_read_alike() {
        let compared =
            read("step.p50 <= \"120ms\" # ours\nkernel.\"a<b*\".mean <= \"+3%\"\noverlap.min >= 0.6\n");
        assert_eq!(
            compared,
            [
                line(&["step", "p50"], "<= 120ms"),
                line(&["kernel", "a<b*", "mean"], "<= +3%"),
                line(&["overlap", "min"], ">= 0.6"),
            ]
        );
        let toml = read(
            "lost.rows = 0\n[step]\np50 = \"<= 120ms\"\n[kernel.\"a.b*\"]\nmean = '<= 3us'\n\"p99\" < 5us\n",
        );
        assert_eq!(
            toml,
            [
                line(&["lost", "rows"], "= 0"),
                line(&["step", "p50"], "<= 120ms"),
                line(&["kernel", "a.b*", "mean"], "<= 3us"),
                line(&["kernel", "a.b*", "p99"], "< 5us"),
            ]
        );
        assert_eq!(
            read("\"step.p50\" = \"<= 1s\"\n"),
            [line(&["step", "p50"], "<= 1s")]
        );
        // One name may be limited as a whole and in parts.
        assert_eq!(read("idle <= 5ms\nidle.host_late <= 1ms\n").len(), 2);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(
            lines("step.p50 = 120.5\n")
                .unwrap_err()
                .contains("a limit is text")
        );
        assert!(lines("step.p50 = \n").unwrap_err().contains("no TOML"));
        assert!(lines("step..p50 <= 1ms\n").unwrap_err().contains("line 1"));
    }
}
