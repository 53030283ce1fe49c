//! The recording of this process: begun once, by the driver's injection, and dead in every forked child.

use std::ffi::{CStr, CString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::now;
use gputrace_trace::options::{FOLDER_VARIABLE, Kind};
use gputrace_trace::seal::Identity;
use gputrace_trace::writer::{Files, OwnFiles};

use crate::complain::complain;
use crate::cupti::running;
use crate::sink::Place;
use crate::windows::watch;
use crate::{config, exit, forked, header, signals, sink};

static PROCESS: AtomicU32 = AtomicU32::new(0);
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

/// Less must not be left of the address space: our thread's stack, a few buffers, rows that wait. Where memory runs out, it is
/// the program whose calls fail, or ours that end it.
const LEAST_ADDRESS_SPACE: u64 = 32 << 20;

/// How much more the process may map, where that is limited.
fn address_space_left() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a valid place for the result.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = status.split(' ').next()?.parse().ok()?;
    // SAFETY: no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned();
    Some(limit.rlim_cur.saturating_sub(pages * page_bytes))
}

/// Begins the recording, once a process. Without GPUTRACE_DIR and without a daemon nothing is recorded.
pub(crate) fn begin() {
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
    process.notes.extend(config::get().notes.iter().cloned());
    let folder = header::folder_name(&process);
    let identity = Identity::random();
    let place = match std::env::var_os(FOLDER_VARIABLE) {
        Some(recording) => {
            let folder = PathBuf::from(recording).join(folder);
            match make_place(&folder, identity, &mut process) {
                Ok(()) => Place::of_recorder(folder),
                Err(error) => {
                    complain(&format!(
                        "{}: {error}: this process is not recorded",
                        folder.display()
                    ));
                    return;
                }
            }
        }
        None => Place::of_daemon(&process, folder),
    };
    identity.sign(&place.folder, &mut process);
    point_others_here();
    if let Some(left) = address_space_left().filter(|left| *left < LEAST_ADDRESS_SPACE) {
        let note = format!(
            "the process may map {} MiB more (RLIMIT_AS), which it may need itself, so it is not recorded: recording needs {}",
            left >> 20,
            LEAST_ADDRESS_SPACE >> 20
        );
        give_up(&place, &mut process, note);
        return;
    }
    forked::watch();
    let thread = match sink::Thread::start() {
        Ok(thread) => thread,
        Err(error) => {
            let note = format!("no thread for the recorder ({error}), so this process is not recorded");
            give_up(&place, &mut process, note);
            return;
        }
    };
    watch::begin();
    // A daemon may leave CUPTI alone: then our thread starts it when it is wanted.
    let cupti = place
        .wants_kernels()
        .then(|| running::start(config::options(), &mut process))
        .flatten();
    if let Some(cupti) = &cupti {
        cupti.record_stacks(config::options().records(Kind::Stacks));
    }
    for note in &process.notes {
        complain(note);
    }
    thread.begin(place, identity, process, cupti);
    // Last, so that it runs first at exit: before CUPTI's and the driver's own handlers.
    exit::register();
}

/// Makes the process's folder, with its header: the process shows in the recording however it ends.
fn make_place(folder: &Path, identity: Identity, process: &mut ProcessHeader) -> io::Result<()> {
    // The folder alone: the writer is large, and the program's stack may be small, so our own thread makes it.
    signals::quietly(|| OwnFiles.make_folder(folder))?;
    identity.sign(folder, process);
    if let Err(error) = signals::quietly(|| header::write(&OwnFiles, folder, process)) {
        complain(&format!("{}: {error}", folder.display()));
    }
    Ok(())
}

/// Says why this process is not recorded.
fn give_up(place: &Place, process: &mut ProcessHeader, note: String) {
    complain(&note);
    process.notes.push(note);
    // The note is all there is to say; if it can't be written, it was shown.
    drop(signals::quietly(|| {
        header::write(&*place.files, &place.folder, process)
    }));
}
