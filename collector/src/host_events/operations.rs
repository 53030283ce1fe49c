//! NCCL's operations on the writer's side: what the plugin tells of calls, what it tells of kernels, and what NVTX tells of
//! calls become one row an operation.
//!
//! A row comes with the operation's own event, which names its call. A call whose operation never comes (some versions
//! tell of calls alone) becomes a row when its group has ended. The sends and receives that an all-to-all is made of
//! become one row with its name.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use gputrace_trace::names::{Interner, NameId};
use gputrace_trace::tables::Collective;
use gputrace_trace::{DurationNs, TimeNs};

use crate::nccl::{self, Api, Call, Communicator, Operation, Source};

/// Calls and rows that wait at most; what comes beyond them is not joined.
const MOST_WAITING: usize = 1 << 16;
/// How long a call waits for its operation where that may come on another thread (communicators that do not block).
const PATIENCE: Duration = Duration::from_secs(1);
/// The most communicators whose calls are counted.
const MOST_COUNTED: usize = 4096;

/// A call that the plugin told of.
struct Waiting {
    api: Api,
    thread: u32,
    /// Its operation came.
    seen: bool,
    /// The kernel that it was captured into.
    plan: Option<u64>,
    since: Instant,
}

/// The row of a call that NCCL makes sends and receives of.
struct Fold {
    row: Collective,
    group: u64,
    since: Instant,
}

/// Names by the numbers of their texts.
pub(super) struct Names<'a> {
    pub(super) known: &'a HashMap<u64, NameId>,
    pub(super) interner: &'a mut Interner,
}

impl Names<'_> {
    pub(super) fn get(&self, text: u64) -> NameId {
        self.known.get(&text).copied().unwrap_or_default()
    }
}

/// What is known of NCCL's calls.
#[derive(Default)]
pub(super) struct Operations {
    apis: BTreeMap<u64, Waiting>,
    folds: BTreeMap<u64, Fold>,
    /// Operations that came before their calls, from another thread: tried again in the next round.
    early: Vec<(Operation, u32)>,
    /// Rows that are done.
    pub(super) ready: Vec<Collective>,
    /// The next number by communicator, rank and function, as NCCL counts.
    next: HashMap<(u64, u32, NameId), u64>,
    /// Numbers would not be those of other ranks: something was lost, or not recorded.
    uncounted: bool,
    /// This process's rank by communicator, where there is one.
    ranks: HashMap<u64, u32>,
    /// Communicators that have a row.
    communicators: Vec<(u64, u32)>,
}

/// NCCL's words for ncclRedOp_t.
fn reduction_name(reduction: u8) -> &'static str {
    match reduction {
        0 => "Sum",
        1 => "Prod",
        2 => "Max",
        3 => "Min",
        4 => "Avg",
        // All that programs can make.
        _ => "PreMulSum",
    }
}

impl Operations {
    /// From now on numbers that are not NCCL's own are not to be given.
    pub(super) fn stop_counting(&mut self) {
        self.uncounted = true;
    }

    /// Whether a communicator has no row yet.
    pub(super) fn learn(&mut self, communicator: &Communicator) -> bool {
        self.ranks.insert(communicator.communicator, communicator.rank);
        let key = (communicator.communicator, communicator.rank);
        // The plugin tells once a communicator; NVTX might tell again of one that the plugin told of.
        let new = communicator.profiler_version != 0 || !self.communicators.contains(&key);
        if new && self.communicators.len() < MOST_COUNTED {
            self.communicators.push(key);
        }
        new
    }

    /// The program called.
    pub(super) fn called(&mut self, api: Api, thread: u32) {
        if self.apis.len() < MOST_WAITING {
            let waiting = Waiting {
                api,
                thread,
                seen: false,
                plan: None,
                since: Instant::now(),
            };
            self.apis.insert(waiting.api.number, waiting);
        }
    }

    /// NCCL launched a kernel into a CUDA graph. It tells of no operations then: the kernel's are the calls of that group on that
    /// communicator which have none yet. (Where NCCL needs several kernels for them the first takes all.)
    pub(super) fn captured(&mut self, plan: u64, communicator: (u64, u32), group: u64) {
        for waiting in self.apis.values_mut() {
            let api = &waiting.api;
            let is_of_it = api.graph_captured
                && (api.communicator, api.rank) == communicator
                && api.group == group
                && !waiting.seen;
            if is_of_it && waiting.plan.is_none() {
                waiting.plan = Some(plan);
            }
        }
    }

