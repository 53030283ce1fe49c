//! `gputrace workload`: runs a bundled training program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use gputrace_trace::place;

use crate::cli::{DeviceChoice, WorkloadArgs};
use crate::device::{self, DEVICE_VARIABLE};
use crate::failure::Failure;

/// Refuses the name of a workload that does not exist, and a checkpoint inside a recording, before anything is set up.
pub fn check(arguments: &[OsString]) -> Result<(), Failure> {
    check_name(arguments)?;
    match saved_to(arguments) {
        None => Ok(()),
        Some(path) => {
            place::refuse_inside(&path).map_err(|refused| Failure::new(format!("--save {refused}")))
        }
    }
}

fn check_name(arguments: &[OsString]) -> Result<(), Failure> {
    let known = || {
        workloads::list()
            .iter()
            .map(|workload| workload.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let Some(name) = arguments.first().map(|name| name.to_string_lossy()) else {
        return Err(Failure::new(format!(
            "workload: which one? There are: {}",
            known()
        )));
    };
    if name.starts_with('-') || workloads::list().iter().any(|workload| workload.name == name) {
        return Ok(());
    }
    let nearest = workloads::nearest(&name)
        .map(|nearest| format!(" Did you mean {nearest}?"))
        .unwrap_or_default();
    Err(Failure::new(format!(
        "workload {name}: there is none of that name.{nearest} There are: {}",
        known()
    )))
}

/// Where checkpoints go, if they do: the programs know nothing of recordings.
fn saved_to(arguments: &[OsString]) -> Option<PathBuf> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--save" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(path) = argument.as_bytes().strip_prefix(b"--save=") {
            return Some(PathBuf::from(OsStr::from_bytes(path)));
        }
    }
    None
}

/// Runs the workload (or lists them) and gives its exit status.
pub fn run(args: &WorkloadArgs) -> Result<i32, Failure> {
    if args
        .arguments
        .first()
        .is_some_and(|argument| argument == "--list")
    {
        for workload in workloads::list() {
            anstream::println!("{:<12} {}", workload.name, workload.summary);
        }
        return Ok(0);
    }
    if args.arguments.iter().any(|argument| argument == "--trace-only") {
        return crate::synthetic::run(&args.arguments);
    }
    check(&args.arguments)?;
    let executable = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot tell where gputrace itself is: {error}")))?;
    let environment = if std::env::var_os(DEVICE_VARIABLE).is_some() {
        // A recorder, or the launcher of the ranks, has set everything up.
        Vec::new()
    } else {
        let device = device::choose(DeviceChoice::Auto, true)?;
        let environment = device.environment()?;
        if device == device::Device::Sim {
            anstream::eprintln!("no GPU found here: running on simulated GPUs");
            // Once more with the stand-in in the loader's path, which counts from a program's start: torchrun, srun or mpirun may
            // have made this process a rank, which loads libraries itself.
            let mut again = std::process::Command::new(&executable);
            let error = again
                .arg("workload")
                .args(&args.arguments)
                .envs(environment)
                .exec();
            return Err(Failure::new(format!("{}: {error}", executable.display())));
        }
        environment
    };
    let launch = workloads::Launch {
        program: vec![executable.into(), "workload".into()],
        env: environment,
    };
    workloads::run(&args.arguments, &launch).map_err(|error| Failure::new(error.to_string()))
}
