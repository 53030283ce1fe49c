//! A database file that is open already, for SQLite.
//!
//! SQLite takes names alone, looks for links in them itself, and would follow one that was put there since we looked. So it is
//! given a name that exists nowhere, and its way to open files hands it a second descriptor of ours for that name.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use rusqlite::ffi;

/// What comes before a descriptor's number. There is no such folder.
const NAMED: &str = "/gputrace-opened/";

type OpenCall = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;

/// SQLite's own way to open a file.
static THEIRS: OnceLock<OpenCall> = OnceLock::new();

/// The name by which SQLite opens `file`; nothing where it lets nobody in between.
pub(super) fn name(file: &File) -> Option<PathBuf> {
    static IS_SET: OnceLock<bool> = OnceLock::new();
    let is_set = *IS_SET.get_or_init(|| set().is_some());
    is_set.then(|| format!("{NAMED}{}", file.as_raw_fd()).into())
}

fn set() -> Option<()> {
    // SAFETY: no name stands for the default; what comes back is SQLite's for the whole program.
    let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    // SAFETY: it is either nothing or lives for ever.
    let calls = unsafe { vfs.as_ref() }.filter(|vfs| vfs.iVersion >= 3)?;
    // SAFETY: the name ends with a zero byte.
    let theirs = unsafe { calls.xGetSystemCall?(vfs, c"open".as_ptr()) }?;
    // SAFETY: SQLite keeps this function of these arguments under a type without any (os_unix.c, aSyscall).
    let theirs = unsafe { std::mem::transmute::<unsafe extern "C" fn(), OpenCall>(theirs) };
    THEIRS.set(theirs).ok()?;
    // SAFETY: as above, the other way around.
    let ours = unsafe { std::mem::transmute::<OpenCall, unsafe extern "C" fn()>(open) };
    // SAFETY: the name ends with a zero byte, and the function lives for ever.
    let done = unsafe { calls.xSetSystemCall?(vfs, c"open".as_ptr(), Some(ours)) };
    (done == ffi::SQLITE_OK).then_some(())
}

/// Opens a file for SQLite.
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: SQLite gives a name that ends with a zero byte.
    let name = unsafe { CStr::from_ptr(path) };
    let number = name
        .to_str()
        .ok()
        .and_then(|name| name.strip_prefix(NAMED)?.parse().ok());
    match (number, THEIRS.get()) {
        // SAFETY: it takes integers alone. SQLite writes no message into the first three descriptors, and asks for others.
        (Some(number), _) => unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3 as c_int) },
        // SAFETY: SQLite's own function with SQLite's own arguments.
        (None, Some(theirs)) => unsafe { theirs(path, flags, mode) },
        (None, None) => -1,
    }
}
