//! Where exports of several files go: a folder that is there whole or not at all, or one tar archive.

use std::fs;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use super::gzip::ParallelGzip;
use crate::aside::{hidden, write_aside};

/// Writes the file `path`: gzip where the name ends in `.gz`. The file is written aside and renamed, so that `path` is never
/// half an export; an existing file is replaced, a device or a pipe written into.
///
/// # Errors
/// What `write` says, or when the disk refuses. Nothing new is left behind then.
pub fn write_file<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    let gzip = path.extension().is_some_and(|end| end == "gz");
    write_aside(path, |file| {
        let mut file = BufWriter::with_capacity(1 << 18, file);
        let result = if gzip {
            let mut gzip = ParallelGzip::new(&mut file);
            let result = write(&mut gzip)?;
            gzip.finish()?;
            result
        } else {
            write(&mut file)?
        };
        file.flush()?;
        Ok(result)
    })
}

/// Where [`write_file`] and [`write_folder`] write what is not whole yet.
///
/// # Errors
/// When `path` names no file.
pub fn unfinished_path(path: &Path) -> io::Result<PathBuf> {
    hidden(path, "part")
}

/// Takes files one after another.
pub trait Files {
    /// Writes one file. `name` may have folders in it, separated by `/`.
    ///
    /// # Errors
    /// What `write` says, or when the place refuses.
    fn file(
        &mut self,
        name: &str,
        write: &mut dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> io::Result<()>;
}

/// Files in a folder.
struct Folder {
    path: PathBuf,
}

impl Files for Folder {
    fn file(
        &mut self,
        name: &str,
        write: &mut dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = self.path.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = BufWriter::with_capacity(1 << 18, fs::File::create_new(path)?);
        write(&mut file)?;
        file.flush()
    }
}

/// Lets `write` fill a new folder, which gets the name `path` when that has succeeded. What has the name already is
/// replaced then, and not before.
///
/// # Errors
/// What `write` says, or when the disk refuses. Nothing new is left behind then.
pub fn write_folder<T>(path: &Path, write: impl FnOnce(&mut dyn Files) -> io::Result<T>) -> io::Result<T> {
    let part = hidden(path, "part")?;
    let written = (|| {
        fs::create_dir(&part)?;
        let result = write(&mut Folder { path: part.clone() })?;
        if fs::symlink_metadata(path).is_err() {
            fs::rename(&part, path)?;
            return Ok(result);
        }
        let old = hidden(path, "old")?;
        fs::rename(path, &old)?;
        if let Err(error) = fs::rename(&part, path) {
            fs::rename(&old, path)?;
            return Err(error);
        }
        match fs::symlink_metadata(&old)?.is_dir() {
            true => fs::remove_dir_all(&old)?,
            false => fs::remove_file(&old)?,
        }
        Ok(result)
    })();
    if written.is_err() {
        // The write's own error is the one to tell; the folder may not even exist.
        drop(fs::remove_dir_all(&part));
    }
    written
}

/// Lets `write` fill a tar archive with a folder called `folder`. Each file is put together on the disk first, since an
/// archive says sizes before contents.
///
/// # Errors
/// What `write` says, or when `out` or the folder for temporary files refuses.
pub fn write_tar<T>(
    out: &mut dyn Write,
    folder: &str,
    write: impl FnOnce(&mut dyn Files) -> io::Result<T>,
) -> io::Result<T> {
    let mut archive = Tar {
        builder: tar::Builder::new(out),
        folder: folder.to_owned(),
    };
    let result = write(&mut archive)?;
    archive.builder.into_inner()?.flush()?;
    Ok(result)
}

struct Tar<'w> {
    builder: tar::Builder<&'w mut dyn Write>,
    folder: String,
}

impl Files for Tar<'_> {
    fn file(
        &mut self,
        name: &str,
        write: &mut dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 18, tempfile::tempfile()?);
        write(&mut file)?;
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // No time and no owner: two archives of the same files are the same bytes.
        let mut header = tar::Header::new_ustar();
        header.set_size(file.stream_position()?);
        header.set_mode(0o644);
        file.rewind()?;
        self.builder
            .append_data(&mut header, format!("{}/{name}", self.folder), file)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn fill(files: &mut dyn Files, text: &str) -> io::Result<()> {
        files.file("a.txt", &mut |out| out.write_all(text.as_bytes()))?;
        files.file("b/c.txt", &mut |out| out.write_all(b"c"))
    }

    #[test]
    fn a_folder_is_there_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("out");
        write_folder(&path, |files| fill(files, "a")).unwrap();
        assert_eq!(fs::read_to_string(path.join("b/c.txt")).unwrap(), "c");
        let failed = write_folder(&path, |files| {
            fill(files, "new")?;
            Err::<(), _>(io::Error::other("no"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "a");
        write_folder(&path, |files| fill(files, "new")).unwrap();
        assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "new");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_archive_has_the_files_and_is_the_same_each_time() {
        let archive = || {
            let mut out = Vec::new();
            write_tar(&mut out, "run", |files| fill(files, "a")).unwrap();
            out
        };
        let bytes = archive();
        assert_eq!(bytes, archive());
        let mut read = tar::Archive::new(&bytes[..]);
        let mut found = Vec::new();
        for entry in read.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push((path, text));
        }
        assert_eq!(
            found,
            [
                ("run/a.txt".to_owned(), "a".to_owned()),
                ("run/b/c.txt".to_owned(), "c".to_owned())
            ]
        );
    }
}
