//! Bringing a recording onto the disk, so that it survives a power loss: now and then while it grows, and all of it at the
//! end.
//!
//! The recorder does this, not the programs that write: whoever asks, the kernel writes out a file's data, and nothing of a
//! program's ever waits for a disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use gputrace_trace::json_file::sync_folder;
use gputrace_trace::recording::process_folders;

/// How often what has grown is brought onto the disk.
const PERIOD: Duration = Duration::from_secs(10);

/// A file's length and when it was last written to.
type Version = (u64, Option<SystemTime>);

/// Keeps a recording that grows on the disk, on a thread of its own.
pub struct Durable {
    folder: PathBuf,
    stop: Arc<AtomicBool>,
    /// None where there could be no thread; the end does it all then.
    thread: Option<JoinHandle<Synced>>,
}

/// What is on the disk already.
#[derive(Default)]
struct Synced(BTreeMap<PathBuf, Version>);

impl Durable {
    /// Begins with the recording in `folder`.
    pub fn start(folder: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (path, is_over) = (folder.to_owned(), Arc::clone(&stop));
        let body = move || {
            let mut synced = Synced::default();
            loop {
                std::thread::park_timeout(PERIOD);
                if is_over.load(Ordering::Acquire) {
                    return synced;
                }
                // Whatever fails now is tried again, and told at the end.
                drop(synced.sync(&path));
            }
        };
        let thread = std::thread::Builder::new().name("disk".to_owned()).spawn(body);
        Self {
            folder: folder.to_owned(),
            stop,
            thread: thread.ok(),
        }
    }

    /// Brings the rest onto the disk, once nothing grows any more.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Release);
        let joined = self.thread.and_then(|thread| {
            thread.thread().unpark();
            thread.join().ok()
        });
        joined.unwrap_or_default().sync(&self.folder)?;
        match self.folder.parent().map(sync_folder) {
            // Somebody else's folder, in which ours may be and nothing be read.
            Some(Err(error)) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
            _ => Ok(()),
        }
    }
}

impl Synced {
    /// Brings onto the disk what has changed since the last time.
    fn sync(&mut self, recording: &Path) -> io::Result<()> {
        let mut changed = Vec::new();
        let mut folders = Vec::new();
        for folder in process_folders(recording)? {
            let before = changed.len();
            for entry in gone_is_nothing(fs::read_dir(&folder))?.into_iter().flatten() {
                let path = entry?.path();
                let Some(metadata) = gone_is_nothing(fs::symlink_metadata(&path))? else {
                    continue;
                };
                let version = (metadata.len(), metadata.modified().ok());
                if metadata.is_file()
                    && self.0.get(&path) != Some(&version)
                    && let Some(file) = gone_is_nothing(File::open(&path))?
                {
                    changed.push((path, version, file));
                }
            }
            if changed.len() > before {
                folders.push(folder);
            }
        }
        // The disk has something to do for all of them before the first is waited for.
        for (.., file) in &changed {
            begin_writing(file);
        }
        for (path, version, file) in changed {
            file.sync_data()?;
            self.0.insert(path, version);
        }
        for folder in folders.iter().map(PathBuf::as_path).chain([recording]) {
            gone_is_nothing(sync_folder(folder))?;
        }
        Ok(())
    }
}

/// Has the kernel begin to write out a file's data; whether it does shows when it is waited for.
fn begin_writing(file: &File) {
    // SAFETY: an open descriptor and plain numbers; 0 bytes are all of the file.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Files are renamed and, with `--max-size`, removed meanwhile.
fn gone_is_nothing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_changed_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = folder.path().join("rank0");
        fs::create_dir(&process).expect("made");
        let file = process.join("kernels.arrows");
        fs::write(&file, "rows").expect("written");
        let mut synced = Synced::default();
        synced.sync(folder.path()).expect("on the disk");
        assert_eq!(synced.0[&file].0, 4);
        // One that was removed meanwhile is no failure.
        fs::write(process.join("copies.arrows"), "rows").expect("written");
        fs::write(&file, "more rows").expect("written");
        fs::remove_file(process.join("copies.arrows")).expect("removed");
        Durable::start(folder.path()).finish().expect("on the disk");
        synced.sync(folder.path()).expect("on the disk");
        assert_eq!(synced.0[&file].0, 9);
    }
}
