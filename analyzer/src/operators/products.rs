//! Operators whose work is known: how fast they went, and how fast that GPU can go.

use std::cmp::Reverse;

use gputrace_trace::tables::Operators;
use gputrace_trace::{Interner, NameId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::branches::Branches;
use super::launched_by::LaunchedBy;
use super::nesting::NONE;
use super::peaks::{Peaks, SOURCE};
use super::shape::{Shape, shape};
use super::work::{Work, work};
use crate::operation_name::Name;
use crate::steps::StepAnalysis;
use crate::word::Word;

/// Matrix products, attention or convolutions of one size. Of nested operators only the outermost with a FLOP model counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductAnalysis {
    /// The operator.
    pub name: String,
    /// Matrix products per call; null for attention and convolutions, as are `m`, `n` and `k`.
    pub batch: Option<u64>,
    /// Rows of the result.
    pub m: Option<u64>,
    /// Its columns.
    pub n: Option<u64>,
    /// The inner dimension, which is summed over.
    pub k: Option<u64>,
    /// The sizes of the inputs of attention and convolutions.
    pub input_dims: Option<String>,
    /// The type of the first operand, as PyTorch calls it.
    pub dtype: String,
    /// How often it ran.
    pub calls: u64,
    /// Floating-point operations, of all of them.
    pub flops: u64,
    /// Bytes of its tensors, each once, of all of them; null where a type's size is not known.
    pub bytes: Option<u64>,
    /// Sum of durations of what it launched.
    pub time_ns: i64,
    /// `flops` over that.
    pub flops_per_second: Option<f64>,
    /// `bytes` over that.
    pub bytes_per_second: Option<f64>,
    /// What the device can do at most with this type, FLOP a second; null where its data sheet is not known.
    pub peak_flops_per_second: Option<f64>,
    /// `flops_per_second` over that.
    pub peak_share: Option<f64>,
    /// "compute" or "memory": which would take longer at its peak rate (roofline).
    #[serde(deserialize_with = "crate::word::known_if_any")]
    pub bound: Option<Word>,
}

impl ProductAnalysis {
    /// Adds another device's; the peak stays where both have the same.
    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.flops = self.flops.saturating_add(other.flops);
        self.bytes = self
            .bytes
            .zip(other.bytes)
            .map(|(sum, more)| sum.saturating_add(more));
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.flops_per_second = a_second(self.flops, self.time_ns);
        self.bytes_per_second = self.bytes.and_then(|bytes| a_second(bytes, self.time_ns));
        let peaks = (self.peak_flops_per_second, other.peak_flops_per_second);
        self.peak_flops_per_second = peaks.0.filter(|_| peaks.0 == peaks.1);
        self.bound = self.bound.filter(|_| peaks.0 == peaks.1);
        let rates = self.flops_per_second.zip(self.peak_flops_per_second);
        self.peak_share = rates.map(|(rate, peak)| rate / peak);
    }
}

/// A rate per second; `None` for no time.
fn a_second(amount: u64, time_ns: i64) -> Option<f64> {
    (time_ns > 0).then(|| amount as f64 / (time_ns as f64 / 1e9))
}

/// What a device can do at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// FLOP a second, without sparsity.
    pub flops_per_second: f64,
    /// With this type, as PyTorch calls it; "float (TF32)" on TF32 matrix units.
    pub dtype: String,
    /// Bytes a second from and to its memory.
    pub bytes_per_second: f64,
    /// Where the numbers are from.
    #[serde(deserialize_with = "crate::word::known")]
    pub source: Word,
}

/// Kernels that work on TF32 matrix units, by what cuBLAS and CUTLASS call them.
#[derive(Default)]
pub(super) struct Tf32Names(FxHashMap<NameId, bool>);

impl Tf32Names {
    pub(super) fn is(&mut self, name: Name, names: &Interner) -> bool {
        let Name::Kernel(name) = name else {
            return false;
        };
        *self.0.entry(name).or_insert_with(|| {
            let name = names.get(name);
            ["tf32", "_s1688", "_s16816gemm_tf", "xmma_gemm_f32f32_tf"]
                .iter()
                .any(|word| name.contains(word))
        })
    }
}

