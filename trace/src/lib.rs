//! What a gputrace recording is: the event model, the clock, the files.
//!
//! A recording is a folder with a `manifest.json` and one folder a process, each with a `process.json` and one
//! Arrow IPC stream a table. [`writer::ProcessWriter`] writes, [`recording::Recording`] reads, [`follow::Follower`]
//! reads what still grows. This crate knows no CUDA and no web.

pub mod access;
pub mod alignment;
pub mod beneath;
pub mod body;
pub mod clock_reading;
pub mod clock_steps;
pub mod collective_names;
pub mod column;
pub mod columns;
pub mod control;
pub mod copy_words;
pub mod daemon;
pub mod derived;
pub mod follow;
mod frame;
pub mod hang;
pub mod json_file;
pub mod manifest;
pub mod measures;
mod moved_stamps;
pub mod names;
pub mod near_sort;
pub mod occupancy;
pub mod options;
pub mod packed;
pub mod parallel;
pub mod place;
mod private_file;
mod process;
pub mod pytorch;
pub mod recording;
pub mod redact;
pub mod seal;
pub mod sections;
pub mod segments;
pub mod step_detection;
pub mod step_names;
pub mod stream;
pub mod synchronization_kind;
pub mod table;
pub mod table_bytes;
mod table_writer;
pub mod tables;
pub mod time;
pub mod topology;
pub mod writer;

pub use derived::Derived;
pub use names::{Interner, NameId};
pub use recording::{Loss, Process, Recording};
pub use table::Table;
pub use time::{DurationNs, TimeNs, now};
