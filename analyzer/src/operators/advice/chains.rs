//! Elementwise kernels behind each other on a stream, each of which reads what the one before it wrote: a compiler would make one of
//! them.

use gputrace_trace::NameId;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::seen::{Advice, Better, Seen, longest, percent, sum};
use crate::facts::Facts;
use crate::operation_name::Name;
use crate::operations::Operation;
use crate::units::duration;

pub(super) fn advice(seen: &Seen<'_>) -> Option<Advice> {
    let mut kernels = Elementwise::new(seen);
    let mut open: FxHashMap<(u32, u32), Chain<'_>> = FxHashMap::default();
    let mut chains: Vec<Chain<'_>> = Vec::new();
    for (place, operation) in (0u32..).zip(seen.operations) {
        let chain = open.entry((operation.context, operation.stream)).or_default();
        let numbers = kernels.numbers(operation, place);
        if numbers.is_none() || !chain.takes(numbers.flatten()) {
            chains.extend(std::mem::take(chain).finished());
        }
        if let Some(numbers) = numbers {
            chain.numbers = numbers;
            chain.operations.push(operation);
        }
    }
    chains.extend(open.into_values().filter_map(Chain::finished));
    chains.sort_by_key(|chain| chain.operations[0].start);
    // All but the longest of each.
    let fused = |chain: &Chain<'_>| {
        let stays = longest(chain.operations.iter().copied()).map(|operation| operation.row);
        let gone = move |operation: &&&Operation| Some(operation.row) != stays;
        let operations = chain.operations.iter().filter(gone);
        operations
            .map(|operation| Better::of(operation, 0))
            .collect::<Vec<_>>()
    };
    let operations: Vec<Better> = chains.iter().flat_map(fused).collect();
    let saved_ns = sum(operations.iter().map(Better::saved_ns));
    seen.share(saved_ns)?;
    let count: usize = chains.iter().map(|chain| chain.operations.len()).sum();
    let total_ns = sum(chains.iter().map(Chain::time_ns));
    let most = chains.iter().max_by_key(|chain| chain.time_ns())?;
    let first = most.operations[0];
    Some(Advice {
        about: "elementwise chains".to_owned(),
        facts: Facts::ElementwiseChains {
            chains: chains.len(),
            kernels: count,
            total_ns,
        },
        text: "Elementwise kernels follow each other, each reading what the one before it wrote: torch.compile, or a fused operator, makes one \
               of them"
            .to_owned(),
        evidence: format!(
            "{count} kernels in {} chains take {}, {} of its GPU time; the costliest is {} kernels long",
            chains.len(),
            duration(total_ns),
            percent(seen.share(total_ns)?),
            most.operations.len()
        ),
        operations,
        host: Vec::new(),
        is_sure: false,
        seen: ("kernel", seen.operation_name(first), first.start),
    })
}

/// Kernels that follow each other.
#[derive(Default)]
struct Chain<'a> {
    operations: Vec<&'a Operation>,
    /// Of the last one: numbers in its largest input, where that is known.
    numbers: Option<u64>,
}

impl Chain<'_> {
    /// Whether a kernel over so many numbers may go on with it.
    fn takes(&self, numbers: Option<u64>) -> bool {
        match (self.numbers, numbers) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        }
    }

    /// A chain has two links at least.
    fn finished(self) -> Option<Self> {
        (self.operations.len() > 1).then_some(self)
    }

    fn time_ns(&self) -> i64 {
        sum(self
            .operations
            .iter()
            .map(|operation| operation.end - operation.start))
    }
}

/// Which operations are elementwise kernels, and over how many numbers.
struct Elementwise<'a> {
    seen: &'a Seen<'a>,
    is_one: FxHashMap<NameId, bool>,
    numbers: FxHashMap<NameId, Option<u64>>,
    /// The next of `seen.launched`, which are by place.
    next: usize,
}

impl<'a> Elementwise<'a> {
    fn new(seen: &'a Seen<'a>) -> Self {
        Self {
            seen,
            is_one: FxHashMap::default(),
            numbers: FxHashMap::default(),
            next: 0,
        }
    }

    /// `None` of what is no elementwise kernel, or of an optimizer that goes over tensors one by one: that is told elsewhere. Else
    /// the numbers in its operator's largest input, where they are known. Places come in order.
    fn numbers(&mut self, operation: &Operation, place: u32) -> Option<Option<u64>> {
        let seen = self.seen;
        while seen.launched.get(self.next).is_some_and(|one| one.place < place) {
            self.next += 1;
        }
        let Name::Kernel(name) = operation.name else {
            return None;
        };
        let is_elementwise = self
            .is_one
            .entry(name)
            .or_insert_with(|| is_elementwise(seen.names.get(name)));
        if !*is_elementwise {
            return None;
        }
        let launched = seen.launched.get(self.next).filter(|one| one.place == place);
        let Some(operator) = launched.map(|one| one.operator) else {
            return Some(None);
        };
        let mut around = seen.operators_around(operator);
        if around.any(|place| super::optimizer::is_step(seen.operator_name(place))) {
            return None;
        }
        let dims = seen.operators_around(operator).next().and_then(|place| {
            let row = seen.by.operators.row(place);
            seen.process.tables.operators.input_dims[row]
        });
        Some(dims.and_then(|dims| {
            *self
                .numbers
                .entry(dims)
                .or_insert_with(|| largest(seen.names.get(dims)))
        }))
    }
}

/// PyTorch's kernels of TensorIterator (aten/src/ATen/native/cuda/CUDALoops.cuh): `vectorized_elementwise_kernel`,
/// `unrolled_elementwise_kernel`, `elementwise_kernel`, ...
fn is_elementwise(name: &str) -> bool {
    name.contains("at::native::") && name.contains("elementwise_kernel")
}

/// The numbers in the largest tensor of some sizes.
fn largest(dims: &str) -> Option<u64> {
    let dims: Vec<Value> = serde_json::from_str(dims).ok()?;
    let numbers = dims.iter().filter_map(|sizes| {
        let sizes = sizes.as_array().filter(|sizes| !sizes.is_empty())?;
        sizes
            .iter()
            .try_fold(1u64, |product, size| product.checked_mul(size.as_u64()?))
    });
    numbers.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytorchs_elementwise_kernels_are_known() {
        assert!(is_elementwise(
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
        ));
        assert!(!is_elementwise("void at::native::reduce_kernel<512, 1>(float)"));
        assert!(!is_elementwise("triton_poi_fused_add_0"));
        assert_eq!(largest("[[2, 3], [3], []]"), Some(6));
        assert_eq!(largest("[[], 5]"), None);
        assert_eq!(largest("[["), None);
    }
}
