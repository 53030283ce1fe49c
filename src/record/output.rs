//! The folder that a recording is written into: one of its own, or one that the recorders of a launch share.
//!
//! No file has two writers. Who makes the folder writes `manifest.json`, every other recorder `manifest-HOST-PID.json`, and
//! readers put them together. What only one on a host is to do (samples, keeping the size) is done by who can make the
//! host's mark.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use gputrace_trace::control::CONTROL_FILE;
use gputrace_trace::json_file::{Json, read_json};
use gputrace_trace::manifest::{MANIFEST_FILE, Manifest};
use gputrace_trace::recording::{host_in_names, manifest_files};
use gputrace_trace::seal::{id_text, random_id};
use gputrace_trace::{access, now, place};

use super::launch::Launch;
use crate::failure::Failure;

/// How long a recorder waits for who made the folder to write its manifest: a shared disk may show it late.
const PATIENCE: Duration = Duration::from_secs(30);
/// An older folder without a manifest is nobody's that begins now.
const YOUNG: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A recording's folder, and which of its files are ours.
pub struct Output {
    /// The folder.
    pub folder: PathBuf,
    /// Our manifest.
    pub manifest: PathBuf,
    /// Our control file.
    pub control: PathBuf,
    /// Whether other recorders write into it too.
    pub is_shared: bool,
    /// Whether the folder is of our making.
    pub is_made_by_us: bool,
    /// The host's mark, if we made it.
    mark: Option<PathBuf>,
}

impl Output {
    /// Makes the folder: `wanted`, or gputrace-NAME-DATE here. Never one that exists, unless a recorder of the same launch
    /// has made it, and never inside another recording.
    pub fn create(
        wanted: Option<&Path>,
        parents: bool,
        name: &str,
        launch: Option<&Launch>,
        host: &str,
    ) -> Result<Self, Failure> {
        if let Some(wanted) = wanted {
            prepare(wanted, parents)?;
        }
        let (folder, made) = match (wanted, launch) {
            (Some(folder), launch) => (folder.to_owned(), make_or_join(folder, launch)?),
            // All have to come to the same name.
            (None, Some(launch)) => {
                let folder = PathBuf::from(format!("gputrace-{name}-{}", launch.file_name()));
                let made = make_or_join(&folder, Some(launch))?;
                (folder, made)
            }
            (None, None) => (make_dated(name)?, true),
        };
        let folder = folder
            .canonicalize()
            .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
        let host = host_in_names(host);
        let own = format!("{host}-{}", std::process::id());
        let (manifest, control) = if made {
            (MANIFEST_FILE.to_owned(), CONTROL_FILE.to_owned())
        } else {
            (format!("manifest-{own}.json"), format!("{CONTROL_FILE}-{own}"))
        };
        let is_shared = launch.is_some();
        let mark = is_shared.then(|| folder.join(format!(".leader-{host}")));
        let mark = mark.filter(|mark| make_mark(mark).is_ok());
        Ok(Self {
            manifest: folder.join(manifest),
            control: folder.join(control),
            folder,
            is_shared,
            is_made_by_us: made,
            mark,
        })
    }

    /// The recording's number: that of who made the folder; empty where that can't be read.
    pub fn recording(&self) -> String {
        if self.is_made_by_us {
            return id_text(random_id());
        }
        read(&self.folder.join(MANIFEST_FILE)).map_or_else(String::new, |manifest| manifest.recording)
    }

    /// Whether we do what only one recorder on a host is to do.
    pub fn leads_host(&self) -> bool {
        !self.is_shared || self.mark.is_some()
    }

    /// Takes away a recording that never began: our manifest, and the folder if it is ours alone; nothing else.
    pub fn remove(&self) {
        // Best effort: the failure that led here is the one to tell.
        drop(fs::remove_file(&self.control));
        self.unmark();
        if !self.is_shared {
            drop(fs::remove_file(&self.manifest));
            drop(fs::remove_dir(&self.folder));
        }
    }

    /// Takes away the host's mark at the end.
    pub fn unmark(&self) {
        if let Some(mark) = &self.mark {
            drop(fs::remove_file(mark));
        }
    }

