//! Downloads: a recording in other formats, whole or of a stretch of time, written as fast as the client takes them.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{Response, StatusCode};
use flate2::Compression;
use flate2::write::GzEncoder;
use gputrace_analyzer::{Analysis, Options, analyze, analyze_in_detail, derive, derive_from, tables};
use gputrace_interchange::export::chrome::export_chrome;
use gputrace_interchange::export::files::write_tar;
use gputrace_interchange::export::layout::first_moment_ns;
use gputrace_interchange::export::parquet::export_parquet;
use gputrace_interchange::export::perfetto::{PerfettoOptions, export_perfetto};
use gputrace_interchange::export::select::{Window, cut};
use gputrace_interchange::export::tensorboard::export_tensorboard;
use gputrace_interchange::export::xplane::export_xplane;
use gputrace_interchange::tables::csv_to;
use gputrace_trace::{Derived, DurationNs, Process, Recording, TimeNs};
use http_body::Frame;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::api::analysis::whole;
use super::api::{Answer, Refusal, Shared, parameters};
use super::loaded::{Analysed, Loaded};
use crate::report::{self, Shown};

/// What can be downloaded.
pub const FORMATS: &[&str] = &[
    "perfetto",
    "chrome",
    "tensorboard",
    "xplane",
    "parquet",
    "html",
    "analysis",
    "csv",
];

/// Tables that an analysis can have; of one without rows there is no file.
pub const TABLES: &[&str] = &[
    "ranks",
    "streams",
    "kinds",
    "kernels_of_all_ranks",
    "kernels",
    "communication",
    "copies",
    "launches",
    "steps",
    "idle_causes",
    "host_late_by",
    "longest_gaps",
    "step_summaries",
    "queues",
    "queue_timelines",
    "memory",
    "memory_timelines",
    "notes",
    "collectives",
    "collective_ranks",
    "communicators",
    "communicator_ranks",
    "transfers",
    "collective_sizes",
    "arrivals",
    "hangs",
    "unfinished",
    "recording_cost",
    "recording_overhead",
    "findings",
    "losses",
];

/// Bytes that are handed on at once.
const CHUNK: usize = 1 << 16;
/// Chunks that wait for a client at most.
const CHUNKS: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    format: Format,
    from: Option<i64>,
    to: Option<i64>,
    table: Option<String>,
    gzip: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Perfetto,
    Chrome,
    Tensorboard,
    Xplane,
    Parquet,
    Html,
    Analysis,
    Csv,
}

impl Format {
    /// How its files end, and what they are. Formats of several files come as one archive.
    fn ending(self) -> (&'static str, &'static str) {
        match self {
            Self::Perfetto => ("pftrace", "application/octet-stream"),
            Self::Chrome => ("json", "application/json"),
            Self::Tensorboard => ("tensorboard.tar", "application/x-tar"),
            Self::Xplane => ("xplane.tar", "application/x-tar"),
            Self::Parquet => ("parquet.tar", "application/x-tar"),
            Self::Html => ("html", "text/html; charset=utf-8"),
            Self::Analysis => ("analysis.json", "application/json"),
            Self::Csv => ("csv", "text/csv; charset=utf-8"),
        }
    }

    /// Whether it says what the analysis made of the recording; the others write what the exporters are given.
    fn is_analysis(self) -> bool {
        matches!(self, Self::Analysis | Self::Csv)
    }
}

/// One download.
struct Job {
    format: Format,
    table: &'static str,
    window: Option<Window>,
    gzip: bool,
}

