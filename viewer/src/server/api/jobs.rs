//! The jobs of a daemon, as it tells of them.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};

use super::info::Nothing;
use super::{Answer, Refusal, Shared, Work, json_of, parameters, run_queued};
use crate::server::jobs::NoJobs;

/// All jobs.
pub async fn jobs(State(app): State<Shared>, query: Result<Query<Nothing>, QueryRejection>) -> Answer {
    parameters::query(query)?;
    ask(&app, None).await
}

/// One job in detail.
pub async fn job(
    State(app): State<Shared>,
    job: Result<Path<String>, PathRejection>,
    query: Result<Query<Nothing>, QueryRejection>,
) -> Answer {
    parameters::query(query)?;
    ask(&app, Some(parameters::path(job)?)).await
}

async fn ask(app: &Shared, job: Option<String>) -> Answer {
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
