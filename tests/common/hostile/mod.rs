//! Traces that nobody's program writes and that anybody may be sent: much of one thing, at any size. What costs more than its
//! share of an import or an analysis shows when a kind is tried at a size and at four times that.

#![allow(dead_code)] // Each test file uses a part of this.

mod others;
mod traces;

use std::path::{Path, PathBuf};

use others::*;
use traces::*;

/// A kind of flood.
#[derive(Clone, Copy)]
pub struct Flood {
    pub name: &'static str,
    /// What a test asks for in one go: enough that what it costs shows beside starting the program.
    pub usual: usize,
    /// Whether it is read; otherwise it is refused in one line.
    pub is_read: bool,
    make: fn(usize, &Path) -> PathBuf,
}

impl Flood {
    /// The same kind, of which a test asks for one in so many.
    pub fn one_in(&self, parts: usize) -> Self {
        Self {
            usual: self.usual / parts,
            ..*self
        }
    }

    /// Writes so much of it into a folder; what is to be opened.
    pub fn write(&self, count: usize, folder: &Path) -> PathBuf {
        (self.make)(count, folder)
    }
}

/// The kind of that name.
pub fn flood(name: &str) -> &'static Flood {
    let found = FLOODS.iter().find(|flood| flood.name == name);
    found.unwrap_or_else(|| panic!("there is no flood of {name}"))
}

/// All kinds.
pub const FLOODS: &[Flood] = &[
    read("devices", 3_000, devices),
    read("described devices", 5_000, described_devices),
    read("devices that wait", 1_500, devices_that_wait),
    read("devices and steps", 800, devices_and_steps),
    read("streams", 8_000, streams),
    read("named streams", 10_000, named_streams),
    read("threads", 10_000, threads),
    read("processes", 10_000, processes),
    read("exported processes", 600, exported_processes),
    read("names", 20_000, names),
    read("escaped names", 50_000, escaped_names),
    read("long names at one time", 10_000, long_names_at_one_time),
    read("communicators", 6_000, communicators),
    read("collectives", 12_000, collectives),
    read("collectives of one number", 10_000, collectives_of_one_number),
    read("steps", 10_000, steps),
    read("nested ranges", 20_000, nested_ranges),
    read("overlapping", 20_000, overlapping),
    read("equal correlations", 20_000, equal_correlations),
    read("flows", 100_000, flows),
    read("counters", 20_000, counters),
    read("values of one counter", 100_000, values_of_one_counter),
    read("metadata", 100_000, metadata),
    read("categories", 20_000, categories),
    read("python functions", 100_000, python_functions),
    read("members of one event", 200_000, members_of_one_event),
    read("nesting", 500_000, nesting),
    read("one string", 10_000, one_string),
    read("files", 100, files),
    read("recorded processes", 150, recorded_processes),
    read("recorded parts", 150, recorded_parts),
    read("gzip members", 20_000, gzip_members),
    read("gzip bomb", 30, gzip_bomb),
    read("zstd bomb", 30, zstd_bomb),
    read("sqlite processes", 800, sqlite_processes),
    read("sqlite devices", 3_000, sqlite_devices),
    read("sqlite names", 5_000, sqlite_names),
    read("sqlite tables", 1_000, sqlite_tables),
    read("sqlite nested ranges", 10_000, sqlite_nested_ranges),
    Flood {
        is_read: false,
        ..read("gzip bomb of one string", 30, gzip_bomb_of_one_string)
    },
];

/// Floods that meet a limit at their usual size: refused in a line, whatever memory there is.
pub const BOMBS: &[Flood] = &[
    bomb("gzip bomb", 1_000, gzip_bomb),
    bomb("zstd bomb", 20_000, zstd_bomb),
    bomb("gzip bomb of one string", 1_000, gzip_bomb_of_one_string),
];

/// Read with a loss that says what there was no room for.
pub const TOO_MANY_NAMES: Flood = read("counters that explode", 100_000, counters_that_explode);

const fn read(name: &'static str, usual: usize, make: fn(usize, &Path) -> PathBuf) -> Flood {
    Flood {
        name,
        usual,
        is_read: true,
        make,
    }
}

const fn bomb(name: &'static str, usual: usize, make: fn(usize, &Path) -> PathBuf) -> Flood {
    Flood {
        is_read: false,
        ..read(name, usual, make)
    }
}
