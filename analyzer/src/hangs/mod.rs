//! Hangs: collectives and transfers that are enqueued and never end, and the ranks that have not joined them.
//!
//! The recorder asks while a job runs, with what it knows of the processes; the analysis asks of what is left.

mod candidates;
mod members;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_trace::hang::{Absent, Hang, Waiting};
use gputrace_trace::manifest::Manifest;
use gputrace_trace::options::GraphLevel;
use gputrace_trace::tables::Tables;
use gputrace_trace::{DurationNs, Interner, Process, Recording, Table, TimeNs};

use crate::communication::communicator_text;
use crate::steps::step_number;
use candidates::{Candidate, Did, candidates};
use members::{Communicator, Member, communicators};
pub use words::{evidence, text};

/// The tables that [`hangs`] reads.
pub const TABLES: &[&str] = &[
    "kernels",
    "copies",
    "memsets",
    "collectives",
    "communicators",
    "external_correlations",
    "markers",
    "clocks",
];

/// A recording that ends so long after its last finished operation may have hung, if its recorder would not have waited
/// less.
const SILENCE_NS: i64 = 10_000_000_000;
/// A process whose recording ends so much before the others' was stopped or killed: each writes about once a second.
const SILENT_NS: i64 = 3_000_000_000;

/// How a process is, as the recorder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs, or waits.
    Running,
    /// By a signal.
    Stopped,
    /// It is gone.
    Ended,
}

/// What is known besides the recording.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// The time, nanoseconds since the epoch; `None` of a recording that does not grow any more.
    pub now_ns: Option<i64>,
    /// For how long nothing may have finished before it is a hang; `None` for what [`after_the_fact`] takes.
    pub least_silence_ns: Option<i64>,
    /// Processes by their folders, where they can be looked at.
    pub states: BTreeMap<String, ProcessState>,
}

/// The hangs of a recording: those that its recorder noticed, or what it shows of itself.
#[must_use]
pub fn after_the_fact(recording: &Recording) -> Vec<Hang> {
    let manifest = &recording.manifest;
    if !manifest.hangs.is_empty() {
        return manifest.hangs.clone();
    }
    if !may_have_hung(manifest) {
        return Vec::new();
    }
    hangs(recording, &Situation::default())
}

/// Whether a recording that ended like this is looked at for hangs afterwards, unless its recorder noticed some.
pub(crate) fn may_have_hung(manifest: &Manifest) -> bool {
    // A command that ended well did not hang, whatever records are missing; and what is not recorded looks like silence.
    let is_partial = manifest.options.is_partial() || manifest.options.graphs == GraphLevel::Graph;
    let is_imported = manifest.device == "imported";
    !(is_imported || manifest.exit_status == Some(0) || is_partial)
}

