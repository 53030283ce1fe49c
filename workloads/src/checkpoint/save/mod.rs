//! Writing a checkpoint: beside the old one, which it replaces once it is whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::State;
use super::format::{BEGINNING, CHECKSUM_MEMBER, CHUNK, Checksum, Header, to_bytes};
use super::options::folder;
use crate::error::Error;

/// What a checkpoint that is being written has behind its name.
const SUFFIX: &str = ".partial";

/// Writes a checkpoint. Whatever happens, what was there before stays there until the new one is whole and on the disk.
pub(crate) fn write(path: &Path, state: &State) -> Result<(), Error> {
    replace(path, state).map_err(|error| {
        let path = path.display();
        Error::new(format!("the checkpoint {path} cannot be written: {error}"))
    })
}

fn replace(path: &Path, state: &State) -> io::Result<()> {
    if let Some(why) = in_the_way(path) {
        return Err(io::Error::other(why));
    }
    let partial = partial(path).ok_or_else(|| io::Error::other("its path names no file"))?;
    let file = claim(&partial)?;
    let written = put(&file, state)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&partial, path));
    if let Err(error) = written {
        // The first error is the one to tell.
        drop(fs::remove_file(&partial));
        return Err(error);
    }
    // The new name must be on the disk as well.
    File::open(folder(path))?.sync_all()
}

/// Why what stands under a name is not replaced: only checkpoints are, whole or cut, and empty files.
pub(super) fn in_the_way(path: &Path) -> Option<String> {
    let found = path.symlink_metadata().ok()?;
    if found.is_symlink() {
        return Some("is a link, which is not written through: name what it leads to".to_owned());
    }
    if found.is_dir() {
        return Some("is a folder: name a file in it".to_owned());
    }
    if !found.is_file() {
        return Some("is no file: name one".to_owned());
    }
    match File::open(path).and_then(|file| begins_as_checkpoint(&file)) {
        Ok(true) => None,
        Ok(false) => {
            Some("exists already and is no checkpoint: remove it yourself, or name another".to_owned())
        }
        Err(error) => Some(format!("exists already and cannot be read: {error}")),
    }
}

/// Whether a file is a checkpoint as far as it goes.
fn begins_as_checkpoint(file: &File) -> io::Result<bool> {
    let mut head = Vec::new();
    file.take(BEGINNING.len() as u64).read_to_end(&mut head)?;
    Ok(BEGINNING.starts_with(&head))
}

fn partial(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(path.file_name()?);
    name.push(SUFFIX);
    Some(path.with_file_name(name))
}

/// Opens the file to write, empty and for this process alone. One that a killed process left behind is taken over.
fn claim(partial: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(partial)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other(
                    "another process is writing it: give each run its own --save",
                ));
            }
            // Not all file systems have locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // Another process may have finished between the two calls: then this is its checkpoint by now.
        let own = file.metadata()?;
        if fs::metadata(partial).is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
            if !own.is_file() || !begins_as_checkpoint(&file)? {
                return Err(io::Error::other(format!(
                    "{} is in the way and is no checkpoint: move it away",
                    partial.display()
                )));
            }
            file.set_len(0)?;
            (&file).rewind()?;
            return Ok(file);
        }
    }
}

fn put(file: &File, state: &State) -> io::Result<()> {
    let vectors = || std::iter::once(&state.parameters).chain(&state.moments);
    let mut line = serde_json::to_vec(&Header::of(state))?;
    // The checksum is the object's last member, over all that is before it and behind the line.
    line.pop();
    line.extend_from_slice(CHECKSUM_MEMBER);
    let mut checksum = Checksum::new();
    checksum.text(&line);
    vectors().for_each(|values| checksum.values(values));
    let mut writer = BufWriter::new(file);
    writer.write_all(&line)?;
    writeln!(writer, "{}\"}}", checksum.digits())?;
    for chunk in vectors().flat_map(|values| values.chunks(CHUNK)) {
        writer.write_all(&to_bytes(chunk))?;
    }
    writer.flush()
}

#[cfg(test)]
mod tests;
