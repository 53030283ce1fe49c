//! Which operations wait, and for whom: what ranks enqueued, set side by side as NCCL does.
//!
//! NCCL matches the collectives of a communicator by their order on each rank, and transfers by their order among those of
//! their pair.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::members::{Communicator, Member};

/// What a rank that is waited for did, with places among its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Did {
    NotRecorded,
    Nothing,
    /// Another operation.
    Other(usize),
    /// The same with other arguments.
    Differs(usize),
    /// The same, but its process does not run any more.
    Halted(usize),
    /// The same, behind this one that is not finished.
    Behind(usize),
}

/// An operation that does not end. Ranks are those in the communicator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// Who waits, and the place among its operations.
    pub(super) waiting: Vec<(u32, usize)>,
    pub(super) absent: Vec<(u32, Did)>,
    /// The place among the transfers of its pair.
    pub(super) pair_place: Option<usize>,
}

impl Candidate {
    /// Whether somebody who waits is at this operation: nothing earlier on the communicator is unfinished there.
    fn is_first(&self, communicator: &Communicator) -> bool {
        self.waiting
            .iter()
            .any(|(rank, place)| communicator.members[rank].is_first(*place))
    }

    /// Whether all that can be known has joined.
    pub(super) fn is_joined(&self) -> bool {
        self.absent.iter().all(|(_, did)| *did == Did::NotRecorded)
    }

    fn since(&self, communicator: &Communicator) -> i64 {
        let enqueued = |(rank, place): &(u32, usize)| communicator.members[rank].operations[*place].at_ns;
        self.waiting.iter().map(enqueued).min().unwrap_or(i64::MAX)
    }
}

/// The operations of a communicator that explain why it does not go on; empty where it does.
pub(super) fn candidates(communicator: &Communicator) -> Vec<Candidate> {
    let (mut apart, mut joined) = collectives(communicator);
    let (transfers_apart, transfers_joined) = transfers(communicator);
    apart.extend(transfers_apart);
    joined.extend(transfers_joined);
    let first: Vec<Candidate> = apart
        .iter()
        .filter(|candidate| candidate.is_first(communicator))
        .cloned()
        .collect();
    if !first.is_empty() {
        return first;
    }
    let behind: Vec<Candidate> = joined
        .iter()
        .filter_map(|candidate| behind(candidate, communicator))
        .collect();
    if !behind.is_empty() {
        return behind;
    }
    // Records of kernels can be kept back by CUPTI while one behind them has not ended: what is joined may be over, and
    // what is not joined is then the reason.
    apart.sort_by_key(|candidate| candidate.since(communicator));
    joined.sort_by_key(|candidate| candidate.since(communicator));
    apart.into_iter().chain(joined).next().into_iter().collect()
}

/// The first collective that ranks disagree on, and before it the first that all joined and that is not finished.
fn collectives(communicator: &Communicator) -> (Vec<Candidate>, Vec<Candidate>) {
    let members = &communicator.members;
    let start = |member: &Member| {
        member
            .collectives
            .partition_point(|place| !member.waits_in(*place))
    };
    let first = members.values().map(start).min().unwrap_or(0);
    let longest = members
        .values()
        .map(|member| member.collectives.len())
        .max()
        .unwrap_or(0);
    let mut joined: Vec<Candidate> = Vec::new();
    for position in first..longest {
        let here: Vec<(u32, usize)> = members
            .iter()
            .filter_map(|(rank, member)| Some((*rank, *member.collectives.get(position)?)))
            .collect();
        let signature = |(rank, place): &(u32, usize)| members[rank].operations[*place].signature();
        let unfinished = |(rank, place): &(u32, usize)| members[rank].waits_in(*place);
        // What most ranks enqueued, of several the one of the lowest rank, is the operation; others deviate.
        let mut alike: HashMap<_, usize> = HashMap::new();
        for entry in &here {
            *alike.entry(signature(entry)).or_default() += 1;
        }
        let Some(reference) = here
            .iter()
            .filter(|entry| unfinished(entry))
            .max_by_key(|entry| (alike[&signature(entry)], std::cmp::Reverse(entry.0)))
            .map(signature)
        else {
            continue;
        };
        let absent: Vec<(u32, Did)> = members
            .iter()
            .filter_map(|(rank, member)| {
                let Some(&place) = member.collectives.get(position) else {
                    return Some((*rank, Did::Nothing));
                };
                let theirs = member.operations[place].signature();
                let did = if theirs.0 != reference.0 {
                    Did::Other(place)
                } else if theirs != reference {
                    Did::Differs(place)
                } else if !member.runs && !member.is_finished(place) {
                    Did::Halted(place)
                } else {
                    return None;
                };
                Some((*rank, did))
            })
            .collect();
        let is_apart = !absent.is_empty();
        let candidate = Candidate {
            waiting: here
                .iter()
                .filter(|entry| unfinished(entry) && signature(entry) == reference)
                .copied()
                .collect(),
            absent: absent
                .into_iter()
                .chain(communicator.not_recorded().map(|rank| (rank, Did::NotRecorded)))
                .collect(),
            pair_place: None,
        };
        if is_apart {
            return (vec![candidate], joined);
        }
        if joined.is_empty() {
            joined.push(candidate);
        }
    }
    (Vec::new(), joined)
}

