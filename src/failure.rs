//! Errors as the user sees them: one line, and an exit status.

use std::fmt;

/// Characters of the longest line: two paths of the longest length that Linux takes, and a sentence.
const LONGEST_LINE: usize = 9000;

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
        // What stands in files may hold line breaks, or go on for a megabyte. A failure is one line that can be read.
        let line: Vec<char> = crate::text::one_line(&self.line).chars().collect();
        let text = |letters: &[char]| letters.iter().collect::<String>();
        if line.len() <= LONGEST_LINE {
            return formatter.write_str(&text(&line));
        }
        // Its end says what to do.
        let (start, end) = (LONGEST_LINE / 2, line.len() - LONGEST_LINE / 2);
        write!(formatter, "{}…{}", text(&line[..start]), text(&line[end..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_that_can_be_read() {
        let failure = Failure::new(format!("file:\n{}: name another", "x".repeat(1 << 20)));
        let line = failure.to_string();
        assert_eq!(line.chars().count(), LONGEST_LINE + 1);
        assert!(line.starts_with("file:\u{fffd}xx") && line.ends_with("xx: name another"));
        assert!(line.contains("x…x"));
        let longest = Failure::new("ü".repeat(LONGEST_LINE));
        assert!(!longest.to_string().contains('…'));
    }
}
