//! Ranks by steps: what each device of a job came to in each of its steps, as a table with a row for each rank and a column for each
//! step. It is made of an analysis, or of what is known of ranks alone before that is there.

mod cells;
mod known;
mod measures;
mod overview;
mod table;
#[cfg(test)]
mod tests;

pub use cells::{Binned, RankCells};
pub use known::{InCommunicator, KnownRank};
pub use measures::{CellValue, StepMeasure, step_measures};
pub use overview::RankOverview;
pub use table::{RankCommunicator, RankRow, RankState, RankSteps, StepColumn};
