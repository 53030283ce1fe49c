//! Texts as Perfetto takes them.

use std::borrow::Cow;

/// The text without NUL characters, which end texts in the answers to Perfetto's SQL: whatever follows would be another's.
pub(super) fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{2400}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_end_early() {
        assert_eq!(without_nul("a\0b"), "a\u{2400}b");
        assert!(matches!(without_nul("plain"), Cow::Borrowed(_)));
    }
}
