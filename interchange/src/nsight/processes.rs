//! The processes of an export, found by the global ids of their rows.

use gputrace_trace::Table;
use gputrace_trace::tables::Tables;
use rustc_hash::FxHashMap;

/// A process that used CUDA.
#[derive(Debug)]
pub(super) struct Found {
    /// Its global id without the thread: host and virtual machine in the upper bits, process id in the lower 24.
    pub(super) key: i64,
    pub(super) folder: String,
    pub(super) tables: Tables,
}

impl Found {
    pub(super) fn pid(&self) -> u32 {
        (self.key & 0xff_ffff) as u32
    }

    /// Whether anything ran on a device for it.
    pub(super) fn has_device_work(&self) -> bool {
        let tables = &self.tables;
        !(tables.kernels.is_empty() && tables.copies.is_empty() && tables.memsets.is_empty())
    }
}

/// All processes that used CUDA, in the order in which they were met.
#[derive(Debug, Default)]
pub(super) struct Processes {
    list: Vec<Found>,
    places: FxHashMap<i64, usize>,
    /// By process id: the places of those that have it.
    of_pid: FxHashMap<u32, Vec<usize>>,
    /// The last one asked for: rows of a process follow each other.
    last: Option<(i64, usize)>,
}

impl Processes {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn list(&self) -> &[Found] {
        &self.list
    }

    pub(super) fn list_mut(&mut self) -> &mut [Found] {
        &mut self.list
    }

    pub(super) fn into_list(self) -> Vec<Found> {
        self.list
    }

    fn place(&mut self, key: i64) -> Option<usize> {
        if let Some((last, place)) = self.last
            && last == key
        {
            return Some(place);
        }
        let place = *self.places.get(&key)?;
        self.last = Some((key, place));
        Some(place)
    }

    /// The tables of the process of a global id, new if it was not met before.
    pub(super) fn of(&mut self, global: i64) -> &mut Tables {
        let key = global >> 24;
        let place = match self.place(key) {
            Some(place) => place,
            None => self.add(key),
        };
        &mut self.list[place].tables
    }

    /// The place of the process of a global id, if it used CUDA.
    pub(super) fn known(&mut self, global: i64) -> Option<usize> {
        self.place(global >> 24)
    }

    fn add(&mut self, key: i64) -> usize {
        let mut found = Found {
            key,
            folder: String::new(),
            tables: Tables::default(),
        };
        found.folder = format!("pid {}", found.pid());
        // Of several hosts or containers in one file, two can have the same process id.
        let place = self.list.len();
        let of_pid = self.of_pid.entry(found.pid()).or_default();
        if !of_pid.is_empty() {
            found.folder = format!("pid {} on {:#x}", found.pid(), (key >> 24) & 0xffff);
        }
        of_pid.push(place);
        self.list.push(found);
        self.places.insert(key, place);
        place
    }

    /// The place of a process by its process id, as tables about the machine name it; by virtual machine where two
    /// have that process id.
    pub(super) fn by_pid(&self, pid: i64, vm: Option<i64>) -> Option<usize> {
        let places = self.of_pid.get(&u32::try_from(pid).ok()?)?;
        if let [only] = places.as_slice() {
            return Some(*only);
        }
        let vm = vm?;
        let is_on = |place: &&usize| (self.list[**place].key >> 24) & 0xff == vm & 0xff;
        places.iter().find(is_on).copied()
    }

    /// Bytes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        /// What is found of a process beside its tables.
        const EACH: usize = size_of::<Found>() + 128;
        let tables = self.list.iter().map(|found| found.tables.bytes());
        tables.sum::<usize>() + self.list.len() * EACH
    }
}