    /// Waits until all recorders of the launch have closed theirs, for some seconds; how many are missing then.
    pub fn wait_for_others(&self, size: Option<u32>, patience: Duration) -> usize {
        let begun = Instant::now();
        loop {
            let states: Vec<bool> = manifest_files(&self.folder)
                .unwrap_or_default()
                .iter()
                .map(|path| read(path).is_some_and(|manifest| manifest.state != "recording"))
                .collect();
            let closed = states.iter().filter(|closed| **closed).count();
            let all = size.map_or(states.len(), |size| size as usize);
            if closed >= all || begun.elapsed() >= patience {
                return all.saturating_sub(closed);
            }
            std::thread::sleep(POLL);
        }
    }
}

fn make_mark(mark: &Path) -> std::io::Result<fs::File> {
    let mut options = fs::File::options();
    options.write(true).create_new(true).mode(access::file_mode());
    options.open(mark)
}

fn read(path: &Path) -> Option<Manifest> {
    read_json(path).ok().and_then(Json::ok)
}

/// Refuses a folder where no recording belongs, and makes those that it is in where that is wanted.
fn prepare(folder: &Path, parents: bool) -> Result<(), Failure> {
    place::refuse_inside(folder).map_err(|refused| Failure::new(refused.to_string()))?;
    match folder.parent() {
        Some(parent) if parents => fs::create_dir_all(parent).map_err(|error| not_made(folder, &error)),
        _ => Ok(()),
    }
}

/// Makes the folder, or finds that another recorder of the launch did: whether we made it.
fn make_or_join(folder: &Path, launch: Option<&Launch>) -> Result<bool, Failure> {
    let made = fs::DirBuilder::new().mode(access::folder_mode()).create(folder);
    match (made, launch) {
        (Ok(()), _) => Ok(true),
        (Err(error), Some(launch)) if error.kind() == ErrorKind::AlreadyExists => {
            if is_of_launch(folder, launch) {
                Ok(false)
            } else {
                Err(not_made(folder, &error))
            }
        }
        (Err(error), _) => Err(not_made(folder, &error)),
    }
}

/// Whether a folder is our launch's; waits for its manifest if it is new.
fn is_of_launch(folder: &Path, launch: &Launch) -> bool {
    let begun = Instant::now();
    loop {
        if let Some(manifest) = read(&folder.join(MANIFEST_FILE)) {
            // Ids come again (torchrun's is the same for all jobs of a host, unless it is told otherwise): a launch that
            // ended a while ago was another. Workers that are started again come at once.
            let is_over = manifest
                .ended_ns
                .is_some_and(|end| now().0.saturating_sub(end) > YOUNG.as_nanos() as i64);
            return manifest.launch.as_deref() == Some(&launch.id) && !is_over;
        }
        let age = fs::metadata(folder)
            .and_then(|metadata| metadata.modified())
            .ok()
            .and_then(|modified| SystemTime::now().duration_since(modified).ok());
        if age.is_some_and(|age| age > YOUNG) || begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

fn not_made(folder: &Path, error: &std::io::Error) -> Failure {
    let what = folder.display();
    Failure::new(match error.kind() {
        ErrorKind::AlreadyExists => {
            format!(
                "{what}: exists already: a recording never overwrites; name another folder with -o, or remove it"
            )
        }
        ErrorKind::NotFound => {
            format!(
                "{what}: its parent folder does not exist: make it first, add --parents, or name another with -o"
            )
        }
        _ => format!("{what}: cannot be made: {error}: name a folder that you can write with -o"),
    })
}

fn make_dated(name: &str) -> Result<PathBuf, Failure> {
    let date = chrono::Local::now().format("%Y%m%d-%H%M%S");
    let mut folder = PathBuf::from(format!("gputrace-{name}-{date}"));
    // Two recordings started within a second: number the later ones.
    for number in 2..100 {
        if !folder.exists() {
            break;
        }
        folder = PathBuf::from(format!("gputrace-{name}-{date}-{number}"));
    }
    make_or_join(&folder, None)?;
    Ok(folder)
}

/// The NAME in gputrace-NAME-DATE: the workload's, or the program's (of `torchrun train.py`, torchrun).
pub fn name_of(program: &OsStr) -> String {
    let name = Path::new(program)
        .file_name()
        .unwrap_or(program)
        .to_string_lossy();
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
            c
        } else {
            '_'
        }
    };
    name.chars().map(clean).collect()
}
