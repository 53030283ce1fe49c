//! What was wrong with rows, counted by table; it becomes the recording's losses.

use std::collections::BTreeMap;

use gputrace_trace::Loss;

/// Why a row can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wrong {
    /// A needed column is null.
    Null,
    /// A column holds another type of value.
    Type,
    /// A number is none that its column can hold.
    Range,
    /// It ends before it begins.
    Backwards,
    /// Its time is before the recording or more than 73 years off.
    Time,
    /// It says no process, and several could be meant.
    Process,
    /// A range that was still open when recording ended, or whose begin was not recorded.
    Open,
    /// It lies across the place where the file was cut.
    Torn,
}

impl Wrong {
    fn words(self) -> &'static str {
        match self {
            Self::Null => "have no value in a column that is needed",
            Self::Type => "have a value of the wrong type in a column",
            Self::Range => "have a number in them that is out of range",
            Self::Backwards => "end before they begin",
            Self::Time => "have an impossible time (negative, or beyond 73 years)",
            Self::Process => "do not say which process they are of",
            Self::Open => "are ranges with only one end recorded",
            Self::Torn => "lie across the place where the file was cut",
        }
    }
}

/// All that was lost.
#[derive(Debug, Default)]
pub(super) struct LossCounts {
    rows: BTreeMap<(&'static str, Wrong), (u64, &'static str)>,
    others: Vec<Loss>,
}

impl LossCounts {
    /// Counts a row of `table`.
    pub(super) fn count(&mut self, table: &'static str, wrong: Wrong, affects: &'static str) {
        self.rows.entry((table, wrong)).or_insert((0, affects)).0 += 1;
    }

    pub(super) fn lose(&mut self, what: String, count: Option<u64>, affects: &str) {
        self.others.push(Loss {
            what,
            count,
            affects: affects.to_owned(),
        });
    }

    /// The first of what is wrong, for a line that can hold one.
    pub(super) fn first_words(&self) -> Option<String> {
        let row = self
            .rows
            .iter()
            .next()
            .map(|((table, wrong), (count, _))| format!("{count} rows of {table} {}", wrong.words()));
        row.or_else(|| self.others.first().map(|loss| loss.what.clone()))
    }

    pub(super) fn into_losses(self) -> Vec<Loss> {
        let rows = self
            .rows
            .into_iter()
            .map(|((table, wrong), (count, affects))| Loss {
                what: format!("rows of {table} that {}", wrong.words()),
                count: Some(count),
                affects: affects.to_owned(),
            });
        rows.chain(self.others).collect()
    }
}
