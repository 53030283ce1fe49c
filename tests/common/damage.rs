//! Damages a recording at random, and judges whether whoever reads it is told.
//!
//! Everything happens in this process: ten thousand tries take a minute or two.

use std::fs;
use std::path::{Path, PathBuf};

use gputrace_analyzer::Options;
use gputrace_trace::Recording;
use gputrace_trace::recording::Loss;
use serde_json::Value;

use super::random::Random;

/// What is done to a recording's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One bit of one file.
    Flip,
    /// Up to 64 bytes in a row of one file.
    Scribble,
    /// Two files of the same name, of different folders, change places; or two of one folder.
    Swap,
    /// A batch of a table's file is gone.
    Drop,
    /// A batch of a table's file is there twice.
    Repeat,
    /// Zeros in the middle of a file, as after a power loss.
    Hole,
    /// Zeros at the end of a file.
    ZeroTail,
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Flip,
        Self::Scribble,
        Self::Swap,
        Self::Drop,
        Self::Repeat,
        Self::Hole,
        Self::ZeroTail,
    ];
}

/// What a recording says, without its losses, and those.
#[derive(PartialEq)]
struct Told {
    analysis: Value,
    losses: Vec<Loss>,
}

/// A recording that is damaged again and again.
pub struct Subject {
    /// The copy that is damaged.
    folder: PathBuf,
    /// Its files, by their paths in it, as they are.
    files: Vec<(PathBuf, Vec<u8>)>,
    told: Told,
}

impl Subject {
    /// A copy of `recording`, in `folder`, which is made.
    pub fn new(recording: &Path, folder: &Path) -> Self {
        let mut files = Vec::new();
        collect(recording, Path::new(""), &mut files);
        files.sort();
        for (path, bytes) in &files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, bytes).expect("written");
        }
        Self {
            told: told(folder).expect("an undamaged recording opens"),
            folder: folder.to_owned(),
            files,
        }
    }

    /// Losses of the recording as it is.
    pub fn losses(&self) -> &[Loss] {
        &self.told.losses
    }

    /// Damages it in one way, judges, and mends it again. Gives what was done.
    ///
    /// # Errors
    /// What was done, where something else is read and no loss names the file.
    pub fn attempt(&self, kind: Kind, random: &mut Random) -> Result<String, String> {
        let Some(damaged) = self.damage(kind, random) else {
            return Ok(format!("{kind:?}: nothing to do"));
        };
        let what = damaged
            .iter()
            .map(|(file, _, what)| format!("{}: {what}", self.files[*file].0.display()))
            .collect::<Vec<_>>()
            .join("; ");
        for (file, bytes, _) in &damaged {
            fs::write(self.folder.join(&self.files[*file].0), bytes).expect("written");
        }
        let names: Vec<String> = damaged
            .iter()
            .map(|(file, ..)| self.files[*file].0.display().to_string())
            .collect();
        let judged = self.judge(&names);
        for (file, ..) in &damaged {
            let (path, bytes) = &self.files[*file];
            fs::write(self.folder.join(path), bytes).expect("written");
        }
        match judged {
            Ok(()) => Ok(format!("{kind:?}: {what}")),
            Err(why) => Err(format!("{kind:?}: {what}: {why}")),
        }
    }

    fn judge(&self, names: &[String]) -> Result<(), String> {
        let now = told(&self.folder)?;
        if now == self.told {
            return Ok(());
        }
        let new = now.losses.iter().filter(|loss| !self.told.losses.contains(loss));
        let says = |loss: &&Loss| names.iter().any(|name| loss.what.contains(name.as_str()));
        if new.clone().any(|loss| says(&loss)) {
            return Ok(());
        }
        let new: Vec<&Loss> = new.collect();
        Err(format!("something else was read, and no loss names it: {new:?}"))
    }

    /// The files that change, with what is in them then, and in words what was done.
    fn damage(&self, kind: Kind, random: &mut Random) -> Option<Vec<(usize, Vec<u8>, String)>> {
        if kind == Kind::Swap {
            return self.swap(random);
        }
        // Any byte as likely as any other.
        let all: usize = self.files.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut at = random.below(all);
        let file = self.files.iter().position(|(_, bytes)| {
            let is_here = at < bytes.len();
            at -= if is_here { 0 } else { bytes.len() };
            is_here
        })?;
        let mut bytes = self.files[file].1.clone();
        let what = match kind {
            Kind::Flip => {
                let bit = random.below(8);
                bytes[at] ^= 1 << bit;
                format!("bit {bit} of byte {at}")
            }
            Kind::Scribble => {
                let end = bytes.len().min(at + 1 + random.below(64));
                bytes[at..end].fill_with(|| random.next() as u8);
                format!("bytes {at} to {end}")
            }
            Kind::Hole => {
                let end = bytes.len().min(at + 4096);
                bytes[at..end].fill(0);
                format!("zeros from {at} to {end}")
            }
            Kind::ZeroTail => {
                bytes[at..].fill(0);
                format!("zeros from {at} on")
            }
            Kind::Drop | Kind::Repeat => {
                let messages = messages(&bytes);
                let place = random.below(messages.len());
                let message = messages.get(place)?.clone();
                // The last of a file that nobody closed is as if it had never been written.
                if kind == Kind::Drop && message.end == bytes.len() {
                    return None;
                }
                let again = bytes[message.clone()].to_vec();
                if kind == Kind::Drop {
                    bytes.drain(message);
                } else {
                    let target = messages[random.below(messages.len())].end;
                    bytes.splice(target..target, again);
                }
                format!("message {place} of {}", messages.len())
            }
            Kind::Swap => return None,
        };
        Some(vec![(file, bytes, what)])
    }

    fn swap(&self, random: &mut Random) -> Option<Vec<(usize, Vec<u8>, String)>> {
        let one = random.below(self.files.len());
        let (path, bytes) = &self.files[one];
        let by_name = random.below(2) == 0;
        let others: Vec<usize> = (0..self.files.len())
            .filter(|&other| {
                let (other_path, other_bytes) = &self.files[other];
                let is_alike = if by_name {
                    other_path.file_name() == path.file_name()
                } else {
                    other_path.parent() == path.parent()
                };
                other != one && is_alike && other_bytes != bytes
            })
            .collect();
        let other = *others.get(random.below(others.len()))?;
        let what = |with: usize| format!("changed places with {}", self.files[with].0.display());
        Some(vec![
            (one, self.files[other].1.clone(), what(other)),
            (other, bytes.clone(), what(one)),
        ])
    }
}

