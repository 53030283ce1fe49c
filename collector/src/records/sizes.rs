//! How long the records are that the running CUPTI delivers.

/// The sizes of records by kind, as the running CUPTI has them.
#[derive(Clone, Debug, Default)]
pub struct RecordSizes {
    sizes: Vec<usize>,
}

impl RecordSizes {
    /// Kinds that are asked for; CUPTI 13.5 has 60.
    pub const KINDS: u32 = 128;

    /// Asks `size_of` for each kind; 0 where it does not know.
    pub fn ask(size_of: impl Fn(u32) -> Option<usize>) -> Self {
        Self {
            sizes: (0..Self::KINDS).map(|kind| size_of(kind).unwrap_or(0)).collect(),
        }
    }

    /// The kinds whose size is known, with their sizes.
    pub fn known(&self) -> impl Iterator<Item = (u32, usize)> {
        (0u32..)
            .zip(&self.sizes)
            .filter(|(_, size)| **size >= 8)
            .map(|(kind, size)| (kind, *size))
    }

    #[inline]
    pub(crate) fn get(&self, kind: u32) -> Option<usize> {
        self.sizes.get(kind as usize).copied().filter(|&size| size >= 8)
    }
}
