//! When the plugin is to count a collective, and for which step.
//!
//! It knows a collective by an annotation on the host, and takes those of all workers in the order of their annotations. A
//! step's collectives are those with annotations between the step's times as the plugin has them, which follow the
//! device: where the host is ahead, an annotation at the time of the call would count for an earlier step. So it is moved
//! into its own step then, always before its kernel and never past another: of two that begin together the plugin takes the
//! longer for the first, so that on one worker the kernel would be compared with another's annotation.

use super::host_steps::HostStep;

/// What a collective's annotation is put in its place by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Enqueued {
    /// When it was enqueued, or launched.
    pub(super) time_ns: i64,
    /// Start of its kernel.
    pub(super) kernel_ns: i64,
}

/// Where the annotations are to stand, in the order given, which is that of their times. `written` are the steps in the file
/// and `shown` the plugin's times of them.
pub(super) fn counted_times(all: &[Enqueued], written: &[HostStep], shown: &[(i64, i64)]) -> Vec<i64> {
    let mut times: Vec<i64> = all
        .iter()
        .map(|enqueued| {
            let time = enqueued.time_ns;
            let after = written.partition_point(|step| step.start_ns <= time);
            let own = after.checked_sub(1).filter(|place| time < written[*place].end_ns);
            let moved = match own.and_then(|place| shown.get(place)) {
                // At the very begin it would still be the step before.
                Some((start, end)) if time <= *start => (start + 1).min(*end),
                Some((_, end)) => time.min(*end),
                None => time,
            };
            moved.min(enqueued.kernel_ns - 1)
        })
        .collect();
    for place in (1..times.len()).rev() {
        times[place - 1] = times[place - 1].min(times[place]);
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u64, start_ns: i64, end_ns: i64) -> HostStep {
        HostStep {
            number,
            name: String::new(),
            start_ns,
            end_ns,
            detected: false,
        }
    }

    fn counted(all: &[(i64, i64)], shown: &[(i64, i64)]) -> Vec<i64> {
        let all: Vec<Enqueued> = all
            .iter()
            .map(|(time_ns, kernel_ns)| Enqueued {
                time_ns: *time_ns,
                kernel_ns: *kernel_ns,
            })
            .collect();
        counted_times(&all, &[step(0, 0, 100), step(1, 100, 200)], shown)
    }

    #[test]
    fn annotations_stay_where_they_count_for_their_step() {
        let shown = [(0, 150), (150, 260)];
        assert_eq!(counted(&[(10, 50), (160, 170)], &shown), [10, 160]);
    }

    #[test]
    fn where_the_host_is_ahead_they_move_into_their_step() {
        let shown = [(0, 150), (150, 260)];
        assert_eq!(
            counted(&[(90, 140), (110, 200), (120, 220)], &shown),
            [90, 151, 151]
        );
        // Before the kernel, which began while the step before still ran; nor past it.
        assert_eq!(counted(&[(110, 200), (120, 130)], &shown), [129, 129]);
    }

    #[test]
    fn outside_of_steps_they_stay_but_always_before_their_kernels() {
        assert_eq!(
            counted(&[(-5, 3), (300, 290)], &[(0, 100), (100, 200)]),
            [-5, 289]
        );
    }
}
