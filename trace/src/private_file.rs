//! Files that are written, or read again and again, from inside somebody else's program.
//!
//! A program may close every descriptor that it does not know (`closefrom`, daemons), and then opens files of its own,
//! which get the numbers that ours had. So ours have high numbers, which new files do not get for as long as lower
//! ones are free, and before each write it is checked that the number still is our file's. One that is not is left
//! alone, never closed, and the file is opened anew.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::{FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::access;

/// Numbers from here on are ours, where the program's limit allows.
const HIGH: libc::rlim_t = 700;
/// Below this limit of descriptors none is kept between writes: the program may need each of them.
const FEW: libc::rlim_t = 256;

/// Which file it is: device and inode.
type Identity = (u64, u64);

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// A file of ours, opened when it is first written to.
pub(crate) struct PrivateFile {
    path: PathBuf,
    /// Once it was made.
    identity: Option<Identity>,
    descriptor: Option<RawFd>,
}

impl PrivateFile {
    /// A file that does not exist yet; everything is appended.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            identity: None,
            descriptor: None,
        }
    }

    /// Appends what fits of `slices`, and gives how many bytes that was.
    ///
    /// # Errors
    /// When the file can't be made or found again, or the disk refuses.
    pub(crate) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let descriptor = match self.descriptor.filter(|&descriptor| self.is_ours(descriptor)) {
            Some(descriptor) => descriptor,
            None => {
                // Whatever had the number before is somebody else's now.
                self.descriptor = None;
                let opened = self.open()?;
                *self.descriptor.insert(opened)
            }
        };
        // SAFETY: the descriptor is open; the file does not outlive this call, and `ManuallyDrop` leaves it open.
        let mut file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        let mut written = file.write_vectored(slices);
        // A sandbox may know `write` alone.
        if let Err(error) = &written
            && matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
            )
            && let Some(first) = slices.iter().find(|slice| !slice.is_empty())
        {
            written = file.write(first);
        }
        if descriptor_limit() < FEW {
            self.close();
        }
        written
    }

    fn is_ours(&self, descriptor: RawFd) -> bool {
        self.identity.is_some() && identity_of(descriptor) == self.identity
    }

    fn open(&mut self) -> io::Result<RawFd> {
        let mut options = OpenOptions::new();
        options
            .append(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOCTTY);
        if self.identity.is_none() {
            options.create_new(true).mode(access::file_mode());
        }
        let file = options.open(&self.path)?;
        // By name, since the number may be another file's by now.
        let metadata = std::fs::symlink_metadata(&self.path)?;
        if self.identity.is_some_and(|known| known != identity(&metadata)) {
            return Err(io::Error::other("it was replaced by another file"));
        }
        self.identity = Some(identity(&metadata));
        // The program's mask may leave the owner no rights; readers and later attempts need them.
        if metadata.mode() & 0o600 != 0o600 {
            let mode = metadata.mode() | 0o600;
            std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(mode))?;
        }
        let high = moved_up(file.into_raw_fd(), self.identity);
        if self.is_ours(high) {
            Ok(high)
        } else {
            Err(io::Error::other("the program closed it at this moment"))
        }
    }

    fn close(&mut self) {
        if let Some(descriptor) = self.descriptor.take()
            && self.is_ours(descriptor)
        {
            // SAFETY: the descriptor is that of our file.
            unsafe { libc::close(descriptor) };
        }
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        self.close();
    }
}

/// A file that is read again and again, under the same conditions.
pub(crate) struct PrivateReader {
    path: PathBuf,
    /// Once it was opened.
    identity: Option<Identity>,
    descriptor: Option<RawFd>,
}

impl PrivateReader {
    /// A file that is opened when it is first read.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            identity: None,
            descriptor: None,
        }
    }

    /// Reads what stands at the file's beginning, and gives how many bytes of `bytes` that was.
    ///
    /// # Errors
    /// When it can't be opened, is no regular file, or the disk refuses.
    pub(crate) fn read_at_start(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let known = self.descriptor.filter(|&descriptor| self.is_ours(descriptor));
        let descriptor = match known {
            Some(descriptor) => descriptor,
            None => {
                // Whatever had the number before is somebody else's now.
                self.descriptor = None;
                let opened = self.open()?;
                *self.descriptor.insert(opened)
            }
        };
        // SAFETY: the descriptor is open; the file does not outlive this call, and `ManuallyDrop` leaves it open.
        let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        let read = file.read_at(bytes, 0);
        if descriptor_limit() < FEW {
            self.close();
        }
        read
    }

    fn is_ours(&self, descriptor: RawFd) -> bool {
        self.identity.is_some() && identity_of(descriptor) == self.identity
    }

    fn open(&mut self) -> io::Result<RawFd> {
        let mut options = OpenOptions::new();
        // Not to wait for the writer of a pipe that somebody has put there.
        let flags = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
        let file = options.read(true).custom_flags(flags).open(&self.path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is no regular file",
            ));
        }
        self.identity = Some(identity(&metadata));
        Ok(moved_up(file.into_raw_fd(), self.identity))
    }

    fn close(&mut self) {
        if let Some(descriptor) = self.descriptor.take()
            && self.is_ours(descriptor)
        {
            // SAFETY: the descriptor is that of our file.
            unsafe { libc::close(descriptor) };
        }
    }
}

