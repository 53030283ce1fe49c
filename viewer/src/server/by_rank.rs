//! Recordings of many ranks, and partials: shown as a table of ranks by steps. Of a rank's rows nothing is in memory until its timeline is
//! opened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gputrace_analyzer::partial::{self, Glance, GlancedBase, GlancedBases, Part, Partial};
use gputrace_analyzer::rank_steps::{KnownRank, RankState, RankSteps};
use gputrace_interchange::import;
use gputrace_trace::manifest::{Device, Manifest, ProcessHeader};
use gputrace_trace::recording::Pieces;
use gputrace_trace::{Process, Recording, beneath, parallel};
use tokio::sync::watch;

use super::entry::{Entry, lock};
use super::files;
use super::library::Library;
use super::loaded::{Analysed, Loaded, Progress};
use crate::timeline::Timeline;

/// A recording of more ranks than this is not read as a whole.
pub const MOST_RANKS: usize = if cfg!(test) { 3 } else { 128 };
/// Partials that are looked for beside a recording.
const MOST_BESIDE: usize = 4096;
/// Between two pictures of a recording that is being read passes so much.
const BETWEEN_PICTURES: Duration = Duration::from_millis(700);
/// ... and this share of the time that reading has taken.
const REST: u32 = 8;

/// Reads recordings process by process, telling of each process as soon as it was read.
pub type ReadApart = dyn Fn(&[PathBuf], &(dyn Fn(&Part) + Sync)) -> Result<Partial, String> + Send + Sync;

/// How recordings are read by rank.
#[derive(Clone)]
pub struct ByRank {
    /// The version whose partials are read.
    pub version: &'static str,
    /// What reads recordings.
    pub read: Arc<ReadApart>,
}

impl fmt::Debug for ByRank {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ByRank")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A recording whose ranks are in the table.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Its ranks.
    ranks: BTreeSet<u32>,
    /// Where it is, or why its rows can't be read here.
    recording: Result<PathBuf, String>,
}

/// The recording that a rank's rows are in.
///
/// # Errors
/// One line: it is not here.
pub(super) fn source_of(sources: &[Source], rank: u32) -> Result<PathBuf, String> {
    let source = sources.iter().find(|source| source.ranks.contains(&rank));
    source.map_or_else(
        || Err(format!("nothing of rank {rank} is here")),
        |source| source.recording.clone(),
    )
}

/// What is read, and in which way.
pub(super) enum Plan {
    /// Partials, and what they hold at a glance: that of each, or none yet.
    Partials(Vec<PathBuf>, Vec<Glance>),
    /// Recordings process by process, with partials of some of their ranks for the first picture.
    Recordings(Vec<PathBuf>, Vec<Glance>),
}

/// Whether all paths are partials.
pub(super) fn are_partials(paths: &[PathBuf]) -> bool {
    !paths.is_empty()
        && paths
            .iter()
            .all(|path| beneath::is_file(path) && Glance::is_partial(path))
}

/// Whether a recording is the one that a partial was made of: its name, when it began and how many rows it has.
pub(super) fn is_of(base: &GlancedBase, recording: &Path) -> bool {
    files::manifest(recording).is_some_and(|manifest| is_same(base, recording, &manifest))
}

/// The same of a recording with this manifest.
fn is_same(base: &GlancedBase, recording: &Path, manifest: &Manifest) -> bool {
    let real = recording.canonicalize();
    let name = real.as_deref().unwrap_or(recording).file_name();
    name == base.path.file_name()
        && manifest.started_ns == base.manifest.started_ns
        && manifest.rows == base.manifest.rows
}

/// Files beside a recording that are named as partials are.
fn beside(recording: &Path) -> Vec<PathBuf> {
    let real = recording.canonicalize().unwrap_or_else(|_| recording.to_owned());
    let entries = real.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let entries = entries.into_iter().flatten().flatten();
    // No links: nobody named them.
    let is_file = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    let mut files: Vec<PathBuf> = entries
        .filter(is_file)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "partial"))
        .take(MOST_BESIDE)
        .collect();
    files.sort();
    files.iter().for_each(|path| beneath::name(path));
    files
}

