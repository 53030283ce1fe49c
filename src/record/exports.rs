//! `record --export`: other tools' formats as soon as there is something to export: after each active window of a schedule,
//! and without one at the end.
//!
//! A window is exported by a thread of its own while the command runs on. Whatever fails is said, and changes nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gputrace_analyzer::{ClockChoice, align};
use gputrace_interchange::export::select::{Stretch, Window, cut};
use gputrace_trace::{Derived, DurationNs, Process, Recording, TimeNs, access};

use crate::cli::{ExportFormat, ExportTarget, RecordArgs, WritingArgs};
use crate::export;
use crate::failure::Failure;
use crate::say::say;

/// How often the recording is looked at for windows that ended.
const PERIOD: Duration = Duration::from_secs(1);
/// How long after a window's end what happened in it may still be on its way to the disk.
const SETTLED: Duration = Duration::from_secs(3);

/// What became of an export, as a sentence.
pub type Said = Result<String, String>;

/// Prints it; to who wants no more than errors, only those.
pub fn tell(said: &Said, quiet: bool) {
    match said {
        Ok(_) if quiet => {}
        Ok(sentence) => say!("{sentence}"),
        Err(why) => say!("gputrace: {why}"),
    }
}

/// What is to be exported, and how.
#[derive(Clone)]
struct Wanted {
    targets: Vec<ExportTarget>,
    writing: WritingArgs,
}

/// Refuses exports that could not be written, before anything runs.
pub fn check(args: &RecordArgs) -> Result<(), Failure> {
    /// Of a schedule without an end the first windows are looked for.
    const MOST_REPEATS: u64 = 100;
    for wanted in &args.exports {
        let check = |path: &Path| {
            let target = args.writing.target(path, None, &[]);
            let checked = export::check(wanted.format, false, &target);
            checked.map_err(|refused| Failure::new(format!("{refused}; nothing was run")))
        };
        let first = wanted.path_of_repeat(0);
        match args.schedule {
            // The named folder, if it is one, is made for those of the windows.
            Some(schedule) if first.parent() != Some(&wanted.path) || wanted.path.exists() => {
                let most = match schedule.repeat {
                    0 => MOST_REPEATS,
                    repeat => repeat.min(MOST_REPEATS),
                };
                (0..most).try_for_each(|repeat| check(&wanted.path_of_repeat(repeat)))?;
            }
            _ => check(&wanted.path)?,
        }
    }
    Ok(())
}

/// What is to be exported of a recording while it is made.
pub struct Exports {
    wanted: Wanted,
    folder: PathBuf,
    /// Whether there are windows to come.
    by_window: bool,
    looked: Instant,
    /// Repeats of the schedule that ended everywhere, and since when that is known.
    ended: BTreeMap<u64, Instant>,
    /// The first repeat that is not exported yet.
    next: u64,
    working: Option<JoinHandle<Vec<Said>>>,
}

impl Exports {
    /// Of the recording in `folder`.
    pub fn new(wanted: &[ExportTarget], writing: &WritingArgs, folder: &Path, by_window: bool) -> Self {
        Self {
            wanted: Wanted {
                targets: wanted.to_vec(),
                writing: writing.clone(),
            },
            folder: folder.to_owned(),
            by_window,
            looked: Instant::now(),
            ended: BTreeMap::new(),
            next: 0,
            working: None,
        }
    }

    /// Begins to export a window that has ended on all ranks; gives what there is to say of those that were exported.
    pub fn tick(&mut self) -> Vec<Said> {
        if !self.by_window || self.wanted.targets.is_empty() || self.looked.elapsed() < PERIOD {
            return Vec::new();
        }
        self.looked = Instant::now();
        let said = match self.working.take_if(|working| working.is_finished()) {
            Some(working) => said_by(working),
            None => Vec::new(),
        };
        if self.working.is_none() {
            self.look();
        }
        said
    }

    fn look(&mut self) {
        let Ok(recording) = Recording::open_tables(&self.folder, &["windows"]) else {
            return;
        };
        let repeats = repeats(&recording);
        for (&repeat, windows) in &repeats {
            // A rank that is in its next window has left this one, even if it recorded nothing in it.
            let has_ended = (0..recording.processes.len()).all(|process| {
                windows.contains_key(&process)
                    || repeats
                        .range(repeat + 1..)
                        .any(|(_, later)| later.contains_key(&process))
            });
            if has_ended {
                self.ended.entry(repeat).or_insert_with(Instant::now);
            }
        }
        let is_ready = |since: &Instant| since.elapsed() >= SETTLED;
        if !self.ended.get(&self.next).is_some_and(is_ready) {
            return;
        }
        let (repeat, wanted, folder) = (self.next, self.wanted.clone(), self.folder.clone());
        self.next += 1;
        let work = move || match Recording::open(&folder) {
            Ok(mut recording) => match align(&mut recording, &ClockChoice::Estimate) {
                Ok(()) => export_repeat(&recording, repeat, &wanted),
                Err(error) => vec![Err(format!("repeat {repeat} was not exported: {error}"))],
            },
            Err(error) => vec![Err(format!("repeat {repeat} was not exported: {error}"))],
        };
        self.working = Some(std::thread::spawn(work));
    }

