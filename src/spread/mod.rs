//! `gputrace analyze --on`: a run read by workers of Ray, of Slurm or of this machine, each some ranks of it, and put together here.

mod folder;
mod launch;
mod local;
mod plan;
mod progress;
mod ray;
mod schedule;
mod slurm;
mod task;
pub mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use gputrace_analyzer::partial::{self, Partial};
use gputrace_analyzer::{Analysis, ClockChoice, Lost, Options};
use gputrace_interchange::import;
use gputrace_trace::place::{Existing, Target};
use gputrace_trace::seal::digest;

use crate::analyze::{self, clock_choice};
use crate::cli::{AnalyzeArgs, On};
use crate::export::{cannot_be_written, interrupted};
use crate::failure::Failure;
use crate::record::child;
use crate::{partial as partial_file, reduce};
use folder::{ANALYSIS, Folder};
use launch::Launch;
use plan::Plan;
use progress::Progress;
use schedule::{Engine, Outcome, Schedule};
use task::{Task, made};

/// A partial that was damaged on the disk is made again so many times.
const AGAIN: usize = 2;

/// Opens the engine that --on names.
fn open(on: &On, launch: Launch) -> Result<Box<dyn Engine>, Failure> {
    Ok(match on {
        On::Local(workers) => {
            let cores = || std::thread::available_parallelism().map_or(1, usize::from);
            Box::new(local::Local::new(launch, workers.unwrap_or_else(cores)))
        }
        On::Slurm(partition) => Box::new(slurm::Slurm::new(launch, partition.clone())?),
        On::Ray(address) => Box::new(ray::Ray::new(launch, address.as_deref())?),
    })
}

fn launch(args: &AnalyzeArgs, folder: &Folder) -> Result<Launch, Failure> {
    let own = std::env::current_exe().and_then(fs::canonicalize);
    let program = args.worker.clone().map_or(own, Ok);
    let about = |error: io::Error| Failure::new(format!("this program's own place is not known: {error}"));
    let name = digest(folder.work.as_os_str().as_encoded_bytes());
    Ok(Launch {
        program: program.map_err(about)?,
        directory: std::env::current_dir().map_err(about)?,
        partials: folder.partials.clone(),
        work: folder.work.clone(),
        name: format!("gputrace-{}", &name[..12]),
    })
}

/// What is at work on a run.
struct Driver<'a> {
    args: &'a AnalyzeArgs,
    folder: &'a Folder,
    engine: Box<dyn Engine>,
}

/// What was put together, of which tasks, and what is lost of it.
struct Joined {
    partial: Partial,
    tasks: Vec<Task>,
    lost: Vec<Lost>,
}

/// Why nothing could be put together.
enum NotJoined {
    /// Partials that do not belong together.
    Refused(String),
    Failed(Failure),
}

impl From<Failure> for NotJoined {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Driver<'_> {
    fn run(&mut self, what: &str, tasks: &[Task]) -> Result<BTreeMap<String, Outcome>, Failure> {
        let ranks: usize = tasks.iter().map(|task| task.ranks.len().max(1)).sum();
        let unit = match tasks.iter().all(|task| task.ranks.is_empty()) {
            true => "files",
            false => "ranks",
        };
        let mut progress = Progress::new(what.to_owned(), unit, ranks);
        let outcomes =
            Schedule::new(&self.folder.partials, tasks).run(self.engine.as_mut(), &mut progress)?;
        let names = tasks.iter().map(|task| task.name.clone());
        Ok(names.zip(outcomes).collect())
    }

    /// Makes the partials of all tasks, and puts them together.
    fn join(&mut self, mut tasks: Vec<Task>, what: &str) -> Result<Joined, NotJoined> {
        let folder = &self.folder.partials;
        let mut again = 0;
        loop {
            let outcomes = self.run(what, &tasks)?;
            let fails = |task: &Task| outcomes.get(&task.name) != Some(&Outcome::Made);
            if tasks.iter().any(|task| fails(task) && task.ranks.len() > 1) {
                // It may be one of its ranks alone.
                let parts = tasks.into_iter().flat_map(|task| match fails(&task) {
                    true => task.by_rank(),
                    false => vec![task],
                });
                tasks = parts.collect();
                continue;
            }
            let (mut lost, mut here, mut notes) = (Vec::new(), Vec::new(), Vec::new());
            for task in &tasks {
                let beside = |why: &str| {
                    let file = Path::new(task.arguments.get(1)?);
                    import::beside_note(&self.args.paths, file, why)
                };
                let why = match outcomes.get(&task.name) {
                    Some(Outcome::Made) => {
                        here.push(task);
                        continue;
                    }
                    Some(Outcome::Refused(why)) => match beside(why) {
                        Some(note) => {
                            notes.push(note);
                            continue;
                        }
                        None => why.clone(),
                    },
                    Some(Outcome::Died(how)) => {
                        format!("its worker died three times, the last time so: {how}")
                    }
                    None => "it was never begun".to_owned(),
                };
                lost.push(Lost {
                    ranks: task.ranks.clone(),
                    why,
                });
            }
            if here.is_empty() {
                let why = lost.first().map(|lost| &lost.why).or(notes.first());
                let why = why.map_or("nothing is in it", String::as_str);
                return Err(Failure::new(why).into());
            }
            let mut files = plan::partials(folder, here.into_iter());
            loop {
                let branches = plan::together(&files);
                if branches.is_empty() {
                    break;
                }
                let outcomes = self.run("putting together", &branches)?;
                let is_made = |task: &&Task| outcomes.get(&task.name) == Some(&Outcome::Made);
                if !branches.iter().all(|task| is_made(&task)) {
                    // What is wrong with one of them is said where all are read.
                    break;
                }
                files = plan::partials(folder, branches.iter());
            }
            let damaged: Vec<&PathBuf> = match reduce::read(&files) {
                Ok((all, _)) => {
                    let mut merged =
                        partial::merge(all).map_err(|wrong| NotJoined::Refused(wrong.to_string()))?;
                    // Where the one who reads them together would say it.
                    if let Some(first) = merged.bases.first_mut() {
                        first.recording.notes.splice(0..0, notes);
                    }
                    return Ok(Joined {
                        partial: merged,
                        tasks,
                        lost,
                    });
                }
                Err(failure) if again == AGAIN => return Err(failure.into()),
                Err(_) => files
                    .iter()
                    .filter(|file| partial_file::read(file).is_err())
                    .collect(),
            };
            again += 1;
            for file in damaged {
                // Its task makes it again.
                let _ = fs::remove_file(file);
            }
        }
    }

