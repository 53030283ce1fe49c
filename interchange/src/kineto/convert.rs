//! Events to rows.

use gputrace_trace::table::TableVisitor;
use gputrace_trace::tables::{
    ApiCall, Copy, Counter, Kernel, Marker, MemoryEvent, Memset, Operator, Overhead, PythonFrame,
    Synchronization,
};
use gputrace_trace::{DurationNs, Table, TimeNs};
use rustc_hash::FxHashMap;

use super::args::{Args, counter_values};
use super::converter::Converter;
use super::copy_names::{copy_kind, memory_kind};
use super::event::Event;
use super::gputrace_members;
use super::ids::Ids;
use super::number::{NoNumber, integer, microseconds_to_ns};
use super::operator_args::{OperatorArgs, python_id};
use super::scan::RawText;
use super::text::unescaped;

/// A category of events that are not used, with its words.
const UNUSED_BYTES: usize = 256;

/// A time span of an event.
#[derive(Clone, Copy)]
struct Span {
    start_ns: TimeNs,
    duration_ns: DurationNs,
}

/// Whether complete events of this category are read.
pub(crate) fn is_used(text: &[u8]) -> bool {
    category(text) != Category::Unused
}

/// What a category's events are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Category {
    Operator,
    PythonFunction,
    Runtime,
    Driver,
    Kernel,
    Memcpy,
    Memset,
    Range,
    Synchronization,
    Overhead,
    Unused,
}

/// Kineto's categories (include/ActivityType.h, 2026-08) and those that PyTorch wrote before 2022.
fn category(text: &[u8]) -> Category {
    match text {
        b"cpu_op" | b"operator" | b"Operator" => Category::Operator,
        b"python_function" => Category::PythonFunction,
        b"cuda_runtime" | b"runtime" | b"Runtime" => Category::Runtime,
        b"cuda_driver" => Category::Driver,
        b"kernel" | b"Kernel" | b"mtia_ccp_events" => Category::Kernel,
        b"gpu_memcpy" | b"memcpy" | b"Memcpy" => Category::Memcpy,
        b"gpu_memset" | b"memset" | b"Memset" => Category::Memset,
        b"user_annotation" => Category::Range,
        b"cuda_sync" | b"xpu_sync" => Category::Synchronization,
        b"overhead" => Category::Overhead,
        _ if text.ends_with(b"_runtime") => Category::Runtime,
        _ if text.ends_with(b"_driver") => Category::Driver,
        _ => Category::Unused,
    }
}

/// `CUpti_ActivityOverheadKind` (cupti_activity.h, 13.0) of Kineto's names; 0 is unknown.
fn overhead_kind(name: &[u8]) -> u32 {
    match name {
        b"Driver Compiler" => 1,
        b"Buffer Flush" => 1 << 16,
        b"Instrumentation" => 2 << 16,
        b"Resource" => 3 << 16,
        b"Runtime Triggered Module Loading" => 4 << 16,
        b"Lazy Function Loading" => 5 << 16,
        b"Command Buffer Full" => 6 << 16,
        b"Activity Buffer Request" => 7 << 16,
        b"UVM Activity Init" => 8 << 16,
        _ => 0,
    }
}

/// `CUpti_ActivitySynchronizationType` of Kineto's names.
fn synchronization_kind(name: &[u8]) -> u32 {
    match name {
        b"Event Sync" => 1,
        b"Stream Wait Event" => 2,
        b"Stream Sync" => 3,
        b"Context Sync" => 4,
        _ => 0,
    }
}

fn small(value: Option<i64>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok())
}

fn graph_node(args: &Args<'_>) -> Option<u64> {
    let node = args.graph_node.and_then(|node| u64::try_from(node).ok());
    node.filter(|&node| node != 0)
}

fn size(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}

impl Converter {
    /// Numbers anew the streams that got numbers as they were met: by what they are called, not by the order of events. What
    /// each new number stands for.
    pub(crate) fn settle_streams(&mut self) -> Vec<(u32, String)> {
        let given = self.streams.given_out();
        let numbers: FxHashMap<u32, u32> = given
            .iter()
            .zip(Ids::GIVEN..)
            .map(|((met, _), settled)| (*met, settled))
            .collect();
        if !numbers.is_empty() {
            let tables = &mut self.tables;
            let of_operations = [
                &mut tables.kernels.stream,
                &mut tables.copies.stream,
                &mut tables.memsets.stream,
            ];
            let of_waits = tables.synchronizations.stream.iter_mut().flatten();
            for stream in of_operations.into_iter().flatten().chain(of_waits) {
                if let Some(settled) = numbers.get(stream) {
                    *stream = *settled;
                }
            }
        }
        given
            .into_iter()
            .zip(Ids::GIVEN..)
            .map(|((_, text), settled)| (settled, text))
            .collect()
    }