/// A recording as a file.
pub async fn export(
    State(app): State<Shared>,
    place: Result<Path<(String, u64)>, PathRejection>,
    query: Result<Query<Export>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let wanted = parameters::query(query)?;
    let gzip = parameters::flag(wanted.gzip, "gzip")?;
    let table = match (wanted.format, wanted.table.as_deref()) {
        (Format::Csv, Some(name)) => TABLES
            .iter()
            .find(|table| **table == name)
            .ok_or_else(|| Refusal::wrong(format!("table must be one of {}", TABLES.join(", "))))?,
        (Format::Csv, None) => return Err(Refusal::wrong("csv needs a table: table=kernels")),
        (_, Some(_)) => return Err(Refusal::wrong("only csv has tables")),
        (_, None) => "",
    };
    let loaded = super::api::loaded(&app, rec.clone(), generation).await?;
    let name = app.library.entry(&rec)?.name.clone();
    let window = match (wanted.from, wanted.to) {
        (None, None) => None,
        (from, to) => {
            let from = from.unwrap_or_else(|| loaded.timeline.begin());
            let to = to.unwrap_or_else(|| loaded.timeline.end());
            let (from, to) = parameters::window(from, to)?;
            let origin = TimeNs(loaded.timeline.origin_ns());
            Some(Window {
                from: origin + DurationNs(from),
                to: origin + DurationNs(to),
            })
        }
    };
    let job = Job {
        format: wanted.format,
        table,
        window,
        gzip,
    };
    let analysed = match &job.window {
        None if job.format.is_analysis() => Some(whole(&loaded).await?),
        _ => None,
    };
    let file = job.file_name(&name);
    let folder = job.folder(&name);
    let place = app.places.exports.clone().try_acquire_owned();
    let place = place.map_err(|_| Refusal::busy("other exports are under way: try again in a while"))?;
    let (chunks, body) = mpsc::channel(CHUNKS);
    let mut begun = Begun {
        chunks: body,
        first: None,
    };
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let mut out = ChunkWriter::new(chunks);
        let done = job.write(&loaded, analysed.as_deref(), &folder, &mut out);
        match done {
            Ok(()) => out.finish(),
            Err(error) => out.fail(error),
        }
    });
    // What fails before a byte was written has a status of its own.
    match begun.chunks.recv().await {
        Some(Ok(first)) => begun.first = Some(first),
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Refusal::nothing(error.to_string()));
        }
        Some(Err(error)) => {
            return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()));
        }
        None => {}
    }
    let content_type = if gzip {
        "application/gzip"
    } else {
        wanted.format.ending().1
    };
    Response::builder()
        .header(CONTENT_TYPE, content_type)
        .header(CACHE_CONTROL, "no-store")
        .header(CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\""))
        .body(Body::new(begun))
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

impl Job {
    /// A name that any disk takes.
    fn file_name(&self, recording: &str) -> String {
        let folder = self.folder(recording);
        let table = if self.table.is_empty() {
            String::new()
        } else {
            format!(".{}", self.table)
        };
        let gzip = if self.gzip { ".gz" } else { "" };
        format!("{folder}{table}.{}{gzip}", self.format.ending().0)
    }

    /// What stands before the ending, and what the folder in an archive is called.
    fn folder(&self, recording: &str) -> String {
        let plain = |character: char| {
            let keep = character.is_ascii_alphanumeric() || ".-_".contains(character);
            if keep { character } else { '_' }
        };
        let name: String = recording.chars().map(plain).take(100).collect();
        let name = name.trim_matches(['.', '_']);
        let name = if name.is_empty() { "recording" } else { name };
        let part = if self.window.is_some() { ".part" } else { "" };
        format!("{name}{part}")
    }

    fn write(
        &self,
        loaded: &Loaded,
        analysed: Option<&Analysed>,
        folder: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if self.gzip {
            let mut encoder = GzEncoder::new(out, Compression::new(4));
            self.write_plain(loaded, analysed, folder, &mut encoder)?;
            encoder.finish()?.flush()
        } else {
            self.write_plain(loaded, analysed, folder, out)
        }
    }

    fn write_plain(
        &self,
        loaded: &Loaded,
        analysed: Option<&Analysed>,
        folder: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let whole = loaded.timeline.recording();
        if self.format == Format::Html {
            return write_report(&whole, self.window, out);
        }
        // What is known of operations is known of the whole; an analysis is made of the part itself.
        let derived = if self.format.is_analysis() {
            Derived::default()
        } else {
            derive(&whole)
        };
        let part: Option<(Recording, Derived)> = self.window.map(|window| {
            let windows = vec![window; whole.processes.len()];
            cut(&whole, &derived, &windows, window)
        });
        let (recording, derived) = match &part {
            Some((recording, derived)) => (recording, derived),
            None => (&*whole, &derived),
        };
        if part.is_some() && !recording.processes.iter().any(has_events) {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "there is no event in that time",
            ));
        }
        match self.format {
            Format::Perfetto => {
                return export_perfetto(recording, derived, PerfettoOptions::default(), out).map(drop);
            }
            Format::Chrome => return export_chrome(recording, derived, out).map(drop),
            Format::Tensorboard => {
                return write_tar(out, folder, |files| export_tensorboard(recording, derived, files))
                    .map(drop);
            }
            Format::Xplane => {
                return write_tar(out, folder, |files| export_xplane(recording, derived, files)).map(drop);
            }
            Format::Parquet => {
                return write_tar(out, folder, |files| export_parquet(recording, derived, files)).map(drop);
            }
            Format::Html | Format::Analysis | Format::Csv => {}
        }
        let made;
        let analysis: &Analysis = if let Some(analysed) = analysed {
            &analysed.analysis
        } else {
            made = analyze(recording, &Options::default());
            &made
        };
        if self.format == Format::Analysis {
            serde_json::to_writer_pretty(&mut *out, analysis)?;
            return out.write_all(b"\n");
        }
        let tables = tables::tables(analysis).map_err(io::Error::other)?;
        let table = tables.into_iter().find(|table| table.name == self.table);
        let table = table.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("the table {} has no rows", self.table),
            )
        })?;
        let batch = tables::to_batch(&table.frame).map_err(io::Error::other)?;
        csv_to(out, &batch)
    }
}

