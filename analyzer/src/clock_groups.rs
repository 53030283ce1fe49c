//! Which processes are stamped by one clock: those of a host, unless what they did together says otherwise.

use std::collections::BTreeMap;

use gputrace_trace::{Process, Recording};

use crate::clocks::Meeting;
use crate::statistics::median_ns;

/// Ends of one collective on one host lie microseconds apart. Clocks that differ by less than this on the median are taken for
/// one.
const SAME_NS: i64 = 20_000;
/// Of composites ends lie further apart: so many times the usual distance is another clock.
const TIMES: i64 = 10;
/// What a host's clock says of when it was booted changes when it is set. By more than this it is another boot.
const SAME_BOOT_NS: u64 = 60_000_000_000;
/// Fewer collectives tell nothing.
const LEAST: usize = 3;

/// The processes of one clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) host: String,
    /// Their places in the recording.
    pub(crate) processes: Vec<usize>,
}

/// The clocks, by the lowest rank of each. In `meetings` each process has a clock of its own.
pub(crate) fn groups(recording: &Recording, ranks: &[Option<u32>], meetings: &[Meeting]) -> Vec<Group> {
    let mut hosts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, process) in recording.processes.iter().enumerate() {
        hosts.entry(&process.header.host).or_default().push(place);
    }
    let several = hosts.len() > 1;
    let boots: Vec<Boot> = recording.processes.iter().map(Boot::of).collect();
    let mut groups: Vec<Group> = Vec::new();
    for (host, processes) in hosts {
        // Beside hosts with names, what has none may be of any; and so may files that do not say when their time begins.
        let all_apart = host.is_empty() && several || recording.unaligned.is_some() && host.is_empty();
        let apart = if all_apart {
            processes.iter().map(|place| vec![*place]).collect()
        } else {
            by_clock(&processes, meetings, &boots)
        };
        groups.extend(apart.into_iter().map(|processes| Group {
            host: host.to_owned(),
            processes,
        }));
    }
    groups.sort_by_key(|group| {
        let lowest = group
            .processes
            .iter()
            .map(|place| ranks[*place].unwrap_or(u32::MAX))
            .min();
        (lowest, group.processes.first().copied())
    });
    groups
}

/// How a process's ends lie against the median of its host's: in the first half of the collectives, in the second, and by how much
/// that usually differs from one collective to the next.
struct Ends {
    early: i64,
    late: i64,
    usual: i64,
}

/// Which boot of its host a process ran in, as far as that is known.
#[derive(Clone, Debug, Default)]
struct Boot {
    /// The kernel's number of it.
    id: Option<String>,
    /// When it was, by the process's own clock.
    at_ns: Option<i64>,
}

impl Boot {
    fn of(process: &Process) -> Self {
        let readings = &process.tables.clocks;
        let since_boot = readings.boottime_ns.first().filter(|since_boot| **since_boot > 0);
        let at_ns = since_boot
            .zip(readings.realtime_ns.first())
            .map(|(since_boot, now)| now.0.saturating_sub(*since_boot));
        Self {
            id: process.header.boot_id.clone(),
            at_ns,
        }
    }

    /// Whether it may be the same as another.
    fn may_be(&self, other: &Self) -> bool {
        match (&self.id, &other.id) {
            (Some(id), Some(other)) => id == other,
            _ => self
                .at_ns
                .zip(other.at_ns)
                .is_none_or(|(a, b)| a.abs_diff(b) <= SAME_BOOT_NS),
        }
    }
}

