//! `gputrace export`: a recording in another tool's format.

use gputrace_trace::Recording;

use crate::cli::{ExportArgs, ExportFormat};
use crate::failure::Failure;
use crate::text;

/// Exports, and says how much.
pub fn run(args: &ExportArgs) -> Result<i32, Failure> {
    let recording = Recording::open(&args.path).map_err(|error| Failure::new(error.to_string()))?;
    if !gputrace_analyzer::used_cuda(&recording) {
        return Err(crate::analyze::never_used_cuda(&args.path));
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
