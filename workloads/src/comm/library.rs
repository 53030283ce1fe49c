//! NCCL's functions, opened at run time (signatures: nccl.h 2.30).
//!
//! Opened by hand, since cudarc's loader knows no `libnccl.so.2`, the only name that NVIDIA's packages give it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::UniqueId;
use crate::error::Error;

/// ncclConfig_t as NCCL 2.27.3 has it; later versions take an earlier one and use their defaults for the rest.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    least_ctas: c_int,
    most_ctas: c_int,
    network: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    name: *const c_char,
    collnet: c_int,
    cta_policy: c_int,
    shrink_share: c_int,
}

/// NCCL_CONFIG_UNDEF_INT.
const UNDEFINED: c_int = i32::MIN;
/// The first version that knows this configuration.
const CONFIG_VERSION: c_int = 22_703;

impl Config {
    /// All defaults but the communicator's name, which profilers get to see.
    fn named(name: &CStr) -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: CONFIG_VERSION.cast_unsigned(),
            blocking: UNDEFINED,
            cga_cluster_size: UNDEFINED,
            least_ctas: UNDEFINED,
            most_ctas: UNDEFINED,
            network: std::ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            name: name.as_ptr(),
            collnet: UNDEFINED,
            cta_policy: UNDEFINED,
            shrink_share: UNDEFINED,
        }
    }
}

type Send = *const c_void;
type Receive = *mut c_void;
type Comm = *mut c_void;
type Stream = *mut c_void;

/// What all-reduce, reduce-scatter, broadcast, gather and scatter look like: the fifth argument is a reduction or a root.
pub(super) type Exchange = unsafe extern "C" fn(Send, Receive, usize, c_int, c_int, Comm, Stream) -> c_int;

/// Makes the table and what fills it: nothing where a symbol is missing, except for those in brackets.
macro_rules! library {
    ($($field:ident: $symbol:literal, ($($argument:ty),*) -> $result:ty;)* [$($later:ident: $later_symbol:literal, ($($later_argument:ty),*);)*]) => {
        /// The functions that the workloads call.
        pub(super) struct Library {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            $(pub(super) $later: Option<unsafe extern "C" fn($($later_argument),*) -> c_int>,)*
        }

        fn functions(handle: *mut c_void) -> Option<Library> {
            // SAFETY: `handle` is open, and the signatures are those of nccl.h, which only ever gets new functions.
            unsafe {
                Some(Library {
                    $($field: {
                        let symbol = libc::dlsym(handle, concat!($symbol, "\0").as_ptr().cast());
                        if symbol.is_null() {
                            return None;
                        }
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(symbol)
                    },)*
                    $($later: {
                        let symbol = libc::dlsym(handle, concat!($later_symbol, "\0").as_ptr().cast());
                        (!symbol.is_null()).then(|| {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($later_argument),*) -> c_int>(symbol)
                        })
                    },)*
                })
            }
        }
    };
}

library! {
    version: "ncclGetVersion", (*mut c_int) -> c_int;
    get_unique_id: "ncclGetUniqueId", (*mut UniqueId) -> c_int;
    init_rank: "ncclCommInitRank", (*mut Comm, c_int, UniqueId, c_int) -> c_int;
    init_rank_config: "ncclCommInitRankConfig", (*mut Comm, c_int, UniqueId, c_int, *mut Config) -> c_int;
    finalize: "ncclCommFinalize", (Comm) -> c_int;
    destroy: "ncclCommDestroy", (Comm) -> c_int;
    abort: "ncclCommAbort", (Comm) -> c_int;
    async_error: "ncclCommGetAsyncError", (Comm, *mut c_int) -> c_int;
    error_string: "ncclGetErrorString", (c_int) -> *const c_char;
    last_error: "ncclGetLastError", (Comm) -> *const c_char;
    group_start: "ncclGroupStart", () -> c_int;
    group_end: "ncclGroupEnd", () -> c_int;
    all_reduce: "ncclAllReduce", (Send, Receive, usize, c_int, c_int, Comm, Stream) -> c_int;
    reduce: "ncclReduce", (Send, Receive, usize, c_int, c_int, c_int, Comm, Stream) -> c_int;
    reduce_scatter: "ncclReduceScatter", (Send, Receive, usize, c_int, c_int, Comm, Stream) -> c_int;
    broadcast: "ncclBroadcast", (Send, Receive, usize, c_int, c_int, Comm, Stream) -> c_int;
    all_gather: "ncclAllGather", (Send, Receive, usize, c_int, Comm, Stream) -> c_int;
    // The first three since NCCL 2.28; the others an old one may lack too.
    [
        all_to_all: "ncclAlltoAll", (Send, Receive, usize, c_int, Comm, Stream);
        gather: "ncclGather", (Send, Receive, usize, c_int, c_int, Comm, Stream);
        scatter: "ncclScatter", (Send, Receive, usize, c_int, c_int, Comm, Stream);
        split: "ncclCommSplit", (Comm, c_int, c_int, *mut Comm, *mut Config);
        send: "ncclSend", (Send, usize, c_int, c_int, Comm, Stream);
        receive: "ncclRecv", (Receive, usize, c_int, c_int, Comm, Stream);
    ]
}

/// The error of a function that this NCCL lacks.
pub(super) fn missing(function: &str) -> Error {
    Error::new(format!("this NCCL has no {function}: install NCCL 2.18 or later"))
}

/// The library, opened at the first call.
pub(super) fn library() -> Result<&'static Library, Error> {
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
    functions(handle)
}

impl Library {
    /// NCCL's result as ours; `comm` (or null) is asked for what it says of the error.
    pub(super) fn check(&self, what: &str, code: c_int, comm: *mut c_void) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NCCL gives a static text for every code, and for the last error a text that lives until the next.
        let (text, last) = unsafe { ((self.error_string)(code), (self.last_error)(comm)) };
        let read = |text: *const c_char| {
            if text.is_null() {
                return String::new();
            }
            // SAFETY: zero-terminated, as NCCL's texts are.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        let (text, last) = (read(text), read(last));
        let last = last.lines().last().unwrap_or_default().trim().to_owned();
        Err(Error::new(if last.is_empty() {
            format!("NCCL {what}: {text}")
        } else {
            format!("NCCL {what}: {text}: {last}")
        }))
    }

    /// NCCL's version: major * 10000 + minor * 100 + patch.
    pub(super) fn number(&self) -> Result<c_int, Error> {
        let mut version = 0;
        // SAFETY: a valid place for the result.
        let code = unsafe { (self.version)(&raw mut version) };
        self.check("version", code, std::ptr::null_mut())?;
        Ok(version)
    }

    /// A configuration that names a communicator, where this NCCL takes one.
    pub(super) fn config(&self, name: &CStr) -> Result<Option<Config>, Error> {
        Ok((self.number()? >= CONFIG_VERSION).then(|| Config::named(name)))
    }
}