    /// Exports what is left of the whole recording.
    pub fn finish(mut self, recording: &Recording) -> Vec<Said> {
        let mut said = self.working.take().map(said_by).unwrap_or_default();
        if self.wanted.targets.is_empty() {
            return said;
        }
        let repeats: Vec<u64> = repeats(recording).into_keys().collect();
        if !self.by_window || repeats.is_empty() {
            let derived = gputrace_analyzer::derive(recording);
            for target in &self.wanted.targets {
                let said_of_it = export_to(recording, &derived, &self.wanted, target.format, &target.path);
                said.push(said_of_it);
            }
            return said;
        }
        for repeat in repeats.into_iter().filter(|repeat| *repeat >= self.next) {
            said.extend(export_repeat(recording, repeat, &self.wanted));
        }
        said
    }
}

fn said_by(working: JoinHandle<Vec<Said>>) -> Vec<Said> {
    let failed = |_| {
        vec![Err(
            "an export failed: a fault of gputrace; the recording is whole".to_owned(),
        )]
    };
    working.join().unwrap_or_else(failed)
}

/// Of each repeat of the schedule the processes that recorded in it, by their places, and when.
fn repeats(recording: &Recording) -> BTreeMap<u64, BTreeMap<usize, Window>> {
    let mut repeats: BTreeMap<u64, BTreeMap<usize, Window>> = BTreeMap::new();
    for (place, process) in recording.processes.iter().enumerate() {
        for (repeat, window) in windows(process, recording) {
            repeats.entry(repeat).or_default().insert(place, window);
        }
    }
    repeats
}

fn windows<'r>(
    process: &'r Process,
    recording: &'r Recording,
) -> impl Iterator<Item = (u64, Window)> + use<'r> {
    let windows = &process.tables.windows;
    (0..windows.start_ns.len())
        .filter(|row| recording.names.get(windows.what[*row]) == "active")
        .filter_map(|row| {
            let from = windows.start_ns[row];
            let to = from + windows.duration_ns[row].max(DurationNs(0));
            Some((windows.repeat[row]?, Window { from, to }))
        })
}

/// Exports one window in all formats.
fn export_repeat(recording: &Recording, repeat: u64, wanted: &Wanted) -> Vec<Said> {
    let repeats = repeats(recording);
    let found = repeats.get(&repeat);
    let never = Window {
        from: TimeNs(0),
        to: TimeNs(0),
    };
    let windows: Vec<Stretch> = (0..recording.processes.len())
        .map(|place| {
            let window = found.and_then(|windows| windows.get(&place));
            Stretch::of(window.copied().unwrap_or(never))
        })
        .collect();
    let all = found.into_iter().flat_map(BTreeMap::values);
    let hosts = Window {
        from: all.clone().map(|window| window.from).min().unwrap_or(TimeNs(0)),
        to: all.map(|window| window.to).max().unwrap_or(TimeNs(0)),
    };
    let (part, _) = cut(recording, &Derived::default(), &windows, hosts);
    let derived = gputrace_analyzer::derive(&part);
    let export = |target: &ExportTarget| {
        let path = target.path_of_repeat(repeat);
        if path.parent() == Some(&target.path) {
            // Where it cannot be made, the export says so.
            let mut folder = fs::DirBuilder::new();
            folder
                .recursive(wanted.writing.parents)
                .mode(access::folder_mode());
            drop(folder.create(&target.path));
        }
        export_to(&part, &derived, wanted, target.format, &path)
    };
    wanted.targets.iter().map(export).collect()
}

/// Exports, and says what became of it. What is there already stays.
fn export_to(
    recording: &Recording,
    derived: &Derived,
    wanted: &Wanted,
    format: ExportFormat,
    path: &Path,
) -> Said {
    let target = wanted.writing.target(path, None, &[]);
    match export::write(format, recording, derived, &target) {
        Ok(summary) => Ok(export::sentence(path, &summary, recording)),
        Err(error) => Err(export::cannot_be_written(path, &error)),
    }
}
