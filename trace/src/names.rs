//! String interning: kernel names, API names and marker texts are stored once and named by number.

use std::fmt;
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// The number of a string in an [`Interner`]. Number 0 is the empty string.
///
/// It is kept as one more, which is never 0: so a name that may be absent takes no more memory than one that is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NameId(NonZeroU32);

impl NameId {
    /// The name of a number; of `u32::MAX`, which no interner gives, the one before.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        match NonZeroU32::new(number.saturating_add(1)) {
            Some(kept) => Self(kept),
            None => Self(NonZeroU32::MIN),
        }
    }

    /// Its number.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u32 {
        self.0.get() - 1
    }
}

impl Default for NameId {
    fn default() -> Self {
        Self::new(0)
    }
}

impl fmt::Debug for NameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NameId").field(&self.number()).finish()
    }
}

/// Strings side by side: traces can have millions of them, and an allocation for each costs more than most are long.
#[derive(Clone, Debug, Default)]
struct Strings {
    blocks: Vec<String>,
    /// Block, start and length of each.
    places: Vec<(u32, u32, u32)>,
}

impl Strings {
    /// The first block is small, since most interners hold little; later ones are up to so long. No text is ever moved.
    const BLOCK_BYTES: usize = 1 << 20;
    const FIRST_BYTES: usize = 1 << 10;

    fn push(&mut self, text: &str) {
        let room = |block: &String| block.capacity() - block.len();
        if self.blocks.last().is_none_or(|block| room(block) < text.len()) {
            let usual = Self::FIRST_BYTES << self.blocks.len().min(20);
            let block = String::with_capacity(usual.min(Self::BLOCK_BYTES).max(text.len()));
            self.blocks.push(block);
        }
        let number = self.blocks.len() - 1;
        let block = &mut self.blocks[number];
        let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        self.places
            .push((small(number), small(block.len()), small(text.len())));
        block.push_str(text);
    }

    fn get(&self, place: usize) -> Option<&str> {
        let &(block, start, length) = self.places.get(place)?;
        let start = start as usize;
        self.blocks[block as usize].get(start..start + length as usize)
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.places.len()).filter_map(|place| self.get(place))
    }

    fn bytes(&self) -> usize {
        let texts = self.blocks.iter().map(String::capacity).sum::<usize>();
        texts + self.places.capacity() * size_of::<(u32, u32, u32)>()
    }
}

/// Some strings by number, each once.
#[derive(Clone, Debug, Default)]
struct Layer {
    /// The number of the first.
    first: usize,
    /// Places in `strings`, found by the text there. The hash is another in each process, so that no trace can be made whose
    /// names all have one.
    numbers: HashTable<u32>,
    strings: Strings,
}

impl Layer {
    fn find(&self, text: &[u8], hash: u64) -> Option<NameId> {
        let is_it = |place: &u32| {
            let known = self.strings.get(*place as usize);
            known.is_some_and(|known| known.as_bytes() == text)
        };
        let place = *self.numbers.find(hash, is_it)?;
        Some(NameId::new(
            u32::try_from(self.first + place as usize).unwrap_or(0),
        ))
    }

    /// Adds a text that is not there.
    fn add(&mut self, text: &str, hash: u64, hasher: &RandomState) {
        let place = u32::try_from(self.strings.places.len()).unwrap_or(u32::MAX);
        self.strings.push(text);
        let strings = &self.strings;
        let hash_again = |place: &u32| {
            let text = strings.get(*place as usize).unwrap_or_default();
            hasher.hash_one(text.as_bytes())
        };
        self.numbers.insert_unique(hash, place, hash_again);
    }

    fn bytes(&self) -> usize {
        // A byte for each slot beside the number, and an eighth of the slots stay free.
        self.strings.bytes() + self.numbers.capacity() * (size_of::<u32>() + 1) * 8 / 7
    }
}

/// Strings by number, each once.
#[derive(Clone, Debug)]
pub struct Interner {
    /// What is shared with copies: each layer is several times as long as the next.
    shared: Vec<Arc<Layer>>,
    /// What came since.
    own: Layer,
    hasher: RandomState,
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
        let mut new = Self {
            shared: Vec::new(),
            own: Layer::default(),
            hasher: RandomState::default(),
            room_bytes: usize::MAX,
            refused: 0,
        };
        new.add("");
        new
    }
}

impl Interner {
    /// The number of `text`, new if it was not seen before.
    pub fn intern(&mut self, text: &str) -> NameId {
        let hash = self.hasher.hash_one(text.as_bytes());
        if let Some(id) = self.find_hashed(text.as_bytes(), hash) {
            return id;
        }
        let bytes = text.len().saturating_add(STRING_EXTRA_BYTES);
        if bytes > self.room_bytes {
            self.refused += 1;
            return self.intern_own(TOO_MANY);
        }
        self.room_bytes -= bytes;
        self.add_hashed(text, hash)
    }

    /// The number of one of the recording's own texts, of which there are few: the limit is not for them. What says that names
    /// found no room must itself find some.
    pub fn intern_own(&mut self, text: &str) -> NameId {
        self.find(text).unwrap_or_else(|| self.add(text))
    }