impl Drop for PrivateReader {
    fn drop(&mut self) {
        self.close();
    }
}

/// The file of a descriptor, if it is open.
fn identity_of(descriptor: RawFd) -> Option<Identity> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a valid place for the result; a descriptor that is not open is an error.
    (unsafe { libc::fstat(descriptor, status.as_mut_ptr()) } == 0).then(|| {
        // SAFETY: filled in by the call that succeeded.
        let status = unsafe { status.assume_init() };
        (status.st_dev, status.st_ino)
    })
}

/// How many descriptors the process may have.
fn descriptor_limit() -> libc::rlim_t {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid place for the result.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}

/// The same file by a number that new files do not get: high where the limit allows, in any case none of the
/// standard streams'. Gives the old one where there is no other.
fn moved_up(descriptor: RawFd, ours: Option<Identity>) -> RawFd {
    let lowest = HIGH.min(descriptor_limit() / 4 * 3).max(3);
    let lowest = libc::c_int::try_from(lowest).unwrap_or(3);
    // SAFETY: plain numbers; an error leaves everything as it was.
    let high = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, lowest) };
    if high < 0 {
        return descriptor;
    }
    if identity_of(descriptor) == ours {
        // SAFETY: the low number is still our file's.
        unsafe { libc::close(descriptor) };
    }
    high
}

/// Makes a file that did not exist, writes it whole and closes it.
///
/// # Errors
/// When the disk refuses; what was written until then stays.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = PrivateFile::new(path.to_owned());
    let mut rest = bytes;
    while !rest.is_empty() {
        match file.write_vectored(&[IoSlice::new(rest)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn written(path: &Path) -> String {
        std::fs::read_to_string(path).expect("what was written")
    }

    #[test]
    fn a_descriptor_that_became_another_files_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let mut file = PrivateFile::new(ours.clone());
        file.write_vectored(&[IoSlice::new(b"one ")]).expect("written");
        let descriptor = file.descriptor.expect("kept");
        assert!(descriptor >= 3);
        // The program puts its own file where ours was.
        let their_file = File::create(&theirs).expect("a file");
        // SAFETY: both are open; dup2 closes ours, as a program may by its number.
        unsafe { libc::dup2(their_file.as_raw_fd(), descriptor) };
        file.write_vectored(&[IoSlice::new(b"two ")])
            .expect("opened anew");
        assert_eq!(written(&ours), "one two ");
        assert_eq!(written(&theirs), "");
        // Closed altogether.
        let descriptor_again = file.descriptor.expect("kept");
        assert_ne!(descriptor_again, descriptor);
        // SAFETY: a descriptor of ours, closed as a program does that closes all.
        unsafe { libc::close(descriptor_again) };
        file.write_vectored(&[IoSlice::new(b"three")])
            .expect("opened anew");
        assert_eq!(written(&ours), "one two three");
        // SAFETY: as above.
        unsafe { libc::dup2(their_file.as_raw_fd(), file.descriptor.expect("kept")) };
        let theirs_by_our_number = file.descriptor.expect("kept");
        drop(file);
        assert!(identity_of(theirs_by_our_number).is_some(), "not ours to close");
    }

    #[test]
    fn a_file_in_the_place_of_ours_is_not_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ours");
        let mut file = PrivateFile::new(path.clone());
        file.write_vectored(&[IoSlice::new(b"one")]).expect("written");
        file.close();
        std::fs::rename(&path, folder.path().join("elsewhere")).expect("moved");
        assert_eq!(
            file.write_vectored(&[IoSlice::new(b"two")])
                .expect_err("gone")
                .kind(),
            io::ErrorKind::NotFound
        );
        std::fs::write(&path, "theirs").expect("another file");
        file.write_vectored(&[IoSlice::new(b"two")])
            .expect_err("another file");
        assert_eq!(written(&path), "theirs");
    }
}
