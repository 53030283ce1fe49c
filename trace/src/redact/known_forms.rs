//! Secrets that are known by their form, whatever they are called.

use super::names::is_of_name;
use super::values::{REDACTED, looks_random};

/// Tokens of Hugging Face, GitHub, GitLab, OpenAI, Slack, Google, NVIDIA, npm, PyPI, Docker, Vault, Replicate, Groq, Stripe, SendGrid,
/// Databricks, DigitalOcean, Weights & Biases, LangSmith, Perplexity, Typeform, Shopify, Google, age, and signed JSON.
const BEGINNINGS: [&str; 42] = [
    "hf_",
    "api_org_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "glptt-",
    "sk-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xapp-",
    "AIza",
    "nvapi-",
    "eyJ",
    "npm_",
    "pypi-",
    "dckr_pat_",
    "hvs.",
    "r8_",
    "gsk_",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "SG.",
    "dapi",
    "ya29.",
    "dop_v1_",
    "wandb_v1_",
    "lsv2_",
    "pplx-",
    "tfp_",
    "shpat_",
    "AGE-SECRET-KEY-1",
    "AKIA",
    "ASIA",
];
/// None is shorter, with its beginning.
const SHORTEST: usize = 20;

/// A text without them.
pub(super) fn without_known_forms(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let (mut at, mut copied) = (0, 0);
    while let Some(start) = text[at..].find(is_of_name).map(|start| at + start) {
        at = text[start..]
            .find(|c| !is_of_name(c))
            .map_or(text.len(), |end| start + end);
        if is_known(&text[start..at]) {
            redacted.push_str(&text[copied..start]);
            redacted.push_str(REDACTED);
            copied = at;
        }
    }
    redacted + &text[copied..]
}

fn is_known(word: &str) -> bool {
    if word.len() < SHORTEST {
        return false;
    }
    let Some(beginning) = BEGINNINGS.iter().find(|beginning| word.starts_with(**beginning)) else {
        return false;
    };
    let rest = &word[beginning.len()..];
    match *beginning {
        // AWS: sixteen capitals and digits.
        "AKIA" | "ASIA" => rest
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()),
        "eyJ" => rest.starts_with(|c: char| c.is_ascii_alphanumeric()) && looks_random(rest),
        _ => looks_random(rest),
    }
}

/// Where keys begin and end: PEM (RFC 7468), SSH2 (RFC 4716), and what PuTTY writes, which goes on to the end of its file.
const KEYS: [(&str, Option<(&str, &str)>); 3] = [
    ("-----BEGIN", Some(("-----END", "-----"))),
    ("---- BEGIN", Some(("---- END", "----"))),
    ("Private-Lines:", None),
];

/// Hides keys and certificates from their beginning to their end.
pub(super) fn hide_keys(text: &mut String) {
    for (begin, end) in KEYS {
        let Some(first) = text.find(begin) else {
            continue;
        };
        let mut redacted = text[..first].to_owned();
        let mut rest = &text[first..];
        while !rest.is_empty() {
            let behind = end.and_then(|(end, dashes)| {
                let at = rest.find(end)? + end.len();
                Some(at + rest[at..].find(dashes)? + dashes.len())
            });
            rest = &rest[behind.unwrap_or(rest.len())..];
            redacted.push_str(REDACTED);
            let next = rest.find(begin).unwrap_or(rest.len());
            redacted.push_str(&rest[..next]);
            rest = &rest[next..];
        }
        *text = redacted;
    }
}

/// Hides keys that a shell made several words of: those from the one with the beginning to the one with the end.
pub(super) fn hide_keys_of_words(words: &mut [String]) {
    let is_end = |word: &String| word.contains("-----END");
    let Some(last) = words.iter().rposition(is_end) else {
        return;
    };
    let mut from = 0;
    while let Some(begin) = words[from..=last]
        .iter()
        .position(|word| word.contains("-----BEGIN") && !is_end(word))
    {
        let begin = from + begin;
        let Some(end) = words[begin..].iter().position(is_end).map(|end| begin + end) else {
            return;
        };
        let closes = |word: &String| {
            word.split_once("-----END")
                .map_or(word.as_str(), |(_, rest)| rest)
                .ends_with("-----")
        };
        let close = words[end..]
            .iter()
            .position(closes)
            .map_or(end, |close| end + close);
        for word in &mut words[begin..=close] {
            REDACTED.clone_into(word);
        }
        if close >= last {
            return;
        }
        from = close + 1;
    }
}
