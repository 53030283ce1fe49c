//! JSON on standard output.

use std::io;

use serde::Serialize;

use crate::failure::Failure;

/// Prints it as it is made: it may be longer than what it is of.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    use io::Write;
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from);
    written
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new(format!("cannot write to stdout: {error}")))
}
