//! The recordings that were kept, who may see them, and which go first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::jobs::saved::Shelf;
use crate::settings::Keep;

/// A recording that was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capture {
    /// Its name.
    pub recording: String,
    /// The job that it is of.
    pub job: String,
    /// Whose it is.
    pub uid: u32,
    /// That user's name.
    pub user: String,
    /// What made it: a rule's word, "capture" or "snapshot".
    pub trigger: String,
    /// What was found, as a sentence.
    pub title: String,
    /// When, nanoseconds since 1970.
    pub time_ns: i64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Whether it stays whatever the rules say.
    pub pinned: bool,
}

/// All of them.
pub struct Library {
    folder: PathBuf,
    shelf: Shelf,
    captures: BTreeMap<String, Capture>,
    /// Names that something else has in the folder: what is being removed, and what others put there.
    pub taken: BTreeSet<String>,
    /// How many were removed by rule, and their bytes.
    pub removed: (u64, u64),
}

impl Library {
    /// Those in a folder; `shelf` has what is known of them. Gives what could not be read too.
    #[must_use]
    pub fn open(folder: PathBuf, shelf: Shelf) -> (Self, Vec<String>) {
        let (found, wrong) = shelf.all::<Capture>();
        let is_there = |name: &str| folder.join(name).is_dir();
        let captures: BTreeMap<String, Capture> = found
            .into_iter()
            .filter(|(name, capture)| *name == capture.recording && is_there(name))
            .collect();
        let taken = names_in(&folder)
            .filter(|name| !captures.contains_key(name))
            .collect();
        let library = Self {
            folder,
            shelf,
            captures,
            taken,
            removed: (0, 0),
        };
        (library, wrong)
    }

    /// Where one is, or will be.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A name that none has: this one, or with a number behind it.
    #[must_use]
    pub fn free_name(&self, name: &str) -> String {
        let is_free = |name: &str| !self.captures.contains_key(name) && !self.taken.contains(name);
        let numbered = (2u32..).map(|number| format!("{name}-{number}"));
        std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| is_free(name))
            .unwrap_or_default()
    }

    /// Whether there is one of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.captures.contains_key(name)
    }

    /// The file that tells of one.
    #[must_use]
    pub fn about(&self, name: &str) -> PathBuf {
        self.shelf.path(name)
    }

    /// Takes one in, or what has changed of it.
    pub fn put(&mut self, capture: Capture) {
        self.captures.insert(capture.recording.clone(), capture);
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Capture> {
        self.captures.get(name)
    }

    /// All of them, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<&Capture> {
        let mut all: Vec<&Capture> = self.captures.values().collect();
        all.sort_by_key(|capture| (capture.time_ns, &capture.recording));
        all
    }

    /// Takes those out that the rules don't keep, and gives the names of what is to be removed. `free`: bytes that the disk has.
    pub fn retire(&mut self, keep: &Keep, now_ns: i64, free: Option<u64>) -> Vec<String> {
        let day_ns = 86_400.0 * 1e9;
        let mut total: u64 = self.captures.values().map(|capture| capture.bytes).sum();
        let mut by_user: BTreeMap<u32, u64> = BTreeMap::new();
        for capture in self.captures.values() {
            *by_user.entry(capture.uid).or_default() += capture.bytes;
        }
        let mut free = free.unwrap_or(u64::MAX);
        let mut gone = Vec::new();
        for capture in self.list() {
            let of_user = by_user.entry(capture.uid).or_default();
            let age_ns = now_ns.saturating_sub(capture.time_ns) as f64;
            let is_too_much = age_ns > keep.days * day_ns
                || total > keep.mib << 20
                || *of_user > keep.mib_of_user << 20
                || free < keep.free_mib << 20;
            if is_too_much && !capture.pinned {
                total -= capture.bytes;
                *of_user -= capture.bytes;
                free = free.saturating_add(capture.bytes);
                gone.push(capture.recording.clone());
            }
        }
        for name in &gone {
            if let Some(capture) = self.captures.remove(name) {
                self.removed.0 += 1;
                self.removed.1 += capture.bytes;
            }
        }
        self.taken.extend(gone.iter().cloned());
        gone
    }
}

/// The names of what is in a folder.
pub fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::saved;

    #[test]
    fn the_oldest_go_and_pinned_ones_stay() {
        let place = tempfile::tempdir().expect("a folder");
        let shelf = Shelf::in_folder(place.path().join("about")).expect("a shelf");
        let (mut library, _) = Library::open(place.path().join("captures"), shelf.clone());
        let day_ns = 86_400_000_000_000;
        for (number, (uid, pinned)) in [(1, true), (1, false), (2, false), (1, false), (2, false)]
            .into_iter()
            .enumerate()
        {
            let capture = Capture {
                recording: format!("c{number}"),
                uid,
                pinned,
                time_ns: number as i64 * day_ns,
                bytes: 100 << 20,
                ..Capture::default()
            };
            std::fs::create_dir_all(library.path(&capture.recording)).expect("made");
            let about = library.about(&capture.recording);
            saved::write(&about, &saved::text(&capture).expect("text")).expect("noted");
            library.put(capture);
        }
        let keep = Keep {
            days: 3.5,
            mib: 10_000,
            mib_of_user: 10_000,
            free_mib: 0,
            ..Keep::default()
        };
        let names = |library: &Library| -> Vec<String> {
            library
                .list()
                .iter()
                .map(|capture| capture.recording.clone())
                .collect()
        };
        // The second is older than three and a half days on the fifth; so is the pinned first.
        assert_eq!(library.retire(&keep, 5 * day_ns, None).len(), 1);
        assert_eq!(names(&library), ["c0", "c2", "c3", "c4"]);
        let of_user = Keep {
            mib_of_user: 150,
            ..keep
        };
        library.retire(&of_user, 5 * day_ns, None);
        // Of each user one is too much.
        assert_eq!(names(&library), ["c0", "c4"]);
        let room = Keep { free_mib: 50, ..keep };
        library.retire(&room, 5 * day_ns, Some(10 << 20));
        assert_eq!(names(&library), ["c0"]);
        assert_eq!(library.removed, (4, 400 << 20));
        assert!(library.taken.contains("c1") && library.free_name("c1") == "c1-2");
        for name in ["c1", "c2", "c3", "c4"] {
            std::fs::remove_file(library.about(name)).expect("noted");
        }
        let (again, wrong) = Library::open(place.path().join("captures"), shelf);
        assert_eq!((names(&again), wrong.len()), (vec!["c0".to_owned()], 0));
    }
}
