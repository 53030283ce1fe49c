//! Steps where no range names them: a training loop launches the same operations again and again.

use rustc_hash::FxHashMap;

use crate::operations::{Name, Operation};
use crate::steps::Window;

/// A pattern must repeat at least so often.
const LEAST_REPEATS: usize = 3;
/// A step has at least so many operations.
const LEAST_OPERATIONS: usize = 8;
/// This share of the distances between occurrences must be the same.
const REGULAR: f64 = 0.8;

/// Guesses the steps of a device from its (sorted) operations.
///
/// A name that occurs once a step stands at equal distances, counted in operations. Of all names that do, those with the
/// greatest distance are taken for once-a-step ones (others repeat with each layer), and of these the one before which the
/// device idles longest begins the step: the host comes back from its loop there.
pub(crate) fn detect(operations: &[Operation]) -> Vec<Window> {
    // Operations of several streams interleave differently each time: the busiest stream has the pattern.
    let mut counts: FxHashMap<u32, usize> = FxHashMap::default();
    for operation in operations {
        *counts.entry(operation.stream).or_default() += 1;
    }
    let Some((&stream, _)) = counts
        .iter()
        .max_by_key(|(stream, count)| (**count, std::cmp::Reverse(**stream)))
    else {
        return Vec::new();
    };
    let on_stream: Vec<&Operation> = operations
        .iter()
        .filter(|operation| operation.stream == stream)
        .collect();
    let mut places: FxHashMap<Name, Vec<usize>> = FxHashMap::default();
    for (place, operation) in on_stream.iter().enumerate() {
        places.entry(operation.name).or_default().push(place);
    }
    let mut regular: Vec<(usize, &Vec<usize>)> = places
        .values()
        .filter_map(|places| Some((usual_distance(places)?, places)))
        .filter(|(distance, _)| *distance >= LEAST_OPERATIONS)
        .collect();
    let Some(greatest) = regular.iter().map(|(distance, _)| *distance).max() else {
        return Vec::new();
    };
    regular.retain(|(distance, _)| *distance == greatest);
    let idle_before = |places: &[usize]| -> i64 {
        places
            .iter()
            .filter(|place| **place > 0)
            .map(|&place| (on_stream[place].start - on_stream[place - 1].end).max(0))
            .fold(0, i64::saturating_add)
            / places.len() as i64
    };
    let best = regular
        .into_iter()
        .max_by_key(|(_, places)| (idle_before(places), std::cmp::Reverse(places[0])));
    let Some((_, places)) = best else {
        return Vec::new();
    };
    let starts: Vec<i64> = places.iter().map(|&place| on_stream[place].start).collect();
    let last_end = operations
        .iter()
        .map(|operation| operation.end)
        .max()
        .unwrap_or(0);
    (0u64..)
        .zip(&starts)
        .map(|(number, &start)| Window {
            number,
            thread: 0,
            name: format!("step {number} (detected)"),
            start,
            end: starts.get(number as usize + 1).copied().unwrap_or(last_end),
            detected: true,
        })
        .collect()
}

/// The distance that most neighbouring places have, where most have one.
fn usual_distance(places: &[usize]) -> Option<usize> {
    if places.len() < LEAST_REPEATS {
        return None;
    }
    let mut distances: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_unstable();
    let median = distances[distances.len() / 2];
    let same = distances.iter().filter(|distance| **distance == median).count();
    (same as f64 >= REGULAR * distances.len() as f64).then_some(median)
}

#[cfg(test)]
mod tests {
    use gputrace_trace::NameId;

    use super::*;
    use crate::kinds::{Kind, KindFrom};

    fn run(names: &[u32], idle_before: &dyn Fn(u32) -> i64) -> Vec<Operation> {
        let mut at = 0;
        names
            .iter()
            .map(|&name| {
                at += idle_before(name);
                let start = at;
                at += 10;
                Operation {
                    start,
                    end: at,
                    context: 1,
                    stream: 7,
                    correlation: 0,
                    row: 0,
                    call: crate::operations::NO_CALL,
                    name: Name::Kernel(NameId(name)),
                    kind: Kind::Compute,
                    kind_from: KindFrom::Record,
                }
            })
            .collect()
    }

    #[test]
    fn what_repeats_is_a_step_that_begins_after_the_longest_idle_time() {
        // A step is forward 1 2 2 2 3, backward 4 5 5 5 6; the host is away before 1.
        let step = [1, 2, 2, 2, 3, 4, 5, 5, 5, 6];
        let names: Vec<u32> = [6].into_iter().chain(step.repeat(4)).collect();
        let operations = run(&names, &|name| if name == 1 { 100 } else { 0 });
        let windows = detect(&operations);
        let starts: Vec<i64> = windows.iter().map(|window| window.start).collect();
        assert_eq!(starts, [110, 310, 510, 710]);
        assert_eq!(windows[3].end, 810);
        assert!(windows.iter().all(|window| window.detected));
    }

    #[test]
    fn what_does_not_repeat_has_no_steps() {
        let names: Vec<u32> = (0..50).collect();
        assert!(detect(&run(&names, &|_| 0)).is_empty());
        assert!(detect(&run(&[1; 50], &|_| 0)).is_empty());
        assert!(detect(&[]).is_empty());
    }
}
