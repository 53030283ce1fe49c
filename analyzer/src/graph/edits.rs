//! Changes to try on a job's graph, as users write them: `kernel:*gemm*=0.8x`, `rank:2=as-others`, `communication=none`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gputrace_trace::Interner;
use rustc_hash::{FxHashMap, FxHashSet};

use super::dag::{Graph, Node};
use super::job::Job;
use super::nodes::{Label, Part};
use super::peers::as_others;
use crate::glob;
use crate::kernel_names::short_name;
use crate::operations::Name;

/// What is changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Kernels by name: `*` stands for any characters and `?` for one.
    Kernel(String),
    /// Collectives of one name, on all communicators.
    Collective(String),
    /// All of them.
    Communication,
    /// The collectives of one communicator, by its name or hash.
    Communicator(String),
    /// Copies in one direction: "HtoD", "DtoH", ...
    Copy(String),
    /// All that ranks do themselves: kernels, copies and host work, but not their collectives.
    Ranks(Vec<u32>),
    /// What all hosts do: work between calls, and the calls.
    Host,
    /// What `host_late_by` calls so.
    HostBy(String),
    /// Idle time by its cause.
    Idle(String),
}

/// How it is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Takes so many times as long.
    Times(f64),
    /// Takes no time.
    None,
    /// Each takes so much longer, nanoseconds; shorter where negative.
    Plus(i64),
    /// Takes as long as the median of its peers at the same place: the same kernel (or host work), the same time in the step, on
    /// the other ranks.
    AsOthers,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// What.
    pub target: Target,
    /// How.
    pub change: Change,
}

/// The causes of idle time that can be changed, with what they are in the graph.
const IDLE: &[(&str, &str)] = &[
    ("host_late", "the host's work between calls, and the calls"),
    ("nothing_submitted", "what the host does that is not recorded"),
    ("peer_wait", "the host waiting for other ranks"),
    ("launch_latency", "the time from a call to its operation"),
    ("unexplained", "what no rule explains"),
];

impl fmt::Display for Edit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Kernel(glob) => write!(out, "kernel:{glob}"),
            Target::Collective(name) => write!(out, "collective:{name}"),
            Target::Communication => write!(out, "communication"),
            Target::Communicator(name) => write!(out, "communicator:{name}"),
            Target::Copy(direction) => write!(out, "copy:{direction}"),
            Target::Ranks(ranks) => {
                let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
                write!(out, "rank:{}", ranks.join(","))
            }
            Target::Host => write!(out, "host"),
            Target::HostBy(name) => write!(out, "host:{name}"),
            Target::Idle(cause) => write!(out, "idle:{cause}"),
        }?;
        match self.change {
            Change::Times(factor) => write!(out, "={factor}x"),
            Change::None => write!(out, "=none"),
            Change::Plus(ns) => write!(out, "={ns:+}ns"),
            Change::AsOthers => write!(out, "=as-others"),
        }
    }
}

