//! A collector that is none: it joins, writes real rows by the daemon's descriptors, reports steps, cuts and captures as it is told.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gputrace_daemon::settings::{Config, Settings};
use gputrace_trace::daemon::{
    Answer, Ask, Captured, Connection, FromCollector, Hello, JobKey, StepReport, ToCollector, Totals,
};
use gputrace_trace::json_file::json_text;
use gputrace_trace::manifest::{PROCESS_FILE, ProcessHeader};
use gputrace_trace::seal::Identity;
use gputrace_trace::tables::Marker;
use gputrace_trace::writer::{Files, ProcessWriter};
use gputrace_trace::{Recording, now};
use serde_json::Value;

use crate::process::Process;

/// For answers of a daemon that lives.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What is said to the daemon, and what came between two answers.
pub struct Line {
    connection: Connection,
    between: Mutex<Vec<ToCollector>>,
    /// Who has called; it ends first, as that of a process does that is killed.
    process: Mutex<Option<Process>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.process());
    }
}

impl Line {
    /// The process: it goes on when the connection ends.
    pub fn process(&self) -> Option<Process> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.take()
    }

    pub fn say(&self, message: &FromCollector) {
        self.connection.send(message, None).expect("sent");
    }

    /// Says it, if the daemon listens.
    pub fn send(&self, message: &FromCollector) -> io::Result<()> {
        self.connection.send(message, None)
    }

    /// The next of the daemon's orders.
    pub fn order(&self, wait: Duration) -> Option<ToCollector> {
        let mut between = self.between.lock().unwrap_or_else(PoisonError::into_inner);
        if !between.is_empty() {
            return Some(between.remove(0));
        }
        let received = self.connection.receive::<ToCollector>(wait).expect("connected");
        received.map(|(message, _)| message)
    }

    /// Asks, and waits for what is made.
    fn ask(&self, message: &FromCollector) -> io::Result<Option<File>> {
        self.connection.send(message, None)?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.connection.receive::<ToCollector>(PATIENCE)? {
                Some((ToCollector::Made, file)) => return Ok(file.map(File::from)),
                Some((ToCollector::Failed { why }, _)) => return Err(io::Error::other(why)),
                Some((other, _)) => self
                    .between
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(other),
                None => {}
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// Has the daemon make files.
struct DaemonFiles(Arc<Line>);

impl Files for DaemonFiles {
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let segment = gputrace_trace::recording::segment_of(&name).1;
        let segment = u32::try_from(segment).unwrap_or(u32::MAX);
        self.0.ask(&FromCollector::Segment { segment }).map(drop)
    }

    fn open(&self, path: &Path, _new: bool) -> io::Result<File> {
        let table = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let made = self.0.ask(&FromCollector::Open { table, segment: None })?;
        made.ok_or_else(|| io::Error::other("no descriptor"))
    }

    fn replace(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        let segment = gputrace_trace::recording::segment_of(&folder.to_string_lossy()).1;
        let text = String::from_utf8_lossy(text);
        let mut rest: &str = &text;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(1000));
            self.0.say(&FromCollector::Header {
                segment: u32::try_from(segment).unwrap_or(u32::MAX),
                text: part.to_owned(),
                first: rest.len() == text.len(),
                done: behind.is_empty(),
            });
            rest = behind;
        }
        Ok(())
    }
}

/// A process.
pub struct Fake {
    pub line: Arc<Line>,
    writer: Box<ProcessWriter>,
    header: ProcessHeader,
    name: String,
    segment: u32,
    pub totals: Totals,
    pub step: u64,
}

pub fn key(group: &str) -> JobKey {
    JobKey {
        group: group.to_owned(),
        scheduler: group.starts_with("slurm-").then(|| group.to_owned()),
        program: "train.py".to_owned(),
    }
}

/// Calls and joins.
pub fn join(
    socket: &Path,
    name: &str,
    group: &str,
    segment: u32,
    rank: Option<u32>,
) -> (Arc<Line>, ToCollector) {
    let line = call(socket, name, group, segment, rank);
    let welcome = line.order(PATIENCE).expect("an answer");
    (line, welcome)
}

/// Calls, and says that it wants to join.
pub fn call(socket: &Path, name: &str, group: &str, segment: u32, rank: Option<u32>) -> Arc<Line> {
    let (process, connection) = Process::connect(socket).expect("connected");
    let line = Arc::new(Line {
        connection,
        between: Mutex::default(),
        process: Mutex::new(Some(process)),
    });
    let hello = Hello::Collector {
        version: "0.1.0".to_owned(),
    };
    line.connection.send(&hello, None).expect("sent");
    line.say(&FromCollector::Join {
        folder: name.to_owned(),
        segment,
        job: key(group),
        pid: std::process::id(),
        rank,
        world_size: Some(8),
    });
    line
}

impl Fake {
    pub fn new(socket: &Path, name: &str, group: &str, rank: u32) -> Self {
        Self::again(socket, name, group, rank, 0)
    }

