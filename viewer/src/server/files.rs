//! What lies on the disk: which paths are recordings, how large they are, when they changed.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use gputrace_interchange::parquet_folder;
use gputrace_trace::beneath::{self, Kind, Stat};
use gputrace_trace::json_file::{Json, read_json};
use gputrace_trace::manifest::{HOST_ROLE, MANIFEST_FILE, Manifest, PROCESS_FILE, ProcessHeader};
use gputrace_trace::recording::{is_simulated, manifest_files, process_folders, segment_of};

/// How trace files of other tools end.
const TRACE_ENDINGS: &[&str] = &[".json", ".json.gz", ".json.zst", ".sqlite"];
/// Folders in folders in folders are looked into, no deeper.
const DEPTH: usize = 3;
/// More recordings than this in a folder are not listed.
pub const MOST_RECORDINGS: usize = 10_000;

/// What a look at the files of a recording shows: enough to see that they changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Bytes of all files.
    pub bytes: u64,
    /// How many.
    pub files: usize,
    /// The newest change, milliseconds since the epoch.
    pub modified_ms: u64,
}

impl Signature {
    /// The files of a recording: those named, and those in folders named, two levels deep. What can't be read counts for
    /// nothing; `None` where none of the paths is there.
    #[must_use]
    pub fn of(paths: &[PathBuf]) -> Option<Self> {
        let mut signature = Self::default();
        let mut any = false;
        for path in paths {
            if let Ok(found) = beneath::stat(path) {
                any = true;
                signature.add(path, found, DEPTH);
            }
        }
        any.then_some(signature)
    }

    fn add(&mut self, path: &Path, found: Stat, depth: usize) {
        match found.kind {
            Kind::Folder if depth > 0 => {
                for entry in beneath::entries(path).into_iter().flatten() {
                    self.add(&entry.path, entry.stat, depth - 1);
                }
            }
            Kind::File | Kind::Special => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(found.bytes);
                self.modified_ms = self.modified_ms.max(found.modified_ms);
            }
            Kind::Folder | Kind::LeadsOut | Kind::Broken => {}
        }
    }
}

/// Whether a folder is one of our recordings.
#[must_use]
pub fn is_recording(folder: &Path) -> bool {
    beneath::is_file(&folder.join(MANIFEST_FILE))
        || process_folders(folder).is_ok_and(|folders| !folders.is_empty())
}

/// How many processes a recording has that are no recorder's, by the names of its folders.
#[must_use]
pub fn rank_folders(path: &Path) -> usize {
    let folders = process_folders(path).unwrap_or_default();
    let ranks = folders.iter().filter(|folder| !is_host(folder));
    let names = ranks.filter_map(|folder| folder.file_name());
    let names: HashSet<String> = names
        .map(|name| segment_of(&name.to_string_lossy()).0.to_owned())
        .collect();
    names.len()
}

/// Whether a recorder says that it still writes a recording: one of those that share it, where several do.
#[must_use]
pub fn is_open(folder: &Path) -> bool {
    let manifests = manifest_files(folder).unwrap_or_default();
    let mut states = manifests.iter().filter_map(|file| read_manifest(file));
    states.any(|manifest| manifest.state == "recording")
}

fn read_manifest(file: &Path) -> Option<Manifest> {
    read_json(file).ok().and_then(Json::ok)
}

/// The manifest of a recording that was not opened.
#[must_use]
pub fn manifest(path: &Path) -> Option<Manifest> {
    read_manifest(&path.join(MANIFEST_FILE))
}

/// Whether something in a folder is a trace file.
fn is_trace(path: &Path, found: Stat) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_ascii_lowercase();
    TRACE_ENDINGS.iter().any(|ending| name.ends_with(ending)) && found.kind == Kind::File
}

/// A recording in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its folder or file, or the files of one run of several.
    pub paths: Vec<PathBuf>,
    /// Its path in the folder, and which run in that it is; empty where it is the folder itself.
    pub name: String,
}

impl Found {
    fn new(root: &Path, path: PathBuf) -> Self {
        let name = name_in(root, &path);
        Self {
            paths: vec![path],
            name,
        }
    }
}

fn name_in(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// The recordings in a folder: ours, trace files, and folders with trace files, each folder as one run, or as its cycles
/// where files say which they are of, but for those whose files are `apart`. And the links in it that lead out of it, which
/// are not followed.
#[must_use]
pub fn recordings_in(folder: &Path, apart: &HashSet<PathBuf>) -> (Vec<Found>, Vec<PathBuf>) {
    let Ok(folder) = folder.canonicalize() else {
        return (Vec::new(), Vec::new());
    };
    beneath::name_if_none(&folder);
    // A folder with a damaged recording in it is not itself one.
    if beneath::is_file(&folder.join(MANIFEST_FILE)) || parquet_folder::is_folder(&folder) {
        return (vec![Found::new(&folder, folder.clone())], Vec::new());
    }
    let mut look = Look {
        root: &folder,
        apart,
        seen: HashSet::from([folder.clone()]),
        found: Vec::new(),
        lead_out: Vec::new(),
    };
    look.through(&folder, DEPTH);
    let Look {
        mut found, lead_out, ..
    } = look;
    // One whose manifest is gone has nothing else in it.
    if found.is_empty() && is_recording(&folder) {
        found.push(Found::new(&folder, folder.clone()));
    }
    (found, lead_out)
}

/// Whether a folder holds what the recorder samples of a host, which is no rank's: its header says so, or its name where
/// there is no header (yet).
#[must_use]
pub fn is_host(folder: &Path) -> bool {
    let named_so = folder
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"host-"));
    // A host of that name has ranks whose folders begin like this too.
    named_so && header(folder).is_none_or(|header| header.role == HOST_ROLE)
}

