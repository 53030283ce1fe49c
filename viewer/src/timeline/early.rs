//! A first look at a large recording of ours: its rows of slices, before the tables that they are of are in memory.
//!
//! Of a hundred columns a picture needs six. Only those are unpacked, and each batch's slices get their rows at once
//! ([`gputrace_trace::columns`], [`Laying`]): what is touched of memory is what the picture is drawn from, which decides how
//! long it takes. The recording is read as a whole afterwards, and both have the same rows ([`Promise::keep`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gputrace_analyzer::{KernelKinds, is_possible};
use gputrace_trace::columns::{ColumnFile, Unusual};
use gputrace_trace::recording::is_unclosed;
use gputrace_trace::tables::{ApiCalls, Kernels, Markers, Operators};
use gputrace_trace::{Interner, Process, Recording, Table as _, parallel};
use rustc_hash::{FxHashMap, FxHashSet};

use super::gather::{self, Few, Group, Host, Place};
use super::lanes::Item;
use super::laying::Laying;
use super::source::MOST_ROWS;
use super::store::Coming;

/// Tables that are read by columns.
const LARGE: [&str; 4] = [Kernels::NAME, ApiCalls::NAME, Operators::NAME, Markers::NAME];

/// What a first look shows.
pub(crate) struct Early {
    /// The recording but for its large tables.
    pub(crate) outline: Recording,
    pub(crate) groups: Vec<Group>,
    /// Colours of ranges by name: of several the first.
    pub(crate) colors: FxHashMap<u32, u32>,
    /// Rows of the large tables, by process.
    pub(super) rows: Vec<[usize; LARGE.len()]>,
}

/// The large tables of a process: a file for each of its parts.
struct Files {
    kernels: Vec<ColumnFile<Kernels>>,
    calls: Vec<ColumnFile<ApiCalls>>,
    operators: Vec<ColumnFile<Operators>>,
    markers: Vec<ColumnFile<Markers>>,
}

fn rows<T: gputrace_trace::Table>(files: &[ColumnFile<T>]) -> usize {
    files.iter().map(ColumnFile::rows).sum()
}

/// Calls `visit` with every batch of a table and its first row's number.
fn each<T: gputrace_trace::Table + Send>(
    files: &[ColumnFile<T>],
    mut visit: impl FnMut(u32, &T),
) -> Result<(), Unusual> {
    let mut before = 0;
    for file in files {
        // There are no more rows than have numbers.
        file.each(|first, table| visit((before + first) as u32, table))?;
        before += file.rows();
    }
    Ok(())
}

impl Files {
    fn open(folders: &[PathBuf], process: &Process, names: &mut Interner) -> Result<Self, Unusual> {
        fn open<T: gputrace_trace::Table>(
            folders: &[PathBuf],
            columns: &[&str],
            names: &mut Interner,
        ) -> Result<Vec<ColumnFile<T>>, Unusual> {
            let path = |folder: &PathBuf| folder.join(format!("{}.arrows", T::NAME));
            let mut files = folders.iter().map(path);
            files.try_fold(Vec::new(), |mut opened, path| {
                opened.push(ColumnFile::open(&path, columns, names)?);
                Ok(opened)
            })
        }
        let (by_launch, by_node) = KernelKinds::new(process, names).look_at();
        let mut of_kernels = vec!["start_ns", "duration_ns", "name", "device", "stream"];
        of_kernels.extend(by_launch.then_some("correlation"));
        of_kernels.extend(by_node.then_some("graph_node"));
        let mut of_calls = vec!["start_ns", "duration_ns", "name", "kind", "thread"];
        let mut by_call = false;
        gather::waits_and_others(process, |host, _| by_call |= matches!(host, Host::OfCall(_)));
        of_calls.extend(by_call.then_some("correlation"));
        Ok(Self {
            kernels: open(folders, &of_kernels, names)?,
            calls: open(folders, &of_calls, names)?,
            operators: open(folders, &["start_ns", "duration_ns", "name", "thread"], names)?,
            markers: open(
                folders,
                &["start_ns", "duration_ns", "name", "thread", "color"],
                names,
            )?,
        })
    }

    fn rows(&self) -> [usize; LARGE.len()] {
        [
            rows(&self.kernels),
            rows(&self.calls),
            rows(&self.operators),
            rows(&self.markers),
        ]
    }
}

/// Slices of one process, each at its place.
#[derive(Default)]
struct Places {
    places: gather::Places,
    /// By the places' numbers.
    layings: Vec<Laying>,
}

impl Places {
    /// With some slices that are known from the beginning.
    fn new(few: Few) -> Self {
        let mut by_place: FxHashMap<Place, Vec<Item>> = FxHashMap::default();
        for (place, item) in few {
            if is_slice(&item) {
                by_place.entry(place).or_default().push(item);
            }
        }
        let mut by_place: Vec<(Place, Vec<Item>)> = by_place.into_iter().collect();
        by_place.sort_by_key(|(place, _)| *place);
        let mut places = Self::default();
        for (place, items) in by_place {
            places.places.number(place);
            places.layings.push(Laying::new(items));
        }
        places
    }

