//! The graph of a job: all ranks, for some of its steps.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::{Recording, parallel};
use rustc_hash::FxHashMap;

use super::chosen::{Chosen, ProcessSteps, Step};
use super::dag::{Graph, Node};
use super::hidden;
use super::meetings::{self, Joined};
use super::nodes::{Counts, Label, MeetingParts, NO_STEP, Nodes, Part, Source, What};
use super::process;
use super::rows;
use crate::collectives::Collective;
use crate::links::Nvlinks;

/// A device of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// The process's place in the recording.
    pub(crate) process: u32,
    /// Device index within it.
    pub(crate) index: u32,
    /// Its rank.
    pub(crate) rank: Option<u32>,
    pub(crate) host: String,
}

/// A collective's name on a communicator; a transfer's between two ranks of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) communicator: String,
    pub(crate) communicator_name: Option<String>,
    pub(crate) ranks: Vec<u32>,
    /// Whether all of its ranks were recorded.
    pub(crate) is_whole: bool,
    /// Whether it is a transfer between two ranks.
    pub(crate) is_pair: bool,
    /// What the NVLinks between all its ranks carry, GB/s in one direction; `None` where that is not known.
    pub(crate) link: Option<f64>,
}

impl Kind {
    /// What its communicator is called: its name, or its hash.
    pub(crate) fn label(&self) -> &str {
        self.communicator_name.as_deref().unwrap_or(&self.communicator)
    }
}

/// The graph of some steps of a job.
pub(crate) struct Job {
    pub(crate) graph: Graph,
    /// By node.
    pub(crate) what: Vec<What>,
    pub(crate) devices: Vec<Device>,
    /// What [`Label::Collective`] numbers.
    pub(crate) kinds: Vec<Kind>,
    pub(crate) steps: Vec<Step>,
    /// Whether the recording has steps; else all of it is taken for one.
    pub(crate) has_steps: bool,
    pub(crate) counts: Counts,
    /// Waits that were left out because they would be circles: a wrong match.
    pub(crate) cut: usize,
    /// When the replay counts from, as a stamp.
    pub(crate) origin: i64,
    /// When each node ended, as recorded (what a replay without changes gives), since the origin.
    pub(crate) ends: Vec<i64>,
    /// The time of each step by the recorded stamps, as in [`Job::step_times`].
    pub(crate) measured: Vec<i64>,
    /// Steps of the recording beyond those.
    pub(crate) left_out: usize,
}

