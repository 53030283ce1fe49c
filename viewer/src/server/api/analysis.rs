//! What the analysis says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::{
    Answer, Refusal, Shared, Work, for_ever, json_of, json_text, loaded, newest, parameters, run_queued,
};
use crate::server::entry::Missing;
use crate::server::loaded::{Analysed, Loaded, Progress};
use crate::timeline::{CollectiveOrder, CollectiveQuery};

type Place = Result<Path<(String, u64)>, PathRejection>;

/// So long a comparison waits for its recordings to be read.
const OPENING: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    steps: Option<String>,
}

/// The analysis of a whole recording, as soon as it is there.
pub async fn whole(loaded: &Loaded) -> Result<Arc<Analysed>, Refusal> {
    let mut whole = loaded.whole.clone();
    let failed = || {
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the analysis failed: a fault of gputrace",
        )
    };
    let known = whole
        .wait_for(|progress| !matches!(progress, Progress::Running))
        .await;
    match known.as_deref() {
        Ok(Progress::Done(analysed)) => Ok(analysed.clone()),
        // Nobody is left who would make it: another generation has one.
        Ok(Progress::Replaced) | Err(_) => Err(Missing::Gone.into()),
        Ok(Progress::Running | Progress::Failed) => Err(failed()),
    }
}

/// The analysis.
pub async fn analysis(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Steps>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let steps = parameters::query(query)?.steps;
    let steps = steps.as_deref().filter(|steps| !steps.is_empty());
    let loaded = loaded(&app, rec, generation).await?;
    let Some(steps) = steps.map(parameters::steps).transpose()? else {
        return Ok(for_ever(json_text(whole(&loaded).await?.json.clone())));
    };
    // Where whoever asked first goes away, one of those who asked later begins anew: nothing is made that nobody waits for.
    let part = loaded.part(steps);
    let analyse = async || {
        loaded.there().await?;
        let made = run_queued(&app, Work::Long, move || loaded.analyse_steps(steps));
        made.await?
            .ok_or_else(|| Refusal::nothing("the recording has none of these steps"))
    };
    let json: Bytes = part.get_or_try_init(analyse).await.cloned()?;
    Ok(for_ever(json_text(json)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collectives {
    #[serde(default)]
    sort: Sort,
    order: Option<Order>,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
    communicator: Option<String>,
    name: Option<String>,
    last_rank: Option<u32>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    Start,
    Skew,
    Bytes,
    Busbw,
    Duration,
    Cost,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Ascending,
    Descending,
    Asc,
    Desc,
}

/// Collectives over the ranks, with the place of each rank's part on the timeline.
pub async fn collectives(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Collectives>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let wanted = parameters::query(query)?;
    let limit = parameters::limit(wanted.limit, 100, parameters::MOST_LISTED)?;
    let by_start = matches!(wanted.sort, Sort::Start);
    let descending = wanted.order.map_or(!by_start, |order| {
        matches!(order, Order::Descending | Order::Desc)
    });
    let query = CollectiveQuery {
        order: match wanted.sort {
            Sort::Start => CollectiveOrder::Start,
            Sort::Skew => CollectiveOrder::Skew,
            Sort::Bytes => CollectiveOrder::Bytes,
            Sort::Busbw => CollectiveOrder::Busbw,
            Sort::Duration => CollectiveOrder::Duration,
            Sort::Cost => CollectiveOrder::Cost,
        },
        descending,
        communicator: wanted.communicator,
        name: wanted.name,
        last_rank: wanted.last_rank,
        offset: wanted.offset,
        limit,
    };
    let loaded = loaded(&app, rec, generation).await?;
    let answer = run_queued(&app, Work::Long, move || {
        let page = loaded.timeline.collectives(&query);
        json_of(&page)
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    a: String,
    b: String,
}

/// A recording, opened if it was not.
async fn opened(app: &Shared, rec: String) -> Result<Arc<Loaded>, Refusal> {
    let until = Instant::now() + OPENING;
    loop {
        match newest(app, rec.clone()).await {
            Err(refusal) if refusal.is_loading() && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok((_, loaded)) if loaded.partial && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => return other.map(|(_, loaded)| loaded),
        }
    }
}

/// Two recordings side by side.
pub async fn compare(State(app): State<Shared>, query: Result<Query<Pair>, QueryRejection>) -> Answer {
    let Pair { a, b } = parameters::query(query)?;
    let mut both = Vec::new();
    for rec in [a, b] {
        both.push(whole(&*opened(&app, rec).await?).await?);
    }
    let comparison = run_queued(&app, Work::Long, move || {
        let [a, b] = both.as_slice() else {
            return Err(Refusal::wrong("two recordings are compared"));
        };
        json_of(&gputrace_analyzer::compare(&a.analysis, &b.analysis))
    });
    comparison.await?
}
