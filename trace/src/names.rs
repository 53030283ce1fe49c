//! String interning: kernel names, API names and marker texts are stored once and named by number.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of a string in an [`Interner`]. Number 0 is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NameId(pub u32);

/// Some strings by number, each once.
#[derive(Clone, Debug, Default)]
struct Layer {
    /// The number of the first.
    first: usize,
    numbers: HashMap<Arc<str>, NameId>,
    strings: Vec<Arc<str>>,
}

/// Strings by number, each once.
#[derive(Clone, Debug)]
pub struct Interner {
    /// What is shared with copies: each layer is several times as long as the next.
    shared: Vec<Arc<Layer>>,
    /// What came since.
    own: Layer,
    /// Bytes that new strings may still take.
    room_bytes: usize,
    refused: u64,
}

/// A layer that is so many times as long as the next is left alone; shorter ones are joined.
const LONGER: usize = 4;
/// What a string weighs beside its bytes.
const STRING_EXTRA_BYTES: usize = 96;
/// What strings become for which there is no room.
const TOO_MANY: &str = "(too many names)";

impl Default for Interner {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Self {
            shared: Vec::new(),
            own: Layer {
                first: 0,
                numbers: HashMap::from([(empty.clone(), NameId(0))]),
                strings: vec![empty],
            },
            room_bytes: usize::MAX,
            refused: 0,
        }
    }
}

impl Interner {
    /// The number of `text`, new if it was not seen before.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(id) = self.find(text) {
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
        let id = NameId(u32::try_from(self.len()).unwrap_or(0));
        let text: Arc<str> = Arc::from(text);
        self.own.strings.push(text.clone());
        self.own.numbers.insert(text, id);
        id
    }

    /// A copy that shares the strings with this one, which goes on: what it costs is what came since the last such copy, and now
    /// and then some times that.
    #[must_use]
    pub fn share(&mut self) -> Self {
        if !self.own.strings.is_empty() {
            let first = self.len();
            let mut last = std::mem::take(&mut self.own);
            self.own.first = first;
            while let Some(before) = self.shared.last()
                && before.strings.len() < LONGER * last.strings.len()
            {
                let mut joined = Layer::clone(before);
                joined.strings.append(&mut last.strings);
                joined.numbers.extend(last.numbers);
                self.shared.pop();
                last = joined;
            }
            self.shared.push(Arc::new(last));
        }
        self.clone()
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
        let place = id.0 as usize;
        let layer = match place.checked_sub(self.own.first) {
            Some(_) => &self.own,
            None => {
                let after = self.shared.partition_point(|layer| layer.first <= place);
                &self.shared[after - 1]
            }
        };
        layer.strings.get(place - layer.first).map_or("", |text| text)
    }

    /// The number of `text`, if it was seen.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<NameId> {
        let shared = self.shared.iter().map(|layer| &**layer);
        let mut layers = std::iter::once(&self.own).chain(shared);
        layers.find_map(|layer| layer.numbers.get(text).copied())
    }

    /// Takes in another interner's strings: their numbers here, by their numbers there.
    pub fn absorb(&mut self, other: &Self) -> Vec<NameId> {
        let shared = other.shared.iter().map(|layer| &**layer);
        let layers = shared.chain(std::iter::once(&other.own));
        let texts = layers.flat_map(|layer| &layer.strings);
        texts.map(|text| self.intern(text)).collect()
    }

    /// How many strings, the empty one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.own.first + self.own.strings.len()
    }

    /// Never true: the empty string is always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
    fn copies_share_what_was_there_and_each_goes_on_alone() {
        let mut names = Interner::default();
        let mut copies: Vec<(usize, Interner)> = Vec::new();
        for number in 0..300 {
            assert_eq!(names.intern(&format!("name {number}")).0, number + 1);
            if number % 7 == 0 {
                let copy = names.share();
                copies.push((copy.len(), copy));
            }
        }
        // A few layers, however often it was copied.
        assert!(names.shared.len() < 6, "{} layers", names.shared.len());
        for (len, copy) in &mut copies {
            assert_eq!(copy.len(), *len);
            for number in 0..300u32 {
                let (id, text) = (NameId(number + 1), format!("name {number}"));
                let is_there = (number as usize) + 1 < *len;
                assert_eq!(copy.get(id), if is_there { &text } else { "" });
                assert_eq!(copy.find(&text), is_there.then_some(id));
            }
            assert_eq!(copy.intern("another").0 as usize, *len);
            let mut other = Interner::default();
            assert_eq!(
                other.absorb(copy),
                (0..=*len as u32).map(NameId).collect::<Vec<_>>()
            );
        }
        assert_eq!(names.find("another"), None);
        assert_eq!(names.len(), 301);
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
