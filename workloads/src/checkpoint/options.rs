//! Where checkpoints go and come from.

use std::path::{Path, PathBuf};

use clap::Args;

use super::save::in_the_way;
use crate::error::Error;

/// Where checkpoints go and come from.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Checkpoints")]
pub(crate) struct CheckpointOptions {
    /// Write a checkpoint to this file at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// And every N steps, each in the place of the one before
    #[arg(long, value_name = "N", requires = "save", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) save_every: Option<u64>,
    /// Go on from this checkpoint, of any way to train
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
}

impl CheckpointOptions {
    /// Where a checkpoint is due when `done` of `steps` steps are done, if one is.
    pub(crate) fn due(&self, done: u64, steps: u64) -> Option<&Path> {
        let is_due = done == steps || self.save_every.is_some_and(|every| done.is_multiple_of(every));
        self.save.as_deref().filter(|_| is_due)
    }

    /// Whether a checkpoint can be put where it is to go: better said before the training than behind it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(path) = &self.save else {
            return Ok(());
        };
        let refuse = |why: &str| Err(Error::new(format!("--save {}: {why}", path.display())));
        if let Some(why) = in_the_way(path) {
            return refuse(&why);
        }
        if path.file_name().is_none() {
            return refuse("names no file");
        }
        match folder(path).metadata() {
            Ok(found) if found.is_dir() => Ok(()),
            _ => refuse("the folder does not exist: make it first"),
        }
    }
}

/// The folder that a file is in.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: CheckpointOptions,
    }

    fn parse(words: &[&str]) -> Result<CheckpointOptions, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"workload").chain(words)).map(|cli| cli.options)
    }

    fn due(words: &[&str], steps: u64) -> Vec<u64> {
        let options = parse(words).expect("parses");
        (1..=steps)
            .filter(|&done| options.due(done, steps).is_some())
            .collect()
    }

    #[test]
    fn checkpoints_are_due_at_the_end_and_on_the_way() {
        assert_eq!(due(&[], 5), [0u64; 0]);
        assert_eq!(due(&["--save", "a"], 5), [5]);
        assert_eq!(due(&["--save", "a", "--save-every", "2"], 5), [2, 4, 5]);
    }

    #[test]
    fn options_that_say_nothing_are_refused() {
        assert!(parse(&["--save-every", "2"]).is_err(), "where to?");
        assert!(parse(&["--save", "a", "--save-every", "0"]).is_err());
    }

    #[test]
    fn places_that_cannot_hold_a_checkpoint_are_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let check = |path: &Path| {
            let save = Some(path.to_path_buf());
            CheckpointOptions {
                save,
                ..Default::default()
            }
            .check()
        };
        assert!(check(&folder.path().join("new")).is_ok());
        assert!(check(Path::new("in-the-working-folder")).is_ok());
        for bad in [
            folder.path(),
            &folder.path().join("none/new"),
            Path::new("/dev/null"),
            Path::new(".."),
        ] {
            let error = check(bad).expect_err("refused").to_string();
            assert!(error.starts_with("--save"), "{error}");
        }
    }
}
