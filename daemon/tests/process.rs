//! A process of its own for a fake: the daemon knows by the kernel who has connected, and whether it lives.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gputrace_trace::daemon::Connection;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// A process that lives until this is dropped.
#[derive(Debug)]
pub struct Process(libc::pid_t);

impl Process {
    /// One that connects to a daemon and hands the connection over to us.
    pub fn connect(path: &Path) -> io::Result<(Self, Connection)> {
        // SAFETY: plain numbers and bytes.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.as_os_str().as_bytes();
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = from.cast_signed();
        }
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // SAFETY: the child makes system calls and nothing else.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            // SAFETY: as above; it never comes back.
            unsafe { connect_and_wait(&address, &theirs) }
        }
        let process = Self(pid);
        drop(theirs);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let received = recvmsg(
            &ours,
            &mut [io::IoSliceMut::new(&mut byte)],
            &mut beside,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let socket = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        match socket.filter(|_| received.bytes == 1) {
            Some(socket) => Ok((process, Connection::of(socket)?)),
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: a child of ours that was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// What the child does: system calls alone, since other threads may have held anything when it was forked.
///
/// # Safety
/// To be called in a child, which it ends.
unsafe fn connect_and_wait(address: &libc::sockaddr_un, theirs: &OwnedFd) -> ! {
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).unwrap_or(0);
    // SAFETY: plain numbers, and an address as long as said.
    unsafe {
        // It ends with the thread that made it, at the latest.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        if socket >= 0 && libc::connect(socket, std::ptr::from_ref(address).cast(), length) == 0 {
            let socket = OwnedFd::from_raw_fd(socket);
            let sent = [socket.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            beside.push(SendAncillaryMessage::ScmRights(&sent));
            let _ = sendmsg(
                theirs,
                &[io::IoSlice::new(b"x")],
                &mut beside,
                SendFlags::NOSIGNAL,
            );
            std::mem::forget(socket);
        }
        // What others of this test have open must not stay open because of us.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        loop {
            libc::pause();
        }
    }
}
