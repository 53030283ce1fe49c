//! Links, pipes and devices where a served folder has files: nobody gets out by them, and nobody waits for ever.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{gputrace, http};
use crate::random::Random;
use crate::seeds::{self, Words};
use crate::world::World;
use crate::{arena, program};

const SECRET: &str = "only-the-owner-reads-this";

fn pipe(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).expect("a plain path");
    // SAFETY: a path that ends in zero.
    let made = unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
    assert_eq!(made, 0, "a pipe");
}

/// Puts something else in the place of a file or folder.
fn replace(path: &Path, outside: &Path, random: &mut Random) {
    let name = path.file_name().expect("a name").to_owned();
    let namesake = arena::files(outside)
        .into_iter()
        .find(|file| file.file_name() == Some(&name));
    let was_folder = path.is_dir();
    if was_folder {
        std::fs::remove_dir_all(path).expect("removed");
    } else {
        std::fs::remove_file(path).expect("removed");
    }
    let folder = |number: usize| {
        let mut folders: Vec<PathBuf> = std::fs::read_dir(outside)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_dir())
            .collect();
        folders.sort();
        folders[number % folders.len()].clone()
    };
    match random.below(9) {
        // What it seems to be, but outside: the most that could be told.
        0..3 => {
            let target = match (was_folder, namesake) {
                (true, _) => folder(random.below(2)),
                (false, Some(file)) => file,
                (false, None) => outside.join("secret.txt"),
            };
            symlink(target, path).expect("a link");
        }
        3 => symlink(outside.join("secret.txt"), path).expect("a link"),
        4 => symlink("/dev/zero", path).expect("a link"),
        5 => symlink(path, path).expect("a link to itself"),
        6 => symlink(outside, path).expect("a link"),
        7 => symlink("../../../outside/secret.txt", path).expect("a link"),
        _ => pipe(path),
    }
}

/// A recording with something else in it, served and analysed.
pub fn lead_outside(world: &World, mut random: Random, folder: &Path) {
    let (served, outside) = (folder.join("served"), folder.join("outside"));
    std::fs::create_dir(&served).expect("a folder");
    arena::copy(world.recording(), &served.join("run"));
    let words = Words {
        host: SECRET,
        device: SECRET,
        kernel: SECRET,
        range: SECRET,
        command: SECRET,
        ..Words::default()
    };
    seeds::recording(&outside, 3, words);
    std::fs::write(outside.join("secret.txt"), SECRET).expect("a file");
    let mut places = arena::files(&served);
    for entry in std::fs::read_dir(served.join("run")).expect("a folder").flatten() {
        if entry.path().is_dir() {
            places.push(entry.path());
        }
    }
    if random.once_in(8) {
        places = vec![served.join("run")];
    }
    let place = random.one_of(&places).clone();
    replace(&place, &outside, &mut random);

    let viewer = http::serve(&served);
    let list = viewer.get("/api/recordings");
    let mut answers = vec![list.text()];
    if let Some(id) = list.json()["recordings"][0]["id"].as_str() {
        // It is read, or said why not.
        let path = format!("/api/rec/{id}/info");
        let mut answer = viewer.get(&path);
        for _ in 0..400 {
            let is_coming =
                answer.status == 503 || answer.status == 200 && answer.json()["analysed"] == false;
            if !is_coming {
                break;
            }
            std::thread::sleep(Duration::from_millis(25));
            answer = viewer.get(&path);
        }
        let generation = (answer.status == 200).then(|| answer.json()["generation"].clone());
        answers.push(answer.text());
        for what in ["analysis", "rows", "names", "overview"] {
            if let Some(generation) = &generation {
                answers.push(viewer.get(&format!("/api/rec/{id}/{generation}/{what}")).text());
            }
        }
    }
    for answer in answers {
        assert!(
            !answer.contains(SECRET),
            "{} gives away what is outside: {}",
            place.display(),
            &answer[..answer.len().min(2000)]
        );
    }
    drop(viewer);
    // Whoever analyses a folder of theirs may be led wherever they may read; but not for ever.
    let mut analyze = gputrace();
    analyze.arg("analyze").arg(served.join("run")).arg("--json");
    program::run(&mut analyze, folder, Duration::from_secs(25)).check();
}
