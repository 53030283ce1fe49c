//! Whether a name is that of a secret.

/// How sure a name makes that its value is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    /// Whatever the value is.
    Sure,
    /// Only if the value looks random: training has keys of tables and tokens of language models too.
    IfRandom,
}

/// A secret, wherever in a name they are.
const SECRETS: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "cred",
    "bearer",
    "cookie",
    "authorization",
    "psk",
    "jwt",
    "dsn",
];
/// Words that are written together with what is before them: PGPASSWORD, basicauth.
const ENDS: [&str; 8] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "authorization",
    "basicauth",
    "connectionstring",
    "mnemonic",
];
/// Whose tokens and keys are secrets.
const OWNERS: [&str; 60] = [
    "api",
    "access",
    "private",
    "auth",
    "secret",
    "client",
    "hf",
    "huggingface",
    "hub",
    "wandb",
    "github",
    "gh",
    "gitlab",
    "git",
    "openai",
    "anthropic",
    "aws",
    "azure",
    "gcp",
    "google",
    "slack",
    "discord",
    "telegram",
    "session",
    "security",
    "refresh",
    "bearer",
    "login",
    "account",
    "storage",
    "subscription",
    "ssh",
    "tls",
    "encryption",
    "signing",
    "master",
    "license",
    "service",
    "app",
    "vault",
    "docker",
    "npm",
    "pypi",
    "neptune",
    "comet",
    "mlflow",
    "clearml",
    "oauth",
    "csrf",
    "shared",
    "deploy",
    "personal",
    "webhook",
    "admin",
    "root",
    "db",
    "database",
    "redis",
    "proxy",
    "http",
];
/// What a name is about that ends so: where the secret is, or how long, but not the secret.
const ABOUT: [&str; 33] = [
    "file",
    "path",
    "dir",
    "folder",
    "type",
    "mode",
    "method",
    "size",
    "length",
    "len",
    "dim",
    "count",
    "limit",
    "url",
    "uri",
    "endpoint",
    "format",
    "ttl",
    "timeout",
    "expiry",
    "index",
    "dataset",
    "model",
    "style",
    "rate",
    "host",
    "server",
    "port",
    "stdin",
    "user",
    "username",
    "head",
    "detection",
];
/// Ends of a name that say nothing about what it is.
const FILLERS: [&str; 8] = ["value", "header", "string", "str", "text", "hash", "x", "data"];
/// Words that are a secret's now and then.
const SOMETIMES: [&str; 16] = [
    "token",
    "tokens",
    "key",
    "pass",
    "pwd",
    "pat",
    "sas",
    "pin",
    "otp",
    "sig",
    "signature",
    "salt",
    "hmac",
    "webhook",
    "login",
    "basic",
];

/// How sure it is that what is called so is a secret; nothing if it is none.
pub(super) fn strength(name: &str) -> Option<Strength> {
    // Longer ones are texts.
    const LONGEST: usize = 128;
    if name.len() > LONGEST || !name.is_ascii() {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let found = of_words(&words_of(&lower, Some(name)));
    let is_mixed = found.is_none() && lower != name && name.bytes().any(|byte| byte.is_ascii_lowercase());
    if is_mixed {
        of_words(&words_of(&lower, None))
    } else {
        found
    }
}

/// Whether a name is no more than "token": in a program it may be one of a text.
pub(super) fn is_bare_token(name: &str) -> bool {
    name.trim_start_matches('-').eq_ignore_ascii_case("token")
}

/// Whether a header's value goes on to the end, whatever is in it.
pub(super) fn is_long_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}

fn of_words(words: &[&str]) -> Option<Strength> {
    let (last, before) = words.split_last()?;
    let (last, previous) = (*last, before.last().copied().unwrap_or_default());
    if ABOUT.contains(&last) {
        return None;
    }
    if matches!(last, "id" | "name") {
        let is_key = previous == "key" && before.len() == 1 || previous == "token";
        return match previous {
            "session" => Some(Strength::IfRandom),
            _ if is_key => None,
            _ => of_words(before).map(|_| Strength::IfRandom),
        };
    }
    if FILLERS.contains(&last) && !before.is_empty() && previous != "connection" {
        let found = of_words(before);
        return if last == "value" && previous == "key" {
            found.map(|_| Strength::IfRandom)
        } else {
            found
        };
    }
    let is_owned = |owner: &str| OWNERS.contains(&owner);
    let is_sure = words.iter().any(|word| SECRETS.contains(word))
        || ENDS.iter().any(|end| last.ends_with(end))
        || match last {
            "token" | "tokens" | "key" => {
                before.is_empty() && last == "token" || before.iter().any(|word| is_owned(word))
            }
            "auth" => !["no", "use", "disable", "enable", "require", "skip", "without"].contains(&previous),
            "oauth" | "pw" => true,
            "pass" => {
                is_owned(previous) || ["user", "https", "smtp", "mail", "ftp", "mysql"].contains(&previous)
            }
            "pwd" => !previous.is_empty() && previous != "old",
            "string" => previous == "connection",
            "phrase" => previous == "seed",
            word => ["token", "key"]
                .iter()
                .any(|end| word.strip_suffix(end).is_some_and(is_owned)),
        };
    let is_sometimes = SOMETIMES.contains(&last)
        || last == "tokenstring"
        || last.ends_with("token") && last.len() > "token".len();
    match (is_sure, is_sometimes) {
        (true, _) => Some(Strength::Sure),
        (false, true) => Some(Strength::IfRandom),
        _ => None,
    }
}

/// The words of a name in lower case, without plurals and numbers: `--api-keys`, `HF_TOKEN2`, `accessToken`. `name` is as it is
/// written, if capitals begin words.
fn words_of<'a>(lower: &'a str, name: Option<&str>) -> Vec<&'a str> {
    let mut words = Vec::with_capacity(4);
    let mut push = |word: &'a str| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit());
        // More than one token are a text's.
        let is_plural = (word.len() > 4 && word != "tokens" || word == "keys")
            && word.ends_with('s')
            && !word.ends_with("ss");
        let word = if is_plural { &word[..word.len() - 1] } else { word };
        if !word.is_empty() {
            words.push(word);
        }
    };
    let letters = name.map_or(&[][..], str::as_bytes);
    let mut from = 0;
    for part in lower.split(|c: char| !c.is_ascii_alphanumeric()) {
        let mut start = 0;
        for at in 1..part.len() {
            let is_new = letters.get(from + at).is_some_and(u8::is_ascii_uppercase)
                && letters[from + at - 1].is_ascii_lowercase();
            if is_new {
                push(&part[start..at]);
                start = at;
            }
        }
        push(&part[start..]);
        // Names are of ASCII: what separates words is one byte.
        from += part.len() + 1;
    }
    words
}

/// Whether a letter may stand in a name.
pub(super) fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}
