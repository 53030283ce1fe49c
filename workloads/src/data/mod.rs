//! Synthetic data sets that can be learnt, and the sampler that deals them out to the ranks.

mod language;
mod perceptron;
mod random;
mod sampler;

pub(crate) use language::Language;
pub(crate) use perceptron::Perceptron;
pub(crate) use random::Random;
pub(crate) use sampler::Sampler;

/// Samples with their targets, as bytes: what they are is between the data set and the network.
pub(crate) trait DataSet: Send + Sync {
    /// How many samples there are.
    fn samples(&self) -> usize;
    /// Bytes of one sample's inputs.
    fn input_bytes(&self) -> usize;
    /// Bytes of one sample's targets.
    fn target_bytes(&self) -> usize;
    /// Writes the samples of `indices` one after the other. A side that is not wanted is an empty slice, else it has
    /// room for just these samples.
    fn gather(&self, indices: &[usize], inputs: &mut [u8], targets: &mut [u8]);
}

/// Copies `rows` of so many bytes each, one after the other; nothing where there is no room for any.
fn copy_rows(rows: &[u8], row_bytes: usize, indices: &[usize], to: &mut [u8]) {
    // Rows of nothing would be chunks of nothing.
    for (place, &index) in to.chunks_exact_mut(row_bytes.max(1)).zip(indices) {
        place.copy_from_slice(&rows[index * row_bytes..(index + 1) * row_bytes]);
    }
}