fn collect(root: &Path, below: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(root.join(below)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = below.join(entry.file_name());
        if entry.path().is_dir() {
            collect(root, &path, files);
        } else {
            files.push((path, fs::read(entry.path()).expect("readable")));
        }
    }
}

/// Where a table's file has its messages: they begin with a mark, and their heads end with a seal.
fn messages(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let is_begun = |at: usize| {
        let length = bytes.get(at + 4..at + 8).map_or(0, |length| {
            u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize
        });
        let seal = (at + 8 + length).checked_sub(40);
        length >= 40 && seal.is_some_and(|seal| bytes.get(seal..seal + 4) == Some(b"gts1"))
    };
    let mut starts: Vec<usize> = (0..bytes.len())
        .step_by(8)
        .filter(|&at| bytes[at..].starts_with(&[0xff; 4]) && is_begun(at))
        .collect();
    // Before the end mark.
    let has_mark = bytes.ends_with(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    starts.push(bytes.len() - if has_mark { 8 } else { 0 });
    starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

fn told(folder: &Path) -> Result<Told, String> {
    let recording = Recording::open(folder).map_err(|error| error.to_string())?;
    let losses = recording.losses.clone();
    let analysis = gputrace_analyzer::analyze(&recording, &Options::default());
    let mut analysis = serde_json::to_value(&analysis).map_err(|error| error.to_string())?;
    if let Some(members) = analysis.as_object_mut() {
        members.remove("losses");
    }
    Ok(Told { analysis, losses })
}
