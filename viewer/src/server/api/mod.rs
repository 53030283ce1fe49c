//! The answers: one function a route, each listed in [`routes`] and described in `openapi.json`.

pub mod analysis;
mod info;
pub mod parameters;
mod pictures;
mod ranks;
mod slices;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};
use serde::Serialize;
use serde_json::json;

use super::App;
use super::entry::{Entry, Missing};
use super::fair_queue::{self, Permit};
use super::loaded::Loaded;

/// What handlers share.
pub type Shared = Arc<App>;
/// An answer, or why there is none.
pub type Answer = Result<Response<Body>, Refusal>;

/// The description of this API.
const OPENAPI: &str = include_str!("../openapi.json");

/// Why a request has no answer: a status and one line.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    line: String,
    /// Of a recording that is being read: the share that was.
    loading: Option<Option<f64>>,
}

impl Refusal {
    /// A refusal with a line for the reader.
    pub fn new(status: StatusCode, line: impl Into<String>) -> Self {
        Self {
            status,
            line: line.into(),
            loading: None,
        }
    }

    /// A parameter that can't be.
    pub fn wrong(line: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, line)
    }

    /// Something that is not there.
    pub fn nothing(line: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, line)
    }

    /// Whether the recording is being read.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Something that is not there now.
    pub fn busy(line: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, line)
    }
}

impl From<Missing> for Refusal {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Unknown => Self::nothing("there is no such recording"),
            Missing::Failed(line) => Self::nothing(line),
            Missing::ByRank => Self::nothing(
                "this recording has so many ranks that its rows are not read at once: ask for a rank's, by its number behind the \
                 recording's (-rank7)",
            ),
            Missing::Gone => Self::new(
                StatusCode::GONE,
                "the recording was read again since: ask for its info",
            ),
            Missing::Loading(share) => Self {
                loading: Some(share),
                ..Self::busy("the recording is being read")
            },
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let mut body = json!({ "error": self.line });
        if let Some(share) = self.loading {
            body["state"] = "loading".into();
            body["progress"] = share.into();
        }
        let mut response = json_text(body.to_string());
        *response.status_mut() = self.status;
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, 1.into());
        }
        response
    }
}

/// A JSON answer that is not kept: what the next request says may differ.
fn json_text(text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, "application/json".parse().expect("a plain header"));
    headers.insert(CACHE_CONTROL, "no-store".parse().expect("a plain header"));
    response
}

fn json_of<T: Serialize>(value: &T) -> Answer {
    serde_json::to_vec(value)
        .map(json_text)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// Lets a browser keep an answer: a generation never changes, and its number is never given to another.
fn for_ever(mut response: Response<Body>) -> Response<Body> {
    let value = "private, max-age=31536000, immutable";
    response
        .headers_mut()
        .insert(CACHE_CONTROL, value.parse().expect("a plain header"));
    response
}

fn binary(bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(
        CONTENT_TYPE,
        "application/octet-stream".parse().expect("a plain header"),
    );
    for_ever(response)
}

/// How much work a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A picture: many of them, each in milliseconds.
    Quick,
    /// A look at the disk, which may be a slow one.
    Disk,
    /// Something that looks at a whole recording.
    Long,
    /// A graph is built.
    Model,
}

/// Limits on the requests that are worked on at one time, by kind of work. A request that waits for its turn costs nothing, and is
/// dropped when its client goes away. Clients take turns.
pub struct WorkQueues {
    quick: fair_queue::Permits,
    disk: fair_queue::Permits,
    long: fair_queue::Permits,
    /// For graphs of whole jobs: each takes as much memory as its recording.
    models: fair_queue::Permits,
    /// For exports, each of which lasts as long as its client takes.
    exports: fair_queue::Permits,
}

/// Looks at the disk at one time.
const DISK: usize = 4;
/// Exports at one time.
const EXPORTS: usize = 4;
/// ... of which one client has so many.
const OWN_EXPORTS: usize = 3;

impl WorkQueues {
    /// As many as there are cores; for long work half of that.
    #[must_use]
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            quick: fair_queue::Permits::new(cores.max(2)),
            disk: fair_queue::Permits::new(DISK),
            long: fair_queue::Permits::new((cores / 2).max(1)),
            models: fair_queue::Permits::new(1),
            exports: fair_queue::Permits::new(EXPORTS),
        }
    }

    async fn acquire(&self, work: Work) -> Permit {
        let queue = match work {
            Work::Quick => &self.quick,
            Work::Disk => &self.disk,
            Work::Long => &self.long,
            Work::Model => &self.models,
        };
        queue.acquire().await
    }

    /// A permit for an export.
    ///
    /// # Errors
    /// When there is none now.
    pub fn export(&self) -> Result<Permit, Refusal> {
        let permit = self.exports.try_acquire(OWN_EXPORTS);
        permit.ok_or_else(|| Refusal::busy("other exports are under way: try again in a while"))
    }
}

/// Runs the work of a request on a thread that may block, when its turn comes.
async fn run_queued<T: Send + 'static>(
    app: &Shared,
    work: Work,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let permit = app.work.acquire(work).await;
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        job()
    });
    done.await.map_err(|_| {
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "this request failed: a fault of gputrace",
        )
    })
}

