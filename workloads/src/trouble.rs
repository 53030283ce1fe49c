//! Trouble that a run is given on purpose: what it is asked for, and when which rank is delayed.

use std::fmt;
use std::time::Duration;

use clap::Args;

use crate::error::Error;

/// What makes a healthy run ill.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Trouble on purpose")]
pub(crate) struct TroubleOptions {
    /// Makes a rank (dp and mp: a GPU) compute FACTOR times as much, with the same results
    #[arg(long, value_name = "RANK:FACTOR", value_parser = straggler)]
    pub(crate) straggler: Option<(u32, f64)>,
    /// Shares the batch unevenly: the last rank gets about FACTOR times the samples of the first [default: 2]
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, default_missing_value = "2", value_parser = factor)]
    pub(crate) imbalance: Option<f64>,
    /// Delays a rank, or all: once before its first step (start), in each step on the thread that launches (step), or in
    /// loading each batch (loader); with EVERY only in every EVERY-th step or batch. May be given several times
    #[arg(long = "delay", value_name = "WHERE:RANK:MS[:EVERY]", value_parser = delay)]
    delays: Vec<Delay>,
    /// The host waits for the GPU after each layer of the forward and the backward pass
    #[arg(long)]
    pub(crate) synchronize: bool,
}

/// Where a rank is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// Before the first step, after all ranks have met.
    Start,
    /// In the step, on the thread that launches.
    Step,
    /// Where batches are loaded.
    Loader,
}

/// One delay that was asked for.
#[derive(Clone, Debug, PartialEq)]
struct Delay {
    at: Where,
    /// All ranks where there is none.
    rank: Option<u32>,
    duration: Duration,
    /// Only in every n-th step or batch.
    every: u64,
    /// As it was typed.
    text: String,
}

impl Delay {
    fn is_of(&self, at: Where, rank: u32) -> bool {
        self.at == at && self.rank.is_none_or(|own| own == rank)
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "--delay {}", self.text)
    }
}

/// The delays of one rank at one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delays(Vec<(Duration, u64)>);

impl Delays {
    /// A delay more, each time.
    pub(crate) fn and(mut self, duration: Duration) -> Self {
        self.0.push((duration, 1));
        self
    }

    /// What they come to in step or batch `number`, which counts from 0.
    pub(crate) fn at(&self, number: u64) -> Duration {
        let due = self
            .0
            .iter()
            .filter(|(_, every)| (number + 1).is_multiple_of(*every));
        due.map(|(duration, _)| *duration).sum()
    }
}

impl TroubleOptions {
    /// Refuses ranks that are not there: of so many processes and, for stragglers, GPUs.
    pub(crate) fn check(&self, ranks: u32, gpus: u32) -> Result<(), Error> {
        let among = |count: u32| format!("there are {count} to choose from, numbered from 0");
        if let Some((straggler, factor)) = self.straggler.filter(|(straggler, _)| *straggler >= gpus) {
            return Err(Error::new(format!(
                "--straggler {straggler}:{factor}: {}",
                among(gpus)
            )));
        }
        let absent = |delay: &&Delay| delay.rank.is_some_and(|rank| rank >= ranks);
        match self.delays.iter().find(absent) {
            Some(delay) if ranks == 1 => Err(Error::new(format!("{delay}: rank 0 is the only one"))),
            Some(delay) => Err(Error::new(format!("{delay}: {}", among(ranks)))),
            None => Ok(()),
        }
    }

    /// A rank's delays at one place.
    pub(crate) fn delays(&self, at: Where, rank: u32) -> Delays {
        let own = self.delays.iter().filter(|delay| delay.is_of(at, rank));
        Delays(own.map(|delay| (delay.duration, delay.every)).collect())
    }

    /// Refuses a delay of just this rank's loading, which loads nothing.
    pub(crate) fn check_without_loader(&self, rank: u32) -> Result<(), Error> {
        let own = |delay: &&Delay| delay.at == Where::Loader && delay.rank == Some(rank);
        match self.delays.iter().find(own) {
            Some(delay) => Err(Error::new(format!(
                "{delay}: rank {rank} loads nothing: its stage is neither the first nor the last"
            ))),
            None => Ok(()),
        }
    }
}

fn straggler(text: &str) -> Result<(u32, f64), String> {
    text.split_once(':')
        .and_then(|(rank, times)| Some((rank.parse().ok()?, factor(times).ok()?)))
        .ok_or_else(|| "expected RANK:FACTOR with a factor from 1 on, as in 1:1.5".to_owned())
}

fn factor(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|factor: &f64| (1.0..=1000.0).contains(factor))
        .ok_or_else(|| "expected a factor from 1 to 1000".to_owned())
}

/// An hour of milliseconds and no more: beyond that a number is a mistake.
const MOST_MILLISECONDS: f64 = 3.6e6;

