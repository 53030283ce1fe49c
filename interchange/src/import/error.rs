//! Why something can't be imported.

use std::fmt;
use std::path::Path;

/// Why a path can't be opened. One line: the file, what is wrong, what to do.
#[derive(Debug)]
pub struct ImportError {
    line: String,
    pub(super) of_several_runs: bool,
}

impl ImportError {
    pub(crate) fn new(path: &Path, wrong: impl fmt::Display) -> Self {
        // A name may hold line breaks, and so may what a damaged file makes SQLite say; an error is one line.
        let line = format!("{}: {wrong}", path.display());
        Self::of(line.replace(char::is_control, "\u{fffd}"))
    }

    pub(super) fn of(line: String) -> Self {
        Self {
            line,
            of_several_runs: false,
        }
    }

    /// Whether each file could be read, but they hold the same rank: they are runs of their own.
    #[must_use]
    pub fn is_of_several_runs(&self) -> bool {
        self.of_several_runs
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.line)
    }
}

impl std::error::Error for ImportError {}
