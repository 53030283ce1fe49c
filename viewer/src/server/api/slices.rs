//! Single slices, and what lies in an area or matches a search.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use gputrace_analyzer::Launcher;
use serde::Deserialize;

use super::{
    Answer, Refusal, Shared, Work, for_ever, json_of, loaded, parameters, run_cancellable, run_queued,
};
use crate::timeline::{Direction, TreeOf, Where};

type Place = Result<Path<(String, u64)>, PathRejection>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    row: u32,
    index: u32,
}

/// Everything that is known of a slice.
pub async fn slice(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Slice>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let Slice { row, index } = parameters::query(query)?;
    let loaded = loaded(&app, rec, generation).await?;
    loaded.there().await?;
    let answer = run_queued(&app, Work::Quick, move || {
        let slice = loaded.timeline.slice(row, index);
        let slice = slice.ok_or_else(|| Refusal::nothing("there is no such slice"))?;
        json_of(&slice)
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceAt {
    key: String,
    start: i64,
}

/// The slice that a link names.
pub async fn slice_at(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<SliceAt>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let SliceAt { key, start } = parameters::query(query)?;
    let loaded = loaded(&app, rec, generation).await?;
    let answer = run_queued(&app, Work::Quick, move || {
        let slice = loaded.timeline.slice_at(&key, start);
        slice.map_or_else(
            || Err(Refusal::nothing("no slice of that row starts there")),
            |slice| json_of(&slice),
        )
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hit {
    row: u32,
    at: i64,
    #[serde(default)]
    tolerance: i64,
}

/// The slice at a time or near it; null where there is none.
pub async fn hit(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Hit>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let Hit { row, at, tolerance } = parameters::query(query)?;
    if tolerance < 0 {
        return Err(Refusal::wrong("tolerance must not be negative"));
    }
    let loaded = loaded(&app, rec, generation).await?;
    let answer = run_queued(&app, Work::Quick, move || {
        json_of(&loaded.timeline.hit(row, at, tolerance))
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    row: u32,
    index: u32,
    direction: Way,
    same_name: Option<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    Next,
    Previous,
}

/// The slice before or after another.
pub async fn neighbour(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Neighbour>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let Neighbour {
        row,
        index,
        direction,
        same_name,
    } = parameters::query(query)?;
    let same_name = parameters::flag(same_name, "same_name")?;
    let direction = match direction {
        Way::Next => Direction::Next,
        Way::Previous => Direction::Previous,
    };
    let loaded = loaded(&app, rec, generation).await?;
    let answer = run_queued(&app, Work::Quick, move || {
        json_of(&loaded.timeline.neighbour(row, index, direction, same_name))
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    from: i64,
    to: i64,
    rows: Option<String>,
}

/// Statistics of a stretch of time.
pub async fn area(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Area>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let Area { from, to, rows } = parameters::query(query)?;
    let (from, to) = parameters::window(from, to)?;
    let rows = parameters::chosen(rows)?;
    let loaded = loaded(&app, rec, generation).await?;
    let answer = run_queued(&app, Work::Long, move || {
        json_of(&loaded.timeline.area(from, to, rows.as_deref()))
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    of: Of,
    from: i64,
    to: i64,
    rows: Option<String>,
    merge_numbers: Option<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Of {
    Threads,
    Ranges,
    Calls,
    DeviceRanges,
}

/// What threads were in, merged.
pub async fn tree(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Tree>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let wanted = parameters::query(query)?;
    let (from, to) = parameters::window(wanted.from, wanted.to)?;
    let merge_numbers = parameters::flag(wanted.merge_numbers, "merge_numbers")?;
    let rows = parameters::chosen(wanted.rows)?;
    let of = match wanted.of {
        Of::Threads => TreeOf::Threads,
        Of::Ranges => TreeOf::Ranges,
        Of::Calls => TreeOf::Calls,
        Of::DeviceRanges => TreeOf::DeviceRanges,
    };
    let loaded = loaded(&app, rec, generation).await?;
    let answer = run_cancellable(&app, Work::Long, move |wanted| {
        let timeline = &loaded.timeline;
        json_of(&timeline.tree_while(of, from, to, rows.as_deref(), merge_numbers, wanted))
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    q: String,
    by: Option<SearchBy>,
    regex: Option<u8>,
    case: Option<u8>,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
    from: Option<i64>,
    to: Option<i64>,
    rows: Option<String>,
}

/// What a search goes by.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SearchBy {
    /// Names of slices.
    #[default]
    Name,
    /// The modules that launched operations.
    Module,
    /// The Python functions.
    Function,
}

/// Slices by name, or operations by who launched them.
pub async fn search(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Search>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let search = parameters::query(query)?;
    let limit = parameters::limit(search.limit, 200, parameters::MOST_LISTED)?;
    let (is_regex, with_case) = (
        parameters::flag(search.regex, "regex")?,
        parameters::flag(search.case, "case")?,
    );
    let pattern = parameters::pattern(&search.q, is_regex, with_case)?;
    let place = Where {
        rows: parameters::chosen(search.rows)?,
        starts: match (search.from, search.to) {
            (None, None) => None,
            (from, to) => Some(parameters::window(
                from.unwrap_or(i64::MIN),
                to.unwrap_or(i64::MAX),
            )?),
        },
    };
    let loaded = loaded(&app, rec, generation).await?;
    let answer = run_queued(&app, Work::Long, move || {
        let (timeline, offset) = (&loaded.timeline, search.offset);
        let launched = |by| timeline.search_launched(by, &pattern, &place, limit, offset);
        let found = match search.by.unwrap_or_default() {
            SearchBy::Name => timeline.search_where(&pattern, &place, limit, offset),
            SearchBy::Module => launched(Launcher::Module),
            SearchBy::Function => launched(Launcher::Function),
        };
        json_of(&found)
    });
    answer.await?.map(for_ever)
}
