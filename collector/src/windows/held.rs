//! Records that wait for a decision.

use crate::buffers::{self, Full};

/// CUPTI's buffer, or a copy of what is in one: a flush empties buffers that are hardly filled, and each takes a whole one's room.
pub(crate) enum Records {
    /// The buffer itself.
    Buffer(Full),
    /// What was in one that has been given back.
    Copy(Vec<u8>),
}

impl Records {
    /// Of a buffer that will wait.
    pub(super) fn waiting(full: Full) -> Self {
        if full.bytes().len() > full.capacity() / 2 {
            return Self::Buffer(full);
        }
        let copy = full.bytes().to_vec();
        buffers::recycle(full);
        Self::Copy(copy)
    }

    /// The records.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Buffer(full) => full.bytes(),
            Self::Copy(bytes) => bytes,
        }
    }

    /// The records, to be moved in their place.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(full) => full.bytes_mut(),
            Self::Copy(bytes) => bytes,
        }
    }

    /// What they take of memory.
    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Buffer(full) => full.capacity(),
            Self::Copy(bytes) => bytes.capacity(),
        }
    }

    /// Gives the buffer back, where there is one.
    pub(crate) fn recycle(self) {
        if let Self::Buffer(full) = self {
            buffers::recycle(full);
        }
    }
}
