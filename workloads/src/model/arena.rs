//! Carving named parts out of one piece of device memory.

/// What is left of a piece of device memory. Started at address 0 it measures how much would be taken.
pub(crate) struct Arena {
    start: u64,
    next: u64,
}

impl Arena {
    /// An arena at a device address that is aligned to 256 bytes.
    pub(crate) fn at(start: u64) -> Self {
        Self { start, next: start }
    }

    /// The next `bytes` bytes, aligned to 256.
    pub(crate) fn take(&mut self, bytes: usize) -> u64 {
        let address = self.next;
        self.next += (bytes as u64).next_multiple_of(256);
        address
    }

    /// Bytes taken so far.
    pub(crate) fn taken(&self) -> usize {
        (self.next - self.start) as usize
    }
}
