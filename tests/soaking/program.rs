//! Whole programs with a bound on their time, and what must hold of how they end.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a program ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stderr: String,
}

/// Waits for a program; `None` when it takes longer than that.
pub fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("its status") {
            return Some(status);
        }
        if begun.elapsed() > patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a program to its end, with what it says in files of `folder`.
///
/// # Panics
/// When it takes longer than that; it is killed then.
pub fn run(command: &mut Command, folder: &Path, patience: Duration) -> Ended {
    let file = |name: &str| File::create(folder.join(name)).expect("a file");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file("said on stdout"))
        .stderr(file("said on stderr"))
        .spawn()
        .expect("it starts");
    let Some(status) = wait(&mut child, patience) else {
        drop(child.kill());
        drop(child.wait());
        panic!("hangs: {command:?} has not ended in {patience:?}");
    };
    let said = |name: &str| {
        let bytes = std::fs::read(folder.join(name)).expect("what it said");
        std::fs::remove_file(folder.join(name)).expect("removed");
        bytes
    };
    // What it printed is for people; it must be there, and go.
    said("said on stdout");
    Ended {
        status,
        stderr: String::from_utf8_lossy(&said("said on stderr")).into_owned(),
    }
}

impl Ended {
    /// Done, or refused in one line: nothing else is an end.
    #[track_caller]
    pub fn check(&self) -> &Self {
        assert!(!self.stderr.contains("panicked"), "panicked: {}", self.stderr);
        match self.status.code() {
            Some(0) => {}
            Some(2) => assert_eq!(self.stderr.lines().count(), 1, "not one line: {}", self.stderr),
            code => panic!(
                "ended with {code:?}, signal {:?}: {}",
                self.status.signal(),
                self.stderr
            ),
        }
        self
    }

    /// Refused in one line.
    #[track_caller]
    pub fn refused(&self) -> &str {
        self.check();
        assert_eq!(self.status.code(), Some(2), "not refused: {}", self.stderr);
        &self.stderr
    }
}
