//! `gputrace`: the command line. What it does lives in the library crates; here is only what it says.

mod analyze;
mod cli;
mod device;
mod doctor;
mod export;
mod failure;
mod libraries;
mod opening;
mod record;
mod report;
mod text;
mod workload;

use clap::Parser;

use cli::{Cli, Command};

fn main() {
    // A reader that goes away (`gputrace analyze ... | head`) ends us quietly, as it does any other tool.
    // SAFETY: no other thread runs yet, and SIG_DFL is a valid disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let result = match Cli::parse().command {
        Command::Record(args) => record::run(&args),
        Command::Workload(args) => workload::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    };
    let status = result.unwrap_or_else(|failure| {
        anstream::eprintln!("gputrace: {failure}");
        failure.status()
    });
    std::process::exit(status);
}
