//! Downloads: a recording in other formats, whole or of a stretch of time, written as fast as the client takes them.

use std::io::{self, Write};

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
use gputrace_interchange::export::select::{NothingSelected, Selection};
use gputrace_interchange::export::tensorboard::export_tensorboard;
use gputrace_interchange::export::xplane::export_xplane;
use gputrace_interchange::tables::csv_to;
use gputrace_trace::table::Holds;
use gputrace_trace::tables::TABLES as RECORDED_TABLES;
use gputrace_trace::{Derived, Process, Recording};
use serde::Deserialize;

use super::api::analysis::whole;
use super::api::{Answer, Refusal, Shared, parameters};
use super::loaded::{Analysed, Loaded};
use super::streaming;
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    format: Format,
    from: Option<i64>,
    to: Option<i64>,
    steps: Option<String>,
    ranks: Option<String>,
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

    /// Whether it says of steps what they were in the whole, and needs no cut.
    fn is_about_steps(self) -> bool {
        self.is_analysis() || self == Self::Html
    }
}

/// One download.
struct Job {
    format: Format,
    table: &'static str,
    /// What of it; the steps and ranks are those of the recording.
    part: Selection,
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
    loaded.there().await?;
    let name = app.library.entry(&rec)?.name.clone();
    let range_ns = match (wanted.from, wanted.to) {
        (None, None) => None,
        (from, to) => {
            let from = from.unwrap_or_else(|| loaded.timeline.begin());
            let to = to.unwrap_or_else(|| loaded.timeline.end());
            Some(parameters::window(from, to)?)
        }
    };
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let steps = given(&wanted.steps);
    let part = Selection {
        range_ns,
        steps: steps.as_deref().map(parameters::steps).transpose()?,
        ranks: parameters::chosen(given(&wanted.ranks))?,
    };
    if wanted.format.is_analysis() && part.steps.is_some() && part.range_ns.is_some() {
        return Err(Refusal::wrong(
            "an analysis is of steps, or of the time between from and to: not of both",
        ));
    }
    let job = Job {
        format: wanted.format,
        table,
        part,
        gzip,
    };
    let analysed = if job.format.is_analysis() && job.part.is_everything() {
        Some(whole(&loaded).await?)
    } else {
        None
    };
    let file = job.file_name(&name);
    let folder = job.folder(&name);
    let place = app.work.export()?;
    let body = streaming::body(move |out| {
        let _place = place;
        job.write(&loaded, analysed.as_deref(), &folder, out)
    });
    let body = body.await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Refusal::nothing(error.to_string()),
        _ => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })?;
    let content_type = if gzip {
        "application/gzip"
    } else {
        wanted.format.ending().1
    };
    Response::builder()
        .header(CONTENT_TYPE, content_type)
        .header(CACHE_CONTROL, "no-store")
        .header(CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\""))
        .body(body)
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
        let steps = match self.part.steps {
            Some((first, last)) if first == last => format!(".step{first}"),
            Some((first, last)) => format!(".steps{first}-{last}"),
            None => String::new(),
        };
        let ranks = self
            .part
            .ranks
            .as_deref()
            .map_or_else(String::new, |ranks| match ranks {
                [rank] => format!(".rank{rank}"),
                ranks => format!(".{}ranks", ranks.len()),
            });
        let part = if self.part.range_ns.is_some() { ".part" } else { "" };
        format!("{name}{steps}{ranks}{part}")
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
        // Of a report and an analysis steps are a matter of their own: what is around them is known.
        let part = Selection {
            steps: self.part.steps.filter(|_| !self.format.is_about_steps()),
            range_ns: self
                .part
                .range_ns
                .filter(|_| self.format != Format::Html)
                .map(|range| since_first_event(&whole, loaded.timeline.origin_ns(), range)),
            ranks: self.part.ranks.clone(),
        };
        // What is known of operations is known of the whole; an analysis is made of the part itself.
        let derived = if self.format.is_about_steps() {
            Derived::default()
        } else {
            derive(&whole)
        };
        let cut: Option<(Recording, Derived)> = if part.is_everything() {
            None
        } else {
            let nothing = |error: NothingSelected| io::Error::new(io::ErrorKind::NotFound, error.to_string());
            Some(part.part_of(&whole, &derived).map_err(nothing)?)
        };
        let (recording, derived) = match &cut {
            Some((recording, derived)) => (recording, derived),
            None => (&*whole, &derived),
        };
        if cut.is_some() && !recording.processes.iter().any(has_events) {
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
            Format::Html => {
                let range = self.part.range_ns;
                let range =
                    range.map(|range| since_first_event(recording, loaded.timeline.origin_ns(), range));
                return write_report(recording, self.part.steps, range, out);
            }
            Format::Analysis | Format::Csv => {}
        }
        let made;
        let analysis: &Analysis = if let Some(analysed) = analysed {
            &analysed.analysis
        } else {
            let options = Options {
                steps: self.part.steps,
                ..Options::default()
            };
            made = analyze(recording, &options);
            &made
        };
        if self.part.steps.is_some() && analysis.ranks.iter().all(|rank| rank.steps.is_empty()) {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the recording has none of these steps",
            ));
        }
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
        csv_to(out, &table.batch)
    }
}

