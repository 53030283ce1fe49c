//! `gputrace export`: a recording in another tool's format.

use crate::cli::{ExportArgs, ExportFormat};
use crate::failure::Failure;
use crate::{opening, text};

/// Exports, and says how much.
pub fn run(args: &ExportArgs) -> Result<i32, Failure> {
    let recording = opening::open(std::slice::from_ref(&args.path))?;
    if !gputrace_analyzer::used_cuda(&recording) {
        return Err(crate::analyze::never_used_cuda(&recording));
    }
    let summary = match args.format {
        ExportFormat::Chrome => gputrace_interchange::chrome::export_chrome_file(&recording, &args.output),
    }
    .map_err(|error| Failure::new(format!("{}: cannot be written: {error}", args.output.display())))?;
    anstream::eprintln!(
        "{}: {} of {} events written{}",
        args.output.display(),
        text::thousands(summary.events_out),
        text::thousands(summary.events_in),
        if recording.is_simulated() {
            " (simulated GPUs)"
        } else {
            ""
        }
    );
    for loss in &recording.losses {
        anstream::eprintln!("lost while recording: {}", crate::report::loss_line(loss));
    }
    Ok(0)
}
