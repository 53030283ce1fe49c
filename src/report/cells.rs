//! Texts of a table's cells.

use gputrace_analyzer::RankAnalysis;

use super::table::terminal_width;
use crate::text::shorten;

/// What a name gets at least.
const NARROWEST_NAME: usize = 28;

/// A rank's number, where it is known.
pub(super) fn rank_number(rank: &RankAnalysis) -> String {
    rank.rank
        .map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// A rank with its GPU.
pub(super) fn rank_label(rank: &RankAnalysis) -> String {
    format!("{} (GPU {})", rank_number(rank), rank.device_index)
}

/// Characters of a name that the other columns leave room for.
pub(super) fn name_width(others: usize) -> usize {
    terminal_width().saturating_sub(others).max(NARROWEST_NAME)
}

/// A name cut to what the other columns leave.
pub(super) fn name(text: &str, others: usize) -> String {
    shorten(text, name_width(others))
}

/// Its text, or a dash for what is not known.
pub(super) fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}
