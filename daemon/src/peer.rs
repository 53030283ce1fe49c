//! Who is on the other side, as the kernel says.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// Members of this group see the jobs of all users, as root does.
pub const GROUP: &str = "gputrace";
/// Groups of a caller that are looked at.
const MOST_GROUPS: usize = 1024;

/// A process that called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its number, as the daemon counts; 0 for one that it can't see, as from within a container.
    pub pid: u32,
    /// Whether it may see the jobs of all users.
    pub sees_all: bool,
}

impl Peer {
    /// Who has the other end of a socket; `watchers`: the number of [`GROUP`], where there is one.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn of(socket: impl AsFd, watchers: Option<u32>) -> io::Result<Self> {
        let credentials = credentials(&socket)?;
        let uid = credentials.uid;
        let in_group = |group: u32| {
            credentials.gid == group || groups(&socket).is_ok_and(|groups| groups.contains(&group))
        };
        Ok(Self {
            uid,
            pid: u32::try_from(credentials.pid).unwrap_or(0),
            sees_all: uid == 0 || watchers.is_some_and(in_group),
        })
    }

    /// Whether it may see what is a user's.
    #[must_use]
    pub fn may_see(&self, uid: u32) -> bool {
        self.sees_all || self.uid == uid
    }
}

/// Who connected. By libc, since a process of another namespace of numbers has the number 0, which rustix's type has no room for.
fn credentials(socket: impl AsFd) -> io::Result<libc::ucred> {
    let mut found = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut bytes = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the place is as large as `bytes` says.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    match result {
        0 => Ok(found),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The supplementary groups of a socket's other side when it connected.
fn groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; MOST_GROUPS];
    let mut bytes = libc::socklen_t::try_from(size_of_val(groups.as_slice())).unwrap_or(0);
    // SAFETY: the place is as large as `bytes` says, and the kernel says how much of it it has filled.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}

/// The number of a group.
#[must_use]
pub fn group_number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let mut space = vec![0; 64 << 10];
    let mut found = std::ptr::null_mut();
    // SAFETY: all places are valid for the call, and `space` is as long as said.
    let status = unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            entry.as_mut_ptr(),
            space.as_mut_ptr(),
            space.len(),
            &raw mut found,
        )
    };
    // SAFETY: filled in by the call, which found one.
    (status == 0 && !found.is_null()).then(|| unsafe { entry.assume_init() }.gr_gid)
}

/// The name of a user; the number where there is none.
#[must_use]
pub fn user_name(uid: u32) -> String {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut space = vec![0; 16 << 10];
    let mut found = std::ptr::null_mut();
    // SAFETY: all places are valid for the call, and `space` is as long as said.
    let status = unsafe {
        libc::getpwuid_r(
            uid,
            entry.as_mut_ptr(),
            space.as_mut_ptr(),
            space.len(),
            &raw mut found,
        )
    };
    if status != 0 || found.is_null() {
        return uid.to_string();
    }
    // SAFETY: filled in by the call, which found one; its name is a string in `space`.
    let name = unsafe { CStr::from_ptr(entry.assume_init().pw_name) };
    name.to_string_lossy().into_owned()
}
