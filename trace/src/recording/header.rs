//! A process's header, and what follows from it for the tables beside it: the same for who opens a recording and who follows one.

use std::path::Path;

use super::{Loss, OpenError, cannot_read, check_version};
use crate::beneath::{self, Entry, Kind};
use crate::json_file::{Json, read_json};
use crate::manifest::{PROCESS_FILE, ProcessHeader};
use crate::seal::{Identity, parse_id};
use crate::stream::{Checks, identity_of};

/// What follows from a header for the files beside it.
pub(crate) struct Known {
    pub header: ProcessHeader,
    pub checks: Checks,
    /// Whether the header was there and is as it was written.
    pub is_trusted: bool,
    /// What is wrong with it.
    pub wrong: Vec<Loss>,
}

impl Known {
    /// Reads the header of the process in `folder`, which is called `name`.
    pub fn read(folder: &Path, name: &str) -> Result<Self, OpenError> {
        let path = folder.join(PROCESS_FILE);
        let mut wrong = Vec::new();
        let header = match read_json::<ProcessHeader>(&path).map_err(|error| cannot_read(&path, &error))? {
            Json::Read(header) => {
                check_version(&path, header.version)?;
                if header.folder.is_empty() || header.folder == name {
                    Ok(header)
                } else {
                    of_another_folder(header, folder, name, &mut wrong)?
                }
            }
            Json::Missing => Err("is missing".to_owned()),
            Json::Damaged(why) => Err(format!("is damaged ({why})")),
        };
        let is_trusted = header.is_ok();
        let mut header = header.unwrap_or_else(|why| {
            wrong.push(Loss {
                what: format!("{name}/{PROCESS_FILE} {why}"),
                count: Some(1),
                affects: "rank, host and devices of that process".to_owned(),
            });
            ProcessHeader::new()
        });
        let checks = match parse_id(&header.process) {
            _ if !is_trusted || !header.version.has_checksums() => Checks::AsFound,
            Some(process) => Checks::Of(Identity {
                process,
                segment: header.segment,
            }),
            None => Checks::Required,
        };
        // They are the file's, not the process's.
        header.folder.clear();
        header.segment = 0;
        Ok(Self {
            header,
            checks,
            is_trusted,
            wrong,
        })
    }
}

/// A header that was written into a folder of another name: the folder was renamed, or the header is another process's, as the
/// tables beside it tell. Gives the header or what is wrong with it.
fn of_another_folder(
    header: ProcessHeader,
    folder: &Path,
    name: &str,
    wrong: &mut Vec<Loss>,
) -> Result<Result<ProcessHeader, String>, OpenError> {
    let mut processes = Vec::new();
    let files = files_in(folder)?.into_iter();
    for file in files.filter(|entry| entry.stat.kind == Kind::File) {
        let identity = identity_of(&file.path).map_err(|error| cannot_read(&file.path, &error))?;
        processes.extend(identity.map(|identity| identity.process));
    }
    let is_own = |process: &u64| parse_id(&header.process) == Some(*process);
    if !processes.is_empty() && !processes.iter().any(is_own) {
        let folder = header.folder;
        return Ok(Err(format!(
            "is not of this process: it was written into the folder {folder}"
        )));
    }
    wrong.push(Loss {
        what: format!(
            "{name}/{PROCESS_FILE} was written into a folder named {}",
            header.folder
        ),
        count: Some(1),
        affects: "which process is which".to_owned(),
    });
    Ok(Ok(header))
}

/// The tables' files in a process's folder, in their order, and what is named like one.
pub(crate) fn files_in(folder: &Path) -> Result<Vec<Entry>, OpenError> {
    let mut files = beneath::entries(folder).map_err(|error| cannot_read(folder, &error))?;
    files.retain(|entry| {
        let extension = entry.path.extension();
        extension.is_some_and(|extension| extension == "arrows")
    });
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// When the last of these files was written to, in nanoseconds since the epoch; 0 where that is not known.
pub(crate) fn last_written_ns(files: &[Entry]) -> i64 {
    let files = files.iter().filter(|entry| entry.stat.kind == Kind::File);
    let last_ms = files.map(|entry| entry.stat.modified_ms).max().unwrap_or(0);
    i64::try_from(last_ms).map_or(i64::MAX, |ms| ms.saturating_mul(1_000_000))
}
