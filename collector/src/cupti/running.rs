//! The CUPTI that records in this process.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::options::CollectorOptions;

use super::Cupti;

static CUPTI: AtomicPtr<Cupti> = AtomicPtr::new(std::ptr::null_mut());
/// The one that was let go last: started again it needs no more memory.
static LET_GO: Mutex<Option<LetGo>> = Mutex::new(None);

/// A CUPTI that nobody has now, and the words of its kinds.
struct LetGo {
    kinds: Option<Vec<String>>,
    cupti: &'static Cupti,
}

/// The running CUPTI, if it could be started.
pub(crate) fn cupti() -> Option<&'static Cupti> {
    // SAFETY: null, or one that was leaked.
    unsafe { CUPTI.load(Ordering::Acquire).as_ref() }
}

fn set(cupti: &'static Cupti) -> Cupti {
    CUPTI.store(std::ptr::from_ref(cupti).cast_mut(), Ordering::Release);
    *cupti
}

/// Lets CUPTI go, where others could not have it otherwise: until it is started again it is as if we had never been there. Its kinds
/// have been switched off, and what it has of ours has come. Gives whether it was let go.
pub(crate) fn let_go(options: &CollectorOptions) -> bool {
    let Some(cupti) = cupti() else { return false };
    // First, so that no callback of ours finds one that has gone.
    CUPTI.store(std::ptr::null_mut(), Ordering::Release);
    if !cupti.unsubscribe() {
        set(cupti);
        return false;
    }
    *LET_GO.lock().unwrap_or_else(PoisonError::into_inner) = Some(LetGo {
        kinds: options.kinds.clone(),
        cupti,
    });
    true
}

/// Starts the one again that was let go, if it recorded the same.
fn start_again(options: &CollectorOptions) -> Option<Cupti> {
    let let_go = LET_GO.lock().unwrap_or_else(PoisonError::into_inner);
    let same = let_go.as_ref().filter(|let_go| let_go.kinds == options.kinds);
    let cupti = same.map(|let_go| let_go.cupti)?;
    cupti.subscribe_again().ok()?;
    Some(set(cupti))
}

/// Starts CUPTI with what is to be recorded; what is missing is noted.
pub(crate) fn start(options: &CollectorOptions, process: &mut ProcessHeader) -> Option<Cupti> {
    if let Some(cupti) = start_again(options) {
        return Some(cupti);
    }
    let cupti = match Cupti::start(options, process) {
        // Kept for the process's life: callbacks read it at any time.
        Ok(cupti) => set(Box::leak(Box::new(cupti))),
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
