//! Reading what is shown by rank: published with what shows at a glance, again while ranks are read, and once they have been compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gputrace_analyzer::partial::{self, Glance, GlancedBases, Part, Partial};
use gputrace_analyzer::rank_steps::{KnownRank, RankState, RankSteps};
use gputrace_interchange::import;
use gputrace_trace::manifest::{Device, Manifest, ProcessHeader};
use gputrace_trace::recording::Pieces;
use gputrace_trace::{Process, Recording, parallel};
use tokio::sync::watch;

use super::Library;
use crate::server::by_rank::{ByRank, Plan, Source, sources};
use crate::server::entry::{Entry, lock};
use crate::server::files;
use crate::server::loaded::{Analysed, Loaded, Progress};
use crate::timeline::Timeline;

/// Between two pictures of a recording that is being read passes so much.
const BETWEEN_PICTURES: Duration = Duration::from_millis(700);
/// ... and this share of the time that reading has taken.
const REST: u32 = 8;

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
    /// Of the picture that shows now. Dropping it sends away whoever waits for that picture's analysis.
    tell: Mutex<watch::Sender<Progress>>,
}

impl Pictures<'_> {
    /// Of a process that was read.
    fn take(&self, part: &Part) {
        let known = part.known();
        if let (true, Some(rank)) = (known.is_empty(), part.rank()) {
            lock(&self.others).insert(rank, RankState::Nothing);
        }
        lock(&self.known).extend(known);
        // Somebody draws already: it is no reason to wait.
        let Ok(mut shown) = self.shown.try_lock() else {
            return;
        };
        let rest = BETWEEN_PICTURES.max(self.begun.elapsed() / REST);
        if shown.is_none_or(|when| when.elapsed() >= rest) {
            self.show();
            *shown = Some(Instant::now());
        }
    }

    fn show(&self) {
        let known = lock(&self.known).clone();
        let others = lock(&self.others).clone();
        let table = RankSteps::of(known, &others);
        let timeline = Timeline::without_rows(
            &outline(self.path.clone(), self.manifest.clone(), &table),
            table.span(),
        );
        let (tell, whole) = watch::channel(Progress::Running);
        self.library.publish(self.entry, |generation| {
            Loaded::by_rank(generation, timeline, table, whole, true)
        });
        *lock(&self.tell) = tell;
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
        let (merged, options) = match plan {
            Plan::Partials(files, glances) => {
                self.read_partials(entry, &files, glances, by_rank, progress, is_first)?
            }
            Plan::Recordings(paths, beside) => (
                self.read_recordings(entry, &paths, beside, by_rank, progress, is_first)?,
                gputrace_analyzer::Options::default(),
            ),
        };
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
        let (mut analysis, _) = merged.analysis(&options, Vec::new());
        if let Some(clocks) = apart {
            analysis.notes.push(format!(
                "{clocks} clocks stamped these partials, and were not compared when they were made: nothing is compared between them \
                 (gputrace reduce --clocks-to)"
            ));
        }
        let table = RankSteps::of_analysis(&analysis, &others);
        let timeline = Timeline::without_rows(&outline(path, manifest, &table), table.span());
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
    ) -> Result<(Partial, gputrace_analyzer::Options), String> {
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
            let timeline = Timeline::without_rows(&outline(path, manifest, &table), table.span());
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
        // Opening a rank need not wait for the rest.
        lock(&entry.inner).sources = sources(&bases, files, &named);
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
        Ok((merged, options.unwrap_or_default()))
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
            let ranks = pieces.of_ranks().filter_map(|place| pieces.header(place).rank);
            let ranks: BTreeSet<u32> = ranks.collect();
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
            tell: Mutex::new(watch::channel(Progress::Running).0),
        };
        if is_first {
            pictures.show();
        }
        progress.total_bytes.store(count, Ordering::Relaxed);
        (by_rank.read)(paths, &|part| {
            progress.done_bytes.fetch_add(1, Ordering::Relaxed);
            // What partials told of already stands.
            let is_known = has_some && lock(&pictures.known).iter().any(|one| one.rank == part.rank());
            if is_first && !is_known {
                pictures.take(part);
            }
        })
    }
}
