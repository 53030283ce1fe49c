//! What of a run other runs are compared with: its steps, and what each of them is made of.
//!
//! A few hundred series of one number a step, so that it is kilobytes where a recording is gigabytes. `gputrace diff` and
//! `gputrace check` are computed from two of these alone, whether they were made just now or saved months ago.

mod collect;
mod model;
mod per_step;

pub use collect::baseline;
pub use model::{Baseline, BaselineDevice, By, Durations, Placed, SCHEMA, Series};
