//! What goes wrong, said on stderr if the user asked to hear it.

use std::io::Write;

use crate::{config, signals};

/// Says something on stderr, if the user asked to hear it.
pub(crate) fn complain(text: &str) {
    if config::get().is_verbose {
        // Not eprintln, which panics when nobody reads.
        let line = format!("gputrace: {text}\n");
        drop(signals::quietly(|| std::io::stderr().write_all(line.as_bytes())));
    }
}