impl Job {
    /// Of steps that were chosen; `None` where nothing ran in them. `sources` are the processes' rows, at least those of these steps.
    pub(crate) fn new(
        recording: &Recording,
        sources: &[rows::Source<'_>],
        collectives: &[Collective],
        steps_of: &[ProcessSteps<'_>],
        ranks: &[Option<u32>],
        comparable: bool,
        chosen: Chosen,
    ) -> Option<Self> {
        let processes = &recording.processes;
        let mut devices = Vec::new();
        let mut places: Vec<FxHashMap<u32, u16>> = vec![FxHashMap::default(); processes.len()];
        for (process, steps) in (0u32..).zip(steps_of) {
            for index in steps.used {
                let place = u16::try_from(devices.len()).ok()?;
                places[process as usize].insert(*index, place);
                devices.push(Device {
                    process,
                    index: *index,
                    rank: ranks[process as usize],
                    host: processes[process as usize].header.host.clone(),
                });
            }
        }
        let meeting = meetings::kernels(processes.len(), collectives);
        let made: Vec<Nodes> = parallel::map(processes.len(), |place| {
            let windows = chosen.windows(&steps_of[place]);
            let devices = steps_of[place].devices.filter(|_| chosen.by_steps);
            let on_devices = devices.into_iter().flatten();
            let on_devices = on_devices.map(|(device, windows)| (*device, chosen.among(windows)));
            let span = match (windows.first(), windows.last()) {
                (Some(first), Some(last)) if chosen.by_steps => (first.start, last.end),
                _ if chosen.by_steps => (0, 0),
                _ => (i64::MIN, i64::MAX),
            };
            let source = &sources[place];
            let meeting = &meeting[place];
            let of_kept = source.kept.map(|kept| {
                let kernels = meeting.iter().filter_map(|((device, row), collective)| {
                    Some(((*device, kept.kernel(*row)?), *collective))
                });
                kernels.collect::<FxHashMap<_, _>>()
            });
            let mut nodes = process::nodes(&Source {
                process: source.process,
                operations: source.operations,
                names: &recording.names,
                windows,
                on_host: !chosen.by_steps || steps_of[place].on_host,
                on_devices: on_devices.collect(),
                span,
                places: places[place].clone(),
                meeting: of_kept.as_ref().unwrap_or(meeting),
            });
            if let Some(kept) = source.kept {
                kept.restore(&mut nodes.what, &mut nodes.parts);
            }
            nodes
        });
        Self::join(recording, sources, collectives, made, devices, chosen, comparable)
    }

    fn join(
        recording: &Recording,
        sources: &[rows::Source<'_>],
        collectives: &[Collective],
        made: Vec<Nodes>,
        devices: Vec<Device>,
        chosen: Chosen,
        comparable: bool,
    ) -> Option<Self> {
        let mut all = Nodes::default();
        let mut parts = Vec::with_capacity(made.len());
        for nodes in made {
            let offset = all.builder.append(nodes.builder);
            all.what.extend(nodes.what);
            all.ends.extend(nodes.ends);
            all.counts.add(nodes.counts);
            let moved = nodes.parts.into_iter();
            let moved = moved.map(|(kernel, (arrival, end))| (kernel, (arrival + offset, end + offset)));
            parts.push(moved.collect::<MeetingParts>());
        }
        let (mut kinds, labels) = kinds(collectives);
        find_links(recording, &devices, &mut kinds);
        meetings::join(
            sources,
            collectives,
            &labels,
            &mut Joined {
                builder: &mut all.builder,
                what: &mut all.what,
                ends: &mut all.ends,
                parts: &parts,
            },
        );
        if comparable {
            let begun = all.ends.iter().min().copied().unwrap_or(0);
            let over = all.ends.iter().max().copied().unwrap_or(0);
            let step_ns = over.saturating_sub(begun) / i64::try_from(chosen.steps.len()).unwrap_or(1).max(1);
            all.counts.hidden = hidden::explain(&mut all, step_ns);
        }
        let finished = all.builder.finish(&all.ends);
        let mut graph = finished.graph;
        let cut = finished.cut.len();
        let mut what = all.what.clone();
        let mut recorded = vec![0; what.len()];
        for (place, number) in finished.number.iter().enumerate() {
            what[*number as usize] = all.what[place];
            recorded[*number as usize] = all.ends[place];
        }
        let counts = all.counts;
        drop((all.what, all.ends, all.parts, finished.number));
        // What begins on its own begins at its stamp: counted from the first one.
        let alone = |node: usize| graph.waits(u32::try_from(node).unwrap_or(u32::MAX)).is_empty();
        let roots: Vec<usize> = (0..graph.len()).filter(|node| alone(*node)).collect();
        let origin = roots
            .iter()
            .map(|node| recorded[*node] - graph.work[*node])
            .min()?;
        for node in roots {
            graph.gap[node] = recorded[node] - graph.work[node] - origin;
        }
        let mut ends = Vec::new();
        graph.replay(&graph.work, &graph.gap, &mut ends);
        let mut job = Self {
            graph,
            what,
            devices,
            kinds,
            has_steps: chosen.by_steps,
            steps: chosen.steps,
            counts,
            cut,
            origin,
            ends,
            measured: Vec::new(),
            left_out: chosen.left_out,
        };
        job.find_last();
        job.leave_out_empty_steps();
        let since = recorded.iter().map(|stamp| stamp.saturating_sub(origin));
        job.measured = job.step_times(&since.collect::<Vec<_>>());
        (!job.steps.is_empty()).then_some(job)
    }

    /// Finds the last operations of each step that compute or communicate (in a step without any, copies), by device and kind of operation: in a changed replay others may be last.
    fn find_last(&mut self) {
        let mut last: BTreeMap<(u32, u16, Part, u64), Node> = BTreeMap::new();
        for (node, what) in (0u32..).zip(&self.what) {
            if what.step == NO_STEP || !what.part.is_operation() {
                continue;
            }
            // Collectives of each communicator have a stream of their own, usually.
            let label = match what.label {
                Label::Collective(kind) => u64::from(kind) + 1,
                _ => 0,
            };
            let last = last
                .entry((what.step, what.device, what.part, label))
                .or_insert(node);
            if self.ends[*last as usize] <= self.ends[node as usize] {
                *last = node;
            }
        }
        // Copies may be of later steps: a loader runs ahead. What waits for one is behind it.
        let is_copy = |part: Part| matches!(part, Part::Copy | Part::Memset);
        let others: BTreeSet<u32> = last
            .keys()
            .filter(|(_, _, part, _)| !is_copy(*part))
            .map(|(step, ..)| *step)
            .collect();
        last.retain(|(step, _, part, _), _| !is_copy(*part) || !others.contains(step));
        for ((step, ..), node) in last {
            if let Some(step) = self.steps.get_mut(step as usize) {
                step.last.push(node);
            }
        }
        for (node, what) in self.what.iter().enumerate() {
            if what.part.is_operation()
                && let Some(step) = self.steps.get_mut(what.step as usize)
            {
                step.begin = step
                    .begin
                    .min(self.ends[node].saturating_sub(self.graph.work[node]));
            }
        }
    }

    /// Leaves out the steps in which no operation runs; what comes after one follows nothing.
    fn leave_out_empty_steps(&mut self) {
        let mut places = vec![NO_STEP; self.steps.len()];
        let (mut kept, mut before_is_there) = (0, false);
        for (place, step) in places.iter_mut().zip(&mut self.steps) {
            step.follows &= before_is_there;
            before_is_there = !step.last.is_empty();
            if before_is_there {
                *place = kept;
                kept += 1;
            }
        }
        for what in &mut self.what {
            what.step = places.get(what.step as usize).copied().unwrap_or(NO_STEP);
        }
        self.steps.retain(|step| !step.last.is_empty());
    }

    /// Whose a node is.
    pub(crate) fn rank(&self, node: Node) -> Option<u32> {
        self.devices[self.what[node as usize].device as usize].rank
    }

    /// When a node began, as a stamp.
    pub(crate) fn began(&self, node: Node) -> i64 {
        self.origin
            .saturating_add(self.ends[node as usize])
            .saturating_sub(self.graph.work[node as usize])
    }

    /// When each step was over on all ranks, with these ends of nodes.
    pub(crate) fn step_ends(&self, ends: &[i64]) -> Vec<i64> {
        let of = |step: &Step| {
            step.last
                .iter()
                .map(|node| ends[*node as usize])
                .max()
                .unwrap_or(0)
        };
        self.steps.iter().map(of).collect()
    }

    /// From when the steps are followed (all ranks were through with the first, where there are several), and the node that was
    /// over last.
    pub(crate) fn followed(&self, ends: &[i64]) -> (i64, Option<Node>) {
        let over = self.step_ends(ends);
        let last = self.steps.iter().flat_map(|step| &step.last).copied();
        let last = last.max_by_key(|node| ends[*node as usize]);
        let from = match over.as_slice() {
            [first, _, ..] => *first,
            _ => over.first().map_or(0, |over| {
                over.saturating_sub(self.step_times(ends).first().copied().unwrap_or(0))
            }),
        };
        (from, last)
    }

    /// The mean time of a step: from when all ranks were through with one to when they were through with the next. Of a single
    /// step, and of steps that don't follow each other, it is the time from the first operation. Nanoseconds.
    pub(crate) fn step_ns(&self, ends: &[i64]) -> f64 {
        mean(&self.step_times(ends))
    }

    /// The steps that have a time, by their places: all that follow another; where none does, all.
    pub(crate) fn timed(&self) -> Vec<usize> {
        let follow: Vec<usize> = (1..self.steps.len())
            .filter(|step| self.steps[*step].follows)
            .collect();
        if follow.is_empty() {
            return (0..self.steps.len()).collect();
        }
        follow
    }

    /// The time of each step that has one.
    pub(crate) fn step_times(&self, ends: &[i64]) -> Vec<i64> {
        let windows = self.step_windows(ends).into_iter();
        windows.map(|(start, end)| end.saturating_sub(start)).collect()
    }

    /// From when to when each step goes that has a time.
    pub(crate) fn step_windows(&self, ends: &[i64]) -> Vec<(i64, i64)> {
        let over = self.step_ends(ends);
        if self.steps.iter().skip(1).any(|step| step.follows) {
            let timed = self.timed().into_iter();
            return timed.map(|step| (over[step - 1], over[step])).collect();
        }
        // Where something is changed the first begins when it did, and others are moved with the end of the one before.
        let unchanged = self.step_ends(&self.ends);
        let window = |step: usize| {
            let moved = step
                .checked_sub(1)
                .map_or(0, |before| over[before].saturating_sub(unchanged[before]));
            let begin = self.steps[step].begin.saturating_add(moved);
            (begin, over[step])
        };
        (0..over.len()).map(window).collect()
    }
}

/// The mean of step times.
pub(crate) fn mean(times: &[i64]) -> f64 {
    times.iter().map(|time| *time as f64).sum::<f64>() / times.len().max(1) as f64
}

/// The names of collectives on their communicators, and of each collective which of them it is.
fn kinds(collectives: &[Collective]) -> (Vec<Kind>, Vec<u32>) {
    let mut places: BTreeMap<(&str, &str, &[u32]), u32> = BTreeMap::new();
    let mut kinds: Vec<Kind> = Vec::new();
    let labels = collectives
        .iter()
        .map(|collective| {
            // Of a communicator with several pairs each has a link of its own.
            let is_pair = collective.sender.is_some() || collective.receiver.is_some();
            let pair = if is_pair { &collective.ranks[..] } else { &[] };
            *places
                .entry((&collective.name, &collective.communicator, pair))
                .or_insert_with(|| {
                    kinds.push(Kind {
                        name: collective.name.clone(),
                        communicator: collective.communicator.clone(),
                        communicator_name: collective.communicator_name.clone(),
                        ranks: collective.ranks.clone(),
                        is_whole: collective
                            .communicator_ranks
                            .is_none_or(|all| all as usize == collective.ranks.len()),
                        is_pair,
                        link: None,
                    });
                    u32::try_from(kinds.len() - 1).unwrap_or(u32::MAX)
                })
        })
        .collect();
    (kinds, labels)
}

/// Finds what the links between the ranks of each kind carry.
fn find_links(recording: &Recording, devices: &[Device], kinds: &mut [Kind]) {
    let topologies = &recording.manifest.topology;
    if topologies.is_empty() {
        return;
    }
    let mut of_rank: BTreeMap<u32, (&str, &str)> = BTreeMap::new();
    for device in devices {
        let known = &recording.processes[device.process as usize].header.devices;
        let uuid = known
            .iter()
            .find(|known| known.index == device.index)
            .and_then(|known| known.uuid.as_deref());
        if let (Some(rank), Some(uuid)) = (device.rank, uuid) {
            of_rank.insert(rank, (&device.host, uuid));
        }
    }
    let hosts: FxHashMap<&str, Nvlinks<'_>> = topologies
        .iter()
        .rev()
        .map(|topology| (topology.host.as_str(), Nvlinks::of(topology)))
        .collect();
    // A communicator has a kind for each of its collectives.
    let mut between: FxHashMap<Vec<u32>, Option<f64>> = FxHashMap::default();
    let wanted = |kind: &&mut Kind| kind.is_whole && kind.ranks.len() > 1;
    for kind in kinds.iter_mut().filter(wanted) {
        kind.link = match between.get(&kind.ranks) {
            Some(known) => *known,
            None => {
                let link = link_between(&kind.ranks, &of_rank, &hosts);
                between.insert(kind.ranks.clone(), link);
                link
            }
        };
    }
}

/// What the NVLinks between ranks carry, by the host and UUID of each; `None` where they are on several hosts.
fn link_between(
    ranks: &[u32],
    of_rank: &BTreeMap<u32, (&str, &str)>,
    hosts: &FxHashMap<&str, Nvlinks<'_>>,
) -> Option<f64> {
    let members: Vec<(&str, &str)> = ranks
        .iter()
        .map(|rank| of_rank.get(rank).copied())
        .collect::<Option<_>>()?;
    let (host, _) = *members.first()?;
    if members.iter().any(|(its, _)| *its != host) {
        return None;
    }
    let uuids: Vec<&str> = members.iter().map(|(_, uuid)| *uuid).collect();
    hosts.get(host)?.between(&uuids)
}
