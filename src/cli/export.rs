//! `gputrace export`: its options.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gputrace_trace::place::{Existing, Target};

use super::values::{ImportArgs, Ranks, parse_ranks, parse_steps};

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// A recording, or whatever `gputrace analyze` opens
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// The format
    #[arg(long, value_enum)]
    pub format: ExportFormat,
    /// What to write; - is standard output, for formats of one file
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Replace what is there, if it is an export and holds nothing else
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub writing: WritingArgs,
    /// Of chrome: all ranks in one file, whatever OUT is called
    #[arg(long)]
    pub merge: bool,
    #[command(flatten)]
    pub part: PartArgs,
    #[command(flatten)]
    pub perfetto: PerfettoArgs,
    #[command(flatten)]
    pub import: ImportArgs,
}

/// How files are written, by every command that writes some.
#[derive(Args, Clone, Debug, Default)]
pub struct WritingArgs {
    /// Make the folders that it goes into, where they are missing
    #[arg(long)]
    pub parents: bool,
    /// Make files as the umask allows; without it their owner alone can read them
    #[arg(long)]
    pub follow_umask: bool,
}

impl WritingArgs {
    /// Where something is to be written that is made of `sources`; `force` where the command has such an option.
    pub fn target(&self, path: &Path, force: Option<bool>, sources: &[PathBuf]) -> Target {
        Target {
            path: path.to_owned(),
            existing: match force {
                None => Existing::Stays,
                Some(false) => Existing::StaysUnlessForced,
                Some(true) => Existing::IsReplaced,
            },
            parents: self.parents,
            sources: sources.to_vec(),
        }
    }
}

/// What is for one format alone.
#[derive(Args, Debug)]
#[command(next_help_heading = "With --format perfetto")]
pub struct PerfettoArgs {
    /// Write what GPUs did in Perfetto's own vocabulary for them (render stages, compute launches), which its page knows
    /// from version 55 on
    #[arg(long)]
    pub gpu_stages: bool,
    /// Only names, times and launch arrows: a third of the size
    #[arg(long)]
    pub no_arguments: bool,
}

/// Which part of the recording.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Only a part")]
pub struct PartArgs {
    /// Only these steps: A..B, both counted
    #[arg(long, value_name = "A..B", value_parser = parse_steps)]
    pub steps: Option<(u64, u64)>,
    /// Only these ranks: 0,8 or 0..7 (both counted)
    #[arg(long, value_name = "LIST", value_parser = parse_ranks)]
    pub ranks: Option<Ranks>,
    /// Only what has a part in this range: T0..T1 in seconds from the start
    #[arg(long, value_name = "T0..T1", value_parser = parse_range)]
    pub range: Option<(i64, i64)>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Chrome's trace event JSON as PyTorch's profiler writes it: one file, gzip where OUT ends in .gz; a folder with one
    /// packed file a rank where OUT has no ending
    Chrome,
    /// Perfetto's own format, for its page and its SQL; gzip where OUT ends in .gz
    Perfetto,
    /// A folder of Parquet files, one a table and rank, for DuckDB, pandas, Polars and Spark; gputrace reads it back
    Parquet,
    /// A folder for TensorBoard with torch-tb-profiler: a file a rank, and for each repeat of a schedule
    Tensorboard,
    /// A folder for TensorBoard with XProf, its own profiler plugin
    Xplane,
    /// One page with the analysis and its pictures, for a ticket or a mail; --steps and --range choose what the timeline shows
    Html,
}

impl ExportFormat {
    /// Whether `output` becomes a folder.
    fn writes_folder(self, output: &Path) -> bool {
        match self {
            // One file a rank.
            Self::Chrome => output.extension().is_none(),
            Self::Perfetto | Self::Html => false,
            Self::Parquet | Self::Tensorboard | Self::Xplane => true,
        }
    }
}

/// A format and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportTarget {
    /// The format.
    pub format: ExportFormat,
    /// The file or folder.
    pub path: PathBuf,
}

impl ExportTarget {
    /// Where one window of a schedule goes: a folder in the folder, or a file beside the file.
    pub fn path_of_repeat(&self, repeat: u64) -> PathBuf {
        if self.format.writes_folder(&self.path) {
            return self.path.join(format!("repeat-{repeat}"));
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = match name.split_once('.') {
            Some((stem, endings)) => format!("{stem}.repeat-{repeat}.{endings}"),
            None => format!("{name}.repeat-{repeat}"),
        };
        self.path.with_file_name(name)
    }
}

/// `chrome=trace.json.gz`
pub fn parse_target(text: &str) -> Result<ExportTarget, String> {
    let known: Vec<String> = ExportFormat::value_variants()
        .iter()
        .filter_map(|format| Some(format.to_possible_value()?.get_name().to_owned()))
        .collect();
    let known = known.join(", ");
    let wrong = || format!("expected FORMAT=OUT, for example chrome=trace.json.gz; formats: {known}");
    let (format, path) = text.split_once('=').ok_or_else(wrong)?;
    let format = ExportFormat::from_str(format.trim(), true).map_err(|_| wrong())?;
    if path.is_empty() || path == "-" {
        return Err(wrong());
    }
    Ok(ExportTarget {
        format,
        path: path.into(),
    })
}

/// Seconds as nanoseconds, from their decimal text: `0.5..1.25`, `2..`, `..3`.
fn parse_range(text: &str) -> Result<(i64, i64), String> {
    let wrong = || "expected seconds as T0..T1, for example 0.5..1.25".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let from = match from.trim() {
        "" => 0,
        from => nanoseconds(from).ok_or_else(wrong)?,
    };
    let to = match to.trim() {
        "" => i64::MAX,
        to => nanoseconds(to).ok_or_else(wrong)?,
    };
    if from >= to {
        return Err("the range holds nothing: its end is not after its start".to_owned());
    }
    Ok((from, to))
}

/// The whole nanoseconds of a decimal number of seconds.
fn nanoseconds(text: &str) -> Option<i64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || whole.is_empty() && decimals.is_empty() {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let decimals: i64 = format!("{decimals:0<9}").get(..9)?.parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_paths_of_their_own() {
        let target = parse_target("chrome=runs.d/trace.json.gz").unwrap();
        assert_eq!(
            target.path_of_repeat(2),
            Path::new("runs.d/trace.repeat-2.json.gz")
        );
        let target = parse_target("chrome=a").unwrap();
        assert_eq!(target.path_of_repeat(0), Path::new("a/repeat-0"));
        for wrong in ["chrome", "exe=x", "chrome=", "chrome=-"] {
            assert!(parse_target(wrong).unwrap_err().contains("chrome=trace.json.gz"));
        }
    }

    #[test]
    fn ranges_are_exact() {
        assert_eq!(parse_range("0.5..1.25"), Ok((500_000_000, 1_250_000_000)));
        assert_eq!(parse_range("2.."), Ok((2_000_000_000, i64::MAX)));
        assert_eq!(parse_range("..0.000000001"), Ok((0, 1)));
        assert_eq!(
            parse_range("16.1234567899..17"),
            Ok((16_123_456_789, 17_000_000_000))
        );
        for wrong in [
            "3",
            "2..1",
            "1..1",
            "..",
            "a..b",
            "-1..2",
            "1e3..2e3",
            ". .. .",
            "9999999999999..",
            "1.2.3..4",
        ] {
            let parsed = parse_range(wrong);
            assert!(parsed.is_err() || wrong == "..", "{wrong}: {parsed:?}");
        }
    }
}
