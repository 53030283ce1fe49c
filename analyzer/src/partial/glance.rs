//! A look at a partial without all of it: who is in it, and the steps of each.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gputrace_trace::beneath;
use gputrace_trace::manifest::Manifest;
use gputrace_trace::sections::Sections;
use serde::Deserialize;

use super::file::{FORMAT, about_of};
use super::parts::{Part, Partial, Wrong};
use crate::alone::AnalysedDevice;
use crate::communicators::Side;
use crate::rank_steps::{InCommunicator, KnownRank, RankState};
use crate::steps::StepAnalysis;

/// A recording that a partial is of.
#[derive(Debug, Deserialize)]
pub struct GlancedBase {
    /// Where it was read.
    pub path: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// The folders of all its processes, whether they are in the partial or not, with their ranks.
    pub processes: BTreeMap<String, Option<u32>>,
}

/// What is known of a process at a glance.
#[derive(Debug)]
pub struct GlancedPart {
    /// The place of its recording among those of the partial.
    pub base: usize,
    /// The name of its folder.
    pub folder: String,
    /// Its rank, as it says.
    pub rank: Option<u32>,
    /// How many ranks it says that the job has.
    pub world_size: Option<u32>,
    /// Its devices.
    pub devices: Vec<KnownRank>,
}

/// Recordings that files were of: what is said of one is the same in each of its partials, and is read once.
#[derive(Debug, Default)]
pub struct GlancedBases(Mutex<Vec<(Vec<u8>, Arc<GlancedBase>)>>);

impl GlancedBases {
    fn read(&self, bytes: Vec<u8>) -> serde_json::Result<Arc<GlancedBase>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, base)) = known().iter().find(|(other, _)| *other == bytes) {
            return Ok(base.clone());
        }
        let base: Arc<GlancedBase> = Arc::new(serde_json::from_slice(&bytes)?);
        known().push((bytes, base.clone()));
        Ok(base)
    }
}

/// What a partial holds, at a glance.
#[derive(Debug, Default)]
pub struct Glance {
    /// The recordings.
    pub bases: Vec<Arc<GlancedBase>>,
    /// Their processes that are in it.
    pub parts: Vec<GlancedPart>,
}

#[derive(Deserialize)]
struct StoredPart {
    base: usize,
    header: StoredHeader,
    alone: StoredAlone,
}

#[derive(Deserialize)]
struct StoredHeader {
    rank: Option<u32>,
    world_size: Option<u32>,
    #[serde(default)]
    host: String,
}

#[derive(Deserialize)]
struct StoredAlone {
    devices: Vec<StoredDevice>,
    communicators: Side,
}

#[derive(Deserialize)]
struct StoredDevice {
    rank: StoredRank,
}

#[derive(Deserialize)]
struct StoredRank {
    device_index: u32,
    device_name: Option<String>,
    steps: Vec<StepAnalysis>,
}

impl Glance {
    /// Whether a file says that it is a partial, of whatever version.
    #[must_use]
    pub fn is_partial(path: &Path) -> bool {
        beneath::open(path).is_ok_and(Self::is_in)
    }

    /// The same of what can be read.
    #[must_use]
    pub fn is_in(file: impl Read) -> bool {
        let mut head = Vec::new();
        let read = file.take(1 << 12).read_to_end(&mut head);
        let holds = |text: &[u8]| head.windows(text.len()).any(|window| window == text);
        read.is_ok() && head.starts_with(b"ARROW1") && holds(FORMAT.as_bytes())
    }

