//! What the analysis adds, as tables beside those of events.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, UInt64Array,
};
use arrow_schema::{Field, Schema};
use gputrace_trace::derived::{Derived, DerivedCollective, DerivedGap, DerivedPart, DerivedStep};
use gputrace_trace::manifest::Device;
use gputrace_trace::measures::{CATALOGUE, Getter};
use gputrace_trace::{Process, Recording};
use parquet::arrow::ArrowWriter;

use super::file::{GROUP_ROWS, Owner, owner_columns, owner_fields, properties};

/// The column that rows are sorted by.
const START: &str = "start_ns";

/// A table in the making: its columns with their fields.
#[derive(Default)]
struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    fn add(&mut self, name: &str, array: ArrayRef, nullable: bool) -> &mut Self {
        self.fields
            .push(Field::new(name, array.data_type().clone(), nullable));
        self.arrays.push(array);
        self
    }

    fn integers(&mut self, name: &str, values: impl Iterator<Item = i64>) -> &mut Self {
        self.add(name, Arc::new(Int64Array::from_iter_values(values)), false)
    }

    fn maybe_integers(&mut self, name: &str, values: impl Iterator<Item = Option<i64>>) -> &mut Self {
        self.add(name, Arc::new(values.collect::<Int64Array>()), true)
    }

    /// Ranks, devices and counts: Spark has no numbers without a sign.
    fn numbers(&mut self, name: &str, values: impl Iterator<Item = Option<u32>>) -> &mut Self {
        let values = values.map(|value| value.and_then(|value| i32::try_from(value).ok()));
        self.add(name, Arc::new(values.collect::<Int32Array>()), true)
    }

    fn names<'a>(&mut self, name: &str, values: impl Iterator<Item = Option<&'a str>>) -> &mut Self {
        let array: DictionaryArray<Int32Type> = values.collect();
        self.add(name, Arc::new(array), true)
    }

    fn flags(&mut self, name: &str, values: impl Iterator<Item = bool>) -> &mut Self {
        let array: BooleanArray = values.map(Some).collect();
        self.add(name, Arc::new(array), false)
    }

    fn rates(&mut self, name: &str, values: impl Iterator<Item = Option<f64>>) -> &mut Self {
        self.add(name, Arc::new(values.collect::<Float64Array>()), true)
    }

    fn of_owner(owner: &Owner<'_>, rows: usize) -> Self {
        Self {
            fields: owner_fields(),
            arrays: owner_columns(owner, rows),
        }
    }

    fn batch(&mut self) -> io::Result<RecordBatch> {
        let schema = Arc::new(Schema::new(std::mem::take(&mut self.fields)));
        RecordBatch::try_new(schema, std::mem::take(&mut self.arrays)).map_err(io::Error::other)
    }
}

