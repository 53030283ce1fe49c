//! The mark that an export's folder carries: which files an export wrote into it. What is not listed is somebody else's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::disk::{self, Seen};

/// The name of the mark in an export's folder.
pub const MARK_FILE: &str = ".gputrace-export";
const FORMAT: &str = "gputrace.export";
const VERSION: u32 = 1;
/// A longer one is none of ours: it would list millions of files.
const MOST_BYTES: u64 = 256 << 20;

/// What an export wrote.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Mark {
    format: String,
    version: u32,
    /// Of each file its bytes, by its name with the folders in it.
    pub(super) files: BTreeMap<String, u64>,
}

impl Mark {
    pub(super) fn new() -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            files: BTreeMap::new(),
        }
    }

    fn of(folder: &OwnedFd) -> Result<Self, String> {
        let none = || {
            format!(
                "it has no mark of an export ({MARK_FILE}), which earlier versions of gputrace did not leave: \
                 remove it yourself, or name another"
            )
        };
        let file = match disk::open_file(folder, MARK_FILE) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
            Err(error) => return Err(format!("its mark {MARK_FILE} cannot be read: {error}")),
        };
        let mut text = Vec::new();
        let read = file.take(MOST_BYTES).read_to_end(&mut text);
        let mark: Self = read
            .ok()
            .and_then(|_| serde_json::from_slice(&text).ok())
            .ok_or_else(|| format!("its mark {MARK_FILE} is damaged: remove it yourself, or name another"))?;
        if mark.format != FORMAT || mark.version != VERSION || !mark.files.keys().all(|name| is_plain(name)) {
            return Err(format!(
                "its mark {MARK_FILE} is not one that this gputrace writes: remove it yourself, or name another"
            ));
        }
        Ok(mark)
    }
}

/// Whether a name leads to a file in the folder, and nowhere else.
pub(super) fn is_plain(name: &str) -> bool {
    name.split('/')
        .all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'))
}

/// A folder of ours and everything in it, as it was when it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Files by their names in the folder, the mark among them.
    pub(super) files: Vec<(String, Seen)>,
    /// Folders in it, each behind those that it is in.
    pub(super) folders: Vec<(String, Seen)>,
}

/// What is in an export's folder; an error says, as the end of a sentence, what in it is not the export's.
pub(super) fn contents(folder: &OwnedFd) -> Result<Contents, String> {
    let mark = Mark::of(folder)?;
    let written = disk::look(folder, MARK_FILE)
        .ok()
        .flatten()
        .ok_or("its mark went away")?;
    let mut found = Contents {
        files: vec![(MARK_FILE.to_owned(), written)],
        folders: Vec::new(),
    };
    walk(folder, "", &mark, &written, &mut found)?;
    Ok(found)
}

fn walk(
    folder: &OwnedFd,
    before: &str,
    mark: &Mark,
    written: &Seen,
    found: &mut Contents,
) -> Result<(), String> {
    let unread = |error: io::Error| match before {
        "" => format!("it cannot be read: {error}"),
        _ => format!("{before} in it cannot be read: {error}"),
    };
    for name in disk::names(folder).map_err(unread)? {
        let shown = format!("{before}{}", name.to_string_lossy());
        let foreign = || {
            Err(format!(
                "it holds {shown}, which no export wrote: move that away, or name another"
            ))
        };
        if shown == MARK_FILE {
            continue;
        }
        let Some(seen) = disk::look(folder, &name).map_err(unread)? else {
            continue;
        };
        // What is no text is in no mark.
        let Some(text) = name.to_str() else {
            return foreign();
        };
        let full = format!("{before}{text}");
        if seen.is_mount {
            return Err(format!("something is mounted in it, at {shown}: name another"));
        }
        if seen.is_folder() {
            let inside = format!("{full}/");
            let is_ours = mark
                .files
                .range(inside.clone()..)
                .next()
                .is_some_and(|(file, _)| file.starts_with(&inside));
            if !is_ours {
                return foreign();
            }
            found.folders.push((full, seen));
            let within = disk::open_folder(folder, &name).map_err(unread)?;
            walk(&within, &inside, mark, written, found)?;
            continue;
        }
        match mark.files.get(&full) {
            Some(&bytes) if seen.is_file() => {
                if bytes != seen.bytes || seen.modified > written.modified {
                    return Err(format!(
                        "{shown} in it was changed after the export: move that away, or name another"
                    ));
                }
                found.files.push((full, seen));
            }
            _ => return foreign(),
        }
    }
    Ok(())
}

/// Removes files of a folder, the folders that they are in, and nothing else: what has another file in its place, or is not
/// listed, stays. The folder itself is not removed.
pub(super) fn remove(
    folder: &OwnedFd,
    files: &[(String, Option<Seen>)],
    folders: &[String],
) -> io::Result<()> {
    let mut result = Ok(());
    let mut keep_first = |next: io::Result<()>| {
        if result.is_ok() {
            result = next;
        }
    };
    for (name, expected) in files {
        keep_first(remove_one(folder, name, expected.as_ref()));
    }
    for name in folders.iter().rev() {
        keep_first(within(folder, name, |folder, name| {
            match disk::remove_folder(folder, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            }
        }));
    }
    result
}

fn remove_one(folder: &OwnedFd, name: &str, expected: Option<&Seen>) -> io::Result<()> {
    within(folder, name, |folder, last| match disk::look(folder, last)? {
        None => Ok(()),
        Some(seen) if expected.is_none_or(|expected| *expected == seen) => disk::remove_file(folder, last),
        Some(_) => Err(io::Error::other(format!("{name} was changed meanwhile"))),
    })
}

/// Does something with the last part of a name, in the folder that it is in. No part of the way is a link.
pub(super) fn within<T>(
    folder: &OwnedFd,
    name: &str,
    act: impl FnOnce(&dyn AsFd, &OsStr) -> io::Result<T>,
) -> io::Result<T> {
    let Some((way, last)) = name.rsplit_once('/') else {
        return act(folder, name.as_ref());
    };
    let mut parts = way.split('/');
    let mut inner = disk::open_folder(folder, parts.next().unwrap_or_default())?;
    for part in parts {
        inner = disk::open_folder(&inner, part)?;
    }
    act(&inner, last.as_ref())
}
