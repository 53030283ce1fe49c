//! The folder that a recording is written into.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Makes the recording's folder: `wanted`, or gputrace-NAME-DATE here. Never one that exists.
pub fn create(wanted: Option<&Path>, name: &str) -> Result<PathBuf, Failure> {
    let folder = match wanted {
        Some(folder) => {
            make(folder)?;
            folder.to_owned()
        }
        None => make_dated(name)?,
    };
    folder
        .canonicalize()
        .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))
}

fn make(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir(folder).map_err(|error| {
        let what = folder.display();
        Failure::new(match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("{what}: exists already: a recording never overwrites; name another folder with -o, or remove it")
            }
            std::io::ErrorKind::NotFound => {
                format!("{what}: its parent folder does not exist: make it first, or name another with -o")
            }
            _ => format!("{what}: cannot be made: {error}: name a folder that you can write with -o"),
        })
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
    make(&folder)?;
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