/// By pair: the first transfer that one end has not joined, or else the first that both have and that is not finished.
fn transfers(communicator: &Communicator) -> (Vec<Candidate>, Vec<Candidate>) {
    let members = &communicator.members;
    let mut pairs: BTreeSet<(u32, u32)> = BTreeSet::new();
    for (&rank, member) in members {
        pairs.extend(member.sends.keys().map(|&receiver| (rank, receiver)));
        pairs.extend(member.receives.keys().map(|&sender| (sender, rank)));
    }
    // Waiting for one rank in one direction at one place is one hang, whoever waits.
    let mut apart: BTreeMap<_, Vec<(u32, usize)>> = BTreeMap::new();
    let mut joined = Vec::new();
    let none = Vec::new();
    for (sender, receiver) in pairs.into_iter().filter(|(sender, receiver)| sender != receiver) {
        let list = |rank, peer, of: fn(&Member) -> &BTreeMap<u32, Vec<usize>>| {
            members
                .get(&rank)
                .and_then(|member| of(member).get(&peer))
                .unwrap_or(&none)
        };
        let sends = list(sender, receiver, |member| &member.sends);
        let receives = list(receiver, sender, |member| &member.receives);
        let missing = |rank: u32| {
            if members.contains_key(&rank) {
                Did::Nothing
            } else {
                Did::NotRecorded
            }
        };
        for place in 0..sends.len().max(receives.len()) {
            let (send, receive) = (sends.get(place).copied(), receives.get(place).copied());
            let open = |rank: u32, at: Option<usize>| at.filter(|&at| members[&rank].waits_in(at));
            let (open_send, open_receive) = (open(sender, send), open(receiver, receive));
            let found = match (open_send, open_receive) {
                (Some(at), _) if receive.is_none() => Some((receiver, true, missing(receiver), sender, at)),
                (_, Some(at)) if send.is_none() => Some((sender, false, missing(sender), receiver, at)),
                _ => None,
            };
            let differs = send.zip(receive).filter(|(send, receive)| {
                members[&sender].operations[*send].bytes != members[&receiver].operations[*receive].bytes
            });
            let found = found.or(match (differs, open_send, open_receive) {
                (Some((_, theirs)), Some(at), _) => Some((receiver, true, Did::Differs(theirs), sender, at)),
                (Some((theirs, _)), None, Some(at)) => {
                    Some((sender, false, Did::Differs(theirs), receiver, at))
                }
                _ => None,
            });
            let halted = |rank: u32, at: Option<usize>| {
                at.filter(|&at| !members[&rank].runs && !members[&rank].is_finished(at))
            };
            let found = found.or(match (open_send, open_receive) {
                (Some(at), None) => {
                    halted(receiver, receive).map(|theirs| (receiver, true, Did::Halted(theirs), sender, at))
                }
                (None, Some(at)) => {
                    halted(sender, send).map(|theirs| (sender, false, Did::Halted(theirs), receiver, at))
                }
                _ => None,
            });
            if let Some((absent, sends, did, waiting, at)) = found {
                let waiters = apart.entry((absent, sends, place, did)).or_default();
                waiters.push((waiting, at));
                break;
            }
            let waiting: Vec<(u32, usize)> = [(sender, open_send), (receiver, open_receive)]
                .into_iter()
                .filter_map(|(rank, at)| Some((rank, at?)))
                .collect();
            if !waiting.is_empty() {
                joined.push(Candidate {
                    waiting,
                    absent: Vec::new(),
                    pair_place: Some(place),
                });
                break;
            }
        }
    }
    let apart = apart
        .into_iter()
        .map(|((absent, _, place, did), waiting)| Candidate {
            waiting,
            absent: vec![(absent, did)],
            pair_place: Some(place),
        });
    (apart.collect(), joined)
}

/// Of an operation that all have joined: those who have it behind another that does not end, if others are at it.
fn behind(candidate: &Candidate, communicator: &Communicator) -> Option<Candidate> {
    let (first, later): (Vec<_>, Vec<_>) = candidate
        .waiting
        .iter()
        .partition(|(rank, place)| communicator.members[rank].is_first(*place));
    if first.is_empty() || later.is_empty() {
        return None;
    }
    let later = later
        .into_iter()
        .map(|(rank, _)| (rank, Did::Behind(communicator.members[&rank].done)));
    Some(Candidate {
        waiting: first,
        absent: later.collect(),
        pair_place: candidate.pair_place,
    })
}
