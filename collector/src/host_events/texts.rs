//! Texts as numbers: what a callback passes on is a hash of the text, and the text itself only the first time.

use std::ffi::c_char;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::ring::Budget;

/// The longest text that is kept whole, in bytes; what is longer is cut there.
pub(crate) const LONGEST_BYTES: usize = 128 << 10;
/// Texts that a thread remembers to have sent; a power of two.
const REMEMBERED: usize = 512;
/// Strings that programs may register: more are taken for empty ones, and counted.
const CHUNKS: usize = 64;
const CHUNK: usize = 1024;

/// A text with its hash. The empty text's hash is 0, and no other's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text<'a> {
    pub(crate) hash: u64,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Text<'a> {
    /// Of bytes, cut at [`LONGEST_BYTES`].
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let bytes = &bytes[..bytes.len().min(LONGEST_BYTES)];
        Self {
            hash: hash(bytes),
            bytes,
        }
    }

    /// Of a zero-terminated text; null is the empty one.
    ///
    /// # Safety
    /// `text` is null or zero-terminated, and stays for `'a`.
    #[inline]
    pub(crate) unsafe fn from_c(text: *const c_char) -> Self {
        if text.is_null() {
            return Self::default();
        }
        // SAFETY: by the caller's promise; the length ends at the zero or at the limit, whichever comes first.
        let bytes =
            unsafe { std::slice::from_raw_parts(text.cast::<u8>(), libc::strnlen(text, LONGEST_BYTES)) };
        Self::new(bytes)
    }
}

/// A number for a text: two different texts have the same one with a probability of 2^-64 (and such a pair of names would
/// be shown as one). Eight bytes at a time, each folded in by a product of 64 by 64 bits.
#[inline]
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
    const SECOND: u64 = 0xd6e8_feb8_6659_fd93;
    if bytes.is_empty() {
        return 0;
    }
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let mut state = FIRST ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word), SECOND);
    }
    if !rest.is_empty() {
        let mut last = 0;
        for &byte in rest {
            last = last << 8 | u64::from(byte);
        }
        state = fold(state ^ last, SECOND);
    }
    fold(state, FIRST).max(1)
}

/// Which texts a thread has sent: one place a hash, so that a text may be sent again but none is taken for sent that
/// was not.
pub(crate) struct Sent([u64; REMEMBERED]);

impl Sent {
    pub(crate) const fn new() -> Self {
        Self([0; REMEMBERED])
    }

    /// Where `hash` is remembered.
    #[inline]
    pub(crate) fn place(&mut self, hash: u64) -> &mut u64 {
        &mut self.0[hash as usize % REMEMBERED]
    }
}

/// A registered text, with its hash.
type Entry = OnceLock<(u64, Box<[u8]>)>;

/// Texts that programs hold by handle, for as long as the process lives. Read without locks.
pub(crate) struct Registered {
    chunks: [OnceLock<Box<[Entry]>>; CHUNKS],
    next: AtomicUsize,
}

impl Registered {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            next: AtomicUsize::new(0),
        }
    }

    /// Keeps a text. Gives its number from 1 on, or 0 if there is no room for it.
    pub(crate) fn add(&self, text: Text<'_>, budget: &Budget) -> usize {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(chunk) = self.chunks.get(number / CHUNK) else {
            // Not to come round to 0 again.
            self.next.store(CHUNKS * CHUNK, Ordering::Relaxed);
            return 0;
        };
        let chunk_bytes = CHUNK * size_of::<Entry>();
        if !budget.take(text.bytes.len()) {
            return 0;
        }
        let chunk = chunk.get_or_init(|| {
            // 32 KiB a thousand strings: counted, never refused.
            budget.force(chunk_bytes);
            (0..CHUNK).map(|_| OnceLock::new()).collect()
        });
        // Each number is given once, so that its place is empty.
        _ = chunk[number % CHUNK].set((text.hash, text.bytes.into()));
        number + 1
    }

    /// The text of a number; the empty one for numbers that were never given.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Text<'_> {
        let index = number.wrapping_sub(1);
        self.chunks
            .get(index / CHUNK)
            .and_then(OnceLock::get)
            .and_then(|chunk| chunk[index % CHUNK].get())
            .map_or_else(Text::default, |(hash, bytes)| Text { hash: *hash, bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn texts_that_differ_a_little_have_different_numbers() {
        let mut seen = HashSet::new();
        for length in 0..40 {
            for changed in 0..=length {
                let mut bytes = vec![b'a'; length];
                if let Some(byte) = bytes.get_mut(changed) {
                    *byte = b'b';
                }
                seen.insert((bytes.clone(), hash(&bytes)));
            }
        }
        for number in 0..100_000 {
            let text = format!("step {number}");
            seen.insert((text.clone().into_bytes(), hash(text.as_bytes())));
        }
        let numbers: HashSet<u64> = seen.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers.len(), seen.len());
        assert_eq!(hash(b""), 0);
        assert_ne!(hash(b"\0"), 0);
    }

    #[test]
    fn registered_texts_are_found_by_number_and_no_others() {
        static REGISTERED: Registered = Registered::new();
        let budget = Budget::new(64 << 20);
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                std::thread::spawn(move || {
                    let budget = Budget::new(1 << 20);
                    (0..700)
                        .map(|number| {
                            let text = format!("{thread}/{number}");
                            (REGISTERED.add(Text::new(text.as_bytes()), &budget), text)
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let given: Vec<(usize, String)> = threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("ends"))
            .collect();
        assert_eq!(
            given
                .iter()
                .map(|(number, _)| number)
                .collect::<HashSet<_>>()
                .len(),
            2800
        );
        for (number, text) in &given {
            let found = REGISTERED.get(*number);
            assert_eq!(
                (found.bytes, found.hash),
                (text.as_bytes(), hash(text.as_bytes()))
            );
        }
        for unknown in [0, 2801, usize::MAX, CHUNKS * CHUNK, CHUNKS * CHUNK + 1] {
            assert_eq!(REGISTERED.get(unknown).bytes, b"");
        }
        // When all places are taken there are no more.
        let small = Text::new(b"x");
        while REGISTERED.add(small, &budget) != 0 {}
        assert_eq!(
            (REGISTERED.add(small, &budget), REGISTERED.add(small, &budget)),
            (0, 0)
        );
        assert_eq!(REGISTERED.get(CHUNKS * CHUNK).bytes, b"x");
    }
}
