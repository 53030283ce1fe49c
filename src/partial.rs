//! `gputrace partial`: what is known of some ranks alone, as a file.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use gputrace_analyzer::partial::{Glance, GlancedBases, Partial};
use gputrace_analyzer::{ClockChoice, Options};
use gputrace_trace::access;
use gputrace_trace::place::Target;
use gputrace_trace::seal::digest;

use crate::analyze::clock_choice;
use crate::apart::{Ranks, Run, fingerprint, is_wanted};
use crate::cli::PartialArgs;
use crate::export::{cannot_be_written, interrupted};
use crate::failure::Failure;
use crate::opening;

/// How an Arrow file ends.
const ARROW: &[u8; 6] = b"ARROW1";

/// The version that partials are made by and read by: another one may compute something else.
pub const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// Whether a file is a partial, and may be replaced by another: not with something behind what was written.
pub fn is_partial(mut file: &File) -> bool {
    let mut end = [0; ARROW.len()];
    Glance::is_in(file)
        && file.seek(SeekFrom::End(-(ARROW.len() as i64))).is_ok()
        && file.read_exact(&mut end).is_ok()
        && &end == ARROW
}

/// Writes a partial aside, and gives it its name when it is whole.
pub fn write(target: &Target, partial: &Partial, options: &Options, input: &str) -> Result<u64, Failure> {
    // One of this run may be of other ranks or clocks, and is made again; one of another run is not ours to replace.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_own = |path: &Path| {
        partial
            .bases
            .iter()
            .any(|own| real(&own.recording.path) == real(path))
    };
    if let Ok(there) = Glance::read(&target.path, PROGRAM, &GlancedBases::default())
        && let Some(other) = there.bases.first()
        && !there.bases.iter().any(|base| is_own(&base.path))
    {
        return Err(Failure::of_output(format!(
            "{}: is a partial of {}: name another file, or remove it",
            target.path.display(),
            other.path.display()
        )));
    }
    let written = target.write_file(&is_partial, |file| {
        let mut out = BufWriter::with_capacity(1 << 18, file);
        partial.write(&mut out, options, PROGRAM, input)?;
        out.flush()?;
        drop(out);
        Ok(file.metadata()?.len())
    });
    written.map_err(|error: io::Error| Failure::of_output(cannot_be_written(&target.path, &error)))
}

/// Makes the partial, unless it is there.
pub fn run(args: &PartialArgs) -> Result<i32, Failure> {
    args.import.apply();
    if args.writing.follow_umask {
        access::follow_umask();
    }
    let options = Options {
        steps: args.steps,
        sort: args.sort.into(),
        short_names: args.short_names,
        by_step: false,
    };
    let clocks = clock_choice(&args.clocks)?;
    let target = args.writing.target(&args.output, Some(true), &args.paths);
    let output = args.output.display();
    let checked = target.check_file(&is_partial);
    checked.map_err(|refused| Failure::of_output(refused.to_string()))?;
    let run = Run::open(&args.paths);
    let files = run
        .as_ref()
        .map_or_else(|| fingerprint(&args.paths), Run::fingerprints);
    let run = run.filter(|_| !matches!(clocks, ClockChoice::Given(_)));
    let input = digest(format!("{files} {:?} {clocks:?}", args.ranks).as_bytes());
    if Partial::input_of(&args.output, &options, PROGRAM).as_ref() == Some(&input) {
        anstream::eprintln!("{output}: is there already, made of the same files");
        return Ok(0);
    }
    interrupted::leaves_nothing();
    let partial = match run {
        Some(run) => run.partial(&options, &clocks, args.ranks)?,
        None => whole(args, &clocks, &options, &files, args.ranks)?,
    };
    let (here, all) = partial.here();
    if here == 0 {
        let why = match args.ranks {
            Some((first, last)) => {
                format!("none of the ranks {first}..{last} is in it: it has {all} processes")
            }
            None => "no process is in it, so there is nothing to put together".to_owned(),
        };
        return Err(Failure::new(format!(
            "{}: {why}",
            crate::analyze::source_of(&args.paths)
        )));
    }
    // Another process has written the same partial meanwhile.
    if Partial::input_of(&args.output, &options, PROGRAM).as_ref() == Some(&input) {
        anstream::eprintln!("{output}: was made meanwhile, of the same files");
        return Ok(0);
    }
    let bytes = write(&target, &partial, &options, &input)?;
    anstream::eprintln!("{output}: {here} of {all} processes, {bytes} bytes");
    Ok(0)
}

/// Of what can only be read as a whole.
fn whole(
    args: &PartialArgs,
    clocks: &ClockChoice,
    options: &Options,
    files: &str,
    ranks: Ranks,
) -> Result<Partial, Failure> {
    let recording = opening::read(&args.paths)?;
    let mut partial = Partial::aligned(recording, clocks, options).map_err(Failure::new)?;
    for base in &mut partial.bases {
        files.clone_into(&mut base.fingerprint);
    }
    for parts in &mut partial.parts {
        parts.retain(|part| is_wanted(part.rank(), ranks));
    }
    Ok(partial)
}

/// Reads a partial.
pub fn read(path: &Path) -> Result<(Partial, Options), Failure> {
    gputrace_trace::beneath::name(path);
    Partial::read(path, PROGRAM).map_err(|wrong| Failure::new(wrong.to_string()))
}
