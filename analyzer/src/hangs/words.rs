//! Hangs in words.

use std::fmt::Write;

use gputrace_trace::hang::{Absent, Hang, Waiting};

use super::candidates::Did;
use super::members::{Enqueued, Member};
use super::{Found, Scene, last_sign};
use crate::communication::communicator_text;
use crate::steps::step_number;

/// "61.2 s".
fn seconds(ns: i64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}

/// "AllReduce #12".
fn numbered(name: &str, number: Option<u64>) -> String {
    number.map_or_else(|| name.to_owned(), |number| format!("{name} #{number}"))
}

/// "rank 3", or by its place in the communicator where its rank in the job is not known.
fn who(rank: Option<u32>, communicator_rank: u32) -> String {
    rank.map_or_else(
        || format!("the communicator's rank {communicator_rank}"),
        |rank| format!("rank {rank}"),
    )
}

/// "ranks 0-2, 5 and 7".
fn ranks(mut all: Vec<(Option<u32>, u32)>) -> String {
    all.sort_unstable();
    all.dedup();
    if let [(rank, communicator_rank)] = all.as_slice() {
        return who(*rank, *communicator_rank);
    }
    let known: Option<Vec<u32>> = all.iter().map(|(rank, _)| *rank).collect();
    let (word, numbers) = known.map_or_else(
        || {
            let numbers = all.iter().map(|(_, rank)| *rank).collect();
            ("the communicator's ranks", numbers)
        },
        |numbers: Vec<u32>| ("ranks", numbers),
    );
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let mut parts: Vec<String> = parts
        .into_iter()
        .flat_map(|(first, last)| match last - first {
            0 => vec![first.to_string()],
            1 => vec![first.to_string(), last.to_string()],
            _ => vec![format!("{first}-{last}")],
        })
        .collect();
    let end = parts.pop().unwrap_or_default();
    if parts.is_empty() {
        format!("{word} {end}")
    } else {
        format!("{word} {} and {end}", parts.join(", "))
    }
}

fn waiting_ranks(waiting: &[Waiting]) -> String {
    ranks(
        waiting
            .iter()
            .map(|waiting| (waiting.rank, waiting.communicator_rank))
            .collect(),
    )
}

fn absent_ranks<'a>(absent: impl Iterator<Item = &'a Absent>) -> String {
    ranks(
        absent
            .map(|absent| (absent.rank, absent.communicator_rank))
            .collect(),
    )
}

/// What hangs and who has not joined it, in one sentence.
#[must_use]
pub fn text(hang: &Hang) -> String {
    let communicator = hang.communicator_name.as_ref().map_or_else(
        || hang.communicator.clone(),
        |name| format!("{name} ({})", hang.communicator),
    );
    let waiting = waiting_ranks(&hang.waiting);
    let known: Vec<&Absent> = hang
        .absent
        .iter()
        .filter(|absent| absent.did != "not recorded")
        .collect();
    let direction = match hang.name.as_str() {
        "Send" => Some("to"),
        "Recv" => Some("from"),
        _ => None,
    };
    let operation = if let (Some(direction), [absent]) = (direction, hang.absent.as_slice()) {
        let peer = who(absent.rank, absent.communicator_rank);
        let what = numbered(&hang.name, hang.sequence);
        format!("{what} of {waiting} {direction} {peer} on communicator {communicator}")
    } else {
        let what = numbered(&hang.name, hang.sequence);
        format!("{what} of communicator {communicator}")
    };
    if known.is_empty() {
        let all = if hang.absent.is_empty() {
            "was joined by all of its ranks"
        } else {
            "was joined by all of its ranks that are recorded"
        };
        return format!(
            "Hang: {operation} {all} and does not end: look at the network, at NCCL's log (NCCL_DEBUG=INFO), and at what else runs on those GPUs"
        );
    }
    let missing = absent_ranks(known.iter().copied());
    if known.iter().all(|absent| absent.did == "behind") {
        return format!(
            "Hang: {operation} waits for {missing}, which enqueued it behind an operation that waits itself: enqueue in one order on all ranks, and transfers that need each other in one group"
        );
    }
    if direction.is_some()
        && known
            .iter()
            .all(|absent| matches!(absent.did.as_str(), "nothing" | "waits"))
    {
        let other = if hang.name == "Send" {
            "Recv from"
        } else {
            "Send to"
        };
        return format!("Hang: {operation}: {missing} has enqueued no {other} {waiting}");
    }
    if known
        .iter()
        .any(|absent| matches!(absent.did.as_str(), "other" | "differs"))
    {
        return format!(
            "Hang: {operation} does not end: {missing} called something else in its place: all ranks must call the same collectives in the same order, with the same sizes and types"
        );
    }
    if known.iter().any(|absent| absent.did == "enqueued") {
        let whose = if known.len() == 1 {
            "whose process does not run"
        } else {
            "whose processes do not run, or have not joined it"
        };
        return format!("Hang: {operation} waits for {missing}, {whose}");
    }
    format!("Hang: {operation} was never joined by {missing}")
}

/// The figures: who waits since when, what the others did instead.
#[must_use]
pub fn evidence(hang: &Hang) -> String {
    let since = hang.waiting.iter().map(|waiting| waiting.since_ns).min();
    let waits = hang.noticed_ns - since.unwrap_or(hang.noticed_ns);
    let verb = if hang.waiting.len() == 1 { "waits" } else { "wait" };
    let mut text = format!(
        "{} {verb} in it for {} ({} x {}, {} bytes)",
        waiting_ranks(&hang.waiting),
        seconds(waits.0),
        hang.count,
        hang.dtype,
        hang.bytes
    );
    // What many ranks did alike is said once.
    let mut told: Vec<(&str, Vec<&Absent>)> = Vec::new();
    for absent in &hang.absent {
        match told.iter_mut().find(|(text, _)| *text == absent.text) {
            Some((_, alike)) => alike.push(absent),
            None => told.push((&absent.text, vec![absent])),
        }
    }
    for (what, alike) in told {
        let _ = write!(text, "; {} {what}", absent_ranks(alike.into_iter()));
    }
    if hang.unfinished_before > 0 {
        let _ = write!(
            text,
            "; of {} operations that it enqueued before on this communicator no end is recorded either",
            hang.unfinished_before
        );
    }
    let _ = write!(text, "; no GPU finished anything for {}", seconds(hang.silent_ns));
    text
}

