//! Reading a run process by process: each is read, what is known of it alone is kept, and its rows are let go.

use std::collections::HashSet;
use std::path::PathBuf;

use gputrace_analyzer::partial::{
    self, Base, CLOCK_TABLES, ClockOf, ClockSide, Part, Partial, clocks_may_differ,
};
use gputrace_analyzer::{ClockChoice, ComparedClocks, Options};
use gputrace_interchange::import;
use gputrace_trace::alignment::Alignment;
use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::recording::{Piece, Pieces};
use gputrace_trace::tables::TABLE_NAMES;
use gputrace_trace::{Recording, beneath, parallel};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::opening::{PATIENCE, PERIOD};

/// The recordings that paths stand for, if they can be read process by process.
pub struct Run {
    recordings: Vec<Pieces>,
}

/// The ranks that are wanted, first and last.
pub type Ranks = Option<(u64, u64)>;

/// Whether a process is wanted: one without a rank goes with rank 0, so that ranges of all ranks hold it once.
pub fn is_wanted(rank: Option<u32>, ranks: Ranks) -> bool {
    let rank = rank.map_or(0, u64::from);
    ranks.is_none_or(|(first, last)| (first..=last).contains(&rank))
}

impl Run {
    /// `None` where they are anything else than recordings of our own with different ranks: then they are opened as wholes, which also
    /// says what is wrong with them.
    pub fn open(paths: &[PathBuf]) -> Option<Self> {
        paths.iter().for_each(|path| beneath::name(path));
        let own = import::own_recordings(paths)?;
        let recordings: Vec<Pieces> = own
            .iter()
            .map(|path| Pieces::open(path).ok())
            .collect::<Option<_>>()?;
        let mut known: Vec<u32> = Vec::new();
        for pieces in &recordings {
            let ranks = ranks_of(pieces);
            if ranks.iter().any(|rank| known.contains(rank)) {
                return None;
            }
            known.extend(ranks);
        }
        Some(Self { recordings })
    }

