//! Names as Kineto has them, each put into JSON once; and how to find what they were.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::{Interner, NameId};

use super::event::json_string;
use crate::export::words;

/// What a name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Kernel,
    Call,
    Other,
}

/// The names of a recording, as JSON strings.
pub struct Names<'r> {
    names: &'r Interner,
    known: [Vec<Option<Box<[u8]>>>; 3],
}

impl<'r> Names<'r> {
    pub fn new(names: &'r Interner) -> Self {
        Self {
            names,
            known: [Vec::new(), Vec::new(), Vec::new()],
        }
    }

    pub fn json(&mut self, of: Of, name: NameId) -> &[u8] {
        let known = &mut self.known[of as usize];
        let place = name.number() as usize;
        if known.len() <= place {
            known.resize(self.names.len().max(place + 1), None);
        }
        known[place].get_or_insert_with(|| json_string(&written(of, self.names.get(name))))
    }
}

fn written(of: Of, text: &str) -> String {
    match of {
        Of::Kernel => words::kernel_name(text),
        Of::Call => words::call_name(text).to_owned(),
        Of::Other => text.to_owned(),
    }
}

/// How names that are written otherwise than they are recorded are found again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Originals {
    /// As written and as recorded.
    pub pairs: Vec<(String, String)>,
    /// Those that are written as others are too: what they were must stand with each event.
    pub ambiguous: BTreeSet<NameId>,
}

impl Originals {
    pub fn of(of: Of, column: &[NameId], names: &Interner) -> Self {
        let mut used = vec![false; names.len()];
        for name in column {
            used[name.number() as usize] = true;
        }
        let mut by_written: BTreeMap<String, Vec<NameId>> = BTreeMap::new();
        for (number, _) in (0u32..).zip(&used).filter(|(_, used)| **used) {
            let name = NameId::new(number);
            let written = written(of, names.get(name));
            by_written.entry(written).or_default().push(name);
        }
        let mut originals = Self::default();
        for (written, names_of) in by_written {
            match names_of.as_slice() {
                [one] if names.get(*one) == written => {}
                [one] => originals.pairs.push((written, names.get(*one).to_owned())),
                several => originals.ambiguous.extend(several),
            }
        }
        originals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again_or_stand_with_their_events() {
        let mut names = Interner::default();
        let calls = [
            "cudaLaunchKernel_v7000",
            "cuMemcpyHtoDAsync_v2",
            "cuMemcpyHtoDAsync",
            "cuInit",
        ]
        .map(|name| names.intern(name));
        let originals = Originals::of(
            Of::Call,
            &[calls[0], calls[1], calls[2], calls[0], calls[3]],
            &names,
        );
        assert_eq!(
            originals.pairs,
            [("cudaLaunchKernel".to_owned(), "cudaLaunchKernel_v7000".to_owned())]
        );
        assert_eq!(originals.ambiguous, BTreeSet::from([calls[1], calls[2]]));
    }
}
