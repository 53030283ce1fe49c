//! A recording's JSON files: the manifest and processes' headers, read and written whole, each with a checksum.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::beneath;
use crate::manifest::{Manifest, ProcessHeader, VERSION, Version};
use crate::private_file;
use crate::seal;

/// What both files say of themselves, and how they are read: in this crate, since a parser that others make of serde's traits
/// is compiled anew in each of them.
pub trait Versioned: Sized {
    /// The version of the format; 0.0 where the file does not say.
    fn version(&self) -> Version;
    /// Parses the file's text.
    ///
    /// # Errors
    /// When it is none of these.
    fn from_text(text: &[u8]) -> serde_json::Result<Self>;
    /// The same, of what is a part of another file.
    ///
    /// # Errors
    /// When it is none of these.
    fn from_value(value: serde_json::Value) -> serde_json::Result<Self>;
}

macro_rules! versioned {
    ($($File:ty),*) => {$(
        impl Versioned for $File {
            fn version(&self) -> Version {
                self.version
            }

            fn from_text(text: &[u8]) -> serde_json::Result<Self> {
                serde_json::from_slice(text)
            }

            fn from_value(value: serde_json::Value) -> serde_json::Result<Self> {
                serde_json::from_value(value)
            }
        }
    )*};
}
versioned!(Manifest, ProcessHeader);

/// A JSON file of a recording: what it says, or why it says nothing.
pub enum Json<T> {
    /// What it says.
    Read(T),
    /// There is no such file.
    Missing,
    /// It is there and can't be trusted; the text says why.
    Damaged(String),
}

impl<T> Json<T> {
    /// What it says, if it says anything.
    pub fn ok(self) -> Option<T> {
        match self {
            Self::Read(value) => Some(value),
            Self::Missing | Self::Damaged(_) => None,
        }
    }
}

/// Reads a manifest or a process's header, and checks that it is as it was written.
///
/// # Errors
/// When the file is there and can't be read.
pub fn read_json<T: Versioned>(path: &Path) -> io::Result<Json<T>> {
    match beneath::read(path) {
        Ok(bytes) => Ok(parse_json(&bytes, &name_of(path))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Json::Missing),
        Err(error) if beneath::refused(&error).is_some() => Ok(Json::Damaged(error.to_string())),
        Err(error) => Err(error),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn parse_json<T: Versioned>(bytes: &[u8], name: &str) -> Json<T> {
    let is_as_written = seal::check_json(bytes, name);
    if is_as_written == Some(false) {
        return Json::Damaged("its checksum does not match: it was damaged, edited or renamed".to_owned());
    }
    match T::from_text(bytes) {
        Ok(value) => {
            let version = value.version();
            // What a newer major version has in its place is not for us to say.
            if is_as_written.is_none() && version.major == VERSION.major && version.has_checksums() {
                Json::Damaged("its checksum is missing: it was damaged or edited".to_owned())
            } else {
                Json::Read(value)
            }
        }
        Err(error) => Json::Damaged(error.to_string()),
    }
}

/// The text of a JSON file called `name`, with its checksum.
///
/// # Errors
/// When the value is none that JSON has.
pub fn json_text<T: Serialize>(name: &str, value: &T) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    seal::seal_json(&mut text, name);
    Ok(text)
}

/// Writes `value` as JSON with a checksum to `path`, aside first and then renamed over it.
///
/// # Errors
/// When the disk refuses; the old file is then as it was, and nothing is left aside.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    write_aside(path, value, |_| Ok(()))
}

/// The same, and when it returns the file is on the disk: it survives a power loss.
///
/// # Errors
/// As [`write_json`]; where only the folder could not be brought onto the disk, the new file is there.
pub fn write_json_durably<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    write_aside(path, value, |aside| File::open(aside)?.sync_all())?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Brings onto the disk which files a folder holds, where its file system has that in its hands.
///
/// # Errors
/// When the folder can't be opened, or the disk refuses.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some file systems know nothing of the kind for folders.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

fn write_aside<T: Serialize>(
    path: &Path,
    value: &T,
    before_renaming: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    replace_with(path, &json_text(&name_of(path), value)?, before_renaming)
}

/// Writes a text aside and renames it over `path`.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    replace_with(path, text, |_| Ok(()))
}

fn replace_with(
    path: &Path,
    text: &[u8],
    before_renaming: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let aside = path.with_extension("json.part");
    let written = (|| {
        // One that was left behind by a process that was killed.
        drop(std::fs::remove_file(&aside));
        private_file::write_new(&aside, text)?;
        before_renaming(&aside)?;
        std::fs::rename(&aside, path)
    })();
    if written.is_err() {
        // The write's own error is the one to tell; the part file may not even exist.
        drop(std::fs::remove_file(&aside));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::MANIFEST_FILE;

    #[test]
    fn every_byte_of_a_file_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(MANIFEST_FILE);
        let manifest = Manifest {
            command: vec!["train".to_owned()],
            ..Manifest::new()
        };
        write_json(&path, &manifest).expect("written");
        let text = std::fs::read(&path).expect("read");
        let value: serde_json::Value = serde_json::from_slice(&text).expect("still JSON");
        assert!(value["checksum"].is_string());
        let read = |text: &[u8], name: &str| parse_json::<Manifest>(text, name).ok();
        assert_eq!(read(&text, MANIFEST_FILE), Some(manifest));
        assert_eq!(read(&text, "manifest-1.json"), None, "under another name");
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut damaged = text.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(read(&damaged, MANIFEST_FILE), None, "bit {bit} of byte {at}");
            }
            assert_eq!(read(&text[..at], MANIFEST_FILE), None, "cut at {at}");
        }
    }
}