    /// NCCL enqueued an operation.
    pub(super) fn enqueued(&mut self, operation: Operation, thread: u32, names: &mut Names<'_>) {
        let Some(number) = operation.api else {
            self.row(&operation, None, thread, names);
            return;
        };
        match self.apis.get_mut(&number) {
            Some(waiting) => {
                waiting.seen = true;
                let api = waiting.api;
                self.settle_before(&api, names);
                self.row(&operation, Some(&api), thread, names);
            }
            None if self.early.len() < MOST_WAITING => self.early.push((operation, thread)),
            None => self.row(&operation, None, thread, names),
        }
    }

    /// What came early is tried again; `before` says how many of them were there before this round.
    pub(super) fn retry(&mut self, before: usize, names: &mut Names<'_>) {
        let later = self.early.split_off(before.min(self.early.len()));
        for (mut operation, thread) in std::mem::replace(&mut self.early, later) {
            let known = operation
                .api
                .is_some_and(|number| self.apis.contains_key(&number));
            if !known {
                // Its call was told of in another time: a graph that is launched again.
                operation.api = None;
            }
            self.enqueued(operation, thread, names);
        }
    }

    /// How many came before their calls.
    pub(super) fn early(&self) -> usize {
        self.early.len()
    }

    /// A group of calls has ended. `launched`: NCCL launched its kernels on the same thread, so that no more will come.
    pub(super) fn group_ended(&mut self, group: u64, launched: bool, names: &mut Names<'_>) {
        let of_group: Vec<u64> = self
            .apis
            .values()
            .filter(|waiting| waiting.api.group == group && (waiting.seen || launched))
            .map(|waiting| waiting.api.number)
            .collect();
        for number in of_group {
            self.settle(number, names);
        }
        let folded: Vec<u64> = self
            .folds
            .iter()
            .filter(|(_, fold)| fold.group == group)
            .map(|(call, _)| *call)
            .collect();
        for call in folded {
            if let Some(fold) = self.folds.remove(&call) {
                self.ready.push(fold.row);
            }
        }
    }

    /// Calls and rows that have waited long enough; at the end all of them.
    pub(super) fn expire(&mut self, end: bool, names: &mut Names<'_>) {
        if self.apis.is_empty() && self.folds.is_empty() {
            return;
        }
        let old = |since: Instant| end || since.elapsed() >= PATIENCE;
        let numbers: Vec<u64> = self
            .apis
            .values()
            .filter(|waiting| old(waiting.since))
            .map(|waiting| waiting.api.number)
            .collect();
        for number in numbers {
            self.settle(number, names);
        }
        let folds = std::mem::take(&mut self.folds);
        for (call, fold) in folds {
            if old(fold.since) {
                self.ready.push(fold.row);
            } else {
                self.folds.insert(call, fold);
            }
        }
    }

    /// Operations of a communicator are enqueued in the order of their groups: where one has come, nothing more is expected of
    /// calls in groups before.
    fn settle_before(&mut self, api: &Api, names: &mut Names<'_>) {
        let is_before = |waiting: &&Waiting| {
            let other = &waiting.api;
            !waiting.seen
                && other.group != api.group
                && (other.communicator, other.rank) == (api.communicator, api.rank)
        };
        let numbers: Vec<u64> = self
            .apis
            .range(..api.number)
            .map(|(_, waiting)| waiting)
            .filter(is_before)
            .map(|waiting| waiting.api.number)
            .collect();
        for number in numbers {
            self.settle(number, names);
        }
    }

    /// Nothing more is expected of a call: if no operation came it is a row itself.
    fn settle(&mut self, number: u64, names: &mut Names<'_>) {
        let Some(waiting) = self.apis.remove(&number).filter(|waiting| !waiting.seen) else {
            return;
        };
        let api = waiting.api;
        let operation = Operation {
            source: Source::Call,
            start_ns: api.start_ns,
            duration_ns: 0,
            communicator: api.communicator,
            rank: api.rank,
            sequence: None,
            function: api.function,
            datatype: api.datatype,
            count: api.count,
            root: api.root,
            peer: api
                .call
                .filter(|call| call.function.has_peer())
                .map(|call| call.end),
            algorithm: None,
            protocol: None,
            variant: None,
            channels: 0,
            warps: 0,
            symmetric: false,
            // The group's number is around all that it launched.
            plan: waiting
                .plan
                .or((api.group != 0 && !api.graph_captured).then_some(api.group)),
            stream: api.stream,
            tag: api.tag,
            api: Some(api.number),
            number: 0,
            call: None,
        };
        self.row(&operation, Some(&api), waiting.thread, names);
    }

