//! A first look at trace files of others: those that have been read, while others still are.
//!
//! A rank's rows are made where its file was read, of the tables as they are then. The run is put together of all files
//! afterwards, and has a timeline of its own.

use std::sync::{Mutex, PoisonError};

use gputrace_trace::manifest::Manifest;
use gputrace_trace::packed::PackedTables;
use gputrace_trace::{Interner, Process, Recording};
use rustc_hash::FxHashMap;

use super::early::Early;
use super::gather::{self, Group};
use super::names;

/// A process that has been read: what is known of it but for its large tables, and its rows.
struct Arrived {
    outline: Process,
    groups: Vec<Group>,
}

#[derive(Default)]
struct All {
    names: Interner,
    processes: Vec<Arrived>,
    /// Colours of ranges by name.
    colors: FxHashMap<u32, u32>,
}

/// The processes that have been read so far.
#[derive(Default)]
pub struct Arriving(Mutex<All>);

impl Arriving {
    fn all(&self) -> std::sync::MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many these are.
    pub fn len(&self) -> usize {
        self.all().processes.len()
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes in a process, whose names are `names`.
    pub fn take(&self, process: &Process, names: &Interner) {
        let mut groups = gather::groups(std::slice::from_ref(process), names);
        let mut tables = PackedTables::others(&process.tables);
        let mut all = self.all();
        let numbers = all.names.absorb(names);
        tables.renumber(&numbers);
        for lane in groups.iter_mut().flat_map(|group| &mut group.lanes) {
            // Nobody else has them yet.
            if let Some(lane) = std::sync::Arc::get_mut(lane) {
                lane.rename_all(|name| names::renumbered(name, &numbers));
            }
        }
        let markers = &process.tables.markers;
        for (name, color) in markers.name.iter().zip(&markers.color) {
            if let (Some(name), Some(color)) = (numbers.get(name.number() as usize), color) {
                all.colors.entry(name.number()).or_insert(*color);
            }
        }
        all.processes.push(Arrived {
            outline: Process {
                folder: process.folder.clone(),
                header: process.header.clone(),
                tables,
            },
            groups,
        });
    }

    /// Lets go of them: timelines that were made have what they show.
    pub fn clear(&self) {
        *self.all() = All::default();
    }

    /// What there is to show of them.
    pub(super) fn so_far(&self) -> Early {
        let mut all = self.all();
        let names = all.names.share();
        let mut order: Vec<&Arrived> = all.processes.iter().collect();
        order.sort_by_key(|arrived| {
            let header = &arrived.outline.header;
            (header.rank.unwrap_or(u32::MAX), &arrived.outline.folder)
        });
        let mut outline = Recording {
            manifest: Manifest {
                device: "imported".to_owned(),
                ..Manifest::new()
            },
            names,
            ..Recording::default()
        };
        let mut groups = Vec::new();
        for (place, arrived) in (0u32..).zip(order) {
            outline.processes.push(arrived.outline.clone());
            groups.extend(arrived.groups.iter().map(|group| Group {
                process: place,
                ..group.clone()
            }));
        }
        groups.sort_by_key(|group| (group.process, group.place));
        Early {
            rows: vec![Default::default(); outline.processes.len()],
            outline,
            groups,
            colors: all.colors.clone(),
        }
    }
}
