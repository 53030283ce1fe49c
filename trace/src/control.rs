//! The switch by which the recorder turns recording on and off while the command runs.
//!
//! One small file in the recording's folder, mapped by both sides: the collector reads one word of it in its callbacks,
//! which costs a load. It is shared memory of one host: each host's processes have the recorder of that host.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The file's name in the recording's folder.
pub const CONTROL_FILE: &str = "control";
/// Length of the file: a page.
const BYTES: usize = 4096;
/// The first word: says that this is such a file, of this version.
const MAGIC: u32 = 0x6774_7201;

/// The file's words; the rest of the page is 0, for what may come.
#[repr(C)]
struct Words {
    magic: AtomicU32,
    /// 1: record.
    switch: AtomicU32,
}

/// The mapped file.
pub struct Control {
    words: NonNull<Words>,
}

// SAFETY: the mapping stays until the value is dropped, and is only reached through atomics.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Control {
    /// Makes the file at `path`, switched as told: the recorder's side.
    ///
    /// # Errors
    /// When the file can't be made or mapped.
    pub fn create(path: &Path, recording: bool) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        // Blocks that were never written would be a SIGBUS on a full disk; zeros are written, so that they are there.
        io::Write::write_all(&mut &file, &[0; BYTES])?;
        let control = Self::map(&file, libc::PROT_READ | libc::PROT_WRITE)?;
        control.set(recording);
        control.words().magic.store(MAGIC, Ordering::Release);
        Ok(control)
    }

    /// Opens the file at `path`: the collector's side.
    ///
    /// # Errors
    /// When there is none, it is no such file, or it can't be mapped.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() < BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let control = Self::map(&file, libc::PROT_READ)?;
        if control.words().magic.load(Ordering::Acquire) != MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(control)
    }

    fn map(file: &File, protection: i32) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing; its length is the file's.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(address.cast())
            .map(|words| Self { words })
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn words(&self) -> &Words {
        // SAFETY: mapped until the value is dropped; a page is aligned for them, and all bit patterns are values.
        unsafe { self.words.as_ref() }
    }

    /// Whether to record now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.words().switch.load(Ordering::Relaxed) != 0
    }

    /// Switches; only for the side that made the file: the other one's mapping cannot be written.
    pub fn set(&self, recording: bool) {
        self.words().switch.store(u32::from(recording), Ordering::Relaxed);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, which nothing refers to any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_sees_what_the_other_sets() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(CONTROL_FILE);
        let recorder = Control::create(&path, false).expect("made");
        let collector = Control::open(&path).expect("opened");
        assert!(!collector.is_on());
        recorder.set(true);
        assert!(collector.is_on());
        // The recorder may take the file away while the collector still has it.
        std::fs::remove_file(&path).expect("removed");
        recorder.set(false);
        assert!(!collector.is_on());
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(CONTROL_FILE);
        assert!(Control::open(&path).is_err());
        for bytes in [&[1u8; 10][..], &[0u8; BYTES]] {
            std::fs::write(&path, bytes).expect("written");
            assert!(Control::open(&path).is_err());
        }
        assert!(
            Control::create(&path, true).is_err(),
            "an existing file is not taken"
        );
    }
}
