//! The board: what each process does on each device, where NVML in any process of the run can read it.
//!
//! With SIMGPU_RUN it is memory that all processes of the run share (`meeting`), so that a monitor sees what the ranks
//! do; without, memory of this process alone. A process has an entry for each device that it has a context on and fills
//! it twenty times a second. Busy time is the union of its operations; where several processes share a device, theirs are
//! added, up to all of the time.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use super::meeting::{self, Checked};
use crate::clock::now_ns;
use crate::config::config;
use crate::device::traffic::{self, Link};
use crate::device::{busy, memory};
use crate::driver::has_context;

/// A bucket's time, and how many there are: more than a second's.
const BUCKET_NS: i64 = 100_000_000;
const BUCKETS: usize = 16;
/// Utilisation is over so many buckets, the newest among them: a second.
const WINDOW: i64 = 10;
const ENTRIES: usize = 256;
const REFRESH: Duration = Duration::from_millis(50);

/// A tenth of a second.
#[repr(C)]
struct Bucket {
    /// Nanoseconds since the epoch over its time.
    number: AtomicU64,
    kernels_ns: AtomicU64,
    transfers_ns: AtomicU64,
    pcie_sent: AtomicU64,
    pcie_received: AtomicU64,
}

/// What one process does on one device.
#[repr(C)]
struct Entry {
    /// 0: free.
    process: AtomicU32,
    device: AtomicU32,
    used_bytes: AtomicU64,
    /// How many times slower than it should be, as bits of a double.
    slowdown: AtomicU64,
    /// With kernels, since it began, without the newest bucket.
    kernels_ns: AtomicU64,
    nvlink: [AtomicU64; 2],
    pcie: [AtomicU64; 2],
    buckets: [Bucket; BUCKETS],
}

/// What all processes together do on a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// Shares of the last second with a kernel, and with a copy or memset.
    pub(super) kernels: f64,
    pub(super) transfers: f64,
    pub(super) used_bytes: u64,
    /// Processes with a context there, and the bytes that they use.
    pub(super) processes: Vec<(u32, u64)>,
    /// Since the run began.
    pub(super) kernels_ns: u64,
    /// Bytes sent and received.
    pub(super) nvlink: [u64; 2],
    pub(super) pcie: [u64; 2],
    /// Over the last second.
    pub(super) pcie_bytes_per_second: [u64; 2],
    pub(super) slowdown: f64,
}

/// The board of a run, or of this process alone.
struct Board {
    run: Option<String>,
    entries: &'static [Entry],
    /// The shared memory, to hand to others.
    memory: Option<Checked>,
    /// While others are handed it by us: the socket that they ask on.
    answering: Option<Checked>,
    /// When whoever answers was last asked for the memory.
    asked: Instant,
}

static BOARD: Mutex<Option<Board>> = Mutex::new(None);
/// The socket that others ask on and its number among files, for a child that must not keep it open.
static ANSWERING: (AtomicI32, AtomicU64) = (AtomicI32::new(-1), AtomicU64::new(0));

fn board() -> MutexGuard<'static, Option<Board>> {
    BOARD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run() -> Option<String> {
    std::env::var("SIMGPU_RUN").ok().filter(|run| !run.is_empty())
}

const BYTES: usize = size_of::<Entry>() * ENTRIES;

/// Entries in shared memory, or in memory of this process alone.
fn map(memory: Option<RawFd>) -> Option<&'static [Entry]> {
    let (sharing, memory) = match memory {
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        Some(memory) => (libc::MAP_SHARED, memory),
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; it stays when the descriptor is closed.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, sharing, memory, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: as many bytes as the entries take, zero at first, never unmapped; entries are atomics throughout, so that
    // other processes may change them at any time.
    Some(unsafe { std::slice::from_raw_parts(address.cast::<Entry>(), ENTRIES) })
}

impl Board {
    /// A board in memory of this process alone.
    fn alone(run: Option<String>) -> Self {
        Self {
            run,
            entries: map(None).unwrap_or(&[]),
            memory: None,
            answering: None,
            asked: Instant::now(),
        }
    }

    /// A run's board in this memory; `None` if it is none.
    fn shared(run: &str, memory: OwnedFd) -> Option<Self> {
        let (_, bytes) = meeting::identity(memory.as_raw_fd())?;
        Some(Self {
            run: Some(run.to_owned()),
            entries: map(Some(memory.as_raw_fd()).filter(|_| bytes == BYTES as u64))?,
            memory: Some(Checked::new(memory)?),
            answering: None,
            asked: Instant::now(),
        })
    }

