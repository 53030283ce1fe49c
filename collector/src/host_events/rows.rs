//! The writer's side: takes what the threads' rings hold and makes rows of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::names::{Interner, NameId};
use gputrace_trace::options::Kind;
use gputrace_trace::step_names::step_word;
use gputrace_trace::tables;
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter};
use gputrace_trace::{DurationNs, TimeNs};

use super::budget::BUDGET;
use super::details::Details;
use super::losses::{LOSSES, LOST_ELSEWHERE, Lost};
use super::operations::{Names, Operations};
use super::payloads::Payloads;
use super::ring::{Consumer, Record};
use super::{ThreadInfo, record, take_new};
use crate::windows::Gate;
use crate::{header, nccl, nvtx};

/// Bytes of distinct texts that are kept; programs that number their ranges make new ones without end.
const MOST_TEXT_BYTES: usize = 16 << 20;
/// What a text weighs beside its bytes, here and in the writer.
const TEXT_EXTRA_BYTES: usize = 64;
/// What names beyond them become.
const NO_ROOM: &str = "(more names than there is room for)";
/// Ranges between any two threads that may be open at once: against programs that never end them.
const MOST_STARTED: usize = 1 << 16;

/// One thread's ring.
struct Source {
    info: Arc<ThreadInfo>,
    consumer: Consumer,
}

/// What the writer knows of the threads and their texts.
#[derive(Default)]
pub(crate) struct Rows {
    sources: Vec<Source>,
    texts: HashMap<u64, NameId>,
    text_bytes: usize,
    /// Texts that found no room, not told yet.
    texts_lost: u64,
    /// Domains' names by their numbers.
    domains: Vec<NameId>,
    /// Push/pop ranges that were open when their thread ended.
    left_open: u64,
    /// Ranges that began and may end on another thread, by number, with the thread that began them.
    started: HashMap<u64, (nvtx::Range, u32)>,
    /// Ends that came before their beginnings.
    ended: HashMap<u64, i64>,
    operations: Operations,
    details: Details,
    payloads: Payloads,
    record: Record,
    /// Launches whose stacks are recorded.
    pub(crate) launches: Vec<Launch>,
    /// What is told while the program runs.
    pub(crate) live: LiveOperations,
}

/// A call that put work on a device, with the number of its stack.
pub(crate) struct Launch {
    pub(crate) time_ns: TimeNs,
    pub(crate) thread: u32,
    pub(crate) correlation: u32,
    pub(crate) stack: u32,
}

/// NCCL's operations, for those who are told of them while the program runs.
#[derive(Default)]
pub(crate) struct LiveOperations {
    /// Whether anybody is.
    pub(crate) is_wanted: bool,
    /// Operations that were enqueued.
    pub(crate) enqueued: u64,
    /// Of which NCCL said that they ended, by the first of their channels.
    pub(crate) finished: Option<u64>,
    /// The last that ended: channels of one follow each other.
    last: VecDeque<(u64, u64)>,
    /// Since they were last taken: from when to when NCCL saw one run.
    pub(crate) ran: Vec<(i64, i64)>,
}

/// Operations that run at the same time, at the most, as far as their channels are told apart.
const MOST_RUNNING: usize = 64;

impl LiveOperations {
    fn channel(&mut self, row: &tables::NcclChannel) {
        if !self.is_wanted || row.phase.is_some() {
            return;
        }
        self.ran
            .push((row.start_ns.0, row.start_ns.0.saturating_add(row.duration_ns.0)));
        let Some(operation) = row.operation.map(|operation| (row.communicator, operation)) else {
            return;
        };
        if !self.last.contains(&operation) {
            *self.finished.get_or_insert(0) += 1;
            self.last.push_back(operation);
            if self.last.len() > MOST_RUNNING {
                self.last.pop_front();
            }
        }
    }
}