/// The rows of a process that are looked at for hangs afterwards, without the others: what it enqueued, the kernels of that, and the
/// last things that ended. Nothing where the recording is not looked at.
pub(crate) fn rows(process: &Process, names: &Interner, manifest: &Manifest) -> Tables {
    if !may_have_hung(manifest) {
        return Tables::default();
    }
    let tables = &process.tables;
    let wanted: HashSet<u64> = tables.collectives.plan.iter().flatten().copied().collect();
    let external = &tables.external_correlations;
    let tied: Vec<u32> = (0u32..)
        .zip(&external.id)
        .filter(|(_, id)| wanted.contains(id))
        .map(|(row, _)| row)
        .collect();
    let launches: HashSet<u32> = tied
        .iter()
        .map(|row| external.correlation[*row as usize])
        .collect();
    let last = |starts: &[TimeNs], durations: &[DurationNs]| -> Vec<u32> {
        let ends = starts.iter().zip(durations);
        let ends = ends.map(|(start, duration)| start.0.saturating_add(duration.0));
        let last = ends.zip(0u32..).max();
        last.map(|(_, row)| row).into_iter().collect()
    };
    let (kernels, copies, memsets) = (&tables.kernels, &tables.copies, &tables.memsets);
    let mut of_kernels = last(&kernels.start_ns, &kernels.duration_ns);
    let launched = (0u32..).zip(&kernels.correlation);
    of_kernels.extend(
        launched
            .filter(|(_, id)| launches.contains(id))
            .map(|(row, _)| row),
    );
    of_kernels.sort_unstable();
    of_kernels.dedup();
    let markers = &tables.markers;
    let ended = (0u32..).zip(&markers.start_ns).filter_map(|(row, start)| {
        let duration = markers.duration_ns[row as usize]?;
        Some((start.0.saturating_add(duration.0), row))
    });
    let is_step = |row: u32| step_number(names.get(markers.name[row as usize])).is_some();
    let last_step = ended.clone().filter(|(_, row)| is_step(*row)).max();
    let mut of_markers: Vec<u32> = ended
        .max()
        .into_iter()
        .chain(last_step)
        .map(|(_, row)| row)
        .collect();
    of_markers.sort_unstable();
    of_markers.dedup();
    Tables {
        kernels: kernels.pick(&of_kernels),
        copies: copies.pick(&last(&copies.start_ns, &copies.duration_ns)),
        memsets: memsets.pick(&last(&memsets.start_ns, &memsets.duration_ns)),
        collectives: tables.collectives.clone(),
        communicators: tables.communicators.clone(),
        external_correlations: external.pick(&tied),
        markers: markers.pick(&of_markers),
        clocks: tables.clocks.clone(),
        ..Tables::default()
    }
}

/// The last time at which a process is known to have been there.
fn last_sign(process: &Process) -> Option<i64> {
    let clocks = process.tables.clocks.realtime_ns.iter().map(|time| time.0);
    clocks.chain(process.header.ended_ns).max()
}

/// When the last operation on a GPU ended.
fn last_finished(recording: &Recording) -> Option<i64> {
    let of = |process: &Process| {
        let tables = &process.tables;
        let ends = [
            (&tables.kernels.start_ns, &tables.kernels.duration_ns),
            (&tables.copies.start_ns, &tables.copies.duration_ns),
            (&tables.memsets.start_ns, &tables.memsets.duration_ns),
        ];
        ends.into_iter()
            .flat_map(|(starts, durations)| {
                let pairs = starts.iter().zip(durations);
                pairs.map(|(start, duration)| start.0.saturating_add(duration.0))
            })
            .max()
    };
    recording.processes.iter().filter_map(of).max()
}

/// Operations that ranks wait in, those first that explain others. Empty while something finishes, and where nothing
/// enqueued is unfinished.
#[must_use]
pub fn hangs(recording: &Recording, situation: &Situation) -> Vec<Hang> {
    let Some(now_ns) = situation
        .now_ns
        .or_else(|| recording.processes.iter().filter_map(last_sign).max())
    else {
        return Vec::new();
    };
    let runs = |place: usize| state(&recording.processes[place], situation, now_ns) == "running";
    let communicators = communicators(recording, runs);
    let unfinished = communicators
        .values()
        .flat_map(|communicator| communicator.members.values())
        .filter(|member| member.runs)
        .filter_map(|member| Some(member.operations.get(member.done)?.at_ns));
    let Some(oldest) = unfinished.min() else {
        return Vec::new();
    };
    let silent_ns = now_ns.saturating_sub(last_finished(recording).unwrap_or(oldest).max(oldest));
    let said = recording.manifest.hang_after_ns.filter(|after| *after > 0);
    let least_ns = situation
        .least_silence_ns
        .unwrap_or_else(|| said.unwrap_or(SILENCE_NS).min(SILENCE_NS));
    if silent_ns < least_ns {
        return Vec::new();
    }
    let scene = Scene {
        recording,
        situation,
        now_ns,
        silent_ns,
    };
    let mut found: Vec<Found> = Vec::new();
    for (&hash, communicator) in &communicators {
        for candidate in candidates(communicator) {
            found.push(Found {
                hash,
                communicator,
                candidate,
                follows: Vec::new(),
            });
        }
    }
    explain(&mut found);
    let explained = explained(&found);
    let mut hangs: Vec<Hang> = found
        .iter()
        .zip(explained)
        .map(|(hang, follows)| scene.hang(hang, &found, follows))
        .collect();
    hangs.sort_by_key(|hang| {
        let since = hang.waiting.iter().map(|waiting| waiting.since_ns).min();
        (hang.follows, hang.absent.is_empty(), since)
    });
    hangs
}

