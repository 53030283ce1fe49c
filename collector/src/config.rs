//! What the recorder has asked for, read once from the environment.

use std::path::Path;
use std::sync::OnceLock;

use gputrace_trace::control::Control;
use gputrace_trace::options::{CONTROL_VARIABLE, CollectorOptions, FOLDER_VARIABLE, Kind, OPTIONS_VARIABLE};

use crate::rank::RankInfo;

/// What this process was told.
pub(crate) struct Config {
    pub(crate) options: CollectorOptions,
    /// The recorder's switch, where there is one.
    control: Option<Control>,
    /// What was not understood.
    pub(crate) notes: Vec<String>,
}

/// The one of this process.
pub(crate) fn get() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| Config::from_environment(&|name| std::env::var(name).ok()))
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
        // An older way to say it, for use without a recorder.
        if let Some(bytes) = variable("GPUTRACE_MAX_BUFFER_BYTES").and_then(|bytes| bytes.parse().ok()) {
            options.memory_bytes = bytes;
        }
        let control = variable(CONTROL_VARIABLE).and_then(|path| match Control::open(Path::new(&path)) {
            Ok(control) => Some(control),
            Err(error) => {
                notes.push(format!(
                    "{path}: {error}: this process records without regard to --delay, --duration and SIGUSR1"
                ));
                None
            }
        });
        Self {
            options,
            control,
            notes,
        }
    }

    /// Whether the recorder wants anything to be recorded now.
    pub(crate) fn is_switched_on(&self) -> bool {
        self.control.as_ref().is_none_or(Control::is_on)
    }

    /// Whether a process of this rank is to be recorded. One whose rank is not known yet is.
    pub(crate) fn wants_rank(&self, rank: Option<u32>) -> bool {
        match (&self.options.ranks, rank) {
            (Some(ranks), Some(rank)) => ranks.contains(&rank),
            _ => true,
        }
    }

    /// Whether anything needs the program's ranges: their rows, windows by them, or what NCCL's own say of its calls.
    pub(crate) fn needs_ranges(&self) -> bool {
        let options = &self.options;
        options.records(Kind::Ranges)
            || options.records(Kind::Collectives)
            || options.range.is_some()
            || options.needs_steps()
    }
}

/// Whether this process is to be recorded at all, by what is known before anything was recorded.
pub(crate) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        std::env::var_os(FOLDER_VARIABLE).is_some()
            && get().wants_rank(RankInfo::from_environment(&|name| std::env::var(name).ok()).rank)
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
        let config = Config::from_environment(&|name| {
            (name == CONTROL_VARIABLE).then(|| "/nowhere/control".to_owned())
        });
        assert!(config.is_switched_on() && config.notes[0].contains("/nowhere/control"));
    }

    #[test]
    fn ranks_that_were_not_asked_for_are_not_wanted() {
        let text = r#"{"ranks": [0, 8]}"#;
        let config = Config::from_environment(&|name| (name == OPTIONS_VARIABLE).then(|| text.to_owned()));
        assert!(config.wants_rank(Some(8)) && config.wants_rank(None) && !config.wants_rank(Some(1)));
    }
}