/// What some operators did, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    calls: u64,
    pub(super) flops: u64,
    bytes: Option<u64>,
    time_ns: i64,
    tf32_ns: i64,
}

impl Done {
    fn add(&mut self, work: &Work, time_ns: i64, tf32_ns: i64) {
        self.bytes = match self.calls {
            0 => work.bytes,
            _ => self
                .bytes
                .zip(work.bytes)
                .map(|(sum, more)| sum.saturating_add(more)),
        };
        self.calls += 1;
        self.flops = self.flops.saturating_add(work.flops);
        self.time_ns = self.time_ns.saturating_add(time_ns);
        self.tf32_ns = self.tf32_ns.saturating_add(tf32_ns);
    }

    pub(super) fn flops_per_second(&self) -> Option<f64> {
        a_second(self.flops, self.time_ns)
    }
}

/// Operators of one size.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Size {
    name: String,
    gemm: Option<[u64; 4]>,
    input_dims: Option<String>,
    dtype: String,
}

/// What operators of a device did whose work is known.
#[derive(Default)]
pub(super) struct Worked {
    /// By shape, of those that are in no other whose work is known.
    pub(super) by_shape: FxHashMap<Shape, Done>,
    /// By size: its number, and what was done.
    by_size: FxHashMap<Size, (u32, Done)>,
    /// By number of a branch: the size of the work that it is a part of, by its number; or [`NONE`].
    sizes: Vec<u32>,
    /// By when an operator began on the host.
    in_time: Vec<AtOnce>,
    /// Sum of durations of what they launched.
    time_ns: i64,
}

/// What one operator had to do.
#[derive(Clone, Copy)]
struct AtOnce {
    start: i64,
    flops: u64,
    /// The forward pass had done it already.
    recomputed: bool,
}

impl Worked {
    pub(super) fn new(
        by: &LaunchedBy<'_>,
        branches: &Branches<2>,
        operators: &Operators,
        names: &Interner,
    ) -> Self {
        let nesting = &by.operators;
        let mut all = Self::default();
        let mut known: FxHashMap<(Shape, Option<NameId>), Option<Work>> = FxHashMap::default();
        all.sizes.reserve(branches.places.len());
        for (number, place) in branches.places.iter().enumerate() {
            let row = nesting.row(*place);
            let around = branches.parent(number).map_or(NONE, |parent| all.sizes[parent]);
            if around != NONE {
                all.sizes.push(around);
                continue;
            }
            let (shape, values) = (shape(operators, row), operators.input_values[row]);
            let found = known.entry((shape, values)).or_insert_with(|| {
                let (name, dims, types) = shape;
                let text = |name: Option<NameId>| name.map(|name| names.get(name));
                work(names.get(name), text(dims)?, text(types), text(values))
            });
            let Some(work) = found else {
                all.sizes.push(NONE);
                continue;
            };
            let [other, tf32] = branches.subtree[number];
            let (time_ns, tf32_ns) = (other.time_ns.saturating_add(tf32.time_ns), tf32.time_ns);
            all.time_ns = all.time_ns.saturating_add(time_ns);
            all.in_time.push(AtOnce {
                start: nesting.start(*place),
                flops: work.flops,
                recomputed: by.is_recomputed(*place, operators),
            });
            let (name, dims, _) = shape;
            let of_shape = all.by_shape.entry(shape).or_default();
            of_shape.add(work, time_ns, tf32_ns);
            let size = Size {
                name: names.get(name).to_owned(),
                gemm: work.gemm,
                input_dims: dims
                    .filter(|_| work.gemm.is_none())
                    .map(|dims| names.get(dims).to_owned()),
                dtype: work.dtype.clone(),
            };
            let next = u32::try_from(all.by_size.len()).unwrap_or(NONE);
            let (number, done) = all.by_size.entry(size).or_insert((next, Done::default()));
            done.add(work, time_ns, tf32_ns);
            all.sizes.push(*number);
        }
        all.in_time.sort_by_key(|one| one.start);
        all
    }

