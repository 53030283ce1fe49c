//! String interning: kernel names, API names and marker texts are stored once and named by number.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of a string in an [`Interner`]. Number 0 is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NameId(pub u32);

/// Strings by number, each once.
#[derive(Clone, Debug)]
pub struct Interner {
    numbers: HashMap<Arc<str>, NameId>,
    strings: Vec<Arc<str>>,
}

impl Default for Interner {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Self {
            numbers: HashMap::from([(empty.clone(), NameId(0))]),
            strings: vec![empty],
        }
    }
}

impl Interner {
    /// The number of `text`, new if it was not seen before.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.numbers.get(text) {
            return id;
        }
        let id = NameId(u32::try_from(self.strings.len()).unwrap_or(0));
        let text: Arc<str> = Arc::from(text);
        self.strings.push(text.clone());
        self.numbers.insert(text, id);
        id
    }

    /// The string of a number; the empty string for a number that this interner never gave.
    #[must_use]
    pub fn get(&self, id: NameId) -> &str {
        self.strings.get(id.0 as usize).map_or("", |s| s)
    }

    /// The number of `text`, if it was seen.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<NameId> {
        self.numbers.get(text).copied()
    }

    /// Takes in another interner's strings: their numbers here, by their numbers there.
    pub fn absorb(&mut self, other: &Self) -> Vec<NameId> {
        other.strings.iter().map(|text| self.intern(text)).collect()
    }

    /// How many strings, the empty one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Never true: the empty string is always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
}
