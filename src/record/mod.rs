//! `gputrace record`: runs a command with the collector injected and closes the recording.

mod child;
mod hang;
mod output;
mod progress;
mod relay;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gputrace_trace::manifest::{MANIFEST_FILE, Manifest, write_json};
use gputrace_trace::{Recording, now};

use crate::cli::RecordArgs;
use crate::device::{self, Device};
use crate::failure::Failure;
use crate::{analyze, libraries, opening, workload};

/// How long to sleep between looks at the command.
const POLL: Duration = Duration::from_millis(20);

/// Records, prints what was recorded, and gives the command's exit status.
pub fn run(args: &RecordArgs) -> Result<i32, Failure> {
    let bundled = args.command.first().is_some_and(|program| program == "workload");
    if bundled {
        workload::check_name(&args.command[1..])?;
    }
    let collector = libraries::find(libraries::COLLECTOR)?;
    let device = device::choose(args.device, bundled)?;
    let mut command = command_line(args, bundled)?;
    for (key, value) in &args.simulation {
        command.env(format!("SIMGPU_{key}"), value);
    }
    command.envs(device.environment()?);

    let name = if bundled {
        args.command.get(1)
    } else {
        args.command.first()
    };
    let name = output::name_of(name.map_or(OsStr::new("run"), OsString::as_os_str));
    let folder = output::create(args.output.as_deref(), &name)?;
    inject(&mut command, &collector, &folder);

    let mut manifest = manifest(args, &command, device);
    if let Err(error) = write_json(&folder.join(MANIFEST_FILE), &manifest) {
        remove(&folder);
        return Err(Failure::new(format!(
            "{}: cannot be written: {error}: nothing was run",
            folder.display()
        )));
    }
    if !args.quiet {
        anstream::eprintln!("{}", announcement(device, args, bundled));
    }

    child::note_signals();
    let mut progress = progress::ProgressLine::new(&folder, args.quiet, bundled);
    if progress.is_relayed() {
        relay::pipe(&mut command);
    }
    let mut child = match child::start(&mut command, bundled) {
        Ok(child) => child,
        Err(error) => {
            remove(&folder);
            return Err(not_started(&args.command[0], &error));
        }
    };
    let relay = relay::Relay::start(&mut child, &progress);
    let mut watch = hang::Watch::new(&folder, args.hang_after.map(Duration::from_secs_f64));
    let mut ending: Option<hang::Ending> = None;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(Failure::new(format!("lost sight of the command: {error}"))),
        }
        child::pass_signals(&child);
        if let Some(counts) = progress.tick() {
            match watch.look(counts) {
                hang::Seen::Nothing => {}
                hang::Seen::Hang(hangs) => {
                    progress.suspend(|| hang::tell(&hangs));
                    manifest.hangs = hangs;
                    manifest.ended_on_hang = bundled || args.end_on_hang;
                    keep(&folder, &manifest);
                    if manifest.ended_on_hang {
                        progress.suspend(|| anstream::eprintln!("gputrace: ending the command"));
                        ending = Some(hang::Ending::begin(&child, &folder));
                    }
                }
                hang::Seen::GoesOn(after) => {
                    let note = format!("the job stood still for {:.1} s and went on", after.as_secs_f64());
                    progress.suspend(|| anstream::eprintln!("gputrace: {note}"));
                    let was = manifest.hangs.drain(..).next();
                    let was = was.map(|hang| format!(": {}", gputrace_analyzer::hangs::text(&hang)));
                    manifest.notes.push(format!("{note}{}", was.unwrap_or_default()));
                    keep(&folder, &manifest);
                }
            }
        }
        if let Some(ending) = &mut ending {
            ending.tick(&child);
        }
        std::thread::sleep(POLL);
    };
    if let Some(ending) = &ending {
        ending.kill_processes();
    }
    relay.finish();
    let status = child::shell_status(ended);
    let last_line = progress.finish();
    if !args.quiet {
        anstream::eprintln!("recorded: {last_line}");
    }
    manifest.exit_status = Some(status);
    if status != 0 {
        anstream::eprintln!(
            "gputrace: {} ended with status {status}",
            args.command[0].to_string_lossy()
        );
    }
    // From here on nothing changes the command's status: a failed recording is said, on stderr.
    let recording = close(&folder, manifest, args.quiet);
    if let Some(recording) = recording.filter(|_| !args.quiet)
        && let Err(failure) = show(&folder, &recording)
    {
        anstream::eprintln!("gputrace: {failure}");
    }
    Ok(if ending.is_some() { hang::STATUS } else { status })
}

/// Writes the manifest of a recording that goes on; its closing will tell where that is not possible.
fn keep(folder: &Path, manifest: &Manifest) {
    drop(write_json(&folder.join(MANIFEST_FILE), manifest));
}

/// The command to start: our own executable for a bundled workload.
fn command_line(args: &RecordArgs, bundled: bool) -> Result<Command, Failure> {
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| Failure::new("no command to record"))?;
    if !bundled {
        let mut command = Command::new(program);
        command.args(arguments);
        return Ok(command);
    }
    let executable = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot tell where gputrace itself is: {error}")))?;
    let mut command = Command::new(executable);
    command.args(&args.command);
    Ok(command)
}

