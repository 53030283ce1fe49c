//! The CUPTI that records in this process.

use std::sync::OnceLock;

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::options::CollectorOptions;

use super::Cupti;

static CUPTI: OnceLock<Cupti> = OnceLock::new();

/// The running CUPTI, if it could be started.
pub(crate) fn cupti() -> Option<&'static Cupti> {
    CUPTI.get()
}

/// Makes this the running one, unless there is one.
fn set(cupti: Cupti) -> &'static Cupti {
    CUPTI.get_or_init(|| cupti)
}

/// Starts CUPTI with what is to be recorded; what is missing is noted.
pub(crate) fn start(options: &CollectorOptions, process: &mut ProcessHeader) -> Option<Cupti> {
    let cupti = match Cupti::start(options, process) {
        Ok(cupti) => *set(cupti),
        Err(why) => {
            process.notes.push(why);
            return None;
        }
    };
    process.cupti_version = Some(cupti.version);
    process.cupti_backend = Some(cupti.backend().to_owned());
    if let Some(warning) = known_trouble(cupti.version) {
        process.notes.push(warning.to_owned());
    }
    Some(cupti)
}

/// Versions of CUPTI that are known to lose or garble records (NVIDIA's release notes).
fn known_trouble(version: u32) -> Option<&'static str> {
    match version {
        130_000 => Some("CUPTI 13.0 before update 1 can miss synchronisation records"),
        130_100 => Some("CUPTI 13.1 before update 1 can give graph launches wrong correlation ids"),
        _ => None,
    }
}
