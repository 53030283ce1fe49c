//! Ranks by steps: who the ranks are, and what each came to in each step.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use gputrace_analyzer::rank_steps::{Binned, RankOverview, RankSteps, step_measures};
use serde::Deserialize;

use super::info::Nothing;
use super::{Answer, Refusal, Shared, Work, analysis, for_ever, json_of, loaded, parameters, run_queued};
use crate::server::loaded::Loaded;

/// Columns of an answer, where it is not said.
const COLUMNS: usize = 1000;
/// At most so many.
const MOST_COLUMNS: usize = 4096;

/// The table, made of the analysis where it is not there yet.
async fn table(app: &Shared, loaded: &Arc<Loaded>) -> Result<Arc<RankSteps>, Refusal> {
    let place = loaded.ranks();
    let make = async || {
        let (analysed, whole) = (analysis::whole(loaded).await?, loaded.clone());
        run_queued(app, Work::Long, move || whole.make_ranks(&analysed.analysis)).await
    };
    place.get_or_try_init(make).await.cloned()
}

/// Who the ranks are, which steps there are, and what can be shown of them.
pub async fn ranks(
    State(app): State<Shared>,
    place: Result<Path<(String, u64)>, PathRejection>,
    query: Result<Query<Nothing>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    parameters::query(query)?;
    let loaded = loaded(&app, rec, generation).await?;
    let table = table(&app, &loaded).await?;
    let answer = run_queued(&app, Work::Long, move || {
        json_of(&RankOverview::of(&table, step_measures()))
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    #[serde(default)]
    steps: String,
    columns: Option<usize>,
    #[serde(default)]
    binned: Binned,
}

/// One measure of all of them.
pub async fn cells(
    State(app): State<Shared>,
    place: Result<Path<(String, u64, String)>, PathRejection>,
    query: Result<Query<Cells>, QueryRejection>,
) -> Answer {
    let (rec, generation, measure) = parameters::path(place)?;
    let wanted = parameters::query(query)?;
    let steps = analysis::chosen_steps(&wanted.steps)?;
    let columns = wanted.columns.unwrap_or(COLUMNS);
    if !(1..=MOST_COLUMNS).contains(&columns) {
        return Err(Refusal::wrong(format!("columns must be 1 to {MOST_COLUMNS}")));
    }
    let loaded = loaded(&app, rec, generation).await?;
    let table = table(&app, &loaded).await?;
    let answer = run_queued(&app, Work::Long, move || {
        let cells = table.cells(&measure, steps, columns, wanted.binned);
        let cells = cells.ok_or_else(|| {
            Refusal::nothing("there is no such measure: `ranks` lists those that there are")
        })?;
        json_of(&cells)
    });
    answer.await?.map(for_ever)
}