impl Rows {
    /// Makes rows of all that has come. Gives whether the header has changed.
    pub(crate) fn take(
        &mut self,
        writer: &mut ProcessWriter,
        header: &mut ProcessHeader,
        gate: &mut Gate,
    ) -> bool {
        self.sources.extend(
            take_new()
                .into_iter()
                .map(|(info, consumer)| Source { info, consumer }),
        );
        let mut changed = false;
        let early = self.operations.early();
        let mut sources = std::mem::take(&mut self.sources);
        // An end that waited for a whole round has no beginning: that was lost, or the program made its number up.
        let waited: Vec<u64> = self.ended.keys().copied().collect();
        sources.retain_mut(|source| {
            // Asked before reading: what is pushed before the end is read below.
            let ended = source.consumer.is_closed();
            let mut record = std::mem::take(&mut self.record);
            let mut rows = 0;
            // A thread that pushes faster than rows are made must not keep the others waiting: no more is taken than what was
            // there when the round began. A record takes two words at least.
            let most = BUDGET.used_bytes() / 16;
            while rows < most && source.consumer.pop(&mut record) {
                changed |= self.row(&record, source.info.id, writer, header, gate);
                self.put_operations(writer, gate);
                rows += 1;
                if rows % BATCH_ROWS == 0 {
                    // A full batch goes to the disk before the next is begun; a refusal is told of by the caller's flush.
                    drop(writer.flush(BATCH_ROWS));
                }
            }
            self.record = record;
            self.losses(&source.info, writer);
            if ended {
                self.left_open += u64::from(source.info.open_ranges.load(Ordering::Relaxed));
            }
            !ended
        });
        self.sources = sources;
        for id in waited {
            self.ended.remove(&id);
        }
        if LOST_ELSEWHERE[Lost::Operations as usize].load(Ordering::Relaxed) > 0 {
            self.operations.stop_counting();
        }
        for ((_, what, affects), count) in LOSSES.iter().zip(&LOST_ELSEWHERE) {
            writer.lose(what, count.swap(0, Ordering::Relaxed), affects);
        }
        let (operations, mut names) = (&mut self.operations, names(&self.texts, &mut writer.names));
        operations.retry(early, &mut names);
        operations.expire(false, &mut names);
        self.put_operations(writer, gate);
        let unknown = std::mem::take(&mut self.payloads.unknown);
        let what = "NVTX payloads whose schema was not registered";
        writer.lose(what, unknown, "payloads of ranges");
        let details = std::mem::take(&mut self.details.lost);
        writer.lose(
            "NCCL proxy steps and channels",
            details,
            "proxy steps and channels",
        );
        let texts = std::mem::take(&mut self.texts_lost);
        writer.lose("names beyond the memory for names", texts, "names");
        changed
    }

    /// At the end: what waits for more becomes rows as it is.
    pub(crate) fn finish(
        &mut self,
        writer: &mut ProcessWriter,
        header: &mut ProcessHeader,
        gate: &mut Gate,
    ) -> bool {
        let changed = self.take(writer, header, gate);
        let (operations, mut names) = (&mut self.operations, names(&self.texts, &mut writer.names));
        operations.retry(usize::MAX, &mut names);
        operations.expire(true, &mut names);
        self.put_operations(writer, gate);
        changed
    }

    /// Rows of NCCL's operations and of payloads that are done.
    fn put_operations(&mut self, writer: &mut ProcessWriter, gate: &mut Gate) {
        for row in self.operations.ready.drain(..) {
            // Captured once, before the window maybe, and run in it.
            self.live.enqueued += 1;
            let is_kept = row.graph_captured != 0 || gate.keeps(row.start_ns, "collectives");
            if gate.wants(Kind::Collectives) && is_kept {
                writer.tables.collectives.push(row);
            }
        }
        for row in self.details.channels.drain(..) {
            self.live.channel(&row);
            if gate.wants(Kind::Channels) && gate.keeps(row.start_ns, "nccl_channels") {
                writer.tables.nccl_channels.push(row);
            }
        }
        for row in self.payloads.ready.drain(..) {
            if gate.wants(Kind::Ranges) && gate.keeps(row.time_ns, "payload_fields") {
                writer.tables.payload_fields.push(row);
            }
        }
        for row in self.details.proxy.drain(..) {
            if gate.wants(Kind::Proxy) && gate.keeps(row.start_ns, "nccl_proxy") {
                writer.tables.nccl_proxy.push(row);
            }
        }
    }

    fn losses(&mut self, info: &ThreadInfo, writer: &mut ProcessWriter) {
        if info.lost[Lost::Operations as usize].load(Ordering::Relaxed) > 0 {
            self.operations.stop_counting();
        }
        for ((_, what, affects), count) in LOSSES.iter().zip(&info.lost) {
            if count.load(Ordering::Relaxed) > 0 {
                writer.lose(what, count.swap(0, Ordering::Relaxed), affects);
            }
        }
    }

    /// Ranges that are open, or were when their thread ended.
    pub(crate) fn open_ranges(&self) -> u64 {
        let open = self
            .sources
            .iter()
            .map(|source| u64::from(source.info.open_ranges.load(Ordering::Relaxed)));
        self.left_open + open.sum::<u64>() + self.started.len() as u64
    }

