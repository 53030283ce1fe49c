//! Which calls were made in windows, by their numbers.

use std::collections::VecDeque;

use gputrace_trace::TimeNs;

use super::Window;

/// How long after a window's end its last operation may begin. Correlation ids are 32 bits: later ones are other launches.
const LATEST_START_NS: i64 = 600_000_000_000;
/// Windows whose calls are remembered.
const REMEMBERED: usize = 64;

/// The calls of one window: the lowest number and the highest.
struct Calls {
    window: TimeNs,
    last_start: i64,
    first: u32,
    last: u32,
}

/// The calls of windows.
#[derive(Default)]
pub(super) struct Launched {
    windows: VecDeque<Calls>,
}

impl Launched {
    /// A call was made in a window.
    pub(super) fn learn(&mut self, window: &Window, correlation: u32) {
        let last_start = window.end.0.saturating_add(LATEST_START_NS);
        let mut newest_first = self.windows.iter_mut().rev();
        match newest_first.find(|known| known.window == window.start) {
            Some(known) => {
                known.first = known.first.min(correlation);
                known.last = known.last.max(correlation);
                known.last_start = last_start;
            }
            None => self.windows.push_back(Calls {
                window: window.start,
                last_start,
                first: correlation,
                last: correlation,
            }),
        }
    }

    /// Forgets windows that are long over.
    pub(super) fn forget(&mut self) {
        let excess = self.windows.len().saturating_sub(REMEMBERED);
        self.windows.drain(..excess);
    }

    /// Whether an operation that started then was launched by a call in a window.
    pub(super) fn has(&self, correlation: u32, start: i64) -> bool {
        self.windows
            .iter()
            .any(|window| (window.first..=window.last).contains(&correlation) && start <= window.last_start)
    }
}
