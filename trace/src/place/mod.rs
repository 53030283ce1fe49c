//! Writing where the user said, without losing anything that is there already.
//!
//! Everything is written aside, under a hidden name, and gets its own name when it is whole. Where something has that name, it
//! is replaced only if the user says so and gputrace wrote it: a file is known by its first bytes, a folder by the mark of an
//! export in it, which lists every file that was written ([`MARK_FILE`]). What is empty is as good as nothing.
//! Old and new change places in one step; the old one
//! is looked at once more where nobody else finds it, and given back if it is not what it was before. Only then are the files
//! that the mark lists removed, one by one, and no link is followed. Whatever came into the folder meanwhile stays.
//!
//! Nothing is written into a recording. Never replaced, whatever mark there is: what is read for it and the folders around,
//! recordings, links and what they lead to, mounts, the home folder, the current one and those that these are in.

mod disk;
mod mark;
mod never;
mod part;
mod process_folder;
mod recording_folder;
mod refused;
mod spot;

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::Seen;
pub use mark::MARK_FILE;
use mark::Mark;
pub use never::refuse_inside;
use part::Part;
pub use part::{NewFolder, abandon_all};
pub use process_folder::remove_process_folder;
pub use recording_folder::remove_recording;
pub use refused::{Refused, refusal};
use spot::{Parents, Spot, folder_of};

/// Where something is to be written, and what the user allows for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The file or folder.
    pub path: PathBuf,
    /// What becomes of what is there.
    pub existing: Existing,
    /// Make the folders that it is in, where they are missing.
    pub parents: bool,
    /// What is read for it.
    pub sources: Vec<PathBuf>,
}

impl From<&Path> for Target {
    fn from(path: &Path) -> Self {
        Self::new(path)
    }
}

impl From<&PathBuf> for Target {
    fn from(path: &PathBuf) -> Self {
        Self::new(path)
    }
}

impl From<&Self> for Target {
    fn from(target: &Self) -> Self {
        target.clone()
    }
}

/// What becomes of what has a name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It stays.
    #[default]
    Stays,
    /// It stays, and the user is told of `--force`.
    StaysUnlessForced,
    /// It is replaced, if gputrace wrote it.
    IsReplaced,
}

/// Whether a file's first bytes are those of a file that gputrace writes.
pub type IsOurs<'a> = &'a dyn Fn(&File) -> bool;

/// What is wanted under a name.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    File(IsOurs<'a>),
    Folder,
}

/// What may be replaced, as it was when it was looked at.
struct Old {
    seen: Seen,
    /// What is in it, if it is a folder.
    contents: Option<mark::Contents>,
}

