//! Whose an event is, in a file that holds several processes.
//!
//! Kineto writes a file a rank. Our own export has all ranks in one: before a process's events it names the "processes"
//! that belong to it (host, GPUs, overhead), with the number of the process in the recording.

use rustc_hash::FxHashMap;

use super::args::Args;
use super::converter::Converter;
use super::event::Event;
use super::gputrace_members;
use super::repeated_row::Before;
use super::repeats::Repeats;

/// The process of a file that owns some of its events.
#[derive(Default)]
pub(crate) struct Owner {
    pub(crate) converter: Converter,
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    pub(crate) host: Option<String>,
}

/// What names may take until it is looked at what is held.
const FIRST_NAMES_BYTES: usize = 512 << 20;

/// The processes of one file.
pub(crate) struct Owners {
    /// There is always one.
    pub(crate) all: Vec<Owner>,
    /// What the events are like, as long as the first process owns them all.
    repeats: Repeats,
    by_number: FxHashMap<u64, usize>,
    /// By the text of a process id, the owner of its events.
    by_pid: FxHashMap<Vec<u8>, usize>,
    /// Events of process ids that no name came before, in a file that has such names.
    pub(crate) unowned: u64,
    /// The first name came after events.
    pub(crate) late: bool,
    /// What was looked up last.
    last: (Vec<u8>, Option<usize>),
}

impl Default for Owners {
    fn default() -> Self {
        let mut first = Owner::default();
        first.converter.names.interner.limit(FIRST_NAMES_BYTES);
        Self {
            all: vec![first],
            repeats: Repeats::default(),
            by_number: FxHashMap::default(),
            by_pid: FxHashMap::default(),
            unowned: 0,
            late: false,
            last: (Vec::new(), None),
        }
    }
}

impl Owners {
    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.by_pid.keys().map(Vec::len).sum::<usize>();
        let slots = self.by_pid.capacity() * size_of::<(Vec<u8>, usize)>();
        let converters = self.all.iter().map(|owner| owner.converter.bytes());
        self.repeats.bytes()
            + texts
            + slots
            + converters.sum::<usize>()
            + self.all.capacity() * size_of::<Owner>()
    }

    /// Makes room for rows: so many times as many more as there are, as far as that is not too much. A table that grows bit by bit
    /// is copied again and again, and leaves holes in memory.
    pub(crate) fn reserve(&mut self, times: f64) {
        /// What is reserved and then not used is only given back at the end.
        const MOST_BYTES: f64 = (256 << 20) as f64;
        /// The rest of a file has seldom exactly as many.
        const MORE: f64 = 1.02;
        let rows = self.all.iter().map(|owner| owner.converter.row_bytes());
        let held = rows.sum::<usize>();
        let times = times.min(MOST_BYTES / held.max(1) as f64) * MORE;
        for owner in &mut self.all {
            let tables = &mut owner.converter.tables;
            for (table, rows) in tables.row_counts() {
                tables.reserve(table, (rows as f64 * times) as usize);
            }
        }
    }

    /// Lets the names of each process take so many bytes more.
    pub(crate) fn limit_names(&mut self, room: usize) {
        for owner in &mut self.all {
            owner.converter.names.interner.limit(room);
        }
    }

    /// The converter of the process that owns what is of no process.
    pub(crate) fn first(&mut self) -> &mut Converter {
        &mut self.all[0].converter
    }

    /// Whether events are compared with earlier ones: those of our own exports are read by other rules.
    #[inline]
    fn compares(&self) -> bool {
        self.repeats.is_on() && self.by_pid.is_empty() && self.all[0].converter.own.is_none()
    }

    #[cfg(test)]
    pub(super) fn repeats_are_on(&self) -> bool {
        self.repeats.is_on()
    }

    /// Takes in the event that the bytes begin with, where it is one that is like an earlier one; its length.
    #[inline]
    pub(crate) fn repeated(&mut self, bytes: &[u8]) -> Option<usize> {
        if !self.compares() {
            return None;
        }
        self.repeats.take(bytes, &mut self.all[0].converter)
    }

    /// Takes one event in, which has this text.
    #[inline]
    pub(crate) fn event(&mut self, event: &Event<'_>, text: &[u8]) {
        if event.phase == b'M' {
            self.metadata(event);
        }
        let owner = if self.by_pid.is_empty() {
            0
        } else {
            self.owner(event)
        };
        let compares = self.compares();
        let converter = &mut self.all[owner].converter;
        if compares {
            let before = Before::of(converter);
            converter.event(event);
            self.repeats.learn(event, text, &before, converter);
        } else {
            converter.event(event);
        }
    }

    fn owner(&mut self, event: &Event<'_>) -> usize {
        let pid = event.pid;
        if self.last.0 != pid {
            self.last = (pid.to_vec(), self.by_pid.get(pid).copied());
        }
        // Arrows were not read up to their process.
        self.unowned += u64::from(self.last.1.is_none() && event.phase == b'X');
        self.last.1.unwrap_or(0)
    }

    /// Learns from a "process_name" of our own export whose a process id is.
    #[cold]
    fn metadata(&mut self, event: &Event<'_>) {
        /// More processes are in no export.
        const MOST: usize = 1 << 12;
        match event.name.map(|name| name.bytes) {
            Some(b"process_name") => {}
            Some(b"gputrace") => {
                if let Some(&owner) = self.by_pid.get(event.pid) {
                    gputrace_members::describe(&mut self.all[owner].converter, event);
                }
                return;
            }
            _ => return,
        }
        let args = Args::read(event.args);
        let Some(number) = args.process.and_then(|number| u64::try_from(number).ok()) else {
            return;
        };
        self.late |= self.by_number.is_empty() && self.all[0].converter.has_rows();
        let small = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
        let owner = match self.by_number.get(&number) {
            Some(&owner) => owner,
            None => {
                // The first process owns what came before any name.
                if !self.by_number.is_empty() {
                    if self.all.len() >= MOST {
                        return;
                    }
                    let mut new = Owner::default();
                    new.converter.names.interner.limit(FIRST_NAMES_BYTES);
                    self.all.push(new);
                }
                let place = self.all.len() - 1;
                self.by_number.insert(number, place);
                let owner = &mut self.all[place];
                owner.rank = small(args.rank);
                owner.world_size = small(args.world_size);
                owner.host = args.host.map(|host| owner.converter.names.text(host));
                place
            }
        };
        if let (Some(own), Some(args)) = (&mut self.all[owner].converter.own, event.args)
            && let Some(device) = gputrace_members::device(args)
        {
            own.add_device(event.pid, device);
        }
        self.by_pid.insert(event.pid.to_vec(), owner);
        self.last = (event.pid.to_vec(), Some(owner));
    }
}
