//! `gputrace demo`: the recording that comes with the program, in the browser.
//!
//! packaging/demo made it; it is unpacked once for each user and version, among the temporary files.

use std::io::{self, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use gputrace_trace::place::{NewFolder, Target};

use crate::cli::{DemoArgs, ImportArgs, ViewArgs};
use crate::export::{cannot_be_written, interrupted};
use crate::failure::Failure;
use crate::{libraries, view};

/// A recording's folder, as .tar.gz.
const RECORDING: &[u8] = include_bytes!("../packaging/demo.tar.gz");
/// What is in it.
const SENTENCE: &str =
    "a pipeline of four SIMULATED GPUs: rank 2 launches late in every step, and the others wait for it";

/// Shows the recording, or writes it where the user wants it.
pub fn run(args: DemoArgs) -> Result<i32, Failure> {
    if let Some(output) = &args.output {
        interrupted::leaves_nothing();
        unpack(output)?;
        anstream::eprintln!("{}: {SENTENCE}", output.display());
        return Ok(0);
    }
    let name = format!("demo-{:016x}", libraries::fnv1a(RECORDING));
    let folder = libraries::own_folder()?.join(name);
    // What is cleared out now and then may have gone in part.
    if gputrace_trace::Recording::open_tables(&folder, &[]).is_err() {
        drop(std::fs::remove_dir_all(&folder));
        unpack(&folder)?;
    }
    anstream::eprintln!("  {SENTENCE}");
    anstream::eprintln!(
        "  gputrace analyze {}    says the same in the terminal",
        folder.display()
    );
    view::run(&ViewArgs {
        paths: vec![folder],
        together: false,
        apart: false,
        no_open: args.no_open,
        server: args.server,
        import: ImportArgs {
            no_import_limits: false,
        },
    })
}

fn unpack(folder: &Path) -> Result<(), Failure> {
    let written = Target::new(folder).write_recording(fill);
    written.map_err(|error| Failure::new(cannot_be_written(folder, &error)))?;
    Ok(())
}

fn fill(folder: &mut NewFolder<'_>) -> io::Result<()> {
    for entry in tar::Archive::new(GzDecoder::new(RECORDING)).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() {
            let name = entry.path()?.to_string_lossy().into_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            folder.file(&name, |mut file| io::Write::write_all(&mut file, &bytes))?;
        }
    }
    Ok(())
}
