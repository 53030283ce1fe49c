//! Who may read the files that gputrace writes: their owner alone, unless the user says that the umask decides.
//!
//! Recordings and exports hold command lines, paths and names of a program, and a usual umask of 022 shows them to everybody
//! on the machine.

use std::sync::atomic::{AtomicBool, Ordering};

static FOLLOWS_UMASK: AtomicBool = AtomicBool::new(false);

/// From now on files and folders of this process are made as its umask allows.
pub fn follow_umask() {
    FOLLOWS_UMASK.store(true, Ordering::Relaxed);
}

/// The mode to make files with; the umask takes bits away from it.
#[must_use]
pub fn file_mode() -> u32 {
    match FOLLOWS_UMASK.load(Ordering::Relaxed) {
        true => 0o666,
        false => 0o600,
    }
}

/// The mode to make folders with; the umask takes bits away from it.
#[must_use]
pub fn folder_mode() -> u32 {
    match FOLLOWS_UMASK.load(Ordering::Relaxed) {
        true => 0o777,
        false => 0o700,
    }
}