/// The variables by which the driver, NVTX and NCCL load the collector, and by which it knows where to write.
fn inject(command: &mut Command, collector: &Path, folder: &Path) {
    command
        .env("CUDA_INJECTION64_PATH", collector)
        .env("NVTX_INJECTION64_PATH", collector)
        .env("NCCL_PROFILER_PLUGIN", collector)
        .env("GPUTRACE_DIR", folder);
}

fn manifest(args: &RecordArgs, command: &Command, device: Device) -> Manifest {
    let mut environment: BTreeMap<String, String> = std::env::vars_os()
        .chain(
            command
                .get_envs()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))),
        )
        .map(|(key, value)| {
            (
                key.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect();
    environment.retain(|key, _| {
        ["NCCL_", "CUDA_", "SIMGPU_"]
            .iter()
            .any(|prefix| key.starts_with(prefix))
    });
    Manifest {
        gputrace: env!("CARGO_PKG_VERSION").to_owned(),
        state: "recording".to_owned(),
        device: device.name().to_owned(),
        command: args
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        host: gethostname::gethostname().to_string_lossy().into_owned(),
        started_ns: now().0,
        hang_after_ns: Some(args.hang_after.map_or(0, |seconds| (seconds * 1e9) as i64)),
        environment,
        ..Manifest::new()
    }
}

fn announcement(device: Device, args: &RecordArgs, bundled: bool) -> String {
    match device {
        Device::Cuda => "recording on the GPUs of this machine".to_owned(),
        Device::Sim if bundled && args.device == crate::cli::DeviceChoice::Auto => {
            "no GPU found here: recording on simulated GPUs (--device cuda insists on real ones)".to_owned()
        }
        Device::Sim => "recording on simulated GPUs".to_owned(),
    }
}

fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!(
            "{program}: command not found: check its spelling and PATH; nothing was recorded"
        ))
        .with_status(127),
        io::ErrorKind::PermissionDenied => Failure::new(format!(
            "{program}: cannot be run: {error}: is it executable? nothing was recorded"
        ))
        .with_status(126),
        _ => Failure::new(format!(
            "{program}: cannot be started: {error}; nothing was recorded"
        ))
        .with_status(126),
    }
}

/// Writes the closing manifest: how it ended, and then how many rows each process wrote. Gives the recording, as it can be
/// read.
fn close(folder: &Path, mut manifest: Manifest, quiet: bool) -> Option<Recording> {
    manifest.state = "complete".to_owned();
    manifest.ended_ns = Some(now().0);
    let cannot = |error: io::Error| {
        anstream::eprintln!(
            "gputrace: {}: cannot be closed: {error}: what was written until then can be read",
            folder.display()
        );
    };
    // Reading a long recording takes a while, and what is known already must not be lost meanwhile.
    let path = folder.join(MANIFEST_FILE);
    if let Err(error) = write_json(&path, &manifest) {
        cannot(error);
        return None;
    }
    let opened = if quiet {
        Recording::open(folder).map_err(|error| Failure::new(error.to_string()))
    } else {
        opening::open(&[folder.to_owned()])
    };
    let mut recording = match opened {
        Ok(recording) => recording,
        Err(failure) => {
            anstream::eprintln!("gputrace: {failure}");
            return None;
        }
    };
    for process in &recording.processes {
        let rows = process
            .tables
            .row_counts()
            .into_iter()
            .filter(|(_, rows)| *rows > 0);
        let rows = rows
            .map(|(table, rows)| (table.to_owned(), rows as u64))
            .collect();
        manifest.rows.insert(process.folder.clone(), rows);
    }
    if recording.processes.is_empty() {
        let note = "no process of the command used CUDA".to_owned();
        recording.notes.push(note.clone());
        manifest.notes.push(note);
    }
    if let Err(error) = write_json(&path, &manifest) {
        cannot(error);
    }
    recording.manifest = manifest;
    Some(recording)
}

/// Takes away a recording that never began: its manifest and its folder, nothing else.
fn remove(folder: &Path) {
    // Best effort: the failure that led here is the one to tell.
    drop(std::fs::remove_file(folder.join(MANIFEST_FILE)));
    drop(std::fs::remove_dir(folder));
}

/// Prints the tables, where the recording is, and what to do next.
fn show(folder: &Path, recording: &Recording) -> Result<(), Failure> {
    analyze::print_tables(recording)?;
    let here: PathBuf = std::env::current_dir()
        .ok()
        .and_then(|current| folder.strip_prefix(current).ok().map(Path::to_owned))
        .unwrap_or_else(|| folder.to_owned());
    let here = here.display();
    anstream::println!("\nRecording: {here}");
    anstream::println!("Next:      gputrace analyze {here} --json");
    anstream::println!(
        "           gputrace export {here} --format chrome -o trace.json.gz   (open at ui.perfetto.dev)"
    );
    Ok(())
}
