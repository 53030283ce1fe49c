//! Writing a checkpoint: beside the old one, which it replaces once it is whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::State;
use super::format::{CHECKSUM_MEMBER, CHUNK, Checksum, Header, to_bytes};
use super::options::folder;
use crate::error::Error;

/// What a checkpoint that is being written has behind its name.
const SUFFIX: &str = ".partial";

/// Writes a checkpoint. Whatever happens, what was there before stays there until the new one is whole and on the disk.
pub(crate) fn write(path: &Path, state: &State) -> Result<(), Error> {
    // A link stays one: what it leads to is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    replace(&path, state).map_err(|error| {
        let path = path.display();
        Error::new(format!("the checkpoint {path} cannot be written: {error}"))
    })
}

fn replace(path: &Path, state: &State) -> io::Result<()> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("there is something that is no file"));
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

fn partial(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(path.file_name()?);
    name.push(SUFFIX);
    Some(path.with_file_name(name))
}

/// Opens the file to write, empty and for this process alone. One that a killed process left behind is taken over.
fn claim(partial: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
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
            file.set_len(0)?;
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
