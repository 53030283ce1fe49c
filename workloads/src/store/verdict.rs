//! Why all ranks end: what is known of it, what is told, and what a process does then.

use std::time::Duration;

use super::wire::{Fields, Reader};

/// A rank with an error of its own tells it first.
const AFTER_ITS_OWN_WORDS: Duration = Duration::from_millis(300);
/// So long a rank that our launcher started leaves it the time to see which rank ended first.
const LAUNCHERS_TURN: Duration = Duration::from_secs(2);

/// Why all end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The rank that ended first.
    pub(super) rank: u32,
    /// Whether it told its error itself.
    pub(super) told: bool,
    /// Whether this rank is one that says it.
    pub(super) speaks: bool,
    /// The line.
    pub(super) line: String,
}

impl Verdict {
    /// Rank 0 ends for this reason, and says so.
    pub(super) fn of_rank_0(reason: &str, speaks: bool) -> Self {
        Self {
            rank: 0,
            told: true,
            speaks,
            line: format!("rank 0: {reason}"),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        Fields::default()
            .number(self.rank)
            .number(u32::from(self.told))
            .number(u32::from(self.speaks))
            .text(&self.line)
            .into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Some(Self {
            rank: reader.number()?,
            told: reader.number()? != 0,
            speaks: reader.number()? != 0,
            line: reader.text()?,
        })
    }
}

/// What is done with a verdict.
pub(super) struct Ending(Box<dyn Fn(&Verdict) + Send + Sync>);

impl Ending {
    /// Says it and ends the process, wherever its threads are: they may wait in the driver for a rank that is gone.
    pub(super) fn of_process(launched: bool) -> Self {
        Self(Box::new(move |verdict| {
            if launched {
                // The launcher knows how each rank ended, says it, and ends us.
                std::thread::sleep(LAUNCHERS_TURN);
            } else if verdict.speaks {
                if verdict.told {
                    std::thread::sleep(AFTER_ITS_OWN_WORDS);
                }
                eprintln!("{}", verdict.line);
            }
            // SAFETY: ends the process at once, without exit handlers that would wait for the GPU.
            unsafe { libc::_exit(1) }
        }))
    }

    /// Does it.
    pub(super) fn with(&self, verdict: &Verdict) {
        (self.0)(verdict);
    }

    #[cfg(test)]
    pub(super) fn new(ending: impl Fn(&Verdict) + Send + Sync + 'static) -> Self {
        Self(Box::new(ending))
    }
}

/// What rank 0 knows of a rank's end: its own words, or none when it just vanished.
pub(super) struct Evidence {
    pub(super) rank: u32,
    pub(super) words: Option<String>,
}

/// What all end of: a rank that vanished, else the first with an error of its own, else the first whose error came
/// out of communication (which is what a rank gets when another's end breaks it).
pub(super) fn cause(evidence: &[Evidence]) -> Option<&Evidence> {
    let weight = |evidence: &Evidence| match &evidence.words {
        None => 0,
        Some(words) if !words.starts_with("NCCL") => 1,
        Some(_) => 2,
    };
    // min_by_key gives the first of equal ones. One rank's words count before the loss of its connection.
    evidence
        .iter()
        .filter(|one| {
            one.words.is_some()
                || !evidence
                    .iter()
                    .any(|other| other.rank == one.rank && other.words.is_some())
        })
        .min_by_key(|one| weight(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(rank: u32, words: Option<&str>) -> Evidence {
        Evidence {
            rank,
            words: words.map(str::to_owned),
        }
    }

    #[test]
    fn the_cause_is_told_from_what_it_does_to_others() {
        let broken = "NCCL all-reduce: remote process exited";
        let rank_of = |all: &[Evidence]| cause(all).map(|one| one.rank);
        assert_eq!(rank_of(&[evidence(2, Some(broken)), evidence(1, None)]), Some(1));
        assert_eq!(
            rank_of(&[
                evidence(2, Some(broken)),
                evidence(3, Some("CUDA: out of memory"))
            ]),
            Some(3)
        );
        assert_eq!(
            rank_of(&[evidence(2, Some(broken)), evidence(3, Some(broken))]),
            Some(2)
        );
        let failed_and_gone = [
            evidence(2, Some("CUDA: out of memory")),
            evidence(2, None),
            evidence(0, Some(broken)),
        ];
        assert!(cause(&failed_and_gone).is_some_and(|one| one.rank == 2 && one.words.is_some()));
        assert_eq!(rank_of(&[]), None);
    }

    #[test]
    fn verdicts_come_back_as_they_were() {
        let verdict = Verdict {
            rank: 3,
            told: true,
            speaks: false,
            line: "rank 3 (pid 7 on host b) failed: ending".to_owned(),
        };
        assert_eq!(Verdict::from_bytes(&verdict.to_bytes()), Some(verdict));
        assert_eq!(Verdict::from_bytes(&[1, 2, 3]), None);
    }
}
