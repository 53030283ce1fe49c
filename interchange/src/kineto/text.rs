//! Strings of a trace file: escapes undone, what is no UTF-8 replaced and counted, each name kept once.

use std::borrow::Cow;
use std::collections::HashMap;

use gputrace_trace::{Interner, NameId};

use super::operator_args::tidy;
use super::scan::RawText;

/// Names longer than this are cut: the longest of C++'s have some thousand characters, and of templates gone wild 100,000.
const LONGEST_NAME: usize = 256 * 1024;

/// What was not as it should be in strings.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextTrouble {
    /// Strings with bytes that are no UTF-8.
    pub(crate) not_utf8: u64,
    /// Strings with half of a surrogate pair, or an escape that JSON does not know.
    pub(crate) bad_escapes: u64,
    /// Strings that were cut.
    pub(crate) too_long: u64,
}

fn hex4(digits: Option<&[u8]>) -> Option<u32> {
    let digits = std::str::from_utf8(digits?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

/// Undoes the escapes of `bytes`; whether all of them were good ones.
fn unescape(bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut text = Vec::with_capacity(bytes.len());
    let mut good = true;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let escape = bytes.get(at).copied().unwrap_or(b'\\');
        at += 1;
        match escape {
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'"' | b'\\' | b'/' => text.push(escape),
            b'u' => {
                let mut code = hex4(bytes.get(at..at + 4));
                at += 4;
                if let Some(high @ 0xd800..0xdc00) = code {
                    let low = bytes
                        .get(at..at + 2)
                        .filter(|escape| *escape == b"\\u")
                        .and_then(|_| hex4(bytes.get(at + 2..at + 6)))
                        .filter(|low| (0xdc00..0xe000).contains(low));
                    code = low.map(|low| 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
                    if low.is_some() {
                        at += 6;
                    }
                }
                let letter = code.and_then(char::from_u32).unwrap_or_else(|| {
                    good = false;
                    char::REPLACEMENT_CHARACTER
                });
                text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => {
                good = false;
                text.push(other);
            }
        }
    }
    (text, good)
}

/// The bytes of a string with its escapes undone, for comparing: some writers escape what need not be (`-\u003e`, `\/`).
#[inline]
pub(crate) fn unescaped(raw: RawText<'_>) -> Cow<'_, [u8]> {
    if raw.escaped {
        Cow::Owned(unescape(raw.bytes).0)
    } else {
        Cow::Borrowed(raw.bytes)
    }
}

/// The string as it was meant.
pub(crate) fn decode<'a>(raw: RawText<'a>, trouble: &mut TextTrouble) -> Cow<'a, str> {
    let mut bytes = raw.bytes;
    if bytes.len() > LONGEST_NAME {
        trouble.too_long += 1;
        bytes = &bytes[..LONGEST_NAME];
        // Half a character at the cut is not the file's fault.
        while bytes.last().is_some_and(|byte| byte & 0xc0 == 0x80) {
            bytes = &bytes[..bytes.len() - 1];
        }
        if bytes.last().is_some_and(|byte| *byte >= 0xc0) {
            bytes = &bytes[..bytes.len() - 1];
        }
    }
    if !raw.escaped {
        let text = String::from_utf8_lossy(bytes);
        trouble.not_utf8 += u64::from(matches!(text, Cow::Owned(_)));
        return text;
    }
    let (text, good) = unescape(bytes);
    trouble.bad_escapes += u64::from(!good);
    Cow::Owned(String::from_utf8(text).unwrap_or_else(|error| {
        trouble.not_utf8 += 1;
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    }))
}

/// Names by the bytes that they have in the file.
#[derive(Default)]
struct AsWritten {
    names: HashMap<Box<[u8]>, NameId>,
    /// Of all keys.
    length: usize,
}

impl AsWritten {
    fn find(&self, raw: RawText<'_>) -> Option<NameId> {
        self.names.get(raw.bytes).copied()
    }

    fn keep(&mut self, raw: RawText<'_>, name: NameId) {
        if raw.bytes.len() <= LONGEST_NAME {
            self.names.insert(raw.bytes.into(), name);
            self.length += raw.bytes.len();
        }
    }

    /// Bytes in memory, about.
    fn bytes(&self) -> usize {
        /// A slot of the map, and what an allocation costs.
        const EACH: usize = size_of::<(Box<[u8]>, NameId)>() + 2 * size_of::<usize>();
        self.length + self.names.capacity() * EACH
    }
}

/// The names of one file. What stands there as it is meant is found by its bytes; what does not, by the bytes that it has in
/// the file: escapes are undone once a name, not once an event.
#[derive(Default)]
pub(crate) struct Names {
    escaped: AsWritten,
    /// Lists as they were written, and as [`tidy`] writes them.
    lists: AsWritten,
    pub(crate) interner: Interner,
    pub(crate) trouble: TextTrouble,
}

impl Names {
    #[inline]
    pub(crate) fn intern(&mut self, raw: RawText<'_>) -> NameId {
        if !raw.escaped
            && let Some(name) = self.interner.find_bytes(raw.bytes)
        {
            return name;
        }
        self.new_name(raw)
    }

    fn new_name(&mut self, raw: RawText<'_>) -> NameId {
        if let Some(name) = self.escaped.find(raw) {
            return name;
        }
        let text = decode(raw, &mut self.trouble);
        let name = self.interner.intern(&text);
        if text.as_bytes() != raw.bytes {
            self.escaped.keep(raw, name);
        }
        name
    }

    /// The number of a list, as [`tidy`] writes it.
    pub(crate) fn intern_list(&mut self, raw: RawText<'_>) -> NameId {
        if !raw.escaped
            && let Some(name) = self.interner.find_bytes(raw.bytes)
        {
            return name;
        }
        if let Some(name) = self.lists.find(raw) {
            return name;
        }
        let text = tidy(&unescaped(raw));
        let name = self.intern(RawText {
            bytes: &text,
            escaped: false,
        });
        self.lists.keep(raw, name);
        name
    }

    /// Strings that were not as they should be, or found no room.
    pub(super) fn trouble(&self) -> u64 {
        let TextTrouble {
            not_utf8,
            bad_escapes,
            too_long,
        } = self.trouble;
        not_utf8 + bad_escapes + too_long + self.interner.refused()
    }

    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.interner.bytes() + self.escaped.bytes() + self.lists.bytes()
    }

    pub(crate) fn text(&mut self, raw: RawText<'_>) -> String {
        decode(raw, &mut self.trouble).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(bytes: &[u8]) -> (String, TextTrouble) {
        let mut trouble = TextTrouble::default();
        let raw = RawText {
            bytes,
            escaped: bytes.contains(&b'\\'),
        };
        let text = decode(raw, &mut trouble).into_owned();
        (text, trouble)
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(decoded(br#"a\n\t\"\\\/b"#).0, "a\n\t\"\\/b");
        assert_eq!(decoded(br"caf\u00e9 \ud83d\ude00").0, "café 😀");
    }

    #[test]
    fn halves_of_pairs_and_bytes_that_are_no_text_are_counted() {
        let (text, trouble) = decoded(br"x\ud83d y");
        assert_eq!((text.as_str(), trouble.bad_escapes), ("x\u{fffd} y", 1));
        let (text, trouble) = decoded(br"x\ude00");
        assert_eq!((text.as_str(), trouble.bad_escapes), ("x\u{fffd}", 1));
        let (text, trouble) = decoded(br"\ud83d\u0041");
        assert_eq!((text.as_str(), trouble.bad_escapes), ("\u{fffd}A", 1));
        let (text, trouble) = decoded(b"a\xff");
        assert_eq!((text.as_str(), trouble.not_utf8), ("a\u{fffd}", 1));
        let (_, trouble) = decoded(b"\\n\xff");
        assert_eq!(trouble.not_utf8, 1);
    }

    #[test]
    fn a_name_without_end_is_cut_between_characters() {
        let (text, trouble) = decoded("é".repeat(LONGEST_NAME).as_bytes());
        assert_eq!((trouble.too_long, trouble.not_utf8), (1, 0));
        assert!(text.len() <= LONGEST_NAME && text.chars().all(|letter| letter == 'é'));
    }

    proptest! {
        #[test]
        fn what_serde_writes_is_read_back(text in any::<String>()) {
            let json = serde_json::to_string(&text).unwrap();
            let (read, trouble) = decoded(&json.as_bytes()[1..json.len() - 1]);
            prop_assert_eq!(read, text);
            prop_assert_eq!(trouble.bad_escapes + trouble.not_utf8, 0);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(
            prop_oneof![prop::sample::select(b"\\ud83ex0\"".to_vec()), any::<u8>()], 0..40)) {
            let _ = decoded(&bytes);
        }
    }
}
