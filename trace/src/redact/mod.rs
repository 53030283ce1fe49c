//! Secrets in command lines and variables: what looks like one is not written into a recording.
//!
//! Names decide: the value of an option, a variable, a member of JSON, a header or a parameter of an address whose name says
//! that it is a secret is replaced by [`REDACTED`]. So are passwords in addresses (`scheme://user:password@host`), and values
//! that are known by their form. Names are looked at word by word, since a training program has tokenizers, maximal tokens,
//! key-value heads and sort keys, which are none.

use std::collections::BTreeMap;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Redacts the words of a command line.
pub fn command(words: &mut [String]) {
    let mut is_next_secret = false;
    for word in words {
        hide_keys(word);
        if std::mem::take(&mut is_next_secret) && !is_option(word) {
            if is_worth_hiding(word) {
                REDACTED.clone_into(word);
            }
            continue;
        }
        let mut text = Text::default();
        *word = text.redacted(word);
        is_next_secret = text.is_next_secret;
    }
}

/// Redacts the values of variables.
pub fn environment(variables: &mut BTreeMap<String, String>) {
    for (name, value) in variables {
        hide_keys(value);
        if !is_secret(name) {
            *value = Text::default().redacted(value);
        } else if is_worth_hiding(value) {
            REDACTED.clone_into(value);
        }
    }
}

/// Whether a word is an option, and so no value: a secret may begin with dashes too, but has more behind one, or more than two.
fn is_option(word: &str) -> bool {
    word.starts_with("--") && !word.starts_with("---") || word.starts_with('-') && word.len() <= 2
}

/// Hides keys and certificates in PEM (RFC 7468), whatever they are called: from "-----BEGIN" to the end of "-----END X-----".
fn hide_keys(text: &mut String) {
    const BEGIN: &str = "-----BEGIN";
    const END: &str = "-----END";
    let mut from = 0;
    while let Some(begin) = text[from..].find(BEGIN).map(|at| from + at) {
        let rest = &text[begin..];
        let end = rest.find(END).map(|at| at + END.len());
        let end = end.and_then(|at| rest[at..].find("-----").map(|dashes| at + dashes + 5));
        let end = begin + end.unwrap_or(rest.len());
        text.replace_range(begin..end, REDACTED);
        from = begin + REDACTED.len();
    }
}

/// Values that are no secret, whatever their name is.
fn is_worth_hiding(value: &str) -> bool {
    let plain = value.trim_matches(['"', '\'']);
    let is_word = ["true", "false", "none", "null", "yes", "no", "auto", "0", "1"]
        .iter()
        .any(|word| plain.eq_ignore_ascii_case(word));
    // A variable's name, which a shell would put the value in the place of.
    !plain.is_empty() && !is_word && !plain.starts_with('$')
}

