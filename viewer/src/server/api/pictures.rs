//! What is drawn: rows, tiles, counters, the overview, names.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::json;

use super::info::Nothing;
use super::{Answer, Refusal, Shared, Work, binary, for_ever, json_of, loaded, parameters, run_queued};
use crate::timeline::Timeline;

type Place = Result<Path<(String, u64)>, PathRejection>;
type TilePlace = Result<Path<(String, u64, u32, u64)>, PathRejection>;

/// All rows.
pub async fn rows(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Nothing>, QueryRejection>,
) -> Answer {
    parameters::query(query)?;
    let (rec, generation) = parameters::path(place)?;
    let loaded = loaded(&app, rec, generation).await?;
    let answer = run_queued(&app, Work::Quick, move || {
        json_of(&json!({ "rows": loaded.timeline.rows() }))
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    rows: String,
}

/// A tile of some rows, as `make` makes it of level, index and rows.
async fn tile_by(
    app: &Shared,
    place: TilePlace,
    query: Result<Query<Rows>, QueryRejection>,
    make: fn(&Timeline, u32, u64, &[u32]) -> Vec<u8>,
) -> Answer {
    let (rec, generation, level, index) = parameters::path(place)?;
    let level = parameters::level(level)?;
    let rows = parameters::numbers(&parameters::query(query)?.rows, parameters::MOST_TILE_ROWS)?;
    let loaded = loaded(app, rec, generation).await?;
    let tile = run_queued(app, Work::Quick, move || {
        make(&loaded.timeline, level, index, &rows)
    });
    Ok(binary(tile.await?))
}

/// Slices of some rows.
pub async fn tiles(
    State(app): State<Shared>,
    place: TilePlace,
    query: Result<Query<Rows>, QueryRejection>,
) -> Answer {
    tile_by(&app, place, query, Timeline::tile).await
}

/// Values of some counters.
pub async fn counters(
    State(app): State<Shared>,
    place: TilePlace,
    query: Result<Query<Rows>, QueryRejection>,
) -> Answer {
    tile_by(&app, place, query, Timeline::counters).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overview {
    from: i64,
    to: i64,
    bins: u32,
}

/// Shares of time by band.
pub async fn overview(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Overview>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let Overview { from, to, bins } = parameters::query(query)?;
    let (from, to) = parameters::window(from, to)?;
    if from == to {
        return Err(Refusal::wrong("to must be behind from"));
    }
    if !(1..=parameters::MOST_BINS).contains(&bins) {
        return Err(Refusal::wrong(format!(
            "bins must be 1 to {}",
            parameters::MOST_BINS
        )));
    }
    let loaded = loaded(&app, rec, generation).await?;
    let overview = run_queued(&app, Work::Quick, move || {
        loaded.timeline.overview(from, to, bins)
    });
    Ok(binary(overview.await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    ids: String,
    full: Option<u8>,
}

/// Texts of names.
pub async fn names(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Ids>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let Ids { ids, full } = parameters::query(query)?;
    let ids = parameters::numbers(&ids, parameters::MOST_NAMES)?;
    let full = parameters::flag(full, "full")?;
    let loaded = loaded(&app, rec, generation).await?;
    let answer = run_queued(&app, Work::Quick, move || {
        json_of(&loaded.timeline.names(&ids, full))
    });
    answer.await?.map(for_ever)
}
