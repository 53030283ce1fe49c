//! `CUpti_ActivitySynchronizationType` (cupti_activity.h): what was waited for, and by whom.

/// The host, for an event.
pub const EVENT: u32 = 1;
/// A stream, for an event.
pub const STREAM_WAIT_EVENT: u32 = 2;
/// The host, for a stream.
pub const STREAM: u32 = 3;
/// The host, for all of a context.
pub const CONTEXT: u32 = 4;

/// In words.
#[must_use]
pub fn name(kind: u32) -> &'static str {
    match kind {
        EVENT => "event synchronize",
        STREAM_WAIT_EVENT => "stream waits for event",
        STREAM => "stream synchronize",
        CONTEXT => "context synchronize",
        _ => "synchronization",
    }
}
