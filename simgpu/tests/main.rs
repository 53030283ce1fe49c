//! The stand-in in front of programs that know nothing of it.

mod client;
#[path = "../../tests/common/schedule.rs"]
mod schedule;
mod stand_in;
mod support;

mod cupti;
mod cupti_faults;
mod cupti_records;
mod cupti_subscribers;
mod devices;
mod driver;
mod graphs;
mod nccl;
mod nccl_communicators;
mod nccl_failures;
mod nccl_graphs;
mod nccl_tools;
mod nvml;
mod times;

/// What the harness calls test `name` of the file that this is called from.
#[track_caller]
fn whole_name(name: &str) -> String {
    let file = std::path::Path::new(std::panic::Location::caller().file());
    let module = file.file_stem().expect("a name").to_string_lossy();
    format!("{module}::{name}")
}

/// This program again, to run that test alone.
#[track_caller]
fn test_again(name: &str) -> std::process::Command {
    schedule::computes();
    let mut command = std::process::Command::new(std::env::current_exe().expect("a path"));
    command.args([&whole_name(name), "--exact", "--nocapture"]);
    command
}