/// Nanoseconds since the timeline's origin as those since a recording's first event.
fn since_first_event(recording: &Recording, origin: i64, (from, to): (i64, i64)) -> (i64, i64) {
    let first = first_moment_ns(recording).unwrap_or(origin);
    let since = |time: i64| time.saturating_add(origin).saturating_sub(first);
    (since(from), since(to))
}

/// The page of the whole recording, whose picture shows some steps or a stretch of time.
fn write_report(
    recording: &Recording,
    steps: Option<(u64, u64)>,
    range: Option<(i64, i64)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (analysis, details) = analyze_in_detail(recording, &Options::default());
    let derived = derive_from(recording, &analysis, &details);
    let shown = match (range, steps) {
        (Some((from, to)), Some(steps)) => {
            let first = first_moment_ns(recording).unwrap_or(0);
            let nothing = || io::Error::new(io::ErrorKind::NotFound, "the recording has none of these steps");
            let (begin, end) = span_of(&derived, steps).ok_or_else(nothing)?;
            Shown::Range(
                from.max(begin.saturating_sub(first)),
                to.min(end.saturating_sub(first)),
            )
        }
        (Some((from, to)), None) => Shown::Range(from, to),
        (None, Some((first, last))) => Shown::Steps(first, last),
        (None, None) => Shown::default(),
    };
    // Steps and range may have no time in common.
    let is_nothing = matches!(shown, Shown::Range(from, to) if from >= to);
    if is_nothing || !report::holds_anything(recording, &derived, shown) {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "there is no event in that time",
        ));
    }
    report::write(recording, &analysis, &derived, &report::Options { shown }, out).map(drop)
}

/// From where the first rank begins these steps to where the last one ends them, by the recording's own stamps.
fn span_of(derived: &Derived, (first, last): (u64, u64)) -> Option<(i64, i64)> {
    let steps = derived.processes.iter().flat_map(|process| &process.steps);
    let wanted = |number: u64| (first..=last).contains(&number);
    let steps = steps.filter(|step| step.number.is_some_and(wanted));
    let begin = steps.clone().map(|step| step.start_ns).min()?;
    Some((begin, steps.map(|step| step.end_ns).max()?))
}

/// Whether anything happened in a process.
fn has_events(process: &Process) -> bool {
    let counts = process.tables.row_counts();
    RECORDED_TABLES.iter().zip(counts).any(|(table, (_, rows))| {
        rows > 0
            && matches!(
                table.holds,
                Holds::Operations | Holds::Collectives | Holds::Events
            )
    })
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
                part: Selection {
                    range_ns: window.then_some((0, 1)),
                    ..Selection::default()
                },
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
    fn names_of_files_tell_the_part() {
        let name = |steps, ranks: Option<&[u32]>| {
            let ranks = ranks.map(<[u32]>::to_vec);
            Job {
                format: Format::Chrome,
                table: "",
                part: Selection {
                    steps,
                    ranks,
                    range_ns: None,
                },
                gzip: false,
            }
            .file_name("run")
        };
        assert_eq!(name(Some((3, 3)), Some(&[7])), "run.step3.rank7.json");
        assert_eq!(name(Some((3, 5)), Some(&[0, 1])), "run.steps3-5.2ranks.json");
    }
}
