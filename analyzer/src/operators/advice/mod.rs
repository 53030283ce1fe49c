//! What operators could do better: the work that there would be less of then, and the words for it.
//!
//! What it saves is found by a replay of all ranks (`graph::causes::advised`), or, without one, is at most the time of that work.

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
