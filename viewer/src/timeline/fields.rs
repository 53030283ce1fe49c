//! Rows of tables in words: everything that a record says.

use gputrace_analyzer::{nominal, theoretical_occupancy, units};
use gputrace_trace::copy_words::{direction_name, memory_name};
use gputrace_trace::synchronization_kind;
use gputrace_trace::tables::{
    ApiCalls, Collective, Copies, GraphLaunches, Kernels, Markers, Memsets, NcclChannels, NcclProxySteps,
    Operators, Overheads, Synchronizations,
};
use gputrace_trace::{Interner, NameId, Process, Table as _};

use super::answers::Field;
use super::launched_by::cut;
use super::names;
use super::source::Table;
use super::store::{Store, Stored};

/// Fields in the order in which they are shown.
#[derive(Default)]
pub(crate) struct Fields(pub(crate) Vec<Field>);

impl Fields {
    #[allow(clippy::needless_pass_by_value, reason = "most are numbers")]
    pub(crate) fn add(&mut self, label: &str, value: impl ToString, unit: &'static str) {
        self.0.push(Field {
            label: label.to_owned(),
            value: value.to_string(),
            unit,
        });
    }

    pub(crate) fn add_known<T: ToString>(&mut self, label: &str, value: Option<T>, unit: &'static str) {
        if let Some(value) = value {
            self.add(label, value, unit);
        }
    }

    pub(crate) fn bytes(&mut self, label: &str, bytes: u64) {
        let (value, unit) = fitting(
            bytes as f64,
            &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
        );
        if bytes < 1000 {
            self.add(label, bytes, "B");
        } else {
            self.add(label, format!("{value} {unit} ({} B)", grouped(bytes)), "");
        }
    }

    pub(crate) fn time(&mut self, label: &str, ns: i64) {
        self.add(label, time(ns), "");
    }
}

/// A number with its digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    units::grouped(number, '\u{202f}')
}

