//! The processes of an export, found by the global ids of their rows.

use gputrace_trace::Table;
use gputrace_trace::tables::Tables;
use rustc_hash::{FxHashMap, FxHashSet};

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
    /// Process ids that were met, to find those that two have.
    pids: FxHashSet<u32>,
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
        if !self.pids.insert(found.pid()) {
            found.folder = format!("pid {} on {:#x}", found.pid(), (key >> 24) & 0xffff);
        }
        let place = self.list.len();
        self.list.push(found);
        self.places.insert(key, place);
        place
    }

    /// The place of a process by its process id, as tables about the machine name it; by virtual machine where two
    /// have that process id.
    pub(super) fn by_pid(&self, pid: i64, vm: Option<i64>) -> Option<usize> {
        let same = |found: &Found| i64::from(found.pid()) == pid;
        let mut places = (0..self.list.len()).filter(|&place| same(&self.list[place]));
        let first = places.next()?;
        if places.next().is_none() {
            return Some(first);
        }
        let vm = vm?;
        (0..self.list.len()).find(|&place| {
            let found = &self.list[place];
            same(found) && (found.key >> 24) & 0xff == vm & 0xff
        })
    }
}
