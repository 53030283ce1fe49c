//! Collectives as the analysis matched them: a line for each rank of a communicator, and who waited for whom.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use gputrace_analyzer::{
    Analysis, Collective, CollectivePart, CommunicatorAnalysis, Details, LaunchedOperations,
};
use gputrace_trace::tables::{ApiCalls, Copies, GraphLaunches, Kernels, Markers, Memsets, Synchronizations};
use gputrace_trace::{Interner, TimeNs};
use rustc_hash::FxHashMap;

use super::answers::{CollectivePage, CollectiveRefs, ParticipantRef, Ref};
use super::gather::Place;
use super::lanes::{Item, lay_out};
use super::names::{Class, number};
use super::rows::Communicator;
use super::source::{Table, source};
use super::{CollectiveOrder, CollectiveQuery, Timeline};

/// What the analysis adds to a timeline.
pub(crate) struct Known {
    analysis: Arc<Analysis>,
    /// By collective.
    parts: Vec<Vec<CollectivePart>>,
    /// Names that the recording does not have.
    pub(crate) names: Vec<String>,
    pub(crate) communicators: Vec<Communicator>,
    /// Process and row of kernels with the collective that ran in them, sorted.
    by_kernel: Vec<(u32, u32, u32)>,
    /// The same of rows of the processes' tables of collectives.
    by_row: Vec<(u32, u32, u32)>,
    /// By device: under which modules and functions operations were launched.
    pub(crate) launched: Arc<Vec<LaunchedOperations>>,
}

/// The rest of a hash that tells communicators apart at sight.
fn short_hash(hash: &str) -> &str {
    hash.char_indices()
        .rev()
        .nth(7)
        .map_or(hash, |(at, _)| &hash[at..])
}

/// What to call a communicator.
fn label(communicator: &CommunicatorAnalysis) -> String {
    let name = match &communicator.communicator_name {
        Some(name) => name.clone(),
        None if communicator.communicator == "unknown" => "communicator not told".to_owned(),
        None => format!("…{}", short_hash(&communicator.communicator)),
    };
    let ranks = communicator
        .communicator_ranks
        .or_else(|| u32::try_from(communicator.ranks.len()).ok())
        .unwrap_or(0);
    format!("{name} · {ranks} rank{}", if ranks == 1 { "" } else { "s" })
}

impl Known {
    pub(crate) fn new(analysis: &Arc<Analysis>, details: &Details, recorded: &Interner) -> Self {
        let mut known = Self {
            names: Vec::new(),
            communicators: Vec::new(),
            by_kernel: Vec::new(),
            by_row: Vec::new(),
            analysis: analysis.clone(),
            parts: details.collectives.clone(),
            launched: details.launched.clone(),
        };
        let mut members: FxHashMap<&str, u32> = FxHashMap::default();
        let mut lines: BTreeMap<(&str, u32, u32), Vec<Item>> = BTreeMap::new();
        for (place, collective) in (0u32..).zip(&analysis.collectives) {
            let member = *members.entry(&collective.name).or_insert_with(|| {
                let number = recorded.find(&collective.name);
                number.map_or_else(
                    || {
                        known.names.push(collective.name.clone());
                        u32::try_from(recorded.len() + known.names.len() - 1).unwrap_or(u32::MAX)
                    },
                    gputrace_trace::NameId::number,
                )
            });
            for part in details.collectives.get(place as usize).into_iter().flatten() {
                if let Some(row) = part.row {
                    known.by_row.push((part.process, row, place));
                }
                let (Some((device, row)), Some(start), Some(end)) = (part.kernel, part.start_ns, part.end_ns)
                else {
                    continue;
                };
                known.by_kernel.push((part.process, row, place));
                let key = (collective.communicator.as_str(), part.process, device);
                let items = lines.entry(key).or_default();
                let wait = part.wait_ns.unwrap_or(0).clamp(0, end - start);
                let source = source(Table::Collective, place);
                if wait > 0 {
                    items.push(Item {
                        start,
                        duration: wait,
                        name: number(Class::Wait, member),
                        source,
                    });
                }
                items.push(Item {
                    start: start + wait,
                    duration: end - start - wait,
                    name: number(Class::Collective, member),
                    source,
                });
            }
        }
        known.by_kernel.sort_unstable();
        known.by_row.sort_unstable();
        let mut labels: FxHashMap<&str, (usize, String)> = FxHashMap::default();
        for (order, communicator) in analysis.communicators.iter().enumerate() {
            labels.insert(&communicator.communicator, (order, label(communicator)));
        }
        for ((hash, process, device), mut items) in lines {
            let (lanes, _) = lay_out(&mut items, |_| false);
            known.communicators.push(Communicator {
                hash: hash.to_owned(),
                label: labels
                    .get(hash)
                    .map_or_else(|| hash.to_owned(), |(_, label)| label.clone()),
                process,
                device,
                lanes: lanes.into_iter().map(Arc::new).collect(),
            });
        }
        // Two of one name and size are told apart by their hashes.
        let mut alike: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for communicator in &known.communicators {
            let hashes = alike.entry(communicator.label.clone()).or_default();
            if !hashes.contains(&communicator.hash) {
                hashes.push(communicator.hash.clone());
            }
        }
        for communicator in &mut known.communicators {
            if alike
                .get(&communicator.label)
                .is_some_and(|hashes| hashes.len() > 1)
            {
                communicator.label = format!("{} · …{}", communicator.label, short_hash(&communicator.hash));
            }
        }
        // Those that a rank waits longest on come first, as in the analysis.
        let order = |hash: &str| labels.get(hash).map_or(usize::MAX, |(order, _)| *order);
        known.communicators.sort_by_key(|communicator| {
            (
                order(&communicator.hash),
                communicator.process,
                communicator.device,
            )
        });
        known
    }

