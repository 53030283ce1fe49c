//! Removing a process's folder of a recording, or a part of one.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use super::disk;
use super::spot::folder_of;
use crate::manifest::PROCESS_FILE;
use crate::tables::TABLE_NAMES;

/// Removes a process's folder with the files that a collector or a recorder writes into it. Where there is anything else in
/// it, or it is a link, nothing is removed.
///
/// The folder gets a hidden name first, so that no reader finds half of it.
///
/// # Errors
/// What is in the way, or why the disk refuses.
pub fn remove_process_folder(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let place = disk::open_place(folder_of(path))?;
    let before = look_through(&place, name)?;
    let mut aside = OsStr::new(".removed-").to_owned();
    aside.push(name);
    disk::rename_to_free(&place, name, &aside)?;
    // What came into it meanwhile is given back with it.
    let files = match look_through(&place, &aside) {
        Ok(files) if files.folder.is_same(&before.folder) => files,
        found => {
            disk::rename_to_free(&place, &aside, name)?;
            return Err(found
                .err()
                .unwrap_or_else(|| io::Error::other("it was changed meanwhile")));
        }
    };
    for file in &files.names {
        disk::remove_file(&files.opened, file)?;
    }
    disk::remove_folder(&place, &aside)
}

struct Files {
    folder: disk::Seen,
    opened: std::os::fd::OwnedFd,
    names: Vec<std::ffi::OsString>,
}

/// The files of a process's folder, if it holds nothing else.
fn look_through(place: &std::os::fd::OwnedFd, name: &OsStr) -> io::Result<Files> {
    let folder = disk::look(place, name)?.ok_or(io::ErrorKind::NotFound)?;
    if !folder.is_folder() || folder.is_mount {
        return Err(io::Error::other("it is no folder of this recording"));
    }
    let opened = disk::open_folder(place, name)?;
    let names = disk::names(&opened)?;
    for name in &names {
        let seen = disk::look(&opened, name)?;
        if !seen.is_some_and(|seen| seen.is_file()) || !is_own_name(name) {
            return Err(io::Error::other(format!(
                "it holds {}, which gputrace did not write",
                name.to_string_lossy()
            )));
        }
    }
    Ok(Files {
        folder,
        opened,
        names,
    })
}

/// Whether a file is a header or a table by its name, or one beside them: `kernels.arrows`, `process.json.part`.
fn is_own_name(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let own = stem(&name);
    name.contains('.') && (own == stem(PROCESS_FILE) || TABLE_NAMES.contains(&own.as_str()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn process(path: &Path) {
        fs::create_dir(path).unwrap();
        for name in [
            "process.json",
            "kernels.arrows",
            "process.json.part",
            "losses.arrows",
        ] {
            fs::write(path.join(name), "x").unwrap();
        }
    }

    #[test]
    fn a_process_goes_and_whatever_else_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("host-1-2");
        process(&path);
        remove_process_folder(&path).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kernels.arrows"), "precious").unwrap();
        type Change<'a> = &'a dyn Fn();
        let changes: [(Change<'_>, &str); 4] = [
            (&|| fs::write(path.join("notes.txt"), "x").unwrap(), "notes.txt"),
            (&|| fs::write(path.join("kernels"), "x").unwrap(), "kernels"),
            (
                &|| symlink(&other, path.join("marks.arrows")).unwrap(),
                "marks.arrows",
            ),
            (
                &|| fs::create_dir(path.join("copies.arrows")).unwrap(),
                "copies.arrows",
            ),
        ];
        for (change, said) in changes {
            process(&path);
            change();
            let error = remove_process_folder(&path).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            assert!(path.join("kernels.arrows").exists());
            fs::remove_dir_all(&path).unwrap();
        }
        symlink(&other, &path).unwrap();
        remove_process_folder(&path).unwrap_err();
        assert!(path.is_symlink() && other.join("kernels.arrows").exists());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }
}
