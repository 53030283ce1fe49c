//! Values: how far one goes, and whether it is worth hiding.

use super::names::Strength;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// A quotation mark with the backslashes in front of it: a string inside a string has them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Quote {
    pub(super) mark: char,
    pub(super) backslashes: usize,
}

impl Quote {
    /// The one that a text begins with.
    pub(super) fn at_start(text: &str) -> Option<Self> {
        let rest = text.trim_start_matches('\\');
        let mark = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        Some(Self {
            mark,
            backslashes: text.len() - rest.len(),
        })
    }

    pub(super) fn bytes(self) -> usize {
        self.backslashes + self.mark.len_utf8()
    }

    /// Whether a string that began with `self` ends with `other`: one with more backslashes is a part of the string, unless they
    /// are escaped backslashes.
    pub(super) fn is_ended_by(self, other: Self) -> bool {
        let own = self.backslashes;
        self.mark == other.mark
            && (other.backslashes <= own
                || (other.backslashes - own).is_multiple_of(2 * own.saturating_add(1)))
    }

    /// Where it is again in a text, from the last of its backslashes on, and behind it.
    fn end_in(self, text: &str) -> Option<(usize, usize)> {
        let mut backslashes = 0;
        for (at, c) in text.char_indices() {
            let other = Self { mark: c, backslashes };
            if c == self.mark && self.is_ended_by(other) {
                return Some((at - backslashes.min(self.backslashes), at + c.len_utf8()));
            }
            backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        }
        None
    }
}

/// What ends a value that stands in no quotes.
#[derive(Clone, Copy, Default)]
pub(super) struct Ends {
    /// It goes on to the end of the line: `name: value` of YAML, `name = value`, a header.
    pub(super) line: bool,
    /// A header's value, which may hold `;`.
    pub(super) header: bool,
    /// A member of JSON or of `{name: value}`.
    pub(super) member: bool,
    /// A parameter of an address.
    pub(super) query: bool,
    /// An element of XML.
    pub(super) element: bool,
    /// The quote in which name and value stand.
    pub(super) quote: Option<Quote>,
}

impl Ends {
    /// How many bytes of a text are the value that it begins with.
    pub(super) fn end_in(self, text: &str) -> usize {
        match self.end_of_strings(text) {
            0 => self.end_of_plain(text),
            end => end,
        }
    }

    /// Of strings and brackets next to each other, or joined as in Python: `"a" "b"`, `f"a" + ("b")`, `"a"'b'c`.
    fn end_of_strings(self, text: &str) -> usize {
        let (mut at, mut end) = (0, 0);
        loop {
            let rest = &text[at..];
            let prefix = rest.len()
                - rest
                    .trim_start_matches(['b', 'f', 'r', 'u', 'B', 'F', 'R', 'U', '$', '@'])
                    .len();
            let string = Some(prefix)
                .filter(|prefix| *prefix < 3)
                .and_then(|prefix| Quote::at_start(&rest[prefix..]));
            if let Some(quote) =
                string.filter(|quote| !self.quote.is_some_and(|outer| outer.is_ended_by(*quote)))
            {
                let from = at + prefix + quote.bytes();
                at = from + end_of_string(quote, &text[from..]);
            } else if rest.starts_with(['(', '[', '{']) && end == at {
                at += end_of_brackets(rest);
            } else {
                return end;
            }
            let behind = text[at..].find(|c: char| c.is_whitespace() || "\"'\\;,()[]{}<>&|#:".contains(c));
            at = behind.map_or(text.len(), |behind| at + behind);
            end = at;
            if text[at..].starts_with('(') {
                continue;
            }
            let next = skip_blanks(&text[at..]);
            let joined = ["+", "%", "or ", "\\\n"]
                .iter()
                .find(|sign| text[at + next..].starts_with(**sign));
            at += next
                + joined.map_or(0, |sign| {
                    sign.len() + skip_blanks(&text[at + next + sign.len()..])
                });
            if joined.is_some() && text[at..].starts_with(['(', '[', '{']) {
                end = at;
            }
        }
    }

