//! The clocks of a recording's hosts: found, compared, and stamps moved to one of them.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::alignment::{Alignment, ClockEstimate, HostClock};
use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::{Recording, parallel};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::clock_groups::{self, Group};
use crate::clock_names::clock_name;
use crate::clocks::{Estimated, Meeting, Member, estimate};
use crate::collective_parts::Part;
use crate::collectives::{self, Collective, is_synchronizing};
use crate::comparable::Comparison;
use crate::given_clocks::GivenClocks;
use crate::operations::ProcessOperations;
use crate::units::duration;
use crate::{clock_analysis, collective_parts, prepared};

/// What to do about the clocks of several hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ClockChoice {
    /// Nothing: what ranks of several hosts did is not compared.
    None,
    /// Compare them by what their ranks did together.
    #[default]
    Estimate,
    /// They are known.
    Given(GivenClocks),
    /// They were compared before, of the same run.
    Compared(ComparedClocks),
}

/// The clocks of a run, compared over all its ranks, so that parts of it that are read apart are aligned alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparedClocks {
    /// [`ComparedClocks::FORMAT`].
    pub format: String,
    /// The clocks.
    pub alignment: Alignment,
    /// By rank: which of the clocks stamped it.
    pub clock_of_rank: BTreeMap<u32, u32>,
}

impl ComparedClocks {
    /// What the file says that it is.
    pub const FORMAT: &str = "gputrace.clocks/1";

    /// Reads what [`ComparedClocks::text`] made; `None` of any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let clocks: Self = serde_json::from_str(text).ok()?;
        let known = |clock: &u32| (*clock as usize) < clocks.alignment.clocks.len();
        (clocks.format == Self::FORMAT && clocks.clock_of_rank.values().all(known)).then_some(clocks)
    }

    /// As a file.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Says in a process's header which clock stamped it.
    ///
    /// # Errors
    /// When its rank is none of those that were compared, or ran on another host.
    pub fn name(&self, header: &mut ProcessHeader) -> Result<(), String> {
        let who = || match header.rank {
            Some(rank) => format!("rank {rank}"),
            None => "a process without a rank".to_owned(),
        };
        let number = header.rank.and_then(|rank| self.clock_of_rank.get(&rank));
        let number = *number.ok_or_else(|| {
            format!(
                "{} is not among those whose clocks were compared: compare them anew (reduce --clocks-to)",
                who()
            )
        })?;
        let host = self
            .alignment
            .clocks
            .get(number as usize)
            .map(|clock| &clock.host);
        if let Some(host) = host.filter(|host| !host.is_empty() && **host != header.host) {
            return Err(format!(
                "{} ran on host {:?}, and in the run whose clocks were compared on {host:?}: compare those of this run \
                 (reduce --clocks-to)",
                who(),
                header.host
            ));
        }
        header.clock = Some(number);
        Ok(())
    }
}

/// Compares the clocks that stamped a recording, and moves all stamps to one of them; where hosts have nothing in common, to one
/// of each island. What was done stands in [`Recording::clocks`]. A recording of one clock stays as it is, and so does one whose
/// stamps were moved before.
///
/// # Errors
/// When clocks are given for hosts that the recording does not have.
pub fn align(recording: &mut Recording, choice: &ClockChoice) -> Result<(), String> {
    if recording.clocks.is_some() {
        return Ok(());
    }
    for process in &mut recording.processes {
        process.header.clock = None;
    }
    match choice {
        ClockChoice::None => {}
        ClockChoice::Compared(compared) => {
            for process in &mut recording.processes {
                compared.name(&mut process.header)?;
            }
            tell(recording, &compared.alignment);
            recording.align(compared.alignment.clone());
            recording.sort_processes();
        }
        ClockChoice::Given(given) => {
            let (groups, alignment) = given.alignment(recording)?;
            apply(recording, &groups, alignment);
        }
        ClockChoice::Estimate => {
            if let Some((groups, alignment)) = estimated(recording) {
                apply(recording, &groups, alignment);
            }
        }
    }
    Ok(())
}

/// What is known of the clocks of a recording of several, in short; nothing of one whose clocks were not compared.
#[must_use]
pub fn clock_estimates(recording: &Recording) -> Vec<ClockEstimate> {
    if recording.clocks.is_none() {
        return Vec::new();
    }
    short(clock_analysis::clocks(recording, &prepared::ranks(recording)))
}

/// The same of clocks that were compared of a run that was read process by process; ranks that no process says are left out.
#[must_use]
pub fn compared_estimates(compared: &ComparedClocks) -> Vec<ClockEstimate> {
    let mut ranks: Vec<Vec<u32>> = vec![Vec::new(); compared.alignment.clocks.len()];
    for (rank, clock) in &compared.clock_of_rank {
        if let Some(own) = ranks.get_mut(*clock as usize) {
            own.push(*rank);
        }
    }
    short(clock_analysis::of_alignment(&compared.alignment, ranks))
}

