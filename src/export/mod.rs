//! `gputrace export`: a recording in another tool's format.

mod html;
pub mod interrupted;
mod progress;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gputrace_interchange::export::ExportSummary;
use gputrace_interchange::export::chrome::{export_chrome, export_chrome_ranks};
use gputrace_interchange::export::files;
use gputrace_interchange::export::parquet::export_parquet;
use gputrace_interchange::export::perfetto::{PerfettoOptions, export_perfetto};
use gputrace_interchange::export::select::{NothingSelected, Selection};
use gputrace_interchange::export::tensorboard::export_tensorboard;
use gputrace_interchange::export::xplane::export_xplane;
use gputrace_trace::place::{self, Refused, Target};
use gputrace_trace::{Derived, Recording, access};

use crate::cli::{ExportArgs, ExportFormat, PartArgs, WritingArgs};
use crate::failure::Failure;
use crate::{opening, text};

/// Where --tables go, if they are asked for: a folder that may be written.
///
/// # Errors
/// When something is there that may not be replaced.
pub fn tables_target(
    writing: &WritingArgs,
    folder: Option<&Path>,
    force: bool,
    sources: &[PathBuf],
) -> Result<Option<Target>, Failure> {
    let Some(folder) = folder else { return Ok(None) };
    let target = writing.target(folder, Some(force), sources);
    target
        .check_folder()
        .map_err(|refused| Failure::new(refused.to_string()))?;
    Ok(Some(target))
}

