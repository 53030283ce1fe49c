//! What went wrong: a result code with a text, kept for ncclGetLastError.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::sync::Mutex;

use super::{lock, result};

/// An error on its way to the caller.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// ncclResult_t.
    pub(super) code: i32,
    /// What is wrong and what to do; empty where the code says it all.
    pub(super) text: String,
}

impl Failure {
    /// An error with its text.
    pub(super) fn new(code: i32, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// ncclInvalidArgument.
    pub(super) fn argument(text: impl Into<String>) -> Self {
        Self::new(result::INVALID_ARGUMENT, text)
    }

    /// ncclInvalidUsage.
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self::new(result::INVALID_USAGE, text)
    }

    /// ncclSystemError.
    pub(super) fn system(text: impl Into<String>) -> Self {
        Self::new(result::SYSTEM_ERROR, text)
    }

    /// ncclUnhandledCudaError, from a CUresult.
    pub(super) fn cuda(what: &str, code: u32) -> Self {
        Self::new(
            result::UNHANDLED_CUDA_ERROR,
            format!("{what} failed with CUDA error {code}"),
        )
    }
}

/// What most functions here give.
pub(super) type Outcome<T> = Result<T, Failure>;

/// The newest error's text, and all that were ever handed out: callers hold pointers to them.
struct Texts {
    last: &'static CStr,
    all: BTreeSet<&'static CStr>,
}

static TEXTS: Mutex<Texts> = Mutex::new(Texts {
    last: c"",
    all: BTreeSet::new(),
});
/// Beyond so many different texts a new one is not kept, so that a program that fails for ever does not grow.
const MOST_TEXTS: usize = 1000;

/// Keeps an error for ncclGetLastError, and prints it if NCCL_DEBUG asks for warnings, as NCCL does.
pub(super) fn note(failure: &Failure) {
    if failure.text.is_empty() {
        return;
    }
    let level = std::env::var("NCCL_DEBUG").unwrap_or_default().to_uppercase();
    if ["WARN", "INFO", "TRACE", "ABORT"].contains(&level.as_str()) {
        eprintln!(
            "{}:{} simgpu NCCL WARN {}",
            super::network::hostname(),
            std::process::id(),
            failure.text
        );
    }
    let Ok(text) = CString::new(failure.text.as_str()) else {
        return;
    };
    let mut texts = lock(&TEXTS);
    if let Some(known) = texts.all.get(text.as_c_str()).copied() {
        texts.last = known;
    } else if texts.all.len() < MOST_TEXTS {
        let text: &'static CStr = Box::leak(text.into_boxed_c_str());
        texts.all.insert(text);
        texts.last = text;
    }
}

/// The newest error's text; empty if there was none.
pub(super) fn last() -> &'static CStr {
    lock(&TEXTS).last
}
