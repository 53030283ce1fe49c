//! How batches are loaded.

use std::time::Duration;

use clap::Args;

use crate::trouble::milliseconds;

/// How batches are loaded.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Data loading")]
pub(crate) struct LoaderOptions {
    /// Threads that load batches; 0: the training loop loads each itself, and waits for it
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) loader_workers: u32,
    /// Load into pageable instead of pinned memory: copies to the GPU are slower, and whoever loads waits for them
    #[arg(long)]
    pub(crate) no_pin_memory: bool,
    /// Batches that each loading thread has ready
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) prefetch_factor: u32,
    /// Milliseconds that each batch takes longer to load, as from a slow disk
    #[arg(long, default_value = "0", value_name = "MS", value_parser = milliseconds)]
    pub(crate) loader_delay: Duration,
}

impl LoaderOptions {
    /// Batches that have room at once: those that are ready, and the one in use.
    pub(super) fn slots(&self) -> usize {
        // Without workers nothing is ready, but the next may be copied while the last is still in use.
        (self.loader_workers * self.prefetch_factor).max(1) as usize + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: LoaderOptions,
    }

    fn parse(words: &[&str]) -> Result<LoaderOptions, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"workload").chain(words)).map(|cli| cli.options)
    }

    #[test]
    fn defaults_are_one_worker_two_ahead_pinned() {
        let options = parse(&[]).expect("parses");
        assert_eq!(
            (options.loader_workers, options.prefetch_factor, options.slots()),
            (1, 2, 3)
        );
        assert!(!options.no_pin_memory);
        assert_eq!(options.loader_delay, Duration::ZERO);
    }

    #[test]
    fn slots_are_what_all_workers_have_ready_and_one_in_use() {
        let options = parse(&["--loader-workers", "3", "--prefetch-factor", "4"]).expect("parses");
        assert_eq!(options.slots(), 13);
        assert_eq!(parse(&["--loader-workers", "0"]).expect("parses").slots(), 2);
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for words in [
            ["--loader-delay", "-1"],
            ["--loader-delay", "NaN"],
            ["--loader-delay", "inf"],
            ["--loader-delay", "1e9"],
            ["--prefetch-factor", "0"],
            ["--loader-workers", "65"],
        ] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
        let delay = parse(&["--loader-delay", "2.5"]).expect("parses").loader_delay;
        assert_eq!(delay, Duration::from_micros(2500));
    }
}
