//! The recording of this process: begun once, by the driver's injection, and dead in every forked child.

use std::ffi::{CStr, CString, OsStr};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gputrace_trace::now;
use gputrace_trace::options::FOLDER_VARIABLE;
use gputrace_trace::writer::ProcessWriter;

use crate::cupti::Cupti;
use crate::windows::watch;
use crate::{config, exit, forked, header, signals, sink};

static PROCESS: AtomicU32 = AtomicU32::new(0);
static CUPTI: OnceLock<Cupti> = OnceLock::new();
/// Set when CUPTI has ended itself: none of its functions may be called any more.
static CUPTI_LOST: AtomicBool = AtomicBool::new(false);

/// Whether nothing may be recorded here.
pub(crate) fn is_dead() -> bool {
    forked::is_child()
}

/// The running CUPTI, if it could be started.
pub(crate) fn cupti() -> Option<&'static Cupti> {
    CUPTI.get()
}

/// Whether CUPTI has ended itself.
pub(crate) fn has_lost_cupti() -> bool {
    CUPTI_LOST.load(Ordering::Relaxed)
}

/// CUPTI says that it ends itself after an error.
pub(crate) fn lose_cupti() {
    CUPTI_LOST.store(true, Ordering::Relaxed);
}

/// Where this library lies, as the loader knows it.
fn own_path() -> Option<CString> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is one of our own functions; `info` is a valid place for the result.
    let found = unsafe { libc::dladdr(own_path as *const () as *const _, info.as_mut_ptr()) } != 0;
    if !found {
        return None;
    }
    // SAFETY: dladdr filled it in, and the name is the loader's text for this library.
    let name = unsafe { info.assume_init().dli_fname };
    // SAFETY: as above.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned())
}

/// With CUDA_INJECTION64_PATH alone, NVTX and NCCL are pointed here too, for what begins after cuInit.
fn point_others_here() {
    let Some(path) = own_path() else { return };
    for name in [c"NVTX_INJECTION64_PATH", c"NCCL_PROFILER_PLUGIN"] {
        // SAFETY: zero-terminated texts; nothing is overwritten. As with every setenv in a threaded program, a thread
        // that walks the environment at this moment is in trouble; the driver calls us early, in the first cuInit.
        unsafe { libc::setenv(name.as_ptr(), path.as_ptr(), 0) };
    }
}

/// Begins the recording, once a process. Without GPUTRACE_DIR nothing happens.
pub(crate) fn begin() {
    let Some(recording) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else {
        return;
    };
    if !config::is_wanted() {
        return;
    }
    // The first caller begins; PROCESS stays set, so that a second injection finds it.
    if PROCESS.swap(std::process::id(), Ordering::SeqCst) != 0 {
        return;
    }
    crate::cost::begin();
    let started = now();
    let mut process = Box::new(header::new(started));
    let config = config::get();
    process.notes.extend(config.notes.iter().cloned());
    let folder = recording.join(header::folder_name(&process));
    // Large things go to the heap at once: the program's stack may be small.
    let writer = match signals::quietly(|| ProcessWriter::create(&folder).map(Box::new)) {
        Ok(writer) => writer,
        Err(error) => {
            complain(&format!(
                "{}: {error}: this process is not recorded",
                folder.display()
            ));
            return;
        }
    };
    // Written before anything else can go wrong, so that the process shows in the recording however it ends.
    if let Err(error) = signals::quietly(|| header::write(&folder, &mut process)) {
        complain(&format!("{}: {error}", folder.display()));
    }
    point_others_here();
    forked::watch();
    let thread = match sink::Thread::start() {
        Ok(thread) => thread,
        Err(error) => {
            let note = format!("no thread for the recorder ({error}), so this process is not recorded");
            complain(&note);
            process.notes.push(note);
            // The note is all there is to say; if it can't be written, it was shown.
            drop(signals::quietly(|| header::write(&folder, &mut process)));
            return;
        }
    };
    watch::begin();
    let cupti = match Cupti::start(&config.options, &mut process) {
        Ok(cupti) => {
            process.cupti_version = Some(cupti.version);
            process.cupti_backend = Some(cupti.backend().to_owned());
            Some(*CUPTI.get_or_init(|| cupti))
        }
        Err(why) => {
            process.notes.push(why);
            None
        }
    };
    if let Some(cupti) = &cupti
        && let Some(warning) = known_trouble(cupti.version)
    {
        process.notes.push(warning.to_owned());
    }
    for note in &process.notes {
        complain(note);
    }
    thread.begin(writer, process, cupti);
    // Last, so that it runs first at exit: before CUPTI's and the driver's own handlers.
    exit::register();
}

/// Versions of CUPTI that are known to lose or garble records (NVIDIA's release notes).
fn known_trouble(version: u32) -> Option<&'static str> {
    match version {
        130_000 => Some("CUPTI 13.0 before update 1 can miss synchronisation records"),
        130_100 => Some("CUPTI 13.1 before update 1 can give graph launches wrong correlation ids"),
        _ => None,
    }
}

/// Says something on stderr, if the user asked to hear it.
pub(crate) fn complain(text: &str) {
    if std::env::var_os("GPUTRACE_VERBOSE").is_some_and(|value| value != OsStr::from_bytes(b"0")) {
        // Not eprintln, which panics when nobody reads.
        let line = format!("gputrace: {text}\n");
        drop(signals::quietly(|| std::io::stderr().write_all(line.as_bytes())));
    }
}
