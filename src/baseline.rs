//! `gputrace baseline`: what a run took, saved in a small file that later runs are compared with.

use std::io::Write;
use std::path::Path;

use gputrace_analyzer::baseline::{Baseline, SCHEMA};
use gputrace_trace::access;
use gputrace_trace::place::{Existing, Target};
use gputrace_trace::seal::seal_json;

use crate::cli::compare::FOLDER;
use crate::cli::{BaselineArgs, BaselineCommand};
use crate::export::{cannot_be_written, interrupted};
use crate::failure::Failure;
use crate::report::{Overflow, print_table};
use crate::runs;
use crate::text::{bytes, duration};

/// Saves, lists or shows.
pub fn run(args: &BaselineArgs) -> Result<i32, Failure> {
    let folder = Path::new(&args.dir);
    match &args.command {
        BaselineCommand::Save {
            name,
            path,
            steps,
            force,
            parents,
            import,
        } => {
            import.apply();
            interrupted::leaves_nothing();
            check_name(name)?;
            let run = runs::open(path, folder, *steps)?;
            let target = Target {
                existing: if *force {
                    Existing::IsReplaced
                } else {
                    Existing::StaysUnlessForced
                },
                // The folder that nobody named is ours to make.
                parents: *parents || folder == Path::new(FOLDER),
                ..Target::new(&runs::named(folder, name))
            };
            save(&run.small(), &target)
        }
        BaselineCommand::List { json } => list(folder, *json),
        BaselineCommand::Show { name } => show(folder, name),
    }
}

/// A name is a file's.
fn check_name(name: &str) -> Result<(), Failure> {
    let plain = |letter: char| letter.is_alphanumeric() || "-_.+".contains(letter);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(Failure::new(format!(
            "\"{name}\" is no name for a baseline: letters, digits, - _ . + alone"
        )));
    }
    Ok(())
}

fn save(run: &Baseline, target: &Target) -> Result<i32, Failure> {
    access::follow_umask();
    let mut length = 0;
    let written = target.write_file(&runs::is_baseline, |mut file| {
        let mut text = serde_json::to_vec(run).map_err(std::io::Error::from)?;
        // Bound to what it is: baselines may be renamed.
        seal_json(&mut text, SCHEMA);
        length = text.len();
        file.write_all(&text)
    });
    written.map_err(|error| Failure::new(cannot_be_written(&target.path, &error)))?;
    anstream::eprintln!(
        "{}: {} steps of {} GPUs, {}",
        target.path.display(),
        run.steps(),
        run.devices.len(),
        bytes(length as u64)
    );
    Ok(0)
}

/// Names of the baselines that are there, in order.
fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(Failure::new(format!(
                "{}: cannot be read: {error}",
                folder.display()
            )));
        }
        Ok(entries) => entries,
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_suffix(".json")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    Ok(names)
}

/// "42.3 ms".
fn step(run: &Baseline) -> String {
    let mut steps = run.step_ns.clone();
    steps.sort_unstable();
    steps
        .get(steps.len() / 2)
        .map_or_else(|| "-".to_owned(), |step| duration(*step))
}

fn list(folder: &Path, json: bool) -> Result<i32, Failure> {
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for name in names(folder)? {
        let path = runs::named(folder, &name);
        match runs::read(&path) {
            Ok(run) => {
                objects.push(serde_json::json!({
                    "name": name, "source": run.source, "device": run.device, "gpus": run.devices.len(),
                    "steps": if run.whole_run.is_some() { 0 } else { run.steps() },
                }));
                rows.push(vec![
                    name,
                    step(&run),
                    run.steps().to_string(),
                    run.devices.len().to_string(),
                    run.device,
                    run.source,
                ]);
            }
            Err(failure) => anstream::eprintln!("gputrace: {failure}"),
        }
    }
    if json {
        crate::print_json::print_json(&objects)?;
    } else if rows.is_empty() {
        anstream::println!(
            "No baselines in {}: gputrace baseline save NAME PATH",
            folder.display()
        );
    } else {
        print_table(
            "Baselines",
            &["name", "step", "steps", "GPUs", "device", "of"],
            &rows,
            Overflow::Drop,
        );
    }
    Ok(0)
}

fn show(folder: &Path, name: &str) -> Result<i32, Failure> {
    let path = Path::new(name);
    let path = if path.is_file() {
        path.to_owned()
    } else {
        runs::named(folder, name)
    };
    if !path.is_file() {
        let there = names(folder)?.join(", ");
        let there = if there.is_empty() {
            "none".to_owned()
        } else {
            there
        };
        return Err(Failure::new(format!(
            "{name}: there is no baseline of this name in {}: there are {there}",
            folder.display()
        )));
    }
    crate::print_json::print_json(&runs::read(&path)?)?;
    Ok(0)
}
