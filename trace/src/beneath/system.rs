//! What is asked of the kernel for [`super`].

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::stat::{Kind, Refused, Stat};

/// What a path is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// To be read. Opening waits for nobody, whatever is there.
    Bytes,
    /// To list what is in it.
    Names,
    /// To be looked at, or as the beginning of a path.
    Place,
}

impl Wanted {
    fn flags(self) -> i32 {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const PLACE: i32 = libc::O_PATH;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const PLACE: i32 = libc::O_RDONLY | libc::O_NONBLOCK;
        let flags = match self {
            Self::Bytes => libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY,
            Self::Names => libc::O_RDONLY | libc::O_NONBLOCK | libc::O_DIRECTORY,
            Self::Place => PLACE,
        };
        flags | libc::O_CLOEXEC
    }
}

fn c_path(path: &OsStr) -> io::Result<CString> {
    Ok(CString::new(path.as_bytes())?)
}

/// The descriptor that a call gave, or why it gave none.
fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave it to this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn open_at(folder: RawFd, name: &CStr, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero byte and outlives the call.
    owned(unsafe { libc::openat(folder, name.as_ptr(), flags) })
}

/// `openat2`; `None` where there is no such call, or a filter of the process's calls does not know it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_at_2(folder: RawFd, name: &CStr, flags: i32, resolve: u64) -> Option<io::Result<OwnedFd>> {
    /// The kernel's `struct open_how`.
    #[repr(C)]
    struct How {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    let how = How {
        flags: u64::from(flags.cast_unsigned()),
        mode: 0,
        resolve,
    };
    // A folder on the way may be renamed meanwhile, of which the kernel says that it can't tell.
    for _ in 0..16 {
        // SAFETY: the name ends with a zero byte, the structure has the size that is said, and both outlive the call.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                folder,
                name.as_ptr(),
                &raw const how,
                size_of::<How>(),
            )
        };
        let opened = owned(RawFd::try_from(descriptor).unwrap_or(-1));
        match opened.as_ref().err().and_then(io::Error::raw_os_error) {
            Some(libc::EAGAIN | libc::EINTR) => {}
            Some(libc::ENOSYS | libc::EPERM) => return None,
            _ => return Some(opened),
        }
    }
    None
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open_at_2(_: RawFd, _: &CStr, _: i32, _: u64) -> Option<io::Result<OwnedFd>> {
    None
}

const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;
const RESOLVE_BENEATH: u64 = 0x08;

/// Opens what lies beneath a folder; `None` where that has to be found out name by name.
pub(super) fn open_beneath(
    folder: BorrowedFd<'_>,
    rest: &Path,
    wanted: Wanted,
) -> Option<io::Result<OwnedFd>> {
    let rest = match c_path(rest.as_os_str()) {
        Ok(rest) => rest,
        Err(error) => return Some(Err(error)),
    };
    let resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    let opened = open_at_2(folder.as_raw_fd(), &rest, wanted.flags(), resolve)?;
    match opened.as_ref().err().and_then(io::Error::raw_os_error) {
        Some(libc::EXDEV | libc::ELOOP) => None,
        _ => Some(opened),
    }
}

/// Opens an absolute path in which there are no links.
pub(super) fn open_without_links(path: &Path, wanted: Wanted) -> io::Result<OwnedFd> {
    let name = c_path(path.as_os_str())?;
    let resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    let opened = open_at_2(libc::AT_FDCWD, &name, wanted.flags(), resolve)
        .unwrap_or_else(|| open_at(libc::AT_FDCWD, &name, wanted.flags() | libc::O_NOFOLLOW));
    opened.map_err(of_link)
}

/// A name that was no link a moment ago and is one now leads nowhere.
fn of_link(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ELOOP) => Refused::LeadsOut.into(),
        _ => error,
    }
}

/// Opens a name in a folder that is no link.
pub(super) fn open_name(folder: BorrowedFd<'_>, name: &OsStr, wanted: Wanted) -> io::Result<OwnedFd> {
    let name = c_path(name)?;
    let flags = wanted.flags() | libc::O_NOFOLLOW;
    let opened = open_at(folder.as_raw_fd(), &name, flags).map_err(of_link)?;
    // As a place the link itself can be opened.
    if wanted == Wanted::Place && look_at(opened.as_fd())?.is_link {
        return Err(Refused::LeadsOut.into());
    }
    Ok(opened)
}

/// Opens a path wherever it leads.
pub(super) fn open_plainly(path: &Path, wanted: Wanted) -> io::Result<OwnedFd> {
    let path = c_path(path.as_os_str())?;
    open_at(libc::AT_FDCWD, &path, wanted.flags())
}

/// Reading of what was opened without waiting waits as it does elsewhere: some file systems go by it for files too.
pub(super) fn wait_again(file: BorrowedFd<'_>) {
    // SAFETY: both calls take integers alone; the descriptor is open.
    unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        if flags >= 0 {
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK);
        }
    }
}

