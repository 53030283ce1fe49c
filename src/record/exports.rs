//! `record --export`: other tools' formats as soon as there is something to export: after each active window of a schedule,
//! and without one at the end.
//!
//! A window is exported by a thread of its own while the command runs on. Whatever fails is said, and changes nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gputrace_interchange::export::select::{Window, cut};
use gputrace_trace::{Derived, DurationNs, Process, Recording, TimeNs};

use crate::cli::ExportTarget;
use crate::export;

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
        Ok(sentence) => anstream::eprintln!("{sentence}"),
        Err(why) => anstream::eprintln!("gputrace: {why}"),
    }
}

/// What is to be exported of a recording while it is made.
pub struct Exports {
    wanted: Vec<ExportTarget>,
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
    pub fn new(wanted: &[ExportTarget], folder: &Path, by_window: bool) -> Self {
        Self {
            wanted: wanted.to_vec(),
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
        if !self.by_window || self.wanted.is_empty() || self.looked.elapsed() < PERIOD {
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
            Ok(recording) => export_repeat(&recording, repeat, &wanted),
            Err(error) => vec![Err(format!("repeat {repeat} was not exported: {error}"))],
        };
        self.working = Some(std::thread::spawn(work));
    }

    /// Exports what is left of the whole recording.
    pub fn finish(mut self, recording: &Recording) -> Vec<Said> {
        let mut said = self.working.take().map(said_by).unwrap_or_default();
        if self.wanted.is_empty() {
            return said;
        }
        let repeats: Vec<u64> = repeats(recording).into_keys().collect();
        if !self.by_window || repeats.is_empty() {
            let derived = gputrace_analyzer::derive(recording);
            for target in &self.wanted {
                said.push(export_to(recording, &derived, target, &target.path));
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
fn export_repeat(recording: &Recording, repeat: u64, wanted: &[ExportTarget]) -> Vec<Said> {
    let repeats = repeats(recording);
    let found = repeats.get(&repeat);
    let never = Window {
        from: TimeNs(0),
        to: TimeNs(0),
    };
    let windows: Vec<Window> = (0..recording.processes.len())
        .map(|place| {
            let window = found.and_then(|windows| windows.get(&place));
            window.copied().unwrap_or(never)
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
        export_to(&part, &derived, target, &path)
    };
    wanted.iter().map(export).collect()
}

/// Exports, and says what became of it.
fn export_to(recording: &Recording, derived: &Derived, target: &ExportTarget, path: &Path) -> Said {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let written = parent
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| export::write(target.format, recording, derived, path));
    match written {
        Ok(summary) => Ok(export::sentence(path, &summary, recording)),
        Err(error) => Err(format!(
            "{}: {}",
            path.display(),
            export::cannot_be_written(&error)
        )),
    }
}
