//! The board: what each process does on each device, where NVML in any process of the run can read it.
//!
//! With SIMGPU_RUN it is a file of that name in /dev/shm, so that a monitor sees what the ranks do; without, memory of
//! this process alone. A process has an entry for each device that it has a context on and fills it twenty times a
//! second. Busy time is the union of its operations; where several processes share a device, theirs are added, up to all
//! of the time. The file goes when nobody who has an entry lives any more.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

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

fn path() -> Option<PathBuf> {
    let run = std::env::var("SIMGPU_RUN").ok().filter(|run| !run.is_empty())?;
    let name: String = run
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    Some(Path::new("/dev/shm").join(format!("simgpu-{name}")))
}

/// Entries in a file, or in memory of this process alone.
fn map(file: Option<&File>) -> Option<&'static [Entry]> {
    let bytes = size_of::<Entry>() * ENTRIES;
    let (sharing, file) = match file {
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        Some(file) => {
            // A file that is as long already is left as it is.
            file.set_len(bytes as u64).ok()?;
            (libc::MAP_SHARED, file.as_raw_fd())
        }
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; it stays when the file is closed.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, sharing, file, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: as many bytes as the entries take, zero at first, never unmapped; entries are atomics throughout, so that
    // other processes may change them at any time.
    Some(unsafe { std::slice::from_raw_parts(address.cast::<Entry>(), ENTRIES) })
}

/// The run's entries; `make`: whether there is to be a file if there is none yet.
///
/// A program that monitors may learn of the run after it has asked for something, and whoever leaves last takes the file
/// away before others come: then they are others than before.
fn entries(make: bool) -> &'static [Entry] {
    /// Path and number of the file that is mapped.
    type Board = (Option<(PathBuf, u64)>, &'static [Entry]);
    static BOARD: Mutex<Option<Board>> = Mutex::new(None);
    let mut board = BOARD.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(path) = path() else {
        if !matches!(&*board, Some((None, _))) {
            *board = Some((None, map(None).unwrap_or(&[])));
        }
        return board.as_ref().map_or(&[], |(_, entries)| entries);
    };
    let now = std::fs::metadata(&path).map(|metadata| metadata.ino());
    if let (Ok(now), Some((Some((known, number)), entries))) = (&now, &*board)
        && *known == path
        && number == now
    {
        return entries;
    }
    let mut options = File::options();
    options.read(true).write(true).create(make).mode(0o600);
    let opened = options.open(&path).ok().and_then(|file| {
        let number = file.metadata().ok()?.ino();
        Some((number, map(Some(&file))?))
    });
    let Some((number, entries)) = opened else {
        return &[];
    };
    *board = Some((Some((path, number)), entries));
    entries
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
        .store(config().slowdown.to_bits(), Ordering::Relaxed);
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
                std::thread::sleep(REFRESH);
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
    if path().is_some() {
        keep_published();
    }
}

/// The end of this process, or of its NVML: the last one takes the file away.
pub(crate) fn leave() {
    let Some(path) = path() else { return };
    let own = std::process::id();
    let others = entries(false)
        .iter()
        .map(|entry| entry.process.load(Ordering::Acquire));
    let any = others
        .filter(|process| *process != 0 && *process != own)
        .any(is_alive);
    if !any {
        // Gone already is as good.
        drop(std::fs::remove_file(path));
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
