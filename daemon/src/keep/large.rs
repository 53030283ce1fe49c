//! What takes the disk long: the ring's old segments go, windows are linked, old captures go.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gputrace_trace::json_file::json_text;
use gputrace_trace::manifest::{LossEntry, MANIFEST_FILE, Manifest};
use gputrace_trace::place::{Target, remove_recording};
use gputrace_trace::recording::process_folders;
use gputrace_trace::segments::{Part, Removed, parts};

use super::task::{Done, Task, Wanted};

/// A process that holds open more than so many times its ring is cut off.
const TOO_MUCH: u64 = 4;
/// What names of recordings begin with that are being removed.
const REMOVED: &str = ".removed-";
/// Rows reach the disk up to so much later than they are asked to, and files' times are coarser than ours.
const SLACK: Duration = Duration::from_secs(2);

/// Does it. Tasks that are not for this thread come to nothing.
pub(super) fn work(task: Task) -> Option<Done> {
    match task {
        Task::Trim {
            job,
            folder,
            age,
            bytes,
            keep_from_ns,
            gone,
        } => {
            let keep_from = keep_from_ns.map(time);
            Some(Done::Trimmed {
                job,
                result: trim(&folder, age, bytes, keep_from, &gone)
                    .map_err(|error| format!("{}: {error}", folder.display())),
            })
        }
        Task::Keep {
            window,
            folder,
            into,
            wanted,
            live,
            ring_bytes,
            manifest,
        } => Some(Done::Kept {
            window,
            result: keep(&folder, &into, &wanted, (&live, ring_bytes), &manifest)
                .map_err(|error| format!("{}: {error}", into.display())),
        }),
        Task::Remove { folder, saved } => {
            if let Some(saved) = saved {
                drop(fs::remove_file(saved));
            }
            let result = match remove(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(format!("{}: {error}", folder.display()))
                }
                _ => Ok(()),
            };
            Some(Done::Removed { folder, result })
        }
        Task::Room { folder } => Some(Done::Room(match rustix::fs::statvfs(&folder) {
            Ok(room) => Ok(room.f_bavail.saturating_mul(room.f_frsize)),
            Err(error) => Err(format!("{}: {error}", folder.display())),
        })),
        Task::List { caller, name, folder } => Some(Done::Listed {
            caller,
            result: list(&folder).map_err(|error| format!("{name}: {error}")),
        }),
        Task::Read { caller, files } => {
            let read = |(path, from): (String, PathBuf)| {
                let opened = fs::File::open(from).map_err(|error| error.to_string());
                (path, opened.map(Into::into))
            };
            Some(Done::Read {
                caller,
                files: files.into_iter().map(read).collect(),
            })
        }
        _ => None,
    }
}

/// The files of a recording: what they are called in it, and where they are.
fn list(root: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut folders = vec![root.to_owned()];
    folders.extend(process_folders(root)?);
    let mut files = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if let Ok(within) = path.strip_prefix(root)
                && path.is_file()
            {
                files.push((within.to_string_lossy().into_owned(), path));
            }
        }
    }
    // The manifest last: what has it is whole.
    files.sort_by_key(|(name, _)| (!name.contains('/'), name.clone()));
    Ok(files)
}

/// Removes a recording of ours, and nothing that others put there. It gets a hidden name first: where the daemon ends in the middle,
/// the next one finds by it what is to go ([`remove_unfinished`]).
fn remove(folder: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let aside = parent.join(format!("{REMOVED}{}", name.to_string_lossy()));
    fs::rename(folder, &aside)?;
    remove_recording(&aside).inspect_err(|_| drop(fs::rename(&aside, folder)))
}

/// Removes what a daemon before was removing when it ended.
pub fn remove_unfinished(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(REMOVED) {
            drop(remove_recording(&entry.path()));
        }
    }
}

