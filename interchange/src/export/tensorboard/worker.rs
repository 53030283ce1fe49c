//! One worker's file of one span: the frame, and which "process" and "thread" of it each row is.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::rc::Rc;

use gputrace_trace::NameId;
use serde_json::{Value, json};

use super::annotations::{Enqueued, counted_times};
use super::event::{EventWriter, Place, json_string};
use super::host_steps::HostStep;
use super::plan::{CollectiveKernel, Plan};
use super::plugin_steps::{plugin_steps, writable_steps};
use super::spans::Spans;
use crate::export::ExportSummary;
use crate::export::layout::{Layout, RowKey, Slice, Source};

/// The plugin knows GPUs by number, below this.
pub(super) const MOST_DEVICES: u32 = 64;
/// Where the host's process is if its number could be a GPU's, or is not known.
const HOST_PIDS: u64 = 1_000_000;
/// GPUs beyond those that the plugin knows.
const FURTHER_DEVICES: u64 = 2_000_000;
/// What is added to a row's number for a further lane, and where a number is taken already.
const LANE_STEP: u64 = 10_000_000;
/// Rows that are no thread's.
const OTHER_ROWS: u64 = 5_000_000;

/// What the files of a worker leave out of the plugin's views, for the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Untold {
    /// Steps that the plugin would have no time for.
    pub(super) steps_without_time: u64,
    /// Steps at the end that the plugin leaves out.
    pub(super) steps_cut: u64,
    /// Operations on GPUs beyond its number.
    pub(super) operations_on_further_devices: u64,
}

/// A process, as it is written into one file a span.
pub(super) struct Worker<'l> {
    pub(super) layout: &'l Layout<'l>,
    pub(super) spans: &'l Spans,
    pub(super) plan: &'l Plan,
    steps: &'l [HostStep],
    /// What recorders sampled of the host, where this worker tells of it.
    pub(super) hosts: &'l [Layout<'l>],
    base_ns: i64,
    pub(super) host_pid: u64,
    /// The plugin's number of each device.
    pub(super) devices: BTreeMap<u32, u32>,
    places: Vec<Vec<Place>>,
    steps_row: Place,
    counted_row: Place,
    names: HashMap<(Source, NameId), Rc<str>>,
    /// Of texts that should be lists in JSON: whether they are.
    pub(super) lists: HashMap<NameId, bool>,
}

/// What of a worker one file has.
pub(super) struct Span {
    pub(super) number: usize,
    /// Steps in it that can be written.
    steps: Vec<HostStep>,
    /// Steps in it that cannot, as the plugin would have no time for them.
    other_steps: Vec<HostStep>,
    /// When each annotation counts, by row of kernels.
    counted_ns: HashMap<u32, i64>,
    /// From the first event to the last.
    range: (i64, i64),
}

