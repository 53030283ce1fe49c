//! Recordings of many ranks, and partials: shown as a table of ranks by steps. Of a rank's rows nothing is in memory until its timeline is
//! opened.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gputrace_analyzer::partial::{Glance, GlancedBase, GlancedBases, Part, Partial};
use gputrace_interchange::import;
use gputrace_trace::manifest::Manifest;
use gputrace_trace::{beneath, parallel};

use super::files;

/// A recording of more ranks than this is not read as a whole.
pub const MOST_RANKS: usize = if cfg!(test) { 3 } else { 128 };
/// Partials that are looked for beside a recording.
const MOST_BESIDE: usize = 4096;

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
    pub(super) ranks: BTreeSet<u32>,
    /// Where it is, or why its rows can't be read here.
    pub(super) recording: Result<PathBuf, String>,
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
///
/// # Errors
/// One line: a partial that was named, and is damaged or of another recording.
pub(super) fn plan(paths: &[PathBuf], given: &[PathBuf], by_rank: &ByRank) -> Result<Option<Plan>, String> {
    if are_partials(paths) {
        return Ok(Some(Plan::Partials(paths.to_vec(), Vec::new())));
    }
    if !paths.iter().all(|path| beneath::is_folder(path)) {
        return Ok(None);
    }
    let Some(own) = import::own_recordings(paths) else {
        return Ok(None);
    };
    let ranks: usize = own.iter().map(|path| files::rank_folders(path)).sum();
    if ranks <= MOST_RANKS && given.is_empty() {
        return Ok(None);
    }
    let [recording] = own.as_slice() else {
        return Ok(Some(Plan::Recordings(own, Vec::new())));
    };
    let found = if given.is_empty() {
        beside(recording)
    } else {
        given.to_vec()
    };
    let manifest = files::manifest(recording).unwrap_or_default();
    let bases = GlancedBases::default();
    let glances = parallel::map(found.len(), |place| {
        Glance::read(&found[place], by_rank.version, &bases)
    });
    let is_own = |glance: &Glance| {
        glance
            .bases
            .iter()
            .all(|base| is_same(base, recording, &manifest))
    };
    let (mut here, mut of, mut all) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
    for (path, glance) in found.into_iter().zip(glances) {
        let glance = match glance {
            Ok(glance) if is_own(&glance) => glance,
            // What merely lies beside the recording may be of anything.
            _ if given.is_empty() => continue,
            Ok(_) => {
                return Err(format!(
                    "{}: no partial of {}: name it alone",
                    path.display(),
                    recording.display()
                ));
            }
            Err(wrong) => return Err(wrong.to_string()),
        };
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
    Ok(Some(if !files.is_empty() && all.is_subset(&here) {
        Plan::Partials(files, glances)
    } else {
        Plan::Recordings(own, glances)
    }))
}

/// Where the recordings of partials are: among those that were named, or beside the partials.
pub(super) fn sources(
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
