//! Files of recordings, opened so that no link leads out of the folder that was named.
//!
//! Whoever writes into a folder chooses what its links lead to, and what is read of it is shown to others: by a server, in an
//! export, in an error's line. So each path that a user names is made a root by [`name`], and what lies beneath one is
//! opened by the kernel's own rule (`openat2` with `RESOLVE_BENEATH`), which holds while links are swapped. Links that stay
//! within a root, or lead into another one, are followed. What is neither a file nor a folder is refused without waiting for
//! it. A path that is named is followed wherever it leads, once, when it is named.
//!
//! Roots are the process's, not a reader's: a reader that is told only a path can't forget to ask.

mod stat;
mod system;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{PoisonError, RwLock};

pub use stat::{Kind, Refused, Stat};
use system::{Looked, Wanted};

/// Links that are followed one after another, as in the kernel.
const MOST_LINKS: usize = 40;

/// What was named, and where it is.
#[derive(Clone, Debug)]
struct Root {
    /// As it was named, and the same from the root of the file system: what is read of it begins with either.
    named: PathBuf,
    absolute: PathBuf,
    /// Without links. `None` for what has no place of its own, as a pipe that a shell made.
    real: Option<PathBuf>,
    /// A pipe or a device, which the user wants to be waited for.
    is_special: bool,
}

static ROOTS: RwLock<Vec<Root>> = RwLock::new(Vec::new());

/// One thing in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The folder's path with the name.
    pub path: PathBuf,
    /// What it is.
    pub stat: Stat,
}

/// Whether an error says that something is not to be opened, and why; else it could not be.
#[must_use]
pub fn refused(error: &io::Error) -> Option<Refused> {
    error.get_ref()?.downcast_ref().copied()
}

/// Makes a path that a user named a root.
pub fn name(path: &Path) {
    let Some(root) = Root::of(path) else { return };
    let mut roots = ROOTS.write().unwrap_or_else(PoisonError::into_inner);
    if !roots.iter().any(|root| root.named == path) {
        roots.push(root);
    }
}

/// Makes a path a root where it does not lie beneath one: for readers, which are given both what users named and what was
/// found in it.
pub fn name_if_none(path: &Path) {
    if find(path).is_none() {
        name(path);
    }
}

/// The innermost root of which `rest` has something left, and that.
fn innermost<'a>(rest: impl Fn(&'a Root) -> Option<&'a Path>, roots: &'a [Root]) -> Option<(Root, PathBuf)> {
    let beneath = roots.iter().filter_map(|root| Some((root, rest(root)?)));
    let innermost = beneath.min_by_key(|(_, rest)| rest.components().count());
    innermost.map(|(root, rest)| (root.clone(), rest.to_owned()))
}

/// The root that a path lies beneath, and the rest of the path.
fn find(path: &Path) -> Option<(Root, PathBuf)> {
    let roots = ROOTS.read().unwrap_or_else(PoisonError::into_inner);
    let rest = |root: &Root| {
        let rest = path.strip_prefix(&root.named);
        rest.or_else(|_| path.strip_prefix(&root.absolute)).ok()
    };
    innermost(rest, &roots)
}

/// The same of a path that a link leads to.
fn find_real(path: &Path) -> Option<(Root, PathBuf)> {
    let roots = ROOTS.read().unwrap_or_else(PoisonError::into_inner);
    let rest = |root: &Root| {
        let rest = path.strip_prefix(root.real.as_ref()?);
        rest.or_else(|_| path.strip_prefix(&root.absolute)).ok()
    };
    innermost(rest, &roots)
}

impl Root {
    fn of(path: &Path) -> Option<Self> {
        let found = path.metadata().ok()?;
        Some(Self {
            named: path.to_owned(),
            absolute: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            real: path.canonicalize().ok(),
            is_special: !found.is_dir() && !found.is_file(),
        })
    }

    /// Opens what lies at `rest` beneath it.
    fn open(&self, rest: &Path, wanted: Wanted) -> io::Result<OwnedFd> {
        let Some(real) = self.real.as_ref().filter(|_| !self.is_special) else {
            // Nothing lies beneath it.
            let is_itself = rest.as_os_str().is_empty();
            let path = is_itself.then_some(&self.named).ok_or(Refused::Special)?;
            return system::open_plainly(path, wanted);
        };
        if rest.as_os_str().is_empty() {
            return system::open_without_links(real, wanted);
        }
        let folder = system::open_without_links(real, Wanted::Place)?;
        match system::open_beneath(folder.as_fd(), rest, wanted) {
            Some(opened) => opened,
            None => self.walk(rest, wanted),
        }
    }

