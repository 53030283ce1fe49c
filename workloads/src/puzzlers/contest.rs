//! Which of the three ways to all-reduce wins at which size.

use super::collectives::time_text;
use super::operations::{COMPOSITIONS, Operation};
use super::{bytes_text, json};

/// One size's best times of the three ways to all-reduce, in the order of [`COMPOSITIONS`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Contest {
    pub(super) bytes: usize,
    pub(super) times_us: [f64; 3],
}

impl Contest {
    /// The fastest, as an index of [`COMPOSITIONS`].
    fn winner(&self) -> usize {
        (0..3)
            .min_by(|a, b| self.times_us[*a].total_cmp(&self.times_us[*b]))
            .unwrap_or(0)
    }

    /// How much longer the second takes, in percent.
    fn lead_percent(&self) -> f64 {
        let mut times = self.times_us;
        times.sort_by(f64::total_cmp);
        (times[1] / times[0] - 1.0) * 100.0
    }
}

/// From this lead on, in percent, there is a winner.
const LEAD_PERCENT: f64 = 1.0;

/// Neighbouring sizes with the same winner: first and last size, and the winner, if any leads.
fn stretches(contests: &[Contest]) -> Vec<(usize, usize, Option<usize>)> {
    let mut stretches: Vec<(usize, usize, Option<usize>)> = Vec::new();
    for contest in contests {
        let winner = (contest.lead_percent() >= LEAD_PERCENT).then(|| contest.winner());
        match stretches.last_mut() {
            Some((_, last, of_last)) if *of_last == winner => *last = contest.bytes,
            _ => stretches.push((contest.bytes, contest.bytes, winner)),
        }
    }
    stretches
}

/// Prints the table, and who wins where.
pub(super) fn print_contests(contests: &[Contest]) {
    let names = COMPOSITIONS.map(Operation::name);
    println!("#\n# which way to all-reduce wins where (us, out-of-place, the shortest call)");
    println!(
        "# {:>10}  {:>12}  {:>16}  {:>25}  {:<25} by",
        "size", names[0], names[1], names[2], "winner"
    );
    for contest in contests {
        let times = contest.times_us.map(time_text);
        println!(
            "{:>12}  {:>12}  {:>16}  {:>25}  {:<25} {:.0} %",
            contest.bytes,
            times[0],
            times[1],
            times[2],
            names[contest.winner()],
            contest.lead_percent()
        );
    }
    for (first, last, winner) in stretches(contests) {
        println!(
            "# {} to {}: {}",
            bytes_text(first),
            bytes_text(last),
            winner.map_or("none by 1 %", |winner| &names[winner])
        );
    }
}

/// The table as JSON.
pub(super) fn contests_json(contests: &[Contest]) -> String {
    json::array(contests.iter().map(|contest| {
        let mut members = vec![("size_bytes", contest.bytes.to_string())];
        let names = COMPOSITIONS.map(Operation::name);
        for (name, time) in names.iter().zip(contest.times_us) {
            members.push((name, json::number(time)));
        }
        members.push(("winner", json::string(&names[contest.winner()])));
        json::object(&members)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest(bytes: usize, times_us: [f64; 3]) -> Contest {
        Contest { bytes, times_us }
    }

    #[test]
    fn the_fastest_wins_and_stretches_join() {
        let all = [
            contest(8, [1.0, 2.0, 3.0]),
            contest(16, [1.0, 1.5, 3.0]),
            contest(32, [5.0, 6.0, 4.0]),
            contest(64, [5.0, 6.0, 5.01]),
        ];
        assert_eq!(
            stretches(&all),
            [(8, 16, Some(0)), (32, 32, Some(2)), (64, 64, None)]
        );
        assert!((all[2].lead_percent() - 25.0).abs() < 1e-9);
    }
}