/// Writes `rows` of any kind, which are in the order of their column `start_ns` where they have one: a row group at a time,
/// made into columns by `columns`.
fn write_rows<R>(
    rows: &[R],
    metadata: &[(&'static str, String)],
    out: impl Write + Send,
    columns: impl Fn(&[R], usize) -> io::Result<RecordBatch>,
) -> io::Result<()> {
    let first = columns(&rows[..rows.len().min(GROUP_ROWS)], 0)?;
    let schema = first.schema();
    let properties = properties(&schema, schema.index_of(START).ok(), metadata);
    let mut writer = ArrowWriter::try_new(out, schema, Some(properties)).map_err(io::Error::other)?;
    writer.write(&first).map_err(io::Error::other)?;
    for start in (GROUP_ROWS..rows.len()).step_by(GROUP_ROWS) {
        let group = &rows[start..rows.len().min(start + GROUP_ROWS)];
        writer.write(&columns(group, start)?).map_err(io::Error::other)?;
    }
    writer.close().map_err(io::Error::other)?;
    Ok(())
}

/// Sorts rows by time; those of one time keep their order.
fn by_time<R>(rows: &[R], start_ns: impl Fn(&R) -> i64) -> Vec<&R> {
    let mut rows: Vec<&R> = rows.iter().collect();
    rows.sort_by_key(|row| start_ns(row));
    rows
}

/// Steps of a process's devices, with what was measured in them.
pub fn write_steps(steps: &[DerivedStep], owner: &Owner<'_>, out: impl Write + Send) -> io::Result<()> {
    let rows = by_time(steps, |step| step.start_ns);
    write_rows(&rows, &owner.metadata, out, |steps, _| {
        let each = || steps.iter();
        let number = |step: &&DerivedStep| step.number.and_then(|number| i64::try_from(number).ok());
        let on_host = || each().map(|step| step.host_ns);
        let length = |(start, end): (i64, i64)| end.saturating_sub(start);
        let mut columns = Columns::of_owner(owner, steps.len());
        columns
            .numbers("device", each().map(|step| Some(step.device)))
            .maybe_integers("number", each().map(number))
            .names("name", each().map(|step| Some(step.name.as_str())))
            .integers(START, each().map(|step| step.start_ns))
            .integers("duration_ns", each().map(|step| step.end_ns - step.start_ns))
            .maybe_integers(
                "host_start_ns",
                on_host().map(|time| time.map(|(start, _)| start)),
            )
            .maybe_integers("host_duration_ns", on_host().map(|time| time.map(length)))
            .flags("detected", each().map(|step| step.detected))
            .flags("outlier", each().map(|step| step.outlier));
        for measure in CATALOGUE {
            match measure.get {
                Getter::Ns(get) => columns.integers(measure.name, each().map(|step| get(&step.measures))),
                Getter::Ratio(get) => columns.rates(measure.name, each().map(|step| get(&step.measures))),
            };
        }
        columns.batch()
    })
}

/// When a process's devices executed nothing, and why.
pub fn write_gaps(gaps: &[DerivedGap], owner: &Owner<'_>, out: impl Write + Send) -> io::Result<()> {
    let rows = by_time(gaps, |gap| gap.start_ns);
    write_rows(&rows, &owner.metadata, out, |gaps, _| {
        let each = || gaps.iter();
        Columns::of_owner(owner, gaps.len())
            .numbers("device", each().map(|gap| Some(gap.device)))
            .integers(START, each().map(|gap| gap.start_ns))
            .integers("duration_ns", each().map(|gap| gap.end_ns - gap.start_ns))
            .names("cause", each().map(|gap| Some(gap.cause)))
            .batch()
    })
}

/// What a process did of collectives.
pub fn write_parts(
    process: &Process,
    parts: &[DerivedPart],
    owner: &Owner<'_>,
    out: impl Write + Send,
) -> io::Result<()> {
    let kernels = &process.tables.kernels;
    let start = |part: &DerivedPart| Some(kernels.start_ns.get(part.kernel? as usize)?.0);
    let duration = |part: &DerivedPart| Some(kernels.duration_ns.get(part.kernel? as usize)?.0);
    // Those without a kernel have no time: they come first, as nulls do.
    let rows = by_time(parts, |part| start(part).unwrap_or(i64::MIN));
    write_rows(&rows, &owner.metadata, out, |parts, _| {
        let each = || parts.iter().copied();
        Columns::of_owner(owner, parts.len())
            .integers("collective", each().map(|part| part.collective.into()))
            .numbers("device", each().map(|part| part.device))
            .maybe_integers(START, each().map(start))
            .maybe_integers("duration_ns", each().map(duration))
            .maybe_integers("wait_ns", each().map(|part| part.wait_ns))
            .maybe_integers("transfer_ns", each().map(|part| part.transfer_ns))
            .maybe_integers("exposed_ns", each().map(|part| part.exposed_ns))
            .maybe_integers("kernel_row", each().map(|part| part.kernel.map(i64::from)))
            .maybe_integers("collective_row", each().map(|part| part.row.map(i64::from)))
            .batch()
    })
}

/// Collectives over all ranks.
pub fn write_collectives(
    derived: &Derived,
    metadata: &[(&'static str, String)],
    out: impl Write + Send,
) -> io::Result<()> {
    write_rows(&derived.collectives, metadata, out, |rows, first| {
        let each = || rows.iter();
        let place = |index: usize| i64::try_from(first + index).unwrap_or(i64::MAX);
        let integer = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
        let ids = UInt64Array::from_iter_values(each().map(|row| row.id));
        let ranks = |row: &DerivedCollective| {
            Some(
                row.ranks
                    .iter()
                    .map(|&rank| i32::try_from(rank).ok())
                    .collect::<Vec<_>>(),
            )
        };
        let ranks = ListArray::from_iter_primitive::<Int32Type, _, _>(each().map(ranks));
        Columns::default()
            .integers("collective", (0..rows.len()).map(place))
            .add("id", Arc::new(ids), false)
            .names("name", each().map(|row| Some(row.name.as_str())))
            .names("communicator", each().map(|row| Some(row.communicator.as_str())))
            .names(
                "communicator_name",
                each().map(|row| row.communicator_name.as_deref()),
            )
            .maybe_integers("sequence", each().map(|row| integer(row.sequence)))
            .add("ranks", Arc::new(ranks), false)
            .numbers("communicator_ranks", each().map(|row| row.communicator_ranks))
            .maybe_integers("bytes", each().map(|row| integer(row.bytes)))
            .names("datatype", each().map(|row| Some(row.dtype.as_str())))
            .rates("algbw", each().map(|row| row.algbw))
            .rates("busbw", each().map(|row| row.busbw))
            .maybe_integers("skew_ns", each().map(|row| row.skew_ns))
            .numbers("last_rank", each().map(|row| row.last_rank))
            .flags("warm_up", each().map(|row| row.warm_up))
            .batch()
    })
}

/// The GPUs of each process: where it ran, and whether they were simulated.
pub fn write_devices(
    recording: &Recording,
    metadata: &[(&'static str, String)],
    out: impl Write + Send,
) -> io::Result<()> {
    let processes = recording.processes.iter().map(|process| (process, false));
    let all = processes.chain(recording.hosts.iter().map(|host| (host, true)));
    let rows: Vec<(&Process, bool, &Device)> = all
        .flat_map(|(process, is_host)| {
            let devices = process.header.devices.iter();
            devices.map(move |device| (process, is_host, device))
        })
        .collect();
    write_rows(&rows, metadata, out, |rows, _| {
        let each = || rows.iter();
        let headers = || rows.iter().map(|(process, ..)| &process.header);
        let devices = || rows.iter().map(|(.., device)| *device);
        let integer = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
        let capability: Vec<Option<String>> = devices()
            .map(|device| {
                device
                    .compute_capability
                    .map(|(major, minor)| format!("{major}.{minor}"))
            })
            .collect();
        Columns::default()
            .numbers("rank", headers().map(|header| header.rank))
            .names(
                "process",
                each().map(|(process, ..)| Some(process.folder.as_str())),
            )
            .numbers("device", devices().map(|device| Some(device.index)))
            .names("name", devices().map(|device| Some(device.name.as_str())))
            .flags(
                "simulated",
                devices().map(gputrace_trace::recording::is_simulated),
            )
            .flags("host_samples", each().map(|(_, is_host, _)| *is_host))
            .names("host", headers().map(|header| Some(header.host.as_str())))
            .numbers("pid", headers().map(|header| Some(header.pid)))
            .numbers("local_rank", headers().map(|header| header.local_rank))
            .numbers("world_size", headers().map(|header| header.world_size))
            .names("compute_capability", capability.iter().map(Option::as_deref))
            .maybe_integers(
                "memory_bytes",
                devices().map(|device| integer(device.memory_bytes)),
            )
            .numbers("multiprocessors", devices().map(|device| device.multiprocessors))
            .names("uuid", devices().map(|device| device.uuid.as_deref()))
            .batch()
    })
}
