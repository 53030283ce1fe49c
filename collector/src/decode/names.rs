//! Texts behind pointers in records, and the names of kernels by their addresses.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};

use gputrace_trace::NameId;
use gputrace_trace::writer::ProcessWriter;

/// The text at an address; `None` for null.
///
/// # Safety
/// `address` is null or leads to zero-terminated text that stays while the result is in use.
pub(super) unsafe fn text<'a>(address: u64) -> Option<&'a CStr> {
    // SAFETY: not null, and text by the caller's promise.
    (address != 0).then(|| unsafe { CStr::from_ptr(address as *const c_char) })
}

/// The name at an address; `None` for null.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn name(address: u64, writer: &mut ProcessWriter) -> Option<NameId> {
    // SAFETY: the caller's promise is handed on.
    let text = unsafe { text(address) }?;
    Some(writer.names.intern(&text.to_string_lossy()))
}

/// Addresses of kernel names that are found without hashing.
const RECENT: usize = 256;
/// Addresses that are remembered: a program that loads and unloads modules for ever comes to new ones for ever.
const MOST_ADDRESSES: usize = 1 << 17;

/// A kernel name's address, and the buffer in which its text was last compared.
#[derive(Clone, Copy, Default)]
struct RecentName {
    address: u64,
    name: NameId,
    buffer: u64,
}

/// The names of kernels.
pub(super) struct KernelNames {
    /// By address; the text is compared once a buffer, since an address can come to name another kernel after its module is
    /// unloaded.
    by_address: HashMap<u64, NameId>,
    /// The addresses seen last, by some of their bits: a training step's kernels take turns, and hashing each costs.
    recent: Box<[RecentName; RECENT]>,
    /// Counts buffers: within one, an address is read at one moment and so names one kernel.
    buffers: u64,
}

impl Default for KernelNames {
    fn default() -> Self {
        Self {
            by_address: HashMap::new(),
            recent: Box::new([RecentName::default(); RECENT]),
            buffers: 1,
        }
    }
}

impl KernelNames {
    pub(super) fn begin_buffer(&mut self) {
        self.buffers += 1;
        if self.by_address.len() > MOST_ADDRESSES {
            self.by_address.clear();
        }
    }

    /// The number of the name at an address.
    ///
    /// # Safety
    /// As [`text`].
    #[inline]
    pub(super) unsafe fn get(&mut self, address: u64, writer: &mut ProcessWriter) -> NameId {
        // A multiplicative hash: names often lie at equal distances.
        let slot = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT.trailing_zeros())) as usize;
        let recent = self.recent[slot];
        if recent.address == address && recent.buffer == self.buffers {
            return recent.name;
        }
        // SAFETY: the caller's promise is handed on.
        unsafe { self.look_up(address, slot, writer) }
    }

    /// # Safety
    /// As [`text`].
    #[cold]
    unsafe fn look_up(&mut self, address: u64, slot: usize, writer: &mut ProcessWriter) -> NameId {
        // SAFETY: the caller's promise is handed on.
        let Some(text) = (unsafe { text(address) }) else {
            return NameId::default();
        };
        let name = match self.by_address.get(&address) {
            Some(&known) if writer.names.get(known).as_bytes() == text.to_bytes() => known,
            _ => {
                let name = writer.names.intern(&text.to_string_lossy());
                self.by_address.insert(address, name);
                name
            }
        };
        self.recent[slot] = RecentName {
            address,
            name,
            buffer: self.buffers,
        };
        name
    }
}
