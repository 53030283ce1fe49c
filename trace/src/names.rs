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
    /// Bytes that new strings may still take.
    room_bytes: usize,
    refused: u64,
}

/// What a string weighs beside its bytes.
const STRING_EXTRA_BYTES: usize = 96;
/// What strings become for which there is no room.
const TOO_MANY: &str = "(too many names)";

impl Default for Interner {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Self {
            numbers: HashMap::from([(empty.clone(), NameId(0))]),
            strings: vec![empty],
            room_bytes: usize::MAX,
            refused: 0,
        }
    }
}

impl Interner {
    /// The number of `text`, new if it was not seen before.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.numbers.get(text) {
            return id;
        }
        let bytes = text.len().saturating_add(STRING_EXTRA_BYTES);
        if bytes > self.room_bytes {
            self.refused += 1;
            return self.intern_own(TOO_MANY);
        }
        self.room_bytes -= bytes;
        self.add(text)
    }

    /// The number of one of the recording's own texts, of which there are few: the limit is not for them. What says that names
    /// found no room must itself find some.
    pub fn intern_own(&mut self, text: &str) -> NameId {
        self.find(text).unwrap_or_else(|| self.add(text))
    }

    fn add(&mut self, text: &str) -> NameId {
        let id = NameId(u32::try_from(self.strings.len()).unwrap_or(0));
        let text: Arc<str> = Arc::from(text);
        self.strings.push(text.clone());
        self.numbers.insert(text, id);
        id
    }

    /// From now on takes so many bytes more; strings beyond them become one that says so.
    pub fn limit(&mut self, room_bytes: usize) {
        self.room_bytes = room_bytes;
    }

    /// Strings since the last call for which there was no room.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_its_room_names_become_one_that_says_so() {
        let mut names = Interner::default();
        names.limit(3 * (STRING_EXTRA_BYTES + 10));
        let ids: Vec<NameId> = (0..100)
            .map(|number| names.intern(&format!("name {number}")))
            .collect();
        assert_eq!((names.get(ids[0]), names.get(ids[99])), ("name 0", TOO_MANY));
        assert_eq!(names.intern("name 1"), ids[1]);
        let kept = ids.iter().filter(|id| names.get(**id) != TOO_MANY).count();
        assert_eq!((kept, names.take_refused(), names.take_refused()), (3, 97, 0));
        assert_eq!(names.len(), 5);
    }

    #[test]
    fn what_tells_of_the_limit_is_not_under_it() {
        let mut names = Interner::default();
        names.limit(0);
        let (refused, own) = (names.intern("x"), names.intern_own("a loss"));
        assert_eq!((names.get(refused), names.get(own)), (TOO_MANY, "a loss"));
        assert_eq!(names.intern_own("a loss"), own);
        assert_eq!((names.take_refused(), names.take_refused()), (1, 0));
    }
}