    /// Reads a file of this version; `bases` are shared by files that are read together.
    ///
    /// # Errors
    /// As [`Partial::read`].
    pub fn read(path: &Path, version: &str, bases: &GlancedBases) -> Result<Self, Wrong> {
        let wanted = |name: &str| name == "process" || name.starts_with("base ");
        let sections = Sections::read_some(path, wanted);
        let sections = about_of(path, sections, version)?;
        let broken =
            |error: io::Error| Wrong(format!("{}: damaged ({error}): make it again", path.display()));
        let mut glance = Self::default();
        for section in sections.all {
            if section.name != "process" {
                let base = bases.read(section.data);
                glance.bases.push(base.map_err(|error| broken(error.into()))?);
                continue;
            }
            let stored: StoredPart =
                serde_json::from_slice(&section.data).map_err(|error| broken(error.into()))?;
            if stored.base >= glance.bases.len() {
                return Err(broken(io::Error::other("a recording that is not there")));
            }
            let StoredPart { base, header, alone } = stored;
            let communicators = alone.communicators.known();
            let devices = alone.devices.into_iter().map(|device| KnownRank {
                rank: header.rank,
                device_index: device.rank.device_index,
                device_name: device.rank.device_name,
                host: header.host.clone(),
                communicators: communicators.clone(),
                steps: device.rank.steps,
            });
            glance.parts.push(GlancedPart {
                base,
                folder: section.of,
                rank: header.rank,
                world_size: header.world_size,
                devices: devices.collect(),
            });
        }
        Ok(glance)
    }

    /// Those of all: files of one run.
    #[must_use]
    pub fn together(all: Vec<Self>) -> Self {
        let mut whole = Self::default();
        for mut one in all {
            let mut places = Vec::new();
            for base in one.bases {
                let same = whole.bases.iter().position(|known| known.path == base.path);
                places.push(same.unwrap_or(whole.bases.len()));
                if same.is_none() {
                    whole.bases.push(base);
                }
            }
            for part in &mut one.parts {
                part.base = places[part.base];
            }
            whole.parts.extend(one.parts);
        }
        whole
    }

    /// Ranks without a device in it: those that ran nothing, and those that its recordings name, or that the job has by the size that
    /// its processes say, and that are not in it.
    #[must_use]
    pub fn others(&self) -> BTreeMap<u32, RankState> {
        let named = self
            .bases
            .iter()
            .flat_map(|base| base.processes.values().flatten().copied());
        let here = self.parts.iter().filter_map(|part| part.rank);
        let size = self.parts.iter().filter_map(|part| part.world_size).max();
        others_of(here, named, size)
    }
}

/// Ranks of a job that are not among those with devices: of these `here` ran nothing, and those that are named or below the size of the
/// job are missing.
pub fn others_of(
    here: impl Iterator<Item = u32>,
    named: impl Iterator<Item = u32>,
    size: Option<u32>,
) -> BTreeMap<u32, RankState> {
    /// A file may claim any size: no more ranks than this are believed to be missing.
    const MOST: u32 = 1 << 17;
    let all = named.chain(0..size.unwrap_or(0).min(MOST));
    let mut others: BTreeMap<u32, RankState> = all.map(|rank| (rank, RankState::Missing)).collect();
    others.extend(here.map(|rank| (rank, RankState::Nothing)));
    others
}

impl Part {
    /// What is known of its devices' steps.
    #[must_use]
    pub fn known(&self) -> Vec<KnownRank> {
        let communicators = self.alone.communicators.known();
        let of = |device: &AnalysedDevice| KnownRank {
            rank: self.header.rank,
            device_index: device.rank.device_index,
            device_name: device.rank.device_name.clone(),
            host: self.header.host.clone(),
            communicators: communicators.clone(),
            steps: device.rank.steps.clone(),
        };
        self.alone.devices.iter().map(of).collect()
    }
}

impl Partial {
    /// As [`Glance::others`].
    #[must_use]
    pub fn others(&self) -> BTreeMap<u32, RankState> {
        let parts = || self.parts.iter().flatten();
        let named = self
            .bases
            .iter()
            .flat_map(|base| base.processes.values().flatten().copied());
        let size = parts().filter_map(|part| part.header.world_size).max();
        others_of(parts().filter_map(|part| part.header.rank), named, size)
    }
}

impl Side {
    /// The communicators that the process says it is in.
    fn known(&self) -> Vec<InCommunicator> {
        self.described()
            .map(|(communicator, name, ranks, place)| InCommunicator {
                communicator,
                name: name.map(str::to_owned),
                ranks: Some(ranks),
                place: Some(place),
            })
            .collect()
    }
}
