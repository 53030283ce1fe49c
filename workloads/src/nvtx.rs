//! A small NVTX v3 client: ranges in the default domain, for whatever tool NVTX_INJECTION64_PATH names.
//!
//! After nvtx3/nvtxDetail/nvtxTypes.h (NVTX 3.1): the tool's `InitializeInjectionNvtx2` gets a function that hands out
//! export tables, asks it for the addresses of our function pointers, and fills in those it wants.
//! Without a tool a range costs one atomic load.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// NVTX_ETID_CALLBACKS and NVTX_ETID_VERSIONINFO.
const EXPORT_CALLBACKS: u32 = 1;
const EXPORT_VERSION: u32 = 3;
/// NVTX_CB_MODULE_CORE, and how many callbacks it has (NVTX_CBID_CORE_SIZE).
const MODULE_CORE: u32 = 1;
const CORE_SIZE: usize = 16;
/// NVTX_CBID_CORE_RangePushA and _RangePop.
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

/// Our function pointers, null until a tool fills them in.
static FUNCTIONS: [AtomicPtr<c_void>; CORE_SIZE] = [const { AtomicPtr::new(null_mut()) }; CORE_SIZE];

#[repr(C)]
struct CallbackTable {
    size: usize,
    get_module_functions: extern "C" fn(u32, *mut *const *const AtomicPtr<c_void>, *mut u32) -> c_int,
}

#[repr(C)]
struct VersionTable {
    size: usize,
    version: u32,
    reserved: u32,
    set_tool_version: extern "C" fn(u32),
}

/// The addresses of [`FUNCTIONS`], as the tool gets them.
struct FunctionTable([*const AtomicPtr<c_void>; CORE_SIZE]);

// SAFETY: holds addresses of atomics that live for ever.
unsafe impl Sync for FunctionTable {}

static TABLE: FunctionTable = {
    let mut table = [null::<AtomicPtr<c_void>>(); CORE_SIZE];
    let mut index = 1; // Slot 0 is NVTX_CBID_CORE_INVALID.
    while index < CORE_SIZE {
        table[index] = &raw const FUNCTIONS[index];
        index += 1;
    }
    FunctionTable(table)
};

extern "C" fn get_module_functions(
    module: u32,
    table: *mut *const *const AtomicPtr<c_void>,
    size: *mut u32,
) -> c_int {
    if module != MODULE_CORE || table.is_null() {
        return 0;
    }
    // SAFETY: the tool passes places for both results; `size` may be null.
    unsafe {
        *table = TABLE.0.as_ptr();
        if let Some(size) = size.as_mut() {
            *size = CORE_SIZE as u32;
        }
    }
    1
}

extern "C" fn set_tool_version(_version: u32) {}

static CALLBACKS: CallbackTable = CallbackTable {
    size: size_of::<CallbackTable>(),
    get_module_functions,
};
static VERSION: VersionTable = VersionTable {
    size: size_of::<VersionTable>(),
    version: 3,
    reserved: 0,
    set_tool_version,
};

extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        EXPORT_CALLBACKS => (&raw const CALLBACKS).cast(),
        EXPORT_VERSION => (&raw const VERSION).cast(),
        _ => null(),
    }
}

/// Loads the tool, once.
fn attach() {
    static ATTACHED: OnceLock<()> = OnceLock::new();
    ATTACHED.get_or_init(|| {
        let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH") else {
            return;
        };
        let Ok(path) = CString::new(path.into_encoded_bytes()) else {
            return;
        };
        // SAFETY: the user names the tool to be loaded; that is the variable's purpose.
        let tool = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        if tool.is_null() {
            return;
        }
        // SAFETY: `tool` is open.
        let symbol = unsafe { libc::dlsym(tool, c"InitializeInjectionNvtx2".as_ptr()) };
        if symbol.is_null() {
            return;
        }
        type Initialise = extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
        // SAFETY: NVTX defines this function with this signature.
        let initialise = unsafe { std::mem::transmute::<*mut c_void, Initialise>(symbol) };
        if initialise(export_table) == 0 {
            for function in &FUNCTIONS {
                function.store(null_mut(), Ordering::Release);
            }
        }
    });
}

/// A push/pop range of this thread; ends when dropped.
pub(crate) struct Range;

impl Range {
    /// Begins a range.
    pub(crate) fn new(name: &str) -> Self {
        attach();
        let push = FUNCTIONS[RANGE_PUSH_A].load(Ordering::Acquire);
        if !push.is_null()
            && let Ok(name) = CString::new(name)
        {
            // SAFETY: the tool filled the slot with an `int (*)(const char*)`, as NVTX defines it.
            let push =
                unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*const c_char) -> c_int>(push) };
            push(name.as_ptr());
        }
        Self
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let pop = FUNCTIONS[RANGE_POP].load(Ordering::Acquire);
        if !pop.is_null() {
            // SAFETY: the tool filled the slot with an `int (*)(void)`, as NVTX defines it.
            let pop = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(pop) };
            pop();
        }
    }
}
