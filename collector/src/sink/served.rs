//! The daemon as the thread knows it.

use std::time::Instant;

use gputrace_trace::daemon::{Capture, Captured};

use crate::cupti::Cupti;
use crate::daemon::{Link, Live};
use crate::decode::Decoder;
use crate::records::RecordSizes;
use crate::{host_events, nccl, power};

/// The daemon as the thread knows it.
pub(super) struct Served {
    pub(super) link: Link,
    pub(super) live: Live,
    /// Whether kernels are recorded from beginning to end.
    pub(super) is_full: bool,
    pub(super) running: Option<Running>,
}

/// A capture that goes on.
pub(super) struct Running {
    pub(super) capture: Capture,
    pub(super) since: Instant,
    pub(super) start_ns: i64,
    /// Steps that had begun by then.
    pub(super) begun: u64,
    /// When it ended, and how.
    pub(super) over: Option<(Instant, Captured)>,
}

impl Served {
    /// With `joined`, by which the daemon has let the process in already.
    pub(super) fn new(link: Link) -> Self {
        // Nothing is told as long as nobody listens, and CUPTI is switched apart from NCCL.
        power::leave_nccl();
        nccl::set_recording(false);
        host_events::want_ranges(false);
        Self {
            link,
            live: Live::new(),
            is_full: false,
            running: None,
        }
    }
}

/// A decoder of records of these sizes.
pub(super) fn decoder(sizes: &RecordSizes, cupti: Option<Cupti>) -> Decoder {
    let names = move |kind, callback| cupti.as_ref()?.callback_name(kind, callback);
    Decoder::new(sizes.clone(), Box::new(names))
}
