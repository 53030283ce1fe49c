//! The daemon's thread: who calls, what is said, and what is due.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Connection, FromCollector, Hello};
use rustix::net::{SocketFlags, accept_with};

use crate::caller::{Caller, Role};
use crate::clock::now_ns;
use crate::devices::Seen;
use crate::keep::disk::Disk;
use crate::keep::task::{Done, Task};
use crate::listening::Listening;
use crate::metrics;
use crate::metrics::server::Text;
use crate::nodes::others::Others;
use crate::peer::Peer;
use crate::settings::{RING_SEGMENTS, Settings};
use crate::state::State;
use crate::windows::window::Phase;

/// Callers at a time.
const MOST_CALLERS: usize = 8192;
/// Of one user, root aside.
const MOST_OF_USER: usize = 4096;
/// Packets of one caller that are heard before others get their turn.
const PACKETS_AT_ONCE: usize = 64;
/// So many steps of a report are as much work as a packet.
const STEPS_A_PACKET: f64 = 16.0;
/// How often is looked at what is due.
const TICK: Duration = Duration::from_millis(250);
/// How often rings are trimmed.
const TRIM: Duration = Duration::from_secs(5);
/// How often old captures and jobs go.
const RETIRE: Duration = Duration::from_secs(15);
/// How often is written down how far jobs are.
const SAVE: Duration = Duration::from_secs(5);
/// How often other nodes are told.
const TELL: Duration = Duration::from_secs(1);
/// How often metrics are made.
const METRICS: Duration = Duration::from_secs(1);
/// A daemon that ends waits so long for captures that are being put together.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// No calls are taken for so long when there is no descriptor left.
const NO_DESCRIPTORS: Duration = Duration::from_millis(200);

/// Ends a daemon, or wakes it, from other threads.
#[derive(Clone)]
pub struct Handle {
    stop: Arc<AtomicBool>,
    wake: Arc<UnixStream>,
    seen: Sender<Seen>,
}

impl Handle {
    /// Has the daemon end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Tells what was seen of a GPU; says whether the daemon still wants to know.
    pub fn tell(&self, seen: Seen) -> bool {
        self.seen.send(seen).is_ok()
    }

    fn wake(&self) {
        // A pipe that is full wakes it as well.
        drop((&*self.wake).write(&[1]));
    }
}

/// A daemon.
pub struct Daemon {
    listening: Listening,
    woken: UnixStream,
    handle: Handle,
    seen: Receiver<Seen>,
    metrics: Option<Text>,
    state: State,
    /// What it has to say to who started it.
    say: Box<dyn FnMut(&str) + Send>,
    accepts_from: Instant,
    due: Due,
}

/// When what is due again.
struct Due {
    tick: Instant,
    trim: Instant,
    retire: Instant,
    cut: Instant,
    metrics: Instant,
    save: Instant,
    tell: Instant,
}

impl Daemon {
    /// Listens, and finds what a daemon before has left. `say` is given lines for who looks after the daemon.
    ///
    /// # Errors
    /// One line: what can't be used, why, and what to do.
    pub fn start(settings: Settings, say: impl FnMut(&str) + Send + 'static) -> Result<Self, String> {
        raise_descriptor_limit();
        let (woken, wake) = UnixStream::pair().map_err(|error| format!("no pipe: {error}"))?;
        for end in [&woken, &wake] {
            end.set_nonblocking(true)
                .map_err(|error| format!("no pipe: {error}"))?;
        }
        let (tell, seen) = channel();
        let handle = Handle {
            stop: Arc::default(),
            wake: Arc::new(wake),
            seen: tell,
        };
        // First the socket: two daemons must not share a state.
        let listening = Listening::at(&settings.socket, settings.open)?;
        let of_disk = handle.clone();
        let disk = Disk::start(move || of_disk.wake()).map_err(|error| format!("no thread: {error}"))?;
        let mut state = State::open(settings, disk)?;
        if let Some(nodes) = &state.settings.config.nodes {
            let told = handle.clone();
            let others = Others::start(nodes, move || told.wake())?;
            if let Some(address) = others.address {
                state.said.push(format!("other nodes call at {address}"));
            }
            state.others = Some(others);
        }
        let now = Instant::now();
        Ok(Self {
            listening,
            woken,
            handle,
            seen,
            metrics: None,
            state,
            say: Box::new(say),
            accepts_from: now,
            due: Due {
                tick: now,
                trim: now,
                retire: now,
                cut: now,
                metrics: now,
                save: now,
                tell: now,
            },
        })
    }

