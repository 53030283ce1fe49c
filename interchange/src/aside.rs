//! Writing a file so that it is never half there: beside its place, and renamed when it is whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Gives `write` a file beside `path` and renames it over `path` when that has succeeded.
///
/// A link is followed, and what it leads to is replaced. A device or a pipe is written into: there is nothing to rename. The
/// permissions of what is replaced stay.
///
/// # Errors
/// What `write` says, or when the disk refuses. Nothing new is left behind then.
pub(crate) fn write_aside<T>(path: &Path, write: impl FnOnce(File) -> io::Result<T>) -> io::Result<T> {
    // A link to nothing is followed by the system, when it creates the file.
    let found = fs::metadata(path);
    let is_link = fs::symlink_metadata(path).is_ok_and(|entry| entry.is_symlink());
    match &found {
        Ok(old) if !old.is_file() && !old.is_dir() => return write(File::options().write(true).open(path)?),
        Err(_) if is_link => return write(File::create(path)?),
        _ => {}
    }
    let target = if is_link {
        fs::canonicalize(path)?
    } else {
        path.to_owned()
    };
    let part = hidden(&target, "part")?;
    let written = (|| {
        let file = File::create(&part)?;
        if let Ok(old) = &found {
            file.set_permissions(old.permissions())?;
        }
        let result = write(file)?;
        fs::rename(&part, &target)?;
        Ok(result)
    })();
    if written.is_err() {
        // The write's own error is the one to tell; the part file may not even exist.
        drop(fs::remove_file(&part));
    }
    written
}

/// A hidden name beside `path`, which no other process uses, with `end` as its ending.
pub(crate) fn hidden(path: &Path, end: &str) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path names no file",
        ));
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.{end}", std::process::id()));
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        write_aside(path, |mut file| file.write_all(text.as_bytes()))
    }

    #[test]
    fn a_file_is_replaced_with_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let failed = write_aside(&path, |_| Err::<(), _>(io::Error::other("no")));
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        for there in [true, false] {
            if there {
                fs::write(&target, "old").unwrap();
                symlink(&target, &link).unwrap();
            } else {
                fs::remove_file(&target).unwrap();
            }
            write(&link, "new").unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        }
    }

    #[test]
    fn a_pipe_is_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut text = String::new();
                File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
                text
            }
        });
        write(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }
}