/// How these are read by rank; `None` where they are to be read as wholes. `given` are partials that were named with them.
pub(super) fn plan(paths: &[PathBuf], given: &[PathBuf], by_rank: &ByRank) -> Option<Plan> {
    if are_partials(paths) {
        return Some(Plan::Partials(paths.to_vec(), Vec::new()));
    }
    if !paths.iter().all(|path| beneath::is_folder(path)) {
        return None;
    }
    let own = import::own_recordings(paths)?;
    let ranks: usize = own.iter().map(|path| files::rank_folders(path)).sum();
    if ranks <= MOST_RANKS && given.is_empty() {
        return None;
    }
    let [recording] = own.as_slice() else {
        return Some(Plan::Recordings(own, Vec::new()));
    };
    let found = if given.is_empty() {
        beside(recording)
    } else {
        given.to_vec()
    };
    let manifest = files::manifest(recording).unwrap_or_default();
    let bases = GlancedBases::default();
    let glances = parallel::map(found.len(), |place| {
        let glance = Glance::read(&found[place], by_rank.version, &bases).ok()?;
        let is_own = glance
            .bases
            .iter()
            .all(|base| is_same(base, recording, &manifest));
        is_own.then_some(glance)
    });
    let (mut here, mut of, mut all) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
    for (path, glance) in found.into_iter().zip(glances) {
        let Some(glance) = glance else { continue };
        let folders: Vec<String> = glance.parts.iter().map(|part| part.folder.clone()).collect();
        // One of several that have the same rank is enough.
        if !folders.iter().any(|folder| here.contains(folder)) {
            all.extend(
                glance
                    .bases
                    .iter()
                    .flat_map(|base| base.processes.keys().cloned()),
            );
            here.extend(folders);
            of.push((path, glance));
        }
    }
    let (files, glances): (Vec<PathBuf>, Vec<Glance>) = of.into_iter().unzip();
    Some(if !files.is_empty() && all.is_subset(&here) {
        Plan::Partials(files, glances)
    } else {
        Plan::Recordings(own, glances)
    })
}

/// What is told of a recording that is shown by rank, without its rows.
fn outline(path: PathBuf, manifest: Manifest, table: &RankSteps) -> Arc<Recording> {
    let mut processes: BTreeMap<(u32, usize), Process> = BTreeMap::new();
    for (place, row) in table.rows.iter().enumerate() {
        if row.state != RankState::Here {
            continue;
        }
        let key = row.rank.map_or((u32::MAX, place), |rank| (rank, 0));
        let process = processes.entry(key).or_insert_with(|| Process {
            folder: format!("{}-{}", row.host, key.0),
            header: ProcessHeader {
                rank: row.rank,
                host: row.host.clone(),
                ..ProcessHeader::default()
            },
            ..Process::default()
        });
        process.header.devices.push(Device {
            index: row.device_index.unwrap_or(0),
            name: row.device_name.clone().unwrap_or_default(),
            ..Device::default()
        });
    }
    Arc::new(Recording {
        path,
        manifest,
        processes: processes.into_values().collect(),
        ..Recording::default()
    })
}

/// Where the recordings of partials are: among those that were named, or beside the partials.
fn sources(
    bases: &[(PathBuf, BTreeSet<u32>, Arc<GlancedBase>)],
    files: &[PathBuf],
    named: &[PathBuf],
) -> Vec<Source> {
    let find = |path: &Path, base: &GlancedBase| {
        let known = named.iter().find(|known| is_of(base, known)).cloned();
        let folder = files.first().and_then(|file| file.canonicalize().ok());
        let sibling = folder.as_deref().and_then(Path::parent).zip(path.file_name());
        let sibling = sibling.map(|(folder, name)| folder.join(name));
        // No links: nobody named it.
        let sibling = sibling.filter(|path| path.symlink_metadata().is_ok_and(|about| about.is_dir()));
        known.or_else(|| {
            let sibling = sibling?;
            beneath::name(&sibling);
            (files::is_recording(&sibling) && is_of(base, &sibling)).then_some(sibling)
        })
    };
    bases
        .iter()
        .map(|(path, ranks, base)| Source {
            ranks: ranks.clone(),
            recording: find(path, base).ok_or_else(|| {
                format!(
                    "the rows of {} are not here: name the recording too, `gputrace view RECORDING FILES`, or put it beside its \
                     partials",
                    path.display()
                )
            }),
        })
        .collect()
}

