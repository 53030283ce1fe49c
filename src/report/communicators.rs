//! Tables of communicators, and of what ranks sent each other.

use gputrace_analyzer::{Analysis, CommunicatorAnalysis};

use super::cells::or_dash;
use super::table::{Overflow, print_table};
use crate::text::{bytes, duration, gigabytes_per_second, shorten, thousands};

/// Longer tables are cut here: the JSON has all.
const MOST_ROWS: usize = 16;
/// A communicator's name gets no more.
const WIDEST_NAME: usize = 18;

/// Ranks in the room of a column: "0-7", "0,2,4,6", "0,2 .. 30".
fn rank_list(ranks: &[u32]) -> String {
    const WIDEST: usize = 9;
    let (Some(first), Some(last)) = (ranks.first(), ranks.last()) else {
        return "-".to_owned();
    };
    let follow = ranks.windows(2).all(|pair| pair[1] == pair[0] + 1);
    if ranks.len() > 2 && follow {
        return format!("{first}-{last}");
    }
    let all: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let all = all.join(",");
    if all.len() <= WIDEST {
        all
    } else {
        format!("{first},{} .. {last}", ranks[1])
    }
}

fn name_of(name: Option<&String>, communicator: &str) -> String {
    shorten(name.map_or(communicator, String::as_str), WIDEST_NAME)
}

/// The first rows, and the title with what is left out.
fn cut(title: &str, rows: &mut Vec<Vec<String>>) -> String {
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    if left_out > 0 {
        format!("{title}: the first {MOST_ROWS}; --json has {left_out} more")
    } else {
        title.to_owned()
    }
}

/// Who is in which communicator, and what it cost.
pub fn communicators(analysis: &Analysis) {
    let row = |communicator: &CommunicatorAnalysis| {
        let most = communicator.most_exposed();
        vec![
            name_of(
                communicator.communicator_name.as_ref(),
                &communicator.communicator,
            ),
            or_dash(communicator.communicator_ranks, |size| size.to_string()),
            rank_list(&communicator.ranks),
            thousands(communicator.operations as u64),
            or_dash(communicator.bytes, bytes),
            or_dash(communicator.time_ns.values().copied().max(), duration),
            or_dash(most, |(_, time)| duration(time)),
            or_dash(most.filter(|(_, time)| *time > 0), |(rank, _)| rank.to_owned()),
        ]
    };
    let mut rows: Vec<Vec<String>> = analysis.communicators.iter().map(row).collect();
    if rows.is_empty() {
        return;
    }
    let title = cut(
        "Communicators (time and exposed time of the rank with most)",
        &mut rows,
    );
    let headings = [
        "communicator",
        "size",
        "ranks",
        "ops",
        "bytes",
        "time",
        "exposed",
        "rank",
    ];
    print_table(&title, &headings, &rows, Overflow::Continue);
}

/// What ranks sent each other.
pub fn transfers(analysis: &Analysis) {
    let rank = |rank: Option<u32>| or_dash(rank, |rank| rank.to_string());
    let mut rows: Vec<Vec<String>> = analysis
        .transfers
        .iter()
        .map(|pair| {
            let at_least = if pair.shared > 0 { ">= " } else { "" };
            let timed = |time: i64| or_dash((pair.timed > 0).then_some(time), duration);
            vec![
                name_of(pair.communicator_name.as_ref(), &pair.communicator),
                format!("{} -> {}", rank(pair.sender), rank(pair.receiver)),
                thousands(pair.count as u64),
                or_dash(pair.bytes, bytes),
                timed(pair.sender_wait_ns),
                timed(pair.receiver_wait_ns),
                timed(pair.transfer_ns),
                or_dash(pair.bandwidth, |bandwidth| {
                    format!("{at_least}{}", gigabytes_per_second(bandwidth))
                }),
            ]
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let title = cut(
        "Sends and receives (a wait: until the other end was there)",
        &mut rows,
    );
    let headings = [
        "communicator",
        "ranks",
        "count",
        "bytes",
        "sender waits",
        "receiver waits",
        "transfer",
        "bandwidth",
    ];
    print_table(&title, &headings, &rows, Overflow::Continue);
}

#[cfg(test)]
mod tests {
    use super::rank_list;

    #[test]
    fn ranks_fit_a_column() {
        assert_eq!(rank_list(&[]), "-");
        assert_eq!(rank_list(&[3]), "3");
        assert_eq!(rank_list(&[0, 1]), "0,1");
        assert_eq!(rank_list(&[0, 1, 2, 3]), "0-3");
        assert_eq!(rank_list(&[0, 2, 4, 6]), "0,2,4,6");
        assert_eq!(rank_list(&[0, 8, 16, 24, 32]), "0,8 .. 32");
    }
}