    #[inline]
    fn add(&mut self, place: Place, item: Item) {
        if is_slice(&item) {
            let number = self.places.number(place);
            if number == self.layings.len() {
                self.layings.push(Laying::default());
            }
            self.layings[number].add(item);
        }
    }

    fn groups(self, process: u32) -> Option<Vec<Group>> {
        let mut groups = Vec::new();
        for (place, laying) in self.places.all.into_iter().zip(self.layings) {
            let (lanes, left_out) = laying.finish()?;
            if !lanes.is_empty() {
                groups.push(Group {
                    process,
                    place,
                    lanes,
                    left_out,
                });
            }
        }
        Some(groups)
    }
}

#[inline]
fn is_slice(item: &Item) -> bool {
    item.duration >= 0 && is_possible(item.start, item.start.saturating_add(item.duration))
}

/// What is on the device's streams.
fn on_streams(process: &Process, files: &Files, names: &Interner) -> Result<Places, Unusual> {
    let mut few = Few::new();
    gather::copies_and_sets(process, &mut few);
    let mut places = Places::new(few);
    let mut kinds = KernelKinds::new(process, names);
    each(&files.kernels, |first, kernels| {
        for (place, row) in (0..kernels.start_ns.len()).zip(first..) {
            let launch = kernels.correlation.get(place).copied().unwrap_or(0);
            let node = kernels.graph_node.get(place).copied().flatten();
            let communicates = kinds.communicates(row, kernels.name[place], launch) || kinds.carries(node);
            places.add(
                Place::Stream(kernels.device[place], kernels.stream[place]),
                gather::of_kernel(kernels, place, row, communicates),
            );
        }
    })?;
    Ok(places)
}

/// Slices that are on the threads of calls, by the calls' correlation ids.
#[derive(Default)]
struct OfCalls {
    items: FxHashMap<u32, Vec<Item>>,
    /// A bit for the last bits of each id.
    known: Vec<u64>,
}

impl OfCalls {
    const BITS: u32 = 20;

    #[inline]
    fn bit(id: u32) -> (usize, u64) {
        let low = id & ((1 << Self::BITS) - 1);
        ((low / 64) as usize, 1 << (low % 64))
    }

    fn add(&mut self, id: u32, item: Item) {
        if self.known.is_empty() {
            self.known = vec![0; (1 << Self::BITS) / 64];
        }
        let (word, bit) = Self::bit(id);
        self.known[word] |= bit;
        self.items.entry(id).or_default().push(item);
    }

    #[inline]
    fn take(&mut self, id: u32) -> Option<Vec<Item>> {
        let (word, bit) = Self::bit(id);
        if self.known.get(word).is_none_or(|known| known & bit == 0) {
            return None;
        }
        self.items.remove(&id)
    }
}

/// What is on the host's threads.
fn on_threads(process: &Process, files: &Files) -> Result<Places, Unusual> {
    let mut few = Few::new();
    let mut of_calls = OfCalls::default();
    gather::waits_and_others(process, |host, item| match host {
        Host::At(place) => few.push((place, item)),
        // Zero joins nothing.
        Host::OfCall(0) => few.push((Place::NoThread, item)),
        Host::OfCall(id) => of_calls.add(id, item),
    });
    let mut places = Places::new(few);
    each(&files.operators, |first, operators| {
        for (place, row) in (0..operators.start_ns.len()).zip(first..) {
            let thread = Place::Thread(operators.thread[place]);
            places.add(thread, gather::of_operator(operators, place, row));
        }
    })?;
    each(&files.calls, |first, calls| {
        for (place, row) in (0..calls.start_ns.len()).zip(first..) {
            let thread = Place::Thread(calls.thread[place]);
            places.add(thread, gather::of_call(calls, place, row));
            if let Some(id) = calls.correlation.get(place)
                && let Some(items) = of_calls.take(*id)
            {
                for item in items {
                    places.add(thread, item);
                }
            }
        }
    })?;
    let mut without: Vec<Item> = of_calls.items.into_values().flatten().collect();
    without.sort_by_key(|item| item.source);
    for item in without {
        places.add(Place::NoThread, item);
    }
    Ok(places)
}

/// NVTX ranges, with their colours, and what NCCL tells of itself.
fn ranges(process: &Process, files: &Files) -> Result<(Places, Vec<(u32, u32)>), Unusual> {
    let mut few = Few::new();
    gather::of_nccl(process, |place, item| few.push((place, item)));
    let mut places = Places::new(few);
    let mut seen = FxHashSet::default();
    let mut colors = Vec::new();
    each(&files.markers, |first, markers| {
        for (place, row) in (0..markers.start_ns.len()).zip(first..) {
            let thread = Place::Ranges(markers.thread[place]);
            places.add(thread, gather::of_marker(markers, place, row));
            if let Some(color) = markers.color[place]
                && seen.insert(markers.name[place].number())
            {
                colors.push((markers.name[place].number(), color));
            }
        }
    })?;
    Ok((places, colors))
}

