//! What listens: who may ask ([`auth`]), which recordings there are ([`library`]), and what is answered ([`api`]).

mod api;
mod assets;
mod auth;
mod by_rank;
mod client_stream;
mod connections;
mod entry;
mod exports;
mod fair_queue;
mod files;
mod following;
mod jobs;
mod library;
mod loaded;
mod preview;
mod read_queue;
mod sessions;
mod streaming;
mod tls;
mod write_timeout;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Method, Response, StatusCode};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub use auth::{check_token, random_token};
pub use by_rank::{ByRank, ReadApart};
pub use jobs::{AskJobs, Jobs, NoJobs};
pub use tls::{Tls, names_for};

use api::WorkQueues;
use assets::Assets;
use auth::{Auth, Verdict};
use client_stream::ClientStream;
use connections::{ActiveRequest, Connection, Connections, Slot};
use library::Library;
use tls::Encryption;
use write_timeout::WriteTimeout;

/// Connections at one time; for more who asks nothing has to leave.
const CONNECTIONS: usize = 800;
/// A client that does not end its question, or asks nothing more on its connection, for so long is left.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// A client that takes nothing of its answer for so long is left.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a request's head.
const MOST_HEAD: usize = 64 << 10;
/// Bytes of a request's path and query.
const MOST_URI: usize = 16 << 10;
/// Ports that are tried one after another, from the wanted one on.
const TRIED_PORTS: u16 = 100;
/// Answers that are under way when the server ends have so long.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A port to listen at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// This one or none; 0 is any free one.
    Exactly(u16),
    /// The first free one from here on.
    From(u16),
}

/// What a server serves, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen at.
    pub listen: IpAddr,
    /// The port.
    pub port: Port,
    /// Whether and how what it says is encrypted.
    pub tls: Option<Tls>,
    /// Names beside `localhost` that browsers may know it by.
    pub host_names: Vec<String>,
    /// Who may ask: [`random_token`], or one that passes [`check_token`].
    pub token: String,
    /// A folder to read the page from, instead of the program.
    pub web: Option<PathBuf>,
    /// Recordings, each of one or more paths that make one run.
    pub runs: Vec<Vec<PathBuf>>,
    /// A folder whose recordings are listed.
    pub folder: Option<PathBuf>,
    /// The address of the Perfetto that traces are opened in: [`PERFETTO_UI`], or one that passes [`check_perfetto_ui`].
    pub perfetto_ui: String,
    /// How recordings of many ranks are read.
    pub by_rank: ByRank,
    /// The daemon that this server is of.
    pub jobs: Option<Jobs>,
}

/// Where Perfetto itself serves its user interface.
pub const PERFETTO_UI: &str = "https://ui.perfetto.dev";

/// Checks the address of a Perfetto.
///
/// # Errors
/// One line: it is no plain address.
pub fn check_perfetto_ui(url: &str) -> Result<(), String> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]%".contains(&byte);
    let is_host = |rest: &str| !rest.is_empty() && !rest.starts_with(['/', ':']) && rest.bytes().all(plain);
    if rest.is_some_and(is_host) {
        Ok(())
    } else {
        Err("expected the address of a Perfetto: http://HOST:PORT or https://HOST".to_owned())
    }
}

/// What all requests share.
struct App {
    auth: Auth,
    assets: Assets,
    library: Arc<Library>,
    work: WorkQueues,
    perfetto_ui: String,
    jobs: Option<Jobs>,
}

/// A server that has its port and does not answer yet.
pub struct Server {
    listeners: Vec<TcpListener>,
    app: Arc<App>,
    address: SocketAddr,
    token: String,
    encryption: Option<Encryption>,
    runtime: Runtime,
    told: Told,
}

/// Ends when the program is told to end.
type Told = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A number that tells texts apart (FNV-1a).
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Listeners at one port: of the loopback address both kinds, where the machine has both.
fn listen_at(address: IpAddr, port: u16) -> io::Result<Vec<TcpListener>> {
    let first = TcpListener::bind((address, port))?;
    let port = first.local_addr()?.port();
    let mut listeners = vec![first];
    if address == IpAddr::from([127, 0, 0, 1]) {
        // A machine without IPv6 has none; a port that somebody else has there is the same as a taken one.
        match TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
            Ok(second) => listeners.push(second),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(_) => {}
        }
    }
    Ok(listeners)
}

fn listen(address: IpAddr, port: Port) -> Result<Vec<TcpListener>, String> {
    let cannot = |port: u16, error: &io::Error| {
        if error.kind() == io::ErrorKind::AddrInUse {
            format!("port {port} is in use: give another --port, or none for the first free one")
        } else {
            format!("cannot listen at {}: {error}", SocketAddr::new(address, port))
        }
    };
    match port {
        Port::Exactly(port) => listen_at(address, port).map_err(|error| cannot(port, &error)),
        Port::From(first) => {
            for port in first..=first.saturating_add(TRIED_PORTS) {
                match listen_at(address, port) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                    other => return other.map_err(|error| cannot(port, &error)),
                }
            }
            listen_at(address, 0).map_err(|error| cannot(0, &error))
        }
    }
}

