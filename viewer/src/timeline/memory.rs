//! Memory that is free is given back to the system: allocators keep what was used once.

/// Gives free memory back when it is dropped: as the last member of what is large.
pub(crate) struct GivesBack {
    /// Whether it is worth it.
    pub(crate) is_large: bool,
}

impl Drop for GivesBack {
    fn drop(&mut self) {
        if self.is_large {
            give_back();
        }
    }
}

/// Gives all pages without anything on them back to the system.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes no pointer and may be called at any time from any thread (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
