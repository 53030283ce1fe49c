//! A recording that is still written: each look reads what was appended since the one before, and makes a timeline that shares
//! everything older with the last.
//!
//! What does not simply get longer is not followed: where a clock was set, a file is damaged or parts are gone, the recording is
//! read as a whole, as every recording is once it is closed.

mod kinds;
mod place;
mod process;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gputrace_analyzer::{Analysis, Details};
use gputrace_trace::follow::{Follower, Growth};
use gputrace_trace::recording::{is_unclosed, process_folders, segment_of};
use gputrace_trace::table::Size;
use gputrace_trace::tables::TABLES;
use gputrace_trace::{Process, Recording};
use rustc_hash::FxHashMap;

use super::answers::Band;
use super::base::Base;
use super::collectives::Known;
use super::counters;
use super::gather::{Group, Place};
use super::names;
use super::profile::Profile;
use super::rows::{self, Counter};
use super::slices::Slices;
use super::store::Store;
use super::{Timeline, projected};
use process::OfProcess;

/// The tables that get longer with each event: the others are read anew at each look.
fn followed() -> Vec<&'static str> {
    let followed = TABLES.iter().filter(|table| table.size != Size::Few);
    followed.map(|table| table.name).collect()
}

/// Counters are put together anew when so many times as long has passed as that takes.
const COUNTERS_REST: u32 = if cfg!(test) { 0 } else { 20 };

/// So many slices are gone through at each look rather than summed up anew.
const LEAST_SWEPT: usize = if cfg!(test) { 64 } else { 1 << 16 };

/// What an analysis of an earlier timeline adds to later ones.
struct Added {
    origin: i64,
    known: Arc<Known>,
    projected: Vec<Group>,
    details: Arc<Details>,
}

/// What the analysis of a timeline found, for the timelines that follow.
pub struct Learned {
    epoch: u64,
    origin: i64,
    analysis: Arc<Analysis>,
    details: Details,
    projected: Vec<Group>,
}

impl Learned {
    /// Of a timeline's recording.
    #[must_use]
    pub fn new(
        timeline: &Timeline,
        recording: &Recording,
        analysis: Arc<Analysis>,
        details: Details,
    ) -> Self {
        Self {
            epoch: timeline.epoch,
            origin: timeline.origin_ns(),
            analysis,
            details,
            projected: projected::groups(&recording.processes),
        }
    }
}

/// Who a process is: another one means that rows have other places.
type Who = (String, Option<u32>);

/// A recording that is followed.
pub struct Growing {
    path: PathBuf,
    /// How often everything was read anew: names, processes and rows have other numbers since.
    epoch: u64,
    follower: Follower,
    processes: Vec<Who>,
    hosts: Vec<Who>,
    /// The folders of all parts, of processes and of hosts.
    folders: BTreeSet<PathBuf>,
    of_processes: Vec<OfProcess>,
    of_hosts: Vec<OfProcess>,
    colors: FxHashMap<u32, u32>,
    counters: Option<(Instant, Duration, Arc<Vec<Counter>>)>,
    shades: Arc<[Vec<AtomicU16>; 2]>,
    added: Option<Added>,
    settled: FxHashMap<(u32, u32), Settled>,
}

/// Shares of a device's time that do not have to be summed up at each look.
struct Settled {
    profile: Arc<Profile>,
    /// Until when they are known.
    until: i64,
    /// Slices that they were made of.
    slices: usize,
}

fn who(processes: &[Process]) -> Vec<Who> {
    let who = |process: &Process| (process.folder.clone(), process.header.rank);
    processes.iter().map(who).collect()
}

