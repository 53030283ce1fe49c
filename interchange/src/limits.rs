//! What importing files may take: memory beside what was unpacked, and how much a packed file may unpack to.
//!
//! A few bytes of a file can stand for many: packed ones for a thousand times as many, and an event's for a row that is wider
//! than its text. Who opens a file of somebody else's must not find his machine out of memory for it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gputrace_trace::stream::UNPACKED_TIMES;

/// Imports may take so much memory in any case.
pub const MEMORY_BYTES: u64 = 2 << 30;
/// And so many times the unpacked bytes that they read, where that is more.
pub const MEMORY_TIMES: u64 = 4;
/// Packed files may unpack to so much in any case, and to [`UNPACKED_TIMES`] their size where that is more: traces are packed to a
/// tenth or a thirtieth.
pub const UNPACKED_BYTES: u64 = 512 << 20;
/// The option that takes the limits away.
const OPTION: &str = "--no-import-limits";

static LIFTED: AtomicBool = AtomicBool::new(false);

/// From now on nothing is limited in this process.
pub fn lift() {
    LIFTED.store(true, Ordering::Relaxed);
}

/// An error that says that a limit was met, as reading passes it on.
pub(crate) fn met(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, why)
}

/// What a reading error says, if it says that a limit was met.
pub(crate) fn is_met(error: &io::Error) -> Option<String> {
    (error.kind() == io::ErrorKind::QuotaExceeded).then(|| error.to_string())
}

/// What of a file was read so far: packed and unpacked bytes.
pub(crate) fn check_unpacked(packed: u64, unpacked: u64) -> io::Result<()> {
    let most = UNPACKED_BYTES.max(packed.saturating_mul(UNPACKED_TIMES));
    if unpacked <= most || LIFTED.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(met(format!(
        "unpacks to more than {UNPACKED_TIMES} times its size ({} of {packed} bytes), which no trace does: it was not read on; \
         {OPTION} reads it all the same",
        mebibytes(unpacked)
    )))
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// The memory that one import may take, whichever of its files takes it.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    held: AtomicU64,
    unpacked: AtomicU64,
}

/// What one file has of it.
#[derive(Debug)]
pub(crate) struct Share<'m> {
    of: &'m Memory,
    held: u64,
    unpacked: u64,
}

impl Memory {
    pub(crate) fn share(&self) -> Share<'_> {
        Share {
            of: self,
            held: 0,
            unpacked: 0,
        }
    }
}

impl Share<'_> {
    /// Says what the file holds, about, and how much of it was unpacked so far. What may still come, in bytes.
    pub(crate) fn check(&mut self, held: u64, unpacked: u64) -> io::Result<u64> {
        let change = |total: &AtomicU64, before: &mut u64, now: u64| {
            let by = now.wrapping_sub(std::mem::replace(before, now));
            total.fetch_add(by, Ordering::Relaxed).wrapping_add(by)
        };
        let all_held = change(&self.of.held, &mut self.held, held);
        let all_unpacked = change(&self.of.unpacked, &mut self.unpacked, unpacked);
        let most = MEMORY_BYTES.max(all_unpacked.saturating_mul(MEMORY_TIMES));
        if LIFTED.load(Ordering::Relaxed) {
            return Ok(u64::MAX);
        }
        most.checked_sub(all_held).ok_or_else(|| {
            met(format!(
                "what is in it takes more memory ({}, after {} of it) than imports may take, 2 GiB or 4 times what they \
                 unpack: it was not read on; {OPTION} reads it all the same, if there is that much",
                mebibytes(all_held),
                mebibytes(unpacked)
            ))
        })
    }

    /// What was read of the file is let go of.
    pub(crate) fn give_back(mut self) {
        // Less is always allowed.
        drop(self.check(0, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_share_what_they_may_take() {
        let memory = Memory::default();
        let (mut one, mut other) = (memory.share(), memory.share());
        assert_eq!(one.check(1 << 30, 1000).unwrap(), 1 << 30);
        assert_eq!(other.check(1 << 30, 1000).unwrap(), 0);
        let error = one.check((1 << 30) + 1, 2000).unwrap_err();
        assert!(is_met(&error).is_some_and(|text| text.contains("--no-import-limits")));
        // Files that unpack to much may take much.
        assert!(one.check(3 << 30, 1 << 30).is_ok());
        one.give_back();
        assert!(other.check((2 << 30) - 1, 1000).is_ok());
        assert!(is_met(&io::Error::other("x")).is_none());
    }

    #[test]
    fn what_unpacks_to_far_too_much_is_no_trace() {
        assert!(check_unpacked(100, UNPACKED_BYTES).is_ok());
        assert!(check_unpacked(100, UNPACKED_BYTES + 1).is_err());
        assert!(check_unpacked(10 << 20, 2500 << 20).is_ok());
        assert!(check_unpacked(10 << 20, (2500 << 20) + 1).is_err());
    }
}
