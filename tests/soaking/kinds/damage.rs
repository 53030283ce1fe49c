//! Recordings of ours whose files are damaged: what was whole is read, and no number changes unsaid.

use std::path::{Path, PathBuf};

use gputrace_trace::manifest::{MANIFEST_FILE, PROCESS_FILE};

use crate::random::Random;
use crate::world::World;
use crate::{analyses, arena, bytes, compare, recordings};

/// A copy to damage.
fn copy(world: &World, folder: &Path) -> PathBuf {
    let path = folder.join("recording");
    arena::copy(world.recording(), &path);
    path
}

fn is_json(file: &Path) -> bool {
    file.ends_with(MANIFEST_FILE) || file.ends_with(PROCESS_FILE)
}

/// Opens what is left of a recording and checks it against the whole one. `damaged`: the files that are not as they were.
#[track_caller]
fn check(world: &World, recording: &Path, damaged: &[PathBuf]) {
    let whole = world.read();
    let left = match compare::read(recording) {
        Ok(left) => left,
        // Without its manifest a folder may be no recording; its tables never make it none.
        Err(line) => {
            assert!(damaged.iter().any(|file| is_json(file)), "refused: {line}");
            return;
        }
    };
    recordings::check(&left.recording);
    analyses::check(&left.recording);
    let said = compare::said(&whole.recording, &left.recording);
    let differ = compare::differences(&whole.recording, &left.recording);
    if said.is_empty() {
        assert!(differ.is_empty(), "changed unsaid: {differ:?}");
        assert_eq!(left.analysis, whole.analysis, "numbers changed unsaid");
        return;
    }
    let table_of = |file: &PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
    let damaged_tables: Vec<String> = damaged.iter().filter_map(table_of).collect();
    // What clocks and headers say is about all of a process: where they are damaged, times are moved and rows are judged anew.
    let decides = |file: &PathBuf| is_json(file) || file.file_stem().is_some_and(|name| name == "clocks");
    if damaged.iter().any(decides) {
        return;
    }
    for (process, table, how) in &differ {
        assert!(
            damaged_tables.iter().any(|damaged| damaged == table),
            "{table} of {process} differs ({how:?}), and only {damaged:?} is damaged: {said:?}"
        );
        assert_eq!(
            *how,
            compare::Rows::Fewer,
            "{table} of {process} has other rows: {said:?}"
        );
        assert!(
            said.iter()
                .any(|text| text.contains(*table) || text.contains(process.as_str())),
            "{table} of {process} has fewer rows, and what is said is only {said:?}"
        );
    }
}

/// A file cut at a byte.
pub fn truncate(world: &World, mut random: Random, folder: &Path) {
    let recording = copy(world, folder);
    let file = random.one_of(&arena::files(&recording)).clone();
    let mut content = std::fs::read(&file).expect("a file");
    let cut = random.below(content.len());
    content.truncate(cut);
    std::fs::write(&file, content).expect("a cut file");
    check(world, &recording, &[file]);
}

/// Damage within one file, or several.
pub fn flip(world: &World, mut random: Random, folder: &Path) {
    let recording = copy(world, folder);
    let files = arena::files(&recording);
    let mut damaged = Vec::new();
    for _ in 0..*random.one_of(&[1, 1, 1, 1, 3]) {
        let file = random.one_of(&files).clone();
        let mut content = std::fs::read(&file).expect("a file");
        bytes::damage(&mut content, &mut random);
        std::fs::write(&file, content).expect("a damaged file");
        damaged.push(file);
    }
    check(world, &recording, &damaged);
}

/// Whole files in the wrong places.
pub fn swap(world: &World, mut random: Random, folder: &Path) {
    let recording = copy(world, folder);
    let files = arena::files(&recording);
    let file = random.one_of(&files).clone();
    let name = file.file_name().expect("a name").to_owned();
    // The same file of another process or recording; of the same process another table.
    let namesakes: Vec<PathBuf> = files
        .iter()
        .filter(|other| **other != file && other.file_name() == Some(&name))
        .cloned()
        .collect();
    let mut damaged = vec![file.clone()];
    let both = |other: &Path| {
        let (one, two) = (std::fs::read(&file), std::fs::read(other));
        std::fs::write(&file, two.expect("a file")).expect("written");
        std::fs::write(other, one.expect("a file")).expect("written");
    };
    match random.below(5) {
        0 if !namesakes.is_empty() => {
            let other = random.one_of(&namesakes).clone();
            both(&other);
            damaged.push(other);
        }
        1 => {
            let place = file.strip_prefix(&recording).expect("inside");
            std::fs::copy(world.other().join(place), &file).expect("a copy");
        }
        2 => {
            let other = random.one_of(&files).clone();
            if is_json(&other) == is_json(&file) {
                both(&other);
                damaged.push(other);
            }
        }
        3 => {
            // Twice in one: a copy that began again.
            let content = std::fs::read(&file).expect("a file");
            std::fs::write(&file, [content.clone(), content].concat()).expect("written");
        }
        _ => std::fs::remove_file(&file).expect("removed"),
    }
    // Whose tables they are is not known any more: what is read must be said to be odd, and be sound.
    let whole = world.read();
    let Ok(left) = compare::read(&recording) else {
        assert!(damaged.iter().any(|file| is_json(file)), "refused");
        return;
    };
    recordings::check(&left.recording);
    analyses::check(&left.recording);
    if compare::said(&whole.recording, &left.recording).is_empty() {
        let differ = compare::differences(&whole.recording, &left.recording);
        assert!(differ.is_empty(), "changed unsaid: {differ:?} by {damaged:?}");
        assert_eq!(
            left.analysis, whole.analysis,
            "numbers changed unsaid by {damaged:?}"
        );
    }
}