fn short(known: Vec<clock_analysis::ClockAnalysis>) -> Vec<ClockEstimate> {
    let short = known.into_iter().map(|clock| ClockEstimate {
        host: clock.host,
        ranks: clock.ranks,
        reference: u32::try_from(clock.reference).unwrap_or(u32::MAX),
        at_ns: clock.at_ns.map(|at| at.0),
        offset_ns: clock.offset_ns,
        drift: clock.drift,
        half_width_ns: clock.half_width_ns,
        collectives: clock.collectives,
    });
    short.collect()
}

fn apply(recording: &mut Recording, groups: &[Group], alignment: Alignment) {
    for (group, number) in groups.iter().zip(0u32..) {
        for place in &group.processes {
            recording.processes[*place].header.clock = Some(number);
        }
    }
    tell(recording, &alignment);
    recording.align(alignment);
    recording.sort_processes();
}

/// Says in a recording that its clocks are aligned, by the clocks that its processes' headers name.
pub(crate) fn tell(recording: &mut Recording, alignment: &Alignment) {
    // What has no common zero has one now, if everything was compared.
    if alignment.clocks.iter().all(|clock| clock.reference == 0) {
        recording.unaligned = None;
    }
    let notes = notes(recording, alignment);
    recording.notes.extend(notes);
}

/// What was moved by how much, for those who see the times without the analysis.
fn notes(recording: &Recording, alignment: &Alignment) -> Vec<String> {
    const MOST: usize = 16;
    let moved = |(number, clock): (usize, &HostClock)| {
        let at = clock.course.at(i64::midpoint(clock.from_ns, clock.to_ns));
        (!clock.course.knots.is_empty()).then(|| {
            format!(
                "times of {} are given by the clock of {}: its own was ahead by {}, right within {}",
                clock_name(recording, alignment, number),
                clock_name(recording, alignment, clock.reference as usize),
                duration(at.offset_ns),
                duration(at.half_width_ns)
            )
        })
    };
    let mut notes: Vec<String> = alignment.clocks.iter().enumerate().filter_map(moved).collect();
    let more = notes.len().saturating_sub(MOST);
    notes.truncate(MOST);
    if more > 0 {
        notes.push(format!("and times of {more} more clocks likewise"));
    }
    notes
}

/// Whether one clock may not have stamped everything.
pub(crate) fn may_differ(recording: &Recording) -> bool {
    let headers = || recording.processes.iter().map(|process| &process.header);
    let several = |of: fn(&ProcessHeader) -> &str| headers().map(of).collect::<BTreeSet<&str>>().len() > 1;
    // Hosts may have one name, and traces of others may name none.
    recording.processes.len() > 1
        && (several(|header| &header.host)
            || several(|header| &header.recording)
            || several(|header| header.boot_id.as_deref().unwrap_or_default())
            || recording.manifest.device == "imported"
            || recording.unaligned.is_some()
            || !recording.manifest.merged.is_empty())
}

fn estimated(recording: &Recording) -> Option<(Vec<Group>, Alignment)> {
    if !may_differ(recording) {
        return None;
    }
    let names = &recording.names;
    let processes = &recording.processes;
    let operations: Vec<ProcessOperations> = parallel::map(processes.len(), |index| {
        ProcessOperations::new(&processes[index], names)
    });
    let ranks = prepared::ranks(recording);
    let parts: Vec<collective_parts::Parts> = parallel::map(processes.len(), |index| {
        let place = u32::try_from(index).unwrap_or(u32::MAX);
        collective_parts::parts(&processes[index], place, ranks[index], &operations[index], names)
    });
    let all = parts.iter().flat_map(|parts| &parts.all);
    by_parts(recording, &ranks, all, prepared::used(&operations))
}

