//! Small numbers for the threads and streams of a file, whatever it calls them.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

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

/// Numbers for the host threads of a file. Threads of several processes may have one id, as each container counts from 1: the
/// process that had it first keeps it, those of the others get numbers of their own.
#[derive(Default)]
pub(crate) struct Threads {
    ids: Ids,
    /// By number: which process's it is, and the bytes of all of that.
    processes: FxHashMap<u32, Box<[u8]>>,
    text_bytes: usize,
    /// What was asked last.
    pid: Vec<u8>,
    tid: Vec<u8>,
    number: u32,
}

impl Threads {
    /// The number of a process's thread, both as the file writes them. Where it says no process, the thread is the first one's of
    /// that id.
    #[inline]
    pub(super) fn number(&mut self, pid: &[u8], tid: &[u8]) -> u32 {
        if self.tid != tid || self.pid != pid || self.processes.is_empty() {
            self.number = self.look_up(pid, tid);
            self.pid.clear();
            self.pid.extend_from_slice(pid);
            self.tid.clear();
            self.tid.extend_from_slice(tid);
        }
        self.number
    }

    fn look_up(&mut self, pid: &[u8], tid: &[u8]) -> u32 {
        let number = self.ids.number(tid);
        if pid.is_empty() {
            return number;
        }
        let process = self.processes.entry(number).or_insert_with(|| {
            self.text_bytes += pid.len();
            pid.into()
        });
        if **process == *pid {
            number
        } else {
            self.ids.given(&[tid, b" of ", pid].concat())
        }
    }

    /// Bytes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        /// A slot, and what an allocation costs.
        const EACH: usize = size_of::<(u32, Box<[u8]>)>() + 2 * size_of::<usize>();
        self.ids.bytes() + self.text_bytes + self.processes.capacity() * EACH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_two_processes_with_one_id_are_two() {
        let mut threads = Threads::default();
        let first = threads.number(b"100", b"7");
        let other = threads.number(b"200", b"7");
        assert_eq!(first, 7);
        assert!(other >= Ids::GIVEN);
        assert_eq!(
            [threads.number(b"100", b"7"), threads.number(b"200", b"7")],
            [first, other]
        );
        assert_eq!(threads.number(b"200", b"8"), 8);
        assert_ne!(threads.number(b"300", b"7"), other);
        // Where the file does not say whose it is.
        assert_eq!(threads.number(b"", b"7"), first);
    }
}
