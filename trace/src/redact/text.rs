//! Texts with options, assignments and headers in them: words of a command line, which may be scripts themselves.

use super::names::{self, Strength, is_of_name};
use super::values::{self, Ends, Quote, REDACTED, is_worth_hiding};

/// Options of programs that take a password, or a user and a password, and whose names don't say so.
const PROGRAMS: [(&str, &[&str]); 9] = [
    ("curl", &["-u", "--user", "-U", "--proxy-user", "-b"]),
    ("sshpass", &["-p"]),
    ("mysql", &["-p"]),
    ("mysqldump", &["-p"]),
    ("mysqladmin", &["-p"]),
    ("mariadb", &["-p"]),
    ("login", &["-p"]),
    ("redis-cli", &["-a"]),
    ("smbclient", &["-U"]),
];

/// What the next word of a command line is.
#[derive(Clone, Copy, Default)]
enum Next {
    #[default]
    Unknown,
    /// The one before was a name: the sign of an assignment may come, or the value as in `git config user.token X`.
    BehindName(Strength),
    Value(Strength),
}

/// Goes through the words of a command line, or one text.
#[derive(Default)]
pub(super) struct Reader {
    next: Next,
    /// The options of the program whose words come.
    options: &'static [&'static str],
    /// A name of a secret stood alone: its value comes as `value`, as in `{"name": "HF_TOKEN", "value": "X"}`.
    alone: Option<Strength>,
    /// A text of ~/.netrc: `machine HOST login USER password X`.
    is_netrc: bool,
}

/// Whether a word is an option, and so no value: a secret may begin with dashes too, but has more behind one, or more than two, or looks
/// random.
fn is_option(word: &str) -> bool {
    (word.starts_with("--") && !word.starts_with("---") || word.starts_with('-') && word.len() <= 2)
        && !values::looks_random(values::beginning(word))
}

/// What comes before a secret in a header: `Bearer X`.
fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "token", "digest"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

impl Reader {
    /// A word of a command line without secrets. In a script, an assignment ends with its word; elsewhere it is the whole argument.
    pub(super) fn word(&mut self, word: &str, is_script: bool) -> String {
        let strength = match std::mem::take(&mut self.next) {
            Next::BehindName(strength) | Next::Value(strength) if matches!(word, "=" | ":") => {
                self.next = Next::Value(strength);
                return word.to_owned();
            }
            Next::Value(strength) => {
                if is_scheme(word) {
                    self.next = Next::Value(strength);
                    return word.to_owned();
                }
                strength
            }
            Next::BehindName(_) => Strength::IfRandom,
            Next::Unknown => return self.text(word, is_script),
        };
        if !is_option(word) && is_worth_hiding(word, strength) {
            return REDACTED.to_owned();
        }
        self.text(word, is_script)
    }