    pub fn again(socket: &Path, name: &str, group: &str, rank: u32, segment: u32) -> Self {
        let (line, welcome) = join(socket, name, group, segment, Some(rank));
        let ToCollector::Welcome { recording, .. } = &welcome else {
            panic!("{welcome:?}");
        };
        let files: Arc<dyn Files> = Arc::new(DaemonFiles(line.clone()));
        let folder = folder(name, segment);
        files.make_folder(&folder).expect("made");
        let identity = Identity {
            segment,
            ..Identity::random()
        };
        let writer = Box::new(ProcessWriter::in_folder(files, &folder, identity));
        let mut header = ProcessHeader {
            recording: recording.clone(),
            host: "node7".to_owned(),
            command: vec!["train.py".to_owned()],
            rank: Some(rank),
            started_ns: now().0,
            ..ProcessHeader::new()
        };
        writer.sign(&mut header);
        let fake = Self {
            line,
            writer,
            header,
            name: name.to_owned(),
            segment,
            totals: Totals {
                rank: Some(rank),
                world_size: Some(8),
                ..Totals::default()
            },
            step: 0,
        };
        fake.write_header();
        fake
    }

    fn write_header(&self) {
        let text = json_text(PROCESS_FILE, &self.header).expect("written");
        let path = self.writer.folder().join(PROCESS_FILE);
        self.writer.files().replace(&path, &text).expect("sent");
    }

    pub fn write_row(&mut self) {
        let name = self.writer.names.intern_own("a mark");
        self.writer.tables.markers.push(Marker {
            start_ns: now(),
            duration_ns: None,
            name,
            domain: name,
            thread: 1,
            kind: 2,
            depth: 0,
            category: None,
            color: None,
            payload: None,
            payload_type: None,
            payload_integer: None,
        });
        self.writer.flush(1).expect("written");
        self.totals.rows += 1;
    }

    /// Tells of a step that has just ended.
    pub fn end_step(&mut self, duration_ns: i64, communication_ns: Option<i64>) {
        let report = StepReport {
            number: self.step,
            start_ns: now().0 - duration_ns,
            duration_ns,
            communication_ns,
            ..StepReport::default()
        };
        self.step += 1;
        self.report(vec![report]);
    }

    pub fn report(&mut self, steps: Vec<StepReport>) {
        self.line.say(&FromCollector::Report {
            steps,
            totals: self.totals.clone(),
        });
    }

    /// Does what the daemon wants, for so long. Says how many orders there were.
    pub fn obey(&mut self, wait: Duration) -> usize {
        self.obey_orders(usize::MAX, wait)
    }

    /// Does so many things that the daemon wants, or what there is of them until the time is over.
    pub fn obey_orders(&mut self, count: usize, most: Duration) -> usize {
        let until = Instant::now() + most;
        let mut done = 0;
        while done < count
            && let Some(order) = self.line.order(until.saturating_duration_since(Instant::now()))
        {
            done += 1;
            match order {
                ToCollector::Cut => self.cut(),
                ToCollector::Capture(capture) => {
                    let start_ns = now().0;
                    self.write_row();
                    self.line.say(&FromCollector::Captured(Captured {
                        id: capture.id,
                        steps: capture.steps.unwrap_or(1),
                        start_ns,
                        end_ns: now().0,
                        why: None,
                    }));
                }
                other => panic!("{other:?}"),
            }
        }
        done
    }

    pub fn cut(&mut self) {
        self.cut_after(|_| ());
    }

    /// The same, and does something more before it says so.
    pub fn cut_after(&mut self, more: impl FnOnce(&Self)) {
        let ended = self.segment;
        let next = folder(&self.name, ended + 1);
        self.writer.begin_segment(&next).expect("begun");
        self.segment = ended + 1;
        self.writer.sign(&mut self.header);
        self.write_header();
        more(self);
        self.line.say(&FromCollector::Cut { segment: ended });
    }

    pub fn next_segment(&self) -> u32 {
        self.segment + 1
    }

    pub fn leave(mut self) {
        self.writer.close().expect("closed");
        self.line.say(&FromCollector::Leave);
    }
}

fn folder(name: &str, segment: u32) -> PathBuf {
    match segment {
        0 => PathBuf::from("/nowhere").join(name),
        segment => PathBuf::from("/nowhere").join(format!("{name}.{segment}")),
    }
}

/// Asks as a client, and gives the document or why there is none.
pub fn ask(socket: &Path, ask: Ask) -> Result<Value, String> {
    let mut whole = String::new();
    for (answer, _) in answers(socket, ask) {
        match answer {
            Answer::Text { text, .. } => whole.push_str(&text),
            Answer::Done => break,
            Answer::Failed { why } => return Err(why),
            Answer::File { .. } => panic!("a file"),
        }
    }
    Ok(serde_json::from_str(&whole).expect("JSON"))
}

/// All that a client is answered.
pub fn answers(socket: &Path, ask: Ask) -> Vec<(Answer, Option<File>)> {
    let connection = Connection::connect(socket).expect("connected");
    connection.send(&Hello::Client(ask), None).expect("sent");
    let mut all = Vec::new();
    while let Some((answer, file)) = connection.receive::<Answer>(PATIENCE).expect("answered") {
        let is_last = matches!(answer, Answer::Done | Answer::Failed { .. });
        all.push((answer, file.map(File::from)));
        if is_last {
            break;
        }
    }
    all
}

