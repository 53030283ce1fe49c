//! Asking the daemon.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Answer, Ask, Connection, Hello, SYSTEM_SOCKET, sockets};
use gputrace_trace::place::Target;
use serde_json::Value;

use crate::cli::SocketArgs;
use crate::failure::Failure;

/// A daemon that lives answers that fast.
const PATIENCE: Duration = Duration::from_secs(15);
/// What is answered to one question, at the most.
const MOST_TEXT: usize = 1 << 28;

/// The user's number.
pub fn own_uid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getuid() }
}

/// Where a daemon may be, the likeliest first.
fn places(args: &SocketArgs) -> Vec<PathBuf> {
    match &args.socket {
        Some(path) => vec![path.clone()],
        None => sockets(&|name| std::env::var(name).ok(), own_uid()),
    }
}

/// Calls the daemon.
fn connect(args: &SocketArgs) -> Result<Connection, Failure> {
    let places = places(args);
    let mut refused: Option<(&Path, io::Error)> = None;
    for path in &places {
        match Connection::connect_trusted(path) {
            Ok(connection) => return Ok(connection),
            Err(error) => {
                let is_absent = matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory
                );
                if !is_absent {
                    refused = Some((path, error));
                }
            }
        }
    }
    Err(Failure::new(match (refused, places.as_slice()) {
        (Some((path, error)), _) => format!("{}: {error}", path.display()),
        (None, [one]) if one != Path::new(SYSTEM_SOCKET) => {
            format!(
                "{}: no daemon listens here: start one with `gputrace daemon --socket`, or name another",
                one.display()
            )
        }
        (None, []) => "GPUTRACE_SOCKET is empty, so no daemon is looked for: unset it".to_owned(),
        (None, _) => "no daemon runs: start your own with `gputrace daemon --user`, or the machine's with \
                      `systemctl start gputrace`"
            .to_owned(),
    }))
}

/// Where a question stands.
pub struct Question {
    connection: Connection,
    until: Instant,
}

impl Question {
    /// Asks; the answer may take so long behind the usual.
    pub fn ask(args: &SocketArgs, ask: Ask, longer: Duration) -> Result<Self, Failure> {
        let connection = connect(args)?;
        let sent = connection.send(&Hello::Client(ask), None);
        sent.map_err(|error| Failure::new(format!("the daemon cannot be asked: {error}")))?;
        Ok(Self {
            connection,
            until: Instant::now() + PATIENCE + longer,
        })
    }

    /// The next part of the answer. What the daemon can't do is status 1.
    fn next(&self) -> Result<(Answer, Option<File>), Failure> {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.connection.receive::<Answer>(left) {
            Ok(Some((Answer::Failed { why }, _))) => Err(Failure::new(why).with_status(1)),
            Ok(Some((answer, file))) => Ok((answer, file.map(File::from))),
            Ok(None) => Err(Failure::new(
                "the daemon does not answer: it hangs, or is suspended",
            )),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Failure::new("the daemon ended before it answered"))
            }
            Err(error) => Err(Failure::new(format!("the daemon's answer: {error}"))),
        }
    }

    /// The whole answer, which is a document.
    pub fn document(&self) -> Result<Value, Failure> {
        let mut whole = String::new();
        loop {
            match self.next()?.0 {
                Answer::Text { text, .. } if whole.len() + text.len() <= MOST_TEXT => whole.push_str(&text),
                Answer::Done => break,
                _ => {
                    return Err(Failure::new(
                        "the daemon answers something else: is it of another version?",
                    ));
                }
            }
        }
        serde_json::from_str(&whole).map_err(|error| Failure::new(format!("the daemon's answer: {error}")))
    }
}

/// Asks for a document.
pub fn document(args: &SocketArgs, ask: Ask) -> Result<Value, Failure> {
    Question::ask(args, ask, Duration::ZERO)?.document()
}

/// Copies a recording that the daemon has kept into a folder of ours, whole or not at all.
pub fn fetch(args: &SocketArgs, recording: &str, folder: &Path) -> Result<(), Failure> {
    let ask = Ask::Fetch {
        recording: recording.to_owned(),
    };
    let mut question = Question::ask(args, ask, Duration::ZERO)?;
    let mut failed = None;
    let written = Target::new(folder).write_recording(|files| {
        loop {
            match question.next() {
                Ok((Answer::File { path }, Some(mut from))) => {
                    files.file(&path, |mut to| io::copy(&mut from, &mut to).map(drop))?;
                    question.until = Instant::now() + PATIENCE;
                }
                Ok((Answer::Done, _)) => return Ok(()),
                Ok(_) => return Err(io::Error::other("the daemon answers something else")),
                Err(failure) => {
                    failed = Some(failure);
                    return Err(io::Error::other("the daemon"));
                }
            }
        }
    });
    match (written, failed) {
        (_, Some(failure)) => Err(failure),
        (Err(error), _) if gputrace_trace::place::refusal(&error).is_some() => {
            Err(Failure::new(error.to_string()))
        }
        (Err(error), _) => Err(Failure::new(format!("{}: {error}", folder.display()))),
        (Ok(()), _) => Ok(()),
    }
}

/// Whether a folder can be made: better said before the job is asked.
pub fn check_output(folder: Option<&PathBuf>) -> Result<(), Failure> {
    match folder {
        Some(folder) => Target::new(folder)
            .check_folder()
            .map_err(|refused| Failure::new(refused.to_string())),
        None => Ok(()),
    }
}

/// A text of a document; a dash where there is none.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// A time of a document; a dash where it is not known.
pub fn time(value: &Value) -> String {
    value
        .as_i64()
        .map_or_else(|| "-".to_owned(), crate::text::duration)
}
