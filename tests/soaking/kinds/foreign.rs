//! What other programs wrote, or seem to have: any bytes are a recording that is sound, or one line that refuses them.
//!
//! The fuzz targets' readers and checks on their corpora, with random changes instead of a search.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gputrace_interchange::import::{Progress, open};

use crate::common::gputrace;
use crate::random::Random;
use crate::world::World;
use crate::{again, analyses, arena, bytes, program, recordings, seeds};

fn corpus_of_traces() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = seeds::corpus("kineto");
        all.extend(seeds::corpus("analyze"));
        all
    })
}

fn corpus_of_databases() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| seeds::corpus("nsight"))
}

fn corpus_of_tables() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| seeds::corpus("recording"))
}

/// Reads paths in this process, and checks what comes of it.
fn check(paths: &[PathBuf], is_analysed: bool, with_tables: bool) {
    match open(paths, &Progress::default()) {
        Ok(recording) => {
            if paths.len() == 1 {
                recordings::check_import(&recording);
            } else {
                recordings::check(&recording);
            }
            if is_analysed {
                analyses::check(&recording);
                again::check(&recording);
                if with_tables {
                    analyses::check_tables(&recording);
                }
            }
        }
        Err(error) => recordings::check_refusal(&error),
    }
}

/// The same by the program, once in a while: what it prints is made of all that is there.
fn check_program(random: &mut Random, path: &Path, folder: &Path) {
    if !random.once_in(150) {
        return;
    }
    let mut command = gputrace();
    command.arg("analyze").arg(path);
    if random.once_in(2) {
        command.arg("--json");
    }
    program::run(&mut command, folder, std::time::Duration::from_secs(25)).check();
}

fn packed(bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let mut packed = match random.below(8) {
        0 | 1 => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&bytes).expect("into memory");
            encoder.finish().expect("into memory")
        }
        2 => zstd::encode_all(bytes.as_slice(), 1).expect("into memory"),
        _ => return bytes,
    };
    if random.once_in(2) {
        bytes::damage(&mut packed, random);
    }
    if random.once_in(4) {
        packed.truncate(random.below(packed.len()));
    }
    packed
}

fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut content = random.one_of(corpus).clone();
    let other = random.one_of(corpus);
    bytes::mutate(&mut content, other, random);
    content
}

/// One trace file.
pub fn trace(_: &World, mut random: Random, folder: &Path) {
    let content = mutated(corpus_of_traces(), &mut random);
    let path = folder.join("trace.json");
    std::fs::write(&path, packed(content, &mut random)).expect("a file");
    check(std::slice::from_ref(&path), random.once_in(4), false);
    check_program(&mut random, &path, folder);
}

/// Files of several ranks.
pub fn run_of_several(_: &World, mut random: Random, folder: &Path) {
    let run = folder.join("run");
    std::fs::create_dir(&run).expect("a folder");
    let mut paths = Vec::new();
    for rank in 0..1 + random.below(4) {
        let content = mutated(corpus_of_traces(), &mut random);
        let path = run.join(format!("rank{rank}.json"));
        std::fs::write(&path, packed(content, &mut random)).expect("a file");
        paths.push(path);
    }
    check(&paths, true, random.once_in(16));
    check_program(&mut random, &run, folder);
}

/// An SQLite file.
pub fn database(_: &World, mut random: Random, folder: &Path) {
    let corpus = corpus_of_databases();
    let mut content = random.one_of(corpus).clone();
    match random.below(4) {
        // Whole pages, as SQLite writes them.
        0 => {
            let (page, other) = (512 << random.below(4), random.one_of(corpus));
            let at = random.below(content.len()) / page * page;
            let from = random.below(other.len()) / page * page;
            let length = page.min(content.len() - at).min(other.len() - from);
            content[at..at + length].copy_from_slice(&other[from..from + length]);
        }
        1 => {
            let other = random.one_of(corpus);
            bytes::mutate(&mut content, other, &mut random);
        }
        2 => content.truncate(random.below(content.len())),
        _ => {
            for _ in 0..1 + random.below(8) {
                bytes::damage(&mut content, &mut random);
            }
        }
    }
    let path = folder.join("report.sqlite");
    std::fs::write(&path, content).expect("a file");
    check(std::slice::from_ref(&path), random.once_in(4), false);
    check_program(&mut random, &path, folder);
}

/// A file of a recording replaced by any bytes: one of its tables, most of the time, or a file of JSON.
pub fn table(world: &World, mut random: Random, folder: &Path) {
    use gputrace_trace::follow::{Follower, Progress};
    use gputrace_trace::tables::TABLE_NAMES;

    let recording = folder.join("recording");
    arena::copy(world.recording(), &recording);
    let file = random.one_of(&arena::files(&recording)).clone();
    let name = file
        .file_stem()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let table = TABLE_NAMES.iter().copied().find(|table| *table == name);
    let corpus = corpus_of_tables();
    // The first byte says which file it was for the fuzz target.
    let mut content = match (random.below(3), table) {
        (0, _) => random.one_of(corpus).iter().skip(1).copied().collect(),
        _ => std::fs::read(&file).expect("a file"),
    };
    let other = random.one_of(corpus);
    bytes::mutate(&mut content, other, &mut random);
    // Whoever follows it while it grows reads the same as who opens it whole.
    let mut followed = Some(0);
    if let Some(table) = table {
        let mut follower = Follower::new(&recording, &[table]);
        let mut progress = Progress::new(&recording);
        for part in [&content[..content.len() / 2], &content] {
            std::fs::write(&file, part).expect("a file");
            progress.read().expect("a recording that can be read");
            for growth in follower.read().expect("a recording that can be read") {
                let counts = growth.tables.row_counts();
                let rows = counts.iter().map(|(_, rows)| rows).sum::<usize>();
                followed = followed
                    .filter(|_| growth.damaged.is_empty())
                    .map(|all| all + rows);
            }
        }
    }
    std::fs::write(&file, &content).expect("a file");
    match gputrace_trace::Recording::open(&recording) {
        Ok(opened) => {
            recordings::check(&opened);
            analyses::check(&opened);
            if let (Some(table), Some(followed)) = (table, followed) {
                let counts = opened.processes.iter().map(|process| process.tables.row_counts());
                let of_it = counts.flatten().filter(|(name, _)| *name == table);
                let rows: usize = of_it.map(|(_, rows)| rows).sum();
                assert_eq!(rows, followed, "rows of {table} by opening, and by following");
            }
        }
        Err(error) => {
            assert!(table.is_none(), "refused for a table: {error}");
            recordings::check_refusal(&error);
        }
    }
    check_program(&mut random, &recording, folder);
}

/// A file of an export to Parquet.
pub fn parquet(world: &World, mut random: Random, folder: &Path) {
    let export = folder.join("export");
    arena::copy(world.parquet(), &export);
    let files = arena::files(&export);
    let file = random.one_of(&files).clone();
    let mut content = std::fs::read(&file).expect("a file");
    match random.below(4) {
        0 => content.truncate(random.below(content.len())),
        1 => bytes::mutate(
            &mut content,
            &std::fs::read(random.one_of(&files)).expect("a file"),
            &mut random,
        ),
        2 => content = std::fs::read(random.one_of(&files)).expect("a file"),
        _ => bytes::damage(&mut content, &mut random),
    }
    std::fs::write(&file, content).expect("a file");
    match open(std::slice::from_ref(&export), &Progress::default()) {
        Ok(recording) => {
            recordings::check(&recording);
            analyses::check(&recording);
        }
        Err(error) => recordings::check_refusal(&error),
    }
    check_program(&mut random, &export, folder);
}
