//! What operators could do better: which operations and host time would shrink, and the finding's text.
//!
//! `graph::causes::advised` replays all ranks to say what that saves; without a replay it is at most the time of those operations.

mod casts;
mod chains;
mod launch_bound;
mod optimizer;
mod recomputed;
mod seen;
mod slow_products;
mod tf32;

pub(super) use seen::Seen;
pub(crate) use seen::{Advice, Better};

/// All that a device's operators could do better.
pub(super) fn advice(seen: &Seen<'_>) -> Vec<Advice> {
    let mut all = slow_products::advice(seen);
    let others = [
        tf32::advice,
        recomputed::advice,
        casts::advice,
        chains::advice,
        optimizer::advice,
        launch_bound::advice,
    ];
    all.extend(others.iter().filter_map(|advice| advice(seen)));
    all
}