/// Three digits that matter, in the largest unit that the number reaches.
fn fitting(number: f64, units: &[(f64, &'static str)]) -> (String, &'static str) {
    let size = number.abs();
    let (factor, unit) = units
        .iter()
        .find(|(factor, _)| size >= factor * 0.9995)
        .or(units.last())
        .copied()
        .unwrap_or((1.0, ""));
    let number = number / factor;
    let decimals = match number.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    (format!("{number:.decimals$}"), unit)
}

/// A length of time with the unit that fits.
pub(crate) fn time(ns: i64) -> String {
    if ns.abs() < 1000 {
        return format!("{ns} ns");
    }
    let (number, unit) = fitting(ns as f64, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs")]);
    format!("{number} {unit}")
}

fn product(sides: [i32; 3]) -> i64 {
    sides.iter().map(|side| i64::from(*side)).product()
}

fn sides(sides: [i32; 3], what: &str) -> String {
    let [x, y, z] = sides;
    let all = u64::try_from(product(sides)).unwrap_or(0);
    format!("{x} × {y} × {z} ({} {what})", grouped(all))
}

/// What a call returned, in words: the codes that calls return often, by `CUresult`, whose numbers the runtime shares where
/// they mean the same.
fn result(code: u32) -> String {
    let word = match code {
        0 => "success",
        1 => "invalid value",
        2 => "out of memory",
        3 => "not initialized",
        4 => "deinitialized",
        100 => "no device",
        101 => "invalid device",
        201 => "invalid context",
        400 => "invalid handle",
        600 => "not ready",
        700 => "illegal address",
        702 => "launch timed out",
        717 => "illegal address space",
        719 => "launch failed",
        900 => "not permitted while a stream is captured",
        _ => "",
    };
    if word.is_empty() {
        format!("error {code}")
    } else {
        format!("{word} ({code})")
    }
}

/// Where a row is from.
pub(crate) struct Source<'a> {
    pub(crate) store: &'a Store,
    /// The process's place in the recording.
    pub(crate) process: u32,
    /// The same without what may be packed.
    pub(crate) outline: &'a Process,
    pub(crate) recorded: &'a Interner,
}

impl Source<'_> {
    fn row<T: Stored>(&self, row: usize) -> Option<T::Row> {
        self.store.row::<T>(self.process, row)
    }

    fn name(&self, id: NameId) -> String {
        self.recorded.get(id).to_owned()
    }
}

/// All that is known of a row, but for start, duration and name.
pub(crate) fn of(source: &Source<'_>, table: Table, row: usize, duration_ns: i64) -> Vec<Field> {
    let mut fields = Fields::default();
    // A row that is not there has no fields.
    let _ = add_row(source, table, row, duration_ns, &mut fields);
    fields.0
}

fn add_row(
    source: &Source<'_>,
    table: Table,
    row: usize,
    duration_ns: i64,
    fields: &mut Fields,
) -> Option<()> {
    let process = source.outline;
    let tables = &process.tables;
    match table {
        Table::Kernel => kernel(source, row, fields)?,
        Table::Copy => copy(source, row, duration_ns, fields)?,
        Table::Memset => {
            let row = source.row::<Memsets>(row)?;
            fields.bytes("Bytes", row.bytes);
            bandwidth(row.bytes, duration_ns, fields);
            fields.add("Value", format!("{:#x}", row.value), "");
            if row.memory_kind != 0 {
                fields.add("Memory", memory_name(row.memory_kind.into()), "");
            }
            fields.add("Asynchronous", yes_or_no(row.flags & 1 != 0), "");
            device(process, row.device, fields);
            fields.add("Stream", row.stream, "");
            fields.add("Context", row.context, "");
            graph(row.graph, row.graph_node, fields);
            fields.add("Correlation", row.correlation, "");
        }
        Table::GraphLaunch => {
            let row = source.row::<GraphLaunches>(row)?;
            fields.add("Graph", row.graph, "");
            device(process, row.device, fields);
            fields.add("Stream", row.stream, "");
            fields.add("Context", row.context, "");
            fields.add_known("Ends on device", row.end_device, "");
            fields.add_known("Ends in context", row.end_context, "");
            fields.add("Correlation", row.correlation, "");
        }
        Table::Call => {
            let row = source.row::<ApiCalls>(row)?;
            fields.add(
                "API",
                if row.kind == 5 {
                    "CUDA runtime"
                } else {
                    "CUDA driver"
                },
                "",
            );
            fields.add("Result", result(row.result), "");
            fields.add("Thread", row.thread, "");
            fields.add("Correlation", row.correlation, "");
            fields.add("CUPTI's callback id", row.callback, "");
        }
        Table::Synchronization => {
            let row = source.row::<Synchronizations>(row)?;
            fields.add("Waits for", synchronization_kind::name(row.kind), "");
            fields.add_known("Stream", row.stream, "");
            fields.add_known("Context", row.context, "");
            fields.add_known("Event", row.event, "");
            fields.add_known("Recording of the event", row.event_synchronization, "");
            fields.add_known("Result", row.result.map(result), "");
            fields.add("Correlation", row.correlation, "");
        }
        Table::Overhead => {
            let row = source.row::<Overheads>(row)?;
            fields.add("Of", names::overhead(row.kind), "");
            fields.add_known("Thread", row.thread, "");
            fields.add_known("Device", row.device, "");
            fields.add_known("Correlation", row.correlation, "");
        }
        Table::Compilation => {
            let row = source.store.compilation(source.process, row)?;
            let entry = match row.entry {
                1 => "PTX to machine code",
                2 => "NVVM IR to PTX",
                _ => "unknown",
            };
            let operation = match row.operation {
                1 => "loaded from the cache",
                2 => "stored in the cache",
                3 => "compiled",
                _ => "unknown",
            };
            fields.add("From and to", entry, "");
            fields.add("What was done", operation, "");
            fields.bytes("Cache", row.cache_bytes);
            fields.add_known("Cache file", row.cache_path.map(|name| source.name(name)), "");
            device(process, row.device, fields);
            fields.add("Correlation", row.correlation, "");
        }
        Table::Marker => marker(source, row, fields)?,
        Table::Projected => {
            let range = source.row::<Markers>(row)?;
            let on_host = range.duration_ns.map_or(0, |duration| duration.0);
            fields.time("On the host", on_host);
            marker(source, row, fields)?;
        }
        Table::Operator => {
            let row = source.row::<Operators>(row)?;
            let text = |name: Option<NameId>| name.map(|name| cut(source.recorded.get(name)));
            fields.add_known("Shapes of inputs", text(row.input_dims), "");
            fields.add_known("Types of inputs", text(row.input_types), "");
            fields.add_known("Sequence number", row.sequence, "");
            fields.add("Thread", row.thread, "");
        }
        Table::Enqueue => enqueued(
            &source.store.collective(source.process, row)?,
            source.recorded,
            fields,
        ),
        Table::ProxyStep => {
            let row = source.row::<NcclProxySteps>(row)?;
            fields.add("Communicator", format!("{:#018x}", row.communicator), "");
            fields.add("Rank in it", row.rank, "");
            fields.add_known("Step", row.step, "");
            fields.add_known("Steps", row.steps, "");
            fields.add_known("Channel", row.channel, "");
            let direction = row
                .sends
                .map(|sends| if sends == 1 { "sends" } else { "receives" });
            fields.add_known("Direction", direction, "");
            fields.add_known("Peer rank", row.peer, "");
            if let Some(bytes) = row.bytes {
                fields.bytes("Bytes", bytes);
            }
            for (label, wait) in [
                ("Waited for the GPU", row.gpu_wait_ns),
                ("Waited for the peer", row.peer_wait_ns),
                ("In the network", row.network_ns),
                ("Until visible to the GPU", row.flush_ns),
            ] {
                if let Some(wait) = wait {
                    fields.time(label, wait.0);
                }
            }
        }
        Table::Channel => {
            let row = source.row::<NcclChannels>(row)?;
            fields.add("Channel", row.channel, "");
            fields.add("Communicator", format!("{:#018x}", row.communicator), "");
            fields.add("Rank in it", row.rank, "");
            if let Some(end) = row.device_end_ns {
                let length = end.saturating_sub(row.device_start_ns);
                fields.time("By the GPU's clock", i64::try_from(length).unwrap_or(i64::MAX));
            }
        }
        Table::Untimed => {
            let row = (row < tables.untimed_operations.len()).then(|| tables.untimed_operations.row(row))?;
            fields.add("Unfinished", "it had not ended when the recording did", "");
            if let Some(index) = row.device {
                device(process, index, fields);
            }
            fields.add_known("Stream", row.stream, "");
            fields.add_known("Context", row.context, "");
            fields.add_known("Thread", row.thread, "");
            if let Some(bytes) = row.bytes {
                fields.bytes("Bytes", bytes);
            }
            graph(row.graph, row.graph_node, fields);
            fields.add("Correlation", row.correlation, "");
        }
        // What there is to say of it is in the answer as a collective.
        Table::Collective => {}
    }
    Some(())
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn device(process: &Process, index: u32, fields: &mut Fields) {
    let mut devices = process.header.devices.iter();
    match devices.find(|device| device.index == index && !device.name.is_empty()) {
        Some(device) => fields.add("Device", format!("GPU {index} · {}", device.name), ""),
        None => fields.add("Device", format!("GPU {index}"), ""),
    }
}

fn graph(graph: Option<u32>, node: Option<u64>, fields: &mut Fields) {
    fields.add_known("Graph", graph, "");
    fields.add_known("Graph node", node, "");
}

/// Bytes over the operation's own time. Bytes a nanosecond are GB/s.
fn bandwidth(bytes: u64, duration_ns: i64, fields: &mut Fields) -> Option<f64> {
    (bytes > 0 && duration_ns > 0).then(|| {
        let rate = bytes as f64 / duration_ns as f64;
        fields.add("Bandwidth", fitting(rate, &[(1.0, "")]).0, "GB/s");
        rate
    })
}

fn kernel(source: &Source<'_>, place: usize, fields: &mut Fields) -> Option<()> {
    let process = source.outline;
    let row = source.row::<Kernels>(place)?;
    let grid = [row.grid_x, row.grid_y, row.grid_z];
    let block = [row.block_x, row.block_y, row.block_z];
    if product(grid) > 0 && product(block) > 0 {
        fields.add("Grid", sides(grid, "blocks"), "");
        fields.add("Block", sides(block, "threads"), "");
    }
    if let (Some(x), Some(y), Some(z)) = (row.cluster_x, row.cluster_y, row.cluster_z) {
        let side = |side| i32::try_from(side).unwrap_or(i32::MAX);
        fields.add("Cluster", sides([side(x), side(y), side(z)], "blocks"), "");
    }
    if row.registers > 0 {
        fields.add("Registers", row.registers, "a thread");
    }
    let shared = |bytes: i32| u64::try_from(bytes).unwrap_or(0);
    let (fixed, dynamic) = (shared(row.static_shared_bytes), shared(row.dynamic_shared_bytes));
    if fixed > 0 {
        fields.bytes("Shared memory, static", fixed);
    }
    if dynamic > 0 {
        fields.bytes("Shared memory, dynamic", dynamic);
    }
    if row.shared_executed_bytes > 0 {
        fields.bytes("Shared memory set aside", row.shared_executed_bytes.into());
    }
    if row.local_bytes > 0 {
        fields.bytes("Local memory", row.local_bytes.into());
    }
    let mut devices = process.header.devices.iter();
    let known = devices.find(|device| device.index == row.device);
    let mut one = Kernels::default();
    one.push(row.clone());
    if let Some(occupancy) = theoretical_occupancy(&one, 0, known) {
        fields.add("Occupancy, theoretical", format!("{:.1}", occupancy * 100.0), "%");
    }
    if let Some(count) = known
        .and_then(|device| device.multiprocessors)
        .filter(|count| *count > 0)
        && product(grid) > 0
    {
        let a_multiprocessor = product(grid) as f64 / f64::from(count);
        fields.add("Blocks a multiprocessor", format!("{a_multiprocessor:.2}"), "");
    }
    match row.launch_type {
        1 => fields.add("Launch", "cooperative", ""),
        2 => fields.add("Launch", "cooperative on several devices", ""),
        3 => fields.add("Launch", "of a command list", ""),
        _ => {}
    }
    device(process, row.device, fields);
    fields.add("Stream", row.stream, "");
    fields.add("Context", row.context, "");
    graph(row.graph, row.graph_node, fields);
    fields.add("Correlation", row.correlation, "");
    Some(())
}

fn copy(source: &Source<'_>, place: usize, duration_ns: i64, fields: &mut Fields) -> Option<()> {
    let process = source.outline;
    let row = source.row::<Copies>(place)?;
    fields.bytes("Bytes", row.bytes);
    let rate = bandwidth(row.bytes, duration_ns, fields);
    let (from, to) = (row.source_device, row.destination_device);
    let mut devices = process.header.devices.iter();
    let known = devices.find(|device| device.index == row.device);
    let between = from.zip(to).is_some_and(|(from, to)| from != to);
    if let Some(link) = known.and_then(|device| nominal(&device.name, row.copy_kind, between)) {
        let share = rate.map_or_else(String::new, |rate| {
            format!(", {:.0} % of it", rate / link.gb_per_s * 100.0)
        });
        fields.add(
            "Link",
            format!("{}: {:.0} GB/s by data sheet{share}", link.link, link.gb_per_s),
            "",
        );
    }
    fields.add("Direction", direction_name(row.copy_kind), "");
    if row.source_kind != 0 {
        fields.add("From memory", memory_name(row.source_kind.into()), "");
    }
    if row.destination_kind != 0 {
        fields.add("To memory", memory_name(row.destination_kind.into()), "");
    }
    fields.add_known("From GPU", from, "");
    fields.add_known("To GPU", to, "");
    fields.add("Asynchronous", yes_or_no(row.flags & 1 != 0), "");
    device(process, row.device, fields);
    fields.add("Stream", row.stream, "");
    fields.add("Context", row.context, "");
    graph(row.graph, row.graph_node, fields);
    fields.add("Correlation", row.correlation, "");
    Some(())
}

/// Fields of payloads that are shown.
const MOST_PAYLOAD_FIELDS: usize = 40;

fn marker(source: &Source<'_>, place: usize, fields: &mut Fields) -> Option<()> {
    let (process, recorded) = (source.outline, source.recorded);
    let row = source.row::<Markers>(place)?;
    let domain = recorded.get(row.domain);
    if !domain.is_empty() {
        fields.add("Domain", domain, "");
    }
    let what = match row.kind {
        0 => "push and pop",
        1 => "start and end",
        2 => "mark",
        _ => "unknown",
    };
    fields.add("Kind of range", what, "");
    fields.add_known("Category", row.category, "");
    if let Some(color) = row.color {
        fields.add("Colour", format!("#{:06x}", color & 0xff_ffff), "");
    }
    match (row.payload_integer, row.payload_type) {
        (Some(bits), Some(2 | 5)) => fields.add("Payload", bits.cast_signed(), ""),
        (Some(bits), _) => fields.add("Payload", bits, ""),
        _ => fields.add_known("Payload", row.payload, ""),
    }
    let payload = &process.tables.payload_fields;
    let own = (0..payload.time_ns.len()).filter(|&field| {
        payload.time_ns[field] == row.start_ns
            && payload.thread[field] == row.thread
            && payload.domain[field] == row.domain
            && payload.range[field] == row.name
    });
    for field in own.take(MOST_PAYLOAD_FIELDS) {
        let label = match payload.element[field] {
            Some(element) => format!("{}[{element}]", recorded.get(payload.field[field])),
            None => recorded.get(payload.field[field]).to_owned(),
        };
        let value = (payload.text[field].map(|text| recorded.get(text).to_owned()))
            .or_else(|| payload.number[field].map(|number| number.to_string()))
            .or_else(|| payload.integer[field].map(|integer| integer.to_string()));
        fields.add(&label, value.unwrap_or_default(), "");
    }
    fields.add("Thread", row.thread, "");
    Some(())
}

/// What NCCL told of an operation, as it was enqueued.
pub(crate) fn enqueued(row: &Collective, recorded: &Interner, fields: &mut Fields) {
    let name = |id: NameId| recorded.get(id).to_owned();
    fields.add("Operation", name(row.function), "");
    fields.add("Communicator", format!("{:#018x}", row.communicator), "");
    fields.add("Rank in it", row.rank, "");
    fields.add_known("Number", row.sequence, "");
    if row.bytes > 0 {
        fields.bytes("Bytes", row.bytes);
    }
    fields.add("Elements", grouped(row.count), "");
    let datatype = recorded.get(row.datatype);
    if !datatype.is_empty() {
        fields.add("Data type", datatype, "");
    }
    fields.add_known("Reduction", row.reduction.map(name), "");
    fields.add_known("Root", row.root, "");
    fields.add_known("Peer", row.peer, "");
    fields.add_known("Algorithm", row.algorithm.map(name), "");
    fields.add_known("Protocol", row.protocol.map(name), "");
    fields.add_known("Variant", row.variant.map(name), "");
    if row.channels > 0 {
        fields.add("Channels", row.channels, "");
    }
    if row.warps > 0 {
        fields.add("Warps", row.warps, "a channel");
    }
    if row.graph_captured != 0 {
        fields.add("Captured", "into a CUDA graph", "");
    }
    if row.symmetric != 0 {
        fields.add("Memory", "symmetric", "");
    }
    fields.add_known("Tag", row.user_tag, "");
    let source = match row.source {
        0 => "NCCL's profiler plugin, from the kernel's launch",
        1 => "NCCL's profiler plugin, from the call",
        2 => "NCCL's profiler plugin; copies did it",
        3 => "NCCL's NVTX ranges",
        _ => "unknown",
    };
    if row.kernel.is_none() {
        fields.add("Told by", source, "");
        fields.add("Enqueued by thread", row.thread, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_units_that_fit() {
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_500), "1.50 µs");
        assert_eq!(time(-12_345_678), "-12.3 ms");
        assert_eq!(time(123_456_789_000), "123 s");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(12), "12");
        let mut fields = Fields::default();
        fields.bytes("Bytes", 4_194_304);
        fields.bytes("Bytes", 12);
        let told: Vec<(&str, &str)> = fields
            .0
            .iter()
            .map(|field| (field.value.as_str(), field.unit))
            .collect();
        assert_eq!(told, [("4.19 MB (4\u{202f}194\u{202f}304 B)", ""), ("12", "B")]);
    }
}
