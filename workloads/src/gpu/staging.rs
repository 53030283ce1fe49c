//! Host memory for copies to and from the GPU, page-locked or not.

use cudarc::driver::result;

use crate::error::Error;

/// Host memory that copies start from or end in.
pub(crate) enum Staging {
    /// Page-locked: copies run on their own.
    Pinned { bytes: *mut u8, count: usize },
    /// Ordinary memory: whoever copies waits until the driver has taken it.
    Pageable(Vec<u8>),
}

// SAFETY: plain memory, owned by whoever owns this.
unsafe impl Send for Staging {}

impl Staging {
    /// Zeroed memory. The context must be current.
    pub(crate) fn new(count: usize, pinned: bool) -> Result<Self, Error> {
        if !pinned {
            return Ok(Self::Pageable(vec![0; count]));
        }
        // SAFETY: the memory is freed by `drop` alone. The driver allocates nothing that is empty.
        let bytes = unsafe { result::malloc_host(count.max(1), 0)? }.cast::<u8>();
        // SAFETY: `count` bytes were just allocated there.
        unsafe { bytes.write_bytes(0, count) };
        Ok(Self::Pinned { bytes, count })
    }

    /// All of it.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: `count` initialised bytes of our own.
            Self::Pinned { bytes, count } => unsafe { std::slice::from_raw_parts_mut(*bytes, *count) },
            Self::Pageable(bytes) => bytes,
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Self::Pinned { bytes, .. } = self {
            // SAFETY: allocated by `new`, freed once. At the end of a run nothing can be done about a failure.
            let _ = unsafe { result::free_host(bytes.cast()) };
        }
    }
}
