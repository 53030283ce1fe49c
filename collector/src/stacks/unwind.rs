//! The return addresses of the calling thread.
//!
//! By the unwinder that C++ throws with: the process's own libgcc_s, where it is loaded already, since that finds a function's table
//! without a lock where glibc can (2.35 and later); else the one that this library is linked with. Nothing is loaded for it.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Frames of a stack, at the most; callers further out are left out, which is said.
pub(super) const DEPTH: usize = 128;

/// `_Unwind_Trace_Fn`: 0 goes on.
type Trace = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Backtrace = unsafe extern "C" fn(Trace, *mut c_void) -> c_int;
/// The instruction pointer of a frame, and whether it has yet to run what it points at: in what a signal interrupted.
type Pointer = unsafe extern "C" fn(*mut c_void, *mut c_int) -> usize;

unsafe extern "C" {
    fn _Unwind_Backtrace(trace: Trace, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, before: *mut c_int) -> usize;
}

/// `_URC_END_OF_STACK`: no more is wanted.
const ENOUGH: c_int = 5;

/// An unwinder: two functions that belong together.
#[derive(Clone, Copy)]
struct Unwinder {
    backtrace: Backtrace,
    pointer: Pointer,
}

static UNWINDER: OnceLock<Unwinder> = OnceLock::new();

/// Looks for the process's unwinder. Not in a callback: it takes the loader's lock.
pub(super) fn find() {
    UNWINDER.get_or_init(|| {
        of_process().unwrap_or(Unwinder {
            backtrace: _Unwind_Backtrace,
            pointer: _Unwind_GetIPInfo,
        })
    });
}

fn of_process() -> Option<Unwinder> {
    // SAFETY: a zero-terminated name. With NOLOAD nothing is loaded, and what is there stays as long as the process does.
    let library = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    let symbol = |name: &CStr| {
        // SAFETY: a library that is loaded, and a zero-terminated name.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let (backtrace, pointer) = (symbol(c"_Unwind_Backtrace")?, symbol(c"_Unwind_GetIPInfo")?);
    // SAFETY: the functions of these names have these types in every libgcc_s (unwind.h).
    unsafe {
        Some(Unwinder {
            backtrace: std::mem::transmute::<*mut c_void, Backtrace>(backtrace),
            pointer: std::mem::transmute::<*mut c_void, Pointer>(pointer),
        })
    }
}

/// Return addresses, innermost first: the instruction behind each call.
pub(super) struct Stack {
    addresses: [MaybeUninit<usize>; DEPTH],
    length: usize,
    pointer: Pointer,
    /// There are callers further out than [`DEPTH`].
    pub(super) is_cut: bool,
}

impl Stack {
    pub(super) fn addresses(&self) -> &[usize] {
        // SAFETY: the first `length` were written by `see`.
        unsafe { std::slice::from_raw_parts(self.addresses.as_ptr().cast(), self.length) }
    }
}

/// The calling thread's stack; `None` before [`find`].
#[inline]
pub(super) fn stack() -> Option<Stack> {
    let unwinder = UNWINDER.get()?;
    let mut stack = Stack {
        addresses: [MaybeUninit::uninit(); DEPTH],
        length: 0,
        pointer: unwinder.pointer,
        is_cut: false,
    };
    // SAFETY: `see` takes the stack that it is given, which outlives the call.
    unsafe { (unwinder.backtrace)(see, (&raw mut stack).cast()) };
    Some(stack)
}

unsafe extern "C" fn see(context: *mut c_void, stack: *mut c_void) -> c_int {
    // SAFETY: the stack that `stack` passed, which nobody else uses meanwhile.
    let stack = unsafe { &mut *stack.cast::<Stack>() };
    let mut before = 0;
    // SAFETY: the frame that the unwinder is at, and a valid place.
    let address = unsafe { (stack.pointer)(context, &raw mut before) };
    if address == 0 {
        return ENOUGH;
    }
    let Some(place) = stack.addresses.get_mut(stack.length) else {
        stack.is_cut = true;
        return ENOUGH;
    };
    // As behind a call, so that what lies before it is meant.
    place.write(address.wrapping_add(usize::from(before != 0)));
    stack.length += 1;
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn deep(levels: usize) -> Stack {
        if levels == 0 {
            find();
            return stack().expect("an unwinder");
        }
        // Not the last thing that it does, so that each level has a frame.
        let mut found = deep(levels - 1);
        found.length = std::hint::black_box(found.length);
        found
    }

    #[test]
    fn a_deep_stack_is_cut_and_says_so() {
        let (shallow, deep) = (deep(20), deep(300));
        assert!(shallow.addresses().len() > 20 && !shallow.is_cut);
        assert_eq!((deep.addresses().len(), deep.is_cut), (DEPTH, true));
        // The same call again and again.
        assert_eq!(deep.addresses()[50], deep.addresses()[51]);
    }
}
