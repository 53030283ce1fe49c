//! `gputrace record`: runs a command with the collector injected and closes the recording.

mod child;
mod output;
mod progress;

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
use crate::{analyze, libraries, workload};

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
    let mut child = match child::start(&mut command, bundled) {
        Ok(child) => child,
        Err(error) => {
            remove(&folder);
            return Err(not_started(&args.command[0], &error));
        }
    };
    let mut progress = progress::ProgressLine::new(&folder, args.quiet);
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(Failure::new(format!("lost sight of the command: {error}"))),
        }
        child::pass_signals(&child);
        progress.tick();
        std::thread::sleep(POLL);
    };
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
    close(&folder, manifest);
    if !args.quiet
        && let Err(failure) = show(&folder)
    {
        anstream::eprintln!("gputrace: {failure}");
    }
    Ok(status)
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

/// Writes the closing manifest: how it ended and how many rows each process wrote.
fn close(folder: &Path, mut manifest: Manifest) {
    manifest.state = "complete".to_owned();
    manifest.ended_ns = Some(now().0);
    match Recording::open(folder) {
        Ok(recording) => {
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
                manifest
                    .notes
                    .push("no process of the command used CUDA".to_owned());
            }
        }
        Err(error) => anstream::eprintln!("gputrace: {error}"),
    }
    if let Err(error) = write_json(&folder.join(MANIFEST_FILE), &manifest) {
        anstream::eprintln!(
            "gputrace: {}: cannot be closed: {error}: what was written until then can be read",
            folder.display()
        );
    }
}

/// Takes away a recording that never began: its manifest and its folder, nothing else.
fn remove(folder: &Path) {
    // Best effort: the failure that led here is the one to tell.
    drop(std::fs::remove_file(folder.join(MANIFEST_FILE)));
    drop(std::fs::remove_dir(folder));
}

/// Prints the tables, where the recording is, and what to do next.
fn show(folder: &Path) -> Result<(), Failure> {
    analyze::print_tables(folder)?;
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
