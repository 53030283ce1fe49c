//! Files that are written, or read again and again, from inside somebody else's program.
//!
//! A program may close every descriptor that it does not know (`closefrom`, daemons), and then opens files of its own,
//! which get the numbers that ours had. So ours have high numbers, which new files do not get for as long as lower
//! ones are free, and before each write it is checked that the number still is our file's. One that is not is left
//! alone, never closed, and the file is opened anew.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, IoSlice, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::access;

/// Numbers from here on are ours, where the program's limit allows.
const HIGH: libc::rlim_t = 700;
/// Below this limit of descriptors none is kept between writes: the program may need each of them.
const FEW: libc::rlim_t = 256;

/// Which file it is: device and inode.
type Identity = (u64, u64);

/// A descriptor of ours, by its number and by what it is of.
pub(crate) struct PrivateDescriptor {
    identity: Identity,
    number: RawFd,
}

impl PrivateDescriptor {
    /// Takes an open one over, by a number that new files do not get.
    ///
    /// # Errors
    /// When the program closes it at this moment.
    pub(crate) fn of(open: impl Into<OwnedFd>) -> io::Result<Self> {
        let number = open.into().into_raw_fd();
        let closed = || io::Error::other("the program closed it at this moment");
        let identity = identity_of(number).ok_or_else(closed)?;
        let number = moved_up(number, identity);
        let ours = Self { identity, number };
        ours.number().ok_or_else(closed)?;
        Ok(ours)
    }

    /// Its number, unless that is somebody else's by now.
    pub(crate) fn number(&self) -> Option<RawFd> {
        (identity_of(self.number) == Some(self.identity)).then_some(self.number)
    }

    /// The inode that it is of.
    pub(crate) fn inode(&self) -> u64 {
        self.identity.1
    }

    /// It as a file, if it still is ours.
    fn file(&self) -> Option<ManuallyDrop<File>> {
        // SAFETY: the descriptor is open, and `ManuallyDrop` leaves it open.
        self.number()
            .map(|number| ManuallyDrop::new(unsafe { File::from_raw_fd(number) }))
    }
}

impl Drop for PrivateDescriptor {
    fn drop(&mut self) {
        if let Some(number) = self.number() {
            // SAFETY: the descriptor is ours.
            unsafe { libc::close(number) };
        }
    }
}

/// Who makes a recording's files for the process that writes them.
pub trait Files: Send + Sync {
    /// Makes a process's folder, which must not be there.
    ///
    /// # Errors
    /// When it is there or can't be made.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    /// Opens a file for appending, which is made when it is `new` and must be there when it is not.
    ///
    /// # Errors
    /// When that can't be.
    fn open(&self, path: &Path, new: bool) -> io::Result<File>;
    /// Writes a small file whole, in the place of the one that may be there.
    ///
    /// # Errors
    /// When the disk refuses; the old one is then as it was.
    fn replace(&self, path: &Path, text: &[u8]) -> io::Result<()>;
}

/// The process itself makes them, by their paths.
pub struct OwnFiles;

impl OwnFiles {
    /// It, as writers want it.
    #[must_use]
    pub fn shared() -> Arc<dyn Files> {
        Arc::new(Self)
    }
}

impl Files for OwnFiles {
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        crate::writer::make_folder(folder)
    }

    fn open(&self, path: &Path, new: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options
            .append(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOCTTY);
        if new {
            options.create_new(true).mode(access::file_mode());
        }
        let file = options.open(path)?;
        // The program's mask may leave the owner no rights; readers and later attempts need them. By name, since the number may
        // be another file's by now.
        let mode = std::fs::symlink_metadata(path)?.mode();
        if mode & 0o600 != 0o600 {
            std::fs::set_permissions(path, Permissions::from_mode(mode | 0o600))?;
        }
        Ok(file)
    }

    fn replace(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        crate::json_file::replace(path, text)
    }
}

/// A file of ours, opened when it is first written to.
pub(crate) struct PrivateFile {
    path: PathBuf,
    files: Arc<dyn Files>,
    /// Once it was made.
    identity: Option<Identity>,
    open: Option<PrivateDescriptor>,
}