/// Exports, and says how much.
pub fn run(args: &ExportArgs) -> Result<i32, Failure> {
    args.import.apply();
    if args.writing.follow_umask {
        access::follow_umask();
    }
    let output = &args
        .writing
        .target(&args.output, Some(args.force), std::slice::from_ref(&args.path));
    let options = PerfettoOptions {
        arguments: !args.perfetto.no_arguments,
        gpu_stages: args.perfetto.gpu_stages,
    };
    if options != PerfettoOptions::default() && args.format != ExportFormat::Perfetto {
        return Err(Failure::new(
            "--gpu-stages and --no-arguments are for --format perfetto: leave them out for another format",
        ));
    }
    check(args.format, args.merge, output).map_err(|refused| Failure::new(refused.to_string()))?;
    interrupted::leaves_nothing();
    let recording = opening::open(std::slice::from_ref(&args.path))?;
    if !gputrace_analyzer::used_cuda(&recording) {
        return Err(crate::analyze::never_used_cuda(&recording));
    }
    opening::say_who_is_missing(&recording);
    if is_standard_output(output) {
        // A reader that goes away before the end is told of: what it has is no whole file.
        // SAFETY: only sets a disposition.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
    // A page is of the whole run: what is chosen of it is chosen for its picture, and it has an analysis of its own.
    let parted = progress::shown("analysing", None, |_| match args.format {
        ExportFormat::Html => {
            let wanted = PartArgs {
                ranks: args.part.ranks.clone(),
                ..PartArgs::default()
            };
            part(recording, Derived::default(), &wanted)
        }
        _ => {
            let derived = gputrace_analyzer::derive(&recording);
            part(recording, derived, &args.part)
        }
    });
    let (recording, derived) =
        parted.map_err(|error| Failure::new(format!("{}: {error}", args.path.display())))?;
    let written = match args.format {
        ExportFormat::Chrome => chrome(&recording, &derived, args.merge, output),
        ExportFormat::Perfetto => perfetto(&recording, &derived, options, output),
        ExportFormat::Html => html::write(&recording, &args.part, output)?,
        format => write(format, &recording, &derived, output),
    };
    let summary = written.map_err(|error| Failure::new(cannot_be_written(&output.path, &error)))?;
    anstream::eprintln!("{}", sentence(&output.path, &summary, &recording));
    for loss in &recording.losses {
        anstream::eprintln!("lost while recording: {}", crate::report::loss_line(loss));
    }
    Ok(0)
}

/// What was written.
pub fn sentence(output: &Path, summary: &ExportSummary, recording: &Recording) -> String {
    format!(
        "{}: {} of {} events written{}",
        output.display(),
        text::thousands(summary.events_out),
        text::thousands(summary.events_in),
        if recording.is_simulated() {
            " (simulated GPUs)"
        } else {
            ""
        }
    )
}

/// What is wanted of the recording, and what is known of that.
fn part(
    recording: Recording,
    derived: Derived,
    wanted: &PartArgs,
) -> Result<(Recording, Derived), NothingSelected> {
    let selection = Selection {
        ranks: wanted.ranks.as_ref().map(|ranks| ranks.0.clone()),
        steps: wanted.steps,
        range_ns: wanted.range,
    };
    selection.of(recording, derived)
}

/// Writes in the wanted format, to standard output where the path is `-`.
pub fn write(
    format: ExportFormat,
    recording: &Recording,
    derived: &Derived,
    output: &Target,
) -> io::Result<ExportSummary> {
    match format {
        ExportFormat::Chrome => chrome(recording, derived, false, output),
        ExportFormat::Perfetto => perfetto(recording, derived, PerfettoOptions::default(), output),
        ExportFormat::Parquet => several_files(output, |files| export_parquet(recording, derived, files)),
        ExportFormat::Tensorboard => several_files(output, |files| {
            export_tensorboard(recording, derived, files).map(told)
        }),
        ExportFormat::Xplane => {
            several_files(output, |files| export_xplane(recording, derived, files).map(told))
        }
        ExportFormat::Html => html::write_whole(recording, output),
    }
}

/// One file, or a folder with a file for each rank.
fn chrome(
    recording: &Recording,
    derived: &Derived,
    merge: bool,
    output: &Target,
) -> io::Result<ExportSummary> {
    if merge || is_one_file(&output.path) {
        return one_file(output, |out| export_chrome(recording, derived, out));
    }
    several_files(output, |files| {
        export_chrome_ranks(recording, derived, true, files)
    })
}

/// Whether a path is a file's: by its ending, or because it is a device, a pipe or standard output.
fn is_one_file(output: &Path) -> bool {
    let special = output
        .metadata()
        .is_ok_and(|found| !found.is_dir() && !found.is_file());
    output == Path::new("-") || special || output.extension().is_some() && !output.is_dir()
}

fn perfetto(
    recording: &Recording,
    derived: &Derived,
    options: PerfettoOptions,
    output: &Target,
) -> io::Result<ExportSummary> {
    one_file(output, |out| export_perfetto(recording, derived, options, out))
}

/// Says what a consumer will not show as it is.
fn told((summary, notes): (ExportSummary, Vec<String>)) -> ExportSummary {
    for note in notes {
        anstream::eprintln!("note: {note}");
    }
    summary
}

/// A format of one file: gzip by its name.
fn one_file(
    output: &Target,
    write: impl FnOnce(&mut dyn Write) -> io::Result<ExportSummary>,
) -> io::Result<ExportSummary> {
    progress::shown("writing", Some(&output.path), |written| {
        if is_standard_output(output) {
            let mut out = io::BufWriter::with_capacity(1 << 18, io::stdout().lock());
            let summary = write(&mut progress::Counted::new(&mut out, written))?;
            out.flush()?;
            return Ok(summary);
        }
        files::write_file(output, |out| write(&mut progress::Counted::new(out, written)))
    })
}

/// A format of several files: a folder that is there whole or not at all.
fn several_files(
    output: &Target,
    write: impl FnOnce(&mut dyn files::Files) -> io::Result<ExportSummary>,
) -> io::Result<ExportSummary> {
    if is_standard_output(output) {
        let why = "this format is several files: name a folder";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    progress::shown("writing", None, |_| files::write_folder(output, write))
}

fn is_standard_output(output: &Target) -> bool {
    output.path == Path::new("-")
}

/// Whether an export can go where it is to go: better said before the work than behind it.
pub fn check(format: ExportFormat, merge: bool, output: &Target) -> Result<(), Refused> {
    if is_standard_output(output) {
        return Ok(());
    }
    let one_file = match format {
        ExportFormat::Chrome => merge || is_one_file(&output.path),
        ExportFormat::Perfetto | ExportFormat::Html => true,
        ExportFormat::Parquet | ExportFormat::Tensorboard | ExportFormat::Xplane => false,
    };
    match one_file {
        true => output.check_file(&files::is_export),
        false => output.check_folder(),
    }
}

/// Why an export failed, in words.
pub fn cannot_be_written(output: &Path, error: &io::Error) -> String {
    let output = output.display();
    match (place::refusal(error), error.kind()) {
        (Some(refused), _) => refused.to_string(),
        (None, io::ErrorKind::BrokenPipe) => {
            format!("{output}: its reader went away before everything was written")
        }
        (None, _) => format!("{output}: cannot be written: {error}"),
    }
}
