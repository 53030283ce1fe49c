//! JSON as it comes: members and values are cut out of a block of bytes without building a tree.
//!
//! Trace files are written by hand-made writers: `NaN`, keys that stand twice, bytes that are no UTF-8 and halves of
//! surrogate pairs all occur, and a file may end anywhere. So values are only delimited here, by quotes, brackets and
//! commas; what a number or a string means is decided where it is used. Nesting costs no stack.

use super::brackets;

/// Why a value could not be cut out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The bytes end inside it: with more of them it may be whole.
    End,
    /// Byte at this place can't stand there.
    Bad(usize),
}

/// A string between its quotes, with its escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawText<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) escaped: bool,
}

/// A value, cut out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw<'a> {
    /// A string.
    Text(RawText<'a>),
    /// A number, a word, or something like them.
    Scalar(&'a [u8]),
    /// An object or an array with its brackets.
    Nested(&'a [u8]),
}

/// A place in a block of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Whether a byte ends a number or a word.
const ENDS_SCALAR: [bool; 256] = {
    let mut table = [false; 256];
    let ends = b",]} \n\r\t:\"[{";
    let mut index = 0;
    while index < ends.len() {
        table[ends[index] as usize] = true;
        index += 1;
    }
    table
};

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Steps over one byte that [`Self::token`] showed.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.at += 1;
    }

    /// What was not stepped over.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Steps over so many bytes of [`Self::rest`].
    #[inline]
    pub(crate) fn step_over(&mut self, length: usize) {
        self.at += length;
    }

    /// The next byte that is not blank, without stepping over it.
    #[inline]
    pub(crate) fn token(&mut self) -> Result<u8, Stop> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !is_blank(byte) {
                return Ok(byte);
            }
            self.at += 1;
        }
        Err(Stop::End)
    }

    /// Steps over `wanted` and blanks before it.
    #[inline]
    pub(crate) fn expect(&mut self, wanted: u8) -> Result<(), Stop> {
        if self.token()? == wanted {
            self.at += 1;
            Ok(())
        } else {
            Err(Stop::Bad(self.at))
        }
    }

    /// The string whose opening quote is the next token.
    #[inline]
    pub(crate) fn text(&mut self) -> Result<RawText<'a>, Stop> {
        self.expect(b'"')?;
        let start = self.at;
        let mut escaped = false;
        let rest = &self.bytes[start..];
        // Most strings are short: a plain loop finds their end before a wide search has begun.
        let near = rest.len().min(24);
        let mut at = rest[..near]
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\')
            .unwrap_or(near);
        loop {
            match rest.get(at) {
                Some(b'"') => {
                    self.at = start + at + 1;
                    return Ok(RawText {
                        bytes: &rest[..at],
                        escaped,
                    });
                }
                Some(b'\\') => {
                    escaped = true;
                    at += 2;
                }
                Some(_) => at += memchr::memchr2(b'"', b'\\', &rest[at..]).ok_or(Stop::End)?,
                None => return Err(Stop::End),
            }
        }
    }

    /// The value that begins at the next token.
    #[inline]
    pub(crate) fn value(&mut self) -> Result<Raw<'a>, Stop> {
        match self.token()? {
            b'"' => Ok(Raw::Text(self.text()?)),
            b'{' | b'[' => {
                let start = self.at;
                self.skip_nested()?;
                Ok(Raw::Nested(&self.bytes[start..self.at]))
            }
            _ => {
                let start = self.at;
                let rest = &self.bytes[start..];
                let length = rest
                    .iter()
                    .position(|&byte| ENDS_SCALAR[usize::from(byte)])
                    .ok_or(Stop::End)?;
                if length == 0 {
                    return Err(Stop::Bad(start));
                }
                self.at += length;
                Ok(Raw::Scalar(&rest[..length]))
            }
        }
    }

    /// Steps over the object or array that begins here. Brackets are counted, not matched by kind.
    #[inline]
    pub(crate) fn skip_nested(&mut self) -> Result<(), Stop> {
        self.skip(0)
    }

    /// Steps to behind the bracket that closes this many that are open and those that open on the way.
    fn skip(&mut self, depth: usize) -> Result<(), Stop> {
        self.at = brackets::end(self.bytes, self.at, depth).ok_or(Stop::End)?;
        Ok(())
    }
}

/// Whether to go on with the members of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    On,
    /// The rest of the object is stepped over unseen.
    Enough,
}