/// Pictures of what has been read so far.
struct Pictures<'a> {
    library: &'a Library,
    entry: &'a Entry,
    path: PathBuf,
    manifest: Manifest,
    known: Mutex<Vec<KnownRank>>,
    /// Ranks that are not among those.
    others: Mutex<BTreeMap<u32, RankState>>,
    begun: Instant,
    shown: Mutex<Option<Instant>>,
    tell: watch::Sender<Progress>,
}

impl Pictures<'_> {
    /// Of a process that was read.
    fn take(&self, part: &Part) {
        let known = part.known();
        if let (true, Some(rank)) = (known.is_empty(), part.rank()) {
            lock(&self.others).insert(rank, RankState::Nothing);
        }
        lock(&self.known).extend(known);
        let mut shown = lock(&self.shown);
        let rest = BETWEEN_PICTURES.max(self.begun.elapsed() / REST);
        if shown.is_none_or(|when| when.elapsed() >= rest) {
            self.show();
            *shown = Some(Instant::now());
        }
    }

    fn show(&self) {
        let table = RankSteps::of(lock(&self.known).clone(), &lock(&self.others));
        let timeline = Timeline::without_rows(
            outline(self.path.clone(), self.manifest.clone(), &table),
            table.span(),
        );
        let whole = self.tell.subscribe();
        self.library.publish(self.entry, |generation| {
            Loaded::by_rank(generation, timeline, table, whole, true)
        });
    }
}

impl Library {
    /// Reads a recording by rank: first what shows at a glance, then what ranks did together.
    pub(super) fn read_by_rank(
        &self,
        entry: &Entry,
        plan: Plan,
        by_rank: &ByRank,
        progress: &import::Progress,
    ) -> Result<(), String> {
        let is_first = lock(&entry.inner).generations.is_empty();
        let (merged, options, found) = match plan {
            Plan::Partials(files, glances) => {
                self.read_partials(entry, &files, glances, by_rank, progress, is_first)?
            }
            Plan::Recordings(paths, beside) => {
                let merged = self.read_recordings(entry, &paths, beside, by_rank, progress, is_first)?;
                let found = merged.bases.iter().map(|base| Source {
                    ranks: base.processes.values().flatten().copied().collect(),
                    recording: Ok(base.recording.path.clone()),
                });
                let found = found.collect();
                (merged, gputrace_analyzer::Options::default(), found)
            }
        };
        lock(&entry.inner).sources = found;
        let Some(base) = merged.bases.first() else {
            return Err(format!("{}: nothing is in it", entry.name));
        };
        let (path, manifest) = (base.recording.path.clone(), base.recording.manifest.clone());
        if !merged.used_cuda() {
            return Err(format!(
                "{}: no event of a GPU program is in it, so there is nothing to show",
                path.display()
            ));
        }
        let apart = merged.clocks().map(|clocks| clocks.alignment.clocks.len());
        let others = merged.others();
        let (mut analysis, _) = merged.analysis(&options);
        if let Some(clocks) = apart {
            analysis.notes.push(format!(
                "{clocks} clocks stamped these partials, and were not compared when they were made: nothing is compared between them \
                 (gputrace reduce --clocks-to)"
            ));
        }
        let table = RankSteps::of_analysis(&analysis, &others);
        let timeline = Timeline::without_rows(outline(path, manifest, &table), table.span());
        let analysed = Arc::new(Analysed::new(analysis, timeline.origin_ns()));
        let whole = watch::channel(Progress::Done(analysed)).1;
        self.publish(entry, |generation| {
            Loaded::by_rank(generation, timeline, table, whole, false)
        });
        Ok(())
    }