    fn row(&mut self, operation: &Operation, api: Option<&Api>, thread: u32, names: &mut Names<'_>) {
        let call = operation.call.or(api.and_then(|api| api.call));
        let folding = call.filter(|call| call.function.is_made_of_transfers() && operation.peer.is_some());
        // The call's own count and type: NCCL counts some operations in bytes. The bytes are the same.
        let (datatype, count) = match api {
            Some(api) if operation.source == Source::Plugin => (api.datatype, api.count),
            _ => (operation.datatype, operation.count),
        };
        let datatype = names.get(datatype);
        let size = nccl::datatype_bytes(names.interner.get(datatype));
        let mut row = Collective {
            start_ns: TimeNs(operation.start_ns),
            duration_ns: DurationNs(operation.duration_ns),
            communicator: operation.communicator,
            rank: operation.rank,
            sequence: operation.sequence,
            function: names.get(operation.function),
            datatype,
            count,
            bytes: count.saturating_mul(size),
            root: operation.root,
            peer: operation.peer,
            algorithm: operation.algorithm.map(|text| names.get(text)),
            protocol: operation.protocol.map(|text| names.get(text)),
            channels: operation.channels,
            warps: operation.warps,
            plan: operation.plan,
            thread,
            graph_captured: u8::from(api.is_some_and(|api| api.graph_captured)),
            kernel: None,
            reduction: call
                .and_then(|call| call.reduction)
                .map(|reduction| names.interner.intern(reduction_name(reduction))),
            source: operation.source as u8,
            stream: operation.stream.or(api.and_then(|api| api.stream)),
            user_tag: operation.tag.or(api.and_then(|api| api.tag)),
            variant: operation.variant.map(|text| names.get(text)),
            symmetric: u8::from(operation.symmetric),
            operation: (operation.number != 0 && keeps_numbers()).then_some(operation.number),
        };
        if let Some(call) = folding {
            self.fold(row, &call, api.map_or(0, |api| api.group), names);
            return;
        }
        if operation.source == Source::Nvtx
            && let Some(call) = call
        {
            row.bytes = call.bytes;
            row.rank = self.ranks.get(&row.communicator).copied().unwrap_or(0);
        }
        self.number(&mut row);
        self.ready.push(row);
    }

    /// Puts a send or receive into the row of the call that it is part of.
    fn fold(&mut self, mut row: Collective, call: &Call, group: u64, names: &mut Names<'_>) {
        if let Some(fold) = self.folds.get_mut(&call.number) {
            fold.row.channels = fold.row.channels.max(row.channels);
            fold.row.plan = fold.row.plan.or(row.plan);
            fold.row.duration_ns = DurationNs(row.start_ns.0 + row.duration_ns.0 - fold.row.start_ns.0);
            return;
        }
        row.function = names.interner.intern(call.function.name());
        let size = row.bytes.checked_div(row.count).unwrap_or(0);
        row.bytes = call.bytes;
        row.count = call.bytes.checked_div(size).unwrap_or(row.count);
        row.peer = None;
        row.root = call.function.has_root().then_some(call.end);
        self.number(&mut row);
        if self.folds.len() < MOST_WAITING {
            let since = Instant::now();
            self.folds.insert(call.number, Fold { row, group, since });
        } else {
            self.ready.push(row);
        }
    }

    /// Numbers what NCCL gave no number, as it counts: those of each function on the communicator.
    fn number(&mut self, row: &mut Collective) {
        if row.peer.is_some() || row.graph_captured != 0 {
            return;
        }
        let key = (row.communicator, row.rank, row.function);
        if !self.next.contains_key(&key) && self.next.len() >= MOST_COUNTED {
            return;
        }
        let next = self.next.entry(key).or_default();
        match row.sequence {
            Some(sequence) => *next = (*next).max(sequence + 1),
            None => {
                if !self.uncounted && row.communicator != 0 {
                    row.sequence = Some(*next);
                }
                *next += 1;
            }
        }
    }
}

/// Whether rows of other tables name operations by number.
fn keeps_numbers() -> bool {
    nccl::records_details()
}
