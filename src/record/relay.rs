//! A bundled workload's output on its way to the terminal, so that its lines and the live line do not mix.
//!
//! A user's own command keeps the terminal: it may look at it, and its output must not end with us.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use super::progress::{LiveLine, ProgressLine};

/// Lets the command write into pipes, for [`Relay::start`].
pub fn pipe(command: &mut Command) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
}

/// The threads that pass the output on.
pub struct Relay {
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Passes on what the command writes into pipes, if it does.
    pub fn start(child: &mut Child, progress: &ProgressLine) -> Self {
        let mut threads = Vec::new();
        if let Some(output) = child.stdout.take() {
            let line = progress.live_line();
            threads.push(std::thread::spawn(move || {
                pass_on(output, &line, &mut io::stdout());
            }));
        }
        if let Some(output) = child.stderr.take() {
            let line = progress.live_line();
            threads.push(std::thread::spawn(move || {
                pass_on(output, &line, &mut io::stderr());
            }));
        }
        Self { threads }
    }

    /// Waits for the last of it.
    pub fn finish(self) {
        for thread in self.threads {
            // One that panicked has no more to pass on.
            drop(thread.join());
        }
    }
}

/// Passes whole lines on; what is no text is passed on as it is.
fn pass_on(from: impl Read, line: &LiveLine, to: &mut impl Write) {
    let mut from = BufReader::new(from);
    let mut text = Vec::new();
    while from.read_until(b'\n', &mut text).is_ok_and(|bytes| bytes > 0) {
        // A terminal that is gone takes nothing more, which is no reason to stop the command by a full pipe.
        line.suspend(|| drop(to.write_all(&text).and_then(|()| to.flush())));
        text.clear();
    }
}
