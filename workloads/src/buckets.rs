//! Gradient buckets: contiguous parts of the gradient vector that are reduced together, in the order in which the
//! backward pass completes them.

use std::ops::Range;

/// One bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Its elements in the flat gradient vector.
    pub(crate) elements: Range<usize>,
    /// The layer whose gradient comes last: when it is done, the bucket is complete.
    pub(crate) complete_after_layer: usize,
}

/// Fills buckets from the last layer backwards; one is closed once it holds `bucket_bytes`.
/// `layers` are the layers' ranges in the gradient vector, in order and without gaps.
pub(crate) fn make_buckets(layers: &[Range<usize>], bucket_bytes: usize) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut end = layers.last().map_or(0, |layer| layer.end);
    for (index, layer) in layers.iter().enumerate().rev() {
        if (end - layer.start) * size_of::<f32>() >= bucket_bytes || index == 0 {
            buckets.push(Bucket {
                elements: layer.start..end,
                complete_after_layer: index,
            });
            end = layer.start;
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_filled_from_the_last_layer() {
        let layers = [0..100, 100..150, 150..160, 160..260];
        let buckets = make_buckets(&layers, 400);
        let parts: Vec<_> = buckets
            .iter()
            .map(|bucket| (bucket.elements.clone(), bucket.complete_after_layer))
            .collect();
        assert_eq!(parts, [(160..260, 3), (0..160, 0)]);
    }

    #[test]
    fn every_element_is_in_one_bucket() {
        let layers = [0..7, 7..20, 20..21, 21..90];
        for bytes in [1, 40, 200, 1000] {
            let mut covered: Vec<usize> = make_buckets(&layers, bytes)
                .into_iter()
                .flat_map(|bucket| bucket.elements)
                .collect();
            covered.sort_unstable();
            assert_eq!(covered, (0..90).collect::<Vec<_>>());
        }
    }
}
