//! Where a step's time goes on each device, as recorded or in a replay.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::job::Job;
use super::nodes::Part;
use crate::intervals::IntervalSet;

/// What the mean step of a device is made of, nanoseconds; the parts sum to the step of the job. What happens at one time counts as
/// the first of them that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RankTime {
    /// Kernels compute.
    pub compute_ns: f64,
    /// Data is on the wire.
    pub transfer_ns: f64,
    /// A kernel of a collective or transfer waits for other ranks.
    pub waiting_ns: f64,
    /// Copies and memsets.
    pub copy_ns: f64,
    /// The device has nothing to do.
    pub idle_ns: f64,
}

/// A device's mean step without and with the changes; unexplained gaps are kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankTimes {
    /// Its rank.
    pub rank: Option<u32>,
    /// Its index within its process.
    pub device_index: u32,
    /// By a replay without changes.
    pub replayed: RankTime,
    /// With them.
    pub predicted: RankTime,
}

/// Of all devices of a job, by the ends of its nodes without and with changes, and what these take then.
pub(super) fn rank_times(job: &Job, ends: &[i64], work: &[i64]) -> Vec<RankTimes> {
    let replayed = times(job, &job.ends, &job.graph.work);
    let predicted = times(job, ends, work);
    job.devices
        .iter()
        .zip(replayed.into_iter().zip(predicted))
        .map(|(device, (replayed, predicted))| RankTimes {
            rank: device.rank,
            device_index: device.index,
            replayed,
            predicted,
        })
        .collect()
}

/// Parts of a device's time, each with what comes before it.
type Kinds = [Vec<(i64, i64)>; 4];

fn times(job: &Job, ends: &[i64], work: &[i64]) -> Vec<RankTime> {
    let mut kinds: Vec<Kinds> = vec![Kinds::default(); job.devices.len()];
    // By kernel (device and row): when it came to its collective.
    let mut arrived: FxHashMap<(u16, u32), i64> = FxHashMap::default();
    for (node, what) in job.what.iter().enumerate() {
        if what.part == Part::Arrival {
            arrived.insert((what.device, what.row), ends[node]);
        }
    }
    for (node, what) in job.what.iter().enumerate() {
        let (start, end) = (ends[node].saturating_sub(work[node]), ends[node]);
        let of_device = &mut kinds[what.device as usize];
        match what.part {
            Part::Compute => of_device[0].push((start, end)),
            Part::Communication => {
                of_device[1].push((start, end));
                if let Some(arrived) = arrived.get(&(what.device, what.row)) {
                    of_device[2].push((*arrived, end));
                }
            }
            Part::Copy | Part::Memset => of_device[3].push((start, end)),
            Part::Host | Part::Call | Part::Blocked | Part::Arrival | Part::Meeting => {}
        }
    }
    let windows = job.step_windows(ends);
    kinds.into_iter().map(|kinds| mean(kinds, &windows)).collect()
}

/// The mean over windows.
fn mean(kinds: Kinds, windows: &[(i64, i64)]) -> RankTime {
    let mut all: Vec<(i64, i64)> = Vec::new();
    let count = windows.len().max(1) as f64;
    let mut before = 0.0;
    let parts = kinds.map(|kind| {
        all.extend(kind);
        let set = IntervalSet::union_of(all.iter().copied().filter(|(start, end)| start < end));
        let within = windows
            .iter()
            .map(|(start, end)| set.length_within_ns(*start, *end) as f64);
        let until = within.sum::<f64>() / count;
        let own = until - before;
        before = until;
        own
    });
    let whole = windows
        .iter()
        .map(|(start, end)| (end - start) as f64)
        .sum::<f64>()
        / count;
    let [compute_ns, transfer_ns, waiting_ns, copy_ns] = parts;
    RankTime {
        compute_ns,
        transfer_ns,
        waiting_ns,
        copy_ns,
        idle_ns: whole - before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_at_one_time_counts_once() {
        let kinds = [
            vec![(0, 10), (5, 20)],
            vec![(15, 30), (90, 120)],
            vec![(10, 40)],
            vec![(35, 50), (60, 60)],
        ];
        // Two steps of 50 and 60: the second has the end of a transfer alone.
        let time = mean(kinds, &[(0, 50), (50, 110)]);
        let expected = RankTime {
            compute_ns: 10.0,
            transfer_ns: 15.0,
            waiting_ns: 5.0,
            copy_ns: 5.0,
            idle_ns: 20.0,
        };
        assert_eq!(time, expected);
    }
}
