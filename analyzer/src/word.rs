//! Words of a closed set, and names that many share, as they are read back.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// One of a few words that stand in the program.
pub type Word = &'static str;

/// More words than this, or longer ones, are none of a closed set: what is read is damaged.
const MOST_WORDS: usize = 4096;
const LONGEST_WORD: usize = 256;

/// Words that were read, each once: they stay as long as the program runs.
fn keep(text: &str) -> Result<Word, &'static str> {
    static KNOWN: Mutex<BTreeSet<Word>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(word) = known.get(text) {
        return Ok(word);
    }
    if text.len() > LONGEST_WORD || known.len() >= MOST_WORDS {
        return Err("no word of a closed set");
    }
    let word: Word = Box::leak(text.to_owned().into_boxed_str());
    known.insert(word);
    Ok(word)
}

/// Reads a word.
pub(crate) fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
    keep(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// The same of one that may not be there.
pub(crate) fn known_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Word>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| keep(&text).map_err(D::Error::custom)).transpose()
}

/// Reads a word with its name and time.
pub(crate) fn known_seen<'de, D: Deserializer<'de>>(from: D) -> Result<(Word, String, i64), D::Error> {
    let (word, name, at) = <(String, String, i64)>::deserialize(from)?;
    Ok((keep(&word).map_err(D::Error::custom)?, name, at))
}

/// Texts that many share.
pub(crate) mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes one.
    pub(crate) fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        str::serialize(text, to)
    }

    /// Reads one.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Arc::from)
    }
}
