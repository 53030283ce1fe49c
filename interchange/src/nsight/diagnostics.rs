//! What Nsight Systems itself reports as lost.

use std::collections::BTreeMap;

use super::rows::{Import, one_line};

const TABLE: &str = "DIAGNOSTIC_EVENT";
/// `ENUM_DIAGNOSTIC_SEVERITY_LEVEL`.
const WARNING: i64 = 2;
const ERROR: i64 = 3;

/// What a message is to a reader of the recording.
enum Message {
    Loss(&'static str),
    Note,
    Nothing,
}

/// Sorts a warning by its words: "Not all CUDA events might have been collected." is a loss.
fn sort(text: &str) -> Message {
    let text = text.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let nvtx = has(&["nvtx"]);
    let cuda = has(&["cuda", "cupti", "gpu"]);
    if !(nvtx || cuda) {
        return Message::Nothing;
    }
    let lost = has(&[
        "lost",
        "drop",
        "missing",
        "missed",
        "not all",
        "discard",
        "overflow",
        "incomplete",
        "exceed",
        "might have not been",
    ]);
    match (lost, cuda) {
        (true, true) => Message::Loss("GPU operations and CUDA calls: all times and counts"),
        (true, false) => Message::Loss("NVTX ranges and marks"),
        (false, _) => Message::Note,
    }
}

/// How many a message says were lost, as in "12 CUDA events were dropped" and "CUDA events lost: 12"; other numbers in it
/// (versions, sizes of buffers) are none of that.
fn count_in(text: &str) -> Option<u64> {
    const COUNTED: [&str; 8] = [
        "cuda", "cupti", "nvtx", "gpu", "event", "record", "range", "activit",
    ];
    const BEFORE: [&str; 5] = ["events:", "records:", "ranges:", "lost:", "dropped:"];
    let text = text.to_ascii_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let number = word.trim_end_matches(['.', ',', ';']).parse().ok()?;
        let counted = words
            .get(at + 1)
            .is_some_and(|next| COUNTED.iter().any(|start| next.starts_with(start)));
        let after = at > 0 && BEFORE.contains(&words[at - 1]);
        (counted || after).then_some(number)
    })
}

/// Reads the warnings and errors about CUDA and NVTX of processes that used CUDA, and of the recording as a whole.
pub(super) fn read(import: &mut Import<'_>) {
    let mut losses: BTreeMap<(String, &'static str), Option<u64>> = BTreeMap::new();
    let mut notes: BTreeMap<String, u64> = BTreeMap::new();
    let mut elsewhere = 0u64;
    let columns = ["severity", "text", "globalPid"];
    let database = import.database;
    let end = database.each(TABLE, &columns, |cells| {
        let (Ok(Some(WARNING | ERROR)), Ok(Some(text))) = (cells.integer(0), cells.text(1)) else {
            return;
        };
        let message = sort(&text);
        if matches!(message, Message::Nothing) {
            return;
        }
        let place = cells.integer(2).ok().flatten().map(|global| {
            // The recording's own messages are of process 0.
            ((global >> 24) & 0xff_ffff != 0).then(|| import.processes.known(global))
        });
        let process = match place.flatten() {
            Some(None) => {
                elsewhere += 1;
                return;
            }
            Some(Some(place)) => format!("{}: ", import.processes.list()[place].folder),
            None => String::new(),
        };
        let line = format!("{process}Nsight Systems says: {}", one_line(&text));
        match message {
            Message::Loss(affects) => {
                let count = count_in(&text);
                let known = losses.entry((line, affects)).or_insert(count);
                *known = known.or(count);
            }
            Message::Note => *notes.entry(line).or_insert(0) += 1,
            Message::Nothing => {}
        }
    });
    for ((what, affects), count) in losses {
        import.losses.lose(what, count, affects);
    }
    import.notes.extend(notes.into_keys());
    if elsewhere > 0 {
        import.notes.push(format!(
            "{elsewhere} warnings of Nsight Systems about processes that used no CUDA are left out"
        ));
    }
    if end.is_err() {
        import.losses.lose(
            format!("{TABLE} could not be read to its end: the file is cut or damaged"),
            None,
            "what Nsight Systems itself reports as lost",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_from_remarks() {
        let loss = |text| matches!(sort(text), Message::Loss(_));
        assert!(loss("Not all CUDA events might have been collected."));
        assert!(loss("12 CUDA events were dropped"));
        assert!(loss("NVTX events were lost: 3"));
        assert!(!loss("No NVTX events collected. Does the process use NVTX?"));
        assert!(!loss(
            "Installed CUDA driver version (12.0) is not supported by this build of Nsight Systems."
        ));
        assert!(!loss("4 CPU IP samples were lost"));
        assert_eq!(count_in("12 CUDA events were dropped"), Some(12));
        assert_eq!(count_in("NVTX events were lost: 3."), Some(3));
        assert_eq!(count_in("CUDA 12.4 events were lost"), None);
        assert_eq!(count_in("CUDA events dropped: buffer of 64 MB exceeded"), None);
    }
}
