//! The recorder's switch, read from its file by our own thread.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputrace_trace::control::ControlReader;

/// How often the file is read at most: a few system calls each time.
const PERIOD: Duration = Duration::from_millis(15);

/// The switch as this process sees it.
pub(super) struct Switch {
    path: PathBuf,
    /// `None` where there is no recorder, or none that could be heard at the beginning: everything is recorded.
    reader: Option<ControlReader>,
    read: Instant,
    /// Whether the last reading failed.
    is_broken: bool,
    /// What is to be told.
    notes: Vec<String>,
}

impl Switch {
    /// Of the file at `path`, if there is a recorder.
    pub(super) fn new(path: Option<&Path>) -> Self {
        let mut switch = Self {
            path: path.map(Path::to_owned).unwrap_or_default(),
            reader: path.map(ControlReader::new),
            read: Instant::now(),
            is_broken: false,
            notes: Vec::new(),
        };
        if let Some(Err(error)) = switch.reader.as_mut().map(ControlReader::read) {
            switch.reader = None;
            switch.notes.push(format!(
                "{}: {error}: this process records without regard to --delay, --duration and SIGUSR1",
                switch.path.display()
            ));
        }
        switch
    }

    /// Reads the file, if that is due.
    pub(super) fn look(&mut self) {
        if self.read.elapsed() >= PERIOD {
            self.read_again();
        }
    }

    fn read_again(&mut self) {
        let Some(reader) = &mut self.reader else { return };
        self.read = Instant::now();
        match reader.read() {
            Ok(()) => self.is_broken = false,
            // The recorder takes it away when it is done, and nobody switches any more.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                if !self.is_broken {
                    let state = if reader.is_on() { "on" } else { "off" };
                    self.notes.push(format!(
                        "{}: {error}: recording stays switched {state} here until the recorder switches again",
                        self.path.display()
                    ));
                }
                self.is_broken = true;
            }
        }
    }

    /// Whether the recorder wants anything to be recorded now.
    pub(super) fn is_on(&self) -> bool {
        self.reader.as_ref().is_none_or(ControlReader::is_on)
    }

    /// What is to be told since the last call.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::control::Control;

    use super::*;

    #[test]
    fn without_a_file_everything_is_recorded_and_that_is_told() {
        let mut none = Switch::new(None);
        none.read_again();
        assert!(none.is_on() && none.take_notes().is_empty());
        let mut missing = Switch::new(Some(Path::new("/nowhere/control")));
        missing.read_again();
        assert!(missing.is_on() && missing.take_notes()[0].contains("/nowhere/control"));
    }

    #[test]
    fn a_file_that_is_cut_is_told_once_and_heard_again_when_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let recorder = Control::create(&path, false).expect("made");
        let mut switch = Switch::new(Some(&path));
        assert!(!switch.is_on());
        std::fs::write(&path, "").expect("cut");
        switch.read_again();
        switch.read_again();
        let notes = switch.take_notes();
        assert!(!switch.is_on() && notes.len() == 1 && notes[0].contains("stays switched off"));
        recorder.set(true).expect("set");
        switch.read_again();
        assert!(switch.is_on() && switch.take_notes().is_empty());
    }
}
