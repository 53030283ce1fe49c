//! The calls of a process by correlation id.

use gputrace_trace::tables::ApiCalls;

/// The outermost call of each correlation id.
pub(crate) struct Calls {
    /// By correlation, each once: its start and its row.
    sorted: Vec<(u32, i64, u32)>,
}

impl Calls {
    pub(crate) fn new(calls: &ApiCalls) -> Self {
        let mut sorted: Vec<(u32, i64, u32)> = (0u32..)
            .zip(calls.correlation.iter().zip(&calls.start_ns))
            .filter(|(_, (correlation, _))| **correlation != 0)
            .map(|(row, (&correlation, start))| (correlation, start.0, row))
            .collect();
        // Records come nearly in order, which a stable sort makes use of.
        sorted.sort();
        // A runtime call and the driver call within it may share the number: the one that began first is around the other.
        sorted.dedup_by_key(|(correlation, _, _)| *correlation);
        Self { sorted }
    }

    /// Start and row of the outermost call with this correlation id.
    pub(crate) fn outermost(&self, correlation: u32) -> Option<(i64, u32)> {
        let (first, last) = (self.sorted.first()?.0, self.sorted.last()?.0);
        if correlation < first || correlation > last {
            return None;
        }
        // Ids count up, with few left out: where it is to be is nearly where it is.
        let last_place = self.sorted.len() - 1;
        let share = u64::from(correlation - first) * last_place as u64;
        let guess = (share / u64::from(last - first).max(1)) as usize;
        let (mut from, mut to, mut step) = (guess, guess + 1, 1);
        while from > 0 && self.sorted[from].0 > correlation {
            from = from.saturating_sub(step);
            step *= 2;
        }
        while to <= last_place && self.sorted[to].0 <= correlation {
            to += step;
            step *= 2;
        }
        let within = &self.sorted[from..to.min(last_place + 1)];
        let place = within.partition_point(|(number, _, _)| *number < correlation);
        let &(number, start_ns, row) = within.get(place)?;
        (number == correlation).then_some((start_ns, row))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gputrace_trace::tables::ApiCall;
    use gputrace_trace::{Table, TimeNs};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_call_is_found_and_no_other(
            correlations in prop_oneof![
                prop::collection::vec(0u32..60, 0..100),
                prop::collection::vec(prop_oneof![0u32..10, 1000u32..1100, Just(u32::MAX)], 0..100),
                prop::collection::vec(any::<u32>(), 0..100),
            ],
        ) {
            let mut calls = ApiCalls::default();
            let mut expected: BTreeMap<u32, (i64, u32)> = BTreeMap::new();
            for (row, &correlation) in (0u32..).zip(&correlations) {
                // Not in order.
                let start_ns = i64::from(row * 37 % 11);
                calls.push(ApiCall { start_ns: TimeNs(start_ns), correlation, ..ApiCall::default() });
                if correlation != 0 {
                    let first = expected.entry(correlation).or_insert((start_ns, row));
                    *first = (*first).min((start_ns, row));
                }
            }
            let calls = Calls::new(&calls);
            for wanted in correlations.iter().flat_map(|c| [c.saturating_sub(1), *c, c.saturating_add(1)]) {
                prop_assert_eq!(calls.outermost(wanted), expected.get(&wanted).copied(), "{}", wanted);
            }
        }
    }
}
