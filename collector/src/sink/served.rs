//! The daemon as the thread knows it.

use std::time::Instant;

use gputrace_trace::daemon::{Capture, Captured};
use gputrace_trace::options::{CollectorOptions, Kind};

use crate::cupti::Cupti;
use crate::daemon::{Link, Live};
use crate::decode::Decoder;
use crate::records::RecordSizes;
use crate::{config, host_events, nccl, power};

/// The daemon as the thread knows it.
pub(super) struct Served {
    pub(super) link: Link,
    pub(super) live: Live,
    /// Whether kernels are recorded from beginning to end.
    pub(super) is_full: bool,
    pub(super) running: Option<Running>,
    /// The segment that is to be begun once the daemon has made a place for it, and whether kernels are recorded then.
    pub(super) opening: Option<(u32, bool)>,
    /// What CUPTI was started for last.
    pub(super) options: Option<&'static CollectorOptions>,
    /// Whether it is kept between captures.
    pub(super) keeps_cupti: bool,
    /// Whether the decoder knows CUPTI's records.
    pub(super) has_decoder: bool,
}

/// A capture that goes on.
pub(super) struct Running {
    pub(super) capture: Capture,
    pub(super) since: Instant,
    pub(super) start_ns: i64,
    /// Steps that had begun by then.
    pub(super) begun: u64,
    /// What of the kinds that it asks for is not recorded.
    pub(super) missing: Option<String>,
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
            opening: None,
            options: None,
            keeps_cupti: false,
            has_decoder: false,
        }
    }
}

/// A decoder of records of these sizes.
pub(super) fn decoder(sizes: &RecordSizes, cupti: Option<Cupti>) -> Decoder {
    let names = move |kind, callback| cupti.as_ref()?.callback_name(kind, callback);
    Decoder::new(sizes.clone(), Box::new(names))
}

/// What is recorded for a capture that names its kinds: these, and of the host what is recorded anyway. `before`: what CUPTI was started
/// for last, which may be the same.
pub(super) fn capture_options(
    kinds: &[String],
    before: Option<&'static CollectorOptions>,
) -> &'static CollectorOptions {
    let usual = config::options();
    let mut kinds = kinds.to_vec();
    for kind in [Kind::Ranges, Kind::Collectives, Kind::Proxy, Kind::Channels] {
        kinds.retain(|word| word != kind.name());
        if usual.records(kind) {
            kinds.push(kind.name().to_owned());
        }
    }
    let options = CollectorOptions {
        kinds: Some(kinds),
        ..usual.clone()
    };
    match before.filter(|before| **before == options) {
        Some(before) => before,
        // Read from everywhere for the process's life; a capture by hand comes seldom.
        None => Box::leak(Box::new(options)),
    }
}
