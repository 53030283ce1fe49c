//! `gputrace serve`: a folder's recordings, for browsers and scripts.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use gputrace_analyzer::ClockChoice;
use gputrace_analyzer::partial::{Part, Partial};
use gputrace_trace::beneath;
use gputrace_viewer::server::{
    ByRank, Jobs, Options, Port, Server, Tls, check_token, names_for, random_token,
};

use crate::apart::Run;
use crate::cli::{ServeArgs, ServerArgs};
use crate::failure::Failure;
use crate::partial::PROGRAM;

/// The port that is tried first where none was given.
const FIRST_PORT: u16 = 7007;
/// The token, for scripts.
const TOKEN_VARIABLE: &str = "GPUTRACE_TOKEN";
/// The folder of the page, for those who work on it.
const WEB_VARIABLE: &str = "GPUTRACE_VIEWER_WEB";

/// Lists a folder until it is told to end.
pub fn run(args: &ServeArgs) -> Result<i32, Failure> {
    args.import.apply();
    for folder in std::iter::once(&args.dir).chain(&args.links_to) {
        if !folder.is_dir() {
            let what = if folder.exists() {
                "not a folder"
            } else {
                "no such folder"
            };
            return Err(Failure::new(format!("{}: {what}", folder.display())));
        }
        beneath::name(folder);
    }
    let server = bind(&args.server, Vec::new(), Some(args.dir.clone()), None)?;
    announce(&server, &args.server);
    answer(server)
}

/// Takes a port. `jobs`: the daemon that it is of.
pub fn bind(
    args: &ServerArgs,
    runs: Vec<Vec<PathBuf>>,
    folder: Option<PathBuf>,
    jobs: Option<Jobs>,
) -> Result<Server, Failure> {
    let token = match std::env::var(TOKEN_VARIABLE) {
        Ok(token) => {
            check_token(&token).map_err(Failure::new)?;
            token
        }
        Err(std::env::VarError::NotPresent) => random_token().map_err(Failure::new)?,
        Err(error) => return Err(Failure::new(format!("{TOKEN_VARIABLE}: {error}"))),
    };
    Server::bind(Options {
        listen: args.listen,
        port: args.port.map_or(Port::From(FIRST_PORT), Port::Exactly),
        tls: tls(args),
        host_names: args.host_name.clone(),
        token,
        web: std::env::var_os(WEB_VARIABLE).map(PathBuf::from),
        runs,
        folder,
        perfetto_ui: args.perfetto_ui.clone(),
        by_rank: ByRank {
            version: PROGRAM,
            read: Arc::new(read_apart),
        },
        jobs,
    })
    .map_err(Failure::new)
}

/// Reads recordings process by process, for the page of a run of many ranks.
fn read_apart(paths: &[PathBuf], tell: &(dyn Fn(&Part) + Sync)) -> Result<Partial, String> {
    let run = Run::open(paths).ok_or_else(|| {
        let first = paths.first().map_or_else(String::new, |path| path.display().to_string());
        format!("{first}: two of these recordings hold the same rank, or one of them can't be read: `gputrace analyze` says which")
    })?;
    let partial = run.partial_telling(
        &gputrace_analyzer::Options::default(),
        &ClockChoice::Estimate,
        None,
        tell,
    );
    partial.map_err(|failure| failure.to_string())
}

/// How what is said is encrypted: beyond this machine always, unless it is said otherwise.
fn tls(args: &ServerArgs) -> Option<Tls> {
    if let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) {
        return Some(Tls::Given {
            certificate: certificate.clone(),
            key: key.clone(),
        });
    }
    let host = gethostname::gethostname();
    (!args.no_tls && !args.listen.is_loopback())
        .then(|| Tls::Made(names_for(args.listen, &args.host_name, &host.to_string_lossy())))
}

/// How a browser on this machine, or one of those that were let in, names the server.
pub fn host(args: &ServerArgs) -> String {
    match args.listen {
        address if address.is_unspecified() => args
            .host_name
            .first()
            .cloned()
            .unwrap_or_else(|| "127.0.0.1".to_owned()),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Says where it is: the address alone on standard output, everything else beside it.
pub fn announce(server: &Server, args: &ServerArgs) {
    anstream::println!("{}", server.url(&host(args)));
    // Whoever reads the address from a pipe waits for it.
    drop(std::io::stdout().flush());
    let port = server.address().port();
    if let Some(line) = ssh_line(port) {
        anstream::eprintln!("  from your own machine: {line}    and then the address above");
    }
    if !args.listen.is_loopback() {
        let heard = match server.fingerprint() {
            Some(_) => "",
            None => ", and so can whoever listens on the network, for nothing is encrypted",
        };
        anstream::eprintln!(
            "  other machines can reach this port: whoever has the address with its token can read these recordings\
             {heard}; `ssh -L` needs no --listen"
        );
    }
    if let Some(fingerprint) = server.fingerprint() {
        anstream::eprintln!("  the certificate's SHA-256 fingerprint: {fingerprint}");
        if args.tls_certificate.is_none() {
            anstream::eprintln!(
                "  it was made for this start, so browsers warn of it: go on where what they show has this fingerprint"
            );
        }
    }
    anstream::eprintln!("  Ctrl-C ends it");
}

/// What to type on the machine that somebody logged in from.
fn ssh_line(port: u16) -> Option<String> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    let ssh_port = connection.split_whitespace().nth(3)?;
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let user = std::env::var("USER").map_or_else(|_| String::new(), |user| format!("{user}@"));
    let ssh_port = if ssh_port == "22" {
        String::new()
    } else {
        format!(" -p {ssh_port}")
    };
    Some(crate::text::one_line(&format!(
        "ssh -N -L {port}:127.0.0.1:{port} {user}{host}{ssh_port}"
    )))
}

/// Answers until the program is told to end.
pub fn answer(server: Server) -> Result<i32, Failure> {
    // A client that goes away in the middle of an answer is an error of that answer, not the program's end.
    // SAFETY: SIG_IGN is a valid disposition, and no handler is replaced that anything relies on.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    server
        .run()
        .map_err(|error| Failure::new(format!("cannot serve: {error}")))?;
    Ok(0)
}