impl std::str::FromStr for Edit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, change) = text.rsplit_once('=').ok_or_else(|| {
            format!("{text:?} is no TARGET=CHANGE, such as rank:2=as-others or communication=0.5x")
        })?;
        let (kind, name) = match target.split_once(':') {
            Some((kind, name)) if !name.is_empty() => (kind, Some(name.to_owned())),
            Some(_) => return Err(format!("{target:?} lacks what comes after the colon")),
            None => (target, None),
        };
        let target = match (kind, name) {
            ("kernel", Some(name)) => Target::Kernel(name),
            ("collective", Some(name)) => Target::Collective(name),
            ("communication", None) => Target::Communication,
            ("communicator", Some(name)) => Target::Communicator(name),
            ("copy", Some(name)) => Target::Copy(name),
            ("rank", Some(name)) => {
                let ranks: Result<Vec<u32>, _> = name.split(',').map(str::parse).collect();
                Target::Ranks(ranks.map_err(|_| format!("{name:?} is no rank, nor several with commas"))?)
            }
            ("host", None) => Target::Host,
            ("host", Some(name)) => Target::HostBy(name),
            ("idle", Some(cause)) if IDLE.iter().any(|(known, _)| *known == cause) => Target::Idle(cause),
            ("idle", _) => {
                let known: Vec<&str> = IDLE.iter().map(|(name, _)| *name).collect();
                return Err(format!("idle: knows {}", known.join(", ")));
            }
            _ => {
                return Err(format!(
                    "{target:?} is no target: there are kernel:GLOB, collective:NAME, communication, communicator:NAME, \
                     copy:HtoD, rank:N, host, host:NAME and idle:CAUSE"
                ));
            }
        };
        let change = change_of(change).ok_or_else(|| {
            format!("{change:?} is no change: there are 0.8x, none, +5us (or ns, ms, s; -5us) and as-others")
        })?;
        if matches!(
            (&target, change),
            (Target::Idle(_), Change::AsOthers | Change::Plus(_))
        ) {
            return Err(format!(
                "{text:?}: idle time can be changed by a factor, or to none"
            ));
        }
        Ok(Self { target, change })
    }
}

fn change_of(text: &str) -> Option<Change> {
    match text {
        "none" => return Some(Change::None),
        "as-others" => return Some(Change::AsOthers),
        _ => {}
    }
    if let Some(factor) = text.strip_suffix('x') {
        let factor: f64 = factor.parse().ok()?;
        return (factor.is_finite() && (0.0..=1e6).contains(&factor)).then_some(Change::Times(factor));
    }
    if !text.starts_with(['+', '-']) {
        return None;
    }
    let units = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    let ns = number.parse::<f64>().ok()? * unit;
    (ns.abs() < 1e15).then_some(Change::Plus(ns.round() as i64))
}

/// The text of a node's label.
pub(crate) fn label_text(job: &Job, label: Label, names: &Interner) -> String {
    match label {
        Label::Operation(Name::Kernel(name)) => short_name(names.get(name)),
        Label::Operation(name) => name.text(names).into_owned(),
        Label::Collective(kind) => job
            .kinds
            .get(kind as usize)
            .map_or_else(String::new, |kind| kind.name.clone()),
        Label::Call(name) => format!("call: {}", names.get(name)),
        Label::Host(activity) => activity.text(names),
        Label::None => String::new(),
    }
}

/// What a change leaves of a job: its works, gaps and lags.
pub(crate) struct Changed {
    pub(crate) work: Vec<i64>,
    pub(crate) gap: Vec<i64>,
    /// The graph with other lags, where a change is of these.
    pub(crate) graph: Option<Graph>,
}

/// The works of a job's nodes, by what they are and their labels: texts are for the few of these, not for each node.
pub(crate) fn works_by_label(job: &Job) -> FxHashMap<(Part, Label), i64> {
    let mut works: FxHashMap<(Part, Label), i64> = FxHashMap::default();
    for (what, work) in job.what.iter().zip(&job.graph.work) {
        let sum = works.entry((what.part, what.label)).or_default();
        *sum = sum.saturating_add(*work);
    }
    works
}

/// What there is of the kind of thing that a target is, those with most time first.
fn names_of_kind(job: &Job, target: &Target, names: &Interner) -> Vec<String> {
    if let Target::Ranks(_) = target {
        let ranks = job.what.iter();
        let ranks: BTreeSet<u32> = ranks
            .filter_map(|what| job.devices[what.device as usize].rank)
            .collect();
        return ranks.iter().map(u32::to_string).collect();
    }
    let mut found: BTreeMap<String, i64> = BTreeMap::new();
    for ((part, label), work) in works_by_label(job) {
        let name = match (target, part, label) {
            (Target::Kernel(_), Part::Compute, label) => label_text(job, label, names),
            (Target::Collective(_), Part::Communication, label @ Label::Collective(_)) => {
                label_text(job, label, names)
            }
            (Target::Communicator(_), Part::Communication, Label::Collective(kind)) => {
                job.kinds[kind as usize].label().to_owned()
            }
            (Target::Copy(_), Part::Copy, Label::Operation(name)) => {
                direction(name).unwrap_or_default().to_owned()
            }
            (Target::HostBy(_), Part::Host | Part::Call, label) if label != Label::None => {
                label_text(job, label, names)
            }
            _ => continue,
        };
        let sum = found.entry(name).or_default();
        *sum = sum.saturating_add(work);
    }
    let mut found: Vec<(String, i64)> = found.into_iter().collect();
    found.sort_by_key(|(_, work)| std::cmp::Reverse(*work));
    found.into_iter().map(|(name, _)| name).collect()
}