    /// Bytes in memory, about. Room for rows that are still to come is none yet.
    pub(crate) fn bytes(&self) -> usize {
        self.row_bytes()
            + self.names.bytes()
            + self.communicators.bytes()
            + self.host_pids.capacity() * size_of::<(u32, u64)>()
            + self.calling_pids.capacity() * size_of::<u32>()
            + self.threads.bytes()
            + self.streams.bytes()
            + self.counts.unused.len() * UNUSED_BYTES
    }

    /// Bytes of all rows.
    pub(super) fn row_bytes(&self) -> usize {
        struct Sum(usize);
        impl TableVisitor for Sum {
            fn table<T: Table>(&mut self, table: &T) {
                self.0 += table.len() * size_of::<T::Row>();
            }
        }
        let mut sum = Sum(0);
        self.tables.visit(&mut sum);
        sum.0
    }

    /// Whether any event has become a row.
    pub(crate) fn has_rows(&self) -> bool {
        self.tables.row_counts().iter().any(|(_, rows)| *rows > 0)
    }

    /// Takes one event in.
    #[inline]
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        self.counts.events += 1;
        self.counts.duplicates += u64::from(event.duplicates);
        if self.own.is_none() || !gputrace_members::take(self, event) {
            self.usual(event);
        }
    }

    /// Takes in what Kineto writes.
    #[inline]
    pub(super) fn usual(&mut self, event: &Event<'_>) {
        match event.phase {
            b'X' => self.complete(event),
            b'i' | b'I' => self.instant(event),
            b'C' => self.counter(event),
            // Names of processes and threads, and arrows.
            b'M' | b's' | b't' | b'f' => {}
            _ => self.unused(event),
        }
    }

    #[cold]
    fn unused(&mut self, event: &Event<'_>) {
        let category: String = String::from_utf8_lossy(event.category).chars().take(64).collect();
        // A file that makes a category of each event must not make them ours.
        let key = (event.phase, category);
        if self.counts.unused.len() < 100 || is_used(event.category) || self.counts.unused.contains_key(&key)
        {
            *self.counts.unused.entry(key).or_default() += 1;
        } else {
            *self
                .counts
                .unused
                .entry((event.phase, "others".to_owned()))
                .or_default() += 1;
        }
    }

    /// The span of a complete event; what has none is counted.
    #[inline]
    fn span(&mut self, event: &Event<'_>) -> Option<Span> {
        let times = (
            microseconds_to_ns(event.ts.unwrap_or_default()),
            microseconds_to_ns(event.dur.unwrap_or_default()),
        );
        match times {
            (Ok(_), Ok(duration)) if duration < 0 => {
                self.counts.backwards += 1;
                None
            }
            (Ok(start), Ok(duration)) => Some(Span {
                start_ns: TimeNs(start),
                duration_ns: DurationNs(duration),
            }),
            (Err(NoNumber::OutOfRange), _) | (_, Err(NoNumber::OutOfRange)) => {
                self.counts.out_of_range += 1;
                None
            }
            _ => {
                self.counts.no_time += 1;
                None
            }
        }
    }

    #[inline]
    fn complete(&mut self, event: &Event<'_>) {
        let category = category(event.category);
        if category == Category::Unused {
            self.unused(event);
            return;
        }
        let Some(name) = event.name else {
            self.counts.no_name += 1;
            return;
        };
        let Some(span) = self.span(event) else {
            return;
        };
        match category {
            // PyTorch up to 1.12 wrote its steps as operators.
            Category::Operator if unescaped(name).starts_with(b"ProfilerStep") => {
                self.range(event, name, span);
            }
            Category::Operator => self.operator(event, name, span),
            Category::PythonFunction => {
                let thread = self.host_thread(event);
                self.tables.python_frames.push(PythonFrame {
                    start_ns: span.start_ns,
                    duration_ns: span.duration_ns,
                    name: self.names.intern(name),
                    thread,
                    number: python_id(event.args),
                });
            }
            Category::Range => self.range(event, name, span),
            Category::Runtime => self.call(event, name, span, 5),
            Category::Driver => self.call(event, name, span, 4),
            Category::Kernel => self.kernel(event, name, span),
            Category::Memcpy => self.copy(event, name, span),
            Category::Memset => self.memset(event, name, span),
            Category::Synchronization => self.synchronization(event, name, span),
            Category::Overhead => self.tables.overheads.push(Overhead {
                start_ns: span.start_ns,
                duration_ns: span.duration_ns,
                kind: overhead_kind(&unescaped(name)),
                ..Overhead::default()
            }),
            Category::Unused => {}
        }
    }

    fn operator(&mut self, event: &Event<'_>, name: RawText<'_>, span: Span) {
        let args = OperatorArgs::read(event.args, name.bytes);
        self.counts.damaged_args += u64::from(args.damaged);
        let thread = self.host_thread(event);
        let names = &mut self.names;
        self.tables.operators.push(Operator {
            start_ns: span.start_ns,
            duration_ns: span.duration_ns,
            name: names.intern(name),
            thread,
            input_dims: args.input_dims.map(|list| names.intern_list(list)),
            input_types: args.input_types.map(|list| names.intern_list(list)),
            input_values: args.input_values.map(|list| names.intern_list(list)),
            sequence: args.sequence,
            forward_thread: args.forward_thread,
            number: args.number,
        });
    }

    fn range(&mut self, event: &Event<'_>, name: RawText<'_>, span: Span) {
        let thread = self.host_thread(event);
        let name = self.names.intern(name);
        self.tables.markers.push(Marker {
            start_ns: span.start_ns,
            duration_ns: Some(span.duration_ns),
            name,
            thread,
            ..Marker::default()
        });
    }

    #[inline]
    fn host_thread(&mut self, event: &Event<'_>) -> u32 {
        if let Some(pid) = small(integer(event.pid)) {
            self.of_host(pid);
        }
        self.threads.number(event.pid, event.tid)
    }

    fn args<'a>(&mut self, event: &Event<'a>) -> Args<'a> {
        let args = Args::read(event.args);
        self.counts.duplicates += u64::from(args.duplicates);
        self.counts.damaged_args += u64::from(args.damaged || event.odd_args);
        args
    }

    /// CUPTI counts correlation ids from 1; 0 joins nothing.
    fn correlation(&mut self, args: &Args<'_>) -> u32 {
        match args.correlation {
            None => 0,
            Some(value) => u32::try_from(value).unwrap_or_else(|_| {
                self.counts.odd_correlations += u64::from(value > 0);
                0
            }),
        }
    }

    fn call(&mut self, event: &Event<'_>, name: RawText<'_>, span: Span, kind: u8) {
        let args = self.args(event);
        let thread = self.host_thread(event);
        self.called_by(small(integer(event.pid)));
        let correlation = self.correlation(&args);
        let name = self.names.intern(name);
        self.tables.api_calls.push(ApiCall {
            start_ns: span.start_ns,
            duration_ns: span.duration_ns,
            name,
            kind,
            callback: small(args.callback).unwrap_or(0),
            thread,
            correlation,
            result: 0,
        });
    }

    /// Device and stream: the arguments say it, else the lane that the event stands in.
    fn place(&mut self, event: &Event<'_>, args: &Args<'_>) -> (u32, u32) {
        let said = small(args.device);
        let device = said.or_else(|| small(integer(event.pid)));
        let is_odd = device.is_none() || args.device.is_some() && said.is_none();
        self.counts.odd_devices += u64::from(is_odd);
        let device = device.unwrap_or(0);
        let stream = match args.stream {
            Some(stream) if self.own.is_some() => small(Some(stream)).unwrap_or(0),
            Some(stream) if stream >= 0 => self.streams.of_value(stream),
            _ => self.streams.number(event.tid),
        };
        (device, stream)
    }

    fn kernel(&mut self, event: &Event<'_>, name: RawText<'_>, span: Span) {
        let args = self.args(event);
        let (device, stream) = self.place(event, &args);
        let correlation = self.correlation(&args);
        self.counts.device_operations += 1;
        let row = self.tables.kernels.len() as u64;
        let name = self.names.intern(name);
        self.tables.kernels.push(Kernel {
            start_ns: span.start_ns,
            duration_ns: span.duration_ns,
            name,
            device,
            context: small(args.context).unwrap_or(0),
            stream,
            correlation,
            grid_x: args.grid[0],
            grid_y: args.grid[1],
            grid_z: args.grid[2],
            block_x: args.block[0],
            block_y: args.block[1],
            block_z: args.block[2],
            registers: small(args.registers)
                .and_then(|value| u16::try_from(value).ok())
                .unwrap_or(0),
            static_shared_bytes: small(args.shared_bytes)
                .and_then(|value| i32::try_from(value).ok())
                .unwrap_or(0),
            dynamic_shared_bytes: 0,
            graph: small(args.graph).filter(|&graph| graph != 0),
            graph_node: graph_node(&args),
            ..Kernel::default()
        });
        if args.collective.is_some() && self.own.is_none() {
            let times = (span.start_ns, span.duration_ns);
            let collective = self.communicators.collective(&args, row, times, &mut self.names);
            self.tables.collectives.push(collective);
        }
    }

    fn copy(&mut self, event: &Event<'_>, name: RawText<'_>, span: Span) {
        let args = self.args(event);
        let (device, stream) = self.place(event, &args);
        let correlation = self.correlation(&args);
        self.counts.device_operations += 1;
        let (source_kind, destination_kind) = memory_kind(&unescaped(name));
        let copy_kind = copy_kind(&unescaped(name));
        let peer = |device: Option<i64>| small(device).filter(|_| copy_kind == 10);
        self.tables.copies.push(Copy {
            start_ns: span.start_ns,
            duration_ns: span.duration_ns,
            device,
            context: small(args.context).unwrap_or(0),
            stream,
            correlation,
            copy_kind,
            source_kind,
            destination_kind,
            flags: 0,
            bytes: size(args.bytes),
            source_device: peer(args.from_device),
            destination_device: peer(args.to_device),
            graph: small(args.graph).filter(|&graph| graph != 0),
            graph_node: graph_node(&args),
        });
    }

    fn memset(&mut self, event: &Event<'_>, name: RawText<'_>, span: Span) {
        let args = self.args(event);
        let (device, stream) = self.place(event, &args);
        let correlation = self.correlation(&args);
        self.counts.device_operations += 1;
        self.tables.memsets.push(Memset {
            start_ns: span.start_ns,
            duration_ns: span.duration_ns,
            device,
            context: small(args.context).unwrap_or(0),
            stream,
            correlation,
            bytes: size(args.bytes),
            memory_kind: u16::from(memory_kind(&unescaped(name)).0),
            graph: small(args.graph).filter(|&graph| graph != 0),
            graph_node: graph_node(&args),
            ..Memset::default()
        });
    }

    fn synchronization(&mut self, event: &Event<'_>, name: RawText<'_>, span: Span) {
        let args = self.args(event);
        let correlation = self.correlation(&args);
        let stream = args.stream.filter(|stream| *stream >= 0);
        let stream = match self.own {
            Some(_) => small(stream),
            None => stream.map(|stream| self.streams.of_value(stream)),
        };
        self.tables.synchronizations.push(Synchronization {
            start_ns: span.start_ns,
            duration_ns: span.duration_ns,
            kind: synchronization_kind(&unescaped(name)),
            context: small(args.context),
            stream,
            event: small(args.event),
            correlation,
            ..Synchronization::default()
        });
    }

    /// The time of an event without a duration.
    fn moment(&mut self, event: &Event<'_>) -> Option<TimeNs> {
        match microseconds_to_ns(event.ts.unwrap_or_default()) {
            Ok(time) => Some(TimeNs(time)),
            Err(NoNumber::OutOfRange) => {
                self.counts.out_of_range += 1;
                None
            }
            Err(NoNumber::NotANumber) => {
                self.counts.no_time += 1;
                None
            }
        }
    }

    /// PyTorch's allocator says what it does in instant events called "[memory]".
    fn instant(&mut self, event: &Event<'_>) {
        /// c10::DeviceType: the host.
        const HOST: i64 = 0;
        if event.name.is_none_or(|name| *unescaped(name) != *b"[memory]") {
            self.unused(event);
            return;
        }
        let args = self.args(event);
        if args.device_type == Some(HOST) || args.device_id.is_some_and(|device| device < 0) {
            return;
        }
        let Some(time_ns) = self.moment(event) else {
            return;
        };
        let bytes = args.bytes.unwrap_or(0);
        let device = small(args.device_id).unwrap_or(0);
        self.tables.memory.push(MemoryEvent {
            time_ns,
            operation: if bytes < 0 { 2 } else { 1 },
            memory_kind: 3,
            address: args.address.unwrap_or(0),
            bytes: bytes.unsigned_abs(),
            device,
            thread: Some(self.threads.number(event.pid, event.tid)),
            ..MemoryEvent::default()
        });
        for (name, total) in [
            (b"memory_allocated_bytes".as_slice(), args.total_allocated),
            (b"memory_reserved_bytes".as_slice(), args.total_reserved),
        ] {
            if let Some(total) = total {
                let name = self.names.intern(RawText {
                    bytes: name,
                    escaped: false,
                });
                self.tables.counters.push(Counter {
                    time_ns,
                    name,
                    device: Some(device),
                    value: total as f64,
                    ..Counter::default()
                });
            }
        }
    }

    fn counter(&mut self, event: &Event<'_>) {
        let (Some(name), Some(object)) = (event.name, event.args) else {
            self.unused(event);
            return;
        };
        let Some(time_ns) = self.moment(event) else {
            return;
        };
        for (key, value) in counter_values(object) {
            let text = format!("{} {}", self.names.text(name), self.names.text(key));
            let name = self.names.interner.intern(text.trim());
            self.tables.counters.push(Counter {
                time_ns,
                name,
                value,
                ..Counter::default()
            });
        }
    }
}