    /// The whole run, its clocks compared.
    fn whole(&mut self, plan: &Plan, clocks: &ClockChoice) -> Result<Joined, NotJoined> {
        let given = self.args.clocks.display().to_string();
        let given = match clocks {
            // Where it is relative, it is so to where the workers are too.
            ClockChoice::Given(_) | ClockChoice::Compared(_) => given,
            ClockChoice::None => "none".to_owned(),
            ClockChoice::Estimate if plan.is_own => "none".to_owned(),
            ClockChoice::Estimate => "estimate".to_owned(),
        };
        let first = match plan.compares && plan.is_own {
            true => "reading, to compare clocks",
            false => "reading",
        };
        let joined = self.join(plan.tasks(&given), first)?;
        let Some(compared) = joined.partial.clocks().filter(|_| plan.compares) else {
            return Ok(joined);
        };
        if !plan.is_own {
            // Estimated file by file, clocks of some traces come out otherwise than of all together.
            return Err(NotJoined::Refused("their clocks differ".to_owned()));
        }
        let file = self.folder.work.join("clocks.json");
        let target = Target {
            path: file.clone(),
            existing: Existing::IsReplaced,
            ..Target::default()
        };
        let written = target.write_file(&|_| true, |mut file| file.write_all(compared.text().as_bytes()));
        written.map_err(|error| Failure::new(cannot_be_written(&file, &error)))?;
        self.join(plan.tasks(&file.display().to_string()), "reading")
    }
}

/// The analysis of what the arguments name, and whether it is simulated; it is in the folder too.
pub fn analyze(
    args: &AnalyzeArgs,
    on: &On,
    output: &Path,
    options: &Options,
) -> Result<(Analysis, bool), Failure> {
    let clocks = clock_choice(&args.clocks)?;
    if let Some(missing) = args.paths.iter().find(|path| !path.exists()) {
        return Err(Failure::new(format!(
            "{}: no such file or folder",
            missing.display()
        )));
    }
    let plan = Plan::of(args, &clocks)?;
    let folder = Folder::open(output, &args.paths, args.writing.parents)?;
    match done(args, on, &plan, &clocks, &folder, options) {
        Ok((analysis, simulated, tasks)) => {
            let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
            let stay = names
                .iter()
                .filter(|name| made(&folder.partials, name).exists())
                .count();
            anstream::eprintln!(
                "{}: wrote {ANALYSIS}; kept {stay} partials, which the same command uses again",
                folder.path.display()
            );
            folder.close(&names);
            Ok((analysis, simulated))
        }
        Err(failure) => {
            folder.give_up();
            Err(failure)
        }
    }
}

/// The same, with the tasks that it is made of.
fn done(
    args: &AnalyzeArgs,
    on: &On,
    plan: &Plan,
    clocks: &ClockChoice,
    folder: &Folder,
    options: &Options,
) -> Result<(Analysis, bool, Vec<Task>), Failure> {
    child::note_signals();
    let engine = open(on, launch(args, folder)?)?;
    let mut driver = Driver { args, folder, engine };
    let joined = match driver.whole(plan, clocks) {
        Err(NotJoined::Refused(_)) if !plan.is_own && plan.len() > 1 => {
            driver.whole(&plan.whole(&args.paths)?, clocks)
        }
        joined => joined,
    };
    drop(driver);
    child::forget_signals();
    interrupted::leaves_nothing();
    if let (Ok(_), Some(signal)) = (&joined, child::asked_to_end()) {
        return Err(Failure::new(format!(
            "ended by signal {signal}: the same command goes on from there"
        ))
        .with_status(128 + signal));
    }
    let joined = joined.map_err(|why| match why {
        NotJoined::Failed(failure) => failure,
        NotJoined::Refused(why) => Failure::new(why),
    })?;
    let Joined { partial, tasks, lost } = joined;
    let source = analyze::source_of(&args.paths);
    let (mut analysis, simulated) = analyze::of_partial(partial, options, lost, Some(source))?;
    if let Some(top) = args.top.filter(|_| args.json) {
        analysis.keep_top_kernels(top);
    }
    let target = Target {
        path: folder.path.join(ANALYSIS),
        existing: Existing::IsReplaced,
        ..Target::default()
    };
    let written = target.write_file(&|_| true, |file| {
        let mut out = BufWriter::with_capacity(1 << 18, file);
        crate::print_json::write_json(&mut out, &analysis)
    });
    written.map_err(|error| Failure::of_output(cannot_be_written(&target.path, &error)))?;
    Ok((analysis, simulated, tasks))
}
