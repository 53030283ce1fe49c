//! What is said of the table but its cells.

use serde::Serialize;

use super::measures::StepMeasure;
use super::table::{RankCommunicator, RankRow, RankSteps, StepColumn};

/// Who the ranks are, which steps there are, and what is known of them.
#[derive(Clone, Debug, Serialize)]
pub struct RankOverview {
    /// What a picture can show.
    pub measures: Vec<StepMeasure>,
    /// Whether ranks were compared with each other: until then measures that need it have no values.
    pub compared: bool,
    /// Ranks that are here.
    pub here: usize,
    /// Ranks of the job, as far as that is known.
    pub all: usize,
    /// The steps, by time.
    pub steps: Vec<StepColumn>,
    /// By rank and device.
    pub rows: Vec<RankRow>,
    /// Those that any row is in: the largest first.
    pub communicators: Vec<RankCommunicator>,
}

impl RankOverview {
    /// Of a table, and its measures.
    #[must_use]
    pub fn of(table: &RankSteps, measures: Vec<StepMeasure>) -> Self {
        let (here, all) = table.here();
        Self {
            measures,
            compared: table.compared,
            here,
            all,
            steps: table.columns.clone(),
            rows: table.rows.clone(),
            communicators: table.communicators.clone(),
        }
    }
}
