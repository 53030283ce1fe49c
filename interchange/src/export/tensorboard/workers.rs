//! What workers are called: the names of their files, from which the plugins take host, rank and span.

use std::collections::HashSet;

use gputrace_trace::Recording;

/// Host names have 64 bytes on Linux; what is longer comes from an imported file.
const LONGEST_HOST: usize = 100;

/// `HOST_RANK` of each process, no two alike. The rank is its place where it is not known.
pub(in crate::export) fn worker_names(recording: &Recording) -> Vec<String> {
    let mut taken = HashSet::new();
    (0u32..)
        .zip(&recording.processes)
        .map(|(place, process)| {
            let host = host_name(&process.header.host);
            let mut rank = process.header.rank.unwrap_or(place);
            loop {
                let name = format!("{host}_{rank}");
                if taken.insert(name.clone()) {
                    return name;
                }
                rank = rank.saturating_add(1);
            }
        })
        .collect()
}

/// A host's name as a part of a file's.
fn host_name(host: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let name: String = host
        .chars()
        .take(LONGEST_HOST)
        .map(|letter| if is_plain(letter) { letter } else { '-' })
        .collect();
    match name.trim_start_matches('.') {
        "" => "host".to_owned(),
        name => name.to_owned(),
    }
}

/// torch-tb-profiler's name of a worker's file. Spans are sorted as texts, so they have 19 digits, as nanoseconds since the
/// epoch have from 2001 to 2286.
pub(super) fn file_name(worker: &str, stamp_ns: i64) -> String {
    format!("{worker}.{stamp_ns:019}.pt.trace.json.gz")
}

#[cfg(test)]
mod tests {
    use gputrace_trace::Process;

    use super::*;

    fn names(processes: &[(&str, Option<u32>)]) -> Vec<String> {
        let mut recording = Recording::default();
        for (host, rank) in processes {
            let mut process = Process::default();
            process.header.host = (*host).to_owned();
            process.header.rank = *rank;
            recording.processes.push(process);
        }
        worker_names(&recording)
    }

    #[test]
    fn workers_have_names_of_their_own() {
        let found = names(&[
            ("node_1", Some(0)),
            ("10.0.0.7", Some(1)),
            ("", None),
            ("../x y\u{e9}", Some(3)),
            ("node_1", Some(0)),
        ]);
        assert_eq!(found, ["node_1_0", "10.0.0.7_1", "host_2", "-x-y-_3", "node_1_1"]);
    }

    #[test]
    fn spans_have_a_fixed_width() {
        assert_eq!(
            file_name("10.0.0.7_1", 1_790_000_000_000_000_123),
            "10.0.0.7_1.1790000000000000123.pt.trace.json.gz"
        );
        assert_eq!(file_name("h_0", 5), "h_0.0000000000000000005.pt.trace.json.gz");
    }
}