/// A first look at the recording in a folder. Nothing where that is not to be had: the folder is no recording of ours, or not as
/// our own writer leaves one, or its clocks were set, or operations had not ended. Of one that grows it is no loss that files are
/// not closed.
pub(crate) fn look(path: &Path, growing: bool) -> Option<Early> {
    let (mut outline, folders) = Recording::open_without(path, &LARGE).ok()??;
    if growing {
        outline.losses.retain(|loss| !is_unclosed(loss));
    }
    // These last until the last moment of all tables.
    let is_unfinished = |process: &Process| {
        let mut starts = process.tables.untimed_operations.start_ns.iter();
        starts.any(Option::is_some)
    };
    if outline.processes.iter().any(is_unfinished) {
        return None;
    }
    let mut files = Vec::new();
    for (process, folders) in outline.processes.iter().zip(&folders) {
        files.push(Files::open(folders, process, &mut outline.names).ok()?);
    }
    let counts: Vec<[usize; LARGE.len()]> = files.iter().map(Files::rows).collect();
    if counts.iter().flatten().any(|rows| *rows > MOST_ROWS) {
        return None;
    }
    const SIDES: usize = 3;
    // The longest first, so that none is begun when the others are done.
    let mut tasks: Vec<(usize, usize)> = (0..files.len())
        .flat_map(|process| (0..SIDES).map(move |side| (process, side)))
        .collect();
    tasks.sort_by_key(|&(process, side)| {
        let [kernels, calls, operators, markers] = counts[process];
        std::cmp::Reverse([kernels, calls + operators, markers][side])
    });
    let found = parallel::map(tasks.len(), |task| {
        let (place, side) = tasks[task];
        let (process, files) = (&outline.processes[place], &files[place]);
        let (places, colors) = match side {
            0 => (on_streams(process, files, &outline.names).ok()?, Vec::new()),
            1 => (on_threads(process, files).ok()?, Vec::new()),
            _ => ranges(process, files).ok()?,
        };
        Some((places.groups(u32::try_from(place).ok()?)?, colors))
    });
    let mut groups = Vec::new();
    let mut of_processes = vec![Vec::new(); files.len()];
    for (found, (process, _)) in found.into_iter().zip(&tasks) {
        let (own, colors) = found?;
        groups.extend(own);
        of_processes[*process].extend(colors);
    }
    groups.sort_by_key(|group| (group.process, group.place));
    let mut colors = FxHashMap::default();
    for (name, color) in of_processes.into_iter().flatten() {
        colors.entry(name).or_insert(color);
    }
    Some(Early {
        outline,
        groups,
        colors,
        rows: counts,
    })
}

/// What the timeline of a first look waits for: the whole recording. Dropped without it, nobody waits any longer.
#[derive(Debug)]
pub struct Promise {
    coming: Coming,
    outline: Arc<Recording>,
    rows: Vec<[usize; LARGE.len()]>,
}

impl Promise {
    pub(crate) fn new(coming: Coming, outline: Arc<Recording>, rows: Vec<[usize; LARGE.len()]>) -> Self {
        Self {
            coming,
            outline,
            rows,
        }
    }

    /// Gives the timeline the whole recording, whose names get the numbers that they have there.
    ///
    /// # Errors
    /// The recording, where its rows are others than those of the first look: it grew, or parts of it are gone. Who waits for
    /// the promise goes on waiting until that is dropped too.
    pub fn keep(self, mut recording: Recording) -> Result<Arc<Recording>, Box<(Recording, Self)>> {
        // Where clocks of several hosts were compared its times are others.
        let is_same = recording.clocks.is_none()
            && recording.processes.len() == self.outline.processes.len()
            && (recording
                .processes
                .iter()
                .zip(&self.outline.processes)
                .zip(&self.rows))
            .all(|((whole, outline), large)| {
                whole.folder == outline.folder
                    && (whole.tables.row_counts().iter().zip(outline.tables.row_counts())).all(
                        |((name, rows), (_, outlined))| {
                            let place = LARGE.iter().position(|large| large == name);
                            *rows == place.map_or(outlined, |place| large[place])
                        },
                    )
            });
        if !is_same {
            return Err(Box::new((recording, self)));
        }
        let mut names = self.outline.names.clone();
        let numbers = names.absorb(&recording.names);
        if (0u32..).zip(&numbers).any(|(old, new)| old != new.number()) {
            for process in recording.processes.iter_mut().chain(&mut recording.hosts) {
                process.tables.renumber(&numbers);
            }
        }
        recording.names = names;
        let recording = Arc::new(recording);
        // It is set once, here.
        drop(self.coming.set(Some(recording.clone())));
        Ok(recording)
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        drop(self.coming.set(None));
    }
}

impl Early {
    pub(crate) fn rows(&self) -> &[[usize; LARGE.len()]] {
        &self.rows
    }
}