    /// What each GPU did of a collective.
    pub(crate) fn parts(&self, place: u32) -> &[CollectivePart] {
        self.parts.get(place as usize).map_or(&[], Vec::as_slice)
    }

    fn first(list: &[(u32, u32, u32)], process: u32, row: u32) -> impl Iterator<Item = u32> {
        let first = list.partition_point(|entry| (entry.0, entry.1) < (process, row));
        list[first..]
            .iter()
            .take_while(move |entry| (entry.0, entry.1) == (process, row))
            .map(|entry| entry.2)
    }

    /// The collectives that ran in a kernel.
    pub(crate) fn of_kernel(&self, process: u32, row: u32) -> impl Iterator<Item = u32> {
        Self::first(&self.by_kernel, process, row)
    }

    /// The collectives that a process enqueued by this row of its table: several, where a graph repeats it.
    pub(crate) fn of_row(&self, process: u32, row: u32) -> impl Iterator<Item = u32> {
        Self::first(&self.by_row, process, row)
    }
}

impl Timeline {
    /// Collectives over the ranks; none before there is an analysis.
    #[must_use]
    pub fn collectives(&self, query: &CollectiveQuery) -> CollectivePage {
        let Some(known) = &self.known else {
            return CollectivePage::default();
        };
        let all = &known.analysis.collectives;
        let mut chosen: Vec<u32> = (0u32..)
            .zip(all)
            .filter(|(_, collective)| {
                query
                    .communicator
                    .as_ref()
                    .is_none_or(|wanted| *wanted == collective.communicator)
                    && query
                        .name
                        .as_ref()
                        .is_none_or(|wanted| *wanted == collective.name)
                    && (query.last_rank.is_none() || query.last_rank == collective.last_rank)
            })
            .map(|(place, _)| place)
            .collect();
        let key = |place: &u32| -> Option<f64> {
            let collective = &all[*place as usize];
            match query.order {
                CollectiveOrder::Start => collective
                    .start_ns
                    .map(|start| (start.0 - self.base.origin) as f64),
                CollectiveOrder::Skew => collective.skew_ns.map(|skew| skew as f64),
                CollectiveOrder::Cost => collective.last_rank_cost_ns.map(|cost| cost as f64),
                CollectiveOrder::Bytes => collective.bytes.map(|bytes| bytes as f64),
                CollectiveOrder::Busbw => collective.busbw,
                CollectiveOrder::Duration => collective.longest_kernel_ns.map(|longest| longest as f64),
            }
        };
        chosen.sort_by(|a, b| match (key(a), key(b)) {
            (Some(a), Some(b)) if query.descending => b.total_cmp(&a),
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
        CollectivePage {
            total: chosen.len(),
            collectives: chosen
                .into_iter()
                .skip(query.offset)
                .take(query.limit)
                .filter_map(|place| self.collective(place))
                .collect(),
        }
    }

    /// A collective by its place in the analysis.
    pub(crate) fn collective(&self, place: u32) -> Option<CollectiveRefs> {
        let known = self.known.as_ref()?;
        let collective = known.analysis.collectives.get(place as usize)?;
        let outline = self.base.store.outline();
        let participants = known.parts(place).iter().map(|part| {
            let process = outline.processes.get(part.process as usize);
            let clock = process.and_then(|process| process.header.clock);
            let aligned = outline.clocks.as_ref().zip(clock);
            let clock_error = aligned
                .zip(part.start_ns)
                .and_then(|((alignment, clock), start)| {
                    let known = alignment.clocks.get(clock as usize)?;
                    Some(known.half_width_at_reference(start))
                });
            ParticipantRef {
                rank: part.rank,
                reference: self.kernel_of(part),
                arrival: part.start_ns.map(|start| self.relative(start)),
                wait: part.wait_ns,
                transfer: part.transfer_ns,
                clock,
                clock_error,
            }
        });
        let participants = participants.collect();
        let mut collective: Collective = collective.clone();
        collective.start_ns = collective.start_ns.map(|start| TimeNs(self.relative(start.0)));
        Some(CollectiveRefs {
            collective,
            number: place,
            participants,
        })
    }

    /// The kernel of a part.
    pub(crate) fn kernel_of(&self, part: &CollectivePart) -> Option<Ref> {
        let (_, row) = part.kernel?;
        self.find(part.process, Table::Kernel, row as usize)
    }

    /// Where a part lies on its communicator's rows: the transfer, or the waiting where there is no transfer.
    pub(crate) fn on_communicator(&self, place: u32, part: &CollectivePart) -> Option<Ref> {
        let collective = self.known.as_ref()?.analysis.collectives.get(place as usize)?;
        let (device, _) = part.kernel?;
        let key = (collective.communicator.clone(), part.process, device);
        let rows = *self.rows.communicators.get(&key)?;
        let start = part.start_ns? + part.wait_ns.unwrap_or(0).max(0);
        self.find_on(rows, start, source(Table::Collective, place))
    }

    /// The slice of a source on some rows that starts at a time.
    pub(crate) fn find_on(&self, rows: (u32, u32), start: i64, source: u32) -> Option<Ref> {
        let (row, place) = self.place_on(rows, start, source)?;
        Some(self.reference(row, self.rows.slices(row)?, place))
    }

    /// The same as row and place.
    fn place_on(&self, (first, count): (u32, u32), start: i64, source: u32) -> Option<(u32, usize)> {
        (first..first + count).find_map(|row| {
            let slices = self.rows.slices(row)?;
            let from = slices.first_from(start);
            let after = slices.first_from(start.saturating_add(1));
            let mut places = (from..after).rev();
            Some((row, places.find(|place| slices.source(*place) == source)?))
        })
    }

    /// Where a row of a process's table is drawn.
    pub(crate) fn find(&self, process: u32, table: Table, row: usize) -> Option<Ref> {
        let (row, place) = self.find_place(process, table, row)?;
        Some(self.reference(row, self.rows.slices(row)?, place))
    }

    /// The same as row and place.
    pub(crate) fn find_place(&self, process: u32, table: Table, row: usize) -> Option<(u32, usize)> {
        let (place, start) = self.place_and_start(process, table, row)?;
        let rows = *self.rows.places.get(&(process, place))?;
        self.place_on(rows, start, source(table, u32::try_from(row).ok()?))
    }

    fn place_and_start(&self, process: u32, table: Table, row: usize) -> Option<(Place, i64)> {
        let store = &self.base.store;
        let found = match table {
            Table::Kernel => {
                let row = store.row::<Kernels>(process, row)?;
                (Place::Stream(row.device, row.stream), row.start_ns)
            }
            Table::Copy => {
                let row = store.row::<Copies>(process, row)?;
                (Place::Stream(row.device, row.stream), row.start_ns)
            }
            Table::Memset => {
                let row = store.row::<Memsets>(process, row)?;
                (Place::Stream(row.device, row.stream), row.start_ns)
            }
            Table::GraphLaunch => {
                let row = store.row::<GraphLaunches>(process, row)?;
                (Place::Stream(row.device, row.stream), row.start_ns)
            }
            Table::Call => {
                let row = store.row::<ApiCalls>(process, row)?;
                (Place::Thread(row.thread), row.start_ns)
            }
            Table::Enqueue => {
                let row = store.collective(process, row)?;
                (Place::Thread(row.thread), row.start_ns)
            }
            Table::Synchronization => {
                let row = store.row::<Synchronizations>(process, row)?;
                let call = self.call_of(process, row.correlation);
                let thread = call.and_then(|call| store.row::<ApiCalls>(process, call));
                let place = thread.map_or(Place::NoThread, |call| Place::Thread(call.thread));
                (place, row.start_ns)
            }
            Table::Marker => {
                let row = store.row::<Markers>(process, row)?;
                (Place::Ranges(row.thread), row.start_ns)
            }
            _ => return None,
        };
        Some((found.0, found.1.0))
    }

    /// The outermost call with a correlation id.
    pub(crate) fn call_of(&self, process: u32, correlation: u32) -> Option<usize> {
        let store = &self.base.store;
        let found = (self.base).rows_with::<ApiCalls>(process, correlation, |joins| &joins.calls);
        let calls = found
            .into_iter()
            .filter_map(|row| Some((row, store.row::<ApiCalls>(process, row)?)));
        // Of two that begin together the longer, and else the runtime's, as in the analysis.
        let outermost = calls.min_by_key(|(_, call)| {
            (
                call.start_ns,
                Reverse(call.duration_ns),
                Reverse(call.kind),
                call.thread,
            )
        });
        outermost.map(|(row, _)| row)
    }
}