    /// Fills in the FLOP of the operators that the host began in each step, and MFU and HFU.
    pub(super) fn say(&self, steps: &mut [StepAnalysis], peak: Option<&Peak>) {
        if self.in_time.is_empty() {
            return;
        }
        for step in steps {
            let (start, end) = match (step.host_start_ns, step.host_duration_ns) {
                (Some(start), Some(duration)) => (start.0, start.0.saturating_add(duration)),
                _ => (step.start_ns.0, step.end_ns.0),
            };
            let first = self.in_time.partition_point(|one| one.start < start);
            let after = self.in_time.partition_point(|one| one.start < end);
            let sum = |all: bool| {
                let counted = self.in_time[first..after.max(first)].iter();
                let counted = counted.filter(|one| all || !one.recomputed);
                counted.fold(0u64, |sum, one| sum.saturating_add(one.flops))
            };
            let (flops, once) = (sum(true), sum(false));
            let utilization = |flops: u64| {
                let rate = a_second(flops, step.duration_ns)?;
                Some(rate / peak?.flops_per_second)
            };
            step.flops = Some(flops);
            step.mfu = utilization(once);
            step.hfu = utilization(flops);
        }
    }

    /// Sum of durations of what operators launched whose work is known.
    pub(super) fn time_ns(&self) -> i64 {
        self.time_ns
    }

    /// The number of the size of the work that a branch is a part of.
    pub(super) fn size_of(&self, branch: usize) -> Option<u32> {
        self.sizes.get(branch).copied().filter(|size| *size != NONE)
    }

    /// By size, those first that took longest, with the number of each.
    pub(super) fn analyses(&self, peaks: Option<Peaks>) -> Vec<(u32, ProductAnalysis)> {
        let mut sizes: Vec<(&Size, &(u32, Done))> = self.by_size.iter().collect();
        sizes.sort_by_key(|(size, (_, done))| (Reverse(done.time_ns), *size));
        sizes
            .into_iter()
            .map(|(size, (number, done))| {
                let part = |place: usize| size.gemm.map(|gemm| gemm[place]);
                let peak = peaks.and_then(|peaks| peaks.flops_per_second(&size.dtype, done.is_tf32()));
                let flops_per_second = done.flops_per_second();
                let bound = peak.zip(peaks).zip(done.bytes).map(|((peak, peaks), bytes)| {
                    let (computing, moving) =
                        (done.flops as f64 / peak, bytes as f64 / peaks.bytes_per_second());
                    if computing >= moving { "compute" } else { "memory" }
                });
                let product = ProductAnalysis {
                    name: size.name.clone(),
                    batch: part(0),
                    m: part(1),
                    n: part(2),
                    k: part(3),
                    input_dims: size.input_dims.clone(),
                    dtype: match done.is_tf32() && size.dtype == "float" {
                        true => TF32.to_owned(),
                        false => size.dtype.clone(),
                    },
                    calls: done.calls,
                    flops: done.flops,
                    bytes: done.bytes,
                    time_ns: done.time_ns,
                    flops_per_second,
                    bytes_per_second: done.bytes.and_then(|bytes| a_second(bytes, done.time_ns)),
                    peak_flops_per_second: peak,
                    peak_share: flops_per_second.zip(peak).map(|(rate, peak)| rate / peak),
                    bound,
                };
                (*number, product)
            })
            .collect()
    }
}

/// How `float` is called where it ran on TF32 matrix units.
const TF32: &str = "float (TF32)";

impl Done {
    /// Whether most of it ran on TF32 matrix units.
    fn is_tf32(&self) -> bool {
        self.tf32_ns > self.time_ns / 2
    }
}

/// The peak of the type that most of the work is in.
pub(super) fn peak(products: &[(u32, ProductAnalysis)], peaks: Option<Peaks>) -> Option<Peak> {
    let products = || products.iter().map(|(_, product)| product);
    let mut flops: FxHashMap<&str, u64> = FxHashMap::default();
    for product in products().filter(|product| product.peak_flops_per_second.is_some()) {
        let sum = flops.entry(&product.dtype).or_default();
        *sum = sum.saturating_add(product.flops);
    }
    let (dtype, _) = flops.into_iter().max_by_key(|(dtype, flops)| (*flops, *dtype))?;
    let one = products().find(|product| product.dtype == dtype)?;
    Some(Peak {
        flops_per_second: one.peak_flops_per_second?,
        dtype: dtype.to_owned(),
        bytes_per_second: peaks?.bytes_per_second(),
        source: SOURCE,
    })
}
