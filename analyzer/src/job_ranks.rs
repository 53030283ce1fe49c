//! How much of the job an analysis is of: "n of m ranks".

use std::collections::BTreeSet;

use gputrace_trace::Recording;
use serde::{Deserialize, Serialize};

/// The ranks that an analysis is of, and those that it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRanks {
    /// Processes that it is of.
    pub here: usize,
    /// Processes that the job has: as many as recordings or the processes themselves say, the larger number.
    pub of: usize,
    /// Those that are not here, in the order of their ranks.
    pub missing: Vec<MissingRanks>,
}

/// Ranks that follow each other and are missing, or a process without a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRanks {
    /// The first of them; null of a process without a rank.
    pub first: Option<u32>,
    /// The last of them, counted too.
    pub last: Option<u32>,
    /// The process's folder, where it has no rank.
    pub folder: Option<String>,
    /// Why they are missing; null where that is not known.
    pub why: Option<String>,
}

/// Processes that were to be analysed and could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Their ranks, as far as they are known.
    pub ranks: Vec<u32>,
    /// Why, in a line.
    pub why: String,
}

impl MissingRanks {
    fn name(&self) -> String {
        match (self.first, self.last, &self.folder) {
            (Some(first), Some(last), _) if first == last => format!("rank {first}"),
            (Some(first), Some(last), _) => format!("ranks {first} to {last}"),
            (_, _, folder) => folder.clone().unwrap_or_else(|| "a file".to_owned()),
        }
    }
}

impl JobRanks {
    /// How many of the job's processes are not here.
    #[must_use]
    pub fn count_missing(&self) -> usize {
        self.of.saturating_sub(self.here)
    }

    /// "7 of 8 ranks"; `None` where all are here.
    #[must_use]
    pub fn share(&self) -> Option<String> {
        (self.here < self.of).then(|| format!("{} of {} ranks", self.here, self.of))
    }

    /// The same with who is missing, and why.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let names: Vec<String> = self.missing.iter().map(MissingRanks::name).collect();
        let why = |missing: &MissingRanks| Some((missing.name(), missing.why.clone()?));
        let why = match self.missing.iter().find_map(why) {
            None => String::new(),
            Some((_, why)) if self.missing.len() == 1 => format!(" ({why})"),
            Some((name, why)) => format!(" ({name}: {why})"),
        };
        let missing = match names.as_slice() {
            [] => String::new(),
            names => format!(": {} missing{why}", listed(names)),
        };
        self.share().map(|share| format!("{share} are here{missing}"))
    }
}

/// Some names, and how many more.
pub(crate) fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    let first = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// What is known of processes that are not in a recording: those that it names, with their ranks, and those that were lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Away {
    pub(crate) named: Vec<(String, Option<u32>)>,
    pub(crate) lost: Vec<Lost>,
}

