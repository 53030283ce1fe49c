//! Matrix products that are far slower than others of their size, or than the device could be.

use super::seen::{Advice, Better, Seen, longest, percent};
use crate::facts::Facts;
use crate::operators::products::ProductAnalysis;
use crate::units::three_digits;

/// Slow is what has less than this share of the rate of others of its size.
const OF_OTHERS: f64 = 0.5;
/// Of its size are those with up to so many times the work of each other,
const LIKE_WORK: f64 = 4.0;
/// and up to so many times the FLOP a byte.
const LIKE_INTENSITY: f64 = 2.0;
/// Slow without others of its size is what takes so many times what its FLOP or bytes would at the peak rate.
const OVER_THE_LIMIT: f64 = 4.0;
/// So many sizes are told of at most: those that cost most.
const MOST: usize = 3;
/// Rows and columns that one block of a GEMM kernel computes, of CUTLASS's and cuBLAS's usual ones.
const TILE: u64 = 128;
/// Fewer blocks than this leave multiprocessors of a data-center GPU without work (A100: 108, H100: 132, MI300X: 304).
const FEW_TILES: u64 = 108;

/// What a product is slower than.
enum Against<'a> {
    Other(&'a ProductAnalysis),
    Limit,
}

pub(super) fn advice(seen: &Seen<'_>) -> Vec<Advice> {
    let is_gemm = |product: &&(u32, ProductAnalysis)| product.1.m.is_some();
    let slow = seen
        .products
        .iter()
        .filter(is_gemm)
        .filter_map(|(size, product)| {
            let share = seen.share(product.time_ns)?;
            let (at_best, against) = compared(product, seen)?;
            let saved = (1.0 - at_best) * product.time_ns as f64;
            Some((saved, *size, product, share, at_best, against))
        });
    let mut slow: Vec<_> = slow.collect();
    slow.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    slow.truncate(MOST);
    let told = slow
        .into_iter()
        .filter_map(|(_, size, product, share, at_best, against)| {
            let first = longest(seen.of_size(size))?;
            let reason = reason(product);
            let rate = |product: &ProductAnalysis| {
                format!(
                    "{} TFLOP/s",
                    three_digits(product.flops_per_second.unwrap_or(0.0) / 1e12)
                )
            };
            let than = match against {
                Against::Other(other) => format!("{} reaches {}", sizes(other), rate(other)),
                Against::Limit => format!(
                    "{} bounds it at {} of what it takes",
                    if product.bound == Some("memory") {
                        "memory bandwidth"
                    } else {
                        "the peak rate"
                    },
                    percent(at_best)
                ),
            };
            Some(Advice {
                about: format!("slow product {} {}", sizes(product), product.dtype),
                facts: Facts::SlowProduct {
                    name: product.name.clone(),
                    batch: product.batch.unwrap_or(1),
                    m: product.m?,
                    n: product.n?,
                    k: product.k?,
                    dtype: product.dtype.clone(),
                    calls: product.calls,
                    time_ns: product.time_ns,
                    flops_per_second: product.flops_per_second?,
                    others_flops_per_second: match against {
                        Against::Other(other) => other.flops_per_second,
                        Against::Limit => None,
                    },
                    peak_share: product.peak_share,
                    reason: reason.map(|(word, _)| word.to_owned()),
                },
                text: format!(
                    "A matrix product is far slower than it could be: {}",
                    reason.map_or(
                        "look at the kernel that the library chose for it, and at its operands' layout",
                        |(_, text)| text
                    )
                ),
                evidence: format!(
                    "{} of {} ({}) at {} takes {} of its GPU time; {than}",
                    product.name,
                    sizes(product),
                    product.dtype,
                    rate(product),
                    percent(share)
                ),
                operations: seen
                    .of_size(size)
                    .map(|operation| {
                        let work = operation.end - operation.start;
                        Better::of(operation, (work as f64 * at_best).ceil() as i64)
                    })
                    .collect(),
                host: Vec::new(),
                is_sure: false,
                seen: ("kernel", seen.operation_name(first), first.start),
            })
        });
    told.collect()
}

/// "1 x 4096 x 11008 x 4096": batch, rows, columns, and what is summed over.
fn sizes(product: &ProductAnalysis) -> String {
    let size = |size: Option<u64>| size.unwrap_or(1).to_string();
    [product.batch, product.m, product.n, product.k]
        .map(size)
        .join(" x ")
}

/// The share of its time that a product would take at best, and why; `None` of one that is as fast as can be expected.
fn compared<'a>(product: &ProductAnalysis, seen: &Seen<'a>) -> Option<(f64, Against<'a>)> {
    let rate = product.flops_per_second.filter(|rate| *rate > 0.0)?;
    let a_call = |product: &ProductAnalysis| product.flops as f64 / product.calls.max(1) as f64;
    let intensity = |product: &ProductAnalysis| {
        let bytes = product.bytes.filter(|bytes| *bytes > 0)?;
        Some(product.flops as f64 / bytes as f64)
    };
    let within = |a: f64, b: f64, most: f64| a <= b * most && b <= a * most;
    let is_like = |other: &&ProductAnalysis| {
        other.m.is_some()
            && other.dtype == product.dtype
            && within(a_call(other), a_call(product), LIKE_WORK)
            && intensity(other)
                .zip(intensity(product))
                .is_some_and(|(a, b)| within(a, b, LIKE_INTENSITY))
    };
    let others = seen.products.iter().map(|(_, other)| other).filter(is_like);
    let fastest = others.max_by(|a, b| {
        let rate = |one: &ProductAnalysis| one.flops_per_second.unwrap_or(0.0);
        rate(a).total_cmp(&rate(b))
    });
    let of_other = fastest.and_then(|other| Some((rate / other.flops_per_second?, Against::Other(other))));
    let of_limit = || {
        let peaks = seen.peaks?;
        let computing = product.flops as f64 / product.peak_flops_per_second?;
        let moving = product.bytes? as f64 / peaks.bytes_per_second();
        let share = computing.max(moving) / (product.time_ns.max(1) as f64 / 1e9);
        Some((share, Against::Limit))
    };
    of_other
        .filter(|(share, _)| *share < OF_OTHERS)
        .or_else(|| of_limit().filter(|(share, _)| *share < 1.0 / OVER_THE_LIMIT))
}

/// What makes a product slow, by its size and type, and what to try.
fn reason(product: &ProductAnalysis) -> Option<(&'static str, &'static str)> {
    let ([m, n, k], batch) = ([product.m?, product.n?, product.k?], product.batch?);
    // NVIDIA, "Matrix Multiplication Background User's Guide", section 3: dimensions that are multiples of 16 bytes.
    let multiple = match product.dtype.as_str() {
        "c10::BFloat16" | "c10::Half" => 8,
        "float (TF32)" => 4,
        other if other.starts_with("c10::Float8") => 16,
        _ => 1,
    };
    if [m, n, k].iter().any(|size| size % multiple != 0) {
        return Some((
            "alignment",
            "pad its sizes to multiples of 16 bytes (8 numbers of 16 bits), which tensor cores want",
        ));
    }
    let tiles = m
        .div_ceil(TILE)
        .saturating_mul(n.div_ceil(TILE))
        .saturating_mul(batch);
    (tiles < FEW_TILES).then_some((
        "small",
        "its result is too small to give all multiprocessors work: a larger batch, or several of them in one, would",
    ))
}
