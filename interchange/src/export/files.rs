//! Where exports of several files go: a folder that is there whole or not at all, or one tar archive.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};

use flate2::read::MultiGzDecoder;
use gputrace_trace::place::{NewFolder, Target};

use super::gzip::ParallelGzip;

/// How much of a file says what it is.
const HEAD_BYTES: u64 = 1 << 16;

/// Writes a file: gzip where the name ends in `.gz`. The file is written aside and renamed, so that there is never half an
/// export under its name. What is replaced, and what is not, is [`Target`]'s.
///
/// # Errors
/// What `write` says, when the disk refuses, or why nothing may be written there. Nothing new is left behind then.
pub fn write_file<T>(
    target: impl Into<Target>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let target = target.into();
    let gzip = target.path.extension().is_some_and(|end| end == "gz");
    target.write_file(&is_export, |file| {
        let mut file = BufWriter::with_capacity(1 << 18, file);
        let result = if gzip {
            let mut gzip = ParallelGzip::new(&mut file);
            let result = write(&mut gzip)?;
            gzip.finish()?;
            result
        } else {
            write(&mut file)?
        };
        file.flush()?;
        Ok(result)
    })
}

/// Whether a file is an export of ours, by its beginning; packed or not.
pub fn is_export(file: &File) -> bool {
    let mut head = Vec::new();
    let read = file.take(HEAD_BYTES).read_to_end(&mut head);
    if read.is_err() {
        return false;
    }
    if !head.starts_with(&[0x1f, 0x8b]) {
        return is_export_head(&head);
    }
    let mut unpacked = Vec::new();
    // The end is cut off: what was unpacked until then is there.
    drop(
        MultiGzDecoder::new(&head[..])
            .take(HEAD_BYTES)
            .read_to_end(&mut unpacked),
    );
    is_export_head(&unpacked)
}

fn is_export_head(head: &[u8]) -> bool {
    let holds = |text: &str| memchr::memmem::find(head, text.as_bytes()).is_some();
    head.starts_with(super::chrome::BEGINNING.as_bytes())
        // As it was before that beginning.
        || head.starts_with(b"{\"schemaVersion\":1,") && holds("\n\"gputrace\":{\"export\":")
        || head.starts_with(b"<!DOCTYPE html>") && holds("<meta name=\"generator\" content=\"gputrace ")
        // A packet that tells of our own categories, which no other tool has.
        || head.first() == Some(&0x0a) && super::perfetto::CATEGORIES.iter().all(|name| holds(name))
}

/// Takes files one after another.
pub trait Files {
    /// Writes one file. `name` may have folders in it, separated by `/`.
    ///
    /// # Errors
    /// What `write` says, or when the place refuses.
    fn file(
        &mut self,
        name: &str,
        write: &mut dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> io::Result<()>;
}

impl Files for NewFolder<'_> {
    fn file(
        &mut self,
        name: &str,
        write: &mut dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> io::Result<()> {
        NewFolder::file(self, name, |file| {
            let mut file = BufWriter::with_capacity(1 << 18, file);
            write(&mut file)?;
            file.flush()
        })
    }
}

/// Lets `write` fill a new folder, which gets its name when that has succeeded, with a mark in it that lists what was
/// written. What is replaced then, and what is not, is [`Target`]'s.
///
/// # Errors
/// As [`write_file`].
pub fn write_folder<T>(
    target: impl Into<Target>,
    write: impl FnOnce(&mut dyn Files) -> io::Result<T>,
) -> io::Result<T> {
    target.into().write_folder(|folder| write(folder))
}

/// Lets `write` fill a tar archive with a folder called `folder`. Each file is put together on the disk first, since an
/// archive says sizes before contents.
///
/// # Errors
/// What `write` says, or when `out` or the folder for temporary files refuses.
pub fn write_tar<T>(
    out: &mut dyn Write,
    folder: &str,
    write: impl FnOnce(&mut dyn Files) -> io::Result<T>,
) -> io::Result<T> {
    let mut archive = Tar {
        builder: tar::Builder::new(out),
        folder: folder.to_owned(),
    };
    let result = write(&mut archive)?;
    archive.builder.into_inner()?.flush()?;
    Ok(result)
}

struct Tar<'w> {
    builder: tar::Builder<&'w mut dyn Write>,
    folder: String,
}

impl Files for Tar<'_> {
    fn file(
        &mut self,
        name: &str,
        write: &mut dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 18, tempfile::tempfile()?);
        write(&mut file)?;
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // No time and no owner: two archives of the same files are the same bytes.
        let mut header = tar::Header::new_ustar();
        header.set_size(file.stream_position()?);
        header.set_mode(0o644);
        file.rewind()?;
        self.builder
            .append_data(&mut header, format!("{}/{name}", self.folder), file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(files: &mut dyn Files, text: &str) -> io::Result<()> {
        files.file("a.txt", &mut |out| out.write_all(text.as_bytes()))?;
        files.file("b/c.txt", &mut |out| out.write_all(b"c"))
    }

    #[test]
    fn exports_are_known_by_their_beginnings() {
        use crate::export::{chrome, perfetto};

        let place = tempfile::tempdir().unwrap();
        let recording = gputrace_trace::Recording {
            processes: vec![gputrace_trace::Process::default()],
            ..gputrace_trace::Recording::default()
        };
        let derived = gputrace_trace::Derived::default();
        let known = |name: &str, write: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            let path = place.path().join(name);
            write_file(&path, write).unwrap();
            is_export(&File::open(path).unwrap())
        };
        for name in ["a.json", "a.json.gz"] {
            let write = |out: &mut dyn Write| chrome::export_chrome(&recording, &derived, out).map(drop);
            assert!(known(name, &write));
        }
        for (name, arguments) in [("a.pftrace", true), ("a.pftrace.gz", true), ("b.pftrace", false)] {
            let options = perfetto::PerfettoOptions {
                arguments,
                gpu_stages: !arguments,
            };
            let write =
                |out: &mut dyn Write| perfetto::export_perfetto(&recording, &derived, options, out).map(drop);
            assert!(known(name, &write));
        }
        for (name, text) in [
            ("a", "{\"schemaVersion\": 1, \"traceEvents\": []}"),
            ("b", "{\"schemaVersion\":1,\n\"traceEvents\":[]}"),
            ("c", "<!DOCTYPE html><title>gputrace</title>"),
            ("d.gz", "{}"),
            ("e", "\n kernel"),
            ("f", "\u{1f}\u{8b}"),
        ] {
            assert!(!known(name, &|out| out.write_all(text.as_bytes())), "{name}");
        }
    }

    #[test]
    fn an_archive_has_the_files_and_is_the_same_each_time() {
        let archive = || {
            let mut out = Vec::new();
            write_tar(&mut out, "run", |files| fill(files, "a")).unwrap();
            out
        };
        let bytes = archive();
        assert_eq!(bytes, archive());
        let mut read = tar::Archive::new(&bytes[..]);
        let mut found = Vec::new();
        for entry in read.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push((path, text));
        }
        assert_eq!(
            found,
            [
                ("run/a.txt".to_owned(), "a".to_owned()),
                ("run/b/c.txt".to_owned(), "c".to_owned())
            ]
        );
    }
}
