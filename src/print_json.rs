//! JSON on standard output.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Prints it as it is made: it may be longer than what it is of.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    write_json(&mut out, value).map_err(|error| Failure::new(format!("cannot write to stdout: {error}")))
}

/// The same, elsewhere.
pub fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}
