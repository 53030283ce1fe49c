//! What a step would take if something were different, and the path that its time was spent on.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use gputrace_analyzer::graph::{Edit, Model};
use serde::Deserialize;

use super::{Answer, Refusal, Shared, Work, binary, for_ever, json_of, loaded, parameters, run_queued};
use crate::server::loaded::{Loaded, Steps};

type Place = Result<Path<(String, u64)>, PathRejection>;
/// Parameters of which one may be there several times.
type Repeated = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The graph of some steps, made when it is first asked for. Where whoever asked first goes away, one of those who asked later
/// begins anew.
async fn model(app: &Shared, loaded: &Arc<Loaded>, steps: Option<Steps>) -> Result<Arc<Model>, Refusal> {
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

fn chosen_steps(text: &str) -> Result<Option<Steps>, Refusal> {
    (!text.is_empty()).then(|| parameters::steps(text)).transpose()
}

/// Changes, as for `--set`, and of which steps.
fn changes(parameters: Vec<(String, String)>) -> Result<(Vec<Edit>, Option<Steps>), Refusal> {
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
        let pieces = &model.critical_path().pieces;
        let from = wanted.offset.min(pieces.len());
        let to = from.saturating_add(limit).min(pieces.len());
        loaded.timeline.path(&pieces[from..to], pieces.len())
    });
    Ok(binary(answer.await?))
}
