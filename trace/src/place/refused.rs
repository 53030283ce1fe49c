//! Why something is not written, in one line.

use std::fmt;
use std::io;

/// Why nothing may be written to a place: one line, with the path, what is there and what to do.
#[derive(Debug)]
pub struct Refused(pub(super) String);

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(io::ErrorKind::AlreadyExists, refused)
    }
}

/// The refusal in an error, if it is one.
#[must_use]
pub fn refusal(error: &io::Error) -> Option<&Refused> {
    error.get_ref()?.downcast_ref()
}
