//! Which recordings there are, and what each is; which jobs, where the server is a daemon's.

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Refusal, Shared, Work, json_of, json_text, newest, parameters, run_queued};
use crate::server::jobs::NoJobs;

/// No parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

type None = Result<Query<Nothing>, QueryRejection>;

/// All recordings.
pub async fn recordings(State(app): State<Shared>, query: None) -> Answer {
    parameters::query(query)?;
    let library = app.library.clone();
    let (list, notes) = run_queued(&app, Work::Disk, move || {
        let list = library.list();
        let list = list.iter().map(|entry| entry.listed()).collect::<Vec<Value>>();
        (list, library.notes())
    })
    .await?;
    json_of(&json!({
        "recordings": list,
        "notes": notes,
        "jobs": app.jobs.is_some(),
        "writable": false,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// What a page needs first; opens the recording where it is not open.
pub async fn info(
    State(app): State<Shared>,
    rec: Result<Path<String>, PathRejection>,
    query: None,
) -> Answer {
    parameters::query(query)?;
    let rec = parameters::path(rec)?;
    let (entry, loaded) = newest(&app, rec).await?;
    let info = run_queued(&app, Work::Quick, move || {
        let mut info = loaded.info(&entry.id, &entry.name);
        info["reading"] = entry.reading(&loaded).into();
        info["rank_of"] = entry.only.as_ref().map(|(of, _)| of.as_str()).into();
        info
    });
    let mut info = info.await?;
    info["capabilities"]["perfetto_ui"] = app.perfetto_ui.as_str().into();
    json_of(&info)
}

/// How far a recording is: asked often, so that nothing is done for it but looking.
pub async fn live(
    State(app): State<Shared>,
    rec: Result<Path<String>, PathRejection>,
    query: None,
) -> Result<Response<Body>, Refusal> {
    parameters::query(query)?;
    let rec = parameters::path(rec)?;
    let (entry, loaded) = newest(&app, rec).await?;
    let live = json!({
        "generation": loaded.generation,
        "growing": loaded.growing,
        "analysed": loaded.analysed,
        "reading": entry.reading(&loaded),
        "end": loaded.timeline.end(),
        "events": loaded.timeline.events(),
        "lost": loaded.lost,
        "lag_ms": loaded.lag_ms(),
        "error": entry.error(),
    });
    Ok(json_text(live.to_string()))
}

/// The jobs of a daemon.
pub async fn jobs(State(app): State<Shared>, query: None) -> Answer {
    parameters::query(query)?;
    ask_daemon(&app, None).await
}

/// One of them in detail.
pub async fn job(State(app): State<Shared>, job: Result<Path<String>, PathRejection>, query: None) -> Answer {
    parameters::query(query)?;
    ask_daemon(&app, Some(parameters::path(job)?)).await
}

async fn ask_daemon(app: &Shared, job: Option<String>) -> Answer {
    let Some(jobs) = app.jobs.clone() else {
        return Err(Refusal::nothing(
            "this server is no daemon's, so it watches no jobs: `gputrace daemon --port` does",
        ));
    };
    // A daemon that is busy with a disk is waited for.
    let answer = run_queued(app, Work::Disk, move || (jobs.0)(job.as_deref())).await?;
    match answer {
        Ok(document) => json_of(&document),
        Err(NoJobs::Unknown(line)) => Err(Refusal::nothing(line)),
        Err(NoJobs::Away(line)) => Err(Refusal::busy(line)),
    }
}
