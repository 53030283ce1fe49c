//! What is being written and has no name of its own yet.
//!
//! All parts of this process are known here, so that a signal that ends it can take them away: those alone, and of a folder
//! only the files that were put into it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{self, Seen};
use super::mark;
use super::spot::Spot;

/// Names under which a part may be put, before it is given up.
const ATTEMPTS: u32 = 100;
/// Longer names are cut in the hidden one, which is a little longer.
const MOST_NAME_BYTES: usize = 200;

static PARTS: Mutex<Vec<Arc<Mutex<State>>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes everything that this process has begun to write and has not finished, right before it ends. What is about to get
/// its name gets it first; whoever goes on to write waits for the end.
pub fn abandon_all() {
    let parts = lock(&PARTS);
    for part in parts.iter() {
        let mut state = lock(part);
        state.remove();
        std::mem::forget(state);
    }
    std::mem::forget(parts);
}

/// A file or a folder under a hidden name beside its place.
pub(super) struct Part(Arc<Mutex<State>>);

pub(super) struct State {
    place: Arc<OwnedFd>,
    pub(super) name: OsString,
    seen: Seen,
    /// What was put into it, if it is a folder.
    files: Vec<String>,
    /// Whether the name is not its own any more.
    over: bool,
}

impl Part {
    /// Makes an empty file beside its place.
    pub(super) fn file(spot: &Spot) -> io::Result<(Self, File)> {
        Self::make(spot, |name| disk::make_file(&spot.place, name))
    }

    /// Makes an empty folder beside its place.
    pub(super) fn folder(spot: &Spot) -> io::Result<(Self, OwnedFd)> {
        Self::make(spot, |name| {
            disk::make_folder(&spot.place, name)?;
            disk::open_folder(&spot.place, name)
        })
    }

    fn make<T>(spot: &Spot, make: impl Fn(&OsStr) -> io::Result<T>) -> io::Result<(Self, T)> {
        let mut parts = lock(&PARTS);
        let (name, made) = under_free_name(&spot.name, make)?;
        let state = Arc::new(Mutex::new(State {
            place: Arc::clone(&spot.place),
            seen: disk::look(&spot.place, &name)?.ok_or(io::ErrorKind::NotFound)?,
            name,
            files: Vec::new(),
            over: false,
        }));
        parts.push(Arc::clone(&state));
        Ok((Self(state), made))
    }

    /// Keeps signals from taking it away meanwhile.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Makes a file in the folder. `name` may have folders in it, separated by `/`.
    pub(super) fn file_in(&self, folder: &OwnedFd, name: &str) -> io::Result<File> {
        self.put_in(folder, name, |folder, last| disk::make_file(folder, last))
    }

    /// Puts something into the folder, which `put` makes in the folder that it is given.
    fn put_in<T>(
        &self,
        folder: &OwnedFd,
        name: &str,
        put: impl FnOnce(&dyn AsFd, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.lock();
        let mut at = 0;
        while let Some(end) = name[at..].find('/') {
            let made = mark::within(folder, &name[..at + end], |folder, last| {
                disk::make_folder(folder, last)
            });
            match made {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => at += end + 1,
            }
        }
        let made = mark::within(folder, name, put)?;
        state.files.push(name.to_owned());
        Ok(made)
    }

    /// Removes it.
    pub(super) fn remove(&self) {
        self.lock().remove();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        lock(&PARTS).retain(|part| !Arc::ptr_eq(part, &self.0));
    }
}

impl State {
    /// From now on its name is not its own.
    pub(super) fn is_over(&mut self) {
        self.over = true;
    }

    fn remove(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        // Best effort: the failure or the signal that led here is the one to tell.
        drop(self.try_remove());
    }

    fn try_remove(&self) -> io::Result<()> {
        let found = disk::look(&self.place, &self.name)?;
        if !found.is_some_and(|found| found.is_same(&self.seen)) {
            return Ok(());
        }
        if !self.seen.is_folder() {
            return disk::remove_file(&self.place, &self.name);
        }
        let folder = disk::open_folder(&self.place, &self.name)?;
        let files: Vec<_> = self.files.iter().map(|file| (file.clone(), None)).collect();
        mark::remove(&folder, &files, &folders_of(&self.files))?;
        disk::remove_folder(&self.place, &self.name)
    }
}

/// The folders that files are in, each behind those that it is in.
fn folders_of(files: &[String]) -> Vec<String> {
    let ends = |file: &String| -> Vec<String> {
        file.match_indices('/')
            .map(|(end, _)| file[..end].to_owned())
            .collect()
    };
    let folders: BTreeSet<String> = files.iter().flat_map(ends).collect();
    folders.into_iter().collect()
}

/// Makes something under a hidden name that nobody has.
fn under_free_name<T>(name: &OsStr, make: impl Fn(&OsStr) -> io::Result<T>) -> io::Result<(OsString, T)> {
    let stem = match name.len() <= MOST_NAME_BYTES {
        true => name,
        false => OsStr::new("gputrace"),
    };
    for attempt in 0..ATTEMPTS {
        let mut hidden = OsString::from(".");
        hidden.push(stem);
        hidden.push(format!(".{}", std::process::id()));
        if attempt > 0 {
            hidden.push(format!("-{attempt}"));
        }
        hidden.push(".part");
        match make(&hidden) {
            Ok(made) => return Ok((hidden, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{ATTEMPTS} unfinished files of the same name are in its folder"),
    ))
}

/// A folder that is being filled.
pub struct NewFolder<'p> {
    pub(super) part: &'p Part,
    pub(super) folder: &'p OwnedFd,
    pub(super) mark: mark::Mark,
}

impl NewFolder<'_> {
    /// Makes a file in it and lets `write` write it. `name` may have folders in it, separated by `/`.
    ///
    /// # Errors
    /// What `write` says, or when the disk refuses.
    pub fn file<T>(&mut self, name: &str, write: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        if !mark::is_plain(name) || Path::new(name).is_absolute() {
            return Err(io::Error::other(format!("{name} is no name of a file")));
        }
        let file = self.part.file_in(self.folder, name)?;
        let result = write(&file)?;
        self.mark.files.insert(name.to_owned(), file.metadata()?.len());
        Ok(result)
    }

    /// Gives a file a second name in the folder, or copies it where it is on another disk.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn link_or_copy(&mut self, name: &str, from: &Path) -> io::Result<()> {
        let linked = self
            .part
            .put_in(self.folder, name, |folder, last| disk::link(from, folder, last));
        if linked.is_ok() {
            return Ok(());
        }
        self.file(name, |mut to| io::copy(&mut File::open(from)?, &mut to).map(drop))
    }

    /// Writes the mark, last of all.
    pub(super) fn finish(self) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&self.mark)?;
        text.push(b'\n');
        let file = self.part.file_in(self.folder, mark::MARK_FILE)?;
        io::Write::write_all(&mut &file, &text)
    }
}