    /// The ranks of all its processes, in order; `None` where one has none.
    pub fn ranks(&self) -> Option<Vec<u32>> {
        let mut ranks = Vec::new();
        for pieces in &self.recordings {
            for place in pieces.of_ranks() {
                ranks.push(pieces.header(place).rank?);
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        Some(ranks).filter(|ranks| !ranks.is_empty())
    }

    /// Whether several clocks may have stamped it.
    pub fn clocks_may_differ(&self) -> bool {
        let bases: Vec<&Recording> = self.recordings.iter().map(Pieces::base).collect();
        let headers: Vec<&ProcessHeader> = self
            .recordings
            .iter()
            .flat_map(|pieces| pieces.of_ranks().map(|place| pieces.header(place)))
            .collect();
        clocks_may_differ(&bases, &headers)
    }

    /// Those of all its recordings.
    pub fn fingerprints(&self) -> String {
        let all: Vec<String> = self.recordings.iter().map(Self::fingerprint).collect();
        all.join(" ")
    }

    /// Its files, in a few digits: names, sizes and when they were written.
    fn fingerprint(pieces: &Pieces) -> String {
        let folders = (0..pieces.len()).flat_map(|place| pieces.folders(place).to_vec());
        let files: Vec<PathBuf> = folders.chain(Some(pieces.base().path.clone())).collect();
        fingerprint(&files)
    }

    /// Reads what is wanted of it.
    pub fn partial(self, options: &Options, clocks: &ClockChoice, ranks: Ranks) -> Result<Partial, Failure> {
        self.partial_telling(options, clocks, ranks, &|_| ())
    }

    /// The same, telling of each process as soon as it was read.
    pub fn partial_telling(
        self,
        options: &Options,
        clocks: &ClockChoice,
        ranks: Ranks,
        tell: &(dyn Fn(&Part) + Sync),
    ) -> Result<Partial, Failure> {
        let compared = match clocks {
            ClockChoice::None => None,
            ClockChoice::Compared(compared) => Some((None, compared.clone())),
            ClockChoice::Estimate | ClockChoice::Given(_) => self.compare_clocks()?,
        };
        let wanted = |pieces: &Pieces| -> Vec<usize> {
            let places = 0..pieces.len();
            places
                .filter(|place| pieces.is_of_whole(*place) || is_wanted(pieces.header(*place).rank, ranks))
                .collect()
        };
        let count: usize = self.recordings.iter().map(|pieces| wanted(pieces).len()).sum();
        let bar = bar("reading", "processes", count as u64);
        let mut all = Partial::default();
        for (number, pieces) in self.recordings.into_iter().enumerate() {
            let places = wanted(&pieces);
            let fingerprint = Self::fingerprint(&pieces);
            let manifest = pieces.base().manifest.clone();
            let read = parallel::map(places.len(), |index| {
                let place = places[index];
                let mut piece = read(&pieces, place, TABLE_NAMES)?;
                bar.inc(1);
                if pieces.is_of_whole(place) {
                    return Ok((piece.unchecked, None, Some(piece.recording)));
                }
                if let (Some((clock_of, compared)), Some(process)) =
                    (&compared, piece.recording.processes.first_mut())
                {
                    match clock_of {
                        Some(clock_of) => process.header.clock = clock_of.get(&(number, place)).copied(),
                        None => compared.name(&mut process.header).map_err(Failure::new)?,
                    }
                    compared.alignment.align(process);
                }
                let part = Part::of(piece.recording, piece.unchecked, &manifest, options);
                tell(&part);
                Ok((piece.unchecked, Some(part), None))
            });
            let mut processes = std::collections::BTreeMap::new();
            for place in pieces.of_ranks() {
                processes.insert(pieces.folder(place).to_owned(), pieces.header(place).rank);
            }
            let read: Vec<(usize, Option<Part>, Option<Recording>)> =
                read.into_iter().collect::<Result<_, Failure>>()?;
            let hosts = read.iter().filter(|(.., host)| host.is_some());
            let unchecked = hosts.map(|(unchecked, ..)| unchecked).sum();
            let folders = pieces.folder_count();
            let mut base = pieces.into_base();
            base.clocks = compared.as_ref().map(|(_, compared)| compared.alignment.clone());
            let mut parts = Vec::new();
            for (_, part, host) in read {
                parts.extend(part);
                if let Some(mut host) = host {
                    // Beside it the clocks are set already, and it is moved with them later.
                    let clocks: Option<Alignment> = base.clocks.take();
                    host.clocks = None;
                    base.absorb(host);
                    base.clocks = clocks;
                }
            }
            all.bases.push(Base {
                recording: base,
                processes,
                fingerprint,
                folders,
                unchecked,
                was_aligned: false,
            });
            all.parts.push(parts);
        }
        bar.finish_and_clear();
        Ok(all)
    }

    /// The clocks of all its processes, compared; `None` where one stamped it.
    pub fn clocks(&self) -> Result<Option<ComparedClocks>, Failure> {
        Ok(self.compare_clocks()?.map(|(_, compared)| compared))
    }

    /// Compares the clocks of all its processes, if several may have stamped it.
    fn compare_clocks(&self) -> Result<Option<(Option<ClockOf>, ComparedClocks)>, Failure> {
        if !self.clocks_may_differ() {
            return Ok(None);
        }
        let bases: Vec<&Recording> = self.recordings.iter().map(Pieces::base).collect();
        let recordings = self.recordings.iter().enumerate();
        let places: Vec<(usize, &Pieces, usize)> = recordings
            .flat_map(|(number, pieces)| pieces.of_ranks().map(move |place| (number, pieces, place)))
            .collect();
        let bar = bar("comparing clocks", "processes", places.len() as u64);
        let sides = parallel::map(places.len(), |index| {
            let (number, pieces, place) = places[index];
            let mut piece = read(pieces, place, CLOCK_TABLES)?;
            if piece.was_set {
                // Where in time its own clock was set is seen by all of its tables together.
                piece = read(pieces, place, TABLE_NAMES)?;
            }
            bar.inc(1);
            Ok(ClockSide::of(&piece.recording, (number, place)))
        });
        let sides: Vec<Option<ClockSide>> = sides.into_iter().collect::<Result<_, Failure>>()?;
        bar.finish_and_clear();
        let mut sides: Vec<ClockSide> = sides.into_iter().flatten().collect();
        Ok(partial::compare_clocks(&bases, &mut sides).map(|(clock_of, clocks)| (Some(clock_of), clocks)))
    }
}

fn read(pieces: &Pieces, place: usize, tables: &[&str]) -> Result<Piece, Failure> {
    pieces
        .read(place, tables)
        .map_err(|error| Failure::new(error.to_string()))
}

fn ranks_of(pieces: &Pieces) -> Vec<u32> {
    pieces
        .of_ranks()
        .filter_map(|place| pieces.header(place).rank)
        .collect()
}

/// What files are, in a few digits: their names, sizes and when they were written; of folders what lies in them and in their
/// folders, as deep as traces are looked for.
pub fn fingerprint(paths: &[PathBuf]) -> String {
    /// A folder of recordings is looked for in three folders; one has two levels.
    const DEPTH: usize = 6;
    let mut seen: Vec<(String, u64, u64)> = Vec::new();
    let mut folders: HashSet<PathBuf> = HashSet::new();
    let mut waiting: Vec<(PathBuf, usize)> = paths.iter().map(|path| (path.clone(), DEPTH)).collect();
    while let Some((path, depth)) = waiting.pop() {
        let Ok(about) = std::fs::metadata(&path) else {
            continue;
        };
        if about.is_dir() {
            // Links can lead to a folder many times.
            if depth > 0 && folders.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
                let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
                waiting.extend(entries.map(|entry| (entry.path(), depth - 1)));
            }
            continue;
        }
        let modified = about.modified().ok();
        let modified = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let nanoseconds = modified.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        seen.push((path.display().to_string(), about.len(), nanoseconds));
    }
    seen.sort();
    let text: Vec<String> = seen
        .into_iter()
        .map(|(name, bytes, modified)| format!("{name} {bytes} {modified}"))
        .collect();
    gputrace_trace::seal::digest(text.join("\n").as_bytes())
}

/// A bar for what takes more than a moment.
pub fn bar(what: &str, things: &str, length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    let template = format!("{what} {{wide_bar}} {{pos}} of {{len}} {things}, {{eta}} left");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    show_later(&bar);
    bar
}

/// A spinner for work of unknown length.
pub fn busy(what: String) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    bar.set_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg} {spinner} {elapsed}") {
        bar.set_style(style);
    }
    show_later(&bar);
    bar
}

fn show_later(bar: &ProgressBar) {
    let later = bar.clone();
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        if !later.is_finished() {
            later.set_draw_target(ProgressDrawTarget::stderr());
            later.enable_steady_tick(PERIOD);
        }
    });
}