/// Calls `visit` with the members of the object that begins at the next token, and steps over it.
#[inline]
pub(crate) fn members<'a>(
    cursor: &mut Cursor<'a>,
    mut visit: impl FnMut(&'a [u8], Raw<'a>) -> Go,
) -> Result<(), Stop> {
    cursor.expect(b'{')?;
    if cursor.token()? == b'}' {
        cursor.advance();
        return Ok(());
    }
    loop {
        let key = cursor.text()?;
        cursor.expect(b':')?;
        let value = cursor.value()?;
        let go = visit(key.bytes, value);
        match cursor.token()? {
            b',' => cursor.advance(),
            b'}' => {
                cursor.advance();
                return Ok(());
            }
            _ => return Err(Stop::Bad(cursor.at())),
        }
        // A comma after the last member is no reason to give the file up.
        if cursor.token()? == b'}' {
            cursor.advance();
            return Ok(());
        }
        if go == Go::Enough {
            return cursor.skip(1);
        }
    }
}

/// Steps over one element of a list, or one member of an object, that may be longer than the memory allows: it is fed
/// block by block.
#[derive(Default)]
pub(crate) struct Skipper(brackets::State);

impl Skipper {
    /// Takes the next bytes; how many of them come before the comma or bracket that ends the element, once it is there.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        bytes.iter().position(|&byte| {
            let ends = self.0.is_outside() && matches!(byte, b'}' | b']' | b',');
            if !ends {
                self.0.step(byte);
            }
            ends
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Result<Vec<(String, String)>, Stop> {
        let mut found = Vec::new();
        members(&mut Cursor::new(text.as_bytes()), |key, value| {
            let value = match value {
                Raw::Text(text) => text.bytes,
                Raw::Scalar(bytes) | Raw::Nested(bytes) => bytes,
            };
            found.push((
                String::from_utf8_lossy(key).into_owned(),
                String::from_utf8_lossy(value).into_owned(),
            ));
            Go::On
        })?;
        Ok(found)
    }

    #[test]
    fn members_are_cut_out_compact_or_pretty() {
        let expected: Vec<(String, String)> = [
            ("a", "1"),
            ("b", "x\\\"y"),
            ("c", "[1, {\"d\": \"]\"}]"),
            ("e", "NaN"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        assert_eq!(
            all("{\"a\":1,\"b\":\"x\\\"y\",\"c\":[1, {\"d\": \"]\"}],\"e\":NaN}"),
            Ok(expected.clone())
        );
        assert_eq!(
            all("{\n  \"a\" : 1 ,\n\t\"b\": \"x\\\"y\",\r\n \"c\": [1, {\"d\": \"]\"}] , \"e\": NaN\n}"),
            Ok(expected)
        );
        assert_eq!(all("{}"), Ok(vec![]));
        assert_eq!(all("{\"a\":1,}").map(|found| found.len()), Ok(1));
    }

    #[test]
    fn what_is_cut_off_asks_for_more_and_what_is_wrong_says_where() {
        for cut in [
            "",
            "{",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":\"x\\",
            "{\"a\":[{\"b\"",
            "{\"a\":1,",
        ] {
            assert_eq!(all(cut), Err(Stop::End), "{cut:?}");
        }
        assert_eq!(all("{a:1}"), Err(Stop::Bad(1)));
        assert_eq!(all("{\"a\" 1}"), Err(Stop::Bad(5)));
        assert_eq!(all("{\"a\":1 2}"), Err(Stop::Bad(7)));
        assert_eq!(all("{\"a\":}"), Err(Stop::Bad(5)));
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(2_000_000), "]".repeat(2_000_000));
        assert_eq!(all(&deep).map(|found| found[0].1.len()), Ok(4_000_000));
    }

    #[test]
    fn the_rest_of_an_object_can_be_left() {
        let text = b"{\"a\":1,\"b\":{\"c\":\"}\"},\"d\":2} next";
        let mut cursor = Cursor::new(text);
        let mut seen = 0;
        let done = members(&mut cursor, |_, _| {
            seen += 1;
            Go::Enough
        });
        assert_eq!(
            (done, seen, &text[cursor.at()..]),
            (Ok(()), 1, b" next".as_slice())
        );
    }

    proptest! {
        #[test]
        fn a_skipper_fed_in_pieces_ends_where_the_cursor_does(
            value in prop_oneof![
                Just("{\"a\":[1,2,{\"b\":\"}]\\\"\"}]}"), Just("[]"), Just("\"te,x\\\\t\""), Just("[[[\"[\"]]]"), Just("12.5"),
            ],
            piece in 1usize..7,
        ) {
            let text = format!("{value}, more");
            let mut skipper = Skipper::default();
            let mut at = 0;
            let end = text.as_bytes().chunks(piece).find_map(|bytes| {
                let found = skipper.feed(bytes).map(|length| at + length);
                at += bytes.len();
                found
            });
            prop_assert_eq!(end, Some(value.len()));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(
            prop_oneof![4 => prop::sample::select(b"{}[]\",:\\ 1aN".to_vec()), 1 => any::<u8>()], 0..60)) {
            let _ = members(&mut Cursor::new(&bytes), |_, _| Go::On);
            let _ = members(&mut Cursor::new(&bytes), |_, _| Go::Enough);
            let _ = Skipper::default().feed(&bytes);
        }
    }
}