/// The processes of one host by their clocks. `boots`: of each of the recording's processes.
fn by_clock(processes: &[usize], meetings: &[Meeting], boots: &[Boot]) -> Vec<Vec<usize>> {
    let mut ends: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
    let mut here: Vec<(usize, i64)> = Vec::new();
    for meeting in meetings {
        here.clear();
        let members = meeting
            .members
            .iter()
            .map(|member| (member.clock as usize, member.end_ns));
        here.extend(members.filter(|(place, _)| processes.binary_search(place).is_ok()));
        if here.len() < 2 {
            continue;
        }
        // Of two, which one is off is not known: off the first, then.
        let mut all: Vec<i64> = here.iter().map(|(_, end)| *end).collect();
        let middle = if all.len() == 2 {
            all[0]
        } else {
            median_ns(&mut all)
        };
        for (place, end) in &here {
            ends.entry(*place).or_default().push(end.saturating_sub(middle));
        }
    }
    let known: BTreeMap<usize, Ends> = ends
        .into_iter()
        .filter(|(_, off)| off.len() >= LEAST)
        .map(|(place, off)| {
            let (first, second) = off.split_at(off.len().div_ceil(2));
            let (early, late) = (median_ns(&mut first.to_vec()), median_ns(&mut second.to_vec()));
            // Between one collective and the next, less what the clock drifts meanwhile.
            let mut apart: Vec<i64> = off
                .windows(2)
                .map(|pair| pair[1].saturating_sub(pair[0]))
                .collect();
            let drift = median_ns(&mut apart);
            for step in &mut apart {
                *step = step.saturating_sub(drift).saturating_abs();
            }
            let usual = median_ns(&mut apart);
            (place, Ends { early, late, usual })
        })
        .collect();
    let limit = |a: &Ends, b: &Ends| SAME_NS.max(a.usual.max(b.usual).saturating_mul(TIMES));
    let same = |a: &Ends, b: &Ends| {
        let limit = limit(a, b);
        a.early.saturating_sub(b.early).saturating_abs() <= limit
            && a.late.saturating_sub(b.late).saturating_abs() <= limit
    };
    // Those of which nothing else is known have the clock of the first that did not run before or after a reboot.
    let one_boot = |group: &[usize], place: usize| {
        let own = boots.get(place);
        let others = group.iter().map(|other| boots.get(*other));
        others
            .into_iter()
            .all(|other| own.zip(other).is_none_or(|(own, other)| own.may_be(other)))
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for place in processes {
        let found = match known.get(place) {
            None => groups.iter_mut().find(|group| one_boot(group, *place)),
            Some(own) => groups.iter_mut().find(|group| {
                let first = group.iter().find_map(|other| known.get(other));
                first.map_or_else(|| one_boot(group, *place), |other| same(own, other))
            }),
        };
        match found {
            Some(group) => group.push(*place),
            None => groups.push(vec![*place]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::Member;

    fn meetings(offsets: &[fn(i64) -> i64]) -> Vec<Meeting> {
        (0..10)
            .map(|number| Meeting {
                class: 0,
                kind: 0,
                work: 0,
                members: (0u32..)
                    .zip(offsets)
                    .map(|(clock, offset)| {
                        let end_ns =
                            1_000_000 * number + offset(number) + 700 * ((number + i64::from(clock)) % 3);
                        Member {
                            clock,
                            start_ns: end_ns - 100_000,
                            end_ns,
                        }
                    })
                    .collect(),
            })
            .collect()
    }

    #[test]
    fn ends_that_differ_always_or_more_and_more_are_of_other_clocks() {
        let one = meetings(&[|_| 0, |_| 3_000, |_| -4_000]);
        assert_eq!(by_clock(&[0, 1, 2], &one, &[]), [vec![0, 1, 2]]);
        let two = meetings(&[|_| 0, |_| 90_000, |_| 1_000, |_| 91_000]);
        assert_eq!(by_clock(&[0, 1, 2, 3], &two, &[]), [vec![0, 2], vec![1, 3]]);
        // Equal in the middle of the run.
        let drifting = meetings(&[|_| 0, |_| 0, |number| 40_000 * (number - 5)]);
        assert_eq!(by_clock(&[0, 1, 2], &drifting, &[]), [vec![0, 1], vec![2]]);
        let pair = meetings(&[|_| 0, |_| -50_000]);
        assert_eq!(by_clock(&[0, 1], &pair, &[]), [vec![0], vec![1]]);
        assert_eq!(by_clock(&[0, 1], &pair[..2], &[]), [vec![0, 1]]);
    }

    #[test]
    fn before_and_after_a_reboot_a_host_has_two_clocks() {
        let hour = 3_600_000_000_000;
        let at = |at_ns| Boot { id: None, at_ns };
        let boots = [Some(0), Some(hour), Some(5_000_000_000), None, Some(hour)].map(at);
        assert_eq!(
            by_clock(&[0, 1, 2, 3, 4], &[], &boots),
            [vec![0, 2, 3], vec![1, 4]]
        );
        // A container has a boot of its own, and the host's clock.
        let one = meetings(&[|_| 0, |_| 3_000]);
        assert_eq!(
            by_clock(&[0, 1], &one, &[Some(0), Some(hour)].map(at)),
            [vec![0, 1]]
        );
        // The kernel's own numbers count for more than when it was: the clock may have been set.
        let named = |id: &str, at_ns| Boot {
            id: Some(id.to_owned()),
            at_ns: Some(at_ns),
        };
        let boots = [named("a", 0), named("a", hour), named("b", 0)];
        assert_eq!(by_clock(&[0, 1, 2], &[], &boots), [vec![0, 1], vec![2]]);
    }
}
