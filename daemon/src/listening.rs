//! The socket that everybody calls.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gputrace_trace::daemon::Connection;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Callers that may wait to be let in.
const QUEUE: i32 = 1024;

/// A socket with a path, which goes when it is dropped.
pub struct Listening {
    /// It.
    pub socket: OwnedFd,
    path: PathBuf,
    inode: (u64, u64),
}

impl Listening {
    /// Makes it. `open`: for everybody; else for the user alone, in a folder for the user alone. A socket that nobody listens at any
    /// more is replaced.
    ///
    /// # Errors
    /// One line: the path, what is wrong, what to do.
    pub fn at(path: &Path, open: bool) -> Result<Self, String> {
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .ok_or_else(|| failed(&"name the socket's whole path"))?;
        make_folder(folder, open).map_err(|error| failed(&error))?;
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(failed(&"exists and is no socket: name another path"));
            }
            match Connection::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                _ => {
                    return Err(failed(
                        &"a daemon is already running here: end it first, or give another --socket",
                    ));
                }
            }
            fs::remove_file(path).map_err(|error| failed(&error))?;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let address = SocketAddrUnix::new(path).map_err(|error| failed(&error))?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|error| failed(&error))?;
        bind(&socket, &address).map_err(|error| failed(&error))?;
        let mode = if open { 0o666 } else { 0o600 };
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| failed(&error))?;
        listen(&socket, QUEUE).map_err(|error| failed(&error))?;
        let made = fs::symlink_metadata(path).map_err(|error| failed(&error))?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            inode: (made.dev(), made.ino()),
        })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Another daemon's may be there by now.
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.inode);
        if is_ours {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Makes the socket's folder, if it is not there. One in which others could put a socket of theirs is refused.
fn make_folder(folder: &Path, open: bool) -> io::Result<()> {
    let mode = if open { 0o755 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(mode).recursive(true).create(folder)?;
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    // SAFETY: always succeeds.
    let own = unsafe { libc::geteuid() };
    let wrong = if !found.is_dir() {
        "is no folder"
    } else if found.uid() != own && found.uid() != 0 {
        "is somebody else's"
    } else if found.uid() == own && found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
        "may be written by others"
    } else {
        return Ok(());
    };
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("its folder {} {wrong}: name another", folder.display()),
    ))
}