/// The page of the whole recording, whose picture shows the window.
fn write_report(recording: &Recording, window: Option<Window>, out: &mut dyn Write) -> io::Result<()> {
    let (analysis, details) = analyze_in_detail(recording, &Options::default());
    let derived = derive_from(recording, &analysis, &details);
    let origin = first_moment_ns(recording).unwrap_or(0);
    let shown = window.map_or_else(Shown::default, |window| {
        let since = |time: TimeNs| time.0.saturating_sub(origin);
        Shown::Range(since(window.from), since(window.to))
    });
    if !report::holds_anything(recording, &derived, shown) {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "there is no event in that time",
        ));
    }
    report::write(recording, &analysis, &derived, &report::Options { shown }, out).map(drop)
}

/// Whether anything happened in a process.
fn has_events(process: &Process) -> bool {
    const EVENTS: [&str; 13] = [
        "kernels",
        "copies",
        "memsets",
        "graph_launches",
        "api_calls",
        "synchronizations",
        "overheads",
        "markers",
        "operators",
        "collectives",
        "nccl_proxy",
        "nccl_channels",
        "counters",
    ];
    let counts = process.tables.row_counts();
    let mut counts = counts.iter().filter(|(name, _)| EVENTS.contains(name));
    counts.any(|(_, rows)| *rows > 0)
}

type Chunk = io::Result<Bytes>;

/// Hands on what is written in chunks, and waits where the client is slow. A client that went away is an error.
struct ChunkWriter {
    chunks: mpsc::Sender<Chunk>,
    buffer: Vec<u8>,
}

impl ChunkWriter {
    fn new(chunks: mpsc::Sender<Chunk>) -> Self {
        Self {
            chunks,
            buffer: Vec::with_capacity(CHUNK),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        self.chunks
            .blocking_send(Ok(Bytes::from(full)))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(mut self) {
        // Whether the client has gone is nobody's concern any more.
        drop(self.send());
    }

    /// Cuts the answer, so that nobody takes a part of it for the whole.
    fn fail(self, error: io::Error) {
        drop(self.chunks.blocking_send(Err(error)));
    }
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body of chunks, the first of which is there.
struct Begun {
    chunks: mpsc::Receiver<Chunk>,
    first: Option<Bytes>,
}

impl HttpBody for Begun {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let chunk = self.chunks.poll_recv(context);
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

/// The tables of a recording's analysis.
#[must_use]
pub fn table_names(_: &Analysis) -> Vec<&'static str> {
    TABLES.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_plain() {
        let name = |format, window: bool, gzip, recording| {
            Job {
                format,
                table: if format == Format::Csv { "kernels" } else { "" },
                window: window.then_some(Window {
                    from: TimeNs(0),
                    to: TimeNs(1),
                }),
                gzip,
            }
            .file_name(recording)
        };
        assert_eq!(name(Format::Chrome, false, false, "run1"), "run1.json");
        assert_eq!(
            name(Format::Chrome, true, true, "a/run 1"),
            "a_run_1.part.json.gz"
        );
        assert_eq!(name(Format::Csv, false, false, "run1"), "run1.kernels.csv");
        assert_eq!(name(Format::Perfetto, false, false, "run1"), "run1.pftrace");
        assert_eq!(
            name(Format::Parquet, true, true, "run1"),
            "run1.part.parquet.tar.gz"
        );
        assert_eq!(
            name(Format::Analysis, false, false, "\"; x=\"\r\nSet-Cookie: \u{e9}"),
            "x____Set-Cookie.analysis.json"
        );
        assert_eq!(name(Format::Chrome, false, false, "../.."), "recording.json");
        assert!(name(Format::Chrome, false, false, &"a".repeat(1000)).len() < 120);
    }

    #[test]
    fn a_client_that_goes_away_ends_the_export() {
        let (chunks, body) = mpsc::channel(1);
        drop(body);
        let mut out = ChunkWriter::new(chunks);
        assert_eq!(
            out.write_all(&vec![0; CHUNK]).unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }
}