/// What there is of the kind of thing that a target is, for what is said where nothing matches.
fn known(job: &Job, target: &Target, names: &Interner) -> String {
    let mut found = names_of_kind(job, target, names);
    if found.is_empty() {
        return "there is nothing of this kind in the chosen steps".to_owned();
    }
    let more = found.len().saturating_sub(8);
    found.truncate(8);
    let names: Vec<&str> = found.iter().map(|name| name.trim()).collect();
    let more = if more > 0 {
        format!(", and {more} more")
    } else {
        String::new()
    };
    format!("there are {}{more}", names.join(", "))
}

/// The direction of a copy: "HtoD".
fn direction(name: Name) -> Option<&'static str> {
    match name {
        Name::Copy { direction, .. } => Some(gputrace_trace::copy_words::direction_name(direction)),
        _ => None,
    }
}

impl Target {
    /// The nodes that it means.
    pub(crate) fn nodes(&self, job: &Job, names: &Interner) -> Vec<Node> {
        let mut by_label: FxHashMap<(Part, Label), bool> = FxHashMap::default();
        let ranks: FxHashSet<u32> = match self {
            Self::Ranks(ranks) => ranks.iter().copied().collect(),
            _ => FxHashSet::default(),
        };
        let mut is_meant = |part: Part, label: Label, device: u16| match self {
            Self::Ranks(_) => {
                let rank = job.devices[device as usize].rank;
                rank.is_some_and(|rank| ranks.contains(&rank)) && part.is_own()
            }
            Self::Communication => part == Part::Communication,
            Self::Host => part.is_host_work(),
            Self::Idle(cause) => match (cause.as_str(), part, label) {
                ("host_late", Part::Host | Part::Call, _) => true,
                ("nothing_submitted", Part::Host, Label::Host(activity)) => {
                    matches!(activity, crate::host_activity::Activity::Nothing)
                }
                ("peer_wait", Part::Host, Label::Host(activity)) => {
                    matches!(activity, crate::host_activity::Activity::WaitingForPeers(_))
                }
                _ => false,
            },
            _ => *by_label
                .entry((part, label))
                .or_insert_with(|| match (self, part, label) {
                    (
                        Self::Kernel(pattern),
                        Part::Compute | Part::Communication,
                        Label::Operation(Name::Kernel(name)),
                    ) => {
                        let name = names.get(name);
                        glob::matches(pattern, name) || glob::matches(pattern, &short_name(name))
                    }
                    (Self::Collective(wanted), Part::Communication, Label::Collective(kind)) => {
                        job.kinds[kind as usize].name.eq_ignore_ascii_case(wanted)
                    }
                    (Self::Communicator(wanted), Part::Communication, Label::Collective(kind)) => {
                        let kind = &job.kinds[kind as usize];
                        kind.communicator == *wanted || kind.communicator_name.as_deref() == Some(wanted)
                    }
                    (Self::Copy(wanted), Part::Copy, Label::Operation(name)) => {
                        direction(name).is_some_and(|direction| direction.eq_ignore_ascii_case(wanted))
                    }
                    (Self::HostBy(wanted), Part::Host | Part::Call, label) => {
                        label != Label::None && glob::matches(wanted, &label_text(job, label, names))
                    }
                    _ => false,
                }),
        };
        (0u32..)
            .zip(&job.what)
            .filter(|(_, what)| is_meant(what.part, what.label, what.device))
            .map(|(node, _)| node)
            .collect()
    }
}