    fn read_partials(
        &self,
        entry: &Entry,
        files: &[PathBuf],
        mut glances: Vec<Glance>,
        by_rank: &ByRank,
        progress: &import::Progress,
        is_first: bool,
    ) -> Result<(Partial, gputrace_analyzer::Options, Vec<Source>), String> {
        if glances.is_empty() {
            let bases = GlancedBases::default();
            let read = parallel::map(files.len(), |place| {
                Glance::read(&files[place], by_rank.version, &bases)
            });
            let read: Result<Vec<Glance>, _> = read.into_iter().collect();
            glances = read.map_err(|wrong| wrong.to_string())?;
        }
        let glance = Glance::together(glances);
        let others = glance.others();
        let Some(first) = glance.bases.first() else {
            return Err(format!("{}: nothing is in it", entry.name));
        };
        let tell = watch::channel(Progress::Running).0;
        if is_first {
            let (path, manifest) = (first.path.clone(), first.manifest.clone());
            let known = glance
                .parts
                .iter()
                .flat_map(|part| part.devices.clone())
                .collect();
            let table = RankSteps::of(known, &others);
            let timeline = Timeline::without_rows(outline(path, manifest, &table), table.span());
            self.publish(entry, |generation| {
                Loaded::by_rank(generation, timeline, table, tell.subscribe(), true)
            });
        }
        let bases = glance.bases.into_iter().map(|base| {
            let ranks = base.processes.values().flatten().copied().collect();
            (base.path.clone(), ranks, base)
        });
        let bases: Vec<_> = bases.collect();
        let mut named = self.named.clone();
        named.extend(
            entry
                .paths
                .iter()
                .filter(|path| files::is_recording(path))
                .cloned(),
        );
        let found = sources(&bases, files, &named);
        // Opening a rank need not wait for the rest.
        lock(&entry.inner).sources.clone_from(&found);
        progress.total_bytes.store(files.len() as u64, Ordering::Relaxed);
        let read = parallel::map(files.len(), |place| {
            let read = Partial::read(&files[place], by_rank.version);
            progress.done_bytes.fetch_add(1, Ordering::Relaxed);
            read
        });
        let mut options = None;
        let mut all = Vec::new();
        for (path, read) in files.iter().zip(read) {
            let (partial, own) = read.map_err(|wrong| wrong.to_string())?;
            if *options.get_or_insert_with(|| own.clone()) != own {
                return Err(format!(
                    "{}: made with other options (--steps, --sort, --short-names) than {}: make both with the same",
                    path.display(),
                    files[0].display()
                ));
            }
            all.push((path.display().to_string(), partial));
        }
        let merged = partial::merge(all).map_err(|wrong| wrong.to_string())?;
        // Whoever waits for the analysis of the first picture asks for that of the next.
        tell.send_replace(Progress::Replaced);
        Ok((merged, options.unwrap_or_default(), found))
    }

    fn read_recordings(
        &self,
        entry: &Entry,
        paths: &[PathBuf],
        beside: Vec<Glance>,
        by_rank: &ByRank,
        progress: &import::Progress,
        is_first: bool,
    ) -> Result<Partial, String> {
        let pieces: Vec<Pieces> = paths
            .iter()
            .map(|path| Pieces::open(path).map_err(|error| error.to_string()))
            .collect::<Result<_, _>>()?;
        let mut others = BTreeMap::new();
        let (mut manifest, mut found) = (Manifest::default(), Vec::new());
        for (place, pieces) in pieces.iter().enumerate() {
            let places = (0..pieces.len())
                .filter(|place| !pieces.header(*place).is_host() && !pieces.is_stranger(*place));
            let ranks: BTreeSet<u32> = places.filter_map(|place| pieces.header(place).rank).collect();
            others.extend(ranks.iter().map(|rank| (*rank, RankState::Reading)));
            if place == 0 {
                manifest = pieces.base().manifest.clone();
            }
            found.push(Source {
                ranks,
                recording: Ok(paths[place].clone()),
            });
        }
        lock(&entry.inner).sources = found;
        let count = others.len() as u64;
        drop(pieces);
        let has_some = !beside.is_empty();
        let parts = beside.into_iter().flat_map(|glance| glance.parts);
        let known = parts.flat_map(|part| part.devices).collect();
        let pictures = Pictures {
            library: self,
            entry,
            path: paths.first().cloned().unwrap_or_default(),
            manifest,
            known: Mutex::new(known),
            others: Mutex::new(others),
            begun: Instant::now(),
            shown: Mutex::new(Some(Instant::now())),
            tell: watch::channel(Progress::Running).0,
        };
        if is_first {
            pictures.show();
        }
        progress.total_bytes.store(count, Ordering::Relaxed);
        let merged = (by_rank.read)(paths, &|part| {
            progress.done_bytes.fetch_add(1, Ordering::Relaxed);
            // What partials told of already stands.
            let is_known = has_some && lock(&pictures.known).iter().any(|one| one.rank == part.rank());
            if is_first && !is_known {
                pictures.take(part);
            }
        });
        pictures.tell.send_replace(Progress::Replaced);
        merged
    }
}
