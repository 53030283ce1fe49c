//! What names of files say of ranks, and their order where they say nothing.

/// The rank that a file's name gives: "worker3_step_12.pt.trace.json", "rank-3.json.gz", "trace_rank3.sqlite", "3.json".
pub(crate) fn rank_in_name(file_name: &str) -> Option<u32> {
    let lower = file_name.to_ascii_lowercase();
    let number = |digits: &str| digits.parse().ok().filter(|rank| *rank < 1 << 20);
    for word in ["rank", "worker"] {
        for (at, _) in lower.match_indices(word) {
            let begins_a_word = !lower[..at].ends_with(|letter: char| letter.is_alphabetic());
            let after = lower[at + word.len()..].trim_start_matches(['_', '-', '.', '=', ' ']);
            let (digits, rest) = after.split_at(after.bytes().take_while(u8::is_ascii_digit).count());
            if let Some(rank) = number(digits).filter(|_| begins_a_word && !is_pid_and_time(rest)) {
                return Some(rank);
            }
        }
    }
    number(lower.split('.').next().unwrap_or_default())
}

/// Whether a name goes on as PyTorch's TensorBoard handler ends it: HOST_PID.TIME.pt.trace.json. What stands before belongs to
/// the host's name.
fn is_pid_and_time(rest: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = rest.split('.');
    let pid = parts.next().and_then(|part| part.strip_prefix('_'));
    pid.is_some_and(is_number) && parts.next().is_some_and(is_number) && parts.next() == Some("pt")
}

/// What to sort names by so that "TP-2" comes before "TP-10".
pub(crate) fn natural_order(name: &str) -> Vec<(String, u128)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (text, after) = rest.split_at(
            rest.find(|letter: char| letter.is_ascii_digit())
                .unwrap_or(rest.len()),
        );
        let (digits, after) = after.split_at(after.bytes().take_while(u8::is_ascii_digit).count());
        // A number of more than 38 digits is none that anything is counted by.
        parts.push((text.to_owned(), digits.parse().unwrap_or(u128::MAX)));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_stand_in_names_in_many_ways() {
        for (name, rank) in [
            ("worker3_step_12.1694128201545.pt.trace.json.gz", Some(3)),
            ("worker0.1694128201545.pt.trace.json", Some(0)),
            ("rank-12.json", Some(12)),
            ("Rank-0.sqlite", Some(0)),
            ("trace_rank_0_step5.json", Some(0)),
            ("report_rank3.sqlite", Some(3)),
            ("resnet.Rank7.pt.trace.json", Some(7)),
            ("4.json.gz", Some(4)),
            ("bert-worker-0_1234.1694128201545.pt.trace.json", None),
            ("gpu01_1234.1700000000000.pt.trace.json", None),
            ("deepseek_r1.sqlite", None),
            ("nccl_data.json.gz", None),
            ("frank7.json", None),
            ("frankfurt_run2.sqlite", None),
            ("rank99999999999.sqlite", None),
            ("trace_20240101.json", None),
        ] {
            assert_eq!(rank_in_name(name), rank, "{name}");
        }
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["TP-10.json", "TP-2.json", "TP-1.json", "A.json"];
        names.sort_by_key(|name| natural_order(name));
        assert_eq!(names, ["A.json", "TP-1.json", "TP-2.json", "TP-10.json"]);
    }
}
