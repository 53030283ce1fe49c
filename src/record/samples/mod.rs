//! Samples of the devices' and the host's state, taken on a thread of the recorder's own.
//!
//! They are written into a folder of their own in the recording, which is no rank's. A round that takes longer than its
//! period would take a processor for itself: then the period is doubled, and that is noted.

mod devices;
mod fields;
mod proc;
mod processes;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gputrace_trace::clock_reading::{boot_id, clock_snapshot};
use gputrace_trace::follow::Follower;
use gputrace_trace::json_file::{Json, read_json, write_json};
use gputrace_trace::manifest::{HOST_ROLE, PROCESS_FILE, ProcessHeader};
use gputrace_trace::recording::host_in_names;
use gputrace_trace::tables::Counter;
use gputrace_trace::topology::Topology;
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{NameId, now};

use crate::device::Device;
use crate::{nvml, topology};
use devices::Devices;
use processes::Processes;

const SECOND: Duration = Duration::from_secs(1);
/// Rounds in a row that must be too long before the rate is lowered: one alone may have other reasons.
const LATE_ROUNDS: u32 = 5;

/// What is to be sampled.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Samples a second, more than 0.
    pub hz: f64,
    /// State of the devices, of which kind.
    pub devices: Option<Device>,
    /// State of the processes and the machine.
    pub host: bool,
    /// Bytes after which new files are begun, so that the oldest can be removed.
    pub segment_bytes: Option<u64>,
    /// Whether the recorder's own command line is kept as it is.
    pub keep_arguments: bool,
}

/// How long the end of a command waits for the last samples: NVML may hang, of a GPU that fell off the bus say.
const PATIENCE: Duration = Duration::from_secs(5);

/// What both threads see.
struct Shared {
    stop: AtomicBool,
    paused: AtomicBool,
    /// The first error of the disk, as a sentence.
    refused: OnceLock<String>,
}

/// The running thread.
pub struct Sampler {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    topology: Receiver<Topology>,
}

impl Sampler {
    /// Begins to sample into the recording in `folder`, whose number is `recording`.
    ///
    /// # Errors
    /// When there can be no thread, or no folder for the samples.
    pub fn start(folder: &Path, host: &str, recording: &str, wanted: Wanted) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            refused: OnceLock::new(),
        });
        let (sender, topology) = channel();
        let mut header = header(host, wanted.keep_arguments);
        recording.clone_into(&mut header.recording);
        let first_folder = folder.join(folder_name(&header));
        let writer = ProcessWriter::create(&first_folder)?;
        writer.sign(&mut header);
        let mut sampling = Sampling {
            recording: folder.to_owned(),
            writer,
            first_folder,
            segment: 0,
            header,
            header_written: None,
            shared: Arc::clone(&shared),
            wanted,
        };
        let thread = std::thread::Builder::new()
            .name("samples".to_owned())
            .spawn(move || sampling.run(&sender))?;
        Ok(Self {
            shared,
            thread,
            topology,
        })
    }

    /// Takes samples, or none for a while.
    pub fn pause(&self, paused: bool) {
        self.shared.paused.store(paused, Ordering::Relaxed);
    }

    /// How the devices are connected, once that is known.
    pub fn take_topology(&self) -> Option<Topology> {
        self.topology.try_recv().ok()
    }

    /// Ends it and closes its files; gives what was not taken yet, and what the disk refused.
    pub fn stop(self) -> (Option<Topology>, Option<String>) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let begun = Instant::now();
        while !self.thread.is_finished() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        // One that hangs or panicked has not closed its folder, which tells so.
        if self.thread.is_finished() {
            drop(self.thread.join());
        }
        (self.topology.try_recv().ok(), self.shared.refused.get().cloned())
    }
}

fn header(host: &str, keep_arguments: bool) -> ProcessHeader {
    let mut header = ProcessHeader {
        role: HOST_ROLE.to_owned(),
        host: host.to_owned(),
        boot_id: boot_id(),
        pid: std::process::id(),
        parent_pid: std::os::unix::process::parent_id(),
        command: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        started_ns: now().0,
        ..ProcessHeader::new()
    };
    if !keep_arguments {
        header.redact();
    }
    header
}

fn folder_name(header: &ProcessHeader) -> String {
    let host = host_in_names(&header.host);
    format!("host-{host}-{}-{}", header.pid, header.started_ns)
}

/// The thread's state.
struct Sampling {
    recording: PathBuf,
    writer: ProcessWriter,
    first_folder: PathBuf,
    /// How often new files were begun.
    segment: u64,
    header: ProcessHeader,
    /// As it was last written.
    header_written: Option<ProcessHeader>,
    shared: Arc<Shared>,
    wanted: Wanted,
}