impl<'l> Worker<'l> {
    pub(super) fn new(
        layout: &'l Layout<'l>,
        plan: &'l Plan,
        spans: &'l Spans,
        steps: &'l [HostStep],
        hosts: &'l [Layout<'l>],
        base_ns: i64,
    ) -> Self {
        let host_pid = match u64::from(layout.process.header.pid) {
            pid if pid < u64::from(MOST_DEVICES) => HOST_PIDS + layout.number as u64,
            pid => pid,
        };
        let mut worker = Self {
            layout,
            spans,
            plan,
            steps,
            hosts,
            base_ns,
            host_pid,
            devices: device_numbers(layout),
            places: Vec::new(),
            steps_row: Place {
                pid: host_pid,
                tid: 1,
            },
            counted_row: Place {
                pid: host_pid,
                tid: 2,
            },
            names: HashMap::new(),
            lists: HashMap::new(),
        };
        // Threads are told apart by their number alone, whatever process they are of.
        let mut taken: HashSet<(u64, u64)> = HashSet::from([(host_pid, 1), (host_pid, 2)]);
        for (number, row) in (0u64..).zip(&layout.rows) {
            let (pid, wanted) = match row.key {
                RowKey::Thread(thread) => (host_pid, u64::from(thread).max(3)),
                RowKey::Stream { device, stream, .. } => (worker.gpu_pid(device), u64::from(stream).max(1)),
                key => (
                    key.device().map_or(host_pid, |device| worker.gpu_pid(device)),
                    OTHER_ROWS + number,
                ),
            };
            let lanes = (0..row.lanes as u64).map(|lane| {
                let mut tid = wanted + LANE_STEP * lane;
                while !taken.insert((pid, tid)) {
                    tid += LANE_STEP;
                }
                Place { pid, tid }
            });
            let lanes = lanes.collect();
            worker.places.push(lanes);
        }
        worker
    }

    /// The "process" of a GPU: its number, as far as the plugin knows numbers.
    pub(super) fn gpu_pid(&self, device: u32) -> u64 {
        self.devices
            .get(&device)
            .map_or(FURTHER_DEVICES + u64::from(device), |number| (*number).into())
    }

    pub(super) fn place(&self, row: usize, lane: usize) -> Place {
        self.places[row][lane]
    }

    /// Where something of a moment on this thread is shown.
    pub(super) fn thread_place(&self, thread: u32) -> Place {
        let rows = &self.layout.rows;
        let row = rows.binary_search_by_key(&RowKey::Thread(thread), |row| row.key);
        row.map_or(
            Place {
                pid: self.host_pid,
                tid: u64::from(thread).max(3),
            },
            |row| self.place(row, 0),
        )
    }

    /// In which span's file a slice is.
    pub(super) fn span_of(&self, slice: &Slice) -> usize {
        self.spans.span_of(self.layout, slice)
    }

    /// A name as a JSON string, made once.
    pub(super) fn name(&mut self, source: Source, id: NameId, make: impl FnOnce(&str) -> String) -> Rc<str> {
        let names = &self.layout.recording.names;
        self.names
            .entry((source, id))
            .or_insert_with(|| Rc::from(json_string(&make(names.get(id)))))
            .clone()
    }

    /// What is in the file of a span, and when.
    fn span(&self, number: usize, untold: &mut Untold) -> Span {
        let mut range: Option<(i64, i64)> = None;
        let mut ends = Vec::new();
        for slice in self.layout.rows.iter().flat_map(|row| &row.slices) {
            // Alone the times of recording may be years apart from all else.
            if self.span_of(slice) != number || slice.source() == Source::Window {
                continue;
            }
            let (start, end) = range.unwrap_or((slice.start_ns, slice.end_ns));
            range = Some((start.min(slice.start_ns), end.max(slice.end_ns)));
            if slice.source().is_launched() {
                ends.push(slice);
            }
        }
        let start = range.map_or(self.base_ns, |(start, _)| start);
        // The plugin divides by lengths of time, and by whole microseconds.
        let range = (
            start,
            range
                .map_or(start, |(_, end)| end)
                .max(start.saturating_add(2000)),
        );
        let in_span = |time: i64| self.spans.place(self.layout.number, time) == number;
        let mut steps: Vec<HostStep> = self
            .steps
            .iter()
            .filter(|step| in_span(step.start_ns))
            .cloned()
            .collect();
        if steps.is_empty() {
            steps.push(HostStep {
                number: 0,
                name: "everything: no steps are known".to_owned(),
                start_ns: range.0,
                end_ns: range.1,
                detected: true,
            });
        }
        let calls = self.plan.launch_calls(self.layout, in_span);
        let ranges: Vec<(i64, i64)> = steps.iter().map(|step| (step.start_ns, step.end_ns)).collect();
        // Which operations no call in a step launched.
        let outside: Vec<i64> = ends
            .iter()
            .filter(|slice| {
                let launch = self.layout.launch(self.layout.correlation(slice));
                launch.is_none_or(|launch| {
                    let after = ranges.partition_point(|(start, _)| *start <= launch.start_ns);
                    after == 0 || ranges[after - 1].1 <= launch.start_ns
                })
            })
            .map(|slice| slice.end_ns)
            .collect();
        let writable = writable_steps(&ranges, &calls, &outside);
        let is_written = |place: usize| writable.binary_search(&place).is_ok();
        let (written, other): (Vec<_>, Vec<_>) = steps
            .into_iter()
            .enumerate()
            .partition(|(place, _)| is_written(*place));
        let only = |steps: Vec<(usize, HostStep)>| steps.into_iter().map(|(_, step)| step).collect();
        let (steps, other_steps): (Vec<HostStep>, Vec<HostStep>) = (only(written), only(other));
        let ranges: Vec<(i64, i64)> = steps.iter().map(|step| (step.start_ns, step.end_ns)).collect();
        let shown = plugin_steps(&ranges, &calls, &outside);
        untold.steps_without_time += other_steps.len() as u64;
        untold.steps_cut += (ranges.len() - shown.shown) as u64;
        Span {
            number,
            counted_ns: self.counted(number, &steps, &shown.steps),
            steps,
            other_steps,
            range,
        }
    }

    /// When the annotations of a span count.
    fn counted(&self, span: usize, steps: &[HostStep], shown: &[(i64, i64)]) -> HashMap<u32, i64> {
        let mut all: Vec<(&CollectiveKernel, Enqueued)> = self
            .plan
            .collectives
            .values()
            .filter(|collective| collective.span == span)
            .map(|collective| {
                let enqueued = Enqueued {
                    time_ns: collective.enqueued_ns(),
                    kernel_ns: collective.start_ns,
                };
                (collective, enqueued)
            })
            .collect();
        all.sort_by_key(|(collective, enqueued)| (enqueued.time_ns, collective.start_ns, collective.kernel));
        let enqueued: Vec<Enqueued> = all.iter().map(|(_, enqueued)| *enqueued).collect();
        let times = counted_times(&enqueued, steps, shown);
        let kernels = all.iter().map(|(collective, _)| collective.kernel);
        kernels.zip(times).collect()
    }

    /// Writes the file of one span.
    pub(super) fn write(
        &mut self,
        number: usize,
        out: &mut dyn Write,
        summary: &mut ExportSummary,
        untold: &mut Untold,
    ) -> io::Result<()> {
        let span = self.span(number, untold);
        self.write_head(out)?;
        let mut writer = EventWriter::new(out, self.base_ns).with_exact_ends();
        self.write_names(&mut writer, number, summary)?;
        self.write_steps(&span, &mut writer)?;
        for row in 0..self.layout.rows.len() {
            self.write_row(row, &span, &mut writer, summary, untold)?;
        }
        self.write_launch_operators(number, &mut writer)?;
        self.write_annotations(&span, &mut writer)?;
        self.write_moments(number, &mut writer, summary)?;
        // Nothing with a bracket in it may follow: the plugin cuts the file at its last one.
        out.write_all(b"\n]}\n")
    }

    fn write_head(&self, out: &mut dyn Write) -> io::Result<()> {
        let recording = self.layout.recording;
        let header = &self.layout.process.header;
        let manifest = &recording.manifest;
        write!(out, "{{\"schemaVersion\":1")?;
        let properties = self.device_properties();
        if !properties.is_empty() {
            write!(out, ",\n\"deviceProperties\":{}", Value::Array(properties))?;
        }
        let losses: Vec<Value> = recording
            .losses
            .iter()
            .map(|loss| json!({"what": loss.what, "count": loss.count, "affects": loss.affects}))
            .collect();
        let about = json!({
            "dialect": "torch-tb-profiler 0.4.3",
            "simulated": recording.is_simulated(),
            "device": manifest.device,
            "command": manifest.command,
            "losses": losses,
            "notes": recording.notes,
        });
        if let Some(rank) = header.rank {
            let info = json!({"backend": "nccl", "rank": rank, "world_size": header.world_size});
            write!(out, ",\n\"distributedInfo\":{info}")?;
        }
        write!(
            out,
            ",\n\"host_name\":{},\n\"gputrace\":{about}",
            json!(header.host)
        )?;
        write!(
            out,
            ",\n\"displayTimeUnit\":\"ms\",\n\"baseTimeNanoseconds\":{}",
            self.base_ns
        )?;
        write!(out, ",\n\"traceEvents\":[")
    }

    /// By the plugin's number of the device, up to the last that anything names: it looks them up without asking.
    fn device_properties(&self) -> Vec<Value> {
        let known = &self.layout.process.header.devices;
        let count = self.devices.values().max().map_or(0, |last| last + 1);
        if known.is_empty() {
            return Vec::new();
        }
        (0..count)
            .map(|number| {
                let device = self.devices.iter().find(|(_, of_plugin)| **of_plugin == number);
                let device = device.and_then(|(index, _)| known.iter().find(|known| known.index == *index));
                let Some(device) = device else {
                    return json!({"id": number, "name": "not recorded"});
                };
                let mut entry = json!({"id": number, "name": device.name});
                if let Some(bytes) = device.memory_bytes {
                    entry["totalGlobalMem"] = json!(bytes);
                }
                if let Some((major, minor)) = device.compute_capability {
                    entry["computeMajor"] = json!(major);
                    entry["computeMinor"] = json!(minor);
                }
                if let Some(multiprocessors) = device.multiprocessors {
                    entry["numSms"] = json!(multiprocessors);
                }
                entry
            })
            .collect()
    }

    fn write_names(
        &self,
        writer: &mut EventWriter<'_>,
        span: usize,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let simulated = match self.layout.recording.is_simulated() {
            true => " (simulated)",
            false => "",
        };
        let header = &self.layout.process.header;
        let who = match header.rank {
            Some(rank) => format!("rank {rank}"),
            None => self.layout.process.folder.clone(),
        };
        let mut processes = vec![(
            self.host_pid,
            0,
            format!("{who}: process {}{simulated}", header.pid),
        )];
        let devices = self.layout.rows.iter().filter_map(|row| row.key.device());
        let devices: std::collections::BTreeSet<u32> = devices.chain(self.devices.keys().copied()).collect();
        for device in devices {
            let known = header.devices.iter().find(|known| known.index == device);
            let name = known.map_or_else(String::new, |known| format!(" {}", known.name));
            let title = format!("{who}: GPU {device}{name}{simulated}");
            processes.push((self.gpu_pid(device), 1 + u64::from(device), title));
        }
        for (pid, sort, name) in processes {
            let place = Place { pid, tid: 0 };
            writer.metadata("process_name", place, &json_string(&name))?;
            writer.metadata("process_sort_index", place, &sort.to_string())?;
        }
        let mut rows = vec![(self.steps_row, "steps".to_owned())];
        if !self.plan.collectives.is_empty() {
            rows.push((
                self.counted_row,
                "collectives, in the steps of their kernels".to_owned(),
            ));
        }
        for (row, places) in self.layout.rows.iter().zip(&self.places) {
            for (lane, place) in places.iter().enumerate() {
                let name = match lane {
                    0 => row.name.clone(),
                    lane => format!("{} (lane {})", row.name, lane + 1),
                };
                // Of several files, once.
                summary.lanes_added += u64::from(lane > 0 && span == 0);
                rows.push((*place, name));
            }
        }
        for (sort, (place, name)) in rows.into_iter().enumerate() {
            writer.metadata("thread_name", place, &json_string(&name))?;
            writer.metadata("thread_sort_index", place, &sort.to_string())?;
        }
        Ok(())
    }

    /// The file's range, and the steps in it.
    fn write_steps(&self, span: &Span, writer: &mut EventWriter<'_>) -> io::Result<()> {
        // The plugin's counters of a GPU's use are drawn over this.
        writer.slice(
            "Trace",
            "\"PyTorch Profiler (0)\"",
            self.steps_row,
            span.range,
            |args| {
                args.raw("Op count", 0);
            },
        )?;
        let steps = span.steps.iter().map(|step| (step, true));
        let others = span.other_steps.iter().map(|step| (step, false));
        for (step, is_written) in steps.chain(others) {
            let (category, name) = match is_written {
                true => ("user_annotation", format!("ProfilerStep#{}", step.number)),
                // In no category that the plugin knows.
                false => ("step", format!("step {}, for which no time is left", step.number)),
            };
            let times = (step.start_ns, step.end_ns);
            writer.slice(category, &json_string(&name), self.steps_row, times, |args| {
                args.raw("External id", STEP_IDS.saturating_add(step.number));
                args.text("name", &step.name);
                if step.detected {
                    args.raw("detected", true);
                }
            })?;
        }
        Ok(())
    }

    fn write_launch_operators(&mut self, span: usize, writer: &mut EventWriter<'_>) -> io::Result<()> {
        let plan = self.plan;
        for operator in &plan.launch_operators {
            if self.spans.place(self.layout.number, operator.span.0) != span {
                continue;
            }
            let (row, place) = operator.launched;
            let launched = self.slice_name(&self.layout.rows[row as usize].slices[place as usize]);
            let name = json_string(&format!("launch: {launched}"));
            let place = self.place(operator.row, operator.lane);
            writer.slice("cpu_op", &name, place, operator.span, |args| {
                args.raw("External id", operator.id);
                args.raw("made of the call", true);
            })?;
        }
        Ok(())
    }

    /// The annotations by which the plugin knows collectives, in the order in which it is to count them.
    fn write_annotations(&mut self, span: &Span, writer: &mut EventWriter<'_>) -> io::Result<()> {
        let mut all: Vec<(i64, &CollectiveKernel)> = span
            .counted_ns
            .iter()
            .filter_map(|(kernel, time)| Some((*time, self.plan.collectives.get(kernel)?)))
            .collect();
        // Those at one time stay in the order of their calls.
        all.sort_by_key(|(time, collective)| {
            let called = collective.enqueued_ns();
            (*time, called, collective.start_ns, collective.kernel)
        });
        for (time, collective) in all {
            let at = collective.at.filter(|(_, _, at)| *at == time);
            let place = at.map_or(self.counted_row, |(row, lane, _)| self.place(row, lane));
            let name = json_string(collective.name);
            writer.slice("user_annotation", &name, place, (time, time), |args| {
                args.raw("External id", collective.id);
                self.collective_sizes(args, &collective.rows);
            })?;
        }
        Ok(())
    }
}

/// Numbers of steps begin behind those of operators, of which there are fewer than table rows.
const STEP_IDS: u64 = 1 << 40;

/// The plugin's numbers of devices: their own, as far as those are small enough, and free ones for others.
fn device_numbers(layout: &Layout<'_>) -> BTreeMap<u32, u32> {
    let tables = &layout.process.tables;
    let of_rows = layout.rows.iter().filter_map(|row| match row.key {
        RowKey::Stream { device, .. } | RowKey::Graphs { device, .. } => Some(device),
        _ => None,
    });
    let used: std::collections::BTreeSet<u32> = of_rows.chain(tables.memory.device.iter().copied()).collect();
    let mut numbers: BTreeMap<u32, u32> = used
        .iter()
        .filter(|device| **device < MOST_DEVICES)
        .map(|device| (*device, *device))
        .collect();
    for device in used.iter().filter(|device| **device >= MOST_DEVICES) {
        let free = (0..MOST_DEVICES).find(|number| !numbers.values().any(|taken| taken == number));
        if let Some(free) = free {
            numbers.insert(*device, free);
        }
    }
    numbers
}
