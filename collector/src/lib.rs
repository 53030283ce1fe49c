//! The recorder that is injected into the training process.
//!
//! One shared library answers to the CUDA driver (`InitializeInjection`), to NVTX (`InitializeInjectionNvtx2`) and to
//! NCCL (`ncclProfiler_v4` to `_v7`). It lives in somebody else's process: callbacks only hand things over, one thread
//! decodes and writes, and whatever is missing is noted in the recording instead of shown to the program.
//!
//! Variables: `GPUTRACE_DIR` is the recording's folder (without it the process is a daemon's, where there is one: see `daemon`;
//! `GPUTRACE_SOCKET` names that daemon's socket, or with an empty name none), `GPUTRACE_CUPTI` the
//! libcupti to use, `GPUTRACE_CUPTI_BACKEND` how to record with it (see `second`), `GPUTRACE_OPTIONS` and
//! `GPUTRACE_CONTROL` what to record and when (see `gputrace_trace::options` and `control`), `GPUTRACE_DUMP` a folder for
//! the raw data, `GPUTRACE_VERBOSE=1` says on stderr what the recording's notes say.

mod buffers;
mod callbacks;
mod complain;
mod config;
mod cost;
mod cupti;
mod daemon;
pub mod decode;
pub mod discovery;
pub mod dump;
mod exit;
mod forked;
mod graphs;
mod header;
mod host_events;
pub mod kinds;
mod nccl;
mod nvtx;
mod panics;
mod power;
mod rank;
pub mod records;
mod rivals;
mod session;
mod signals;
mod sink;
mod stacks;
pub mod user_defined;
mod walk;
mod windows;

use std::ffi::c_int;

pub use nvtx::InitializeInjectionNvtx2;

/// What stands before the version in the library's file, by which `gputrace` refuses one of another version: no symbol says it,
/// and loading it for that would begin something.
pub const VERSION_MARK: &str = "\0gputrace collector, version ";

/// The mark with this library's version, up to the next zero byte.
static VERSION: &str = concat!("\0gputrace collector, version ", env!("CARGO_PKG_VERSION"), "\0");

/// Called by the CUDA driver inside the process's first `cuInit`, when CUDA_INJECTION64_PATH names this library.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    // It has to be in the file.
    std::hint::black_box(VERSION);
    panics::watch();
    // A panic must not reach the driver; without a session the program simply runs unrecorded.
    drop(std::panic::catch_unwind(|| signals::uncancelled(session::begin)));
    1
}
