//! `gputrace merge`: puts the parts of one run, recorded on several hosts, into one folder.
//!
//! Process folders and manifests are taken as they are, by hard links where the disk allows it, else by copies. Everything
//! is made aside and renamed at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gputrace_analyzer::{clock_estimates, compared_estimates};
use gputrace_trace::alignment::ClockEstimate;
use gputrace_trace::json_file::{Json, json_text, read_json};

use gputrace_trace::manifest::{FORMAT, MANIFEST_FILE, Manifest};
use gputrace_trace::place::{self, NewFolder};
use gputrace_trace::recording::{manifest_files, process_folders};
use gputrace_trace::{Recording, access};

use crate::apart::Run;
use crate::cli::MergeArgs;
use crate::export::{cannot_be_written, interrupted};
use crate::failure::Failure;
use crate::opening;

/// One of the recordings to put together.
struct Part {
    path: PathBuf,
    /// Its manifests, the main one first, as files and as what they say.
    manifests: Vec<(PathBuf, Manifest)>,
    /// The numbers of the recordings that it is made of.
    numbers: BTreeSet<String>,
    folders: Vec<PathBuf>,
    /// Of its processes: rank and number of ranks.
    ranks: Vec<(u32, Option<u32>)>,
    hosts: BTreeSet<String>,
    /// Whether its GPUs were simulated.
    is_simulated: bool,
    processes: usize,
}

/// Merges, says what became of it, and gives the exit status.
pub fn run(args: &MergeArgs) -> Result<i32, Failure> {
    if args.writing.follow_umask {
        access::follow_umask();
    }
    let parts: Vec<Part> = args
        .paths
        .iter()
        .map(|path| open(path))
        .collect::<Result<_, _>>()?;
    refuse_clashes(&parts)?;
    if !args.force {
        refuse_strangers(&parts)?;
    }
    place::refuse_inside(&args.output).map_err(|refused| Failure::new(refused.to_string()))?;
    // What cannot be compared is no reason to refuse it.
    let clocks = match compared(&args.paths) {
        Ok(clocks) => clocks,
        Err(why) => {
            anstream::eprintln!("gputrace: the clocks of the hosts were not compared: {why}");
            Vec::new()
        }
    };
    interrupted::leaves_nothing();
    let target = args.writing.target(&args.output, None, &args.paths);
    let made = target.write_recording(|folder| fill(folder, &parts, &clocks));
    made.map_err(|error| Failure::new(cannot_be_written(&args.output, &error)))?;
    let hosts: BTreeSet<&String> = parts.iter().flat_map(|part| &part.hosts).collect();
    let processes: usize = parts.iter().map(|part| part.processes).sum();
    anstream::eprintln!(
        "{}: {processes} processes of {} hosts, from {} recordings",
        args.output.display(),
        hosts.len(),
        parts.len()
    );
    Ok(0)
}

/// The clocks of all parts, process by process; parts with ranks in common can only be opened as wholes.
fn compared(paths: &[PathBuf]) -> Result<Vec<ClockEstimate>, Failure> {
    match Run::open(paths) {
        Some(run) => Ok(run.clocks()?.as_ref().map(compared_estimates).unwrap_or_default()),
        None => opening::open(paths).map(|whole| clock_estimates(&whole)),
    }
}

