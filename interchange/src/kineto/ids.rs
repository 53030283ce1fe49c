//! Small numbers for the threads and streams of a file, whatever it calls them.

use std::collections::HashMap;

use super::number::integer;
use super::scan::RawText;
use super::text::{TextTrouble, decode};

/// Numbers for identifiers that are no small numbers themselves (pthread handles, "Spans", streams of HIP).
#[derive(Default)]
pub(crate) struct Ids {
    known: HashMap<Vec<u8>, u32>,
    text_bytes: usize,
}

impl Ids {
    /// Numbers up to here are their own; from here on they are given out.
    pub(super) const GIVEN: u32 = 1 << 31;

    #[inline]
    pub(super) fn number(&mut self, text: &[u8]) -> u32 {
        match integer(text).and_then(|value| u32::try_from(value).ok()) {
            Some(number) if number < Self::GIVEN => number,
            _ => self.given(text),
        }
    }

    pub(super) fn of_value(&mut self, value: i64) -> u32 {
        match u32::try_from(value) {
            Ok(number) if number < Self::GIVEN => number,
            _ => self.given(value.to_string().as_bytes()),
        }
    }

    #[cold]
    fn given(&mut self, text: &[u8]) -> u32 {
        /// No more of a text than this tells threads and streams apart.
        const LONGEST: usize = 256;
        let text = &text[..text.len().min(LONGEST)];
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let number = Self::GIVEN.saturating_add(u32::try_from(self.known.len()).unwrap_or(u32::MAX));
        self.known.insert(text.to_vec(), number);
        self.text_bytes += text.len();
        number
    }

    /// Bytes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        /// A slot, and what an allocation costs.
        const EACH: usize = size_of::<(Vec<u8>, u32)>() + 2 * size_of::<usize>();
        self.text_bytes + self.known.capacity() * EACH
    }

    /// The numbers that were given out, and for what: of longer texts later, of equally long ones in their order, so that
    /// numbers stay in theirs.
    pub(super) fn given_out(&self) -> Vec<(u32, String)> {
        let text = |bytes: &[u8]| {
            let escaped = bytes.contains(&b'\\');
            decode(RawText { bytes, escaped }, &mut TextTrouble::default()).into_owned()
        };
        let mut all: Vec<(u32, String)> = self
            .known
            .iter()
            .map(|(known, number)| (*number, text(known)))
            .collect();
        all.sort_by(|(_, a), (_, b)| (a.len(), a).cmp(&(b.len(), b)));
        all
    }
}