/// Applies changes to a job's graph; a line that says what is wrong where one can't be.
pub(crate) fn apply(job: &Job, edits: &[Edit], names: &Interner) -> Result<Changed, String> {
    let mut changed = Changed {
        work: job.graph.work.clone(),
        gap: job.graph.gap.clone(),
        graph: None,
    };
    for (place, edit) in edits.iter().enumerate() {
        if let Some(other) = edits[..place].iter().find(|other| other.target == edit.target) {
            return Err(format!(
                "{other} and {edit} contradict each other: one change for each target"
            ));
        }
        match (&edit.target, edit.change) {
            (Target::Idle(cause), change) if cause == "unexplained" || cause == "launch_latency" => {
                let factor = match change {
                    Change::Times(factor) => factor,
                    _ => 0.0,
                };
                if cause == "unexplained" {
                    changed.gap = scaled_gaps(job, factor);
                } else {
                    let graph = changed.graph.get_or_insert_with(|| job.graph.clone());
                    graph.scale_lags(factor, |node, of| {
                        let waits = job.what[node as usize].part;
                        job.what[of as usize].part.is_host_work()
                            && !waits.is_host_work()
                            && waits != Part::Blocked
                    });
                }
                continue;
            }
            _ => {}
        }
        let nodes = edit.target.nodes(job, names);
        if nodes.is_empty() {
            return Err(format!(
                "{edit} matches nothing: {}",
                known(job, &edit.target, names)
            ));
        }
        if let Change::AsOthers = edit.change {
            let others = as_others(job, &nodes, matches!(edit.target, Target::Ranks(_)), false);
            for (node, work) in nodes.iter().zip(others) {
                changed.work[*node as usize] = work;
            }
            continue;
        }
        for node in nodes {
            let work = &mut changed.work[node as usize];
            *work = match edit.change {
                Change::Times(factor) => (*work as f64 * factor).round() as i64,
                Change::Plus(ns) => {
                    let longer = work.saturating_add(ns);
                    if longer < 0 {
                        let name = label_text(job, job.what[node as usize].label, names);
                        return Err(format!("{edit} makes times negative: {name} takes {work} ns"));
                    }
                    longer
                }
                Change::None | Change::AsOthers => 0,
            };
        }
    }
    Ok(changed)
}

/// The gaps with what is unexplained so many times as long. What nothing comes before begins when it began.
pub(crate) fn scaled_gaps(job: &Job, factor: f64) -> Vec<i64> {
    let gaps = (0u32..).zip(&job.graph.gap);
    gaps.map(|(node, gap)| {
        let explained = *gap <= 0 || job.graph.waits(node).is_empty();
        if explained {
            *gap
        } else {
            (*gap as f64 * factor).round() as i64
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_read_as_they_are_written() {
        for (text, target, change) in [
            (
                "kernel:*gemm*=0.8x",
                Target::Kernel("*gemm*".to_owned()),
                Change::Times(0.8),
            ),
            ("communication=none", Target::Communication, Change::None),
            ("rank:2,3=as-others", Target::Ranks(vec![2, 3]), Change::AsOthers),
            (
                "host:data loading: next=+5us",
                Target::HostBy("data loading: next".to_owned()),
                Change::Plus(5000),
            ),
            (
                "copy:HtoD=-1.5ms",
                Target::Copy("HtoD".to_owned()),
                Change::Plus(-1_500_000),
            ),
        ] {
            assert_eq!(text.parse(), Ok(Edit { target, change }));
        }
        for text in [
            "rank:2",
            "rank:two=none",
            "gpu:1=none",
            "host=fast",
            "host=5us",
            "host=-1x",
            "idle:tea=none",
            "kernel:=none",
        ] {
            let wrong = text.parse::<Edit>();
            assert!(wrong.is_err(), "{text}: {wrong:?}");
        }
    }
}
