//! What is made of the command line's own description: completions for shells, and pages for `man`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use gputrace_trace::place::{Existing, Target};

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::export::{cannot_be_written, interrupted};
use crate::failure::Failure;

/// The whole command line, with the options of each workload, which are parsed apart from the rest.
pub fn command() -> Command {
    let workloads = workloads::command();
    Cli::command().mut_subcommand("workload", |workload| {
        workload
            .mut_arg("arguments", |arguments| arguments.hide(true))
            .subcommands(workloads.get_subcommands().cloned())
            .args(workloads.get_arguments().cloned())
    })
}

/// Prints the completions of a shell.
pub fn print_completions(args: &CompletionsArgs) -> Result<i32, Failure> {
    // Made in memory: writing may fail, and the generator would panic.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "gputrace", &mut text);
    print(&text)
}

/// Prints the page of the whole, or of a command, or writes all of them into a folder.
pub fn print_page(args: &ManArgs) -> Result<i32, Failure> {
    let mut page = command();
    // Gives each command its whole name.
    page.build();
    if let Some(folder) = &args.output {
        interrupted::leaves_nothing();
        return write_pages(folder, &page, args.parents).map(|()| 0);
    }
    for name in &args.command {
        let Some(found) = page.find_subcommand(name) else {
            let names: Vec<&str> = page
                .get_subcommands()
                .filter(|below| !below.is_hide_set())
                .map(Command::get_name)
                .filter(|name| *name != "help")
                .collect();
            return Err(Failure::new(format!(
                "man {name}: there is no such command. There are: {}",
                names.join(", ")
            )));
        };
        page = found.clone();
    }
    let (_, text) = rendered(page).map_err(|error| Failure::new(error.to_string()))?;
    print(&text)
}

/// A page's name and text.
fn rendered(page: Command) -> io::Result<(String, Vec<u8>)> {
    let name = page.get_bin_name().unwrap_or("gputrace").replace(' ', "-");
    let mut text = Vec::new();
    clap_mangen::Man::new(page.display_name(&name)).render(&mut text)?;
    Ok((name, text))
}

/// The pages of a command and of those below it. Only pages of ours are replaced.
fn write_pages(folder: &Path, page: &Command, parents: bool) -> Result<(), Failure> {
    for below in page
        .get_subcommands()
        .filter(|below| below.get_name() != "help" && !below.is_hide_set())
    {
        write_pages(folder, below, parents)?;
    }
    let (name, text) = rendered(page.clone()).map_err(|error| Failure::new(error.to_string()))?;
    let target = Target {
        existing: Existing::IsReplaced,
        parents,
        ..Target::new(&folder.join(format!("{name}.1")))
    };
    let written = target.write_file(&is_page, |mut file| file.write_all(&text));
    written.map_err(|error| Failure::new(cannot_be_written(&target.path, &error)))
}

/// Whether a file is a page of ours, by the line that they all have.
fn is_page(file: &File) -> bool {
    let mut beginning = Vec::new();
    let read = file.take(400).read_to_end(&mut beginning);
    let text = String::from_utf8_lossy(&beginning);
    read.is_ok() && text.lines().any(|line| line.starts_with(".TH gputrace"))
}

fn print(text: &[u8]) -> Result<i32, Failure> {
    Write::write_all(&mut io::stdout(), text)
        .map_err(|error| Failure::new(format!("cannot write to stdout: {error}")))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_command_line_has_the_options_of_workloads() {
        let mut whole = command();
        whole.build();
        let ddp = whole
            .find_subcommand("workload")
            .and_then(|workload| workload.find_subcommand("ddp"))
            .expect("a workload");
        assert!(
            ddp.get_arguments()
                .any(|option| option.get_long() == Some("bucket-mb"))
        );
    }
}
