//! Secrets in addresses: passwords, tokens in the place of a user, and paths of webhooks.

use super::names::Strength;
use super::values::{REDACTED, is_worth_hiding, looks_random};

/// Addresses whose path is all that it takes to write there.
const WEBHOOKS: [&str; 5] = [
    "hooks.slack.com/services/",
    "hooks.slack.com/workflows/",
    "discord.com/api/webhooks/",
    "discordapp.com/api/webhooks/",
    "api.telegram.org/bot",
];

/// `scheme://user:password@host` without the password, without a user that can only be a token, and webhooks without their path.
pub(super) fn without_secrets(text: &str) -> String {
    let mut redacted = without_passwords(text);
    for webhook in WEBHOOKS {
        if redacted.contains(webhook) {
            redacted = without_paths(&redacted, webhook);
        }
    }
    redacted
}

fn without_paths(text: &str, webhook: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(webhook).map(|at| at + webhook.len()) {
        redacted.push_str(&rest[..at]);
        rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "/:_-.".contains(c));
        redacted.push_str(REDACTED);
        rest = rest.strip_prefix(REDACTED).unwrap_or(rest);
    }
    redacted + rest
}

fn without_passwords(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut parts = text.split_inclusive("//");
    redacted.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let user = &part[..end_of_user(part)];
        let is_token = |user: &str| {
            const LONGEST_NAME: usize = 20;
            user.len() >= LONGEST_NAME || looks_random(user)
        };
        match user.split_once(':') {
            Some((name, password)) if is_worth_hiding(password, Strength::Sure) => {
                // With GitHub the token is the user, and the password says so.
                redacted.push_str(if is_token(name) { REDACTED } else { name });
                redacted.push(':');
                redacted.push_str(REDACTED);
            }
            _ if is_token(user) && !user.contains(REDACTED) => redacted.push_str(REDACTED),
            _ => redacted.push_str(user),
        }
        redacted.push_str(&part[user.len()..]);
    }
    redacted
}

/// Where the `@` is that ends the user and the password of an address behind its `//`; 0 if it has none.
fn end_of_user(address: &str) -> usize {
    let whole = &address[..address.find(['"', '\'', ',']).unwrap_or(address.len())];
    let host = &whole[..whole.find(['/', '?', '#']).unwrap_or(whole.len())];
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    // A password may hold an @ itself, and, where nobody escaped it, a slash.
    let has_password = match host.split_once('@') {
        Some((user, _)) => user.contains(':'),
        None => host.split_once(':').is_some_and(|(_, port)| !is_port(port)),
    };
    let whole = &whole[..whole.find(char::is_whitespace).unwrap_or(whole.len())];
    let host = &host[..host.find(char::is_whitespace).unwrap_or(host.len())];
    if has_password { whole } else { host }.rfind('@').unwrap_or(0)
}
