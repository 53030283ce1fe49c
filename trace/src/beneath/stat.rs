//! What lies at a path, and why it is not opened.

use std::fmt;
use std::io;

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A pipe, a device, a socket.
    Special,
    /// A link that leads out of its root.
    LeadsOut,
    /// A link to nothing, or one that can't be followed.
    Broken,
}

/// What is known of a file without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is, behind links.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: u64,
    /// When it was last changed, milliseconds since the epoch.
    pub modified_ms: u64,
}

/// Why something that is there is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is a link that leads out of the folder that was named, or lies behind one.
    LeadsOut,
    /// It is neither a file nor a folder, or not the one that was asked for.
    Special,
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::LeadsOut => "a link leads out of the folder there, which is not followed",
            Self::Special => "it is no file",
        })
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, refused)
    }
}
