//! What the disk's threads are given to do, and what they say of it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use gputrace_trace::manifest::{Manifest, ProcessHeader};
use gputrace_trace::segments::Removed;

/// Which segments of a process are wanted.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// All that were written to since then, nanoseconds since 1970, and what a process that lives is writing; none behind this number.
    Since(i64, Option<u64>),
    /// By number, both included; without a last one: to the newest.
    Numbers(u64, Option<u64>),
}

/// A process that wants something of its files.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Who it is on the socket.
    pub caller: u64,
    /// Its job.
    pub job: String,
    /// Its folder's name, without a number.
    pub folder: String,
    /// The same as a path.
    pub path: PathBuf,
    /// It has joined (again) since it last wanted something, and begins with this segment.
    pub begins: Option<u32>,
}

/// What it wants.
#[derive(Debug)]
pub enum Want {
    /// To begin a segment.
    Segment(u32),
    /// A table to append to, of this segment; of the one that it writes where none is said.
    Open {
        /// The table.
        table: String,
        /// The segment.
        segment: Option<u32>,
    },
    /// A part of its header.
    Header {
        /// Which segment's.
        segment: u32,
        /// The part.
        text: String,
        /// Whether it is the first.
        first: bool,
        /// Whether it is the last.
        done: bool,
    },
}

impl Want {
    /// What it takes of our memory while it waits, about, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        const AROUND: u64 = 256;
        match self {
            Self::Header { text, .. } => AROUND + text.len() as u64,
            _ => AROUND,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub enum Given {
    /// [`Want::Segment`].
    Segment(u32, Result<(), String>),
    /// [`Want::Open`].
    Open(Result<OwnedFd, String>),
    /// [`Want::Header`]; the header once it is whole and can be read.
    Header(Result<Option<Box<ProcessHeader>>, String>),
}

/// Of what is written down that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    /// A job.
    Job(String),
    /// A recording that was kept, and who waits for that to be written.
    Capture(String, Option<u64>),
}

/// What is to be done. The first are done at once, in their order; those from [`Task::Trim`] on take long, and are done by a thread of
/// their own, behind whatever came before them.
#[derive(Debug)]
pub enum Task {
    /// Make a job's folder, with its manifest.
    Make {
        /// The job.
        job: String,
        /// Whose it is: their name is looked up.
        uid: u32,
        /// The folder.
        folder: PathBuf,
        /// What it says of itself.
        manifest: Box<Manifest>,
    },
    /// What a process wants.
    Want {
        /// Who.
        asker: Asker,
        /// What.
        want: Want,
    },
    /// A process does not come again.
    Forget(PathBuf),
    /// Write a job's manifest.
    Manifest {
        /// The job.
        job: String,
        /// Its folder.
        folder: PathBuf,
        /// What it says.
        manifest: Box<Manifest>,
    },
    /// Write down what is to be found again of a job or a capture.
    Note {
        /// Of what.
        of: Noted,
        /// The file.
        path: PathBuf,
        /// What it says.
        text: Vec<u8>,
    },
    /// Remove what has left the rings of a job.
    Trim {
        /// The job.
        job: String,
        /// Its folder.
        folder: PathBuf,
        /// How old a segment may become.
        age: Duration,
        /// How much each process may hold.
        bytes: u64,
        /// What was written to since then stays all the same, nanoseconds since 1970.
        keep_from_ns: Option<i64>,
        /// Processes that have gone: theirs stay, but no longer than this.
        gone: (BTreeSet<String>, Duration),
    },
    /// Keep segments as a recording of their own.
    Keep {
        /// The window.
        window: u64,
        /// The job's folder.
        folder: PathBuf,
        /// Where to.
        into: PathBuf,
        /// Of which processes what.
        wanted: Vec<(String, Wanted)>,
        /// Which of them live.
        live: BTreeSet<String>,
        /// How much of a process the ring keeps.
        ring_bytes: u64,
        /// What it says of itself.
        manifest: Box<Manifest>,
    },
    /// Remove a recording of ours.
    Remove {
        /// Its folder.
        folder: PathBuf,
        /// The file that tells of it ([`Task::Note`]), which goes first.
        saved: Option<PathBuf>,
    },
    /// See how much room the disk has.
    Room {
        /// A folder on it.
        folder: PathBuf,
    },
    /// List a recording's files for somebody.
    List {
        /// For whom.
        caller: u64,
        /// The recording.
        name: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// Open files of a recording for somebody to read.
    Read {
        /// For whom.
        caller: u64,
        /// What they are called in the recording, and where they are.
        files: Vec<(String, PathBuf)>,
    },
}

impl Task {
    /// Whether it takes long.
    #[must_use]
    pub fn is_large(&self) -> bool {
        match self {
            Self::Make { .. }
            | Self::Want { .. }
            | Self::Forget(_)
            | Self::Manifest { .. }
            | Self::Note { .. } => false,
            Self::Trim { .. }
            | Self::Keep { .. }
            | Self::Remove { .. }
            | Self::Room { .. }
            | Self::List { .. }
            | Self::Read { .. } => true,
        }
    }

