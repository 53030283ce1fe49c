//! Where an object or an array ends: 64 bytes at a time, by masks of quotes and brackets, as simdjson's first stage finds them
//! (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", VLDB Journal 28, 2019).

use wide::u8x16;

/// Bytes that are looked at together: as many as a mask has bits.
const BLOCK: usize = 64;

/// Which bytes of a block are what; bit 0 is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Masks {
    quotes: u64,
    backslashes: u64,
    opens: u64,
    closes: u64,
}

/// This bit makes a square bracket a curly one, and no other byte a bracket.
const CURLY: u8 = b'[' ^ b'{';

fn masks(block: &[u8; BLOCK]) -> Masks {
    let mut masks = Masks::default();
    let (parts, _) = block.as_chunks::<16>();
    for (place, part) in parts.iter().enumerate() {
        let bytes = u8x16::from(*part);
        let is = |bytes: u8x16, wanted: u8| {
            let equal = bytes.simd_eq(u8x16::splat(wanted));
            u64::from(equal.to_bitmask()) << (16 * place)
        };
        let curly = bytes | u8x16::splat(CURLY);
        masks.quotes |= is(bytes, b'"');
        masks.backslashes |= is(bytes, b'\\');
        masks.opens |= is(curly, b'{');
        masks.closes |= is(curly, b'}');
    }
    masks
}

/// Each bit becomes the sum, modulo 2, of itself and those before it.
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// What is open at a place.
#[derive(Default)]
pub(super) struct State {
    depth: usize,
    in_text: bool,
    after_backslash: bool,
}

impl State {
    /// Whether neither a bracket nor a string is open.
    pub(super) fn is_outside(&self) -> bool {
        self.depth == 0 && !self.in_text
    }

    /// Steps over a byte; whether it closes the last bracket.
    pub(super) fn step(&mut self, byte: u8) -> bool {
        if self.in_text {
            match byte {
                _ if self.after_backslash => self.after_backslash = false,
                b'\\' => self.after_backslash = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => return self.close(),
            _ => {}
        }
        false
    }

    fn close(&mut self) -> bool {
        self.depth = self.depth.saturating_sub(1);
        self.depth == 0
    }

    /// Steps over a block without backslashes; how many of its bytes come up to the last bracket's end, if that is in it.
    fn block(&mut self, masks: Masks) -> Option<usize> {
        let before = if self.in_text { u64::MAX } else { 0 };
        // From each opening quote up to its closing one.
        let inside = prefix_xor(masks.quotes) ^ before;
        let (opens, closes) = (masks.opens & !inside, masks.closes & !inside);
        let (opened, closed) = (opens.count_ones() as usize, closes.count_ones() as usize);
        self.in_text = inside >> (BLOCK - 1) == 1;
        if self.depth > closed {
            self.depth = self.depth + opened - closed;
            return None;
        }
        let mut brackets = opens | closes;
        while brackets != 0 {
            let place = brackets.trailing_zeros();
            brackets &= brackets - 1;
            if opens >> place & 1 == 1 {
                self.depth += 1;
            } else if self.close() {
                return Some(place as usize + 1);
            }
        }
        None
    }
}

/// The place behind the bracket that closes all that is open at `at`, where `depth` brackets are open and no string is; `None` where
/// the bytes end before. Brackets are counted, not matched by kind.
pub(super) fn end(bytes: &[u8], mut at: usize, depth: usize) -> Option<usize> {
    let mut state = State {
        depth,
        in_text: false,
        after_backslash: false,
    };
    loop {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let mut padded = [b' '; BLOCK];
        let block = rest.first_chunk().unwrap_or_else(|| {
            padded[..rest.len()].copy_from_slice(rest);
            &padded
        });
        let masks = masks(block);
        let length = if masks.backslashes == 0 && !state.after_backslash {
            state.block(masks)
        } else {
            let close = rest[..rest.len().min(BLOCK)]
                .iter()
                .position(|byte| state.step(*byte));
            close.map(|place| place + 1)
        };
        if let Some(length) = length {
            return Some(at + length);
        }
        at += BLOCK;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Byte by byte.
    fn slowly(bytes: &[u8], at: usize, depth: usize) -> Option<usize> {
        let mut state = State {
            depth,
            in_text: false,
            after_backslash: false,
        };
        let rest = bytes.get(at..)?;
        rest.iter()
            .position(|byte| state.step(*byte))
            .map(|place| at + place + 1)
    }

    #[test]
    fn brackets_in_strings_are_none() {
        let text = br#"{"a}": ["]", "\"}", {"b": "\\"}], "c": 1} more"#;
        assert_eq!(end(text, 0, 0), Some(text.len() - 5));
        assert_eq!(end(text, 7, 0), Some(32));
        assert_eq!(end(text, 34, 1), Some(text.len() - 5));
        assert_eq!(end(&text[..20], 0, 0), None);
        assert_eq!(end(b"", 0, 1), None);
        assert_eq!(end(b"x", 5, 1), None);
    }

    proptest! {
        #[test]
        fn blocks_end_where_bytes_do(
            bytes in proptest::collection::vec(
                prop_oneof![6 => prop::sample::select(b"{}[]\"\"\\, a1:".to_vec()), 1 => any::<u8>()], 0..400),
            at in 0usize..70,
            depth in 0usize..5,
        ) {
            prop_assert_eq!(end(&bytes, at, depth), slowly(&bytes, at, depth));
            let mut nested = vec![b'['; 100];
            nested.extend(&bytes);
            nested.extend([b']'; 300]);
            prop_assert_eq!(end(&nested, 0, depth), slowly(&nested, 0, depth));
        }
    }
}
