//! Whether this process is a child of the one that began to record: it has none of our threads, and CUPTI does not
//! work in it.
//!
//! The sign is a page that the kernel empties in every child (Linux 4.14 and later), however the child was made: libc
//! runs its fork handlers only for `fork`, not for `_Fork` or the bare system call.

use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// 1 in the recording process, 0 in its children.
static SIGN: AtomicU8 = AtomicU8::new(1);
/// [`SIGN`], or the page that the kernel empties.
static PLACE: AtomicPtr<AtomicU8> = AtomicPtr::new(SIGN.as_ptr().cast());

/// Whether this is a child. Costs two loads.
#[inline]
pub(crate) fn is_child() -> bool {
    sign().load(Ordering::Relaxed) == 0
}

fn sign() -> &'static AtomicU8 {
    // SAFETY: a static, or a mapped page that is never unmapped.
    unsafe { &*PLACE.load(Ordering::Acquire) }
}

/// A descriptor that children give up, as number and inode: as long as one has it, the other side believes that we live.
static OURS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Children close this descriptor, which is of a socket.
pub(crate) fn closes(number: i32, inode: u64) {
    OURS[1].store(0, Ordering::Relaxed);
    OURS[0].store(u64::from(number.cast_unsigned()), Ordering::Relaxed);
    OURS[1].store(inode, Ordering::Relaxed);
}

extern "C" fn in_child() {
    sign().store(0, Ordering::Relaxed);
    let inode = OURS[1].load(Ordering::Relaxed);
    let number = OURS[0].load(Ordering::Relaxed) as i32;
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: calls that a handler may make; the place is valid for the result, and read where it was filled in.
    unsafe {
        if inode != 0
            && libc::fstat(number, status.as_mut_ptr()) == 0
            && status.assume_init_ref().st_ino == inode
        {
            libc::close(number);
        }
    }
}

/// From here on children know themselves. Called once.
pub(crate) fn watch() {
    // SAFETY: the handler stores to an atomic and makes calls that a handler may make. Its sign is for kernels that cannot
    // empty pages.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    const BYTES: usize = 4096;
    // SAFETY: an anonymous mapping at an address of the kernel's choice replaces nothing; it is ours alone, so that
    // the advice concerns nobody else, and stays mapped for ever.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED || libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) != 0 {
            return;
        }
        let place = page.cast::<AtomicU8>();
        (*place).store(1, Ordering::Relaxed);
        PLACE.store(place, Ordering::Release);
    }
}