    fn add(&mut self, text: &str) -> NameId {
        self.add_hashed(text, self.hasher.hash_one(text.as_bytes()))
    }

    fn add_hashed(&mut self, text: &str, hash: u64) -> NameId {
        let id = NameId::new(u32::try_from(self.len()).unwrap_or(0));
        self.own.add(text, hash, &self.hasher);
        id
    }

    /// A copy that shares the strings with this one, which goes on: what it costs is what came since the last such copy, and now
    /// and then some times that.
    #[must_use]
    pub fn share(&mut self) -> Self {
        if !self.own.strings.places.is_empty() {
            let first = self.len();
            let mut last = std::mem::take(&mut self.own);
            self.own.first = first;
            while let Some(before) = self.shared.last()
                && before.strings.places.len() < LONGER * last.strings.places.len()
            {
                let mut joined = Layer::clone(before);
                for text in last.strings.iter() {
                    joined.add(text, self.hasher.hash_one(text.as_bytes()), &self.hasher);
                }
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

    /// Strings for which there was no room, since they were taken last.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Strings since the last call for which there was no room.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// The string of a number; the empty string for a number that this interner never gave.
    #[must_use]
    pub fn get(&self, id: NameId) -> &str {
        let place = id.number() as usize;
        let layer = match place.checked_sub(self.own.first) {
            Some(_) => &self.own,
            None => {
                let after = self.shared.partition_point(|layer| layer.first <= place);
                &self.shared[after - 1]
            }
        };
        layer.strings.get(place - layer.first).unwrap_or_default()
    }

    /// The number of `text`, if it was seen.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<NameId> {
        self.find_bytes(text.as_bytes())
    }

    /// The same of what need not be UTF-8: then it was not seen.
    #[must_use]
    #[inline]
    pub fn find_bytes(&self, text: &[u8]) -> Option<NameId> {
        self.find_hashed(text, self.hasher.hash_one(text))
    }

    fn find_hashed(&self, text: &[u8], hash: u64) -> Option<NameId> {
        let shared = self.shared.iter().map(|layer| &**layer);
        let mut layers = std::iter::once(&self.own).chain(shared);
        layers.find_map(|layer| layer.find(text, hash))
    }

    /// Takes in another interner's strings: their numbers here, by their numbers there.
    pub fn absorb(&mut self, other: &Self) -> Vec<NameId> {
        let shared = other.shared.iter().map(|layer| &**layer);
        let layers = shared.chain(std::iter::once(&other.own));
        let texts = layers.flat_map(|layer| layer.strings.iter());
        texts.map(|text| self.intern(text)).collect()
    }

    /// The same with one that is not needed any more; `None` where all numbers stay as they are, since this one was empty.
    pub fn take_in(&mut self, other: Self) -> Option<Vec<NameId>> {
        if self.len() > 1 {
            return Some(self.absorb(&other));
        }
        let room_bytes = self.room_bytes;
        *self = other;
        (self.room_bytes, self.refused) = (room_bytes, 0);
        None
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.own.bytes() + self.shared.iter().map(|layer| layer.bytes()).sum::<usize>()
    }

    /// How many strings, the empty one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.own.first + self.own.strings.places.len()
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
            assert_eq!(names.intern(&format!("name {number}")).number(), number + 1);
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
                let (id, text) = (NameId::new(number + 1), format!("name {number}"));
                let is_there = (number as usize) + 1 < *len;
                assert_eq!(copy.get(id), if is_there { &text } else { "" });
                assert_eq!(copy.find(&text), is_there.then_some(id));
            }
            assert_eq!(copy.intern("another").number() as usize, *len);
            let mut other = Interner::default();
            assert_eq!(
                other.absorb(copy),
                (0..=*len as u32).map(NameId::new).collect::<Vec<_>>()
            );
        }
        assert_eq!(names.find("another"), None);
        assert_eq!(names.len(), 301);
    }

    #[test]
    fn many_names_cost_little_more_than_their_texts_and_an_empty_interner_takes_all_over() {
        let mut names = Interner::default();
        let text = |number: u32| format!("void kernel_{number}<float, 4>(float*, float const*, int)");
        let ids: Vec<NameId> = (0..100_000).map(|number| names.intern(&text(number))).collect();
        let texts: usize = (0..100_000).map(|number| text(number).len()).sum();
        assert!(
            names.bytes() > texts && names.bytes() < texts + 100_000 * 48,
            "{} of {texts}",
            names.bytes()
        );
        assert_eq!(names.find_bytes(b"\xff"), None);
        assert_eq!(names.find_bytes(text(7).as_bytes()), Some(ids[7]));
        let long = "x".repeat(3 << 20);
        let long_id = names.intern(&long);
        let (mut whole, mut some) = (Interner::default(), Interner::default());
        some.intern("first");
        assert_eq!(whole.take_in(names.clone()), None);
        let numbers = some.take_in(names).expect("new numbers");
        for (number, id) in (0..100_000).zip(ids) {
            assert_eq!(
                (whole.get(id), some.get(numbers[id.number() as usize])),
                (&*text(number), &*text(number))
            );
        }
        assert_eq!(whole.get(long_id), long);
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