    pub(super) fn text(&mut self, text: &str, is_script: bool) -> String {
        let mut redacted = String::with_capacity(text.len());
        let (mut at, mut copied) = (0, 0);
        let mut open = Open::default();
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            if rest.starts_with(REDACTED) {
                at += REDACTED.len();
            } else if is_of_name(c) {
                let end = rest.find(|c| !is_of_name(c)).map_or(text.len(), |end| at + end);
                let found = self.value_behind(text, at..end, &mut open, is_script);
                at = end;
                if let Some(value) = found {
                    redacted.push_str(&text[copied..value.start]);
                    redacted.push_str(&values::hidden(&text[value.clone()]));
                    (at, copied) = (value.end, value.end);
                }
            } else if let Some(quote) = Quote::at_start(rest) {
                open.turn(quote);
                at += quote.bytes();
            } else {
                let behind = rest.trim_start_matches('\\').len().min(rest.len() - c.len_utf8());
                let is_special = |c| is_of_name(c) || matches!(c, '"' | '\'' | '\\' | '[');
                at = text.len() - behind;
                at += text[at..].find(is_special).unwrap_or(behind);
            }
        }
        redacted + &text[copied..]
    }

    /// Where the secret is whose name is at a place in a text.
    fn value_behind(
        &mut self,
        text: &str,
        place: std::ops::Range<usize>,
        open: &mut Open,
        is_script: bool,
    ) -> Option<std::ops::Range<usize>> {
        let name = &text[place.clone()];
        if let Some((_, options)) = PROGRAMS.iter().find(|(program, _)| *program == name) {
            self.options = options;
        }
        self.is_netrc |= matches!(name, "machine" | "netrc");
        let option = self.options.iter().find(|option| name.starts_with(**option));
        let is_attached = option.is_some_and(|option| option.len() == 2 && name.len() > 2);
        let known = option
            .filter(|option| is_attached || name.len() == option.len())
            .map(|_| Strength::Sure);
        let before = &text[..place.start];
        let is_query = before.ends_with(['?', '&', '#']);
        let signs = is_query
            && (name.eq_ignore_ascii_case("sig") || name.to_ascii_lowercase().ends_with("signature"));
        let strength = known
            .or_else(|| signs.then_some(Strength::Sure))
            .or_else(|| names::strength(name))
            .or_else(|| self.alone.take_if(|_| name == "value"))?;
        if is_attached {
            let start = place.start + 2;
            return self.worth(
                text,
                start,
                Ends {
                    quote: open.last(),
                    ..Ends::default()
                },
                strength,
            );
        }

        let closing = &text[place.end..];
        let closing = &closing[..closing.len() - closing.trim_start_matches(['"', '\'', '\\', ']']).len()];
        let mut around = open.clone();
        around.turn_all(closing);
        let is_quoted = closing.contains(['"', '\'']);
        let behind = place.end + closing.len();
        let after = behind + values::skip_blanks(&text[behind..]);
        let rest = &text[after..];
        let is_option_name = name.starts_with('-') || known.is_some() || name.eq_ignore_ascii_case("bearer");
        let is_netrc = self.is_netrc && name == "password";
        let sign = ["=>", ":=", "+=", "==", "!=", "=", ":", ",", ">"]
            .into_iter()
            .find(|sign| rest.starts_with(sign));
        let Some(sign) = sign else {
            if rest.is_empty() {
                self.next = if is_option_name {
                    Next::Value(strength)
                } else {
                    Next::BehindName(strength)
                };
            }
            let known = if is_option_name || is_netrc {
                strength
            } else {
                Strength::IfRandom
            };
            let ends = Ends {
                quote: around.last(),
                ..Ends::default()
            };
            let value = (after > behind)
                .then(|| self.worth(text, after, ends, known))
                .flatten();
            let value = value.filter(|value| !is_option(&text[value.clone()]));
            if value.is_none() {
                self.alone = Some(strength);
            } else {
                *open = around;
            }
            return value;
        };
        let start = after + sign.len();
        let start = start + values::skip_blanks(&text[start..]);
        if start == text.len() {
            self.next = Next::Value(strength);
            return None;
        }
        let is_string = text[start..].starts_with(['"', '\'', '\\', '(', '[', '{']);
        let is_spaced = after > behind;
        let ends = Ends {
            line: !is_query && (sign == ":" || is_spaced),
            header: names::is_long_header(name),
            member: is_quoted || sign == ":" && before.trim_end().ends_with(['{', ',']),
            query: is_query,
            element: sign == ">",
            quote: around.last(),
        };
        let strength = match sign {
            "," if !is_quoted || !is_string => {
                self.alone = Some(strength);
                return None;
            }
            "," if before.trim_end_matches(['"', '\'', '\\']).ends_with('(') => strength,
            ">" if !before.ends_with('<') => return None,
            // `secrets:/run/secrets` is a place to mount, and `secret://host` an address.
            ":" if !is_spaced && text[start..].starts_with('/') => return None,
            "," | "==" | "!=" => Strength::IfRandom,
            _ if names::is_bare_token(name) && !is_string && ends.line && !name.starts_with('-') => {
                Strength::IfRandom
            }
            _ => strength,
        };
        let is_whole = sign == "=" && place.start == 0 && !is_script && !is_spaced && !is_quoted;
        let value = if is_whole && is_worth_hiding(&text[start..], strength) {
            Some(start..text.len()).filter(|_| !text[start..].starts_with(REDACTED))
        } else {
            self.worth(text, start, ends, strength)
        };
        if value.is_some() {
            *open = around;
        } else if sign == "," {
            self.alone = Some(strength);
        }
        value
    }

    /// A value, if it is worth hiding and not hidden yet.
    fn worth(
        &mut self,
        text: &str,
        start: usize,
        ends: Ends,
        strength: Strength,
    ) -> Option<std::ops::Range<usize>> {
        let rest = &text[start..];
        let is_hidden = rest.trim_start_matches(['"', '\'', '\\']).starts_with(REDACTED);
        let is_hopeless = strength == Strength::IfRandom && !values::looks_random(values::beginning(rest));
        if is_hidden || is_hopeless {
            return None;
        }
        let end = start + ends.end_in(rest);
        is_worth_hiding(&text[start..end], strength).then_some(start..end)
    }
}

/// The quotes that are open, outermost first.
#[derive(Clone, Default)]
struct Open(Vec<Quote>);

impl Open {
    /// Strings in strings deeper than this are taken for the outermost ones.
    const DEEPEST: usize = 8;

    /// A quote ends a string and all in it, or begins one.
    fn turn(&mut self, quote: Quote) {
        match self.0.iter().position(|open| open.is_ended_by(quote)) {
            Some(place) => self.0.truncate(place),
            None if self.0.len() < Self::DEEPEST => self.0.push(quote),
            None => self.0.clear(),
        }
    }

    fn turn_all(&mut self, mut text: &str) {
        while let Some(c) = text.chars().next() {
            match Quote::at_start(text) {
                Some(quote) => {
                    self.turn(quote);
                    text = &text[quote.bytes()..];
                }
                None => text = &text[(text.len() - text.trim_start_matches('\\').len()).max(c.len_utf8())..],
            }
        }
    }

    fn last(&self) -> Option<Quote> {
        self.0.last().copied()
    }
}
