//! Who takes which samples of a global batch.

use std::ops::Range;

use crate::error::Error;

/// The share of each of `replicas` in a batch that is taken in `microbatches` microbatches: even, or, with an
/// imbalance, growing evenly so that the last has about `imbalance` times the samples of the first.
pub(crate) fn shares(
    batch: usize,
    replicas: usize,
    microbatches: usize,
    imbalance: Option<f64>,
) -> Result<Vec<Range<usize>>, Error> {
    // Every share is a whole number of samples for each microbatch.
    let units = batch / microbatches;
    if !batch.is_multiple_of(microbatches) || units < replicas {
        return Err(refused(batch, replicas, microbatches));
    }
    let factor = imbalance.unwrap_or(1.0);
    if imbalance.is_none() && !units.is_multiple_of(replicas) {
        return Err(refused(batch, replicas, microbatches));
    }
    let weight = |replica: usize| 1.0 + (factor - 1.0) * replica as f64 / (replicas.max(2) - 1) as f64;
    let total: f64 = (0..replicas).map(weight).sum();
    let mut until = 0.0;
    let mut start = 0;
    let mut shares = Vec::with_capacity(replicas);
    for replica in 0..replicas {
        until += weight(replica);
        // At least one for this replica, and one left for each that follows.
        let end = ((units as f64 * until / total).round() as usize)
            .clamp(start + 1, units - (replicas - 1 - replica));
        shares.push(start * microbatches..end * microbatches);
        start = end;
    }
    Ok(shares)
}

fn refused(batch: usize, replicas: usize, microbatches: usize) -> Error {
    let least = replicas * microbatches;
    let microbatches = match microbatches {
        1 => String::new(),
        count => format!(" in {count} microbatches"),
    };
    Error::new(format!(
        "--batch {batch}: does not divide evenly over {replicas} data parallel ranks{microbatches}: choose a multiple of {least}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_shared_evenly() {
        assert_eq!(shares(12, 3, 2, None).expect("divides"), [0..4, 4..8, 8..12]);
        assert_eq!(shares(5, 1, 1, None).expect("divides").first(), Some(&(0..5)));
    }

    #[test]
    fn what_does_not_divide_is_refused() {
        for (batch, replicas, microbatches) in [(10, 3, 1), (8, 2, 3), (2, 4, 1)] {
            let error = shares(batch, replicas, microbatches, None).expect_err("does not divide");
            assert!(error.to_string().contains(&format!("--batch {batch}")), "{error}");
        }
    }

    #[test]
    fn an_imbalance_gives_the_last_more() {
        let uneven = shares(64, 2, 1, Some(3.0)).expect("shares");
        assert_eq!(uneven, [0..16, 16..64]);
        for replicas in 1..9 {
            let uneven = shares(96, replicas, 4, Some(2.0)).expect("shares");
            assert_eq!(uneven.last().map(|share| share.end), Some(96));
            assert!(uneven.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(
                uneven
                    .iter()
                    .all(|share| !share.is_empty() && share.len().is_multiple_of(4))
            );
        }
    }
}
