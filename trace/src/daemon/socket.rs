//! A connection: whole packets, each with at most one descriptor.
//!
//! SOCK_SEQPACKET keeps packets apart, so that half a message does not exist. Nothing here waits longer than it is told: connecting
//! fails where the daemon's queue is full, and sending where its buffer is.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::private_file::PrivateDescriptor;

/// A packet's length, at the most: what Linux's usual limit of a socket's buffer lets through.
pub const MOST_PACKET_BYTES: usize = 64 << 10;

/// A connection to the daemon, or of the daemon's to one that called it.
pub struct Connection {
    socket: PrivateDescriptor,
}

impl Connection {
    /// Calls the daemon at `path`.
    ///
    /// # Errors
    /// When nobody answers there, or not at once.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Self::of(socket)
    }

    /// The same, if the daemon is the machine's or this user's own: in a folder that all may write into, anybody can listen.
    ///
    /// # Errors
    /// As [`Self::connect`]; `PermissionDenied` where it is somebody else's.
    pub fn connect_trusted(path: &Path) -> io::Result<Self> {
        let connection = Self::connect(path)?;
        // SAFETY: always succeeds.
        let own = unsafe { libc::geteuid() };
        match connection.peer_uid()? {
            uid if uid == 0 || uid == own => Ok(connection),
            uid => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("user {uid} listens here: neither root nor you"),
            )),
        }
    }

    /// Of a socket that was accepted.
    ///
    /// # Errors
    /// When it is closed already.
    pub fn of(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket: PrivateDescriptor::of(socket)?,
        })
    }

    /// Its number, for `poll`. Only where nobody else closes numbers that are not his.
    #[must_use]
    pub fn number(&self) -> Option<RawFd> {
        self.socket.number()
    }

    /// Its inode, by which it is known from others with its number.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.socket.inode()
    }

    /// The user on the other side, as the kernel says.
    ///
    /// # Errors
    /// When it is closed.
    pub fn peer_uid(&self) -> io::Result<u32> {
        self.with(|socket| Ok(rustix::net::sockopt::socket_peercred(socket)?.uid.as_raw()))
    }

    /// Whether the program has closed it, as it may close what it does not know.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.socket.number().is_none()
    }

    fn with<T>(&self, action: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        let number = self.socket.number().ok_or(io::ErrorKind::NotConnected)?;
        // SAFETY: the number is our socket's, and stays open during the call.
        action(unsafe { BorrowedFd::borrow_raw(number) })
    }

    /// Sends one packet.
    ///
    /// # Errors
    /// `WouldBlock` when the other side does not read, and then nothing was sent; others when it is gone, or the packet too long.
    pub fn send(&self, message: &impl Serialize, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        if text.len() > MOST_PACKET_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a message of {} bytes: {MOST_PACKET_BYTES} at most", text.len()),
            ));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file]);
        if let Some(files) = &files {
            beside.push(SendAncillaryMessage::ScmRights(files));
        }
        self.with(|socket| {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            loop {
                match sendmsg(socket, &[IoSlice::new(&text)], &mut beside, flags) {
                    Err(rustix::io::Errno::INTR) => {}
                    sent => return sent.map(|_| ()).map_err(Into::into),
                }
            }
        })
    }

    /// The next packet, waited for so long; `None` when none came.
    ///
    /// # Errors
    /// `UnexpectedEof` when the other side has gone; `InvalidData` for a packet that is not understood.
    pub fn receive<T: DeserializeOwned>(&self, wait: Duration) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        self.with(|socket| {
            if !wait.is_zero() && !is_readable(socket, wait)? {
                return Ok(None);
            }
            let mut bytes = vec![0; MOST_PACKET_BYTES];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let received = loop {
                match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags) {
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::AGAIN) => return Ok(None),
                    received => break received?,
                }
            };
            let mut files = Vec::new();
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    files.extend(descriptors);
                }
            }
            if received.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if received.flags.contains(ReturnFlags::TRUNC) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a packet that is too long",
                ));
            }
            let message = serde_json::from_slice(&bytes[..received.bytes])?;
            Ok(Some((message, files.pop())))
        })
    }
}

/// Waits until there is something to read, or the other side has gone.
fn is_readable(socket: BorrowedFd<'_>, wait: Duration) -> io::Result<bool> {
    let end = std::time::Instant::now() + wait;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        match poll(&mut polled, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return Ok(polled? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;

    use rustix::net::{accept, bind, listen};

    use super::super::{FromCollector, ToCollector};
    use super::*;

    fn pair() -> (Connection, Connection) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let flags = SocketFlags::CLOEXEC;
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
        bind(&listener, &SocketAddrUnix::new(&path).expect("a path")).expect("bound");
        listen(&listener, 4).expect("listening");
        let caller = Connection::connect(&path).expect("connected");
        let called = Connection::of(accept(&listener).expect("accepted")).expect("open");
        (caller, called)
    }

    #[test]
    fn packets_stay_whole_and_carry_descriptors() {
        let (caller, called) = pair();
        assert!(
            called
                .receive::<FromCollector>(Duration::ZERO)
                .expect("open")
                .is_none()
        );
        let asked = FromCollector::Open {
            table: "kernels".to_owned(),
            segment: None,
        };
        caller.send(&asked, None).expect("sent");
        caller.send(&FromCollector::Leave, None).expect("sent");
        let wait = Duration::from_secs(5);
        let (first, none) = called
            .receive::<FromCollector>(wait)
            .expect("open")
            .expect("a packet");
        assert!(first == asked && none.is_none());
        let (second, _) = called
            .receive::<FromCollector>(wait)
            .expect("open")
            .expect("a packet");
        assert_eq!(second, FromCollector::Leave);

        let mut file = tempfile::tempfile().expect("a file");
        called.send(&ToCollector::Made, Some(file.as_fd())).expect("sent");
        let (made, given) = caller
            .receive::<ToCollector>(wait)
            .expect("open")
            .expect("a packet");
        assert_eq!(made, ToCollector::Made);
        File::from(given.expect("a descriptor"))
            .write_all_at(b"hello", 0)
            .expect("written");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "hello");
        file.flush().expect("flushed");
    }

    #[test]
    fn ends_floods_and_nonsense_are_errors() {
        let (caller, called) = pair();
        caller.send(&"nonsense", None).expect("sent");
        let error = called
            .receive::<FromCollector>(Duration::from_secs(5))
            .expect_err("nonsense");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let long = "x".repeat(MOST_PACKET_BYTES);
        assert_eq!(
            caller.send(&long, None).expect_err("long").kind(),
            io::ErrorKind::InvalidInput
        );
        // Nobody reads: at some time there is no room, and that is said at once.
        let full = (0..1_000_000).find_map(|_| caller.send(&FromCollector::Leave, None).err());
        assert_eq!(full.expect("full").kind(), io::ErrorKind::WouldBlock);
        drop(caller);
        while let Ok(Some(_)) = called.receive::<FromCollector>(Duration::ZERO) {}
        // A program that another test starts has the caller's end too, until it is begun.
        let error = called
            .receive::<FromCollector>(Duration::from_secs(5))
            .expect_err("gone");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
