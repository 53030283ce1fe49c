//! Writing JSON: a few functions that put text together.

use std::fmt::Write as _;

/// A string, quoted and escaped.
pub(super) fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter < ' ' => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// A number, to six places; what is none (infinite, not a number) is null.
pub(super) fn number(value: f64) -> String {
    if value.is_finite() {
        ((value * 1e6).round() / 1e6).to_string()
    } else {
        "null".to_owned()
    }
}

/// What may be missing.
pub(super) fn optional(value: Option<String>) -> String {
    value.unwrap_or_else(|| "null".to_owned())
}

/// An object of members whose values are JSON already.
pub(super) fn object(members: &[(&str, String)]) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|(name, value)| format!("{}: {value}", string(name)))
        .collect();
    format!("{{{}}}", members.join(", "))
}

/// An array of values that are JSON already, a line each.
pub(super) fn array(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<_> = values.into_iter().collect();
    if values.is_empty() {
        return "[]".to_owned();
    }
    format!("[\n  {}\n]", values.join(",\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_nest() {
        let inner = array([number(1.5), number(f64::NAN), optional(None)]);
        let text = object(&[("a \"b\"\n", string("c\\d")), ("list", inner)]);
        assert_eq!(
            text,
            "{\"a \\\"b\\\"\\u000a\": \"c\\\\d\", \"list\": [\n  1.5,\n  null,\n  null\n]}"
        );
    }
}
