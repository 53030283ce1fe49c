//! How a run is taken apart: its ranks, some at a time; its files; or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use gputrace_analyzer::ClockChoice;
use gputrace_interchange::import;
use gputrace_trace::seal::digest;

use super::task::{Task, made};
use crate::apart::{Run, fingerprint};
use crate::cli::AnalyzeArgs;
use crate::failure::Failure;
use crate::partial::PROGRAM;

/// Each rank is a task of its own up to here; of a larger run some that follow each other are, since each task reads what is said of
/// the whole.
const RANKS_APART: usize = 128;
/// Partials that are put together by one task.
const BRANCHES: usize = 32;

/// A task without its clocks: what it reads.
#[derive(Clone)]
struct Shard {
    arguments: Vec<String>,
    ranks: Vec<u32>,
    /// What its files were.
    fingerprint: String,
}

/// What is to be read.
pub struct Plan {
    shards: Vec<Shard>,
    /// Options of all.
    options: Vec<String>,
    /// Of recordings of our own, whose ranks are known.
    pub is_own: bool,
    /// The clocks may have to be compared before ranks can be, which takes all of them.
    pub compares: bool,
}

fn text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Failure::new(format!("{}: --on takes names that are UTF-8", path.display())))
}

impl Plan {
    /// Of what the arguments name.
    pub fn of(args: &AnalyzeArgs, clocks: &ClockChoice) -> Result<Self, Failure> {
        let mut options: Vec<String> = Vec::new();
        if let Some((first, last)) = args.steps {
            options.extend(["--steps".to_owned(), format!("{first}..{last}")]);
        }
        options.extend(["--sort".to_owned(), args.sort.word().to_owned()]);
        if args.short_names {
            options.push("--short-names".to_owned());
        }
        if args.writing.follow_umask {
            options.push("--follow-umask".to_owned());
        }
        options.extend(args.import.words());
        let empty = Self {
            shards: Vec::new(),
            options,
            is_own: false,
            compares: false,
        };
        if matches!(clocks, ClockChoice::Given(_)) {
            // Which clock stamped whom is seen by all of it together.
            return empty.whole(&args.paths);
        }
        let estimates = matches!(clocks, ClockChoice::Estimate);
        if let Some(run) = Run::open(&args.paths) {
            let Some(ranks) = run.ranks() else {
                return empty.whole(&args.paths);
            };
            let fingerprint = run.fingerprints();
            let paths: Vec<String> = args
                .paths
                .iter()
                .map(|path| text(path))
                .collect::<Result<_, _>>()?;
            let size = ranks.len().div_ceil(RANKS_APART).max(1);
            let shards = ranks.chunks(size).filter_map(|ranks| {
                let range = format!("{}..{}", ranks.first()?, ranks.last()?);
                Some(Shard {
                    arguments: paths
                        .iter()
                        .cloned()
                        .chain(["--ranks".to_owned(), range])
                        .collect(),
                    ranks: ranks.to_vec(),
                    fingerprint: fingerprint.clone(),
                })
            });
            return Ok(Self {
                compares: estimates && run.clocks_may_differ(),
                shards: shards.collect(),
                is_own: true,
                ..empty
            });
        }
        let Some(files) = import::files(&args.paths).filter(|files| files.len() > 1) else {
            return empty.whole(&args.paths);
        };
        let shards = files.into_iter().map(|file| {
            Ok(Shard {
                arguments: vec![text(&file)?],
                ranks: Vec::new(),
                fingerprint: fingerprint(&[file]),
            })
        });
        Ok(Self {
            shards: shards.collect::<Result<_, Failure>>()?,
            compares: estimates,
            ..empty
        })
    }

    /// The same as one task: files that only all together tell which ranks they are of.
    pub fn whole(&self, paths: &[PathBuf]) -> Result<Self, Failure> {
        Ok(Self {
            shards: vec![Shard {
                arguments: paths.iter().map(|path| text(path)).collect::<Result<_, _>>()?,
                ranks: Vec::new(),
                fingerprint: fingerprint(paths),
            }],
            options: self.options.clone(),
            is_own: false,
            compares: false,
        })
    }

    /// How many tasks it has.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// What has to be given to workers, with this for `--clocks`: a word, or a file.
    pub fn tasks(&self, clocks: &str) -> Vec<Task> {
        let content = match clocks {
            "none" | "estimate" => clocks.to_owned(),
            // One that can't be read is no reason to take another's partials.
            file => fs::read(file).map_or_else(|_| file.to_owned(), |bytes| digest(&bytes)),
        };
        let tasks = self.shards.iter().map(|shard| {
            let mut arguments = vec!["partial".to_owned()];
            arguments.extend(shard.arguments.iter().chain(&self.options).cloned());
            let known = format!(
                "{} {PROGRAM} {} {content} {arguments:?}",
                shard.fingerprint,
                gputrace_analyzer::partial::VERSION
            );
            arguments.extend(["--clocks".to_owned(), clocks.to_owned()]);
            Task {
                name: digest(known.as_bytes()),
                arguments,
                ranks: shard.ranks.clone(),
            }
        });
        tasks.collect()
    }
}

/// Tasks that put partials together, some at a time; none where they are few.
pub fn together(partials: &[PathBuf]) -> Vec<Task> {
    if partials.len() <= BRANCHES {
        return Vec::new();
    }
    let tasks = partials.chunks(BRANCHES).map(|some| {
        let mut arguments = vec!["reduce".to_owned()];
        arguments.extend(some.iter().map(|path| path.display().to_string()));
        Task {
            name: digest(format!("{PROGRAM} {arguments:?}").as_bytes()),
            arguments,
            ranks: Vec::new(),
        }
    });
    tasks.collect()
}

/// The partials of tasks.
pub fn partials<'a>(folder: &Path, tasks: impl Iterator<Item = &'a Task>) -> Vec<PathBuf> {
    tasks.map(|task| made(folder, &task.name)).collect()
}