/// A delay as it is typed.
pub(crate) fn milliseconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|milliseconds: &f64| (0.0..=MOST_MILLISECONDS).contains(milliseconds))
        .map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3))
        .ok_or_else(|| "a number of milliseconds, 0 or more and at most an hour".to_owned())
}

const EXPECTED: &str =
    "expected start:RANK:MS, step:RANK:MS[:EVERY] or loader:RANK:MS[:EVERY]; RANK is a number or all";

fn delay(text: &str) -> Result<Delay, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (at, rank, time, every) = match parts.as_slice() {
        [at, rank, time] => (*at, *rank, *time, None),
        [at, rank, time, every] => (*at, *rank, *time, Some(*every)),
        _ => return Err(EXPECTED.to_owned()),
    };
    let at = match at {
        "start" => Where::Start,
        "step" => Where::Step,
        "loader" => Where::Loader,
        _ => return Err(EXPECTED.to_owned()),
    };
    let rank = match rank {
        "all" => None,
        number => Some(number.parse().map_err(|_| EXPECTED.to_owned())?),
    };
    let every = match every {
        None => 1,
        Some(_) if at == Where::Start => return Err("a rank starts once: without EVERY".to_owned()),
        Some(every) => every
            .parse()
            .ok()
            .filter(|every| *every > 0)
            .ok_or_else(|| "EVERY is a whole number from 1 on".to_owned())?,
    };
    Ok(Delay {
        at,
        rank,
        duration: milliseconds(time)?,
        every,
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: TroubleOptions,
    }

    fn parse(words: &[&str]) -> TroubleOptions {
        let words = std::iter::once(&"workload").chain(words);
        Cli::try_parse_from(words).expect("parses").options
    }

    #[test]
    fn an_imbalance_needs_no_number() {
        assert_eq!(parse(&["--imbalance"]).imbalance, Some(2.0));
        assert_eq!(parse(&["--imbalance", "3"]).imbalance, Some(3.0));
        assert_eq!(parse(&[]).imbalance, None);
    }

    #[test]
    fn a_straggler_has_a_rank_and_a_factor() {
        assert_eq!(straggler("1:2.5"), Ok((1, 2.5)));
        assert!(straggler("1:0.5").is_err());
    }

    #[test]
    fn delays_are_of_their_rank_and_place_and_add_up() {
        let options = parse(&[
            "--delay",
            "step:1:2.5",
            "--delay",
            "step:all:1",
            "--delay",
            "step:1:10:4",
            "--delay",
            "loader:0:7",
        ]);
        let at = |place, rank, number| options.delays(place, rank).at(number).as_micros();
        assert_eq!(
            [0, 3, 4, 7].map(|step| at(Where::Step, 1, step)),
            [3500, 13500, 3500, 13500]
        );
        assert_eq!(at(Where::Step, 0, 3), 1000);
        assert_eq!((at(Where::Loader, 0, 5), at(Where::Loader, 1, 5)), (7000, 0));
        assert_eq!(at(Where::Start, 0, 0), 0);
        let more = options.delays(Where::Loader, 0).and(Duration::from_millis(2));
        assert_eq!(more.at(0).as_millis(), 9);
    }

    #[test]
    fn delays_that_cannot_be_are_refused() {
        for text in [
            "",
            "step",
            "step:1",
            "end:1:5",
            "step:x:5",
            "step:-1:5",
            "step:1:-5",
            "step:1:nan",
            "step:1:1e9",
            "step:1:5:0",
            "step:1:5:2:3",
            "start:1:5:2",
        ] {
            let message = delay(text).expect_err(text);
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }

    #[test]
    fn ranks_that_are_not_there_are_refused() {
        let said = |words: &[&str], ranks| parse(words).check(ranks, 4).map_err(|error| error.to_string());
        assert_eq!(
            said(&["--delay", "step:3:5", "--delay", "start:all:5"], 4),
            Ok(())
        );
        let absent = said(&["--delay", "step:0:5", "--delay", "loader:4:5:2"], 4);
        assert_eq!(
            absent,
            Err("--delay loader:4:5:2: there are 4 to choose from, numbered from 0".to_owned())
        );
        assert_eq!(
            said(&["--delay", "step:1:5"], 1),
            Err("--delay step:1:5: rank 0 is the only one".to_owned())
        );
        let absent = said(&["--straggler", "5:2"], 8);
        assert!(absent.is_err_and(|message| message.contains("numbered from 0")));
    }

    #[test]
    fn a_rank_that_loads_nothing_has_no_loader_to_be_slow() {
        let options = parse(&["--delay", "loader:1:5", "--delay", "loader:all:5"]);
        assert!(options.check_without_loader(1).is_err());
        assert!(options.check_without_loader(2).is_ok());
    }
}
