//! What the analysis says, and what a replay of it predicts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use gputrace_analyzer::baseline::Baseline;
use gputrace_analyzer::graph::{Edit, Model};
use serde::Deserialize;

use super::{
    Answer, Refusal, Shared, Work, binary, for_ever, json_of, json_text, loaded, newest, parameters,
    run_queued,
};
use crate::server::entry::Missing;
use crate::server::loaded::{Analysed, Loaded, Progress, Steps as Numbers};
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

/// What a recording is compared by, made when it is first asked for.
async fn baseline(app: &Shared, loaded: &Arc<Loaded>) -> Result<Arc<Baseline>, Refusal> {
    let place = loaded.baseline();
    let make = async || {
        loaded.there().await?;
        let whole = loaded.clone();
        run_queued(app, Work::Model, move || whole.make_baseline()).await
    };
    place.get_or_try_init(make).await.cloned()
}

/// Two recordings side by side.
pub async fn compare(State(app): State<Shared>, query: Result<Query<Pair>, QueryRejection>) -> Answer {
    let Pair { a, b } = parameters::query(query)?;
    let mut both = Vec::new();
    for rec in [a, b] {
        let loaded = opened(&app, rec).await?;
        both.push((whole(&loaded).await?, baseline(&app, &loaded).await?));
    }
    let comparison = run_queued(&app, Work::Long, move || {
        let [(a, baseline_a), (b, baseline_b)] = both.as_slice() else {
            return Err(Refusal::wrong("two recordings are compared"));
        };
        json_of(&gputrace_analyzer::compare(
            (&a.analysis, baseline_a),
            (&b.analysis, baseline_b),
        ))
    });
    comparison.await?
}

/// Parameters of which one may be there several times.
type Repeated = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The graph of some steps, made when it is first asked for. Where whoever asked first goes away, one of those who asked later
/// begins anew.
async fn model(app: &Shared, loaded: &Arc<Loaded>, steps: Option<Numbers>) -> Result<Arc<Model>, Refusal> {
    let place = loaded.model(steps);
    let make = async || {
        loaded.there().await?;
        let whole = loaded.clone();
        run_queued(app, Work::Model, move || whole.make_model(steps)).await
    };
    place.get_or_try_init(make).await?.clone().ok_or_else(|| {
        Refusal::nothing(
            "in these steps no operation of a GPU is recorded, or one step has more than can be replayed",
        )
    })
}

pub(super) fn chosen_steps(text: &str) -> Result<Option<Numbers>, Refusal> {
    (!text.is_empty()).then(|| parameters::steps(text)).transpose()
}

/// Changes, as for `--set`, and of which steps.
fn changes(parameters: Vec<(String, String)>) -> Result<(Vec<Edit>, Option<Numbers>), Refusal> {
    let (mut changes, mut steps) = (Vec::new(), None);
    for (name, value) in parameters {
        match name.as_str() {
            "set" if changes.len() == parameters::MOST_CHANGES => {
                let most = parameters::MOST_CHANGES;
                return Err(Refusal::wrong(format!("at most {most} changes at a time")));
            }
            "set" => changes.push(value.parse().map_err(Refusal::wrong)?),
            "steps" => steps = chosen_steps(&value)?,
            _ => return Err(Refusal::wrong("parameters: there are set and steps")),
        }
    }
    Ok((changes, steps))
}

/// A prediction.
pub async fn what_if(State(app): State<Shared>, place: Place, query: Repeated) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let (changes, steps) = changes(parameters::query(query)?)?;
    let loaded = loaded(&app, rec, generation).await?;
    let model = model(&app, &loaded, steps).await?;
    let answer = run_queued(&app, Work::Long, move || {
        json_of(&model.predict(&changes).map_err(Refusal::wrong)?)
    });
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    #[serde(default)]
    steps: String,
}

/// What the critical path is made of.
pub async fn critical_path(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Chosen>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let steps = chosen_steps(&parameters::query(query)?.steps)?;
    let loaded = loaded(&app, rec, generation).await?;
    let model = model(&app, &loaded, steps).await?;
    let answer = run_queued(&app, Work::Long, move || json_of(model.critical_path()));
    answer.await?.map(for_ever)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pieces {
    #[serde(default)]
    steps: String,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

/// The pieces of the critical path, by time, with the rows that they lie on.
pub async fn pieces(
    State(app): State<Shared>,
    place: Place,
    query: Result<Query<Pieces>, QueryRejection>,
) -> Answer {
    let (rec, generation) = parameters::path(place)?;
    let wanted = parameters::query(query)?;
    let steps = chosen_steps(&wanted.steps)?;
    let limit = parameters::limit(wanted.limit, parameters::MOST_PIECES, parameters::MOST_PIECES)?;
    let loaded = loaded(&app, rec, generation).await?;
    let model = model(&app, &loaded, steps).await?;
    let answer = run_queued(&app, Work::Long, move || {
        let pieces = model.pieces();
        let from = wanted.offset.min(pieces.len());
        let to = from.saturating_add(limit).min(pieces.len());
        loaded.timeline.path(&pieces[from..to], pieces.len())
    });
    Ok(binary(answer.await?))
}