fn header(folder: &Path) -> Option<ProcessHeader> {
    read_json(&folder.join(PROCESS_FILE)).ok().and_then(Json::ok)
}

/// How many ranks a recording has that was not opened, and of which device it is, by its processes' folders: for one whose
/// manifest does not say it (yet). Without a name of a device where no process says that.
#[must_use]
pub fn processes(path: &Path) -> (usize, String) {
    let folders = process_folders(path).unwrap_or_default();
    let known = folders.iter().filter_map(|folder| header(folder));
    let devices = known
        .map(|header| header.devices)
        .find(|devices| !devices.is_empty());
    let device = devices.map_or("", |devices| {
        if devices.iter().any(is_simulated) {
            "sim"
        } else {
            "cuda"
        }
    });
    (rank_folders(path), device.to_owned())
}

/// A look through a folder.
struct Look<'a> {
    root: &'a Path,
    apart: &'a HashSet<PathBuf>,
    seen: HashSet<PathBuf>,
    found: Vec<Found>,
    /// Links that lead out of the folder.
    lead_out: Vec<PathBuf>,
}

impl Look<'_> {
    fn through(&mut self, folder: &Path, depth: usize) {
        let is_hidden = |path: &Path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        let mut paths = Vec::new();
        for entry in beneath::entries(folder).into_iter().flatten() {
            if is_hidden(&entry.path) {
                continue;
            }
            if entry.stat.kind == Kind::LeadsOut {
                self.lead_out.push(entry.path);
            } else if let Ok(real) = entry.path.canonicalize() {
                // What lies in another folder that was named is called as it is here.
                let path = if real.starts_with(self.root) {
                    real.clone()
                } else {
                    entry.path
                };
                paths.push((path, real, entry.stat));
            }
        }
        paths.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, real, found) in paths {
            if self.found.len() >= MOST_RECORDINGS || !self.seen.insert(real) {
                continue;
            }
            if found.kind == Kind::Folder {
                let is_apart = self.apart.contains(&path);
                if beneath::exists(&path.join(PROCESS_FILE)) {
                    // A part of a recording that has lost its folder.
                } else if is_recording(&path) {
                    self.found.push(Found::new(self.root, path));
                } else if holds_traces(&path) && !is_apart {
                    self.runs_of(path);
                } else if depth > 0 || is_apart {
                    self.through(&path, depth.saturating_sub(1));
                }
            } else if is_trace(&path, found) {
                self.found.push(Found::new(self.root, path));
            }
        }
    }

    /// A folder with traces.
    fn runs_of(&mut self, folder: PathBuf) {
        let cycles = cycles(&folder);
        if cycles.len() < 2 {
            self.found.push(Found::new(self.root, folder));
            return;
        }
        let name = name_in(self.root, &folder);
        let runs = (1..).zip(cycles).map(|(cycle, paths)| Found {
            paths,
            name: format!("{name} (cycle {cycle})"),
        });
        self.found.extend(runs);
    }
}

/// The files of each time that PyTorch's profiler was on, where all files of a folder are named as its handler for TensorBoard
/// does (`WORKER.TIME.pt.trace.json`, torch/profiler/profiler.py) and there are as many of each worker; else none.
fn cycles(folder: &Path) -> Vec<Vec<PathBuf>> {
    let mut workers: BTreeMap<String, Vec<(u64, PathBuf)>> = BTreeMap::new();
    for path in traces_in(folder) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let told = plain
            .strip_suffix(".pt.trace.json")
            .and_then(|name| name.rsplit_once('.'))
            .and_then(|(worker, time)| Some((worker.to_owned(), time.parse().ok()?)));
        let Some((worker, time)) = told else {
            return Vec::new();
        };
        workers.entry(worker).or_default().push((time, path));
    }
    let count = workers.values().next().map_or(0, Vec::len);
    if workers.values().any(|files| files.len() != count) {
        return Vec::new();
    }
    for files in workers.values_mut() {
        files.sort();
    }
    (0..count)
        .map(|cycle| workers.values().map(|files| files[cycle].1.clone()).collect())
        .collect()
}

fn holds_traces(folder: &Path) -> bool {
    !traces_in(folder).is_empty()
}