    fn row(
        &mut self,
        record: &Record,
        thread: u32,
        writer: &mut ProcessWriter,
        header: &mut ProcessHeader,
        gate: &mut Gate,
    ) -> bool {
        match record.kind {
            record::TEXT => self.learn(record.fields[0], &record.bytes, writer),
            record::RANGE => {
                let range = nvtx::Range::read(&record.fields);
                self.range(&range, thread, writer, gate);
            }
            record::OPERATOR_RANGE => {
                let operator = nvtx::Operator::read(&record.fields);
                self.operator(&operator, thread, writer, gate);
            }
            record::PYTHON_RANGE => {
                let range = nvtx::Range::read(&record.fields);
                self.python_frame(&range, thread, writer, gate);
            }
            record::RANGE_START => self.range_starts(&record.fields, thread, writer, gate),
            record::RANGE_END => self.range_ends(&record.fields, writer, gate),
            record::OPERATION => {
                let operation = nccl::Operation::read(&record.fields);
                let (operations, mut names) = (&mut self.operations, names(&self.texts, &mut writer.names));
                operations.enqueued(operation, thread, &mut names);
            }
            record::NCCL_API => self.operations.called(nccl::Api::read(&record.fields), thread),
            record::NCCL_CAPTURED => {
                let [plan, communicator, rank, group] = record.fields[..4] else {
                    return false;
                };
                self.operations.captured(plan, (communicator, rank as u32), group);
            }
            record::NCCL_GROUP_END => {
                let (group, launched) = (record.fields[0], record.fields[1] != 0);
                let (operations, mut names) = (&mut self.operations, names(&self.texts, &mut writer.names));
                operations.group_ended(group, launched, &mut names);
            }
            record::NAME => {
                let named = nvtx::NameRecord::read(&record.fields);
                let row = tables::ObjectName {
                    time_ns: TimeNs(named.time_ns),
                    kind: named.kind,
                    domain: self.domain(named.domain, writer),
                    identifier: named.identifier,
                    resource_type: named.resource_type,
                    cupti: named.cupti,
                    name: self.name(named.text),
                };
                writer.tables.object_names.push(row);
            }
            record::SCHEMA => self.payloads.schema(&record.fields, &record.bytes),
            record::ENUM => self.payloads.enumeration(&record.fields, &record.bytes),
            record::PAYLOAD => {
                let domain = self.domain(record.fields[0] as u32, writer);
                let (payloads, mut names) = (&mut self.payloads, names(&self.texts, &mut writer.names));
                payloads.payload(&record.fields, &record.bytes, thread, domain, &mut names);
            }
            record::NCCL_DETAIL => self.details.begin(&record.fields),
            record::NCCL_DETAIL_STATE => self.details.change(&record.fields),
            record::NCCL_DETAIL_END => {
                let names = names(&self.texts, &mut writer.names);
                self.details.end(&record.fields, thread, &names);
            }
            record::LAUNCH => {
                let [time_ns, what] = record.fields[..2] else {
                    return false;
                };
                let time_ns = TimeNs(time_ns.cast_signed());
                if gate.wants(Kind::Stacks) && gate.keeps_call(time_ns, "launch_stacks") {
                    self.launches.push(Launch {
                        time_ns,
                        thread,
                        correlation: what as u32,
                        stack: (what >> 32) as u32,
                    });
                }
            }
            record::COMMUNICATOR => {
                let communicator = nccl::Communicator::read(&record.fields);
                if !self.operations.learn(&communicator) {
                    return false;
                }
                header::learn_rank(header, communicator.rank, communicator.ranks);
                if communicator.profiler_version != 0 {
                    header.nccl_profiler_version = Some(communicator.profiler_version);
                }
                let row = tables::Communicator {
                    created_ns: TimeNs(communicator.created_ns),
                    communicator: communicator.communicator,
                    name: communicator.name.map(|text| self.name(text)),
                    rank: communicator.rank,
                    ranks: communicator.ranks,
                    nodes: communicator.nodes,
                };
                writer.tables.communicators.push(row);
                return true;
            }
            _ => {}
        }
        false
    }

