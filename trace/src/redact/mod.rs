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
    /// A value between quotes goes on up to this.
    until: Option<char>,
    /// A header's value goes on to the end, or to the quote that ends it.
    to_the_end: bool,
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
        if let Some(quote) = self.until {
            let end = piece.find(quote);
            if end.is_some() {
                self.until = None;
            }
            return format!("{REDACTED}{}", end.map_or("", |end| &piece[end..]));
        }
        let is_value = std::mem::take(&mut self.is_next_secret) && !is_option(piece);
        if is_value && is_worth_hiding(piece) {
            return self.value(piece, piece.len());
        }
        let plain = piece.trim_matches(['"', '\'']);
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

    /// What stands in the place of a value of so many bytes, between its quotes if it has some.
    fn value(&mut self, rest: &str, bytes: usize) -> String {
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            return format!("{REDACTED}{}", &rest[bytes..]);
        };
        match rest[1..].find(quote) {
            Some(end) => format!("{quote}{REDACTED}{}", self.assignments(&rest[1 + end..])),
            None => {
                self.until = Some(quote);
                format!("{quote}{REDACTED}")
            }
        }
    }

    /// `NAME=VALUE`, `"NAME":"VALUE"`, `?NAME=VALUE&NAME=VALUE`, `Authorization:VALUE`.
    fn assignments(&mut self, piece: &str) -> String {
        let mut from = 0;
        while let Some(at) = piece[from..].find(['=', ':']).map(|at| from + at) {
            from = at + 1;
            let before = &piece[..at];
            let unquoted = before.trim_end_matches(['"', '\'', '\\']);
            let is_json = unquoted.len() < before.len();
            let start = unquoted.rfind(|c| !is_of_name(c)).map_or(0, |place| {
                place + unquoted[place..].chars().next().map_or(1, char::len_utf8)
            });
            let name = &unquoted[start..];
            let is_header = name.to_ascii_lowercase().ends_with("authorization");
            let is_name = piece[at..].starts_with('=') || is_json || is_header;
            let rest = &piece[from..];
            if !is_name || !is_secret(name) || !is_worth_hiding(rest) {
                continue;
            }
            let end = match (before.contains('?'), is_json) {
                (true, _) => rest.find(['&', '#']),
                (false, true) => rest.find([',', '}']),
                (false, false) => None,
            };
            let bytes = end.unwrap_or(rest.len());
            let hidden = self.value(rest, bytes);
            // What comes behind it has further ones.
            let (hidden, behind) = match hidden.strip_prefix(REDACTED) {
                Some(behind) => (REDACTED, self.assignments_behind(piece, behind)),
                None => ("", hidden.clone()),
            };
            return format!("{}{hidden}{behind}", &piece[..from]);
        }
        piece.to_owned()
    }

    /// As [`Self::assignments`], of what comes behind one: a query goes on being one.
    fn assignments_behind(&mut self, piece: &str, behind: &str) -> String {
        match (behind.is_empty(), piece.contains('?')) {
            (true, _) => String::new(),
            (false, true) => {
                let marked = self.assignments(&format!("?{behind}"));
                marked.strip_prefix('?').unwrap_or(&marked).to_owned()
            }
            (false, false) => self.assignments(behind),
        }
    }
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
        let end = rest.find(['/', '?', '#', '"', '\'', ',']).unwrap_or(rest.len());
        // A password may hold an @ itself.
        let Some(user) = rest[..end].rfind('@').map(|end| &rest[..end]) else {
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
