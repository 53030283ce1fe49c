//! Forward passes that are done once more in the backward pass, though there is memory left.

use super::seen::{Advice, Better, Seen, longest, percent, sum};
use crate::facts::Facts;
use crate::operators::launched_by::Pass;
use crate::units::{bytes, duration};

/// Who needs this share of the device's memory or more needs what recomputation saves.
const NEEDS_MEMORY: f64 = 0.7;

pub(super) fn advice(seen: &Seen<'_>) -> Option<Advice> {
    let needs_memory = |(most, all): (u64, u64)| most as f64 >= NEEDS_MEMORY * all as f64;
    if seen.memory.is_some_and(needs_memory) {
        return None;
    }
    let again = seen.launched.iter().filter(|one| one.pass == Pass::Recomputed);
    let operations: Vec<_> = again.map(|one| seen.operation(one)).collect();
    let time_ns = sum(operations.iter().map(|operation| operation.end - operation.start));
    let share = seen.share(time_ns)?;
    let first = longest(operations.iter().copied())?;
    let memory = match seen.memory {
        Some((most, all)) => format!("it held {} of {} at most", bytes(most), bytes(all)),
        None => "how much memory was left is not recorded".to_owned(),
    };
    Some(Advice {
        about: "recomputation".to_owned(),
        facts: Facts::Recomputation {
            operations: operations.len(),
            time_ns,
            peak_memory_bytes: seen.memory.map(|(most, _)| most),
            memory_bytes: seen.memory.map(|(_, all)| all),
        },
        text: "The forward pass is computed again in the backward pass: where the memory suffices, checkpoint fewer modules".to_owned(),
        evidence: format!(
            "{} operations that the forward pass had done take {}, {} of its GPU time; {memory}",
            operations.len(),
            duration(time_ns),
            percent(share)
        ),
        seen: ("kernel", seen.operation_name(first), first.start),
        operations: operations.into_iter().map(|operation| Better::of(operation, 0)).collect(),
        host: Vec::new(),
        is_sure: true,
    })
}
