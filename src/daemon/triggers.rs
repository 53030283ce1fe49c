//! `gputrace triggers`: the rules, what they found, and what they would have found.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use gputrace_analyzer::{Analysis, Options, hangs};
use gputrace_daemon::history::step::Step;
use gputrace_daemon::settings::Config;
use gputrace_daemon::triggers::fired::Fired;
use gputrace_daemon::triggers::rules::{Kind, Rules};
use gputrace_daemon::triggers::watch::Watch;
use gputrace_trace::daemon::{Ask, StepReport};
use gputrace_trace::step_names::step_word;
use serde_json::{Value, json};

use super::client::{document, text};
use crate::cli::TriggersArgs;
use crate::failure::Failure;
use crate::opening;
use crate::print_json::print_json;

/// Lists them, or tries the rules.
pub fn run(args: &TriggersArgs) -> Result<i32, Failure> {
    let answer = match &args.what {
        Some(path) if args.test => {
            args.import.apply();
            let rules = match &args.config {
                Some(file) => Config::read(file).map_err(Failure::new)?.rules,
                None => Rules::default(),
            };
            let recording = opening::open(&[ring(args, path)?.unwrap_or_else(|| path.clone())])?;
            let analysis = gputrace_analyzer::analyze(&recording, &Options::default());
            let fired = over(&rules, &analysis);
            json!({
                "schema": "gputrace.triggers/1",
                "rules": rules,
                "steps": steps(&analysis).len(),
                "fired": fired,
            })
        }
        what => {
            let job = what.as_ref().map(|what| what.to_string_lossy().into_owned());
            document(&args.socket, Ask::Triggers { job })?
        }
    };
    if args.json {
        print_json(&answer)?;
    } else {
        print(&answer);
    }
    Ok(0)
}

/// The ring of a job of this name, where there is no file of that name.
fn ring(args: &TriggersArgs, name: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some(job) = name.to_str().filter(|_| !name.exists()) else {
        return Ok(None);
    };
    let ask = Ask::Job {
        job: Some(job.to_owned()),
    };
    let Ok(found) = document(&args.socket, ask) else {
        return Ok(None);
    };
    let ring = PathBuf::from(text(&found["recording"]));
    match std::fs::read_dir(&ring) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Failure::new(format!(
            "{job}: its ring is the daemon's alone: keep it with `gputrace snapshot {job} -o DIR`, and name that"
        ))),
        _ => Ok(Some(ring)),
    }
}

/// What the rules find in an analysis.
fn over(rules: &Rules, analysis: &Analysis) -> Vec<Fired> {
    let mut watch = Watch::default();
    let mut fired: Vec<Fired> = steps(analysis)
        .iter()
        .flat_map(|step| watch.step(rules, step))
        .collect();
    for hang in analysis.hangs.iter().filter(|hang| !hang.follows) {
        let title = format!("{}: {}", hangs::text(hang), hangs::evidence(hang));
        fired.extend(watch.event(rules, Kind::Hang, None, title, hang.noticed_ns.0));
    }
    fired
}

/// The steps of all ranks, matched by their numbers; without numbers by their places.
fn steps(analysis: &Analysis) -> Vec<Step> {
    let mut all: BTreeMap<u64, Vec<(u32, StepReport)>> = BTreeMap::new();
    for (place, rank) in (0u32..).zip(&analysis.ranks) {
        for (number, step) in (0u64..).zip(&rank.steps) {
            let number = step_word(step.name.as_bytes())
                .and_then(|(_, number)| number)
                .unwrap_or(number);
            let measures = &step.measures;
            let report = StepReport {
                number,
                start_ns: step.host_start_ns.unwrap_or(step.start_ns).0,
                duration_ns: step.host_duration_ns.unwrap_or(step.duration_ns),
                communication_ns: Some(measures.communication_ns),
                compute_ns: Some(measures.compute_ns),
                exposed_ns: Some(measures.communication_exposed_ns),
                idle_ns: Some(measures.idle_ns),
            };
            let reports = all.entry(number).or_default();
            let rank = rank.rank.unwrap_or(place);
            // A rank with several devices: its first one tells.
            if !reports.iter().any(|(known, _)| *known == rank) {
                reports.push((rank, report));
            }
        }
    }
    all.into_iter()
        .map(|(number, reports)| Step::of(number, reports, 0))
        .collect()
}

fn print(answer: &Value) {
    let fired: Vec<&Value> = answer["fired"].as_array().into_iter().flatten().collect();
    if fired.is_empty() {
        match answer["steps"].as_u64() {
            Some(0) => anstream::println!(
                "it has no steps that can be tried: kernels of none were recorded, as of a capture or in mode full"
            ),
            Some(steps) => anstream::println!("nothing would have fired in {steps} steps"),
            None => anstream::println!("nothing has fired"),
        }
    }
    for fired in fired {
        let job = match &fired["job"] {
            Value::Null => String::new(),
            job => format!("{}: ", text(job)),
        };
        let kept = match &fired["recording"] {
            Value::Null => String::new(),
            recording => format!("  ({})", text(recording)),
        };
        anstream::println!(
            "{job}{}: {}{kept}",
            text(&fired["trigger"]),
            text(&fired["title"])
        );
    }
}
