//! Panics inside the collector: counted and told in the recording, never printed into the program's output.
//!
//! The standard hook writes to stderr and, with RUST_BACKTRACE set, walks and names the whole stack, which takes far more of
//! it than a thread of the program may have.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

static COUNT: AtomicU64 = AtomicU64::new(0);
/// Where the first was.
static FIRST: OnceLock<String> = OnceLock::new();

/// From here on panics are counted. Called by each way into this library.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    // The standard library is linked into this one, so the hook is that of our own code alone.
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            COUNT.fetch_add(1, Ordering::Relaxed);
            FIRST.get_or_init(|| panic.location().map_or_else(String::new, place));
        }));
    });
}

fn place(location: &Location<'_>) -> String {
    let file = location.file();
    let start = file.rfind("src/").unwrap_or(0);
    format!("{}:{}", &file[start..], location.line())
}

/// Panics since the last call, and what to call them.
pub(crate) fn take() -> Option<(u64, String)> {
    let count = COUNT.swap(0, Ordering::Relaxed);
    (count > 0).then(|| {
        let first = FIRST.get().map_or("", String::as_str);
        (
            count,
            format!("errors in the recorder's own code, the first at {first}"),
        )
    })
}