fn settings(place: &tempfile::TempDir, host: &str, config: &str, open: bool) -> Settings {
    Settings {
        socket: place.path().join("daemon.sock"),
        open,
        state: place.path().join("state"),
        host: host.to_owned(),
        config: Config::parse(config).expect("a configuration"),
    }
}

/// A daemon on a thread, in a folder of its own.
pub struct Running {
    pub place: tempfile::TempDir,
    pub socket: PathBuf,
    handle: gputrace_daemon::Handle,
    /// The lines that it has said.
    said: Arc<Mutex<String>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    pub fn new(config: &str) -> Self {
        Self::in_place(tempfile::tempdir().expect("a folder"), config)
    }

    pub fn in_place(place: tempfile::TempDir, config: &str) -> Self {
        Self::begin(place, config, false, false).0
    }

    /// For all users of the machine.
    pub fn for_all(config: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a folder");
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.path(), all).expect("opened");
        Self::begin(place, config, true, false).0
    }

    /// On a node of this name.
    pub fn named(host: &str, config: &str) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let settings = settings(&place, host, config, false);
        Self::run(place, settings, false).expect("begun").0
    }

    /// Why there is none with this configuration.
    pub fn refused(config: &str) -> String {
        let place = tempfile::tempdir().expect("a folder");
        let settings = settings(&place, "node7", config, false);
        Self::run(place, settings, false).err().expect("refused")
    }

    pub fn with_metrics(config: &str) -> (Self, SocketAddr) {
        let (daemon, address) = Self::begin(tempfile::tempdir().expect("a folder"), config, false, true);
        (daemon, address.expect("an address"))
    }

    fn begin(
        place: tempfile::TempDir,
        config: &str,
        open: bool,
        metrics: bool,
    ) -> (Self, Option<SocketAddr>) {
        let settings = settings(&place, "node7", config, open);
        Self::run(place, settings, metrics).expect("begun")
    }

    fn run(
        place: tempfile::TempDir,
        settings: Settings,
        metrics: bool,
    ) -> Result<(Self, Option<SocketAddr>), String> {
        let socket = settings.socket.clone();
        let said = Arc::new(Mutex::new(String::new()));
        let hears = said.clone();
        let mut daemon = gputrace_daemon::Daemon::start(settings, move |line| {
            eprintln!("{line}");
            let mut said = hears.lock().unwrap_or_else(PoisonError::into_inner);
            said.push_str(&format!("{line}\n"));
        })?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = metrics.then(|| daemon.answer_metrics(any).expect("an address"));
        let handle = daemon.handle();
        let thread = std::thread::spawn(move || daemon.run().expect("run"));
        let running = Self {
            place,
            socket,
            handle,
            said,
            thread: Some(thread),
        };
        Ok((running, address))
    }

    pub fn state(&self) -> PathBuf {
        self.place.path().join("state")
    }

    pub fn ask(&self, question: Ask) -> Result<Value, String> {
        ask(&self.socket, question)
    }

    /// Tells it what was seen of a GPU.
    pub fn tell(&self, seen: gputrace_daemon::devices::Seen) {
        assert!(self.handle.tell(seen), "it lives");
    }

    /// What it has said, once that is as wanted.
    pub fn said_when(&self, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + 3 * PATIENCE;
        loop {
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if wanted(&said) {
                return said;
            }
            assert!(Instant::now() < until, "{said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The jobs in the order in which they began, once they are as wanted.
    pub fn jobs_when(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut jobs = self.ask(Ask::Jobs).expect("jobs");
            if let Some(jobs) = jobs["jobs"].as_array_mut() {
                jobs.sort_by_key(|job| job["started_ns"].as_i64());
            }
            if wanted(&jobs["jobs"]) {
                return jobs["jobs"].clone();
            }
            assert!(Instant::now() < until, "{jobs:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A job's recording, once it is as wanted: what the daemon writes into it comes a moment later than what it says.
    pub fn recording_when(&self, id: &str, wanted: impl Fn(&Recording) -> bool) -> Recording {
        let until = Instant::now() + PATIENCE;
        loop {
            let recording = Recording::open(&self.state().join("jobs").join(id)).expect("a recording");
            if wanted(&recording) {
                return recording;
            }
            assert!(Instant::now() < until, "{:#?}", recording.manifest);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The name of the job, once one rank has joined it.
    pub fn job_of_one_rank(&self) -> String {
        let jobs = self.jobs_when(|jobs| jobs[0]["ranks"] == 1);
        jobs[0]["job"].as_str().expect("a name").to_owned()
    }

    /// Ends it, and gives its folder.
    pub fn end(mut self) -> tempfile::TempDir {
        self.stop();
        std::mem::replace(&mut self.place, tempfile::tempdir().expect("a folder"))
    }

    fn stop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("ended");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            self.stop();
        }
    }
}