/// Whether a name is that of a secret.
fn is_secret(name: &str) -> bool {
    /// Whatever else is in the name.
    const SECRET: [&str; 13] = [
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "secret",
        "secrets",
        "credential",
        "credentials",
        "creds",
        "bearer",
        "cookie",
        "cookies",
        "authorization",
    ];
    /// The ends of words that were written together: PGPASSWORD, hftoken.
    const ENDS: [&str; 10] = [
        "authorization",
        "password",
        "passwd",
        "secret",
        "token",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "passphrase",
    ];
    /// What a name is about that ends so: where the secret is, or how long, but not the secret.
    const ABOUT: [&str; 24] = [
        "file", "path", "dir", "folder", "name", "id", "ids", "type", "mode", "method", "size", "length",
        "len", "dim", "count", "limit", "url", "uri", "endpoint", "format", "ttl", "timeout", "expiry",
        "index",
    ];
    /// Tokens of language models.
    const MODEL_TOKENS: [&str; 24] = [
        "pad",
        "eos",
        "bos",
        "unk",
        "mask",
        "sep",
        "cls",
        "special",
        "stop",
        "image",
        "audio",
        "video",
        "per",
        "max",
        "min",
        "num",
        "next",
        "first",
        "last",
        "start",
        "begin",
        "end",
        "extra",
        "additional",
    ];
    /// Keys of tables, files and dictionaries.
    const PLAIN_KEYS: [&str; 32] = [
        "sort",
        "cache",
        "primary",
        "foreign",
        "partition",
        "group",
        "label",
        "image",
        "text",
        "input",
        "output",
        "data",
        "dataset",
        "json",
        "dict",
        "metric",
        "monitor",
        "lookup",
        "order",
        "index",
        "row",
        "column",
        "field",
        "map",
        "state",
        "target",
        "prompt",
        "response",
        "public",
        "query",
        "chosen",
        "rejected",
    ];
    const SWITCHES: [&str; 7] = ["no", "use", "disable", "enable", "require", "skip", "without"];
    const ACCOUNTS: [&str; 12] = [
        "db", "user", "http", "https", "proxy", "smtp", "mail", "ftp", "redis", "mysql", "admin", "login",
    ];
    let words = words_of(name);
    let Some((last, before)) = words.split_last() else {
        return false;
    };
    if ABOUT.contains(&last.as_str()) {
        return false;
    }
    let previous = before.last().map_or("", String::as_str);
    words.iter().any(|word| SECRET.contains(&word.as_str()))
        || match last.as_str() {
            "token" => !MODEL_TOKENS.contains(&previous),
            "key" => !PLAIN_KEYS.contains(&previous),
            "auth" => !SWITCHES.contains(&previous),
            "pass" => previous.is_empty() || ACCOUNTS.contains(&previous),
            "pwd" => !previous.is_empty(),
            word => ENDS.iter().any(|end| word.ends_with(end)),
        }
}

/// The words of a name, in lower case: `--api-key`, `HF_TOKEN`, `accessToken`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || was_lower && c.is_ascii_uppercase() {
            words.push(String::new());
        }
        was_lower = c.is_ascii_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// A text with options, assignments, headers and addresses in it: a word of a command line, which may be a script itself.
#[derive(Default)]
struct Text {
    /// What comes next is the value of an option or a header.
    is_next_secret: bool,
    /// The piece before was the name of a secret, as in a script: `TOKEN = "abc"`, `environ["TOKEN"] = "abc"`.
    is_named: bool,
    /// A value between quotes goes on up to this.
    until: Option<Quote>,
    /// A value between brackets goes on until they are closed.
    brackets: Option<Brackets>,
    /// A header's value goes on to the end, or to the quote that ends it.
    to_the_end: bool,
}

/// A quotation mark with the backslashes in front of it: a string inside a string has them.
#[derive(Clone, Copy)]
struct Quote {
    mark: char,
    backslashes: usize,
}

impl Quote {
    /// The one that a text begins with.
    fn at_start(text: &str) -> Option<Self> {
        let rest = text.trim_start_matches('\\');
        let mark = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        Some(Self {
            mark,
            backslashes: text.len() - rest.len(),
        })
    }

    fn bytes(self) -> usize {
        self.backslashes + self.mark.len_utf8()
    }

    /// Where it is again in a text, from its first backslash on. One with more backslashes is a part of the string.
    fn end_in(self, text: &str) -> Option<usize> {
        text.match_indices(self.mark)
            .map(|(at, _)| (at, text[..at].len() - text[..at].trim_end_matches('\\').len()))
            .find(|(_, backslashes)| *backslashes <= self.backslashes)
            .map(|(at, backslashes)| at - backslashes)
    }
}

/// How deep a value is in brackets of JSON.
#[derive(Default)]
struct Brackets {
    depth: usize,
    string: Option<Quote>,
}

impl Brackets {
    /// Where the last of them is closed in a text, behind it.
    fn end_in(&mut self, text: &str) -> Option<usize> {
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            if let Some(quote) = self.string {
                at += quote.end_in(rest)? + quote.bytes();
                self.string = None;
                continue;
            }
            if let Some(quote) = Quote::at_start(rest) {
                self.string = Some(quote);
                at += quote.bytes();
                continue;
            }
            let letter = rest.chars().next()?;
            at += letter.len_utf8();
            match letter {
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.depth == 0 {
                return Some(at);
            }
        }
        None
    }
}

