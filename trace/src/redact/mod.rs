//! Secrets in command lines and variables: what looks like one is not written into a recording.
//!
//! Names decide: the value of an option, a variable, a member of JSON, a header or a parameter of an address whose name says
//! that it is a secret is replaced by [`REDACTED`]. So are passwords in addresses (`scheme://user:password@host`), and values
//! that are known by their form. Names are looked at word by word, since a training program has tokenizers, maximal tokens,
//! key-value heads and sort keys, which are none. All of it takes time that grows with the text and no faster.

mod addresses;
mod known_forms;
mod names;
mod text;
mod values;

use std::collections::BTreeMap;

use names::Strength;
use text::Reader;
pub use values::REDACTED;

/// Redacts the words of a command line.
pub fn command(words: &mut [String]) {
    known_forms::hide_keys_of_words(words);
    let mut reader = Reader::default();
    let mut is_script = false;
    for word in words {
        known_forms::hide_keys(word);
        let redacted = reader.word(word, is_script);
        // `sh -c SCRIPT`, `bash -lc SCRIPT`, `python -c SCRIPT`.
        is_script = word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
        *word = without_forms(&redacted);
    }
}

/// Redacts the values of variables.
pub fn environment(variables: &mut BTreeMap<String, String>) {
    for (name, value) in variables {
        known_forms::hide_keys(value);
        match names::strength(name) {
            Some(strength) if values::is_worth_hiding(value, strength) => REDACTED.clone_into(value),
            Some(Strength::Sure) => {}
            _ => *value = without_forms(&Reader::default().text(value, false)),
        }
    }
}

fn without_forms(text: &str) -> String {
    known_forms::without_known_forms(&addresses::without_secrets(text))
}

#[cfg(test)]
mod tests;
