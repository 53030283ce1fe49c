//! Tensors that are copied on the device, to another type or as they are.

use gputrace_trace::NameId;
use rustc_hash::FxHashMap;

use super::seen::{Advice, Better, Seen, longest, percent, sum};
use crate::facts::Facts;
use crate::kinds::Kind;
use crate::operation_name::Name;
use crate::operators::nesting::NONE;
use crate::units::duration;

/// The operator that copies (ATen's native_functions.yaml): `copy_(self, src)`, which `to`, `contiguous`, `clone` and others end in.
const COPY: &str = "aten::copy_";
/// `CUPTI_ACTIVITY_MEMCPY_KIND_DTOD`.
const WITHIN: u8 = 8;

pub(super) fn advice(seen: &Seen<'_>) -> Option<Advice> {
    let operators = &seen.process.tables.operators;
    let mut is_cast: FxHashMap<NameId, bool> = FxHashMap::default();
    let (mut casts, mut copies) = (Vec::new(), Vec::new());
    for one in seen.launched {
        let operation = seen.operation(one);
        let is_here = match operation.name {
            Name::Copy { direction, .. } => direction == WITHIN,
            _ => operation.kind == Kind::Compute,
        };
        if one.operator == NONE || !is_here || seen.operator_name(one.operator) != COPY {
            continue;
        }
        let types = operators.input_types[seen.by.operators.row(one.operator)];
        let casts_type = types.is_some_and(|types| {
            *is_cast
                .entry(types)
                .or_insert_with(|| differ(seen.names.get(types)))
        });
        if casts_type { &mut casts } else { &mut copies }.push(operation);
    }
    let time = |operations: &[&crate::operations::Operation]| {
        sum(operations.iter().map(|operation| operation.end - operation.start))
    };
    let (casts_ns, copies_ns) = (time(&casts), time(&copies));
    let share = seen.share(sum([casts_ns, copies_ns].into_iter()))?;
    let all = || casts.iter().chain(&copies).copied();
    let first = longest(all())?;
    Some(Advice {
        about: "copies and casts".to_owned(),
        facts: Facts::CopiesAndCasts {
            casts: casts.len(),
            casts_ns,
            copies: copies.len(),
            copies_ns,
        },
        text: "Tensors are copied on the GPU, to other types or into other layouts: keep them in the type and layout that is needed, or let a \
               compiler fuse the copies"
            .to_owned(),
        evidence: format!(
            "{} casts take {} and {} other copies {}, together {} of its GPU time",
            casts.len(),
            duration(casts_ns),
            copies.len(),
            duration(copies_ns),
            percent(share)
        ),
        operations: all().map(|operation| Better::of(operation, 0)).collect(),
        host: Vec::new(),
        is_sure: false,
        seen: ("kernel", seen.operation_name(first), first.start),
    })
}

/// Whether the first two of an operator's input types differ.
fn differ(types: &str) -> bool {
    let types: Vec<serde_json::Value> = serde_json::from_str(types).unwrap_or_default();
    matches!(types.as_slice(), [to, from, ..] if to != from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cast_copies_from_another_type() {
        assert!(differ(r#"["c10::BFloat16", "float", "Scalar"]"#));
        assert!(!differ(r#"["float", "float", "Scalar"]"#));
        assert!(!differ(r#"["float"]"#));
        assert!(!differ("broken"));
    }
}