    fn range(&mut self, range: &nvtx::Range, thread: u32, writer: &mut ProcessWriter, gate: &mut Gate) {
        let name = self.name(range.text);
        // To measure what recording costs, steps are needed that were not recorded too.
        let is_kept = gate.is_measuring() && step_word(writer.names.get(name).as_bytes()).is_some()
            || gate.wants(Kind::Ranges) && gate.keeps(TimeNs(range.start_ns), "markers");
        if !is_kept {
            return;
        }
        let row = tables::Marker {
            start_ns: TimeNs(range.start_ns),
            duration_ns: range.duration_ns.map(DurationNs),
            name,
            domain: self.domain(range.domain, writer),
            thread,
            kind: range.kind,
            depth: range.depth,
            category: range.category,
            color: range.color,
            payload: range.payload.and_then(nvtx::Payload::as_number),
            payload_type: range.payload.map(|payload| payload.kind),
            payload_integer: range.payload.and_then(nvtx::Payload::as_integer),
        };
        writer.tables.markers.push(row);
    }

    fn operator(&self, operator: &nvtx::Operator, thread: u32, writer: &mut ProcessWriter, gate: &mut Gate) {
        let start_ns = TimeNs(operator.start_ns);
        if !gate.wants(Kind::Ranges) || !gate.keeps(start_ns, "operators") {
            return;
        }
        let list = |text: u64| (text != 0).then(|| self.name(text));
        writer.tables.operators.push(tables::Operator {
            start_ns,
            duration_ns: DurationNs(operator.duration_ns),
            name: self.name(operator.name),
            thread,
            input_dims: list(operator.input_dims),
            input_types: list(operator.input_types),
            input_values: None,
            sequence: operator.sequence,
            forward_thread: operator.forward_thread,
            number: operator.number,
        });
    }

    fn python_frame(&self, range: &nvtx::Range, thread: u32, writer: &mut ProcessWriter, gate: &mut Gate) {
        let start_ns = TimeNs(range.start_ns);
        if !gate.wants(Kind::Ranges) || !gate.keeps(start_ns, "python_frames") {
            return;
        }
        writer.tables.python_frames.push(tables::PythonFrame {
            start_ns,
            duration_ns: DurationNs(range.duration_ns.unwrap_or_default()),
            name: self.name(range.text),
            thread,
            number: None,
        });
    }

    /// The two halves of a range may come in either order when they are of two threads.
    fn range_starts(&mut self, fields: &[u64], thread: u32, writer: &mut ProcessWriter, gate: &mut Gate) {
        let (id, mut range) = (fields[0], nvtx::Range::read(&fields[1..]));
        if let Some(end_ns) = self.ended.remove(&id) {
            range.duration_ns = Some(end_ns - range.start_ns);
            self.range(&range, thread, writer, gate);
        } else if self.started.len() < MOST_STARTED {
            self.started.insert(id, (range, thread));
        } else {
            writer.lose("NVTX ranges beyond those that may be open at once", 1, "ranges");
        }
    }

    fn range_ends(&mut self, fields: &[u64], writer: &mut ProcessWriter, gate: &mut Gate) {
        let (id, end_ns) = (fields[0], fields[1].cast_signed());
        if let Some((mut range, thread)) = self.started.remove(&id) {
            range.duration_ns = Some(end_ns - range.start_ns);
            self.range(&range, thread, writer, gate);
        } else if self.ended.len() < MOST_STARTED {
            self.ended.insert(id, end_ns);
        }
    }

    /// Keeps a text for the records after it.
    fn learn(&mut self, hash: u64, bytes: &[u8], writer: &mut ProcessWriter) {
        if self.texts.contains_key(&hash) {
            return;
        }
        let text = String::from_utf8_lossy(bytes);
        let name = if self.text_bytes + text.len() <= MOST_TEXT_BYTES {
            self.text_bytes += text.len() + TEXT_EXTRA_BYTES;
            writer.names.intern(&text)
        } else {
            self.texts_lost += 1;
            writer.names.intern_own(NO_ROOM)
        };
        // Those that are known to have no room are bounded too: beyond that they have no name at all.
        if self.texts.len() < MOST_TEXT_BYTES / TEXT_EXTRA_BYTES {
            self.texts.insert(hash, name);
        }
    }

    fn name(&self, text: u64) -> NameId {
        self.texts.get(&text).copied().unwrap_or_default()
    }

    fn domain(&mut self, domain: u32, writer: &mut ProcessWriter) -> NameId {
        let domain = domain as usize;
        while self.domains.len() <= domain {
            let name = nvtx::domain_name(self.domains.len());
            self.domains.push(writer.names.intern(&name));
        }
        self.domains[domain]
    }
}

/// What makes names of texts' numbers.
fn names<'a>(known: &'a HashMap<u64, NameId>, interner: &'a mut Interner) -> Names<'a> {
    Names { known, interner }
}