impl Server {
    /// Takes a port and begins to open the recordings.
    ///
    /// # Errors
    /// One line: the port is in use, the address is not this machine's, a folder is not there.
    pub fn bind(options: Options) -> Result<Self, String> {
        check_token(&options.token)?;
        check_perfetto_ui(&options.perfetto_ui)?;
        let assets = Assets::new(options.web.as_deref())?;
        let encryption = options.tls.as_ref().map(Encryption::new).transpose()?;
        let runtime = runtime().map_err(|error| format!("no threads to serve with: {error}"))?;
        // Whoever reads the address may end us at once.
        let told = {
            let _inside = runtime.enter();
            told_to_end().map_err(|error| format!("signals can't be waited for: {error}"))?
        };
        let listeners = listen(options.listen, options.port)?;
        let address = listeners
            .first()
            .and_then(|listener| listener.local_addr().ok())
            .ok_or("the port was lost again")?;
        let auth = Auth::new(
            options.token.clone(),
            &options.host_names,
            &[options.listen],
            encryption.is_some(),
        );
        let library = Library::new(options.runs, options.folder, Some(options.by_rank));
        library.keep();
        Ok(Self {
            listeners,
            app: Arc::new(App {
                auth,
                assets,
                library,
                work: WorkQueues::new(),
                perfetto_ui: options.perfetto_ui,
                jobs: options.jobs,
            }),
            address,
            token: options.token,
            encryption,
            runtime,
            told,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for a browser that reaches it by `host`, with the token.
    #[must_use]
    pub fn url(&self, host: &str) -> String {
        self.url_with(host, &self.token)
    }

    fn url_with(&self, host: &str, token: &str) -> String {
        let scheme = if self.encryption.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{host}:{}/?token={token}", self.address.port())
    }

    /// SHA-256 of the certificate that it shows, where it has one.
    #[must_use]
    pub fn fingerprint(&self) -> Option<&str> {
        self.encryption
            .as_ref()
            .map(|encryption| encryption.fingerprint.as_str())
    }

    /// The address for a browser that is started with it: its token opens once.
    ///
    /// # Errors
    /// When the operating system has no random numbers.
    pub fn url_for_one_browser(&self, host: &str) -> Result<String, String> {
        let token = random_token()?;
        let url = self.url_with(host, &token);
        self.app.auth.add_one_time_token(token);
        Ok(url)
    }

    /// Waits a moment for the recordings that were named, and says why none of them can be read.
    ///
    /// # Errors
    /// When that is so: one line.
    pub fn wait_for_recordings(&self, at_most: Duration) -> Result<(), String> {
        self.app.library.wait(at_most)
    }

    /// Answers until the program is told to end (SIGINT, SIGTERM, SIGHUP).
    ///
    /// # Errors
    /// When the operating system gives no threads or no events.
    pub fn run(self) -> io::Result<()> {
        let Self {
            listeners,
            app,
            encryption,
            runtime,
            told,
            ..
        } = self;
        let served = runtime.block_on(serve(listeners, app, encryption, told));
        // Long work that nobody waits for any more ends with the program.
        runtime.shutdown_timeout(Duration::from_millis(50));
        served
    }
}

async fn serve(
    listeners: Vec<TcpListener>,
    app: Arc<App>,
    encryption: Option<Encryption>,
    told: Told,
) -> io::Result<()> {
    let (end, ending) = watch::channel(false);
    let connections = Connections::new(CONNECTIONS);
    let house = Acceptor {
        router: router(app),
        encryption,
        connections,
        ending: ending.clone(),
    };
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(house.clone().accept(listener));
    }
    told.await;
    drop((ending, house));
    // Connections are told; those that are in the middle of an answer have a moment.
    end.send_replace(true);
    drop(tokio::time::timeout(LAST_WORDS, end.closed()).await);
    Ok(())
}

fn runtime() -> io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.clamp(2, 4))
        .max_blocking_threads(64)
        .enable_all()
        .build()
}

fn told_to_end() -> io::Result<Told> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(Box::pin(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    }))
}

/// What every connection needs.
#[derive(Clone)]
struct Acceptor {
    router: Router,
    encryption: Option<Encryption>,
    connections: Arc<Connections>,
    ending: watch::Receiver<bool>,
}

/// Where a request came from.
#[derive(Clone, Copy)]
struct Peer(IpAddr);

