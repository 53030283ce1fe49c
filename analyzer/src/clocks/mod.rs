//! The clocks of several hosts, from the ends of what their ranks did together.
//!
//! A collective that no rank can leave before the last has arrived ends on all ranks within microseconds, so that each one
//! shows how their hosts' clocks stand. [`estimate`] knows no recording: what it gets are [`Meeting`]s, and what it gives are
//! courses of clocks with their errors. `docs/clocks.md` has the method, and what it was held against.

mod bias;
mod blend;
mod contradictions;
mod estimate;
mod kinds;
mod lasting;
mod normal;
mod observed;
mod pair;
mod sample;
mod smooth;
mod steps;

pub use estimate::{Estimated, estimate};
pub use observed::{Meeting, Member};