    /// What is said of it where something goes wrong in the middle.
    #[must_use]
    pub fn failed(&self, why: &str) -> Option<Done> {
        let why = why.to_owned();
        Some(match self {
            Self::Forget(_) => return None,
            Self::Make { job, .. } => Done::Made {
                job: job.clone(),
                result: Err((why, false)),
            },
            Self::Want { asker, want } => Done::Given {
                asker: asker.clone(),
                bytes: want.bytes(),
                given: match want {
                    Want::Segment(segment) => Given::Segment(*segment, Err(why)),
                    Want::Open { .. } => Given::Open(Err(why)),
                    Want::Header { .. } => Given::Header(Err(why)),
                },
            },
            Self::Manifest { job, .. } => Done::Manifest {
                job: job.clone(),
                result: Err(why),
            },
            Self::Note { of, .. } => Done::Noted {
                of: of.clone(),
                result: Err(why),
            },
            Self::Trim { job, .. } => Done::Trimmed {
                job: job.clone(),
                result: Err(format!("{job}: {why}")),
            },
            Self::Keep { window, .. } => Done::Kept {
                window: *window,
                result: Err(why),
            },
            Self::Remove { folder, .. } => Done::Removed {
                folder: folder.clone(),
                result: Err(format!("{}: {why}", folder.display())),
            },
            Self::Room { .. } => Done::Room(Err(why)),
            Self::List { caller, .. } => Done::Listed {
                caller: *caller,
                result: Err(why),
            },
            Self::Read { caller, files } => Done::Read {
                caller: *caller,
                files: files
                    .iter()
                    .map(|(path, _)| (path.clone(), Err(why.clone())))
                    .collect(),
            },
        })
    }
}

/// What was done.
#[derive(Debug)]
pub enum Done {
    /// [`Task::Make`]: the user's name; or why not, and whether it is since something else has the name.
    Made {
        /// The job.
        job: String,
        /// What came of it.
        result: Result<String, (String, bool)>,
    },
    /// [`Task::Want`].
    Given {
        /// Who wanted it.
        asker: Asker,
        /// What [`Want::bytes`] was.
        bytes: u64,
        /// What came of it.
        given: Given,
    },
    /// [`Task::Manifest`].
    Manifest {
        /// The job.
        job: String,
        /// Why it was not written.
        result: Result<(), String>,
    },
    /// [`Task::Note`].
    Noted {
        /// Of what.
        of: Noted,
        /// Why it was not written.
        result: Result<(), String>,
    },
    /// [`Task::Trim`].
    Trimmed {
        /// The job.
        job: String,
        /// What went, and processes that hold far more than they may; or why nothing went.
        result: Result<(Removed, Vec<String>), String>,
    },
    /// [`Task::Keep`].
    Kept {
        /// The window.
        window: u64,
        /// Processes and bytes in it, or why there is none.
        result: Result<(usize, u64), String>,
    },
    /// [`Task::Remove`].
    Removed {
        /// Its folder.
        folder: PathBuf,
        /// Why it is still there.
        result: Result<(), String>,
    },
    /// [`Task::Room`]: bytes that are free.
    Room(Result<u64, String>),
    /// [`Task::List`]: what the files are called, and where they are.
    Listed {
        /// For whom.
        caller: u64,
        /// The files.
        result: Result<Vec<(String, PathBuf)>, String>,
    },
    /// [`Task::Read`].
    Read {
        /// For whom.
        caller: u64,
        /// The files, opened.
        files: Vec<(String, Result<OwnedFd, String>)>,
    },
}
