//! How the processes of a run come to one piece of memory that has no name in any folder, so that nothing is left of it
//! whatever ends them.
//!
//! The first that comes makes the memory and answers on an abstract socket (unix(7)) that is called after the run: whoever
//! connects is handed the memory's descriptor. When it ends, the kernel takes the socket away, and another that has the
//! memory answers in its place.

use std::io;
use std::mem::{ManuallyDrop, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// How long whoever answers may take. It may be stopped, and nobody is to wait for it.
const PATIENCE: Duration = Duration::from_millis(100);

/// A file's device and number.
pub(super) type Identity = (u64, u64);

/// Which file a descriptor is of, and how long that is.
pub(super) fn identity(descriptor: RawFd) -> Option<(Identity, u64)> {
    // SAFETY: plain integers, for which zeros are values.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a place for the answer; a descriptor that is none is an error.
    let answer = unsafe { libc::fstat(descriptor, &raw mut found) };
    (answer == 0).then_some(((found.st_dev, found.st_ino), found.st_size.cast_unsigned()))
}

/// A descriptor that is looked at before each use: programs close those that they do not know, and by then the number may
/// be of a file of theirs.
pub(super) struct Checked {
    descriptor: ManuallyDrop<OwnedFd>,
    identity: Identity,
}

impl Checked {
    pub(super) fn new(descriptor: OwnedFd) -> Option<Self> {
        let (identity, _) = identity(descriptor.as_raw_fd())?;
        let descriptor = ManuallyDrop::new(descriptor);
        Some(Self { descriptor, identity })
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// The descriptor, while it is still ours.
    pub(super) fn get(&self) -> Option<RawFd> {
        let descriptor = self.descriptor.as_raw_fd();
        let (now, _) = identity(descriptor)?;
        (now == self.identity).then_some(descriptor)
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: ours, and dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.descriptor) };
        }
    }
}

/// A socket of ours, which never blocks.
fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain values.
    let descriptor = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn user() -> libc::uid_t {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// The address of a user's run, and its length.
fn address(run: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: plain integers, for which zeros are values.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays zero: a name that is in no folder.
    let name = format!("simgpu-{}-{run}", user());
    let places = address.sun_path.iter_mut().skip(1);
    let mut length = size_of::<libc::sa_family_t>() + 1;
    for (place, byte) in places.zip(name.bytes()) {
        *place = byte as libc::c_char;
        length += 1;
    }
    (address, length as libc::socklen_t)
}

/// Whether the other end is of this user: names of sockets are for all to take.
fn is_own_user(socket: RawFd) -> bool {
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: 0,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut peer).cast();
    // SAFETY: a place for the answer, with its size.
    let answer =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut bytes) };
    answer == 0 && peer.uid == user()
}

/// Waits until a socket has something, for so long at most.
pub(super) fn wait(socket: RawFd, patience: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: socket,
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one pollfd.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) > 0 }
}

/// Room for one descriptor beside a message, aligned as its head must be.
#[repr(C, align(8))]
struct Beside([u8; 64]);

/// A message of one byte with room for a descriptor; calls `body` with it.
fn with_message<T>(body: impl FnOnce(&mut libc::msghdr) -> T) -> T {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut beside = Beside([0; 64]);
    // SAFETY: a message header of zeros is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = beside.0.as_mut_ptr().cast();
    // SAFETY: arithmetic alone.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    body(&mut message)
}

/// The memory of a run, if anybody has it who answers.
pub(super) fn ask(run: &str) -> Option<OwnedFd> {
    let socket = socket().ok()?;
    let (address, length) = address(run);
    // SAFETY: a socket, and an address with its length. It does not block: where nobody answers, or too many ask, it fails.
    let connected = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if connected != 0 || !is_own_user(socket.as_raw_fd()) || !wait(socket.as_raw_fd(), PATIENCE) {
        return None;
    }
    with_message(|message| {
        // SAFETY: a message with room for what is received; heads within it are found by the C library's macros, and a
        // descriptor that came is ours alone.
        unsafe {
            if libc::recvmsg(socket.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC) != 1 {
                return None;
            }
            let head = libc::CMSG_FIRSTHDR(message);
            let is_descriptor = !head.is_null()
                && (*head).cmsg_level == libc::SOL_SOCKET
                && (*head).cmsg_type == libc::SCM_RIGHTS;
            is_descriptor.then(|| {
                let descriptor = libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned();
                OwnedFd::from_raw_fd(descriptor)
            })
        }
    })
}

/// The socket to answer on for a run; `None` where somebody answers already.
pub(super) fn answer(run: &str) -> Option<Checked> {
    let socket = socket().ok()?;
    let (address, length) = address(run);
    // SAFETY: a socket, and an address with its length.
    let listens = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) == 0
            && libc::listen(socket.as_raw_fd(), 64) == 0
    };
    listens.then(|| Checked::new(socket)).flatten()
}

/// Hands the memory to all who ask.
pub(super) fn hand_over(listener: RawFd, memory: RawFd) {
    loop {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: a socket; who it is from is not asked for here.
        let asking = unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        if asking < 0 {
            return;
        }
        // SAFETY: just opened, and nobody else's.
        let asking = unsafe { OwnedFd::from_raw_fd(asking) };
        if !is_own_user(asking.as_raw_fd()) {
            continue;
        }
        with_message(|message| {
            // SAFETY: the head and its data are within the message's room for one descriptor.
            unsafe {
                let head = libc::CMSG_FIRSTHDR(message);
                (*head).cmsg_level = libc::SOL_SOCKET;
                (*head).cmsg_type = libc::SCM_RIGHTS;
                (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
                libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(memory);
                // Whoever has gone meanwhile needs nothing.
                libc::sendmsg(asking.as_raw_fd(), message, libc::MSG_NOSIGNAL);
            }
        });
    }
}

/// Sets a file's length. A process that may not have files of that length is refused, and not killed for it.
fn set_length(file: RawFd, bytes: libc::off_t) -> bool {
    // SAFETY: sets of signals on this stack, filled before they are read; the signal is kept from this thread alone and only
    // meanwhile, and what came of the call is taken away again unless one was waiting before.
    unsafe {
        let [mut signal, mut before, mut waiting]: [libc::sigset_t; 3] = std::mem::zeroed();
        libc::sigemptyset(&raw mut signal);
        libc::sigaddset(&raw mut signal, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, &raw mut before);
        libc::sigpending(&raw mut waiting);
        let set = libc::ftruncate(file, bytes) == 0;
        if !set && libc::sigismember(&raw const waiting, libc::SIGXFSZ) == 0 {
            let now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            libc::sigtimedwait(&raw const signal, std::ptr::null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        set
    }
}

/// New memory of so many bytes, whose size stays as it is.
pub(super) fn memory(bytes: usize) -> Option<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name and plain values. glibc has it as a function from 2.27 on.
    let descriptor = unsafe { libc::syscall(libc::SYS_memfd_create, c"simgpu".as_ptr(), flags) as i32 };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: just opened, and nobody else's.
    let memory = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let bytes = libc::off_t::try_from(bytes).ok()?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    if !set_length(memory.as_raw_fd(), bytes) {
        return None;
    }
    // SAFETY: a descriptor of ours and plain values.
    let sealed = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0 };
    sealed.then_some(memory)
}