fn traces_in(folder: &Path) -> Vec<PathBuf> {
    let entries = beneath::entries(folder).into_iter().flatten();
    let traces = entries.filter(|entry| is_trace(&entry.path, entry.stat));
    traces.map(|entry| entry.path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths_in(folder: &Path) -> Vec<Vec<PathBuf>> {
        let found = recordings_in(folder, &HashSet::new()).0.into_iter();
        found.map(|one| one.paths).collect()
    }

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }

    #[test]
    fn what_a_folder_holds() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        touch(&root.join("run1/manifest.json"));
        touch(&root.join("run2/rank0/kernels.arrows"));
        touch(&root.join("nested/deep/run3/manifest.json"));
        touch(&root.join("kineto/rank0.json.gz"));
        touch(&root.join("kineto/rank1.json.gz"));
        touch(&root.join("one.sqlite"));
        touch(&root.join(".hidden/run/manifest.json"));
        touch(&root.join("notes.txt"));
        touch(&root.join("rank7/process.json"));
        touch(&outside.path().join("run4/manifest.json"));
        std::os::unix::fs::symlink(outside.path().join("run4"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(&root, root.join("nested/around")).unwrap();
        let (found, lead_out) = recordings_in(&root, &HashSet::new());
        assert_eq!(lead_out, [root.join("link")]);
        let names = ["kineto", "nested/deep/run3", "one.sqlite", "run1", "run2"];
        assert_eq!(
            found,
            names.map(|name| Found {
                paths: vec![root.join(name)],
                name: name.to_owned()
            })
        );
        for run in ["run1", "run2"] {
            assert_eq!(paths_in(&root.join(run)), [[root.join(run)]]);
        }
        assert!(paths_in(&root.join("nothing")).is_empty());
    }

    #[test]
    fn files_that_are_runs_of_their_own_are_listed_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        touch(&root.join("a/b/c/d/rank0.first.json"));
        touch(&root.join("a/b/c/d/rank0.second.json"));
        touch(&root.join("other/rank0.json"));
        let deep = root.join("a/b/c/d");
        let (first, second) = (deep.join("rank0.first.json"), deep.join("rank0.second.json"));
        let other = root.join("other");
        assert_eq!(paths_in(&root), [[deep.clone()], [other.clone()]]);
        let (apart, _) = recordings_in(&root, &HashSet::from([deep]));
        let paths: Vec<PathBuf> = apart.into_iter().flat_map(|found| found.paths).collect();
        assert_eq!(paths, [first, second, other]);
    }

    #[test]
    fn each_cycle_of_a_profiler_is_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let names = |folder: &str, files: &[&str]| -> Vec<(String, usize)> {
            for file in files {
                touch(&root.join(folder).join(file));
            }
            let (found, _) = recordings_in(&root, &HashSet::new());
            let of = found.into_iter().filter(|one| one.name.starts_with(folder));
            of.map(|one| (one.name, one.paths.len())).collect()
        };
        let one = |name: &str, files| (name.to_owned(), files);
        // The times are numbers: 9 is before 10.
        let files = [
            "a_1.10.pt.trace.json",
            "a_1.9.pt.trace.json",
            "b_2.11.pt.trace.json.gz",
            "b_2.8.pt.trace.json.gz",
        ];
        assert_eq!(
            names("logs", &files),
            [one("logs (cycle 1)", 2), one("logs (cycle 2)", 2)]
        );
        let logs = root.join("logs");
        assert_eq!(cycles(&logs)[0], [logs.join(files[1]), logs.join(files[3])]);
        // One that is missing leaves open which belong together; so does another name.
        assert_eq!(names("uneven", &files[..3]), [one("uneven", 1)]);
        assert_eq!(names("ranks", &[files[0], files[2]]), [one("ranks", 1)]);
        assert_eq!(names("other", &[files[0], files[1], "x.json"]), [one("other", 1)]);
    }

    #[test]
    fn ranks_are_counted_without_a_manifest() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        touch(&run.join("host-a-1/counters.arrows"));
        touch(&run.join("a-2/kernels.arrows"));
        touch(&run.join("a-2.1/kernels.arrows"));
        touch(&run.join("a-3/kernels.arrows"));
        assert_eq!(processes(&run), (2, String::new()));
        let header = r#"{"devices":[{"index":0,"name":"Simulated H200"}]}"#;
        std::fs::write(run.join("a-3/process.json"), header).unwrap();
        assert_eq!(processes(&run), (2, "sim".to_owned()));
        assert_eq!(paths_in(&run), [[run.canonicalize().unwrap()]]);
        // A rank on a host of that name is one.
        touch(&run.join("host-b-4/kernels.arrows"));
        std::fs::write(run.join("host-b-4/process.json"), header).unwrap();
        std::fs::write(run.join("host-a-1/process.json"), r#"{"role":"host"}"#).unwrap();
        assert_eq!(processes(&run), (3, "sim".to_owned()));
    }

    #[test]
    fn a_change_shows() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("run")];
        assert_eq!(Signature::of(&paths), None);
        touch(&paths[0].join("rank0/kernels.arrows"));
        let first = Signature::of(&paths).unwrap();
        assert_eq!((first.bytes, first.files), (1, 1));
        std::fs::write(paths[0].join("rank0/kernels.arrows"), "xy").unwrap();
        assert_ne!(Signature::of(&paths), Some(first));
    }
}
