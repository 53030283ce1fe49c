//! The switch by which the recorder turns recording on and off while the command runs.
//!
//! One small file in the recording's folder. The recorder writes it, each collector's own thread reads it now and then. It is
//! never mapped: whoever cuts a mapped file short ends every process that looks at it next, by SIGBUS. It is a file of one
//! host: each host's processes have the recorder of that host.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::access;
use crate::private_file::PrivateReader;

/// The file's name in the recording's folder.
pub const CONTROL_FILE: &str = "control";
/// Length of the file: a page.
const BYTES: usize = 4096;
/// The first word: says that this is such a file, of this version.
const MAGIC: u32 = 0x6774_7201;

/// The words that mean something: the magic number, and 1 to record. The rest of the page is 0, for what may come.
fn words(recording: bool) -> [u8; 8] {
    let mut words = [0; 8];
    words[..4].copy_from_slice(&MAGIC.to_le_bytes());
    words[4..].copy_from_slice(&u32::from(recording).to_le_bytes());
    words
}

/// The recorder's side.
pub struct Control {
    file: File,
}

impl Control {
    /// Makes the file at `path`, switched as told.
    ///
    /// # Errors
    /// When the file can't be made or written.
    pub fn create(path: &Path, recording: bool) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(access::file_mode())
            .open(path)?;
        let mut page = [0; BYTES];
        page[..8].copy_from_slice(&words(recording));
        file.write_all_at(&page, 0)?;
        Ok(Self { file })
    }

    /// Switches. A file that was cut or written over is right again after this.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn set(&self, recording: bool) -> io::Result<()> {
        self.file.write_all_at(&words(recording), 0)
    }
}

/// The collector's side, inside the program that is recorded.
pub struct ControlReader {
    file: PrivateReader,
    /// As it was read last.
    is_on: bool,
}

impl ControlReader {
    /// Of the file at `path`, which [`Self::read`] opens. Until then recording counts as switched on.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            file: PrivateReader::new(path.to_owned()),
            is_on: true,
        }
    }

    /// Reads the file: two system calls.
    ///
    /// # Errors
    /// When there is none or it is no such file (any more): then [`Self::is_on`] stays as it was.
    pub fn read(&mut self) -> io::Result<()> {
        let mut words = [0; 8];
        let read = self.file.read_at_start(&mut words)?;
        let word = |at: usize| u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
        if read < words.len() || word(0) != MAGIC {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it was cut or written over",
            ));
        }
        self.is_on = word(4) != 0;
        Ok(())
    }

    /// Whether to record, as it was read last.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on
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
        let mut collector = ControlReader::new(&path);
        let mut seen = || collector.read().map(|()| collector.is_on());
        assert!(!seen().expect("read"));
        recorder.set(true).expect("set");
        assert!(seen().expect("read"));
        // The recorder may take the file away while the collector still has it.
        std::fs::remove_file(&path).expect("removed");
        recorder.set(false).expect("set");
        assert!(!seen().expect("read"));
    }

    #[test]
    fn a_file_that_is_cut_changes_nothing_and_the_recorder_mends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(CONTROL_FILE);
        let recorder = Control::create(&path, true).expect("made");
        recorder.set(false).expect("set");
        let mut collector = ControlReader::new(&path);
        collector.read().expect("read");
        for length in [0, 3, 7] {
            let file = OpenOptions::new().write(true).open(&path).expect("opened");
            file.set_len(length).expect("cut");
            assert!(collector.read().is_err() && !collector.is_on(), "{length} bytes");
        }
        recorder.set(true).expect("set");
        collector.read().expect("whole again");
        assert!(collector.is_on());
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(CONTROL_FILE);
        let refused = |path: &Path| {
            let mut reader = ControlReader::new(path);
            reader.read().is_err() && reader.is_on()
        };
        assert!(refused(&path), "none");
        assert!(refused(folder.path()), "a folder");
        for bytes in [&[1u8; 10][..], &[0u8; BYTES]] {
            std::fs::write(&path, bytes).expect("written");
            assert!(refused(&path));
        }
        assert!(
            Control::create(&path, true).is_err(),
            "an existing file is not taken"
        );
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).expect("a name");
        // SAFETY: a zero-terminated path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(refused(&pipe), "a pipe, which is not waited for");
    }
}
