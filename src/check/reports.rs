//! A judged budget for other programs: JUnit's XML, a table of Markdown, annotations of GitHub.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use gputrace_analyzer::check::{Check, Line, Within};
use gputrace_trace::place::{Existing, Target};
use gputrace_trace::seal::digest;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::diff::signed;
use crate::export::cannot_be_written;
use crate::failure::Failure;
use crate::text::{duration, one_line};

const TITLE: &str = "gputrace check";

/// A line as people read it.
pub struct Shown {
    pub measure: String,
    pub limit: String,
    pub value: String,
    pub baseline: String,
    pub margin: String,
    pub interval: String,
}

impl Shown {
    pub fn of(line: &Line) -> Self {
        let value =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| number(value, line.unit));
        let change = |value: f64| match line.unit {
            "ns" => signed(value.round() as i64),
            _ => format!("{value:+.3}"),
        };
        let interval = line.low.zip(line.high).map_or_else(
            || "-".to_owned(),
            |(low, high)| match line.baseline.is_some() {
                true => format!("{} to {}", change(low), change(high)),
                false => format!("{} to {}", number(low, line.unit), number(high, line.unit)),
            },
        );
        let limit = match (line.baseline, line.limit_value) {
            (Some(_), Some(limit)) => format!("{} ({})", line.limit, number(limit, line.unit)),
            _ => line.limit.clone(),
        };
        Self {
            measure: line.measure.clone(),
            limit,
            value: value(line.value),
            baseline: value(line.baseline),
            margin: line.margin.map_or_else(|| "-".to_owned(), change),
            interval,
        }
    }
}

fn number(value: f64, unit: &str) -> String {
    match unit {
        "ns" => duration(value.round() as i64),
        "ratio" => format!("{value:.3}"),
        _ => format!("{value}"),
    }
}

/// The answer in a sentence.
pub fn sentence(checked: &Check) -> String {
    let count = |verdict| {
        checked
            .lines
            .iter()
            .filter(|line| line.verdict == verdict)
            .count()
    };
    let (over, unknown) = (count(Within::Over), count(Within::Unknown));
    let all = checked.lines.len();
    match (over, unknown) {
        (0, 0) => format!("all {all} limits kept"),
        (0, unknown) => format!("{unknown} of {all} limits can't be judged"),
        (over, 0) => format!("{over} of {all} limits exceeded"),
        (over, unknown) => format!("{over} of {all} limits exceeded, and {unknown} can't be judged"),
    }
}

/// What is wrong with a line, in a sentence.
fn said(line: &Line) -> String {
    let shown = Shown::of(line);
    match &line.why {
        Some(why) => format!("{} {}: can't be judged: {why}", shown.measure, shown.limit),
        None => format!("{} is {}, and may be {}", shown.measure, shown.value, shown.limit),
    }
}

/// As JUnit's XML: a test case a limit; what can't be judged is an error.
pub fn junit(checked: &Check) -> Result<String, Failure> {
    let mut suite = TestSuite::new(one_line(&checked.source.join(", ")));
    for line in &checked.lines {
        let status = match line.verdict {
            Within::Within => TestCaseStatus::success(),
            Within::Over | Within::Unknown => {
                let kind = match line.verdict {
                    Within::Over => NonSuccessKind::Failure,
                    _ => NonSuccessKind::Error,
                };
                let mut status = TestCaseStatus::non_success(kind);
                status.set_message(said(line));
                status
            }
        };
        let mut case = TestCase::new(line.measure.clone(), status);
        case.set_classname("budget");
        let shown = Shown::of(line);
        case.set_system_out(format!(
            "limit {}, value {}, margin {}, 95 % {}",
            shown.limit, shown.value, shown.margin, shown.interval
        ));
        suite.add_test_case(case);
    }
    let mut report = Report::new(TITLE);
    report.add_test_suite(suite);
    report
        .to_string()
        .map_err(|error| Failure::new(format!("cannot be written as JUnit's XML: {error}")))
}

/// As a table of Markdown.
pub fn markdown(checked: &Check) -> String {
    let cell = |text: &str| one_line(text).replace('|', "\\|").replace('<', "&lt;");
    let mut text = format!("### {TITLE}: {}\n\n", sentence(checked));
    if checked.device == "sim" {
        text.push_str("Simulated GPUs: device times are modelled, not measured.\n\n");
    }
    text.push_str(
        "| measure | | limit | value | baseline | margin | 95 % |\n|---|---|---|---|---|---|---|\n",
    );
    for line in &checked.lines {
        let shown = Shown::of(line);
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            cell(&shown.measure),
            line.verdict.word(),
            cell(&shown.limit),
            cell(&shown.value),
            cell(&shown.baseline),
            cell(&shown.margin),
            cell(&shown.interval)
        );
    }
    for line in checked.lines.iter().filter(|line| line.why.is_some()) {
        let _ = writeln!(text, "\n{}", cell(&said(line)));
    }
    text
}

/// Where GitHub runs us: an annotation a limit that is not kept, and the table in the job's summary.
pub fn github(checked: &Check, markdown: &str) {
    if std::env::var_os("GITHUB_ACTIONS").is_none_or(|value| value != "true") {
        return;
    }
    // On stderr: the runner reads both, and stdout may be JSON.
    let escaped = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    for line in &checked.lines {
        let kind = match line.verdict {
            Within::Within => continue,
            Within::Over => "error",
            Within::Unknown => "warning",
        };
        anstream::eprintln!("::{kind} title={TITLE}::{}", escaped(&said(line)));
    }
    if let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY") {
        let opened = OpenOptions::new().append(true).create(true).open(&path);
        let written = opened.and_then(|mut file| file.write_all(markdown.as_bytes()));
        if let Err(error) = written {
            anstream::eprintln!(
                "gputrace: {}: no summary written: {error}",
                Path::new(&path).display()
            );
        }
    }
}

/// What the last line of a report of ours has in front of what is above it was when it was written.
const MARK: &str = "<!-- written by gputrace check: ";

/// Reports are no longer.
const LONGEST: u64 = 16 << 20;

/// With a line that neither Markdown nor XML shows, which says what the rest was when it was written.
fn marked(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let digest = digest(text.as_bytes());
    let _ = writeln!(text, "{MARK}{digest} -->");
    text
}

/// Whether a file is a report of ours that nobody has changed since.
fn is_unchanged(file: &File) -> bool {
    let mut text = String::new();
    let read = file.take(LONGEST).read_to_string(&mut text);
    read.is_ok()
        && text
            .rfind(MARK)
            .is_some_and(|at| marked(text[..at].to_owned()) == text)
}

/// Writes a report, whole or not at all. The report of the run before is replaced, unless somebody has changed it.
pub fn write_report(path: &Path, text: String) -> Result<(), Failure> {
    write_text(path, &marked(text), Existing::IsReplaced)
}

/// Writes a file, whole or not at all.
pub fn write_text(path: &Path, text: &str, existing: Existing) -> Result<(), Failure> {
    let target = Target {
        existing,
        ..Target::new(path)
    };
    let written = target.write_file(&is_unchanged, |mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::new(cannot_be_written(path, &error)))
}
