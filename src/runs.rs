//! The runs that are compared: recordings, traces of others, and baselines that were saved.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use gputrace_analyzer::baseline::{Baseline, SCHEMA};
use gputrace_trace::seal::check_json;

use crate::analyze::{never_used_cuda, no_such_steps};
use crate::failure::Failure;
use crate::opening;

/// No baseline of ours is longer.
const LONGEST: u64 = 64 << 20;
/// A baseline begins with its schema.
const BEGINNING: &str = "{\"schema\":\"gputrace.baseline/";

/// Whether a file's first bytes are a baseline's.
pub fn is_baseline(file: &File) -> bool {
    let mut beginning = Vec::new();
    let read = file.take(BEGINNING.len() as u64).read_to_end(&mut beginning);
    read.is_ok() && beginning == BEGINNING.as_bytes()
}

/// Where a baseline of this name is.
pub fn named(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// A run by what the user names: a recording, a trace, a baseline's file, or the name of one that was saved.
pub fn open(path: &Path, folder: &Path, steps: Option<(u64, u64)>) -> Result<Baseline, Failure> {
    let saved = path
        .to_str()
        .map(|name| named(folder, name))
        .filter(|saved| saved.is_file());
    let file = match (path.exists(), saved) {
        (false, Some(saved)) => Some(saved),
        (true, _) => path
            .is_file()
            .then(|| File::open(path).ok())
            .flatten()
            .filter(is_baseline)
            .map(|_| path.to_owned()),
        (false, None) => None,
    };
    let Some(file) = file else {
        return analysed(path, steps);
    };
    if steps.is_some() {
        return Err(Failure::new(format!(
            "{}: --steps chooses steps of recordings; a baseline has those that it was saved with",
            file.display()
        )));
    }
    read(&file)
}

/// A baseline's file.
pub fn read(path: &Path) -> Result<Baseline, Failure> {
    let failed = |why: String| Failure::new(format!("{}: {why}", path.display()));
    let mut text = String::new();
    let opened = File::open(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let length = opened
        .take(LONGEST + 1)
        .read_to_string(&mut text)
        .map_err(|error| failed(format!("cannot be read: {error}")))?;
    if length as u64 > LONGEST {
        return Err(failed(format!(
            "it is longer than any baseline ({LONGEST} bytes)"
        )));
    }
    if let Some(rest) = text.strip_prefix(BEGINNING) {
        let version = rest.split('"').next().unwrap_or_default();
        if SCHEMA.rsplit('/').next() != Some(version) {
            return Err(failed(format!(
                "it is a baseline of version {version}, and this gputrace reads {SCHEMA}: save it again, or use the gputrace that made it"
            )));
        }
    }
    // Those of earlier versions have no checksum.
    if check_json(text.as_bytes(), SCHEMA) == Some(false) {
        return Err(failed(
            "it is damaged or was edited, its checksum does not match: save it again".to_owned(),
        ));
    }
    let baseline: Baseline = serde_json::from_str(&text)
        .map_err(|error| failed(format!("it is damaged or no baseline ({error}): save it again")))?;
    match baseline.is_whole() {
        true => Ok(baseline),
        false => Err(failed(
            "it is damaged: its series do not have a value a step: save it again".to_owned(),
        )),
    }
}

/// A recording or a trace.
fn analysed(path: &Path, steps: Option<(u64, u64)>) -> Result<Baseline, Failure> {
    let recording = opening::open(&[path.to_owned()])?;
    if !gputrace_analyzer::used_cuda(&recording) {
        return Err(never_used_cuda(&recording));
    }
    let (analysis, baseline) = gputrace_analyzer::by_step(&recording, steps);
    if steps.is_some() && analysis.ranks.is_empty() {
        return Err(no_such_steps(&recording));
    }
    Ok(baseline)
}