    /// The same, one name after another: for kernels without the rule, and for links that lead into another root, or are
    /// absolute and stay here, which the rule refuses.
    fn walk(&self, rest: &Path, wanted: Wanted) -> io::Result<OwnedFd> {
        let mut root = self.clone();
        let mut ahead = plain_names(rest).ok_or(Refused::LeadsOut)?;
        for _ in 0..=MOST_LINKS {
            let real = root.real.clone().ok_or(Refused::LeadsOut)?;
            let (target, behind, at) = match walk_without_links(&real, &ahead, wanted)? {
                Step::Opened(opened) => return Ok(opened),
                Step::Link { target, behind, at } => (target, behind, at),
            };
            // What came before the link has no links in it, so that `..` means what it says.
            let path = normal(&at.join(target).join(behind)).ok_or(Refused::LeadsOut)?;
            let (next, rest) = find_real(&path).ok_or(Refused::LeadsOut)?;
            root = next;
            ahead = plain_names(&rest).ok_or(Refused::LeadsOut)?;
        }
        Err(io::Error::from_raw_os_error(libc::ELOOP))
    }
}

enum Step {
    Opened(OwnedFd),
    Link {
        target: PathBuf,
        /// What comes behind the link in the path.
        behind: PathBuf,
        /// The folder that the link lies in.
        at: PathBuf,
    },
}

/// Goes down from `real`, which has no links in it, until the end or the first link.
fn walk_without_links(real: &Path, names: &[OsString], wanted: Wanted) -> io::Result<Step> {
    let Some((last, folders)) = names.split_last() else {
        return system::open_without_links(real, wanted).map(Step::Opened);
    };
    let mut folder = system::open_without_links(real, Wanted::Place)?;
    let mut at = real.to_owned();
    for (place, name) in names.iter().enumerate() {
        if system::look(folder.as_fd(), name)?.is_link {
            return Ok(Step::Link {
                target: system::target(folder.as_fd(), name)?,
                behind: names[place + 1..].iter().collect(),
                at,
            });
        }
        if place < folders.len() {
            folder = system::open_name(folder.as_fd(), name, Wanted::Place)?;
            at.push(name);
        }
    }
    system::open_name(folder.as_fd(), last, wanted).map(Step::Opened)
}

/// The names of a relative path that goes down alone.
fn plain_names(path: &Path) -> Option<Vec<OsString>> {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        })
        .collect()
}

/// An absolute path with its `..` worked out.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal.is_absolute().then_some(normal)
}

fn open_as(path: &Path, wanted: Wanted) -> io::Result<OwnedFd> {
    match find(path) {
        Some((root, rest)) => root.open(&rest, wanted),
        None => system::open_plainly(path, wanted),
    }
}

/// Opens a file to be read.
///
/// # Errors
/// When it can't be, or is [`refused`].
pub fn open(path: &Path) -> io::Result<File> {
    if find(path).is_some_and(|(root, rest)| root.is_special && rest.as_os_str().is_empty()) {
        return system::open_special(path);
    }
    let opened = open_as(path, Wanted::Bytes)?;
    if system::look_at(opened.as_fd())?.kind() == Kind::File {
        system::wait_again(opened.as_fd());
        Ok(File::from(opened))
    } else {
        Err(Refused::Special.into())
    }
}

/// All bytes of a file.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What lies at a path, links followed as [`open`] does.
///
/// # Errors
/// When nothing does, or it is [`refused`].
pub fn stat(path: &Path) -> io::Result<Stat> {
    system::look_at(open_as(path, Wanted::Place)?.as_fd()).map(Looked::stat)
}

/// Whether a path is a regular file.
#[must_use]
pub fn is_file(path: &Path) -> bool {
    stat(path).is_ok_and(|found| found.kind == Kind::File)
}

/// Whether a path is a folder.
#[must_use]
pub fn is_folder(path: &Path) -> bool {
    stat(path).is_ok_and(|found| found.kind == Kind::Folder)
}

/// Whether there is anything at a path that may be looked at.
#[must_use]
pub fn exists(path: &Path) -> bool {
    stat(path).is_ok()
}

/// The bytes of a file; none of what is not there.
#[must_use]
pub fn bytes(path: &Path) -> u64 {
    stat(path).map_or(0, |found| found.bytes)
}

/// What lies in a folder, in no order.
///
/// # Errors
/// When it can't be read, or is [`refused`].
pub fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let opened = open_as(folder, Wanted::Names)?;
    let mut entries = Vec::new();
    system::each_name(opened, |name, looked| {
        let path = folder.join(name);
        let stat = if looked.is_link {
            stat(&path).unwrap_or_else(|error| Stat {
                kind: match refused(&error) {
                    Some(Refused::LeadsOut) => Kind::LeadsOut,
                    _ => Kind::Broken,
                },
                bytes: 0,
                modified_ms: 0,
            })
        } else {
            looked.stat()
        };
        entries.push(Entry { path, stat });
    })?;
    Ok(entries)
}

#[cfg(test)]
mod tests;
