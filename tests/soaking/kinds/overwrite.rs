//! `--force` and `-o` at what is not ours: it stays, whatever it is.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::gputrace;
use crate::random::Random;
use crate::world::World;
use crate::{arena, program};

const FORMATS: &[&str] = &["chrome", "perfetto", "tensorboard", "xplane", "parquet", "html"];

/// A home with somebody's things in it, and a recording among them.
struct Home {
    folder: PathBuf,
    recording: PathBuf,
}

impl Home {
    fn new(world: &World, folder: &Path) -> Self {
        let home = folder.join("home");
        let recording = home.join("runs/run1");
        arena::copy(world.recording(), &recording);
        for path in [
            "thesis/chapter 1.txt",
            "thesis/figures/one.png",
            "runs/notes.txt",
            "empty/.keep",
        ] {
            let path = home.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, "years of work").expect("a file");
        }
        symlink(home.join("thesis"), home.join("link")).expect("a link");
        symlink(&recording, home.join("run link")).expect("a link");
        Self {
            folder: home,
            recording,
        }
    }

    /// What a slip of the hand names.
    fn target(&self, random: &mut Random) -> PathBuf {
        let targets = [
            self.folder.join("thesis"),
            self.folder.join("thesis/"),
            self.folder.join("thesis/figures"),
            self.folder.join("thesis/../thesis"),
            self.folder.join("link"),
            self.folder.join("link/"),
            self.folder.join("run link"),
            self.recording.clone(),
            self.recording.join("."),
            self.folder.join("runs"),
            self.folder.join("runs/."),
            self.folder.clone(),
            self.folder.join("runs/.."),
            PathBuf::from("."),
            PathBuf::from("runs/run1"),
            PathBuf::from("runs/run1/.."),
        ];
        random.one_of(&targets).clone()
    }

    fn command(&self) -> Command {
        let mut command = gputrace();
        command.current_dir(&self.folder).env("HOME", &self.folder);
        command
    }
}

/// One command, one target.
pub fn somebody_elses(world: &World, mut random: Random, folder: &Path) {
    let home = Home::new(world, folder);
    let before = arena::snapshot(folder, None);
    let target = home.target(&mut random);
    let mut command = home.command();
    match random.below(6) {
        0 => {
            command.arg("merge").arg(&home.recording).arg("-o").arg(&target);
        }
        1 => {
            command
                .arg("merge")
                .arg(&home.recording)
                .arg("-o")
                .arg(home.recording.join("inside"));
        }
        2 => {
            command.args(["record", "--device", "sim", "-o"]).arg(&target);
            command.args(["--", "true"]);
        }
        _ => {
            command.arg("export").arg(&home.recording);
            command.args(["--format", random.pick(FORMATS), "--force", "-o"]);
            command.arg(&target);
        }
    }
    let ended = program::run(&mut command, folder, Duration::from_secs(50));
    let after = arena::snapshot(folder, None);
    if let Some(changed) = arena::difference(&before, &after) {
        panic!("{changed}, by {command:?}: {}", ended.stderr);
    }
    ended.refused();
}
