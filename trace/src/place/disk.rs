//! Files by open folders: whatever a path is turned into meanwhile, no link is followed and no other folder is reached.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::access;

/// What stands under a name, without following a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) kind: FileType,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    pub(super) modified: (i64, u32),
    pub(super) mode: u32,
    pub(super) is_mount: bool,
}

impl Seen {
    pub(super) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    pub(super) fn is_folder(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether it is the same file or folder, whatever was done to its contents.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.kind, self.device, self.inode) == (other.kind, other.device, other.inode)
    }
}

/// Looks at a name; `None` where there is nothing.
pub(super) fn look(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<Option<Seen>> {
    let name = name.as_ref();
    match rustix::fs::statx(&folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Ok(found) => {
            let knows_mounts = found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
            let mut seen = Seen {
                kind: FileType::from_raw_mode(found.stx_mode.into()),
                device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
                inode: found.stx_ino,
                bytes: found.stx_size,
                modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
                mode: u32::from(found.stx_mode) & 0o7777,
                is_mount: found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            };
            if !knows_mounts {
                seen.is_mount = is_on_another_device(&folder, &seen)?;
            }
            Ok(Some(seen))
        }
        Err(Errno::NOENT) => Ok(None),
        // Kernels before 4.11, and filters of system calls that do not know it.
        Err(Errno::NOSYS | Errno::PERM) => look_as_before(folder, name),
        Err(error) => Err(error.into()),
    }
}

fn look_as_before(folder: impl AsFd, name: &OsStr) -> io::Result<Option<Seen>> {
    let found = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut seen = Seen {
        kind: FileType::from_raw_mode(found.st_mode),
        device: found.st_dev,
        inode: found.st_ino,
        bytes: found.st_size.cast_unsigned(),
        modified: (found.st_mtime, u32::try_from(found.st_mtime_nsec).unwrap_or(0)),
        mode: found.st_mode & 0o7777,
        is_mount: false,
    };
    seen.is_mount = is_on_another_device(&folder, &seen)?;
    Ok(Some(seen))
}

/// Files alone may have another device than their folder without being mounted: on overlays.
fn is_on_another_device(folder: impl AsFd, seen: &Seen) -> io::Result<bool> {
    if !seen.is_folder() {
        return Ok(false);
    }
    let around = rustix::fs::statat(folder, ".", AtFlags::empty())?;
    Ok(around.st_dev != seen.device)
}

/// Opens the folder that something is to be put into. Links on the way are the user's own.
pub(super) fn open_place(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Opens a folder in a folder, which is no link.
pub(super) fn open_folder(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name.as_ref(), flags, Mode::empty())?)
}

/// Opens a regular file to read it.
pub(super) fn open_file(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<File> {
    // Without waiting for the writer of a pipe that came into its place.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, name.as_ref(), flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no file")),
    }
}

/// Makes a file that does not exist, to write into.
pub(super) fn make_file(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(access::file_mode());
    Ok(rustix::fs::openat(folder, name.as_ref(), flags, mode)?.into())
}

/// Gives a file a second name.
pub(super) fn link(from: &Path, folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<()> {
    Ok(rustix::fs::linkat(
        CWD,
        from,
        folder,
        name.as_ref(),
        AtFlags::empty(),
    )?)
}

/// Makes a folder that does not exist.
pub(super) fn make_folder(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<()> {
    let mode = Mode::from_raw_mode(access::folder_mode());
    Ok(rustix::fs::mkdirat(folder, name.as_ref(), mode)?)
}

/// The names in a folder, sorted.
pub(super) fn names(folder: impl AsFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort();
    Ok(names)
}

/// Removes a file, or whatever is no folder.
pub(super) fn remove_file(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(folder, name.as_ref(), AtFlags::empty())?)
}

/// Removes a folder that is empty.
pub(super) fn remove_folder(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(folder, name.as_ref(), AtFlags::REMOVEDIR)?)
}

/// Whether a file system lacks a way to rename.
fn is_lacking(error: Errno) -> bool {
    matches!(
        error,
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM
    )
}

/// Renames to a name that is free: whatever has it stays.
pub(super) fn rename_to_free(folder: impl AsFd, from: &OsStr, to: &OsStr) -> io::Result<()> {
    match rustix::fs::renameat_with(&folder, from, &folder, to, RenameFlags::NOREPLACE) {
        Err(error) if is_lacking(error) => rename_to_free_without_flags(folder, from, to),
        done => Ok(done?),
    }
}

/// The same where the file system knows no such renaming (NFS): a second name for a file is never in the place of another.
fn rename_to_free_without_flags(folder: impl AsFd, from: &OsStr, to: &OsStr) -> io::Result<()> {
    if look(&folder, from)?.is_some_and(|seen| seen.is_file()) {
        match rustix::fs::linkat(&folder, from, &folder, to, AtFlags::empty()) {
            Ok(()) => return remove_file(folder, from),
            Err(error) if is_lacking(error) || error == Errno::MLINK => {}
            Err(error) => return Err(error.into()),
        }
    }
    if look(&folder, to)?.is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // A folder takes the place of an empty folder at most.
    Ok(rustix::fs::renameat(&folder, from, &folder, to)?)
}

/// Lets two names change places, in one step where the file system can.
pub(super) fn exchange(folder: impl AsFd, one: &OsStr, other: &OsStr) -> io::Result<()> {
    match rustix::fs::renameat_with(&folder, one, &folder, other, RenameFlags::EXCHANGE) {
        Err(error) if is_lacking(error) => exchange_in_steps(folder, one, other),
        done => Ok(done?),
    }
}

fn exchange_in_steps(folder: impl AsFd, one: &OsStr, other: &OsStr) -> io::Result<()> {
    let mut between = one.to_owned();
    between.push("-old");
    rename_to_free(&folder, other, &between)?;
    if let Err(error) = rename_to_free(&folder, one, other) {
        rename_to_free(&folder, &between, other)?;
        return Err(error);
    }
    rename_to_free(&folder, &between, one)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn without_flags_names_change_places_and_nothing_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let folder = open_place(place.path()).unwrap();
        let read = |name: &str| fs::read_to_string(path(name)).unwrap();
        fs::write(path("a"), "a").unwrap();
        fs::write(path("b"), "b").unwrap();
        exchange_in_steps(&folder, "a".as_ref(), "b".as_ref()).unwrap();
        assert_eq!((read("a"), read("b")), ("b".to_owned(), "a".to_owned()));
        type Rename = fn(&OwnedFd, &OsStr, &OsStr) -> io::Result<()>;
        let renames: [Rename; 2] = [
            |folder, from, to| rename_to_free(folder, from, to),
            |folder, from, to| rename_to_free_without_flags(folder, from, to),
        ];
        for rename in renames {
            let refused = rename(&folder, "a".as_ref(), "b".as_ref()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            rename(&folder, "a".as_ref(), "c".as_ref()).unwrap();
            rename(&folder, "c".as_ref(), "a".as_ref()).unwrap();
        }
        fs::create_dir(path("d")).unwrap();
        exchange_in_steps(&folder, "a".as_ref(), "d".as_ref()).unwrap();
        assert!(path("a").is_dir());
        assert_eq!(read("d"), "b");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3);
    }
}