impl Sampling {
    fn run(&mut self, topology: &Sender<Topology>) {
        self.write_header();
        self.writer.tables.clocks.push(clock_snapshot());
        let opened = self.wanted.devices.map(nvml::open);
        let nvml = match &opened {
            Some(Ok(nvml)) => Some(nvml),
            Some(Err(error)) => {
                self.header
                    .notes
                    .push(format!("no samples of devices: NVML: {error}"));
                None
            }
            None => None,
        };
        let mut devices = nvml.map(Devices::new);
        if let (Some(nvml), Some(devices)) = (nvml, &devices) {
            self.header.devices = devices.list();
            // Where nobody listens any more the command has ended.
            drop(topology.send(topology::of(nvml, &self.header.host)));
        }
        let mut processes = self
            .wanted
            .host
            .then(|| Processes::new(&self.recording, &self.header.host));
        let mut used = Used::new(&self.recording, &self.header.host);
        let mut period = Duration::from_secs_f64(1.0 / self.wanted.hz);
        let mut next = Instant::now();
        let mut second = Instant::now();
        let mut late = 0;
        let mut round_name: Option<NameId> = None;
        let own_notes = self.header.notes.clone();
        let mut rate_note = None;
        while !self.shared.stop.load(Ordering::Acquire) {
            let began = Instant::now();
            if !self.shared.paused.load(Ordering::Relaxed) {
                if let Some(devices) = &mut devices {
                    self.sample_devices(devices);
                }
                if let Some(processes) = &mut processes {
                    self.sample_processes(processes);
                }
                let took = began.elapsed();
                let name = *round_name.get_or_insert_with(|| self.writer.names.intern("round_seconds"));
                self.count(name, took.as_secs_f64());
                late = if took > period { late + 1 } else { 0 };
                if late == LATE_ROUNDS {
                    late = 0;
                    period *= 2;
                    rate_note = Some(format!(
                        "samples were to be taken {} times a second; a round takes {:.0} ms: they were taken {:.2} times a \
                         second",
                        self.wanted.hz,
                        took.as_secs_f64() * 1e3,
                        1.0 / period.as_secs_f64()
                    ));
                }
            }
            if second.elapsed() >= SECOND {
                second = Instant::now();
                self.writer.tables.clocks.push(clock_snapshot());
                if let Some(devices) = &mut devices
                    && let Some(uuids) = used.look()
                {
                    devices.use_only(uuids);
                }
                self.notes(
                    &own_notes,
                    devices.as_ref(),
                    processes.as_ref(),
                    rate_note.as_deref(),
                );
                self.lose(devices.as_mut());
                // A disk that refuses keeps the rows for the next time; those that find no room are counted.
                let written = self.writer.flush(1);
                self.note_refused(written);
                self.begin_segment_if_due();
                self.write_header();
            }
            next += period;
            let now = Instant::now();
            match next.checked_duration_since(now) {
                Some(wait) => std::thread::park_timeout(wait),
                None => next = now,
            }
        }
        self.notes(
            &own_notes,
            devices.as_ref(),
            processes.as_ref(),
            rate_note.as_deref(),
        );
        self.lose(devices.as_mut());
        self.close();
    }

    fn count(&mut self, name: NameId, value: f64) {
        self.writer.tables.counters.push(Counter {
            time_ns: now(),
            name,
            value,
            ..Counter::default()
        });
    }

    fn sample_devices(&mut self, devices: &mut Devices<'_>) {
        let writer = &mut self.writer;
        devices.sample(&mut |device, name, value| {
            let name = writer.names.intern(name);
            writer.tables.counters.push(Counter {
                time_ns: now(),
                name,
                device: Some(device),
                value,
                ..Counter::default()
            });
        });
    }

    fn sample_processes(&mut self, processes: &mut Processes) {
        let writer = &mut self.writer;
        processes.sample(&mut |about, name, value| {
            let name = writer.names.intern(name);
            writer.tables.counters.push(Counter {
                time_ns: now(),
                name,
                value,
                pid: about.pid,
                thread: about.thread,
                ..Counter::default()
            });
        });
    }

    fn notes(
        &mut self,
        own: &[String],
        devices: Option<&Devices<'_>>,
        processes: Option<&Processes>,
        rate: Option<&str>,
    ) {
        let mut notes = own.to_vec();
        notes.extend(devices.map(Devices::notes).unwrap_or_default());
        notes.extend(processes.map(Processes::notes).unwrap_or_default());
        notes.extend(rate.map(str::to_owned));
        self.header.notes = notes;
        self.header.threads = processes.map(Processes::threads).unwrap_or_default();
    }

    fn lose(&mut self, devices: Option<&mut Devices<'_>>) {
        let failures = devices.map_or(0, Devices::take_failures);
        let mut losses = vec![("samples that NVML failed to give".to_owned(), failures)];
        for (table, count) in self.writer.take_lost_rows() {
            losses.push((format!("rows of {table} that the disk had no room for"), count));
        }
        for (what, count) in losses {
            self.writer.lose(&what, count, "state of devices and host");
        }
    }

