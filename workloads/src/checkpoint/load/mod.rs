//! Reading a checkpoint, with one clear line for whatever is wrong with it.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::format::{
    BEGINNING, Checksum, FORMAT, Header, MOST_HEADER_BYTES, VERSION, from_bytes, split_line,
};
use crate::error::Error;

/// A checkpoint that is being read.
pub(super) struct Reader {
    path: PathBuf,
    pub(super) header: Header,
    file: BufReader<File>,
    checksum: Checksum,
    /// The checksum's digits in the file.
    expected: String,
}

/// An error about this file.
fn error(path: &Path, text: impl std::fmt::Display) -> Error {
    Error::new(format!("the checkpoint {} {text}", path.display()))
}

fn io_error(path: &Path, failure: &std::io::Error) -> Error {
    match failure.kind() {
        ErrorKind::NotFound => error(path, "does not exist"),
        _ => error(path, format_args!("cannot be read: {failure}")),
    }
}

impl Reader {
    /// Opens the checkpoint of a network and optimizer of this shape.
    pub(super) fn open(path: &Path, shape: &str) -> Result<Self, Error> {
        let file = File::open(path).map_err(|failure| io_error(path, &failure))?;
        let found = file.metadata().map_err(|failure| io_error(path, &failure))?;
        if !found.is_file() {
            return Err(error(path, "is no file"));
        }
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        Read::by_ref(&mut file)
            .take(MOST_HEADER_BYTES as u64)
            .read_until(b'\n', &mut line)
            .map_err(|failure| io_error(path, &failure))?;
        let line_bytes = line.len() as u64;
        let (header, checksum, expected) = parse(path, &line)?;
        let file_bytes = header
            .data_bytes()
            .and_then(|bytes| bytes.checked_add(line_bytes))
            .ok_or_else(|| error(path, "is damaged: no file holds what it says it holds"))?;
        if found.len() < file_bytes {
            return Err(error(
                path,
                format_args!("is cut short: {} of {file_bytes} bytes are there", found.len()),
            ));
        }
        if found.len() > file_bytes {
            return Err(error(
                path,
                format_args!(
                    "is damaged: there are {} bytes behind its end",
                    found.len() - file_bytes
                ),
            ));
        }
        if header.shape != shape {
            return Err(error(
                path,
                format_args!(
                    "is of {}, but this run is of {shape}: give the options that it was made with",
                    header.shape
                ),
            ));
        }
        Ok(Self {
            path: path.to_path_buf(),
            header,
            file,
            checksum,
            expected,
        })
    }

    /// Whether it has so many parameters: a shape should say as much, but vectors must fit.
    pub(super) fn check_parameters(&self, parameters: usize) -> Result<(), Error> {
        let found = self.header.parameters;
        if found == parameters as u64 {
            return Ok(());
        }
        Err(error(
            &self.path,
            format_args!(
                "has {found} parameters, but this run has {parameters}: another version of this program wrote it"
            ),
        ))
    }

    /// The next `count` values, as bytes in the file's order.
    pub(super) fn read(&mut self, count: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; count * size_of::<f32>()];
        self.file
            .read_exact(&mut bytes)
            .map_err(|failure| match failure.kind() {
                ErrorKind::UnexpectedEof => error(&self.path, "was cut short while it was read"),
                _ => io_error(&self.path, &failure),
            })?;
        for value in from_bytes(&bytes) {
            self.checksum.values(&[value]);
        }
        Ok(bytes)
    }

    /// Whether all that was read is what was written.
    pub(super) fn finish(self) -> Result<(), Error> {
        if self.checksum.digits() == self.expected {
            return Ok(());
        }
        Err(error(&self.path, "is damaged: its checksum does not fit"))
    }
}

/// The header of a line, the checksum so far, and what it is to come to.
fn parse(path: &Path, line: &[u8]) -> Result<(Header, Checksum, String), Error> {
    let Some(line) = line.strip_suffix(b"\n") else {
        let is_cut = line.starts_with(BEGINNING) || (!line.is_empty() && BEGINNING.starts_with(line));
        return Err(error(
            path,
            if is_cut {
                "is cut short within its first line"
            } else {
                "is not a checkpoint"
            },
        ));
    };
    let value: Value = serde_json::from_slice(line).map_err(|_| {
        let is_ours = line.starts_with(BEGINNING);
        error(
            path,
            if is_ours {
                "is damaged in its first line"
            } else {
                "is not a checkpoint"
            },
        )
    })?;
    if value["format"] != FORMAT {
        return Err(error(path, "is not a checkpoint"));
    }
    if value["version"] != VERSION {
        return Err(error(
            path,
            format_args!(
                "is of version {}, but this program reads version {VERSION}",
                value["version"]
            ),
        ));
    }
    let damaged = || error(path, "is damaged in its first line");
    let header: Header = serde_json::from_value(value).map_err(|_| damaged())?;
    let (covered, digits) = split_line(line).ok_or_else(damaged)?;
    let mut checksum = Checksum::new();
    checksum.text(covered);
    Ok((header, checksum, digits.to_owned()))
}

#[cfg(test)]
pub(super) mod tests;
