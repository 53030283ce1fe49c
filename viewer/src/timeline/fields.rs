//! Rows of tables in words: everything that a record says.

use gputrace_analyzer::{nominal, theoretical_occupancy};
use gputrace_trace::copy_words::{direction_name, memory_name};
use gputrace_trace::{Interner, NameId, Process};

use super::answers::Field;
use super::gather::Table;
use super::names;

/// Fields in the order in which they are shown.
#[derive(Default)]
pub(crate) struct Fields(pub(crate) Vec<Field>);

impl Fields {
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
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
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

/// All that is known of a row, but for start, duration and name.
pub(crate) fn of(
    process: &Process,
    recorded: &Interner,
    table: Table,
    row: usize,
    duration_ns: i64,
) -> Vec<Field> {
    let mut fields = Fields::default();
    let name = |id: NameId| recorded.get(id).to_owned();
    let tables = &process.tables;
    match table {
        Table::Kernel => kernel(process, row, &mut fields),
        Table::Copy => copy(process, row, duration_ns, &mut fields),
        Table::Memset => {
            let rows = &tables.memsets;
            fields.bytes("Bytes", rows.bytes[row]);
            bandwidth(rows.bytes[row], duration_ns, &mut fields);
            fields.add("Value", format!("{:#x}", rows.value[row]), "");
            if rows.memory_kind[row] != 0 {
                fields.add("Memory", memory_name(rows.memory_kind[row].into()), "");
            }
            fields.add("Asynchronous", yes_or_no(rows.flags[row] & 1 != 0), "");
            device(process, rows.device[row], &mut fields);
            fields.add("Stream", rows.stream[row], "");
            fields.add("Context", rows.context[row], "");
            graph(rows.graph[row], rows.graph_node[row], &mut fields);
            fields.add("Correlation", rows.correlation[row], "");
        }
        Table::GraphLaunch => {
            let rows = &tables.graph_launches;
            fields.add("Graph", rows.graph[row], "");
            device(process, rows.device[row], &mut fields);
            fields.add("Stream", rows.stream[row], "");
            fields.add("Context", rows.context[row], "");
            fields.add_known("Ends on device", rows.end_device[row], "");
            fields.add_known("Ends in context", rows.end_context[row], "");
            fields.add("Correlation", rows.correlation[row], "");
        }
        Table::Call => {
            let rows = &tables.api_calls;
            fields.add(
                "API",
                if rows.kind[row] == 5 {
                    "CUDA runtime"
                } else {
                    "CUDA driver"
                },
                "",
            );
            fields.add("Result", result(rows.result[row]), "");
            fields.add("Thread", rows.thread[row], "");
            fields.add("Correlation", rows.correlation[row], "");
            fields.add("CUPTI's callback id", rows.callback[row], "");
        }
        Table::Synchronization => {
            let rows = &tables.synchronizations;
            fields.add("Waits for", names::synchronization(rows.kind[row]), "");
            fields.add_known("Stream", rows.stream[row], "");
            fields.add_known("Context", rows.context[row], "");
            fields.add_known("Event", rows.event[row], "");
            fields.add_known("Recording of the event", rows.event_synchronization[row], "");
            fields.add_known("Result", rows.result[row].map(result), "");
            fields.add("Correlation", rows.correlation[row], "");
        }
        Table::Overhead => {
            let rows = &tables.overheads;
            fields.add("Of", names::overhead(rows.kind[row]), "");
            fields.add_known("Thread", rows.thread[row], "");
            fields.add_known("Device", rows.device[row], "");
            fields.add_known("Correlation", rows.correlation[row], "");
        }
        Table::Compilation => {
            let rows = &tables.compilations;
            let entry = match rows.entry[row] {
                1 => "PTX to machine code",
                2 => "NVVM IR to PTX",
                _ => "unknown",
            };
            let operation = match rows.operation[row] {
                1 => "loaded from the cache",
                2 => "stored in the cache",
                3 => "compiled",
                _ => "unknown",
            };
            fields.add("From and to", entry, "");
            fields.add("What was done", operation, "");
            fields.bytes("Cache", rows.cache_bytes[row]);
            fields.add_known("Cache file", rows.cache_path[row].map(name), "");
            device(process, rows.device[row], &mut fields);
            fields.add("Correlation", rows.correlation[row], "");
        }
        Table::Marker => marker(process, recorded, row, &mut fields),
        Table::Operator => fields.add("Thread", tables.operators.thread[row], ""),
        Table::Enqueue => enqueued(process, recorded, row, &mut fields),
        Table::ProxyStep => {
            let rows = &tables.nccl_proxy;
            fields.add("Communicator", format!("{:#018x}", rows.communicator[row]), "");
            fields.add("Rank in it", rows.rank[row], "");
            fields.add_known("Step", rows.step[row], "");
            fields.add_known("Steps", rows.steps[row], "");
            fields.add_known("Channel", rows.channel[row], "");
            let direction = rows.sends[row].map(|sends| if sends == 1 { "sends" } else { "receives" });
            fields.add_known("Direction", direction, "");
            fields.add_known("Peer rank", rows.peer[row], "");
            if let Some(bytes) = rows.bytes[row] {
                fields.bytes("Bytes", bytes);
            }
            for (label, wait) in [
                ("Waited for the GPU", rows.gpu_wait_ns[row]),
                ("Waited for the peer", rows.peer_wait_ns[row]),
                ("In the network", rows.network_ns[row]),
                ("Until visible to the GPU", rows.flush_ns[row]),
            ] {
                if let Some(wait) = wait {
                    fields.time(label, wait.0);
                }
            }
        }
        Table::Channel => {
            let rows = &tables.nccl_channels;
            fields.add("Channel", rows.channel[row], "");
            fields.add("Communicator", format!("{:#018x}", rows.communicator[row]), "");
            fields.add("Rank in it", rows.rank[row], "");
            if let Some(end) = rows.device_end_ns[row] {
                let length = end.saturating_sub(rows.device_start_ns[row]);
                fields.time("By the GPU's clock", i64::try_from(length).unwrap_or(i64::MAX));
            }
        }
        Table::Untimed => {
            let rows = &tables.untimed_operations;
            fields.add("Unfinished", "it had not ended when the recording did", "");
            if let Some(index) = rows.device[row] {
                device(process, index, &mut fields);
            }
            fields.add_known("Stream", rows.stream[row], "");
            fields.add_known("Context", rows.context[row], "");
            fields.add_known("Thread", rows.thread[row], "");
            if let Some(bytes) = rows.bytes[row] {
                fields.bytes("Bytes", bytes);
            }
            graph(rows.graph[row], rows.graph_node[row], &mut fields);
            fields.add("Correlation", rows.correlation[row], "");
        }
        // What there is to say of it is in the answer as a collective.
        Table::Collective => {}
    }
    fields.0
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

fn kernel(process: &Process, row: usize, fields: &mut Fields) {
    let rows = &process.tables.kernels;
    let grid = [rows.grid_x[row], rows.grid_y[row], rows.grid_z[row]];
    let block = [rows.block_x[row], rows.block_y[row], rows.block_z[row]];
    if product(grid) > 0 && product(block) > 0 {
        fields.add("Grid", sides(grid, "blocks"), "");
        fields.add("Block", sides(block, "threads"), "");
    }
    if let (Some(x), Some(y), Some(z)) = (rows.cluster_x[row], rows.cluster_y[row], rows.cluster_z[row]) {
        let side = |side| i32::try_from(side).unwrap_or(i32::MAX);
        fields.add("Cluster", sides([side(x), side(y), side(z)], "blocks"), "");
    }
    if rows.registers[row] > 0 {
        fields.add("Registers", rows.registers[row], "a thread");
    }
    let shared = |bytes: i32| u64::try_from(bytes).unwrap_or(0);
    let (fixed, dynamic) = (
        shared(rows.static_shared_bytes[row]),
        shared(rows.dynamic_shared_bytes[row]),
    );
    if fixed > 0 {
        fields.bytes("Shared memory, static", fixed);
    }
    if dynamic > 0 {
        fields.bytes("Shared memory, dynamic", dynamic);
    }
    if rows.shared_executed_bytes[row] > 0 {
        fields.bytes("Shared memory set aside", rows.shared_executed_bytes[row].into());
    }
    if rows.local_bytes[row] > 0 {
        fields.bytes("Local memory", rows.local_bytes[row].into());
    }
    let mut devices = process.header.devices.iter();
    let known = devices.find(|device| device.index == rows.device[row]);
    if let Some(occupancy) = theoretical_occupancy(rows, row, known) {
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
    match rows.launch_type[row] {
        1 => fields.add("Launch", "cooperative", ""),
        2 => fields.add("Launch", "cooperative on several devices", ""),
        3 => fields.add("Launch", "of a command list", ""),
        _ => {}
    }
    device(process, rows.device[row], fields);
    fields.add("Stream", rows.stream[row], "");
    fields.add("Context", rows.context[row], "");
    graph(rows.graph[row], rows.graph_node[row], fields);
    fields.add("Correlation", rows.correlation[row], "");
}

fn copy(process: &Process, row: usize, duration_ns: i64, fields: &mut Fields) {
    let rows = &process.tables.copies;
    fields.bytes("Bytes", rows.bytes[row]);
    let rate = bandwidth(rows.bytes[row], duration_ns, fields);
    let (from, to) = (rows.source_device[row], rows.destination_device[row]);
    let mut devices = process.header.devices.iter();
    let known = devices.find(|device| device.index == rows.device[row]);
    let between = from.zip(to).is_some_and(|(from, to)| from != to);
    if let Some(link) = known.and_then(|device| nominal(&device.name, rows.copy_kind[row], between)) {
        let share = rate.map_or_else(String::new, |rate| {
            format!(", {:.0} % of it", rate / link.gb_per_s * 100.0)
        });
        fields.add(
            "Link",
            format!("{}: {:.0} GB/s by data sheet{share}", link.link, link.gb_per_s),
            "",
        );
    }
    fields.add("Direction", direction_name(rows.copy_kind[row]), "");
    if rows.source_kind[row] != 0 {
        fields.add("From memory", memory_name(rows.source_kind[row].into()), "");
    }
    if rows.destination_kind[row] != 0 {
        fields.add("To memory", memory_name(rows.destination_kind[row].into()), "");
    }
    fields.add_known("From GPU", from, "");
    fields.add_known("To GPU", to, "");
    fields.add("Asynchronous", yes_or_no(rows.flags[row] & 1 != 0), "");
    device(process, rows.device[row], fields);
    fields.add("Stream", rows.stream[row], "");
    fields.add("Context", rows.context[row], "");
    graph(rows.graph[row], rows.graph_node[row], fields);
    fields.add("Correlation", rows.correlation[row], "");
}

/// Fields of payloads that are shown.
const MOST_PAYLOAD_FIELDS: usize = 40;

fn marker(process: &Process, recorded: &Interner, row: usize, fields: &mut Fields) {
    let rows = &process.tables.markers;
    let domain = recorded.get(rows.domain[row]);
    if !domain.is_empty() {
        fields.add("Domain", domain, "");
    }
    let what = match rows.kind[row] {
        0 => "push and pop",
        1 => "start and end",
        2 => "mark",
        _ => "unknown",
    };
    fields.add("Kind of range", what, "");
    fields.add_known("Category", rows.category[row], "");
    if let Some(color) = rows.color[row] {
        fields.add("Colour", format!("#{:06x}", color & 0xff_ffff), "");
    }
    match (rows.payload_integer[row], rows.payload_type[row]) {
        (Some(bits), Some(2 | 5)) => fields.add("Payload", bits.cast_signed(), ""),
        (Some(bits), _) => fields.add("Payload", bits, ""),
        _ => fields.add_known("Payload", rows.payload[row], ""),
    }
    let payload = &process.tables.payload_fields;
    let own = (0..payload.time_ns.len()).filter(|&field| {
        payload.time_ns[field] == rows.start_ns[row]
            && payload.thread[field] == rows.thread[row]
            && payload.domain[field] == rows.domain[row]
            && payload.range[field] == rows.name[row]
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
    fields.add("Thread", rows.thread[row], "");
}

/// What NCCL told of an operation, as it was enqueued.
pub(crate) fn enqueued(process: &Process, recorded: &Interner, row: usize, fields: &mut Fields) {
    let rows = &process.tables.collectives;
    let name = |id: NameId| recorded.get(id).to_owned();
    fields.add("Operation", name(rows.function[row]), "");
    fields.add("Communicator", format!("{:#018x}", rows.communicator[row]), "");
    fields.add("Rank in it", rows.rank[row], "");
    fields.add_known("Number", rows.sequence[row], "");
    if rows.bytes[row] > 0 {
        fields.bytes("Bytes", rows.bytes[row]);
    }
    fields.add("Elements", grouped(rows.count[row]), "");
    let datatype = recorded.get(rows.datatype[row]);
    if !datatype.is_empty() {
        fields.add("Data type", datatype, "");
    }
    fields.add_known("Reduction", rows.reduction[row].map(name), "");
    fields.add_known("Root", rows.root[row], "");
    fields.add_known("Peer", rows.peer[row], "");
    fields.add_known("Algorithm", rows.algorithm[row].map(name), "");
    fields.add_known("Protocol", rows.protocol[row].map(name), "");
    fields.add_known("Variant", rows.variant[row].map(name), "");
    if rows.channels[row] > 0 {
        fields.add("Channels", rows.channels[row], "");
    }
    if rows.warps[row] > 0 {
        fields.add("Warps", rows.warps[row], "a channel");
    }
    if rows.graph_captured[row] != 0 {
        fields.add("Captured", "into a CUDA graph", "");
    }
    if rows.symmetric[row] != 0 {
        fields.add("Memory", "symmetric", "");
    }
    fields.add_known("Tag", rows.user_tag[row], "");
    let source = match rows.source[row] {
        0 => "NCCL's profiler plugin, from the kernel's launch",
        1 => "NCCL's profiler plugin, from the call",
        2 => "NCCL's profiler plugin; copies did it",
        3 => "NCCL's NVTX ranges",
        _ => "unknown",
    };
    if rows.kernel[row].is_none() {
        fields.add("Told by", source, "");
        fields.add("Enqueued by thread", rows.thread[row], "");
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
