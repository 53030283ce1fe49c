//! `gputrace`: the command line. What it does lives in the library crates; here is only what it says.

mod analyze;
mod apart;
mod baseline;
mod check;
mod cli;
mod daemon;
mod demo;
mod device;
mod diff;
mod doctor;
mod export;
mod failure;
mod libraries;
mod manual;
mod merge;
mod nvml;
mod opening;
mod partial;
mod print_json;
mod record;
mod reduce;
mod report;
mod runs;
mod say;
mod serve;
mod spread;
mod start;
mod synthetic;
mod text;
mod topology;
mod view;
mod whatif;
mod workload;

use clap::Parser;

use cli::{Cli, Command};

/// Printing panics where the output refuses (a full disk): that is a failure like others, one line and status 2.
fn end_where_nothing_can_be_printed() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>();
        if let Some(why) = text.and_then(|text| text.strip_prefix("failed printing to ")) {
            let is_gone = why.contains("Broken pipe");
            if !(is_gone && say::goes_on()) {
                say::say!("gputrace: cannot write to {why}");
            }
            if say::goes_on() {
                return;
            }
            std::process::exit(2);
        }
        before(info);
    }));
}

/// All threads take memory from one place, and what one gives back another takes: a tenth less at the peak of a large import, and no
/// slower, since importing takes it in large pieces.
fn share_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no other thread runs yet, and the parameter is one that glibc knows.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

fn main() {
    // A reader that goes away (`gputrace analyze ... | head`) ends us quietly, as it does any other tool.
    // SAFETY: no other thread runs yet, and SIG_DFL is a valid disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    record::child::survive_limits();
    end_where_nothing_can_be_printed();
    let Some(command) = Cli::parse().command else {
        start::print();
        return;
    };
    if matches!(
        command,
        Command::Analyze(_)
            | Command::Partial(_)
            | Command::Reduce(_)
            | Command::Shard(_)
            | Command::WhatIf(_)
            | Command::Diff(_)
            | Command::Check(_)
            | Command::Baseline(_)
    ) {
        share_memory();
    }
    let result = match command {
        Command::Record(args) => record::run(&args),
        Command::Workload(args) => workload::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Partial(args) => partial::run(&args),
        Command::Reduce(args) => reduce::run(&args),
        Command::Shard(args) => spread::worker::run(&args),
        Command::WhatIf(args) => whatif::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Baseline(args) => baseline::run(&args),
        Command::Export(args) => export::run(&args),
        Command::View(args) => view::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Serve(args) => serve::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Jobs(args) => daemon::jobs(&args),
        Command::Capture(args) => daemon::capture(&args),
        Command::Snapshot(args) => daemon::snapshot(&args),
        Command::Top(args) => daemon::top(&args),
        Command::Triggers(args) => daemon::triggers(&args),
        Command::Env(args) => daemon::env(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => manual::print_completions(&args),
        Command::Man(args) => manual::print_page(&args),
    };
    let status = result.unwrap_or_else(|failure| {
        anstream::eprintln!("gputrace: {failure}");
        failure.status()
    });
    std::process::exit(status);
}