    fn write_header(&mut self) {
        if self.header_written.as_ref() == Some(&self.header) {
            return;
        }
        // Where the disk refuses it is tried again next time.
        let written = write_json(&self.writer.folder().join(PROCESS_FILE), &self.header);
        if written.is_ok() {
            self.header_written = Some(self.header.clone());
        }
        self.note_refused(written);
    }

    fn note_refused(&self, written: io::Result<()>) {
        if let Err(error) = written {
            let folder = self.writer.folder().display();
            let sentence =
                || format!("{folder}: samples of devices and host could not always be written: {error}");
            self.shared.refused.get_or_init(sentence);
        }
    }

    /// Begins new files when those that are written hold enough.
    fn begin_segment_if_due(&mut self) {
        let Some(most) = self.wanted.segment_bytes else {
            return;
        };
        if self.writer.totals().1 < most {
            return;
        }
        let closed_folder = self.writer.folder().to_owned();
        // NAME.1, NAME.2, ... behind NAME.
        let mut next = self.first_folder.clone().into_os_string();
        next.push(format!(".{}", self.segment + 1));
        // Where the disk refuses it is tried again next time.
        if let Ok(rows) = self.writer.begin_segment(Path::new(&next)) {
            let mut closed = self.header.clone();
            let rows = rows.into_iter().map(|(table, rows)| (table.to_owned(), rows));
            closed.rows = rows.collect();
            closed.ended_ns = Some(now().0);
            drop(write_json(&closed_folder.join(PROCESS_FILE), &closed));
            self.segment += 1;
            self.writer.sign(&mut self.header);
            self.header_written = None;
            self.writer.tables.clocks.push(clock_snapshot());
        }
    }

    fn close(&mut self) {
        self.writer.tables.clocks.push(clock_snapshot());
        match self.writer.close() {
            Ok(rows) => {
                let rows = rows.into_iter().map(|(table, rows)| (table.to_owned(), rows));
                self.header.rows = rows.collect();
                self.header.ended_ns = Some(now().0);
            }
            Err(error) => {
                self.header
                    .notes
                    .push(format!("the samples could not be closed: {error}"));
                self.note_refused(Err(error));
            }
        }
        self.write_header();
    }
}

/// Which devices the recorded processes of a host use: those that they have contexts on.
struct Used {
    recording: PathBuf,
    host: String,
    contexts: Follower,
    /// By process folder: the devices with a context, by index within the process.
    indices: Vec<(String, u32)>,
    uuids: BTreeSet<String>,
}

impl Used {
    fn new(recording: &Path, host: &str) -> Self {
        Self {
            recording: recording.to_owned(),
            host: host.to_owned(),
            contexts: Follower::new(recording, &["contexts"]),
            indices: Vec::new(),
            uuids: BTreeSet::new(),
        }
    }

    /// Their UUIDs, when there are new ones.
    fn look(&mut self) -> Option<&BTreeSet<String>> {
        let growths = self.contexts.read().unwrap_or_default();
        for growth in growths {
            let devices = growth.tables.contexts.device;
            self.indices
                .extend(devices.into_iter().map(|device| (growth.folder.clone(), device)));
        }
        let before = self.uuids.len();
        let (recording, host, uuids) = (&self.recording, &self.host, &mut self.uuids);
        // A header may not have its devices yet; then it is looked at again.
        self.indices.retain(|(folder, device)| {
            let header = read_json::<ProcessHeader>(&recording.join(folder).join(PROCESS_FILE));
            let Some(header) = header.ok().and_then(Json::ok) else {
                return true;
            };
            let found = header.devices.iter().find(|found| found.index == *device);
            let Some(uuid) = found.and_then(|found| found.uuid.clone()) else {
                return true;
            };
            if header.host == *host {
                uuids.insert(uuid);
            }
            false
        });
        (self.uuids.len() > before).then_some(&self.uuids)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::Recording;

    use super::*;

    #[test]
    fn files_that_hold_enough_are_followed_by_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = Wanted {
            hz: 100.0,
            devices: None,
            host: true,
            segment_bytes: Some(1),
            keep_arguments: false,
        };
        let sampler = Sampler::start(folder.path(), "here", "", wanted).expect("it starts");
        std::thread::sleep(Duration::from_millis(2_500));
        sampler.stop();
        let folders = std::fs::read_dir(folder.path()).expect("read").count();
        assert!(folders >= 3, "{folders}");
        let recording = Recording::open(folder.path()).expect("opens");
        let [host] = recording.hosts.as_slice() else {
            panic!("the parts are one: {}", recording.hosts.len());
        };
        // One each second, and at the beginning and the end of a part.
        assert!(host.tables.clocks.realtime_ns.len() > folders);
        assert_eq!(
            recording
                .losses
                .iter()
                .filter(|loss| !loss.what.contains("manifest"))
                .count(),
            0,
            "{:?}",
            recording.losses
        );
    }
}
