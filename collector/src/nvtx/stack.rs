//! The ranges that a thread has open.

use super::range::Open;
use crate::host_events::BUDGET;

/// Ranges that one thread may have pushed: against programs that never pop.
const MOST_OPEN: usize = 4096;
/// The push/pop ranges that a thread has open.
#[derive(Default)]
pub(crate) struct Stack {
    pub(super) open: Vec<Open>,
    /// Pushes that found the stack full; as many pops are theirs.
    beyond: usize,
}

impl Stack {
    /// Puts a range on top; gives its depth in its domain.
    #[inline]
    pub(super) fn push(&mut self, mut range: Open) -> Option<u16> {
        if self.open.len() == self.open.capacity() && !self.grow() {
            self.beyond += 1;
            return None;
        }
        let below = self.open.iter().rfind(|open| open.domain == range.domain);
        let depth = below.map_or(0, |below| below.depth + 1);
        range.set_depth(depth);
        self.open.push(range);
        Some(depth)
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let capacity = self.open.capacity();
        let more = (2 * capacity).clamp(16, MOST_OPEN);
        if more <= capacity || !BUDGET.take((more - capacity) * size_of::<Open>()) {
            return false;
        }
        self.open.reserve_exact(more - self.open.len());
        true
    }

    /// Takes the innermost range of a domain off.
    #[inline]
    pub(super) fn pop(&mut self, domain: u32) -> Option<Open> {
        if self.beyond > 0 {
            self.beyond -= 1;
            return None;
        }
        match self.open.last() {
            Some(last) if last.domain == domain => self.open.pop(),
            _ => {
                let place = self.open.iter().rposition(|open| open.domain == domain)?;
                Some(self.open.remove(place))
            }
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        BUDGET.give(self.open.capacity() * size_of::<Open>());
    }
}