impl Text {
    fn redacted(&mut self, text: &str) -> String {
        let mut redacted = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let space = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
            redacted.push_str(&rest[..space]);
            rest = &rest[space..];
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            redacted.push_str(&self.piece(&rest[..end]));
            rest = &rest[end..];
        }
        redacted
    }

    /// A part without spaces.
    fn piece(&mut self, piece: &str) -> String {
        if piece.is_empty() {
            return String::new();
        }
        if self.to_the_end {
            let end = piece.find(['"', '\'']).unwrap_or(piece.len());
            self.to_the_end = end == piece.len();
            return format!("{REDACTED}{}", &piece[end..]);
        }
        if let Some(quote) = self.until.take() {
            return self.rest_of_string(quote, piece);
        }
        if let Some(brackets) = self.brackets.take() {
            return self.rest_of_brackets(brackets, piece);
        }
        if std::mem::take(&mut self.is_named) && piece.starts_with(['=', ':']) && !piece.starts_with("==") {
            let (sign, value) = piece.split_at(1);
            self.is_next_secret = value.is_empty();
            return match is_worth_hiding(value) {
                true => format!("{sign}{}", self.value(value, value.len(), false)),
                false => piece.to_owned(),
            };
        }
        let is_value = std::mem::take(&mut self.is_next_secret) && !is_option(piece);
        if is_value && is_worth_hiding(piece) {
            return self.value(piece, piece.len(), false);
        }
        let plain = piece.trim_matches(['"', '\'']);
        let (name, _) = name_at_end(piece);
        self.is_named = is_secret(name);
        self.is_next_secret = plain.eq_ignore_ascii_case("bearer")
            || plain.starts_with('-') && !plain.contains(['=', ':']) && is_secret(plain);
        if let Some(name) = header_name(piece) {
            // Those have more than one word.
            self.to_the_end = ["authorization", "cookie"]
                .iter()
                .any(|end| name.to_ascii_lowercase().ends_with(end));
            self.is_next_secret = !self.to_the_end;
            return piece.to_owned();
        }
        without_known_forms(&without_passwords(&self.assignments(piece)))
    }

    /// What stands in the place of a value of so many bytes, unless quotes or brackets say how long it is, and of what comes behind it.
    fn value(&mut self, rest: &str, bytes: usize, in_query: bool) -> String {
        if rest.starts_with(['{', '[']) {
            return self.rest_of_brackets(Brackets::default(), rest);
        }
        if let Some(quote) = Quote::at_start(rest) {
            let (mark, inside) = rest.split_at(quote.bytes());
            return format!("{mark}{}", self.rest_of_string(quote, inside));
        }
        let behind = self.assignments_behind(&rest[bytes..], in_query);
        format!("{REDACTED}{behind}")
    }

    fn rest_of_string(&mut self, quote: Quote, text: &str) -> String {
        let Some(end) = quote.end_in(text) else {
            self.until = Some(quote);
            return REDACTED.to_owned();
        };
        format!("{REDACTED}{}", self.assignments(&text[end..]))
    }

    fn rest_of_brackets(&mut self, mut brackets: Brackets, text: &str) -> String {
        let Some(end) = brackets.end_in(text) else {
            self.brackets = Some(brackets);
            return REDACTED.to_owned();
        };
        format!("{REDACTED}{}", self.assignments(&text[end..]))
    }

    /// `NAME=VALUE`, `"NAME":"VALUE"`, `?NAME=VALUE&NAME=VALUE`, `Authorization:VALUE`.
    fn assignments(&mut self, piece: &str) -> String {
        let mut from = 0;
        while let Some(at) = piece[from..].find(['=', ':']).map(|at| from + at) {
            from = at + 1;
            let before = &piece[..at];
            let (name, is_json) = name_at_end(before);
            let is_header = name.to_ascii_lowercase().ends_with("authorization");
            let is_name = piece[at..].starts_with('=') || is_json || is_header;
            let rest = &piece[from..];
            let in_query = before.contains('?');
            if !is_name || !(is_secret(name) || in_query && is_signature(name)) || !is_worth_hiding(rest) {
                continue;
            }
            let end = match (in_query, is_json) {
                (true, _) => rest.find(['&', '#']),
                (false, true) => rest.find([',', '}']),
                (false, false) => None,
            };
            let bytes = end.unwrap_or(rest.len());
            return format!("{}{}", &piece[..from], self.value(rest, bytes, in_query));
        }
        piece.to_owned()
    }

    /// As [`Self::assignments`], of what comes behind one: a query goes on being one.
    fn assignments_behind(&mut self, behind: &str, in_query: bool) -> String {
        if !in_query {
            return self.assignments(behind);
        }
        let marked = self.assignments(&format!("?{behind}"));
        marked.strip_prefix('?').unwrap_or(&marked).to_owned()
    }
}

