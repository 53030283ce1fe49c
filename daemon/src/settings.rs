//! What a daemon is told: where its things are, how much is kept, and the rules.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gputrace_trace::daemon::Mode;
use gputrace_trace::options::{CollectorOptions, DEFAULT_MEMORY_BYTES};
use serde::Deserialize;

use crate::nodes::config::Nodes;
use crate::triggers::rules::Rules;

/// What is usual, as a configuration file has it.
pub const USUAL: &str = include_str!("usual.toml");

/// Segments that a ring consists of.
pub const RING_SEGMENTS: u32 = 6;

/// Everything that a daemon is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The socket.
    pub socket: PathBuf,
    /// Whether everybody may call; else the user alone.
    pub open: bool,
    /// The folder of jobs and captures.
    pub state: PathBuf,
    /// This host's name.
    pub host: String,
    /// The rest, as a file has it.
    pub config: Config,
}

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How much of a job is recorded all the time.
    pub mode: Mode,
    /// With "sampled": the kernels of one step in so many.
    pub sample_steps: u64,
    /// Kinds to record ([`gputrace_trace::options::Kind`]); none: the usual ones.
    pub kinds: Option<Vec<String>>,
    /// Memory of the collector in each process, MiB.
    pub memory_mib: u64,
    /// What each process's last moments are kept of.
    pub ring: Ring,
    /// What is kept of jobs that have ended, and of captures.
    pub keep: Keep,
    /// Where findings are sent.
    pub webhook: Option<Webhook>,
    /// The daemons of other nodes.
    pub nodes: Option<Nodes>,
    /// What is watched for.
    #[serde(rename = "trigger")]
    pub rules: Rules,
}

/// The last moments of each process.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ring {
    /// Seconds.
    pub seconds: f64,
    /// MiB of each process.
    pub mib: u64,
}

/// What stays, and for how long. Pinned recordings stay whatever is said here.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keep {
    /// The ring of a job that has ended, minutes.
    pub ended_minutes: f64,
    /// Captures, days.
    pub days: f64,
    /// All captures together, MiB.
    pub mib: u64,
    /// Those of one user, MiB.
    pub mib_of_user: u64,
    /// The oldest go while the disk has less room than this, MiB.
    pub free_mib: u64,
}

/// Where findings are sent: as JSON, by POST.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// `http://HOST[:PORT]/PATH`, or `https://`.
    pub url: String,
    /// With https: the file of certificates that are trusted, PEM; none: the system's.
    pub ca: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Steps,
            sample_steps: 100,
            kinds: None,
            memory_mib: DEFAULT_MEMORY_BYTES >> 20,
            ring: Ring::default(),
            keep: Keep::default(),
            webhook: None,
            nodes: None,
            rules: Rules::default(),
        }
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            seconds: 60.0,
            mib: 256,
        }
    }
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            ended_minutes: 30.0,
            days: 14.0,
            mib: 20 << 10,
            mib_of_user: 10 << 10,
            free_mib: 2 << 10,
        }
    }
}

impl Ring {
    /// How long it is.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// How large it may be.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.mib << 20
    }
}

impl Config {
    /// Reads one.
    ///
    /// # Errors
    /// One line: the file, what is wrong, and where.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Of a text.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line = text.as_bytes()[..at]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
                + 1;
            format!(
                "line {line}: {}",
                error.message().lines().next().unwrap_or_default()
            )
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let within = |what: &str, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{what}: expected {least} to {most}, not {value}"))
            }
        };
        within("ring.seconds", self.ring.seconds, 1.0, 86_400.0)?;
        within("ring.mib", self.ring.mib as f64, 1.0, 1e6)?;
        within("memory_mib", self.memory_mib as f64, 8.0, 1e5)?;
        within("sample_steps", self.sample_steps as f64, 1.0, 1e9)?;
        within("keep.ended_minutes", self.keep.ended_minutes, 0.0, 1e6)?;
        within("keep.days", self.keep.days, 0.0, 1e5)?;
        within("keep.mib", self.keep.mib as f64, 0.0, 1e9)?;
        within("keep.mib_of_user", self.keep.mib_of_user as f64, 0.0, 1e9)?;
        within("keep.free_mib", self.keep.free_mib as f64, 0.0, 1e9)?;
        for kind in self.kinds.iter().flatten() {
            check_kind(kind)?;
        }
        if let Some(webhook) = &self.webhook {
            crate::webhook::Address::parse(&webhook.url).map_err(|why| format!("webhook.url: {why}"))?;
        }
        if let Some(nodes) = &self.nodes {
            nodes.check()?;
        }
        self.rules.check()
    }

    /// What collectors are told.
    #[must_use]
    pub fn collector_options(&self) -> CollectorOptions {
        CollectorOptions {
            kinds: self.kinds.clone(),
            memory_bytes: self.memory_mib << 20,
            segment_bytes: Some((self.ring.bytes() / u64::from(RING_SEGMENTS)).max(1 << 16)),
            ..CollectorOptions::default()
        }
    }
}

/// Whether a kind of rows is one.
///
/// # Errors
/// Which there are.
pub fn check_kind(kind: &str) -> Result<(), String> {
    use gputrace_trace::options::Kind;
    match Kind::from_name(kind) {
        Some(_) => Ok(()),
        None => {
            let all: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            Err(format!("kinds: {kind:?} is none: there are {}", all.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_differs_from_the_usual() {
        assert_eq!(Config::parse(""), Ok(Config::default()));
        let config = Config::parse(
            "mode = \"full\"\n[ring]\nseconds = 30\n[trigger.hang]\nafter_s = 10\nactions = [\"snapshot\"]\n",
        )
        .expect("understood");
        assert_eq!(config.mode, Mode::Full);
        assert_eq!(config.ring.seconds, 30.0);
        assert_eq!(config.ring.mib, 256);
        assert_eq!(config.rules.hang.after_s, 10.0);
    }

    #[test]
    fn what_is_printed_is_what_is_usual() {
        assert_eq!(Config::parse(USUAL), Ok(Config::default()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, said) in [
            ("a = 1", "line 1"),
            ("[ring]\nseconds = \"x\"", "line 2"),
            ("[ring]\nseconds = 0", "ring.seconds"),
            ("[keep]\nmib = 17592186044416", "keep.mib"),
            ("[keep]\nmib_of_user = 17592186044416", "keep.mib_of_user"),
            ("[keep]\nfree_mib = 1000000001", "keep.free_mib"),
            ("[trigger.hang]\ncooldown_s = nan", "trigger.hang.cooldown_s"),
            ("kinds = [\"x\"]", "there are kernels"),
            ("[webhook]\nurl = \"ftp://x/\"", "http://"),
            ("[trigger.late-rank]\nshare = 7", "trigger.late-rank"),
            ("mode = \"fast\"", "line 1"),
        ] {
            let why = Config::parse(text).expect_err(text);
            assert!(why.contains(said) && !why.contains('\n'), "{text}: {why}");
        }
    }
}