fn time(ns: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

/// Removes the complete segments that are too old, and of each process the oldest ones that are too much.
fn trim(
    folder: &Path,
    age: Duration,
    most_bytes: u64,
    keep_from: Option<SystemTime>,
    gone: &(BTreeSet<String>, Duration),
) -> io::Result<(Removed, Vec<String>)> {
    let mut parts = parts(folder, |_| true)?;
    parts.sort_by(|a, b| (&a.process, a.number).cmp(&(&b.process, b.number)));
    let now = SystemTime::now();
    let mut removed = Removed::default();
    let mut too_much = Vec::new();
    for of_one in parts.chunk_by(|a, b| a.process == b.process) {
        let mut bytes: u64 = of_one.iter().map(|part| part.bytes).sum();
        let is_gone = gone.0.contains(&of_one[0].process);
        let age = if is_gone { gone.1 } else { age };
        for part in of_one {
            let is_old = now.duration_since(part.written).is_ok_and(|since| since > age);
            let is_held = keep_from.is_some_and(|from| is_written_since(part, from));
            let is_complete = part.complete || is_gone && is_old;
            let may_go = is_complete && !is_held && (is_old || bytes > most_bytes);
            if may_go && removed.remove(part) {
                bytes -= part.bytes;
            }
            if !part.complete && part.bytes > most_bytes.saturating_mul(TOO_MUCH) {
                removed.empty(part);
                too_much.push(part.process.clone());
            }
        }
    }
    Ok((removed, too_much))
}

/// Whether something may have been written into a part since then; a file's time that is beyond all reckoning is later.
fn is_written_since(part: &Part, from: SystemTime) -> bool {
    part.written.checked_add(SLACK).is_none_or(|until| until >= from)
}

/// Links the wanted segments into a recording of their own. What is still written is copied, as far as it is now: the ring may cut it
/// off later. A process can write whatever it likes into its files, a hole of any size too: one that holds open far more than its ring
/// is left out.
fn keep(
    folder: &Path,
    into: &Path,
    wanted: &[(String, Wanted)],
    (live, ring_bytes): (&BTreeSet<String>, u64),
    manifest: &Manifest,
) -> io::Result<(usize, u64)> {
    let is_open = |part: &Part| !part.complete && live.contains(&part.process);
    let is_wanted = |part: &Part| {
        let of = wanted.iter().find(|(process, _)| *process == part.process);
        of.is_some_and(|(_, wanted)| match wanted {
            Wanted::Since(since_ns, last) => {
                last.is_none_or(|last| part.number <= last)
                    && (is_open(part) || is_written_since(part, time(*since_ns)))
            }
            Wanted::Numbers(first, last) => {
                part.number >= *first && last.is_none_or(|last| part.number <= last)
            }
        })
    };
    let is_too_much = |part: &Part| is_open(part) && part.bytes > ring_bytes.saturating_mul(TOO_MUCH);
    let wanted = parts(folder, |_| true)?.into_iter().filter(is_wanted);
    let (left_out, parts): (Vec<Part>, Vec<Part>) = wanted.partition(is_too_much);
    if parts.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "nothing was recorded in that time",
        ));
    }
    let processes: BTreeSet<&str> = parts.iter().map(|part| part.process.as_str()).collect();
    let mut manifest = manifest.clone();
    manifest.losses.extend(left_out.iter().map(|part| LossEntry {
        what: format!(
            "what {} was still writing: {} bytes, more than {TOO_MUCH} times its ring",
            part.process, part.bytes
        ),
        count: None,
        affects: "its rows".to_owned(),
    }));
    Target::new(into).write_recording(|kept| {
        for part in &parts {
            let name = part
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            for file in fs::read_dir(&part.path)? {
                let file = file?;
                let of = file.file_name().to_string_lossy().into_owned();
                if !file.file_type()?.is_file() || of.ends_with(".part") {
                    continue;
                }
                let (to, from) = (format!("{name}/{of}"), file.path());
                if is_open(part) {
                    kept.file(&to, |mut to| {
                        let from = fs::File::open(&from)?;
                        // It may grow as fast as it is copied.
                        let length = from.metadata()?.len().min(part.bytes);
                        io::copy(&mut from.take(length), &mut to).map(drop)
                    })?;
                } else {
                    kept.link_or_copy(&to, &from)?;
                }
            }
        }
        let text = json_text(MANIFEST_FILE, &manifest)?;
        kept.file(MANIFEST_FILE, |mut file| file.write_all(&text))
    })?;
    Ok((processes.len(), parts.iter().map(|part| part.bytes).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(folder: &Path, name: &str, bytes: usize, age_s: u64) {
        let part = folder.join(name);
        fs::create_dir(&part).expect("made");
        let path = part.join("kernels.arrows");
        fs::write(&path, vec![0; bytes]).expect("written");
        let file = fs::File::options().write(true).open(&path).expect("opened");
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s))
            .expect("dated");
    }

    fn left(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("read")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_left_the_ring_goes_and_what_is_written_stays() {
        let place = tempfile::tempdir().expect("a folder");
        for (name, bytes, age_s) in [
            ("p", 100, 90),
            ("p.1", 100, 50),
            ("p.2", 100, 20),
            ("q", 100, 500),
            ("r", 600, 30),
            ("r.1", 600, 20),
            ("r.2", 600, 10),
        ] {
            segment(place.path(), name, bytes, age_s);
        }
        let none = (BTreeSet::new(), Duration::ZERO);
        let age = Duration::from_secs(60);
        let (removed, too_much) = trim(place.path(), age, 1300, None, &none).expect("trimmed");
        assert_eq!(left(place.path()), ["p.1", "p.2", "q", "r.1", "r.2"]);
        assert_eq!(removed.parts, 2);
        assert!(too_much.is_empty());
        // Held for a capture.
        let from = SystemTime::now() - Duration::from_secs(40);
        let second = Duration::from_secs(1);
        let (removed, ..) = trim(place.path(), second, 200, Some(from), &none).expect("trimmed");
        assert_eq!(left(place.path()), ["p.2", "q", "r.1", "r.2"]);
        assert_eq!(removed.parts, 1);
        // One that never cuts and writes and writes.
        segment(place.path(), "s", 5000, 0);
        fs::write(place.path().join("s/process.json"), "{}").expect("written");
        let (emptied, too_much) = trim(place.path(), age, 1000, None, &none).expect("trimmed");
        assert_eq!(emptied.parts, 2, "r.1 is too much, s was emptied");
        assert!(
            place
                .path()
                .join("s/process.json")
                .metadata()
                .expect("there")
                .len()
                == 2
        );
        // Of one that has gone all goes, once it is old enough.
        let gone = (
            BTreeSet::from(["q".to_owned(), "r".to_owned()]),
            Duration::from_secs(300),
        );
        let (removed, ..) = trim(place.path(), second, 1000, None, &gone).expect("trimmed");
        assert_eq!(
            (removed.parts, left(place.path())),
            (1, vec!["p.2".into(), "r.2".into(), "s".into()])
        );
        assert_eq!(too_much, ["s"]);
        let emptied = fs::metadata(place.path().join("s/kernels.arrows")).expect("there");
        assert_eq!(emptied.len(), 0);
    }

    #[test]
    fn what_is_kept_is_linked() {
        use std::os::unix::fs::MetadataExt;
        let place = tempfile::tempdir().expect("a folder");
        let (job, into) = (place.path().join("job"), place.path().join("kept"));
        fs::create_dir(&job).expect("made");
        for (name, age_s) in [("p", 90), ("p.1", 30), ("p.2", 5), ("q", 500), ("old", 500)] {
            segment(&job, name, 10, age_s);
        }
        let since = (SystemTime::now() - Duration::from_secs(40))
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        let since = Wanted::Since(since.as_nanos() as i64, None);
        let wanted: Vec<(String, Wanted)> = ["p", "q", "old"]
            .map(|name| (name.to_owned(), since.clone()))
            .into();
        let live = BTreeSet::from(["p".to_owned(), "q".to_owned()]);
        let (processes, _) = keep(&job, &into, &wanted, (&live, 1 << 20), &Manifest::new()).expect("kept");
        assert_eq!(processes, 2);
        assert_eq!(left(&into), [MANIFEST_FILE, "p.1", "p.2", "q"]);
        let file = "p.1/kernels.arrows";
        let inode = |path: PathBuf| fs::metadata(path).expect("there").ino();
        assert_eq!(inode(job.join(file)), inode(into.join(file)));
        // What is still written is a copy.
        let file = "p.2/kernels.arrows";
        assert_ne!(inode(job.join(file)), inode(into.join(file)));
        let numbers = vec![("p".to_owned(), Wanted::Numbers(1, Some(1)))];
        let second = place.path().join("second");
        keep(&job, &second, &numbers, (&live, 1 << 20), &Manifest::new()).expect("kept");
        assert_eq!(left(&second), [MANIFEST_FILE, "p.1"]);
        let none = vec![("old".to_owned(), since)];
        let error = keep(
            &job,
            &place.path().join("none"),
            &none,
            (&live, 1 << 20),
            &Manifest::new(),
        );
        assert!(
            error
                .expect_err("nothing")
                .to_string()
                .contains("nothing was recorded")
        );
        assert_eq!(left(place.path()), ["job", "kept", "second"]);
    }
}
