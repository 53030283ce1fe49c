//! NCCL, opened at run time: a communicator and the few calls that the workloads make.
//!
//! Opened by hand, since cudarc's loader knows no `libnccl.so.2`, the only name that NVIDIA's packages give it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::error::Error;

/// ncclFloat32, ncclSum and ncclAvg (nccl.h).
const FLOAT32: c_int = 7;
const AVG: c_int = 4;

/// ncclUniqueId.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(pub(crate) [u8; 128]);

struct Library {
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init_rank: unsafe extern "C" fn(*mut *mut c_void, c_int, UniqueId, c_int) -> c_int,
    destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    async_error: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        *mut c_void,
        *mut c_void,
    ) -> c_int,
    broadcast: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        *mut c_void,
        *mut c_void,
    ) -> c_int,
}

fn library() -> Result<&'static Library, Error> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(open).as_ref().ok_or_else(|| {
        Error::new(
            "NCCL was not found: no libnccl.so.2; install NCCL, or put its folder into LD_LIBRARY_PATH",
        )
    })
}

fn open() -> Option<Library> {
    let handle = [c"libnccl.so.2", c"libnccl.so"].into_iter().find_map(|name| {
        // SAFETY: loads NVIDIA's NCCL (or what stands in for it); its initialisers are made for that.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(handle)
    })?;
    let symbol = |name: &CStr| {
        // SAFETY: `handle` is open.
        let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    };
    // SAFETY: the signatures are those of nccl.h, which have not changed since NCCL 2.0.
    unsafe {
        Some(Library {
            get_unique_id: std::mem::transmute::<*mut c_void, _>(symbol(c"ncclGetUniqueId")?),
            init_rank: std::mem::transmute::<*mut c_void, _>(symbol(c"ncclCommInitRank")?),
            destroy: std::mem::transmute::<*mut c_void, _>(symbol(c"ncclCommDestroy")?),
            async_error: std::mem::transmute::<*mut c_void, _>(symbol(c"ncclCommGetAsyncError")?),
            error_string: std::mem::transmute::<*mut c_void, _>(symbol(c"ncclGetErrorString")?),
            all_reduce: std::mem::transmute::<*mut c_void, _>(symbol(c"ncclAllReduce")?),
            broadcast: std::mem::transmute::<*mut c_void, _>(symbol(c"ncclBroadcast")?),
        })
    }
}

fn check(library: &Library, what: &str, code: c_int) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: NCCL gives a static text for every code.
    let text = unsafe { CStr::from_ptr((library.error_string)(code)) };
    Err(Error::new(format!("NCCL {what}: {}", text.to_string_lossy())))
}

/// A new unique id, to be told to all ranks.
pub(crate) fn unique_id() -> Result<UniqueId, Error> {
    let library = library()?;
    let mut id = UniqueId([0; 128]);
    // SAFETY: `id` is a valid place for the result.
    check(library, "unique id", unsafe {
        (library.get_unique_id)(&raw mut id)
    })?;
    Ok(id)
}

/// One rank's communicator.
pub(crate) struct Communicator {
    library: &'static Library,
    handle: *mut c_void,
}

impl Communicator {
    /// Joins the ranks of `id`, on the context that is current; waits for all of them.
    pub(crate) fn new(id: UniqueId, rank: u32, ranks: u32) -> Result<Self, Error> {
        let library = library()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is a valid place; the id came from rank 0.
        let code =
            unsafe { (library.init_rank)(&raw mut handle, ranks.cast_signed(), id, rank.cast_signed()) };
        check(library, "init", code)?;
        Ok(Self { library, handle })
    }

    /// Averages `count` f32 at a device address over all ranks, in place, on a stream.
    pub(crate) fn all_reduce_average(
        &self,
        address: u64,
        count: usize,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        let buffer = address as *mut c_void;
        // SAFETY: the address holds `count` f32 of device memory that outlives the stream's work.
        let code =
            unsafe { (self.library.all_reduce)(buffer, buffer, count, FLOAT32, AVG, self.handle, stream) };
        check(self.library, "all-reduce", code)
    }

    /// Sends `count` f32 at rank 0's device address to all ranks, in place, on a stream.
    pub(crate) fn broadcast_from_first(
        &self,
        address: u64,
        count: usize,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        let buffer = address as *mut c_void;
        // SAFETY: as in `all_reduce_average`.
        let code =
            unsafe { (self.library.broadcast)(buffer, buffer, count, FLOAT32, 0, self.handle, stream) };
        check(self.library, "broadcast", code)
    }

    /// What went wrong behind the calls' back, if anything: a peer that died, say.
    pub(crate) fn check_health(&self) -> Result<(), Error> {
        let mut error = 0;
        // SAFETY: `error` is a valid place for the result.
        check(self.library, "health", unsafe {
            (self.library.async_error)(self.handle, &raw mut error)
        })?;
        check(self.library, "collective", error)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // SAFETY: the handle that init gave, destroyed once. Nobody is left to hear of an error.
        unsafe { (self.library.destroy)(self.handle) };
    }
}

/// Whether a library of this name can be loaded.
pub(crate) fn can_load(name: &str) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    // SAFETY: loads one of NVIDIA's libraries, as every CUDA program does.
    !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null()
}
