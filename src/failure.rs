//! Errors as the user sees them: one line, and an exit status.

use std::fmt;

/// Wrong use, unreadable input or a missing piece: one line that names the file, what is wrong and what to do.
#[derive(Debug)]
pub struct Failure {
    line: String,
    status: i32,
    is_of_output: bool,
}

impl Failure {
    /// A failure with status 2.
    pub fn new(line: impl Into<String>) -> Self {
        Self {
            line: line.into(),
            status: 2,
            is_of_output: false,
        }
    }

    /// A failure of writing, with status 2: the input may be right.
    pub fn of_output(line: impl Into<String>) -> Self {
        Self {
            is_of_output: true,
            ..Self::new(line)
        }
    }

    /// Whether writing failed.
    pub fn is_of_output(&self) -> bool {
        self.is_of_output
    }

    /// The same with another exit status.
    pub fn with_status(self, status: i32) -> Self {
        Self { status, ..self }
    }

    /// The exit status.
    pub fn status(&self) -> i32 {
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of files may hold line breaks, and a failure is one line.
        formatter.write_str(&crate::text::one_line(&self.line))
    }
}