impl PrivateFile {
    /// A file that does not exist yet; everything is appended.
    pub(crate) fn new(files: Arc<dyn Files>, path: PathBuf) -> Self {
        Self {
            path,
            files,
            identity: None,
            open: None,
        }
    }

    /// Appends what fits of `slices`, and gives how many bytes that was.
    ///
    /// # Errors
    /// When the file can't be made or found again, or the disk refuses.
    pub(crate) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut file = match self.open.as_ref().and_then(PrivateDescriptor::file) {
            Some(file) => file,
            None => {
                // Whatever had the number before is somebody else's now.
                self.open = None;
                let opened = self.open()?;
                let closed = || io::Error::other("the program closed it at this moment");
                self.open.insert(opened).file().ok_or_else(closed)?
            }
        };
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
            self.open = None;
        }
        written
    }

    fn open(&mut self) -> io::Result<PrivateDescriptor> {
        let file = self.files.open(&self.path, self.identity.is_none())?;
        let opened = PrivateDescriptor::of(file)?;
        if self.identity.is_some_and(|known| known != opened.identity) {
            return Err(io::Error::other("it was replaced by another file"));
        }
        self.identity = Some(opened.identity);
        Ok(opened)
    }
}

/// A file that is read again and again, under the same conditions.
pub(crate) struct PrivateReader {
    path: PathBuf,
    open: Option<PrivateDescriptor>,
}

impl PrivateReader {
    /// A file that is opened when it is first read.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, open: None }
    }

    /// Reads what stands at the file's beginning, and gives how many bytes of `bytes` that was.
    ///
    /// # Errors
    /// When it can't be opened, is no regular file, or the disk refuses.
    pub(crate) fn read_at_start(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let file = match self.open.as_ref().and_then(PrivateDescriptor::file) {
            Some(file) => file,
            None => {
                // Whatever had the number before is somebody else's now.
                self.open = None;
                let opened = self.open()?;
                let closed = || io::Error::other("the program closed it at this moment");
                self.open.insert(opened).file().ok_or_else(closed)?
            }
        };
        let read = file.read_at(bytes, 0);
        if descriptor_limit() < FEW {
            self.open = None;
        }
        read
    }

    fn open(&self) -> io::Result<PrivateDescriptor> {
        let mut options = OpenOptions::new();
        // Not to wait for the writer of a pipe that somebody has put there.
        let flags = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
        let file = options.read(true).custom_flags(flags).open(&self.path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is no regular file",
            ));
        }
        PrivateDescriptor::of(file)
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
fn moved_up(descriptor: RawFd, ours: Identity) -> RawFd {
    let lowest = HIGH.min(descriptor_limit() / 4 * 3).max(3);
    let lowest = libc::c_int::try_from(lowest).unwrap_or(3);
    // SAFETY: plain numbers; an error leaves everything as it was.
    let high = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, lowest) };
    if high < 0 {
        return descriptor;
    }
    if identity_of(descriptor) == Some(ours) {
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
    let mut file = PrivateFile::new(OwnFiles::shared(), path.to_owned());
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

    fn number(file: &PrivateFile) -> RawFd {
        file.open.as_ref().expect("kept").number
    }

    #[test]
    fn a_descriptor_that_became_another_files_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let mut file = PrivateFile::new(OwnFiles::shared(), ours.clone());
        file.write_vectored(&[IoSlice::new(b"one ")]).expect("written");
        let descriptor = number(&file);
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
        let descriptor_again = number(&file);
        assert_ne!(descriptor_again, descriptor);
        // SAFETY: a descriptor of ours, closed as a program does that closes all.
        unsafe { libc::close(descriptor_again) };
        file.write_vectored(&[IoSlice::new(b"three")])
            .expect("opened anew");
        assert_eq!(written(&ours), "one two three");
        // SAFETY: as above.
        unsafe { libc::dup2(their_file.as_raw_fd(), number(&file)) };
        let theirs_by_our_number = number(&file);
        drop(file);
        assert!(identity_of(theirs_by_our_number).is_some(), "not ours to close");
    }

    #[test]
    fn a_file_in_the_place_of_ours_is_not_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ours");
        let mut file = PrivateFile::new(OwnFiles::shared(), path.clone());
        file.write_vectored(&[IoSlice::new(b"one")]).expect("written");
        file.open = None;
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
