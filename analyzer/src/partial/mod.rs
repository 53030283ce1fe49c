//! What is known of some processes of a job, to be put together with what is known of the others.
//!
//! A [`Part`] is what is known of one process alone. A [`Partial`] holds any number of them, of one recording or of several that are
//! one run, and what is said of these as wholes. Two of them become one without anything being computed, so it does not matter in
//! which order and grouping that is done; [`Partial::analysis`] sorts what it has, and gives what [`crate::analyze`] does of the same
//! recording.

mod clocks;
mod file;
mod glance;
mod join;
mod merge;
mod parts;

pub use clocks::{CLOCK_TABLES, ClockOf, ClockSide, clocks_may_differ, compare_clocks};
pub use file::{FORMAT, VERSION};
pub use glance::{Glance, GlancedBase, GlancedBases, GlancedPart, others_of};
pub use merge::merge;
pub use parts::{Base, Part, Partial, Wrong};