/// Opens what a user named and is neither file nor folder, a pipe most of the time. Of a pipe into which nobody writes opening
/// would wait for ever.
pub(super) fn open_special(path: &Path) -> io::Result<File> {
    let opened = open_plainly(path, Wanted::Bytes)?;
    if is_left(opened.as_fd())? {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "a pipe into which nobody writes",
        ));
    }
    wait_again(opened.as_fd());
    Ok(File::from(opened))
}

/// Whether this is a pipe that has no writer, and gets none within some seconds.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_left(file: BorrowedFd<'_>) -> io::Result<bool> {
    const WRITER_COMES_MS: i32 = 3_000;
    let mut asked = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry is there, for the whole call.
    if unsafe { libc::poll(&raw mut asked, 1, WRITER_COMES_MS) } != 0 {
        return Ok(false);
    }
    // Only what is read of it tells whether a silent pipe has a writer, and `tee` leaves that where it is.
    let (_other_end, into) = io::pipe()?;
    let flags = libc::SPLICE_F_NONBLOCK;
    // SAFETY: the call takes integers alone; both descriptors are open.
    Ok(unsafe { libc::tee(file.as_raw_fd(), into.as_raw_fd(), 1, flags) } == 0)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_left(_: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(false)
}

/// What the kernel says of a file.
pub(super) struct Looked {
    pub(super) is_link: bool,
    stat: Stat,
}

impl Looked {
    fn of(found: &libc::stat) -> Self {
        let format = found.st_mode & libc::S_IFMT;
        let kind = match format {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Folder,
            _ => Kind::Special,
        };
        let seconds = u64::try_from(found.st_mtime).unwrap_or(0);
        let nanoseconds = u32::try_from(found.st_mtime_nsec).unwrap_or(0);
        let modified = Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds.into());
        Self {
            is_link: format == libc::S_IFLNK,
            stat: Stat {
                kind,
                bytes: u64::try_from(found.st_size).unwrap_or(0),
                modified_ms: u64::try_from(modified.as_millis()).unwrap_or(u64::MAX),
            },
        }
    }

    pub(super) fn stat(self) -> Stat {
        self.stat
    }

    pub(super) fn kind(&self) -> Kind {
        self.stat.kind
    }
}

/// What an open file is.
pub(super) fn look_at(file: BorrowedFd<'_>) -> io::Result<Looked> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the descriptor is open, and there is room for what is written.
    let done = unsafe { libc::fstat(file.as_raw_fd(), found.as_mut_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has been written.
    Ok(Looked::of(unsafe { found.assume_init_ref() }))
}

/// What a name in a folder is: of a link the link itself.
pub(super) fn look(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Looked> {
    look_c(folder.as_raw_fd(), &c_path(name)?)
}

fn look_c(folder: RawFd, name: &CStr) -> io::Result<Looked> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name ends with a zero byte and outlives the call, and there is room for what is written.
    let done = unsafe { libc::fstatat(folder, name.as_ptr(), found.as_mut_ptr(), flags) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has been written.
    Ok(Looked::of(unsafe { found.assume_init_ref() }))
}

/// What a link says.
pub(super) fn target(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<PathBuf> {
    let name = c_path(name)?;
    let mut bytes = vec![0u8; usize::try_from(libc::PATH_MAX).unwrap_or(4096)];
    let room = bytes.len();
    // SAFETY: the name ends with a zero byte, and no more is written than there is room for.
    let length =
        unsafe { libc::readlinkat(folder.as_raw_fd(), name.as_ptr(), bytes.as_mut_ptr().cast(), room) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    if length == room {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    bytes.truncate(length);
    Ok(OsString::from_vec(bytes).into())
}

/// A folder that is listed.
struct Listed(*mut libc::DIR);

impl Drop for Listed {
    fn drop(&mut self) {
        // SAFETY: `fdopendir` gave it, and nobody else closes it.
        unsafe { libc::closedir(self.0) };
    }
}

/// Calls `each` with every name in a folder but its own, and what it is.
pub(super) fn each_name(folder: OwnedFd, mut each: impl FnMut(&OsStr, Looked)) -> io::Result<()> {
    // SAFETY: the descriptor is open, and is the list's from here on, unless there is none.
    let listed = unsafe { libc::fdopendir(folder.as_raw_fd()) };
    if listed.is_null() {
        return Err(io::Error::last_os_error());
    }
    let listed = Listed(listed);
    let descriptor = folder.into_raw_fd();
    loop {
        // SAFETY: only this thread has the list. An end and an error both give nothing; a folder of which the rest can't be
        // read is as one that lost it.
        let entry = unsafe { libc::readdir(listed.0) };
        if entry.is_null() {
            return Ok(());
        }
        // SAFETY: an entry's name ends with a zero byte and lives until the next is asked for.
        let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) };
        if name == c"." || name == c".." {
            continue;
        }
        // What is gone again was never there.
        if let Ok(looked) = look_c(descriptor, name) {
            each(OsStr::from_bytes(name.to_bytes()), looked);
        }
    }
}