impl Target {
    /// A place where nothing is to be replaced.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            ..Self::default()
        }
    }

    /// Whether a file can be written there: better said before the work than behind it.
    ///
    /// # Errors
    /// Why not.
    pub fn check_file(&self, is_ours: IsOurs<'_>) -> Result<(), Refused> {
        match self.is_special()? {
            true => Ok(()),
            false => self.check(Wanted::File(is_ours)),
        }
    }

    /// Whether a folder can be written there.
    ///
    /// # Errors
    /// Why not.
    pub fn check_folder(&self) -> Result<(), Refused> {
        self.check(Wanted::Folder)
    }

    /// Lets `write` write a file, which gets its name when that has succeeded. Pipes and devices are written into.
    ///
    /// # Errors
    /// What `write` says, when the disk refuses, or a [`Refused`]. Nothing new is left behind then.
    pub fn write_file<T>(
        &self,
        is_ours: IsOurs<'_>,
        write: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_special()? {
            return write(&self.open_special()?);
        }
        let spot = self.spot()?;
        let wanted = Wanted::File(is_ours);
        let old = self.judge(&spot, &spot.name, wanted)?;
        let (part, file) = Part::file(&spot)?;
        let written = (|| {
            if let Some(old) = old {
                file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(old.seen.mode))?;
            }
            let result = write(&file)?;
            drop(file);
            self.settle(&part, &spot, &|name| self.judge(&spot, name, wanted))?;
            Ok(result)
        })();
        if written.is_err() {
            part.remove();
        }
        written
    }

    /// Lets `write` fill a new folder, which gets its name, with a mark in it, when that has succeeded.
    ///
    /// # Errors
    /// As [`Self::write_file`].
    pub fn write_folder<T>(&self, write: impl FnOnce(&mut NewFolder<'_>) -> io::Result<T>) -> io::Result<T> {
        self.put_folder(write, true)
    }

    fn put_folder<T>(
        &self,
        write: impl FnOnce(&mut NewFolder<'_>) -> io::Result<T>,
        with_mark: bool,
    ) -> io::Result<T> {
        let spot = self.spot()?;
        let old = self.judge(&spot, &spot.name, Wanted::Folder)?;
        let (part, folder) = Part::folder(&spot)?;
        let written = (|| {
            if let Some(old) = old {
                rustix::fs::fchmod(&folder, old.seen.mode.into())?;
            }
            let mut files = NewFolder {
                part: &part,
                folder: &folder,
                mark: Mark::new(),
            };
            let result = write(&mut files)?;
            if with_mark {
                files.finish()?;
            }
            self.settle(&part, &spot, &|name| self.judge(&spot, name, Wanted::Folder))?;
            Ok(result)
        })();
        if written.is_err() {
            part.remove();
        }
        written
    }

    /// The same for a folder without a mark, so that nothing ever replaces it.
    ///
    /// # Errors
    /// As [`Self::write_file`].
    pub fn write_recording<T>(
        &self,
        write: impl FnOnce(&mut NewFolder<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.put_folder(write, false)
    }

    fn refused(&self, why: impl fmt::Display) -> Refused {
        Refused(format!("{}: {why}", self.path.display()))
    }

    fn not_replaced(&self, why: impl fmt::Display) -> Refused {
        self.refused(format!("exists already and is not replaced: {why}"))
    }

    fn check(&self, wanted: Wanted<'_>) -> Result<(), Refused> {
        refuse_inside(&self.path)?;
        let folder = folder_of(&self.path);
        if self.parents && !folder.exists() {
            return self.name().map(drop);
        }
        let spot = self.open_spot()?;
        self.judge(&spot, &spot.name, wanted).map(drop)
    }

    fn name(&self) -> Result<&OsStr, Refused> {
        // `..` and `/` are folders that are there.
        self.path
            .file_name()
            .ok_or_else(|| self.refused("names no new file or folder: name one"))
    }

    /// The place, with the folders around it made where that is wanted.
    fn spot(&self) -> io::Result<Spot> {
        refuse_inside(&self.path)?;
        let made = if self.parents {
            Parents::make(folder_of(&self.path))?
        } else {
            Parents::default()
        };
        Ok(Spot {
            _parents: made,
            ..self.open_spot()?
        })
    }

    fn open_spot(&self) -> Result<Spot, Refused> {
        let name = self.name()?.to_owned();
        let folder = folder_of(&self.path);
        let place = disk::open_place(folder).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.refused(format!(
                "its folder {} does not exist: make it first, or add --parents",
                folder.display()
            )),
            _ => self.refused(format!(
                "its folder {} cannot be opened: {error}",
                folder.display()
            )),
        })?;
        Ok(Spot {
            place: Arc::new(place),
            name,
            path: self.path.clone(),
            _parents: Parents::default(),
        })
    }

    /// Whether a path is a pipe or a device that takes bytes, to be written into.
    fn is_special(&self) -> Result<bool, Refused> {
        let Ok(found) = self.path.metadata() else {
            return Ok(false);
        };
        let kind = found.file_type();
        if kind.is_block_device() || kind.is_socket() {
            return Err(self.refused("is a disk or a socket, which is not written into: name a file"));
        }
        Ok(kind.is_fifo() || kind.is_char_device())
    }

    fn open_special(&self) -> io::Result<File> {
        let file = File::options().write(true).open(&self.path)?;
        let kind = file.metadata()?.file_type();
        // Another file may have come into its place.
        match kind.is_fifo() || kind.is_char_device() {
            true => Ok(file),
            false => Err(self.refused("is not the pipe any more that it was").into()),
        }
    }

    /// What has a name in the place's folder, if it may be replaced; nothing where the name is free.
    fn judge(&self, spot: &Spot, name: &OsStr, wanted: Wanted<'_>) -> Result<Option<Old>, Refused> {
        let unread = |error: io::Error| self.refused(format!("cannot be looked at: {error}"));
        let Some(seen) = disk::look(&spot.place, name).map_err(unread)? else {
            return Ok(None);
        };
        if seen.kind == rustix::fs::FileType::Symlink {
            return Err(self.refused("is a link, which is not written through: name what it leads to"));
        }
        // A folder that was made to take it.
        let is_empty = matches!(wanted, Wanted::Folder)
            && disk::open_folder(&spot.place, name)
                .and_then(disk::names)
                .is_ok_and(|names| names.is_empty());
        match self.existing {
            Existing::Stays if !is_empty => {
                return Err(self.refused("exists already: name another"));
            }
            Existing::StaysUnlessForced if !is_empty => {
                return Err(self.refused("exists already: name another, or add --force to replace an export"));
            }
            _ => {}
        }
        if let Some(why) = never::reason(&spot.path.with_file_name(name), &seen, &self.sources) {
            return Err(self.not_replaced(format!("{why}: name another")));
        }
        let contents = match wanted {
            Wanted::File(_) if seen.is_folder() => {
                return Err(self.not_replaced("it is a folder, and this writes a file: name another"));
            }
            Wanted::Folder if !seen.is_folder() => {
                return Err(self.not_replaced("it is no folder, and this writes one: name another"));
            }
            Wanted::File(is_ours) => {
                let is_ours =
                    seen.bytes == 0 || disk::open_file(&spot.place, name).is_ok_and(|file| is_ours(&file));
                if !seen.is_file() || !is_ours {
                    return Err(self.not_replaced(
                        "it does not begin as what gputrace writes, or was changed since: remove it yourself, or name another",
                    ));
                }
                None
            }
            Wanted::Folder if is_empty => Some(mark::Contents::default()),
            Wanted::Folder => {
                let folder = disk::open_folder(&spot.place, name).map_err(unread)?;
                Some(mark::contents(&folder).map_err(|why| self.not_replaced(why))?)
            }
        };
        Ok(Some(Old { seen, contents }))
    }

    /// Gives a part its name. `judge` says what has a name, and whether that may be replaced.
    fn settle(
        &self,
        part: &Part,
        spot: &Spot,
        judge: &dyn Fn(&OsStr) -> Result<Option<Old>, Refused>,
    ) -> io::Result<()> {
        let mut state = part.lock();
        let Some(old) = judge(&spot.name)? else {
            let renamed = disk::rename_to_free(&spot.place, &state.name, &spot.name);
            return match renamed {
                Ok(()) => {
                    state.is_over();
                    Ok(())
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(self
                    .refused("came into being meanwhile, and is not replaced")
                    .into()),
                Err(error) => Err(error),
            };
        };
        disk::exchange(&spot.place, &state.name, &spot.name)?;
        let still = judge(&state.name).and_then(|still| match still {
            Some(still) if still.is(&old) => Ok(()),
            _ => Err(self.not_replaced("it was changed meanwhile")),
        });
        if let Err(refused) = still {
            disk::exchange(&spot.place, &state.name, &spot.name)?;
            return Err(refused.into());
        }
        state.is_over();
        old.remove(&spot.place, &state.name).map_err(|error| {
            let kept = spot.path.with_file_name(&state.name);
            let why = format!(
                "is written, but not all of the old one was removed ({error}): it is in {}",
                kept.display()
            );
            self.refused(why).into()
        })
    }
}

impl Old {
    /// Whether it is as it was.
    fn is(&self, before: &Self) -> bool {
        self.seen.is_same(&before.seen)
            && self.contents == before.contents
            && (self.seen.is_folder()
                || (self.seen.bytes, self.seen.modified) == (before.seen.bytes, before.seen.modified))
    }

    /// Removes it from under a name.
    fn remove(&self, place: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let Some(contents) = &self.contents else {
            return match disk::look(place, name)? {
                Some(seen) if seen.is_same(&self.seen) => disk::remove_file(place, name),
                _ => Err(io::Error::other("it was changed meanwhile")),
            };
        };
        let folder = disk::open_folder(place, name)?;
        let files: Vec<_> = contents
            .files
            .iter()
            .map(|(name, seen)| (name.clone(), Some(*seen)))
            .collect();
        let folders: Vec<_> = contents.folders.iter().map(|(name, _)| name.clone()).collect();
        mark::remove(&folder, &files, &folders)?;
        disk::remove_folder(place, name)
    }
}

#[cfg(test)]
mod tests;
