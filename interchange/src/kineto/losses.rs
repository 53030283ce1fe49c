//! What was lost of a file and what was not used, as losses and notes.

use gputrace_trace::{Loss, Recording};

use super::convert::is_used;
use super::converter::Counts;
use super::reader::Ending;
use super::text::TextTrouble;

/// What a loss touches that may have cost any event: they stand in no order of time.
const EVERY_NUMBER: &str = "every number of that rank";

/// What was lost of a file.
pub(crate) fn of_file(
    recording: &mut Recording,
    name: &str,
    ending: &Ending,
    counts: &Counts,
    calling: usize,
    trouble: &TextTrouble,
    unread: &[String],
) {
    let mut lose = |what: String, count: Option<u64>, affects: &str| {
        if count != Some(0) {
            recording.losses.push(Loss {
                what: format!("{name}: {what}"),
                count,
                affects: affects.to_owned(),
            });
        }
    };
    match ending {
        Ending::Whole => {}
        Ending::Cut(why, at) => lose(
            format!(
                "{why}, after {} events (byte {at}); they are analysed",
                counts.events
            ),
            None,
            EVERY_NUMBER,
        ),
        Ending::Damaged(at) => lose(
            format!(
                "not JSON at byte {at}, after {} events; what follows was not read",
                counts.events
            ),
            None,
            EVERY_NUMBER,
        ),
        Ending::Followed(bytes) => lose(
            format!(
                "{bytes} bytes behind the end of its JSON were not read: are these several files in one?"
            ),
            Some(1),
            "every number of that rank, if they are of the trace",
        ),
        Ending::FollowedByDamage(why) => lose(
            format!("its packed bytes do not end as they should ({why}), behind the end of its JSON"),
            Some(1),
            "nothing, if no more than a checksum or padding is missing or damaged",
        ),
        Ending::ChecksumDiffers => lose(
            "its packed bytes have another checksum: any event may be damaged".to_owned(),
            None,
            EVERY_NUMBER,
        ),
    }
    lose(
        "events stand before the names of their processes (was the file put in another order?): whose they are is guessed"
            .to_owned(),
        Some(counts.named_late),
        "every number of the file",
    );
    lose(
        "events of processes that have no name beside others that do: counted with the first".to_owned(),
        Some(counts.unowned),
        EVERY_NUMBER,
    );
    if calling > 1 {
        lose(
            format!(
                "calls of {calling} processes are in it, and nothing tells whose the GPUs' work is: taken for one rank's"
            ),
            Some(1),
            EVERY_NUMBER,
        );
    }
    lose(
        "lists of events after the first: all are taken".to_owned(),
        Some(counts.more_lists),
        EVERY_NUMBER,
    );
    lose(
        "events whose args could not be read, or not to their end".to_owned(),
        Some(counts.damaged_args),
        "devices, streams, launches, bytes and collectives",
    );
    lose(
        "device operations whose args say no device: taken for that of their process id, or 0".to_owned(),
        Some(counts.odd_devices),
        "every number of that device",
    );
    lose(
        "elements that are no JSON".to_owned(),
        Some(counts.damaged),
        EVERY_NUMBER,
    );
    lose(
        "elements of more than 16 MiB".to_owned(),
        Some(counts.too_long),
        EVERY_NUMBER,
    );
    lose(
        "elements that are no events".to_owned(),
        Some(counts.not_events),
        "nothing, if they were none",
    );
    lose(
        "events with a time or duration out of range".to_owned(),
        Some(counts.out_of_range),
        EVERY_NUMBER,
    );
    lose(
        "events without a time or a duration".to_owned(),
        Some(counts.no_time),
        EVERY_NUMBER,
    );
    lose(
        "events that end before they begin, left out".to_owned(),
        Some(counts.backwards),
        "every duration of that rank",
    );
    lose(
        "events without a name".to_owned(),
        Some(counts.no_name),
        EVERY_NUMBER,
    );
    lose(
        "correlation ids of more than 32 bits".to_owned(),
        Some(counts.odd_correlations),
        "idle causes and launch statistics",
    );
    lose(
        "strings with bytes that are no UTF-8, replaced".to_owned(),
        Some(trouble.not_utf8),
        "names",
    );
    lose(
        "strings with broken escapes, replaced".to_owned(),
        Some(trouble.bad_escapes),
        "names",
    );
    lose(
        "names of more than 256 KiB, cut".to_owned(),
        Some(trouble.too_long),
        "names",
    );
    for member in unread {
        lose(
            format!("{member} could not be used"),
            Some(1),
            "the rank, its times beside those of others, or names of devices",
        );
    }
    if counts.duplicates > 0 {
        recording.notes.push(format!(
            "{name}: {} twice in an object; the last of them counts",
            if counts.duplicates == 1 {
                "1 member stands".to_owned()
            } else {
                format!("{} members stand", counts.duplicates)
            }
        ));
    }
}

/// What of a file no measure uses.
pub(crate) fn note_unused(recording: &mut Recording, name: &str, ending: &Ending, counts: &Counts) {
    // The profiler's own frame and what only repeats other events.
    const EXPECTED: &[&str] = &["Trace", "gpu_user_annotation", "ac2g", "fwdbwd", "cuda_event"];
    let unused: Vec<String> = counts
        .unused
        .iter()
        .filter(|((_, category), _)| !is_used(category.as_bytes()))
        .filter(|((phase, category), _)| {
            let an_instant = matches!(phase, b'i' | b'I') && category.is_empty();
            !an_instant && !matches!(phase, b'B' | b'E') && !EXPECTED.contains(&category.as_str())
        })
        .map(|((phase, category), count)| {
            let phase = char::from(*phase);
            if category.is_empty() {
                format!("{count} of phase {phase:?} without a category")
            } else {
                format!("{count} of {category}")
            }
        })
        .collect();
    if !unused.is_empty() {
        recording.notes.push(format!(
            "{name}: events that no measure uses are left out: {}",
            unused.join(", ")
        ));
    }
    // Complete events are the ones that carry what is measured.
    for ((phase, category), count) in &counts.unused {
        if is_used(category.as_bytes()) || matches!(phase, b'B' | b'E') {
            let phase = match phase {
                0 => "without a phase".to_owned(),
                phase => format!("of phase {:?}", char::from(*phase)),
            };
            let category = if category.is_empty() {
                "no category"
            } else {
                category
            };
            recording.losses.push(Loss {
                what: format!("{name}: events {phase} ({category}), where complete ones (\"X\") are read"),
                count: Some(*count),
                affects: EVERY_NUMBER.to_owned(),
            });
        }
    }
    if counts.device_operations == 0 && *ending == Ending::Whole {
        recording.notes.push(format!(
            "{name}: no GPU operation in it: it was profiled without GPU activities, or the rank used no GPU"
        ));
    }
}

/// Which streams got other numbers than the file's.
pub(crate) fn renumbered_streams(recording: &mut Recording, name: &str, renumbered: &[(u32, String)]) {
    if !renumbered.is_empty() {
        let list: Vec<String> = renumbered
            .iter()
            .take(8)
            .map(|(number, text)| format!("{number} is {text}"))
            .collect();
        recording.notes.push(format!(
            "{name}: streams whose numbers do not fit 31 bits got others: {}{}",
            list.join(", "),
            if renumbered.len() > 8 { ", ..." } else { "" }
        ));
    }
}