    /// Hands the memory to others from now on, unless somebody does already.
    fn answer(&mut self) {
        extern "C" fn in_child() {
            // Nobody answers there: whoever asked would wait.
            let (socket, number) = (&ANSWERING.0, &ANSWERING.1);
            let (socket, number) = (socket.swap(-1, Ordering::Relaxed), number.load(Ordering::Relaxed));
            let now = meeting::identity(socket).map(|((_, number), _)| number);
            if socket >= 0 && now == Some(number) {
                // SAFETY: close may be called after a fork; this is a copy, and the parent keeps its own.
                unsafe { libc::close(socket) };
            }
        }
        static ONCE: Once = Once::new();
        let (Some(run), Some(_)) = (&self.run, &self.memory) else {
            return;
        };
        self.answering = meeting::answer(run);
        if let Some(socket) = &self.answering
            && let Some(descriptor) = socket.get()
        {
            ANSWERING.1.store(socket.identity().1, Ordering::Relaxed);
            ANSWERING.0.store(descriptor, Ordering::Relaxed);
            // SAFETY: the function lives as long as this library, which is never unloaded.
            ONCE.call_once(|| unsafe {
                libc::pthread_atfork(None, None, Some(in_child));
            });
        }
    }

    /// Whether others still get it from us.
    fn is_answering(&self) -> bool {
        self.answering
            .as_ref()
            .is_some_and(|socket| socket.get().is_some())
    }
}

/// The run's entries; `make`: whether there is to be a board if there is none yet.
///
/// A program that monitors may learn of the run after it has asked for something; and where all who had the board end before
/// others come, these have another, which whoever still has the first one finds out within a second.
fn entries(make: bool) -> &'static [Entry] {
    const ASK_AGAIN: Duration = Duration::from_secs(1);
    let mut board = board();
    let run = run();
    let known = board.as_mut().filter(|board| board.run == run);
    let Some(name) = run else {
        return match known {
            Some(board) => board.entries,
            None => board.insert(Board::alone(None)).entries,
        };
    };
    let known = match known {
        Some(board) if board.is_answering() || board.asked.elapsed() < ASK_AGAIN => return board.entries,
        known => known,
    };
    match (meeting::ask(&name), known) {
        (Some(memory), Some(known)) => {
            known.asked = Instant::now();
            let theirs = meeting::identity(memory.as_raw_fd()).map(|(identity, _)| identity);
            let is_same = known.memory.as_ref().map(Checked::identity) == theirs;
            if !is_same && let Some(other) = Board::shared(&name, memory) {
                *known = other;
            }
            known.entries
        }
        (Some(memory), None) => match Board::shared(&name, memory) {
            Some(shared) => board.insert(shared).entries,
            None => &[],
        },
        (None, Some(known)) => {
            known.asked = Instant::now();
            known.entries
        }
        (None, None) if make => {
            let made = meeting::memory(BYTES).and_then(|memory| Board::shared(&name, memory));
            let Some(mut made) = made else {
                return board.insert(Board::alone(Some(name))).entries;
            };
            made.answer();
            if made.is_answering() {
                board.insert(made).entries
            } else {
                // Another was faster, and is asked the next time; or there are no sockets here.
                static MISSED: AtomicU32 = AtomicU32::new(0);
                if MISSED.fetch_add(1, Ordering::Relaxed) < 20 {
                    return &[];
                }
                board.insert(Board::alone(Some(name))).entries
            }
        }
        (None, None) => &[],
    }
}

/// Hands the board to others for so long, if it is for us to do so.
fn serve(patience: Duration) {
    let (socket, memory) = {
        let mut board = board();
        let Some(board) = board.as_mut().filter(|board| board.memory.is_some()) else {
            drop(board);
            std::thread::sleep(patience);
            return;
        };
        if !board.is_answering() {
            // Whoever did may have ended.
            board.answer();
        }
        let get = |checked: &Option<Checked>| checked.as_ref().and_then(Checked::get);
        (get(&board.answering), get(&board.memory))
    };
    match (socket, memory) {
        (Some(socket), Some(memory)) => {
            if meeting::wait(socket, patience) {
                // Only while it is ours: a program may have closed it, and have a socket of its own by that number.
                let board = board();
                let answering = board.as_ref().and_then(|board| board.answering.as_ref());
                if answering.and_then(Checked::get) == Some(socket) {
                    meeting::hand_over(socket, memory);
                } else {
                    drop(board);
                    std::thread::sleep(patience);
                }
            }
        }
        _ => std::thread::sleep(patience),
    }
}

fn is_alive(process: u32) -> bool {
    let Ok(process) = libc::pid_t::try_from(process) else {
        return false;
    };
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(process, 0) == 0 || *libc::__errno_location() == libc::EPERM }
}

/// This process's entry for a device, taken at its first use.
fn own_entry(device: u32) -> Option<&'static Entry> {
    let process = std::process::id();
    let entries = entries(true);
    let of_us = |entry: &&Entry| {
        entry.process.load(Ordering::Acquire) == process && entry.device.load(Ordering::Relaxed) == device
    };
    if let Some(entry) = entries.iter().find(of_us) {
        return Some(entry);
    }
    let free = entries.iter().find(|entry| {
        let taken = entry
            .process
            .compare_exchange(0, u32::MAX, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    })?;
    free.device.store(device, Ordering::Relaxed);
    free.slowdown
        .store(config().slow.device.to_bits(), Ordering::Relaxed);
    free.process.store(process, Ordering::Release);
    Some(free)
}

