//! Gradient buckets: parts of the gradient vector that are reduced together, in the order in which the backward pass
//! completes them.

use std::ops::Range;

/// One bucket: neighbouring elements of the flat gradient vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) elements: Range<usize>,
}

/// Fills buckets from the last tensor backwards; one is closed once it holds `bucket_bytes`.
/// `tensors` are the tensors' ranges in the gradient vector, in order and without gaps.
pub(crate) fn make_buckets(tensors: &[Range<usize>], bucket_bytes: usize) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut end = tensors.last().map_or(0, |tensor| tensor.end);
    for (index, tensor) in tensors.iter().enumerate().rev() {
        if (end - tensor.start) * size_of::<f32>() >= bucket_bytes.max(1) || index == 0 {
            buckets.push(Bucket {
                elements: tensor.start..end,
            });
            end = tensor.start;
        }
    }
    buckets.retain(|bucket| !bucket.elements.is_empty());
    buckets
}

/// Buckets filled in the order in which gradients really came: each is complete as early as it can be. Only
/// neighbours share a bucket, so that it stays a view of the gradients.
pub(crate) fn rebuild(order: &[Range<usize>], bucket_bytes: usize) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    for elements in order.iter().filter(|elements| !elements.is_empty()) {
        match buckets.last_mut().map(|bucket| &mut bucket.elements) {
            Some(last) if last.len() * size_of::<f32>() < bucket_bytes && last.start == elements.end => {
                last.start = elements.start;
            }
            Some(last) if last.len() * size_of::<f32>() < bucket_bytes && last.end == elements.start => {
                last.end = elements.end;
            }
            _ => buckets.push(Bucket {
                elements: elements.clone(),
            }),
        }
    }
    buckets
}

/// Which elements of which bucket are still to come in this step.
pub(crate) struct Tracker {
    sizes: Vec<usize>,
    missing: Vec<usize>,
    order: Vec<Range<usize>>,
}

impl Tracker {
    /// Nothing has come yet.
    pub(crate) fn new(buckets: &[Bucket]) -> Self {
        let sizes: Vec<usize> = buckets.iter().map(|bucket| bucket.elements.len()).collect();
        Self {
            missing: sizes.clone(),
            sizes,
            order: Vec::new(),
        }
    }

    /// A step begins.
    pub(crate) fn begin(&mut self) {
        self.missing.clone_from(&self.sizes);
        self.order.clear();
    }

    /// These elements have come: the buckets that they complete.
    pub(crate) fn arrived(&mut self, buckets: &[Bucket], elements: Range<usize>) -> Vec<usize> {
        let mut complete = Vec::new();
        for (index, bucket) in buckets.iter().enumerate() {
            let start = bucket.elements.start.max(elements.start);
            let end = bucket.elements.end.min(elements.end);
            if start < end {
                self.missing[index] = self.missing[index].saturating_sub(end - start);
                if self.missing[index] == 0 {
                    complete.push(index);
                }
            }
        }
        self.order.push(elements);
        complete
    }

    /// What came in this step, in order.
    pub(crate) fn order(&self) -> &[Range<usize>] {
        &self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_filled_from_the_last_tensor() {
        let buckets = make_buckets(&[0..100, 100..150, 150..160, 160..260], 400);
        let parts: Vec<_> = buckets.iter().map(|bucket| bucket.elements.clone()).collect();
        assert_eq!(parts, [160..260, 0..160]);
    }

    #[test]
    fn every_element_is_in_one_bucket() {
        let tensors = [0..7, 7..20, 20..21, 21..90];
        for bytes in [1, 40, 200, 1000] {
            let backwards: Vec<_> = tensors.iter().rev().cloned().collect();
            for buckets in [make_buckets(&tensors, bytes), rebuild(&backwards, bytes)] {
                let mut covered: Vec<usize> =
                    buckets.into_iter().flat_map(|bucket| bucket.elements).collect();
                covered.sort_unstable();
                assert_eq!(covered, (0..90).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_bucket_is_complete_once_all_of_it_came() {
        let buckets = make_buckets(&[0..10, 10..30], 40);
        assert_eq!(buckets.len(), 2);
        let mut tracker = Tracker::new(&buckets);
        assert_eq!(tracker.arrived(&buckets, 20..30), [] as [usize; 0]);
        assert_eq!(tracker.arrived(&buckets, 5..20), [0]);
        assert_eq!(tracker.arrived(&buckets, 0..5), [1]);
        tracker.begin();
        assert_eq!(tracker.arrived(&buckets, 0..30), [0, 1]);
    }

    #[test]
    fn a_rebuilt_order_follows_what_came() {
        let buckets = rebuild(&[20..30, 0..10, 10..20], 80);
        let parts: Vec<_> = buckets.iter().map(|bucket| bucket.elements.clone()).collect();
        assert_eq!(parts, [20..30, 0..20]);
    }
}
