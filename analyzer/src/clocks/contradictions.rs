//! Where a clock was set, by what is sure: an operation that would have ended before another had begun that it needed, and all
//! later ones with it. One alone is a wrong match.

use gputrace_trace::alignment::most_change_ns;

use super::sample::Sample;

/// Operations that are looked at to tell a clock that was set from a wrong match.
const AHEAD: usize = 16;

/// What the offset is between, at a moment.
#[derive(Clone, Copy)]
struct Between {
    time_ns: i64,
    low_ns: i64,
    high_ns: i64,
}

impl Between {
    fn of(sample: &Sample) -> Self {
        Self {
            time_ns: sample.time_ns,
            low_ns: sample.low_ns,
            high_ns: sample.high_ns,
        }
    }

    /// With another, later one; `None` where they contradict each other.
    fn and(self, later: Self) -> Option<Self> {
        let change = most_change_ns(later.time_ns.saturating_sub(self.time_ns));
        let low_ns = self.low_ns.saturating_sub(change).max(later.low_ns);
        let high_ns = self.high_ns.saturating_add(change).min(later.high_ns);
        (low_ns <= high_ns).then_some(Self {
            time_ns: later.time_ns,
            low_ns,
            high_ns,
        })
    }
}

/// The places before which the clock was set, in order.
pub(super) fn contradictions(samples: &[Sample]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut known: Option<Between> = None;
    for (place, sample) in samples.iter().enumerate() {
        // By itself it is a wrong match.
        if sample.low_ns > sample.high_ns {
            continue;
        }
        let own = Between::of(sample);
        let Some(before) = known else {
            known = Some(own);
            continue;
        };
        match before.and(own) {
            Some(both) => known = Some(both),
            None if is_set(before, own, &samples[place + 1..]) => {
                found.push(place);
                known = Some(own);
            }
            None => {}
        }
    }
    found
}

/// Whether what comes next is rather as `own` says than as `before`. At the end that is not known: then it may have been set.
fn is_set(before: Between, own: Between, next: &[Sample]) -> bool {
    let (mut as_before, mut as_own) = (0usize, 0usize);
    for sample in next
        .iter()
        .filter(|sample| sample.low_ns <= sample.high_ns)
        .take(AHEAD)
    {
        let (fits_before, fits_own) = (
            before.and(Between::of(sample)).is_some(),
            own.and(Between::of(sample)).is_some(),
        );
        as_before += usize::from(fits_before && !fits_own);
        as_own += usize::from(fits_own && !fits_before);
        if as_before.abs_diff(as_own) >= 2 {
            break;
        }
    }
    as_own >= as_before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(offsets: &[i64]) -> Vec<Sample> {
        let one = |(place, offset_ns): (i64, &i64)| Sample {
            time_ns: place * 1_000_000,
            offset_ns: *offset_ns,
            low_ns: offset_ns - 30_000,
            high_ns: offset_ns + 40_000,
            class: 0,
            kind: 0,
            work: 0,
            spread_ns: 0.0,
            last: None,
        };
        (0i64..).zip(offsets).map(one).collect()
    }

    #[test]
    fn a_clock_that_was_set_is_told_from_a_wrong_match() {
        let found = |offsets: &[i64]| contradictions(&samples(offsets));
        assert!(found(&[0; 9]).is_empty());
        assert_eq!(found(&[0, 0, 0, 5_000_000, 5_000_000, 5_000_000]), [3]);
        assert_eq!(
            found(&[0, 5_000_000, 5_000_000, 5_000_000, -5_000_000, -5_000_000]),
            [1, 4]
        );
        // One alone, and another one.
        assert!(found(&[0, 0, 9_000_000, 0, 0, -9_000_000, 0, 0]).is_empty());
        // Of the last nobody knows.
        assert_eq!(found(&[0, 0, 0, 9_000_000]), [3]);
        assert!(found(&[]).is_empty());
        // What can't be so by itself says nothing.
        let mut odd = samples(&[0, 0, 0, 9_000_000]);
        odd[3].high_ns = 0;
        assert!(contradictions(&odd).is_empty());
        // Nor does what is too far from everything for numbers to hold it.
        assert_eq!(
            found(&[i64::MIN + 30_000, i64::MAX - 40_000, i64::MAX - 40_000]),
            [1]
        );
    }
}
