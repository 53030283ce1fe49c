//! Values of options that several commands have.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};

/// Which GPUs to use.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The real GPU where there is one; else, for bundled workloads only, the simulated one
    Auto,
    /// The real GPU
    Cuda,
    /// The simulated GPU
    Sim,
}

/// How much importing may take.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Read trace files however much memory that takes (otherwise up to 2 GiB or 4 times the unpacked size) and however much they unpack to (otherwise up to 512 MiB or 250 times their size)
    #[arg(long)]
    pub no_import_limits: bool,
}

impl ImportArgs {
    /// The same for another of our programs.
    pub fn words(&self) -> Vec<String> {
        let limits = self.no_import_limits.then(|| "--no-import-limits".to_owned());
        limits.into_iter().collect()
    }

    /// From now on it is so.
    pub fn apply(&self) {
        if self.no_import_limits {
            gputrace_interchange::limits::lift();
        }
    }
}

/// Ranks to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks(pub Vec<u32>);

/// Numbers and ranges of them, with commas.
pub fn parse_ranks(text: &str) -> Result<Ranks, String> {
    /// More than any job has.
    const MOST: u32 = 1 << 20;
    let wrong = || "expected ranks as 0,8 or 0..7".to_owned();
    let mut ranks = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let number = |text: &str| text.trim().parse().ok().filter(|rank| *rank < MOST);
        let (first, last): (u32, u32) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
        if first > last {
            return Err(wrong());
        }
        ranks.extend(first..=last);
    }
    Ok(Ranks(ranks.into_iter().collect()))
}

/// Two numbers, both counted.
pub fn parse_steps(text: &str) -> Result<(u64, u64), String> {
    let wrong = || "expected A..B, for example 5..20".to_owned();
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let (first, last) = (first.trim().parse().ok(), last.trim().parse().ok());
    match (first, last) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_two_numbers_in_order() {
        assert_eq!(parse_steps("3..9"), Ok((3, 9)));
        assert!(parse_steps("9..3").is_err());
        assert!(parse_steps("3").is_err());
    }

    #[test]
    fn ranks_are_numbers_and_ranges() {
        assert_eq!(parse_ranks("8, 0"), Ok(Ranks(vec![0, 8])));
        assert_eq!(parse_ranks("0..3,2,9"), Ok(Ranks(vec![0, 1, 2, 3, 9])));
        for wrong in ["", "3..1", "-1", "0..4294967295", "a", "1,"] {
            assert!(parse_ranks(wrong).is_err(), "{wrong}");
        }
    }
}

/// What kernels are ordered by, greatest first.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortChoice {
    Total,
    Count,
    Mean,
    Max,
}

impl SortChoice {
    /// What is typed for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Count => "count",
            Self::Mean => "mean",
            Self::Max => "max",
        }
    }
}

impl From<SortChoice> for gputrace_analyzer::Sort {
    fn from(choice: SortChoice) -> Self {
        match choice {
            SortChoice::Total => Self::Total,
            SortChoice::Count => Self::Count,
            SortChoice::Mean => Self::Mean,
            SortChoice::Max => Self::Max,
        }
    }
}