impl Growing {
    /// Of the recording in a folder.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            epoch: 0,
            follower: Follower::new(path, &followed()),
            processes: Vec::new(),
            hosts: Vec::new(),
            folders: BTreeSet::new(),
            of_processes: Vec::new(),
            of_hosts: Vec::new(),
            colors: FxHashMap::default(),
            counters: None,
            shades: Arc::default(),
            added: None,
            settled: FxHashMap::default(),
        }
    }

    /// The recording as it is now. Nothing where it can't be followed: then it has to be read as a whole.
    #[must_use]
    pub fn look(&mut self) -> Option<Timeline> {
        let is_new = self.folders.is_empty();
        self.look_again().or_else(|| {
            if is_new {
                return None;
            }
            // A process that came late may come before others: then all rows have other places.
            *self = Self {
                epoch: self.epoch + 1,
                ..Self::new(&self.path)
            };
            self.look_again()
        })
    }

    fn look_again(&mut self) -> Option<Timeline> {
        // Before anything is read: what is removed meanwhile is missed by the next look.
        let folders: BTreeSet<PathBuf> = process_folders(&self.path).ok()?.into_iter().collect();
        let mut grown = self.follower.read().ok()?;
        let (mut outline, _) = Recording::open_without(&self.path, &followed()).ok()??;
        // These last until the last moment of all tables.
        let is_unfinished = |process: &Process| {
            let mut starts = process.tables.untimed_operations.start_ns.iter();
            starts.any(Option::is_some)
        };
        // Only opening it whole tells what was lost.
        let has_lost = |growth: &Growth| !growth.damaged.is_empty() || !growth.left_out.is_empty();
        if outline.processes.iter().any(is_unfinished) || grown.iter().any(has_lost) {
            return None;
        }
        outline.losses.retain(|loss| !is_unclosed(loss));
        let numbers = self.follower.names.absorb(&outline.names);
        for process in outline.processes.iter_mut().chain(&mut outline.hosts) {
            process.tables.renumber(&numbers);
        }
        let (processes, hosts) = (who(&outline.processes), who(&outline.hosts));
        if !processes.starts_with(&self.processes)
            || !hosts.starts_with(&self.hosts)
            || !self.folders.is_subset(&folders)
        {
            return None;
        }
        (self.processes, self.hosts, self.folders) = (processes, hosts, folders);
        self.of_processes
            .resize_with(self.processes.len(), OfProcess::default);
        self.of_hosts.resize_with(self.hosts.len(), OfProcess::default);
        grown.sort_by(|a, b| segment_of(&a.folder).cmp(&segment_of(&b.folder)));
        for growth in grown {
            self.take(growth, &outline)?;
        }
        for (own, process) in self.of_processes.iter_mut().zip(&outline.processes) {
            own.learn_of_graphs(process);
        }
        outline.names = self.follower.names.share();
        Some(self.timeline(outline))
    }

    fn take(&mut self, growth: Growth, outline: &Recording) -> Option<()> {
        let name = segment_of(&growth.folder).0;
        let find = |all: &[Who]| all.iter().position(|(folder, _)| folder == name);
        let (own, process) = match find(&self.processes) {
            Some(place) => (&mut self.of_processes[place], &outline.processes[place]),
            None => {
                let place = find(&self.hosts)?;
                (&mut self.of_hosts[place], &outline.hosts[place])
            }
        };
        own.take(growth.tables, process, &self.follower.names, &mut self.colors)
            .then_some(())
    }

    fn timeline(&mut self, mut outline: Recording) -> Timeline {
        let groups: Vec<Group> = (0u32..)
            .zip(&mut self.of_processes)
            .flat_map(|(place, own)| own.groups(place))
            .collect();
        let counters = self.counters(&mut outline);
        let outline = Arc::new(outline);
        let pieces = |all: &[OfProcess]| all.iter().map(OfProcess::pieces).collect();
        let store = Store::growing(
            outline.clone(),
            pieces(&self.of_processes),
            pieces(&self.of_hosts),
        );
        let shades = self.shades(outline.names.len());
        let base = Base::growing(&outline, groups, self.colors.clone(), store, counters, shades);
        if self
            .added
            .as_ref()
            .is_some_and(|added| added.origin != base.origin)
        {
            self.added = None;
        }
        let late: Vec<i64> = self
            .of_processes
            .iter_mut()
            .map(OfProcess::take_earliest_new)
            .collect();
        for ((process, _), settled) in &mut self.settled {
            // What came late changed what is behind its beginning.
            settled.until = settled.until.min(late[*process as usize]);
        }
        let settled = base
            .bands
            .iter()
            .map(|band| self.settled(band, &base.groups))
            .collect();
        let bands = base.bands.len();
        let (known, projected, details) = match &self.added {
            Some(added) => (
                Some(added.known.clone()),
                &added.projected[..],
                Some(added.details.clone()),
            ),
            None => (None, &[][..], None),
        };
        let communicators = known.as_ref().map_or(&[][..], |known| &known.communicators);
        Timeline {
            epoch: self.epoch,
            rows: base.rows(projected, communicators),
            profiles: (0..bands).map(|_| Arc::new(OnceLock::new())).collect(),
            base: Arc::new(base),
            known,
            details,
            settled,
            labels: std::sync::Mutex::default(),
            kernel_names: OnceLock::new(),
            names_on_rows: OnceLock::new(),
            _gives_back: super::GivesBack { is_large: false },
        }
    }

    fn counters(&mut self, outline: &mut Recording) -> Arc<Vec<Counter>> {
        if let Some((when, took, counters)) = &self.counters
            && when.elapsed() < *took * COUNTERS_REST
        {
            return counters.clone();
        }
        let begun = Instant::now();
        let mut lend = |give_back: bool| {
            let processes = outline.processes.iter_mut().zip(&mut self.of_processes);
            for (process, own) in processes.chain(outline.hosts.iter_mut().zip(&mut self.of_hosts)) {
                std::mem::swap(&mut process.tables.counters, &mut own.counted.counters);
                std::mem::swap(&mut process.tables.memory, &mut own.counted.memory);
            }
            (!give_back).then(|| {
                let identities = rows::identities(outline);
                Arc::new(counters::counters(outline, &identities))
            })
        };
        let counters = lend(false).unwrap_or_default();
        lend(true);
        self.counters = Some((Instant::now(), begun.elapsed(), counters.clone()));
        counters
    }

    /// What is known of the shares of a device's time, made anew when much has come since.
    fn settled(&mut self, band: &Band, groups: &[Group]) -> Option<(Arc<Profile>, i64)> {
        let is_its = |group: &&Group| {
            group.process == band.process
                && matches!(group.place, Place::Stream(device, _) if device == band.device_index)
        };
        let lanes = || {
            groups
                .iter()
                .filter(is_its)
                .flat_map(|group| &group.lanes)
                .map(|lane| &**lane)
        };
        let slices: usize = lanes().map(Slices::len).sum();
        let known = self
            .settled
            .entry((band.process, band.device_index))
            .or_insert_with(|| Settled {
                profile: Arc::default(),
                until: i64::MIN,
                slices: 0,
            });
        let since: usize = lanes()
            .map(|lane| lane.len() - lane.first_from(known.until))
            .sum();
        if since > LEAST_SWEPT.max(slices / 4) {
            *known = Settled {
                profile: Arc::new(Profile::new(lanes(), super::counts, names::kind)),
                until: self.of_processes[band.process as usize].settled(),
                slices,
            };
        }
        (known.slices > 0).then(|| (known.profile.clone(), known.until))
    }

    /// The shades that are known, with room for those of more names.
    fn shades(&mut self, names: usize) -> Arc<[Vec<AtomicU16>; 2]> {
        if self.shades[0].len() != names {
            let known = |side: usize| {
                let known = self.shades[side].iter();
                let known = known.map(|shade| AtomicU16::new(shade.load(Ordering::Relaxed)));
                known
                    .chain(std::iter::repeat_with(AtomicU16::default))
                    .take(names)
                    .collect()
            };
            self.shades = Arc::new([known(0), known(1)]);
        }
        self.shades.clone()
    }

    /// From now on timelines have what an analysis of an earlier one found; not of one from before everything was read anew,
    /// which speaks of other rows.
    pub fn add(&mut self, found: Learned) {
        if found.epoch != self.epoch {
            return;
        }
        let names = &mut self.follower.names;
        for collective in &found.analysis.collectives {
            names.intern(&collective.name);
        }
        self.added = Some(Added {
            origin: found.origin,
            known: Arc::new(Known::new(&found.analysis, &found.details, names)),
            projected: found.projected,
            details: Arc::new(found.details),
        });
    }
}