/// Clears the flag when its request is dropped.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The same for work that may take long: `job` is given a flag that is cleared when its client has gone away.
async fn run_cancellable<T: Send + 'static>(
    app: &Shared,
    work: Work,
    job: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let waiting = Waiting(Arc::new(AtomicBool::new(true)));
    let wanted = waiting.0.clone();
    let answer = run_queued(app, work, move || job(&wanted)).await;
    drop(waiting);
    answer
}

/// The generation that a request names.
pub async fn loaded(app: &Shared, rec: String, generation: u64) -> Result<Arc<Loaded>, Refusal> {
    // Mostly it is there; looking for it on the disk is to keep nobody waiting.
    if let Some(loaded) = app.library.known(&rec, generation) {
        return Ok(loaded);
    }
    let (library, client) = (app.library.clone(), fair_queue::current_client());
    run_queued(app, Work::Disk, move || {
        library.generation(&rec, generation, client)
    })
    .await?
    .map_err(Refusal::from)
}

/// The newest generation of a recording, with what it is.
async fn newest(app: &Shared, rec: String) -> Result<(Arc<Entry>, Arc<Loaded>), Refusal> {
    let (library, client) = (app.library.clone(), fair_queue::current_client());
    run_queued(app, Work::Disk, move || library.newest(&rec, client))
        .await?
        .map_err(Refusal::from)
}

async fn openapi() -> Response<Body> {
    json_text(OPENAPI)
}

/// Every route.
fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/api/openapi.json", get(openapi)),
        ("/api/recordings", get(info::recordings)),
        ("/api/jobs", get(info::jobs)),
        ("/api/jobs/{job}", get(info::job)),
        ("/api/compare", get(analysis::compare)),
        ("/api/rec/{rec}/info", get(info::info)),
        ("/api/rec/{rec}/live", get(info::live)),
        ("/api/rec/{rec}/{gen}/rows", get(pictures::rows)),
        ("/api/rec/{rec}/{gen}/tiles/{level}/{index}", get(pictures::tiles)),
        (
            "/api/rec/{rec}/{gen}/counters/{level}/{index}",
            get(pictures::counters),
        ),
        ("/api/rec/{rec}/{gen}/overview", get(pictures::overview)),
        ("/api/rec/{rec}/{gen}/names", get(pictures::names)),
        ("/api/rec/{rec}/{gen}/slice", get(slices::slice)),
        ("/api/rec/{rec}/{gen}/slice_at", get(slices::slice_at)),
        ("/api/rec/{rec}/{gen}/hit", get(slices::hit)),
        ("/api/rec/{rec}/{gen}/neighbour", get(slices::neighbour)),
        ("/api/rec/{rec}/{gen}/area", get(slices::area)),
        ("/api/rec/{rec}/{gen}/tree", get(slices::tree)),
        ("/api/rec/{rec}/{gen}/search", get(slices::search)),
        ("/api/rec/{rec}/{gen}/analysis", get(analysis::analysis)),
        ("/api/rec/{rec}/{gen}/ranks", get(ranks::ranks)),
        ("/api/rec/{rec}/{gen}/ranks/{measure}", get(ranks::cells)),
        ("/api/rec/{rec}/{gen}/collectives", get(analysis::collectives)),
        ("/api/rec/{rec}/{gen}/whatif", get(analysis::what_if)),
        ("/api/rec/{rec}/{gen}/critical_path", get(analysis::critical_path)),
        ("/api/rec/{rec}/{gen}/critical_path/pieces", get(analysis::pieces)),
        ("/api/rec/{rec}/{gen}/export", get(super::exports::export)),
    ]
}

async fn no_such_route() -> Refusal {
    Refusal::nothing("there is no such thing here: /api/openapi.json lists what there is")
}

async fn only_reading() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "everything here is read by GET")
}

/// The API.
pub fn router() -> Router<Shared> {
    let mut router = Router::new()
        .route("/api", get(no_such_route))
        .route("/api/{*rest}", get(no_such_route));
    for (path, handler) in routes() {
        router = router.route(path, handler);
    }
    router.method_not_allowed_fallback(only_reading)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let description: Value = serde_json::from_str(OPENAPI).unwrap();
        let described = description["paths"].as_object().unwrap();
        let routes: Vec<&str> = routes().iter().map(|(path, _)| *path).collect();
        for path in &routes {
            let operation = &described[*path]["get"];
            assert!(operation["summary"].is_string(), "{path} has no summary");
            assert!(operation["responses"]["200"].is_object(), "{path} has no answer");
            for parameter in path.split('/').filter_map(|part| part.strip_prefix('{')) {
                let name = parameter.trim_end_matches('}');
                let reference = format!("#/components/parameters/{name}");
                let parameters = operation["parameters"].as_array().unwrap();
                let named = parameters
                    .iter()
                    .any(|known| known["name"] == name || known["$ref"] == reference.as_str());
                assert!(named, "{path}: {name} is not described");
            }
        }
        for path in described.keys() {
            assert!(
                routes.contains(&path.as_str()),
                "{path} is described and is not there"
            );
        }
    }
}