/// An operation that does not end, on its communicator.
struct Found<'a> {
    hash: u64,
    communicator: &'a Communicator,
    candidate: Candidate,
    /// For each of `candidate.absent`: the place of another hang that it waits in.
    follows: Vec<Option<usize>>,
}

impl Found<'_> {
    /// The processes that wait in it.
    fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        let members = &self.communicator.members;
        self.candidate
            .waiting
            .iter()
            .map(|(rank, _)| members[rank].process)
    }
}

/// Finds for each rank that did nothing where it waits instead.
fn explain(found: &mut [Found<'_>]) {
    // By process: the first hang that it waits in, and the first of another communicator than that.
    let mut first: HashMap<usize, (usize, Option<usize>)> = HashMap::new();
    for (place, hang) in found.iter().enumerate() {
        for process in hang.waiting() {
            let (first, other) = first.entry(process).or_insert((place, None));
            if other.is_none() && found[*first].hash != hang.hash {
                *other = Some(place);
            }
        }
    }
    let elsewhere = |own: &Found<'_>, rank: u32| {
        let process = own.communicator.members.get(&rank)?.process;
        let (first, other) = *first.get(&process)?;
        if found[first].hash == own.hash {
            other
        } else {
            Some(first)
        }
    };
    let all: Vec<Vec<Option<usize>>> = found
        .iter()
        .map(|own| {
            let waits =
                |(rank, did): &(u32, Did)| (*did == Did::Nothing).then(|| elsewhere(own, *rank)).flatten();
            own.candidate.absent.iter().map(waits).collect()
        })
        .collect();
    for (own, follows) in found.iter_mut().zip(all) {
        own.follows = follows;
    }
}

/// Which are explained by others: all that they wait for wait in such as are not, at the end. What all have joined is
/// explained where one of those who wait in it waits elsewhere too.
fn explained(found: &[Found<'_>]) -> Vec<bool> {
    let is_joined = |own: &Found<'_>| own.candidate.is_joined();
    let is_root = |own: &Found<'_>| !is_joined(own) && own.follows.iter().any(Option::is_none);
    // `true` where a chain of waiting ends at a root.
    let mut reached: Vec<bool> = found.iter().map(is_root).collect();
    // Backwards along the chains, each hang once.
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); found.len()];
    for (place, own) in found.iter().enumerate() {
        for other in own.follows.iter().flatten() {
            followers[*other].push(place);
        }
    }
    let mut new: Vec<usize> = (0..found.len()).filter(|place| reached[*place]).collect();
    while let Some(place) = new.pop() {
        for follower in &followers[place] {
            if !std::mem::replace(&mut reached[*follower], true) {
                new.push(*follower);
            }
        }
    }
    let mut explained: Vec<bool> = found
        .iter()
        .zip(&reached)
        .map(|(own, reached)| !is_root(own) && *reached)
        .collect();
    let apart = found.iter().filter(|other| !is_joined(other));
    let wait_apart: HashSet<usize> = apart.flat_map(Found::waiting).collect();
    let joined = found.iter().enumerate().filter(|(_, own)| is_joined(own));
    for (place, own) in joined {
        explained[place] = own.waiting().any(|process| wait_apart.contains(&process));
    }
    explained
}