/// The same, of what processes did in collectives; of the recording itself it takes who they are. `used`: how many used a GPU.
pub(crate) fn by_parts<'a>(
    recording: &Recording,
    ranks: &[Option<u32>],
    parts: impl Iterator<Item = &'a Part>,
    used: usize,
) -> Option<(Vec<Group>, Alignment)> {
    let matched = collectives::collectives(parts, prepared::job(recording, used), &Comparison::none(), true);
    let meetings = meetings(&matched.collectives);
    let groups = clock_groups::groups(recording, ranks, &meetings);
    if groups.len() < 2 {
        return None;
    }
    let clock_of: FxHashMap<u32, u32> = (0u32..)
        .zip(&groups)
        .flat_map(|(number, group)| {
            let own = group.processes.iter();
            own.map(move |place| (u32::try_from(*place).unwrap_or(u32::MAX), number))
        })
        .collect();
    let by_clock: Vec<Meeting> = meetings
        .iter()
        .map(|meeting| Meeting {
            members: meeting
                .members
                .iter()
                .filter_map(|member| {
                    Some(Member {
                        clock: *clock_of.get(&member.clock)?,
                        ..*member
                    })
                })
                .collect(),
            ..*meeting
        })
        .collect();
    let found = estimate(groups.len(), &by_clock);
    let spans = spans(groups.len(), &by_clock);
    let clocks = groups
        .iter()
        .zip(found)
        .zip(spans)
        .map(|((group, found), span)| clock(group, found, span));
    let alignment = Alignment {
        source: "estimated".to_owned(),
        clocks: clocks.collect(),
    };
    Some((groups, alignment))
}

fn clock(group: &Group, found: Estimated, span: Option<(i64, i64)>) -> HostClock {
    let (from_ns, to_ns) = span.unwrap_or_default();
    HostClock {
        host: group.host.clone(),
        reference: found.reference,
        course: found.course,
        from_ns,
        to_ns,
        collectives: found.collectives as u64,
        contradicted: found.contradicted as u64,
        steps: found.steps,
        longer_ns: found.longer_ns,
    }
}

/// With fewer collectives that surely need all ranks those count too that probably do.
const FEW: usize = 12;
/// Where nobody needs to have waited for a rank its arrival says nothing: it is taken to be so long before its end.
const LONG_NS: i64 = 3_600_000_000_000;

/// The collectives that no rank can leave before the last has arrived, each in a kernel of its own; clocks are numbered as
/// processes. Of few, kernels of sends and receives among all ranks of a communicator too: PyTorch's all-to-all is one. Their ends
/// count, and no bounds.
fn meetings(collectives: &[Collective]) -> Vec<Meeting> {
    let is_sure = |one: &Collective| is_synchronizing(&one.name) && one.shared_kernel == 1;
    let is_likely = |one: &Collective| {
        let has_ends = one.sender.is_some() || one.receiver.is_some();
        one.name == "SendRecv" && !has_ends && one.shared_kernel == 1 && one.parts.len() > 2
    };
    let sure = collectives
        .iter()
        .filter(|one| is_sure(one) && one.parts.len() > 1);
    let few = sure.count() < FEW;
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    let mut classes: BTreeMap<(&str, Option<u32>, Option<u32>), u32> = BTreeMap::new();
    let mut works: BTreeMap<(&str, &str, Result<u64, usize>), u32> = BTreeMap::new();
    let mut meetings = Vec::new();
    for collective in collectives {
        let is_sure = is_sure(collective);
        if !(is_sure || few && is_likely(collective)) {
            continue;
        }
        let members: Vec<Member> = collective
            .parts
            .iter()
            .filter_map(|part| {
                let (start_ns, end_ns) = (part.start_ns?, part.end_ns?);
                Some(Member {
                    clock: part.process,
                    start_ns: if is_sure {
                        start_ns
                    } else {
                        end_ns.saturating_sub(LONG_NS)
                    },
                    end_ns,
                })
            })
            .collect();
        let first = members.first().map(|member| member.clock);
        if members.iter().all(|member| Some(member.clock) == first) {
            continue;
        }
        let next = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
        let kind = *kinds.entry(&collective.name).or_insert(next);
        let size = collective.bytes.filter(|bytes| *bytes > 0).map(u64::ilog2);
        let next = u32::try_from(classes.len()).unwrap_or(u32::MAX);
        let class = *classes
            .entry((&collective.name, size, collective.communicator_ranks))
            .or_insert(next);
        // What has no size is like nothing else.
        let amount = collective.bytes.ok_or(meetings.len());
        let next = u32::try_from(works.len()).unwrap_or(u32::MAX);
        let work = *works
            .entry((&collective.name, &collective.communicator, amount))
            .or_insert(next);
        meetings.push(Meeting {
            class,
            kind,
            work,
            members,
        });
    }
    meetings
}

/// Between which moments of its own each clock took part in what others did too.
fn spans(clocks: usize, meetings: &[Meeting]) -> Vec<Option<(i64, i64)>> {
    let mut spans: Vec<Option<(i64, i64)>> = vec![None; clocks];
    for meeting in meetings {
        let first = meeting.members.first().map(|member| member.clock);
        if meeting.members.iter().all(|member| Some(member.clock) == first) {
            continue;
        }
        for member in &meeting.members {
            let span = &mut spans[member.clock as usize];
            let (from, to) = span.unwrap_or((member.end_ns, member.end_ns));
            *span = Some((from.min(member.end_ns), to.max(member.end_ns)));
        }
    }
    spans
}