    fn end_of_plain(self, text: &str) -> usize {
        let mut at = 0;
        let is_block = self.line && text.starts_with(['|', '>', '-', '&', '!']);
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            if let Some(quote) = Quote::at_start(rest) {
                if self.quote.is_some_and(|outer| outer.is_ended_by(quote)) {
                    return at;
                }
                at += quote.bytes();
                if !self.line && quote.backslashes == 0 {
                    at += end_of_string(quote, &text[at..]);
                }
                continue;
            }
            let next = rest[c.len_utf8()..].chars().next();
            let is_last = next.is_none_or(char::is_whitespace);
            let is_end = match c {
                '\n' if self.line => {
                    !(is_block && next.is_some_and(|next| next == '-' || next.is_whitespace()))
                }
                c if c.is_whitespace() => !self.line,
                ';' => !self.header && (!self.line || is_last),
                ',' => self.member || !self.header && !self.line && is_last,
                '}' | ']' => self.member,
                ')' | '`' => !self.line,
                '&' | '|' => !self.line && (self.query || is_last || next == Some(c)),
                '#' => self.query,
                '<' => self.element,
                _ => false,
            };
            if is_end && (at > 0 || c != '`') {
                return at;
            }
            at += match c {
                '\\' => {
                    let backslashes = rest.len() - rest.trim_start_matches('\\').len();
                    let is_odd = !self.line && !backslashes.is_multiple_of(2);
                    backslashes
                        + rest[backslashes..]
                            .chars()
                            .next()
                            .filter(|_| is_odd)
                            .map_or(0, char::len_utf8)
                }
                '`' => rest[1..].find('`').map_or(rest.len(), |end| end + 2),
                '$' if !self.line && matches!(next, Some('(' | '{')) => 1 + end_of_brackets(&rest[1..]),
                c => c.len_utf8(),
            };
        }
        text.len()
    }
}

/// How many blanks a text begins with; a line that goes on in the next one (`\` at its end) is one.
pub(super) fn skip_blanks(text: &str) -> usize {
    let rest = text.trim_start();
    match rest.strip_prefix("\\\n") {
        Some(rest) => text.len() - rest.trim_start().len(),
        None => text.len() - rest.len(),
    }
}

/// Behind a string whose first quote is in front of a text; one of three quotes too.
fn end_of_string(quote: Quote, text: &str) -> usize {
    let three = if quote.mark == '"' { "\"\"\"" } else { "'''" };
    if quote.backslashes == 0 && text.starts_with(&three[1..]) {
        return text[2..].find(three).map_or(text.len(), |end| end + 5);
    }
    quote.end_in(text).map_or(text.len(), |(_, behind)| behind)
}

/// Behind the bracket that closes the one a text begins with. What stands in strings closes none.
fn end_of_brackets(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(c) = text[at..].chars().next() {
        if let Some(quote) = Quote::at_start(&text[at..]) {
            at += quote.bytes();
            at += end_of_string(quote, &text[at..]);
            continue;
        }
        at += match c {
            '\\' => text[at..].len() - text[at..].trim_start_matches('\\').len(),
            c => c.len_utf8(),
        };
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// What stands in the place of a value: a single string keeps its quotes.
pub(super) fn hidden(value: &str) -> String {
    let quotes = Quote::at_start(value).and_then(|quote| {
        let (mark, inside) = value.split_at(quote.bytes());
        let (end, behind) = quote.end_in(inside)?;
        (behind == inside.len()).then(|| (mark, &inside[end..]))
    });
    let (before, after) = quotes.unwrap_or_default();
    format!("{before}{REDACTED}{after}")
}

/// Whether a value is to be hidden if its name is that of a secret.
pub(super) fn is_worth_hiding(value: &str, strength: Strength) -> bool {
    let plain = value.trim_matches(['"', '\'', '\\']);
    let is_word = [
        "true", "false", "none", "null", "yes", "no", "auto", "0", "1", "str", REDACTED,
    ]
    .iter()
    .any(|word| plain.eq_ignore_ascii_case(word));
    !plain.is_empty()
        && !is_word
        && !is_plain_variable(plain)
        && (strength == Strength::Sure || looks_random(beginning(plain)))
}

/// A variable's name, which a shell would put the value in the place of: `$NAME`, `${NAME}`.
fn is_plain_variable(value: &str) -> bool {
    let Some(name) = value.strip_prefix('$') else {
        return false;
    };
    let name = name
        .strip_prefix('{')
        .and_then(|name| name.strip_suffix('}'))
        .unwrap_or(name);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    // Names of variables of a shell are in one case; "$ecret9X" is a password.
    let is_upper = name.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_lower = name.bytes().any(|byte| byte.is_ascii_lowercase());
    !name.is_empty() && name.bytes().all(is_name) && !(is_upper && is_lower)
}

/// As much of a text as is looked at to say whether it is random: enough for a line of a program, and not so much that a text that
/// is made of names would take long.
pub(super) fn beginning(text: &str) -> &str {
    let end = (0..=text.len().min(64))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Whether letters and digits without anything between them are mixed as in no word: `Vz9kQ9wLm3Tt`, not `resnet50`.
pub(super) fn looks_random(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|run| run.len() >= 8)
        .any(|run| {
            let class = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
            let digits = run.bytes().filter(u8::is_ascii_digit).count();
            // A word may begin with a capital.
            let is_switch = |two: &[u8]| {
                class(two[0]) != class(two[1])
                    && !(two[0].is_ascii_uppercase() && two[1].is_ascii_lowercase())
            };
            let switches = run.as_bytes().windows(2).filter(|two| is_switch(two)).count();
            digits > 0 && digits < run.len() && (switches * 4 >= run.len() || run.len() >= 20)
        })
}
