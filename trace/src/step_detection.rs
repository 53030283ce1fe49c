//! Steps where no range names them: a training loop launches the same operations again and again.

use std::hash::Hash;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::time::TimeNs;

/// A pattern must repeat at least so often.
const LEAST_REPEATS: usize = 3;
/// A step has at least so many operations.
pub const LEAST_OPERATIONS: usize = 8;
/// This share of the distances between occurrences must be the same.
const REGULAR: f64 = 0.8;

/// An operation that a device ran, as it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Ran<Name> {
    /// The stream that it ran on.
    pub stream: u32,
    /// What is the same in each step.
    pub name: Name,
    /// Start.
    pub start: TimeNs,
    /// End.
    pub end: TimeNs,
}

/// The operation that begins each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor<Name> {
    /// The stream that it runs on.
    pub stream: u32,
    /// Its name.
    pub name: Name,
    /// Operations of the stream in a step.
    pub period: usize,
}

/// Guesses what begins the steps of a device, from its operations in the order of their starts.
///
/// A name that occurs once a step stands at equal distances, counted in operations of the busiest stream: those of several
/// interleave differently each time. Of all names that do, those with the greatest distance are taken for once-a-step ones
/// (others repeat with each layer), and of these the one before which the device idles longest begins the step: the host comes
/// back from its loop there.
pub fn find<T, Name: Copy + Eq + Hash>(
    operations: &[T],
    ran: impl Fn(&T) -> Ran<Name>,
) -> Option<Anchor<Name>> {
    let mut counts: HashMap<u32, usize, FixedState> = HashMap::default();
    for operation in operations {
        *counts.entry(ran(operation).stream).or_default() += 1;
    }
    let (&stream, _) = counts
        .iter()
        .max_by_key(|(stream, count)| (**count, std::cmp::Reverse(**stream)))?;
    let on_stream: Vec<&T> = operations
        .iter()
        .filter(|operation| ran(operation).stream == stream)
        .collect();
    let mut places: HashMap<Name, Vec<usize>, FixedState> = HashMap::default();
    for (place, operation) in on_stream.iter().enumerate() {
        places.entry(ran(operation).name).or_default().push(place);
    }
    let regular: Vec<(usize, Name, &Vec<usize>)> = places
        .iter()
        .filter_map(|(name, places)| Some((usual_distance(places)?, *name, places)))
        .filter(|(distance, ..)| *distance >= LEAST_OPERATIONS)
        .collect();
    let period = regular.iter().map(|(distance, ..)| *distance).max()?;
    let idle_before = |places: &[usize]| -> i64 {
        let idle = |place: usize| {
            (ran(on_stream[place]).start - ran(on_stream[place - 1]).end)
                .0
                .max(0)
        };
        let all = places.iter().filter(|place| **place > 0);
        all.map(|place| idle(*place)).fold(0, i64::saturating_add) / places.len() as i64
    };
    regular
        .into_iter()
        .filter(|(distance, ..)| *distance == period)
        .max_by_key(|(_, _, places)| (idle_before(places), std::cmp::Reverse(places[0])))
        .map(|(_, name, _)| Anchor { stream, name, period })
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
    use super::*;

    /// Operations of 10 ns, with some idle time before each.
    fn run(names: &[u32], idle_before: &dyn Fn(u32) -> i64) -> Vec<Ran<u32>> {
        let mut at = 0;
        let ran = |name: &u32| {
            let start = TimeNs(at + idle_before(*name));
            at = start.0 + 10;
            Ran {
                stream: 7,
                name: *name,
                start,
                end: TimeNs(at),
            }
        };
        names.iter().map(ran).collect()
    }

    #[test]
    fn what_comes_once_a_step_after_the_longest_idle_time_begins_it() {
        // A step is forward 1 2 2 2 3, backward 4 5 5 5 6; the host is away before 1.
        let step = [1, 2, 2, 2, 3, 4, 5, 5, 5, 6];
        let names: Vec<u32> = [6].into_iter().chain(step.repeat(4)).collect();
        let found = find(&run(&names, &|name| if name == 1 { 100 } else { 0 }), |ran| *ran);
        let expected = Anchor {
            stream: 7,
            name: 1,
            period: 10,
        };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn what_does_not_repeat_begins_no_step() {
        let find = |names: &[u32]| find(&run(names, &|_| 0), |ran| *ran);
        assert_eq!(find(&(0..50).collect::<Vec<u32>>()), None);
        assert_eq!(find(&[1; 50]), None);
        assert_eq!(find(&[]), None);
    }
}
