//! Names of events: each is told once a sequence, before its first use, and is a number from then on.

use std::borrow::Cow;
use std::io;

use gputrace_trace::{Interner, NameId};
use rustc_hash::FxHashMap;

use super::fields::interned;
use super::packets::{Packets, intern};
use crate::export::words;

/// Whose words a name is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wording {
    /// A kernel's, as its author wrote it.
    Kernel,
    /// A call's, without the version of its entry point.
    Call,
    /// A collective's function, as it is enqueued.
    Enqueued,
    /// As it is.
    Plain,
}

/// The names that were told on the current sequence.
pub(super) struct Names<'r> {
    strings: &'r Interner,
    /// By wording and [`NameId`]: the number, 0 while there is none.
    known: [Vec<u32>; 4],
    /// By text: those of no table.
    texts: FxHashMap<String, u32>,
    last: u32,
}

impl<'r> Names<'r> {
    pub(super) fn new(strings: &'r Interner) -> Self {
        Self {
            strings,
            known: [const { Vec::new() }; 4],
            texts: FxHashMap::default(),
            last: 0,
        }
    }

    /// Forgets all: a new sequence begins.
    pub(super) fn clear(&mut self) {
        self.known.iter_mut().for_each(Vec::clear);
        self.texts.clear();
        self.last = 0;
    }

    /// The number of a table's name.
    #[inline]
    pub(super) fn of(&mut self, wording: Wording, id: NameId, packets: &mut Packets<'_>) -> io::Result<u64> {
        match self.known[wording as usize].get(id.number() as usize) {
            Some(&iid) if iid != 0 => Ok(iid.into()),
            _ => self.tell(wording, id, packets),
        }
    }

    #[cold]
    fn tell(&mut self, wording: Wording, id: NameId, packets: &mut Packets<'_>) -> io::Result<u64> {
        let text = self.strings.get(id);
        let text = match wording {
            Wording::Kernel => Cow::Owned(words::kernel_name(text)),
            Wording::Call => Cow::Borrowed(words::call_name(text)),
            Wording::Enqueued => Cow::Owned(format!("nccl:{}", words::collective_name(text))),
            Wording::Plain => Cow::Borrowed(text),
        };
        let iid = self.next(&text, packets)?;
        let known = &mut self.known[wording as usize];
        let place = id.number() as usize;
        if place >= known.len() {
            known.resize(place + 1, 0);
        }
        known[place] = iid;
        Ok(iid.into())
    }

    /// The number of a text.
    pub(super) fn text(&mut self, text: &str, packets: &mut Packets<'_>) -> io::Result<u64> {
        if let Some(&iid) = self.texts.get(text) {
            return Ok(iid.into());
        }
        let iid = self.next(text, packets)?;
        self.texts.insert(text.to_owned(), iid);
        Ok(iid.into())
    }

    fn next(&mut self, text: &str, packets: &mut Packets<'_>) -> io::Result<u32> {
        self.last += 1;
        let iid = self.last;
        packets.interned(|data| intern(data, interned::EVENT_NAMES, iid.into(), text))?;
        Ok(iid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_once_a_sequence_and_before_its_number_is_used() {
        let mut strings = Interner::default();
        let kernel = strings.intern("_Z3addPfi");
        let mut out = Vec::new();
        let mut packets = Packets::new(&mut out, 0, false);
        let mut names = Names::new(&strings);
        assert_eq!(names.of(Wording::Kernel, kernel, &mut packets).unwrap(), 1);
        assert_eq!(names.of(Wording::Plain, kernel, &mut packets).unwrap(), 2);
        assert_eq!(names.of(Wording::Kernel, kernel, &mut packets).unwrap(), 1);
        assert_eq!(names.text("wait", &mut packets).unwrap(), 3);
        assert_eq!(names.text("wait", &mut packets).unwrap(), 3);
        names.clear();
        assert_eq!(names.text("wait", &mut packets).unwrap(), 1);
        packets.finish().unwrap();
        let told = |text: &str| out.windows(text.len()).filter(|w| *w == text.as_bytes()).count();
        assert_eq!(
            (told("add(float*, int)"), told("_Z3addPfi"), told("wait")),
            (1, 1, 2)
        );
    }
}