/// Brings this process's entries up to date.
fn publish() {
    /// One at a time; where each device's entry had come.
    static PUBLISHED: Mutex<[i64; 64]> = Mutex::new([0; 64]);
    let mut published = PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let now = now_ns();
    for device in (0..config().devices.min(64)).filter(|device| has_context(*device)) {
        let Some(entry) = own_entry(device) else { return };
        let (free, total) = memory::info(device);
        entry.used_bytes.store(total - free, Ordering::Relaxed);
        let pcie = traffic::of(device, Link::Pcie);
        let newest = now / BUCKET_NS;
        let last = &mut published[device as usize];
        let first = (*last).max(newest - BUCKETS as i64 + 1);
        for number in first..=newest {
            let bucket = &entry.buckets[number as usize % BUCKETS];
            let begin_ns = number * BUCKET_NS;
            let end_ns = (begin_ns + BUCKET_NS).min(now);
            let within = |what| busy::within(device, what, begin_ns, end_ns).cast_unsigned();
            let is_new =
                bucket.number.swap(number.cast_unsigned(), Ordering::Relaxed) != number.cast_unsigned();
            bucket
                .kernels_ns
                .store(within(busy::What::Kernels), Ordering::Relaxed);
            bucket
                .transfers_ns
                .store(within(busy::What::Transfers), Ordering::Relaxed);
            if is_new {
                bucket.pcie_sent.store(0, Ordering::Relaxed);
                bucket.pcie_received.store(0, Ordering::Relaxed);
            }
            if number == newest {
                let before = [0, 1].map(|way: usize| entry.pcie[way].load(Ordering::Relaxed));
                bucket
                    .pcie_sent
                    .fetch_add(pcie[0] - before[0].min(pcie[0]), Ordering::Relaxed);
                bucket
                    .pcie_received
                    .fetch_add(pcie[1] - before[1].min(pcie[1]), Ordering::Relaxed);
            } else {
                entry
                    .kernels_ns
                    .fetch_add(bucket.kernels_ns.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        *last = newest;
        for (place, bytes) in entry.pcie.iter().zip(pcie) {
            place.store(bytes, Ordering::Relaxed);
        }
        for (place, bytes) in entry.nvlink.iter().zip(traffic::of(device, Link::NvLink)) {
            place.store(bytes, Ordering::Relaxed);
        }
    }
}

/// Keeps this process's entries up to date from now on.
fn keep_published() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let refresh = || {
            loop {
                publish();
                serve(REFRESH);
            }
        };
        if let Err(error) = std::thread::Builder::new()
            .name("simgpu-nvml".to_owned())
            .spawn(refresh)
        {
            eprintln!("simgpu: no thread for NVML: {error}");
        }
    });
}

/// cuInit: what this process does is published, if somebody may be looking.
pub(crate) fn publish_for_others() {
    if run().is_some() {
        keep_published();
    }
}

/// What is done on a device.
pub(super) fn load(device: u32) -> Load {
    publish();
    let newest = now_ns() / BUCKET_NS;
    let mut load = Load {
        slowdown: 1.0,
        ..Load::default()
    };
    let window_ns = (WINDOW * BUCKET_NS) as f64;
    for entry in entries(false) {
        let process = entry.process.load(Ordering::Acquire);
        if process == 0 || process == u32::MAX || entry.device.load(Ordering::Relaxed) != device {
            continue;
        }
        let mut sums = [0; 4];
        for bucket in &entry.buckets {
            let number = bucket.number.load(Ordering::Relaxed).cast_signed();
            if !(newest - WINDOW + 1..=newest).contains(&number) {
                continue;
            }
            let parts = [
                &bucket.kernels_ns,
                &bucket.transfers_ns,
                &bucket.pcie_sent,
                &bucket.pcie_received,
            ];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum += part.load(Ordering::Relaxed);
            }
        }
        load.kernels = (load.kernels + sums[0] as f64 / window_ns).min(1.0);
        load.transfers = (load.transfers + sums[1] as f64 / window_ns).min(1.0);
        load.pcie_bytes_per_second[0] += sums[2];
        load.pcie_bytes_per_second[1] += sums[3];
        load.kernels_ns += entry.kernels_ns.load(Ordering::Relaxed);
        for way in 0..2 {
            load.nvlink[way] += entry.nvlink[way].load(Ordering::Relaxed);
            load.pcie[way] += entry.pcie[way].load(Ordering::Relaxed);
        }
        if is_alive(process) {
            let used_bytes = entry.used_bytes.load(Ordering::Relaxed);
            load.used_bytes += used_bytes;
            load.processes.push((process, used_bytes));
            load.slowdown = load
                .slowdown
                .max(f64::from_bits(entry.slowdown.load(Ordering::Relaxed)));
        }
    }
    load
}
