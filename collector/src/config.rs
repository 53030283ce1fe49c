//! What the recorder has asked for, read once from the environment.

use std::path::PathBuf;
use std::sync::OnceLock;

use gputrace_trace::daemon::sockets;
use gputrace_trace::options::{CONTROL_VARIABLE, CollectorOptions, FOLDER_VARIABLE, Kind, OPTIONS_VARIABLE};

use crate::rank::RankInfo;

/// What this process was told.
pub(crate) struct Config {
    /// To be had by [`options`].
    options: CollectorOptions,
    /// The file of the recorder's switch, where there is a recorder.
    pub(crate) control: Option<PathBuf>,
    /// Where raw data goes, if anywhere.
    pub(crate) dump: Option<PathBuf>,
    /// Whether the user asked to hear of what goes wrong.
    pub(crate) is_verbose: bool,
    /// Where a daemon may be.
    pub(crate) sockets: Vec<PathBuf>,
    /// What was not understood.
    pub(crate) notes: Vec<String>,
}

/// The one of this process. All of the environment that matters later is read here: our own thread never does, since the
/// program may change its environment meanwhile (`setenv`).
pub(crate) fn get() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| Config::from_environment(&|name| std::env::var(name).ok()))
}

/// What a daemon asks for.
static GIVEN: OnceLock<CollectorOptions> = OnceLock::new();

/// What is to be recorded, by the daemon that this process has joined, or the environment.
pub(crate) fn options() -> &'static CollectorOptions {
    GIVEN.get().unwrap_or_else(|| &get().options)
}

/// A daemon asks for this, from now on. The first that does is heard: another has the same.
pub(crate) fn give(options: CollectorOptions) -> &'static CollectorOptions {
    GIVEN.get_or_init(|| options)
}

/// Who takes what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// A recorder has named a folder.
    Recorder,
    /// A daemon may be there, now or later.
    Daemon,
    /// Nobody.
    Nobody,
}

/// Who takes what this process records. Nothing but CUDA_INJECTION64_PATH is set for a process that a daemon may watch.
pub(crate) fn taker() -> Taker {
    static TAKER: OnceLock<Taker> = OnceLock::new();
    *TAKER.get_or_init(|| {
        if std::env::var_os(FOLDER_VARIABLE).is_some() {
            Taker::Recorder
        } else if get().sockets.is_empty() {
            Taker::Nobody
        } else {
            Taker::Daemon
        }
    })
}

impl Config {
    fn from_environment(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut notes = Vec::new();
        let mut options = match variable(OPTIONS_VARIABLE).map(|text| CollectorOptions::parse(&text)) {
            Some(Ok(options)) => options,
            Some(Err(why)) => {
                notes.push(format!("{why}: everything is recorded as usual"));
                CollectorOptions::default()
            }
            None => CollectorOptions::default(),
        };
        if options.follow_umask {
            gputrace_trace::access::follow_umask();
        }
        // An older way to say it, for use without a recorder.
        if let Some(bytes) = variable("GPUTRACE_MAX_BUFFER_BYTES").and_then(|bytes| bytes.parse().ok()) {
            options.memory_bytes = bytes;
        }
        let control = variable(CONTROL_VARIABLE).map(PathBuf::from);
        // SAFETY: no preconditions.
        let uid = unsafe { libc::geteuid() };
        Self {
            sockets: sockets(variable, uid),
            options,
            control,
            dump: variable("GPUTRACE_DUMP").map(PathBuf::from),
            is_verbose: variable("GPUTRACE_VERBOSE").is_some_and(|value| value != "0"),
            notes,
        }
    }
}

/// Whether a process of this rank is to be recorded. One whose rank is not known yet is.
pub(crate) fn wants_rank(options: &CollectorOptions, rank: Option<u32>) -> bool {
    match (&options.ranks, rank) {
        (Some(ranks), Some(rank)) => ranks.contains(&rank),
        _ => true,
    }
}

/// Whether anything needs the program's ranges: their rows, windows by them, or what NCCL's own say of its calls.
pub(crate) fn needs_ranges() -> bool {
    let options = options();
    options.records(Kind::Ranges)
        || options.records(Kind::Collectives)
        || options.range.is_some()
        || options.needs_steps()
        || taker() == Taker::Daemon
}

/// Whether this process is to be recorded at all, by what is known before anything was recorded.
pub(crate) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let rank = RankInfo::from_environment(&|name| std::env::var(name).ok()).rank;
        taker() != Taker::Nobody && wants_rank(&get().options, rank)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_understood_are_noted_and_nothing_is_lost() {
        let config = Config::from_environment(&|name| (name == OPTIONS_VARIABLE).then(|| "{".to_owned()));
        assert_eq!(config.options, CollectorOptions::default());
        assert!(config.notes[0].contains("GPUTRACE_OPTIONS"), "{:?}", config.notes);
    }

    #[test]
    fn ranks_that_were_not_asked_for_are_not_wanted() {
        let text = r#"{"ranks": [0, 8]}"#;
        let config = Config::from_environment(&|name| (name == OPTIONS_VARIABLE).then(|| text.to_owned()));
        let wants = |rank| wants_rank(&config.options, rank);
        assert!(wants(Some(8)) && wants(None) && !wants(Some(1)));
    }
}