impl Scene<'_> {
    fn operation(&self, operation: &Enqueued) -> String {
        let names = &self.recording.names;
        let name = names.get(operation.function);
        let peer = match (name, operation.peer) {
            ("Send", Some(peer)) => format!(" to the communicator's rank {peer}"),
            ("Recv", Some(peer)) => format!(" from the communicator's rank {peer}"),
            _ => String::new(),
        };
        let root = operation
            .root
            .map_or_else(String::new, |root| format!(", root {root}"));
        format!(
            "{}{peer} ({} x {}{root})",
            numbered(name, operation.sequence),
            operation.count,
            names.get(operation.dtype)
        )
    }

    /// What stands after "rank 3": how its process is, and what it did instead.
    pub(super) fn words(
        &self,
        hang: &Hang,
        member: &Member,
        did: Did,
        elsewhere: Option<&Found<'_>>,
        state: &str,
    ) -> String {
        let process = &self.recording.processes[member.process];
        let mut parts: Vec<String> = Vec::new();
        let pid = process.header.pid;
        match state {
            "stopped" => parts.push(format!(
                "is stopped by a signal (process {pid}; kill -CONT {pid} lets it go on)"
            )),
            "ended" => parts.push(format!("has ended (process {pid})")),
            "silent" => {
                let before = last_sign(process).map_or(0, |last| self.now_ns - last);
                parts.push(format!(
                    "has written nothing for {} (process {pid}): it was killed or stopped, or its host is gone",
                    seconds(before)
                ));
            }
            _ => {}
        }
        let ago = |operation: &Enqueued| seconds(self.now_ns - operation.at_ns);
        match did {
            Did::NotRecorded => {}
            Did::Nothing => {
                // What a process did in its last second is only on the disk if it went on after that.
                let recorded = if state == "running" {
                    ""
                } else {
                    " that is recorded"
                };
                let last = member.operations.last().map_or_else(
                    || format!("has enqueued nothing on this communicator{recorded}"),
                    |last| {
                        let no_more = if matches!(hang.name.as_str(), "Send" | "Recv") {
                            "has enqueued no partner of it"
                        } else {
                            "has not enqueued it"
                        };
                        format!(
                            "{no_more}: its last on this communicator{recorded} is {}, {} ago",
                            self.operation(last),
                            ago(last)
                        )
                    },
                );
                parts.push(last);
                if let Some((other, (rank, place))) =
                    elsewhere.and_then(|other| Some((other, self.waiting_of(other, member.process)?)))
                {
                    let theirs = &other.communicator.members[&rank].operations[place];
                    let name = other
                        .communicator
                        .name
                        .clone()
                        .unwrap_or_else(|| communicator_text(Some(other.hash)));
                    parts.push(format!(
                        "waits in {} of communicator {name} instead",
                        self.operation(theirs)
                    ));
                }
            }
            Did::Other(place) | Did::Differs(place) => {
                let theirs = &member.operations[place];
                let verb = if matches!(did, Did::Other(_)) {
                    "enqueued another operation"
                } else {
                    "enqueued it with other arguments"
                };
                parts.push(format!("{verb}: {}, {} ago", self.operation(theirs), ago(theirs)));
            }
            Did::Halted(place) => {
                parts.push(format!("had enqueued it, {} ago", ago(&member.operations[place])));
            }
            Did::Behind(place) => {
                let theirs = &member.operations[place];
                parts.push(format!("has it behind {}", self.operation(theirs)));
            }
        }
        parts.extend(self.last_ranges(member.process));
        parts.join(", ")
    }

    /// The rank and place by which a process waits in a hang.
    fn waiting_of(&self, found: &Found<'_>, process: usize) -> Option<(u32, usize)> {
        let members = &found.communicator.members;
        let mut waiting = found.candidate.waiting.iter().copied();
        waiting.find(|(rank, _)| members[rank].process == process)
    }

    /// The last range that a process finished, and the last step.
    fn last_ranges(&self, process: usize) -> Option<String> {
        let names = &self.recording.names;
        let markers = &self.recording.processes[process].tables.markers;
        let ended = (0..markers.start_ns.len()).filter_map(|row| {
            Some((
                markers.start_ns[row]
                    .0
                    .saturating_add(markers.duration_ns[row]?.0),
                row,
            ))
        });
        let (mut last, mut step) = (None, None);
        for (end, row) in ended {
            last = last.max(Some((end, row)));
            if step < Some((end, row)) && step_number(names.get(markers.name[row])).is_some() {
                step = Some((end, row));
            }
        }
        let (last_end, last) = last?;
        let told = |row: usize, end: i64| {
            format!(
                "\"{}\", {} ago",
                names.get(markers.name[row]),
                seconds(self.now_ns - end)
            )
        };
        Some(match step {
            Some((end, step)) if step != last => format!(
                "the last step that it finished is {}, and the last range {}",
                told(step, end),
                told(last, last_end)
            ),
            Some(_) => format!("the last step that it finished is {}", told(last, last_end)),
            None => format!("the last range that it finished is {}", told(last, last_end)),
        })
    }
}
