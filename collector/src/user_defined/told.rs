//! What CUPTI has told of the layouts of its user-defined records, and records made into structs by it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::layout::{Expanded, Plans};
use crate::complain::complain;

/// What CUPTI has told of its layouts so far. A leaf lock, held for a comparison.
static PLANS: Mutex<Option<Plans>> = Mutex::new(None);
/// Layouts that were another than the same kind's before.
static CHANGED: AtomicU64 = AtomicU64::new(0);

/// Takes in the layouts that came with a buffer.
pub(super) fn learn(plans: &Plans) {
    let mut known = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    if known.get_or_insert_default().learn(plans) {
        CHANGED.fetch_add(1, Ordering::Relaxed);
    }
}

/// How often a kind's layout has changed, which makes buffers that came before and were not read yet unreadable.
pub(crate) fn changed_layouts() -> u64 {
    CHANGED.swap(0, Ordering::Relaxed)
}

/// Makes structs of the user-defined records between `from` and `end` of a buffer.
pub(crate) fn expand(buffer: &mut [u8], from: usize, end: usize) -> Expanded {
    let plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    plans.map_or(
        Expanded {
            bytes: 0,
            unread_bytes: end - from,
        },
        |plans| plans.expand(buffer, from, end),
    )
}

/// Writes user-defined records as they were delivered, and beside them how they are read, into the folder for dumps; the
/// structs that are made of them are dumped like those of the first way.
pub(crate) fn dump(records: &[u8]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Some(folder) = crate::dump::folder() else {
        return;
    };
    let plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("user-defined-{}-{number}.bin", std::process::id()));
    let written = std::fs::write(&path, records).and_then(|()| {
        let text = plans.map_or_else(String::new, |plans| plans.describe());
        std::fs::write(path.with_extension("plans"), text)
    });
    if let Err(error) = written {
        complain(&format!("{}: {error}", path.display()));
    }
}