    /// What ends it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Answers Prometheus at an address, and gives where that is.
    ///
    /// # Errors
    /// One line, when the address can't be had.
    pub fn answer_metrics(&mut self, address: SocketAddr) -> Result<SocketAddr, String> {
        let started = metrics::server::start(address);
        let (text, address) = started.map_err(|error| format!("--metrics {address}: {error}"))?;
        self.metrics = Some(text);
        Ok(address)
    }

    /// Works until it is told to end.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(mut self) -> io::Result<()> {
        while !self.handle.stop.load(Ordering::Acquire) {
            let ready = self.wait()?;
            self.take_done();
            self.state.hear_nodes();
            if ready.calls {
                self.accept();
            }
            for number in ready.callers {
                self.hear(number);
            }
            self.tick();
            self.send();
            for line in std::mem::take(&mut self.state.said) {
                (self.say)(&line);
            }
        }
        self.end_windows();
        // Whoever is being answered still gets what fits.
        self.send();
        self.state.save_all();
        Ok(())
    }

    /// Waits a moment for what is being put together: it is not listed otherwise, and nobody would remove it.
    fn end_windows(&mut self) {
        let until = Instant::now() + LAST_PATIENCE;
        let is_keeping = |state: &State| {
            state
                .windows
                .values()
                .any(|window| window.phase == Phase::Keeping)
        };
        while is_keeping(&self.state)
            && let Ok(done) = self
                .state
                .disk
                .done
                .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            self.take(done);
        }
        for line in std::mem::take(&mut self.state.said) {
            (self.say)(&line);
        }
    }

    /// Waits until somebody has said something, or something is due.
    fn wait(&mut self) -> io::Result<Ready> {
        let now = Instant::now();
        let entry = |fd: i32, events: libc::c_short| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let accepts = now >= self.accepts_from;
        let calls = if accepts { libc::POLLIN } else { 0 };
        let mut entries = vec![
            entry(self.woken.as_raw_fd(), libc::POLLIN),
            entry(self.listening.socket.as_raw_fd(), calls),
        ];
        let mut numbers = Vec::with_capacity(self.state.callers.len());
        for (number, caller) in &mut self.state.callers {
            let mut events = 0;
            if caller.may_speak(now) {
                events |= libc::POLLIN;
            }
            if caller.is_waited_for() {
                events |= libc::POLLOUT;
            }
            // One that is not listened to may have gone: that is heard later, and must not wake us again and again.
            let descriptor = if events == 0 { -1 } else { caller.descriptor };
            entries.push(entry(descriptor, events));
            numbers.push(*number);
        }
        let left = self.due.tick.saturating_duration_since(now);
        let timeout = libc::c_int::try_from(left.as_millis()).unwrap_or(1).max(1);
        let count = libc::nfds_t::try_from(entries.len()).unwrap_or(libc::nfds_t::MAX);
        // SAFETY: as many entries as said.
        if unsafe { libc::poll(entries.as_mut_ptr(), count, timeout) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
            return Ok(Ready::default());
        }
        if entries[0].revents != 0 {
            let mut bytes = [0; 256];
            while self.woken.read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
        }
        let heard = numbers.into_iter().zip(&entries[2..]);
        // After a hang-up, what was sent before it is still read.
        let callers = heard
            .filter(|(_, entry)| entry.revents & !libc::POLLOUT != 0)
            .map(|(number, _)| number)
            .collect();
        Ok(Ready {
            calls: entries[1].revents != 0,
            callers,
        })
    }

    fn accept(&mut self) {
        for _ in 0..PACKETS_AT_ONCE {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.listening.socket, flags) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => continue,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    self.accepts_from = Instant::now() + NO_DESCRIPTORS;
                    return;
                }
            };
            let Ok(peer) = Peer::of(&socket, self.state.watchers) else {
                continue;
            };
            let callers = &self.state.callers;
            let of_user = || {
                callers
                    .values()
                    .filter(|caller| caller.peer.uid == peer.uid)
                    .count()
            };
            if callers.len() >= MOST_CALLERS || peer.uid != 0 && of_user() >= MOST_OF_USER {
                self.state.sums.dropped += 1;
                continue;
            }
            let Ok(connection) = Connection::of(socket) else {
                continue;
            };
            if let Some(caller) = Caller::new(connection, peer) {
                self.state.last_caller += 1;
                self.state.callers.insert(self.state.last_caller, caller);
            }
        }
    }

    /// Hears what one has to say.
    fn hear(&mut self, number: u64) {
        let now = Instant::now();
        for _ in 0..PACKETS_AT_ONCE {
            let Some(caller) = self.state.callers.get_mut(&number) else {
                return;
            };
            if !caller.may_speak(now) {
                return;
            }
            caller.has_spoken(1.0);
            let heard = match caller.role {
                Role::New => caller.hear::<Hello>().map(|said| said.map(Said::Hello)),
                Role::Collector | Role::Process { .. } => caller
                    .hear::<FromCollector>()
                    .map(|said| said.map(Said::Collector)),
                Role::Client | Role::Answered => caller
                    .hear::<serde_json::Value>()
                    .map(|said| said.map(|_| Said::Nothing)),
            };
            let result = match heard {
                Ok(None) => return,
                Ok(Some(Said::Hello(Hello::Collector { .. }))) => {
                    caller.role = Role::Collector;
                    Ok(())
                }
                Ok(Some(Said::Hello(Hello::Client(ask)))) => {
                    self.state.heard_client(number, ask);
                    Ok(())
                }
                Ok(Some(Said::Collector(said))) => {
                    if let FromCollector::Report { steps, .. } = &said {
                        caller.has_spoken(steps.len() as f64 / STEPS_A_PACKET);
                    }
                    self.state.heard_collector(number, said)
                }
                Ok(Some(Said::Nothing)) => Err("a client asks once".to_owned()),
                Err(error) if error.kind() == ErrorKind::InvalidData => Err(error.to_string()),
                Err(_) => {
                    self.drop_caller(number);
                    return;
                }
            };
            if result.is_err() {
                self.state.sums.nonsense += 1;
                self.drop_caller(number);
                return;
            }
        }
    }

    /// Ends a connection.
    fn drop_caller(&mut self, number: u64) {
        let Some(caller) = self.state.callers.remove(&number) else {
            return;
        };
        for window in self.state.windows.values_mut() {
            if window.caller == Some(number) {
                window.caller = None;
            }
        }
        if let Role::Process { job, folder } = caller.role {
            let is_current = self
                .state
                .jobs
                .get(&job)
                .and_then(|job| job.processes.get(&folder));
            if is_current.is_some_and(|process| process.caller == Some(number)) {
                self.state.connection_ended(&job, &folder, false);
            }
        }
    }

    /// Sends what waits, and ends what is over.
    fn send(&mut self) {
        let now = Instant::now();
        let mut over = Vec::new();
        for (number, caller) in &mut self.state.callers {
            let sent = if caller.is_waited_for() {
                caller.send()
            } else {
                Ok(())
            };
            match (sent, caller.is_over(now)) {
                (Ok(()), None) => {}
                (_, Some("")) => over.push((*number, false)),
                _ => over.push((*number, true)),
            }
        }
        for (number, caller) in &mut self.state.callers {
            if let Some(files) = caller.next_files() {
                let caller = *number;
                self.state.disk.give(Task::Read { caller, files });
            }
        }
        for (number, is_dropped) in over {
            self.state.sums.dropped += u64::from(is_dropped);
            self.drop_caller(number);
        }
    }

    fn take_done(&mut self) {
        while let Ok(done) = self.state.disk.done.try_recv() {
            self.take(done);
        }
    }

    fn take(&mut self, done: Done) {
        self.state.disk.was_done(&done);
        match done {
            Done::Made { job, result } => self.state.was_made(&job, result),
            Done::Given { asker, given, .. } => self.state.was_given(&asker, given),
            Done::Manifest { job, result } => self.state.manifest_was_written(&job, result),
            Done::Noted { of, result } => self.state.was_noted(of, result),
            Done::Removed { folder, result } => self.state.was_removed(&folder, result),
            Done::Listed { caller, result } => self.state.was_listed(caller, result),
            Done::Read { caller, files } => {
                if let Some(caller) = self.state.callers.get_mut(&caller) {
                    caller.opened(files);
                }
            }
            Done::Trimmed { job, result } => {
                if let Some(job) = self.state.jobs.get_mut(&job) {
                    job.is_trimmed = false;
                }
                match result {
                    Ok((removed, too_much)) => {
                        self.state.was_trimmed(&job, &removed);
                        for folder in too_much {
                            self.cut_off(&job, &folder);
                        }
                    }
                    Err(why) => self.state.said.push(why),
                }
            }
            Done::Kept { window, result } => self.state.was_kept(window, result),
            Done::Room(room) => {
                self.state.is_asked_for_room = false;
                match room {
                    Ok(bytes) => self.state.free_bytes = Some(bytes),
                    Err(why) => self.state.said.push(why),
                }
            }
        }
    }

    /// A process that writes without end: its files were emptied, and it is not listened to any more.
    fn cut_off(&mut self, job: &str, folder: &str) {
        let process = self.state.jobs.get(job).and_then(|job| job.processes.get(folder));
        if let Some(caller) = process.and_then(|process| process.caller) {
            self.state.sums.dropped += 1;
            self.state.said.push(format!(
                "{job}: {folder} wrote far more than its ring: its files were emptied and its connection ended"
            ));
            self.drop_caller(caller);
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if now < self.due.tick {
            return;
        }
        self.due.tick = now + TICK;
        while let Ok(seen) = self.seen.try_recv() {
            self.state.device_was_seen(&seen, now_ns());
        }
        self.state.look_at_disk();
        self.state.tell_steps();
        self.state.act_on_held(now_ns());
        self.state.tick_windows();
        self.state.tick_jobs(now_ns());
        if let Some(metrics) = self.metrics.as_ref().filter(|_| now >= self.due.metrics) {
            self.due.metrics = now + METRICS;
            let text = metrics::text::text(&self.state).into();
            *metrics.lock().unwrap_or_else(PoisonError::into_inner) = text;
        }
        if now >= self.due.cut {
            self.due.cut = now + self.state.settings.config.ring.duration() / RING_SEGMENTS;
            self.state.cut_rings();
        }
        if now >= self.due.trim {
            self.due.trim = now + TRIM;
            self.state.trim_rings();
        }
        if now >= self.due.tell {
            self.due.tell = now + TELL;
            self.state.tell_nodes();
            self.state.look_elsewhere();
        }
        if now >= self.due.save {
            self.due.save = now + SAVE;
            self.state.save_steps();
        }
        if now >= self.due.retire {
            self.due.retire = now + RETIRE;
            self.state.retire(now_ns());
            // Behind what is removed now, so that the next look does not remove for the same want again.
            if !std::mem::replace(&mut self.state.is_asked_for_room, true) {
                let folder = self.state.settings.state.clone();
                self.state.disk.give(Task::Room { folder });
            }
        }
    }
}

/// Who has something to say.
#[derive(Default)]
struct Ready {
    calls: bool,
    callers: Vec<u64>,
}

/// What was said.
enum Said {
    Hello(Hello),
    Collector(FromCollector),
    Nothing,
}

/// As many descriptors as we may have: a job has several.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid place for the limit; raising the soft one to the hard one is always allowed.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