/// The name that ends a text, and whether it stood in quotes: `name`, `"name"`, `\"name\"`, `table["name"]`.
fn name_at_end(text: &str) -> (&str, bool) {
    let unquoted = text.trim_end_matches(['"', '\'', '\\', ']']);
    let start = unquoted.rfind(|c| !is_of_name(c)).map_or(0, |place| {
        place + unquoted[place..].chars().next().map_or(1, char::len_utf8)
    });
    (&unquoted[start..], unquoted.len() < text.len())
}

/// Whether a parameter of an address signs it: who has the address has what it leads to (Azure's `sig`, `X-Amz-Signature`).
fn is_signature(name: &str) -> bool {
    let words = words_of(name);
    words
        .last()
        .is_some_and(|last| last == "sig" || last == "signature")
}

/// The name of a header or of a member of JSON that ends a piece: its value comes next.
fn header_name(piece: &str) -> Option<&str> {
    let name = piece.strip_suffix(':')?.trim_matches(['"', '\'', '\\']);
    let start = name.rfind(|c| !is_of_name(c)).map_or(0, |place| place + 1);
    let name = name.get(start..)?;
    is_secret(name).then_some(name)
}

/// `scheme://user:password@host` without the password, or without a long name that can only be a token.
fn without_passwords(text: &str) -> String {
    const LONGEST_NAME: usize = 20;
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://").map(|at| at + 3) {
        redacted.push_str(&rest[..at]);
        rest = &rest[at..];
        let whole = &rest[..rest.find(['"', '\'', ',']).unwrap_or(rest.len())];
        let host = &whole[..whole.find(['/', '?', '#']).unwrap_or(whole.len())];
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        // A password may hold an @ itself, and, where nobody escaped it, a slash.
        let has_password = match host.split_once('@') {
            Some((user, _)) => user.contains(':'),
            None => host.split_once(':').is_some_and(|(_, port)| !is_port(port)),
        };
        let end = if has_password { whole } else { host }.rfind('@');
        let Some(user) = end.map(|end| &rest[..end]) else {
            continue;
        };
        match user.split_once(':') {
            Some((name, password)) if is_worth_hiding(password) => {
                redacted.push_str(name);
                redacted.push(':');
                redacted.push_str(REDACTED);
            }
            None if user.len() >= LONGEST_NAME => redacted.push_str(REDACTED),
            _ => redacted.push_str(user),
        }
        rest = &rest[user.len()..];
    }
    redacted + rest
}

/// Without values that are known by how they begin: tokens of Hugging Face, GitHub, GitLab, OpenAI, Slack, AWS, Google, and
/// signed JSON.
fn without_known_forms(text: &str) -> String {
    const BEGINNINGS: [&str; 14] = [
        "hf_",
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "sk-",
        "xoxb-",
        "xoxp-",
        "AKIA",
        "ASIA",
        "AIza",
        "nvapi-",
        "eyJ",
    ];
    /// None is shorter, with its beginning.
    const SHORTEST: usize = 20;
    let is_known = |word: &str| {
        word.len() >= SHORTEST
            && BEGINNINGS.iter().any(|beginning| word.starts_with(beginning))
            && word.bytes().any(|byte| byte.is_ascii_digit())
            && word
                .bytes()
                .any(|byte| byte.is_ascii_uppercase() || word.contains('_'))
    };
    let mut redacted = String::with_capacity(text.len());
    for part in text.split_inclusive(|c| !is_of_name(c)) {
        let word = part.trim_end_matches(|c| !is_of_name(c));
        match is_known(word) {
            true => {
                redacted.push_str(REDACTED);
                redacted.push_str(&part[word.len()..]);
            }
            false => redacted.push_str(part),
        }
    }
    redacted
}

#[cfg(test)]
mod tests;
