//! `gputrace` alone: what to do next on this machine.

use std::path::{Path, PathBuf};

use gputrace_trace::manifest::MANIFEST_FILE;

use crate::device;

/// What matters of a machine here.
struct Machine {
    /// Or why there are none.
    gpus: Result<u32, String>,
    has_torchrun: bool,
    /// Inside an allocation of Slurm's.
    is_slurm: bool,
    /// The newest recording of those in the current folder.
    recording: Option<PathBuf>,
}

impl Machine {
    fn look() -> Self {
        Self {
            gpus: device::count_gpus().and_then(|count| match count {
                0 => Err("the driver knows no GPU".to_owned()),
                count => Ok(count),
            }),
            has_torchrun: is_in_path("torchrun"),
            is_slurm: std::env::var_os("SLURM_JOB_ID").is_some() && is_in_path("srun"),
            recording: newest_recording(Path::new(".")),
        }
    }

    /// Commands, each with what it does.
    fn next(&self) -> Vec<(String, &'static str)> {
        let mut next = Vec::new();
        let record = "gputrace record -o run1 --";
        let own = "your own job, unchanged";
        if let Some(recording) = &self.recording {
            let command = format!("gputrace view {}", recording.display());
            next.push((command, "the newest recording in this folder"));
        }
        match &self.gpus {
            Ok(count) => {
                let program = match count {
                    _ if self.is_slurm => format!("{record} srun python train.py"),
                    2.. if self.has_torchrun => {
                        format!("{record} torchrun --nproc-per-node {count} train.py")
                    }
                    _ => format!("{record} python train.py"),
                };
                next.push((program, own));
                next.push((
                    "gputrace record -- workload ddp".to_owned(),
                    "a small run of its own on these GPUs",
                ));
                next.push((
                    "gputrace demo".to_owned(),
                    "first see what comes of it, in the browser",
                ));
            }
            Err(_) => {
                next.push((
                    "gputrace demo".to_owned(),
                    "a recording that comes with it, in the browser",
                ));
                next.push((
                    "gputrace record -- workload ddp".to_owned(),
                    "a run on simulated GPUs",
                ));
                next.push((
                    "gputrace analyze TRACES".to_owned(),
                    "traces of PyTorch's profiler, or an Nsight Systems export",
                ));
                next.push((
                    format!("{record} torchrun --nproc-per-node 8 train.py"),
                    "where the GPUs are: your own job, unchanged",
                ));
            }
        }
        next.push(("gputrace doctor".to_owned(), "what this machine has and lacks"));
        next.push(("gputrace --help".to_owned(), "all commands"));
        next
    }
}

/// Says it.
pub fn print() {
    let machine = Machine::look();
    let found = match &machine.gpus {
        Ok(1) => "1 GPU here".to_owned(),
        Ok(count) => format!("{count} GPUs here"),
        Err(why) => format!("no GPU can be used here ({why})"),
    };
    anstream::println!(
        "gputrace {}: why a multi-GPU training job is slow\n\n{found}. What to do next:\n",
        env!("CARGO_PKG_VERSION")
    );
    let next = machine.next();
    let width = next.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    for (command, what) in next {
        anstream::println!("  {command:width$}   {what}");
    }
}

fn is_in_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// The folder with the youngest manifest in it.
fn newest_recording(folder: &Path) -> Option<PathBuf> {
    let folders = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.file_name());
    folders
        .filter_map(|name| {
            let modified = folder
                .join(&name)
                .join(MANIFEST_FILE)
                .metadata()
                .ok()?
                .modified()
                .ok()?;
            Some((modified, PathBuf::from(name)))
        })
        .max()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(gpus: Result<u32, String>, has_torchrun: bool, is_slurm: bool) -> Vec<String> {
        let machine = Machine {
            gpus,
            has_torchrun,
            is_slurm,
            recording: None,
        };
        machine.next().into_iter().map(|(command, _)| command).collect()
    }

    #[test]
    fn the_first_command_is_one_that_works_on_this_machine() {
        let first = |gpus, torchrun, slurm| commands(gpus, torchrun, slurm).swap_remove(0);
        assert_eq!(
            first(Ok(8), true, false),
            "gputrace record -o run1 -- torchrun --nproc-per-node 8 train.py"
        );
        assert_eq!(
            first(Ok(8), false, false),
            "gputrace record -o run1 -- python train.py"
        );
        assert_eq!(
            first(Ok(1), true, false),
            "gputrace record -o run1 -- python train.py"
        );
        assert_eq!(
            first(Ok(8), true, true),
            "gputrace record -o run1 -- srun python train.py"
        );
        assert_eq!(first(Err("no driver".to_owned()), true, false), "gputrace demo");
    }

    #[test]
    fn the_newest_recording_is_the_one_whose_manifest_is_youngest() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(newest_recording(folder.path()), None);
        for (name, seconds) in [("new", 200), ("old", 100)] {
            let run = folder.path().join(name);
            std::fs::create_dir(&run).expect("a folder");
            let file = std::fs::File::create(run.join(MANIFEST_FILE)).expect("a file");
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(time).expect("a time");
        }
        std::fs::create_dir(folder.path().join("newer, but no recording")).expect("a folder");
        assert_eq!(newest_recording(folder.path()), Some(PathBuf::from("new")));
    }
}