/// Of a recording whose processes have these ranks.
pub(crate) fn job_ranks(recording: &Recording, ranks: &[Option<u32>], away: &Away) -> JobRanks {
    let here: BTreeSet<u32> = ranks.iter().copied().flatten().collect();
    let why = |rank: u32| {
        let lost = away.lost.iter().find(|lost| lost.ranks.contains(&rank));
        lost.map(|lost| lost.why.clone())
    };
    let said = recording
        .processes
        .iter()
        .filter_map(|process| process.header.world_size);
    let size = said.max().unwrap_or(0);
    let named = away.named.iter().filter_map(|(_, rank)| *rank);
    let lost = away.lost.iter().flat_map(|lost| lost.ranks.iter().copied());
    let beyond: BTreeSet<u32> = named.chain(lost).filter(|rank| !here.contains(rank)).collect();
    // Ranks up to the job's size that nobody has, as stretches: a file may claim any size.
    let mut missing: Vec<MissingRanks> = Vec::new();
    let mut lacks = |first: u32, last: u32, why: Option<String>| {
        let before = missing.last_mut().filter(|before| {
            before.why == why && before.last.is_some_and(|last| last.checked_add(1) == Some(first))
        });
        match before {
            Some(before) => before.last = Some(last),
            None => missing.push(MissingRanks {
                first: Some(first),
                last: Some(last),
                folder: None,
                why,
            }),
        }
    };
    let known: BTreeSet<u32> = here.union(&beyond).copied().collect();
    // One without a rank is one of those that nobody has.
    let unnamed = ranks.iter().filter(|rank| rank.is_none()).count()
        + away.named.iter().filter(|(_, rank)| rank.is_none()).count()
        + away.lost.iter().filter(|lost| lost.ranks.is_empty()).count();
    let nobodys = size as usize - known.range(..size).count();
    let (size, twice) = if nobodys > unnamed {
        (size, unnamed)
    } else {
        (0, 0)
    };
    let mut next = 0;
    for rank in known.iter().copied() {
        if next < rank.min(size) {
            lacks(next, rank.min(size) - 1, None);
        }
        if beyond.contains(&rank) {
            lacks(rank, rank, why(rank));
        }
        next = rank.saturating_add(1);
    }
    if next < size {
        lacks(next, size - 1, None);
    }
    let without_rank = away.named.iter().filter(|(_, rank)| rank.is_none());
    missing.extend(without_rank.map(|(folder, _)| MissingRanks {
        first: None,
        last: None,
        folder: Some(folder.clone()),
        why: None,
    }));
    let whys = away.lost.iter().filter(|lost| lost.ranks.is_empty());
    missing.extend(whys.map(|lost| MissingRanks {
        first: None,
        last: None,
        folder: None,
        why: Some(lost.why.clone()),
    }));
    let count = |missing: &MissingRanks| match (missing.first, missing.last) {
        (Some(first), Some(last)) => (last - first) as usize + 1,
        _ => 1,
    };
    let here = recording.processes.len();
    JobRanks {
        here,
        of: here + missing.iter().map(count).sum::<usize>() - twice,
        missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_trace::Process;

    fn recording(ranks: &[u32], size: u32) -> Recording {
        let mut recording = Recording::default();
        for rank in ranks {
            let mut process = Process::default();
            (process.header.rank, process.header.world_size) = (Some(*rank), Some(size));
            recording.processes.push(process);
        }
        recording
    }

    fn of(here: &[u32], size: u32, away: &Away) -> JobRanks {
        let ranks: Vec<Option<u32>> = here.iter().copied().map(Some).collect();
        job_ranks(&recording(here, size), &ranks, away)
    }

    #[test]
    fn ranks_that_nobody_has_are_stretches() {
        let all = of(&[0, 1, 2], 3, &Away::default());
        assert_eq!((all.here, all.of, all.sentence()), (3, 3, None));
        let some = of(&[2, 3, 6], u32::MAX, &Away::default());
        let stretches: Vec<_> = some
            .missing
            .iter()
            .map(|missing| (missing.first, missing.last))
            .collect();
        let expected = [(0, 1), (4, 5), (7, u32::MAX - 1)].map(|(first, last)| (Some(first), Some(last)));
        assert_eq!(stretches, expected);
        assert_eq!((some.here, some.of), (3, u32::MAX as usize));
    }

    #[test]
    fn those_that_were_lost_say_why() {
        let away = Away {
            named: vec![
                ("rank1".into(), Some(1)),
                ("rank2".into(), Some(2)),
                ("helper".into(), None),
            ],
            lost: vec![Lost {
                ranks: vec![2],
                why: "its worker died".into(),
            }],
        };
        let some = of(&[0], 4, &away);
        assert_eq!((some.here, some.of), (1, 4));
        assert_eq!(some.share().as_deref(), Some("1 of 4 ranks"));
        assert_eq!(
            some.sentence().as_deref(),
            Some("1 of 4 ranks are here: rank 1, rank 2, helper missing (rank 2: its worker died)")
        );
    }
}
