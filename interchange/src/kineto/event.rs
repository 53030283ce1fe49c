//! One element of `traceEvents`: its members, cut out.

use super::scan::{Cursor, Go, Raw, RawText, Stop, members};

/// The members of an event that anything here needs. Numbers are still text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Event<'a> {
    /// "ph": 'X' complete, 'i' instant, 'C' counter, 'M' metadata; 0 where it is missing.
    pub(crate) phase: u8,
    pub(crate) category: &'a [u8],
    pub(crate) name: Option<RawText<'a>>,
    pub(crate) pid: &'a [u8],
    pub(crate) tid: &'a [u8],
    pub(crate) ts: Option<&'a [u8]>,
    pub(crate) dur: Option<&'a [u8]>,
    /// The object with its braces.
    pub(crate) args: Option<&'a [u8]>,
    /// `args` is there and is no object.
    pub(crate) odd_args: bool,
    /// Members that stand twice: the last one counts.
    pub(crate) duplicates: u32,
}

/// A value's own bytes: of a string without its quotes.
fn plain(value: Raw<'_>) -> &[u8] {
    match value {
        Raw::Text(text) => text.bytes,
        Raw::Scalar(bytes) | Raw::Nested(bytes) => bytes,
    }
}

impl<'a> Event<'a> {
    /// Reads the event that begins at the next token.
    #[inline]
    pub(crate) fn read(cursor: &mut Cursor<'a>) -> Result<Self, Stop> {
        let mut event = Self::default();
        let mut seen = 0u8;
        members(cursor, |key, value| {
            let bit = match key {
                b"ph" => {
                    event.phase = plain(value).first().copied().unwrap_or(0);
                    // Flow arrows are a third of a file, and say nothing that correlation ids don't. Of what else is not read
                    // the category is told in a loss or a note.
                    if matches!(event.phase, b's' | b't' | b'f') {
                        return Go::Enough;
                    }
                    1
                }
                b"cat" => {
                    event.category = plain(value);
                    2
                }
                b"name" => {
                    event.name = match value {
                        Raw::Text(text) => Some(text),
                        Raw::Scalar(bytes) | Raw::Nested(bytes) => Some(RawText {
                            bytes,
                            escaped: false,
                        }),
                    };
                    4
                }
                b"pid" => {
                    event.pid = plain(value);
                    8
                }
                b"tid" => {
                    event.tid = plain(value);
                    16
                }
                b"ts" => {
                    event.ts = Some(plain(value));
                    32
                }
                b"dur" => {
                    event.dur = Some(plain(value));
                    64
                }
                b"args" => {
                    event.args = match value {
                        Raw::Nested(bytes) if bytes.first() == Some(&b'{') => Some(bytes),
                        _ => None,
                    };
                    event.odd_args = event.args.is_none();
                    128
                }
                _ => 0,
            };
            event.duplicates += u32::from(seen & bit != 0);
            seen |= bit;
            Go::On
        })?;
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_any_order_and_the_last_of_two_counts() {
        let text = br#"{"ts": 5.5, "name": "a", "args": {"x": 1}, "ph": "X", "ts": 6, "cat": "kernel", "tid": "s", "dur": 1, "pid": 0}"#;
        let event = Event::read(&mut Cursor::new(text)).unwrap();
        assert_eq!(
            (event.phase, event.category, event.duplicates),
            (b'X', b"kernel".as_slice(), 1)
        );
        assert_eq!(
            (event.ts, event.dur),
            (Some(b"6".as_slice()), Some(b"1".as_slice()))
        );
        assert_eq!(
            (event.tid, event.args),
            (b"s".as_slice(), Some(b"{\"x\": 1}".as_slice()))
        );
    }

    #[test]
    fn arrows_are_left_early() {
        let text = br#"{"ph":"s","id":1,"pid":2,"args":{"deep":[{}]}}"#;
        let mut cursor = Cursor::new(text);
        let event = Event::read(&mut cursor).unwrap();
        assert_eq!(
            (event.phase, event.pid, cursor.at()),
            (b's', b"".as_slice(), text.len())
        );
    }
}