impl Acceptor {
    async fn accept(mut self, listener: tokio::net::TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.ending.changed() => return,
            };
            let Ok((stream, peer)) = accepted else {
                // Out of descriptors, or a client that was gone at once: others may do better.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            // Answers go out whole: waiting for more of them would only delay them.
            drop(stream.set_nodelay(true));
            let Some(slot) = self.connections.acquire().await else {
                return;
            };
            tokio::spawn(
                self.clone()
                    .serve(ClientStream::new(stream), Peer(peer.ip()), slot),
            );
        }
    }

    /// Serves a connection until its client closes it, or we do.
    async fn serve(self, stream: ClientStream, peer: Peer, slot: Slot) {
        let connection = slot.connection.clone();
        // Dropping the future stops all work for a client that has gone.
        tokio::select! {
            biased;
            () = self.handshake(stream.clone(), peer, &connection) => {}
            () = connection.close.notified() => {}
            () = stream.closed() => {}
        }
    }

    async fn handshake(mut self, stream: ClientStream, peer: Peer, connection: &Arc<Connection>) {
        match self.encryption.take() {
            None => self.serve_connection(stream, peer, connection).await,
            Some(encryption) => {
                let begun = tokio::select! {
                    begun = encryption.begin(stream) => begun,
                    _ = self.ending.changed() => None,
                };
                if let Some(stream) = begun {
                    self.serve_connection(stream, peer, connection).await;
                }
            }
        }
    }

    async fn serve_connection<S>(mut self, stream: S, peer: Peer, connection: &Arc<Connection>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let answers = TowerToHyperService::new(self.router);
        let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
            let active = ActiveRequest::of(connection);
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(connection.clone());
            let answer = answers.call(request);
            async move { answer.await.map(|answer| active.answered(answer)) }
        });
        let stream = WriteTimeout::new(TokioIo::new(stream), WRITE_TIMEOUT, connection.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(READ_TIMEOUT)
            .max_buf_size(MOST_HEAD)
            .serve_connection(stream, service);
        let mut connection = std::pin::pin!(connection);
        // However it ended, its client is gone.
        tokio::select! {
            done = connection.as_mut() => drop(done),
            _ = self.ending.changed() => {
                connection.as_mut().graceful_shutdown();
                drop(connection.await);
            }
        }
    }
}

fn router(app: Arc<App>) -> Router {
    let auth = app.clone();
    api::router()
        .fallback(page)
        .with_state(app)
        .layer(middleware::from_fn_with_state(auth, guard))
}

/// A file of the page.
async fn page(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "everything here is read by GET\n");
    }
    let answer = app.assets.answer(request.uri().path(), request.headers());
    answer.unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "there is no such page\n"))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = (status, text).into_response();
    no_store(response.headers_mut());
    response
}

fn no_store(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Judges every request before it goes on, and adds to every answer what browsers are to hold to.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response<Body> {
    let peer = request.extensions().get().map(|Peer(peer)| *peer);
    let verdict = app
        .auth
        .check(request.method(), request.uri(), request.headers(), peer);
    let mut response = match verdict {
        Verdict::Pass(client) => {
            if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
                connection.set_client(client);
            }
            let length = request.uri().path_and_query().map_or(0, |uri| uri.as_str().len());
            if length > MOST_URI {
                plain(StatusCode::URI_TOO_LONG, "the address is too long\n")
            } else {
                fair_queue::for_client(client, next.run(request)).await
            }
        }
        Verdict::Enter {
            location,
            cookie,
            from_elsewhere,
        } => enter(&location, cookie.as_deref(), from_elsewhere),
        Verdict::Refuse(status, why) => plain(status, why),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            // Of the windows that the page opens itself it has to be able to reach Perfetto's.
            "same-origin-allow-popups",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Nothing but our own scripts, styles and answers; nobody may frame the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Sends the browser on to the address without the token, which it keeps.
fn enter(location: &str, cookie: Option<&str>, from_elsewhere: bool) -> Response<Body> {
    let mut response = if from_elsewhere {
        plain(StatusCode::OK, "one moment\n")
    } else {
        plain(StatusCode::SEE_OTHER, "")
    };
    let headers = response.headers_mut();
    let (name, value) = if from_elsewhere {
        (HeaderName::from_static("refresh"), format!("0; url={location}"))
    } else {
        (LOCATION, location.to_owned())
    };
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
    if let Some(Ok(cookie)) = cookie.map(HeaderValue::from_str) {
        headers.insert(SET_COOKIE, cookie);
    }
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_perfetto_are_plain() {
        for url in [
            PERFETTO_UI,
            "http://127.0.0.1:10000",
            "http://[::1]:9001/",
            "https://tools.example/perfetto",
        ] {
            assert_eq!(check_perfetto_ui(url), Ok(()), "{url}");
        }
        for url in [
            "",
            "ui.perfetto.dev",
            "https://",
            "https:///x",
            "javascript:alert(1)",
            "https://x/#y",
            "https://x?y",
            "https://me@x",
            "https://x y",
            "https://x\"",
        ] {
            assert!(check_perfetto_ui(url).is_err(), "{url}");
        }
    }
}
