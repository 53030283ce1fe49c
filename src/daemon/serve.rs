//! `gputrace daemon`: running it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use gputrace_daemon::settings::{Config, Settings};
use gputrace_daemon::{Daemon, Handle, notify};
use gputrace_trace::daemon::{Ask, Mode, SYSTEM_SOCKET, user_socket};
use gputrace_viewer::server::{Jobs, NoJobs};

use super::client::{document, own_uid};
use super::devices;
use crate::cli::{DaemonArgs, ModeChoice, SocketArgs};
use crate::failure::Failure;
use crate::say::say;
use crate::serve::{announce, answer, bind};

/// Where the machine's daemon has its things.
const SYSTEM_STATE: &str = "/var/lib/gputrace";
/// What it is told.
const SYSTEM_CONFIG: &str = "/etc/gputrace/daemon.toml";

/// Watches jobs until it is told to end.
pub fn run(args: &DaemonArgs) -> Result<i32, Failure> {
    if args.print_config {
        anstream::print!("{}", gputrace_daemon::settings::USUAL);
        return Ok(0);
    }
    let settings = settings(args)?;
    let (socket, state) = (settings.socket.clone(), settings.state.clone());
    let mut daemon = Daemon::start(settings, |line| say!("gputrace: {line}")).map_err(Failure::new)?;
    end_on_signals(daemon.handle());
    devices::watch(daemon.handle());
    if let Some(address) = args.metrics {
        let address = daemon.answer_metrics(address).map_err(Failure::new)?;
        say!("gputrace: metrics at http://{address}/metrics");
    }
    if args.server.port.is_some() {
        // Rings and captures are recordings in folders of this one.
        let server = bind(
            &args.server,
            Vec::new(),
            Some(state.clone()),
            Some(jobs_at(socket.clone())),
        )?;
        announce(&server, &args.server);
        let handle = daemon.handle();
        std::thread::spawn(move || {
            if let Err(failure) = answer(server) {
                say!("gputrace: {failure}");
            }
            // It ends on the signals that are to end both.
            handle.stop();
        });
    }
    say!(
        "gputrace: watching jobs at {}, in {}",
        socket.display(),
        state.display()
    );
    notify::notify("READY=1");
    let ended = daemon.run();
    notify::notify("STOPPING=1");
    ended.map_err(|error| Failure::new(format!("the daemon cannot go on: {error}")))?;
    Ok(0)
}

/// What the page is told of jobs: what a client at the daemon's own socket is.
fn jobs_at(socket: PathBuf) -> Jobs {
    let socket = SocketArgs { socket: Some(socket) };
    Jobs(Arc::new(move |job| {
        let ask = match job {
            None => Ask::Jobs,
            Some(job) => Ask::Job {
                job: Some(job.to_owned()),
            },
        };
        document(&socket, ask).map_err(|failure| match failure.status() {
            // What it refuses to answer.
            1 => NoJobs::Unknown(failure.to_string()),
            _ => NoJobs::Away(failure.to_string()),
        })
    }))
}

fn settings(args: &DaemonArgs) -> Result<Settings, Failure> {
    let home = || -> Result<PathBuf, Failure> {
        std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute())
            .ok_or_else(|| Failure::new("HOME is not set: give --state"))
    };
    let in_home = |variable: &str, usual: &str| -> Result<PathBuf, Failure> {
        let folder = std::env::var_os(variable).map(PathBuf::from);
        match folder.filter(|folder| folder.is_absolute()) {
            Some(folder) => Ok(folder.join("gputrace")),
            None => Ok(home()?.join(usual).join("gputrace")),
        }
    };
    let state = match (&args.state, args.user) {
        (Some(state), _) => state.clone(),
        (None, true) => in_home("XDG_STATE_HOME", ".local/state")?,
        (None, false) => PathBuf::from(SYSTEM_STATE),
    };
    let socket = match (&args.socket, args.user) {
        (Some(socket), _) => socket.clone(),
        (None, true) => user_socket(std::env::var("XDG_RUNTIME_DIR").ok().as_deref(), own_uid()),
        (None, false) => PathBuf::from(SYSTEM_SOCKET),
    };
    let mut config = match (&args.config, args.user) {
        (Some(file), _) => read(file)?,
        (None, true) => {
            let file = in_home("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("daemon.toml"));
            file.ok()
                .filter(|file| file.exists())
                .map_or(Ok(Config::default()), |file| read(&file))?
        }
        (None, false) => {
            let file = Path::new(SYSTEM_CONFIG);
            if file.exists() {
                read(file)?
            } else {
                Config::default()
            }
        }
    };
    if let Some(mode) = args.mode {
        config.mode = match mode {
            ModeChoice::Steps => Mode::Steps,
            ModeChoice::Sampled => Mode::Sampled,
            ModeChoice::Full => Mode::Full,
        };
    }
    Ok(Settings {
        socket,
        open: !args.user,
        state,
        host: gethostname::gethostname().to_string_lossy().into_owned(),
        config,
    })
}

fn read(file: &Path) -> Result<Config, Failure> {
    Config::read(file).map_err(Failure::new)
}

/// Whom a signal has to tell.
static TOLD: AtomicPtr<Handle> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn end(_signal: libc::c_int) {
    let told = TOLD.load(Ordering::Acquire);
    if !told.is_null() {
        // SAFETY: it was given away for good. What it does is a store and a write, which a signal may do.
        unsafe { &*told }.stop();
    }
}

/// SIGTERM and SIGINT end the daemon as it should; a reader that goes away does not.
fn end_on_signals(handle: Handle) {
    TOLD.store(Box::into_raw(Box::new(handle)), Ordering::Release);
    // SAFETY: the handler does what a signal may do.
    unsafe {
        libc::signal(
            libc::SIGTERM,
            end as extern "C" fn(libc::c_int) as libc::sighandler_t,
        );
        libc::signal(
            libc::SIGINT,
            end as extern "C" fn(libc::c_int) as libc::sighandler_t,
        );
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}
