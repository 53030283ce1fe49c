//! Matrix products in float32 on a device that has TF32.

use super::seen::{Advice, Better, Seen, longest, percent, sum};
use crate::facts::Facts;

/// A product at more than this share of the peak of plain float32 has used something faster, whatever its kernel is called.
const SURELY_TF32: f64 = 0.95;

pub(super) fn advice(seen: &Seen<'_>) -> Option<Advice> {
    let peaks = seen.peaks?;
    let (plain, tf32) = (
        peaks.flops_per_second("float", false)?,
        peaks.flops_per_second("float", true)?,
    );
    let mut operations = Vec::new();
    let (mut calls, mut time_ns) = (0u64, 0i64);
    let mut most = None;
    for (size, product) in seen.products {
        let is_slow = product
            .flops_per_second
            .is_some_and(|rate| rate < SURELY_TF32 * plain);
        if product.dtype != "float" || product.m.is_none() || !is_slow {
            continue;
        }
        let moving = product
            .bytes
            .map_or(0.0, |bytes| bytes as f64 / peaks.bytes_per_second());
        let least = (product.flops as f64 / tf32).max(moving) * 1e9;
        let share = (least / product.time_ns.max(1) as f64).min(1.0);
        operations.extend(seen.of_size(*size).map(|operation| {
            let work = operation.end - operation.start;
            Better::of(operation, (work as f64 * share).ceil() as i64)
        }));
        calls += product.calls;
        time_ns = sum([time_ns, product.time_ns].into_iter());
        // The first took longest.
        most = most.or_else(|| longest(seen.of_size(*size)));
    }
    let share = seen.share(time_ns)?;
    let most = most?;
    Some(Advice {
        about: "TF32 is off".to_owned(),
        facts: Facts::Tf32Off { calls, time_ns },
        text: "Matrix products in float32 don't use TF32: torch.set_float32_matmul_precision(\"high\") lets them, at 10 bits of mantissa; \
               or use bf16"
            .to_owned(),
        evidence: format!(
            "{calls} of them take {} of its GPU time; TF32 can do {:.0} times as many FLOP a second",
            percent(share),
            tf32 / plain
        ),
        operations,
        host: Vec::new(),
        is_sure: false,
        seen: ("kernel", seen.operation_name(most), most.start),
    })
}