/// What hangs are told of.
struct Scene<'a> {
    recording: &'a Recording,
    situation: &'a Situation,
    now_ns: i64,
    silent_ns: i64,
}

impl Scene<'_> {
    fn name(&self, member: &Member, place: usize) -> String {
        self.recording
            .names
            .get(member.operations[place].function)
            .to_owned()
    }

    fn job_rank(&self, member: &Member) -> Option<u32> {
        self.recording.processes[member.process].header.rank
    }

    fn hang(&self, own: &Found<'_>, all: &[Found<'_>], follows: bool) -> Hang {
        let members = &own.communicator.members;
        let candidate = &own.candidate;
        let mut hang = Hang {
            communicator: communicator_text(Some(own.hash)),
            communicator_name: own.communicator.name.clone(),
            communicator_ranks: own.communicator.ranks,
            follows,
            silent_ns: self.silent_ns,
            noticed_ns: TimeNs(self.now_ns),
            ..Hang::default()
        };
        if let Some((rank, place)) = candidate.waiting.first() {
            let member = &members[rank];
            let operation = &member.operations[*place];
            hang.name = self.name(member, *place);
            hang.sequence = candidate
                .pair_place
                .map(|place| place as u64)
                .or(operation.sequence);
            hang.count = operation.count;
            hang.bytes = operation.bytes;
            self.recording
                .names
                .get(operation.dtype)
                .clone_into(&mut hang.dtype);
        }
        for (rank, place) in &candidate.waiting {
            let member = &members[rank];
            hang.waiting.push(Waiting {
                rank: self.job_rank(member),
                communicator_rank: *rank,
                since_ns: TimeNs(member.operations[*place].at_ns),
            });
            let before =
                (member.done..*place).filter(|before| !member.is_first(*before) || !member.is_first(*place));
            hang.unfinished_before = hang.unfinished_before.max(before.count() as u64);
        }
        let unclear = [None];
        let follows = own.follows.iter().chain(unclear.iter().cycle());
        for ((rank, did), elsewhere) in candidate.absent.iter().zip(follows) {
            let elsewhere = elsewhere.map(|place| &all[place]);
            hang.absent.push(self.absent(own, &hang, *rank, *did, elsewhere));
        }
        hang
    }

    fn absent(
        &self,
        own: &Found<'_>,
        hang: &Hang,
        rank: u32,
        did: Did,
        elsewhere: Option<&Found<'_>>,
    ) -> Absent {
        let Some(member) = own.communicator.members.get(&rank) else {
            return Absent {
                communicator_rank: rank,
                did: "not recorded".to_owned(),
                process: "unknown".to_owned(),
                text: "is not in this recording".to_owned(),
                ..Absent::default()
            };
        };
        let process = state(
            &self.recording.processes[member.process],
            self.situation,
            self.now_ns,
        );
        let word = match did {
            Did::Nothing if elsewhere.is_some() => "waits",
            Did::Nothing | Did::NotRecorded => "nothing",
            Did::Other(_) => "other",
            Did::Differs(_) => "differs",
            Did::Halted(_) => "enqueued",
            Did::Behind(_) => "behind",
        };
        Absent {
            rank: self.job_rank(member),
            communicator_rank: rank,
            did: word.to_owned(),
            process: process.to_owned(),
            text: self.words(hang, member, did, elsewhere, process),
        }
    }
}

/// How a process is: "running", "stopped", "ended", or "silent".
fn state(process: &Process, situation: &Situation, now_ns: i64) -> &'static str {
    // Whoever closed its files in good order is gone, or as good as gone.
    let closed = process.header.ended_ns.is_some();
    let silent = last_sign(process).is_some_and(|last| now_ns - last > SILENT_NS);
    match situation.states.get(&process.folder) {
        Some(ProcessState::Stopped) => "stopped",
        Some(ProcessState::Ended) => "ended",
        _ if closed && silent => "ended",
        _ if silent => "silent",
        _ => "running",
    }
}