fn open(path: &Path) -> Result<Part, Failure> {
    // Whatever cannot be opened as a recording is told as everywhere.
    let recording = Recording::open_tables(path, &[]).map_err(|error| Failure::new(error.to_string()))?;
    let cannot = |error: io::Error| Failure::new(format!("{}: cannot be read: {error}", path.display()));
    let mut manifests = Vec::new();
    for file in manifest_files(path).map_err(cannot)? {
        // A damaged one is left behind, as readers leave it.
        if let Json::Read(manifest) = read_json::<Manifest>(&file).map_err(cannot)?
            && manifest.format == FORMAT
        {
            manifests.push((file, manifest));
        }
    }
    let headers = || recording.processes.iter().map(|process| &process.header);
    let hosts = recording.hosts.iter().map(|host| &host.header);
    let mut numbers: BTreeSet<String> = headers()
        .chain(hosts)
        .map(|header| header.recording.clone())
        .collect();
    for (_, manifest) in &manifests {
        numbers.insert(manifest.recording.clone());
        numbers.extend(manifest.merged.iter().cloned());
    }
    numbers.remove("");
    Ok(Part {
        path: path.to_owned(),
        manifests,
        numbers,
        folders: process_folders(path).map_err(cannot)?,
        ranks: headers()
            .filter_map(|header| Some((header.rank?, header.world_size)))
            .collect(),
        hosts: headers().map(|header| header.host.clone()).collect(),
        is_simulated: recording.is_simulated(),
        processes: recording.processes.len(),
    })
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Two folders of one name are the same process, of which there cannot be two.
fn refuse_clashes(parts: &[Part]) -> Result<(), Failure> {
    let mut seen: BTreeMap<String, &Path> = BTreeMap::new();
    for part in parts {
        for folder in &part.folders {
            let name = name_of(folder);
            if let Some(other) = seen.insert(name.clone(), &part.path) {
                return Err(Failure::new(format!(
                    "{} and {} both hold the process folder {name}: name each part once",
                    other.display(),
                    part.path.display()
                )));
            }
        }
    }
    Ok(())
}

/// What does not look like one run.
fn refuse_strangers(parts: &[Part]) -> Result<(), Failure> {
    const ANYWAY: &str = "--force merges them all the same";
    let Some((first, others)) = parts.split_first() else {
        return Ok(());
    };
    let main = |part: &Part| part.manifests.first().map(|(_, manifest)| manifest.clone());
    for part in others {
        let (a, b) = (first.path.display(), part.path.display());
        if first.is_simulated != part.is_simulated {
            return Err(Failure::new(format!(
                "{a} and {b}: one was recorded on simulated GPUs, the other on real ones; {ANYWAY}"
            )));
        }
        if let (Some(one), Some(other)) = (main(first), main(part)) {
            match (&one.launch, &other.launch) {
                (Some(one), Some(other)) if one == other => {}
                (Some(one), Some(other)) => {
                    return Err(Failure::new(format!(
                        "{a} and {b} are of different launches ({one}; {other}); {ANYWAY}"
                    )));
                }
                _ if !overlap(&one, &other) => {
                    return Err(Failure::new(format!(
                        "{a} and {b} were not recorded at the same time: parts of one run are; {ANYWAY}"
                    )));
                }
                _ => {}
            }
        }
    }
    let mut ranks: BTreeMap<u32, &Path> = BTreeMap::new();
    let mut size: Option<(u32, &Path)> = None;
    for part in parts {
        let own: BTreeSet<u32> = part.ranks.iter().map(|(rank, _)| *rank).collect();
        for rank in own {
            if let Some(other) = ranks.insert(rank, &part.path) {
                return Err(Failure::new(format!(
                    "rank {rank} is in {} and in {}: parts of one run have each rank once; {ANYWAY}",
                    other.display(),
                    part.path.display()
                )));
            }
        }
        for world in part.ranks.iter().filter_map(|(_, size)| *size) {
            let (expected, other) = *size.get_or_insert((world, &part.path));
            if world != expected {
                return Err(Failure::new(format!(
                    "{} has ranks of {expected}, {} of {world}: parts of one run have the same number; {ANYWAY}",
                    other.display(),
                    part.path.display()
                )));
            }
        }
    }
    Ok(())
}

/// Whether two recordings were made at the same time, by the clocks of their hosts; unknown ends do not count against it.
fn overlap(a: &Manifest, b: &Manifest) -> bool {
    /// Clocks of hosts, and launchers, are that far apart at most.
    const SLACK_NS: i64 = 60_000_000_000;
    let ends_before = |a: &Manifest, b: &Manifest| {
        a.ended_ns
            .is_some_and(|end| end.saturating_add(SLACK_NS) < b.started_ns)
    };
    !ends_before(a, b) && !ends_before(b, a)
}

/// Puts everything into the folder.
fn fill(merged: &mut NewFolder<'_>, parts: &[Part], clocks: &[ClockEstimate]) -> io::Result<()> {
    let mut number = 0;
    for part in parts {
        for (_, manifest) in &part.manifests {
            let name = match number {
                0 => MANIFEST_FILE.to_owned(),
                number => format!("manifest-{number}.json"),
            };
            number += 1;
            let mut manifest = manifest.clone();
            manifest.redact();
            manifest.clocks.clear();
            if name == MANIFEST_FILE {
                manifest.clocks = clocks.to_vec();
                let names: Vec<String> = parts.iter().map(|part| part.path.display().to_string()).collect();
                manifest.notes.push(format!("merged from {}", names.join(", ")));
                manifest.merged = parts
                    .iter()
                    .flat_map(|part| part.numbers.iter().cloned())
                    .collect();
            }
            let text = json_text(&name, &manifest)?;
            merged.file(&name, |mut file| file.write_all(&text))?;
        }
        for folder in &part.folders {
            for file in fs::read_dir(folder)? {
                let file = file?;
                // Links lead anywhere.
                if file.file_type()?.is_file() {
                    let name = format!("{}/{}", name_of(folder), name_of(&file.path()));
                    merged.link_or_copy(&name, &file.path())?;
                }
            }
        }
    }
    Ok(())
}
