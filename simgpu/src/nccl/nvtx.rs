//! NVTX ranges around NCCL's calls, for whatever tool NVTX_INJECTION64_PATH names: domain "NCCL", registered names, and
//! payloads that say communicator, bytes and so on. NCCL_NVTX_DISABLE=1 turns them off.
//!
//! After NVTX 3.1's headers: the tool's `InitializeInjectionNvtx2` gets a function that hands out export tables and
//! fills the slots of those functions that it wants; `InitializeInjectionNvtxExtension`, if it has one, does the same
//! for the payload extension.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// NVTX_ETID_CALLBACKS and _VERSIONINFO; NVTX_CB_MODULE_CORE and _CORE2 with their numbers of callbacks.
const EXPORT_CALLBACKS: u32 = 1;
const EXPORT_VERSION: u32 = 3;
const MODULE_CORE: u32 = 1;
const CORE_SIZE: usize = 16;
const MODULE_CORE2: u32 = 5;
const CORE2_SIZE: usize = 16;
/// NVTX_CBID_CORE2_*.
const DOMAIN_RANGE_PUSH_EX: usize = 4;
const DOMAIN_RANGE_POP: usize = 5;
const DOMAIN_REGISTER_STRING_A: usize = 10;
const DOMAIN_CREATE_A: usize = 12;
/// NVTX_EXT_PAYLOAD_MODULEID and _COMPATID, and NVTX3EXT_CBID_* of what is used.
const PAYLOAD_MODULE: u16 = 2;
const PAYLOAD_COMPATIBILITY: u16 = 0x0104;
const PAYLOAD_SLOTS: usize = 16;
const SCHEMA_REGISTER: usize = 0;
const RANGE_POP_PAYLOAD: usize = 4;
/// A slot that nobody filled (NVTX_EXTENSION_DISABLED and _FRESH).
const NOT_FILLED: [usize; 2] = [0, 1];
/// NVTX_PAYLOAD_TYPE_EXT, and where NCCL's schema ids begin (NVTX_PAYLOAD_SCHEMA_ID_STATIC_START).
const PAYLOAD_TYPE_EXTENDED: i32 = 0xDFBD_0009_u32.cast_signed();
const FIRST_SCHEMA: u64 = 1 << 24;

type Slots<const N: usize> = [AtomicPtr<c_void>; N];

static CORE: Slots<CORE_SIZE> = [const { AtomicPtr::new(null_mut()) }; CORE_SIZE];
static CORE2: Slots<CORE2_SIZE> = [const { AtomicPtr::new(null_mut()) }; CORE2_SIZE];
static PAYLOAD: Slots<PAYLOAD_SLOTS> = [const { AtomicPtr::new(null_mut()) }; PAYLOAD_SLOTS];

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

/// The addresses of slots, as the tool gets them.
struct FunctionTable<const N: usize>([*const AtomicPtr<c_void>; N]);

// SAFETY: addresses of atomics that live for ever.
unsafe impl<const N: usize> Sync for FunctionTable<N> {}

const fn addresses<const N: usize>(slots: &'static Slots<N>) -> FunctionTable<N> {
    let mut table = [null::<AtomicPtr<c_void>>(); N];
    let mut index = 1; // Slot 0 is no function.
    while index < N {
        table[index] = &raw const slots[index];
        index += 1;
    }
    FunctionTable(table)
}

static CORE_TABLE: FunctionTable<CORE_SIZE> = addresses(&CORE);
static CORE2_TABLE: FunctionTable<CORE2_SIZE> = addresses(&CORE2);

extern "C" fn get_module_functions(
    module: u32,
    table: *mut *const *const AtomicPtr<c_void>,
    size: *mut u32,
) -> c_int {
    let (functions, count) = match module {
        MODULE_CORE => (CORE_TABLE.0.as_ptr(), CORE_SIZE),
        MODULE_CORE2 => (CORE2_TABLE.0.as_ptr(), CORE2_SIZE),
        _ => return 0,
    };
    if table.is_null() {
        return 0;
    }
    // SAFETY: the tool passes places for both results; `size` may be null.
    unsafe {
        *table = functions;
        if let Some(size) = size.as_mut() {
            *size = count as u32;
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

/// nvtxExtModuleSegment_t and nvtxExtModuleInfo_t.
#[repr(C)]
struct Segment {
    id: usize,
    slots: usize,
    functions: *mut usize,
}

#[repr(C)]
struct ModuleInfo {
    version: u16,
    size: u16,
    module: u16,
    compatibility: u16,
    segments: usize,
    first_segment: *mut Segment,
    get_export_function: Option<extern "C" fn(u32) -> isize>,
    information: *const c_void,
}

/// Size and alignment of C's types by NVTX's numbers (CHAR to CHAR32), after the list's length and an entry's size.
static TYPE_SIZES: [[u16; 2]; 28] = [
    [28, 4],
    [1, 1],
    [1, 1],
    [2, 2],
    [2, 2],
    [4, 4],
    [4, 4],
    [8, 8],
    [8, 8],
    [8, 8],
    [8, 8],
    [1, 1],
    [1, 1],
    [2, 2],
    [2, 2],
    [4, 4],
    [4, 4],
    [8, 8],
    [8, 8],
    [4, 4],
    [8, 8],
    [16, 16],
    [8, 8],
    [8, 8],
    [4, 4],
    [1, 1],
    [2, 2],
    [4, 4],
];

/// nvtxEventAttributes_t, version 3.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    payload_count: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

/// nvtxPayloadData_t.
#[repr(C)]
struct PayloadData {
    schema: u64,
    bytes: usize,
    payload: *const c_void,
}

/// nvtxPayloadSchemaEntry_t and nvtxPayloadSchemaAttr_t.
#[repr(C)]
struct SchemaEntry {
    flags: u64,
    kind: u64,
    name: *const c_char,
    description: *const c_char,
    detail: u64,
    offset: u64,
    semantics: *const c_void,
    reserved: *const c_void,
}

#[repr(C)]
struct SchemaAttributes {
    mask: u64,
    name: *const c_char,
    kind: u64,
    flags: u64,
    entries: *const SchemaEntry,
    entry_count: usize,
    payload_bytes: usize,
    alignment: usize,
    id: u64,
    extension: *const c_void,
}

/// A call with its schema number (of NCCL's list), and its fields: 64-bit ones first, then 32-bit ones.
struct Call {
    name: &'static CStr,
    schema: u64,
    long: &'static [&'static CStr],
    short: &'static [&'static CStr],
}

/// Of calls without a payload.
const NO_SCHEMA: u64 = u64::MAX;
const HASH: &CStr = c"NCCL communicator ID";
const BYTES: &CStr = c"Message size [bytes]";
const ROOT: &CStr = c"Root";
const PEER: &CStr = c"Peer rank";
const REDUCTION: &CStr = c"Reduction operation";
const RANKS: &CStr = c"No. of ranks";
const RANK: &CStr = c"Rank";
const DEVICE: &CStr = c"CUDA device";

macro_rules! calls {
    ($($call:ident = $name:literal, $schema:expr, [$($long:expr),*], [$($short:expr),*];)*) => {
        /// The calls that have ranges with payloads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Named {
            $(#[doc = concat!("`", stringify!($call), "`.")] $call,)*
        }

        const CALLS: &[Call] = &[
            $(Call { name: $name, schema: $schema, long: &[$($long),*], short: &[$($short),*] },)*
        ];
    };
}

calls! {
    InitRank = c"ncclCommInitRank", 0, [HASH], [RANKS, RANK, DEVICE];
    InitRankConfig = c"ncclCommInitRankConfig", 11, [HASH], [RANKS, RANK, DEVICE];
    InitRankScalable = c"ncclCommInitRankScalable", 12, [HASH], [RANKS, RANK, DEVICE];
    Split = c"ncclCommSplit", 13, [HASH, c"Parent NCCL communicator ID"], [RANKS, RANK, DEVICE, c"Color", c"Key"];
    Finalize = c"ncclCommFinalize", 14, [HASH], [];
    Destroy = c"ncclCommDestroy", 2, [HASH], [RANKS, RANK, DEVICE];
    Abort = c"ncclCommAbort", 3, [HASH], [RANKS, RANK, DEVICE];
    AllGather = c"ncclAllGather", 4, [HASH, BYTES], [];
    AllReduce = c"ncclAllReduce", 5, [HASH, BYTES], [REDUCTION];
    Broadcast = c"ncclBroadcast", 6, [HASH, BYTES], [ROOT];
    ReduceScatter = c"ncclReduceScatter", 7, [HASH, BYTES], [REDUCTION];
    Reduce = c"ncclReduce", 8, [HASH, BYTES], [ROOT, REDUCTION];
    Send = c"ncclSend", 9, [HASH, BYTES], [PEER];
    Recv = c"ncclRecv", 10, [HASH, BYTES], [PEER];
    AlltoAll = c"ncclAlltoAll", 16, [HASH, BYTES], [];
    Gather = c"ncclGather", 17, [HASH, BYTES], [ROOT];
    Scatter = c"ncclScatter", 18, [HASH, BYTES], [ROOT];
    GroupStart = c"ncclGroupStart", NO_SCHEMA, [], [];
    GroupEnd = c"ncclGroupEnd", NO_SCHEMA, [], [];
}

/// The domain and the names, as the tool knows them.
struct Tool {
    domain: usize,
    names: Vec<usize>,
}

fn slot(slots: &[AtomicPtr<c_void>], index: usize) -> Option<*mut c_void> {
    let function = slots[index].load(Ordering::Acquire);
    (!NOT_FILLED.contains(&(function as usize))).then_some(function)
}

/// Loads the tool, once.
fn tool() -> Option<&'static Tool> {
    static TOOL: OnceLock<Option<Tool>> = OnceLock::new();
    TOOL.get_or_init(|| {
        if std::env::var("NCCL_NVTX_DISABLE").is_ok_and(|value| value == "1") {
            return None;
        }
        let path = std::env::var_os("NVTX_INJECTION64_PATH")?;
        let path = CString::new(path.into_encoded_bytes()).ok()?;
        // SAFETY: the user names the tool to be loaded; that is the variable's purpose.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        if library.is_null() {
            return None;
        }
        attach(library)
    })
    .as_ref()
}

fn attach(library: *mut c_void) -> Option<Tool> {
    type Initialise = extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: `library` is open.
    let symbol = unsafe { libc::dlsym(library, c"InitializeInjectionNvtx2".as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: NVTX defines this function with this signature.
    let initialise = unsafe { std::mem::transmute::<*mut c_void, Initialise>(symbol) };
    if initialise(export_table) == 0 {
        return None;
    }
    extend(library);
    type Create = extern "C" fn(*const c_char) -> usize;
    type Register = extern "C" fn(usize, *const c_char) -> usize;
    // SAFETY: the tool fills these slots with functions of these signatures, as NVTX defines them.
    let (create, register) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Create>(slot(&CORE2, DOMAIN_CREATE_A)?),
            std::mem::transmute::<*mut c_void, Register>(slot(&CORE2, DOMAIN_REGISTER_STRING_A)?),
        )
    };
    let domain = create(c"NCCL".as_ptr());
    register_schemas(domain);
    Some(Tool {
        domain,
        names: CALLS
            .iter()
            .map(|call| register(domain, call.name.as_ptr()))
            .collect(),
    })
}

/// Offers the payload extension to a tool that wants it.
fn extend(library: *mut c_void) {
    // SAFETY: `library` is open.
    let symbol = unsafe { libc::dlsym(library, c"InitializeInjectionNvtxExtension".as_ptr()) };
    if symbol.is_null() {
        return;
    }
    // SAFETY: NVTX defines this function with this signature.
    let initialise =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut ModuleInfo) -> c_int>(symbol) };
    let mut functions = [0usize; PAYLOAD_SLOTS];
    let mut segment = Segment {
        id: 0,
        slots: PAYLOAD_SLOTS,
        functions: functions.as_mut_ptr(),
    };
    let mut information = ModuleInfo {
        version: 3,
        size: size_of::<ModuleInfo>() as u16,
        module: PAYLOAD_MODULE,
        compatibility: PAYLOAD_COMPATIBILITY,
        segments: 1,
        first_segment: &raw mut segment,
        get_export_function: None,
        information: TYPE_SIZES.as_ptr().cast(),
    };
    if initialise(&raw mut information) != 0 {
        for (slot, function) in PAYLOAD.iter().zip(functions) {
            slot.store(function as *mut c_void, Ordering::Release);
        }
    }
}

fn payload_bytes(call: &Call) -> usize {
    (8 * call.long.len() + 4 * call.short.len()).next_multiple_of(8)
}

fn register_schemas(domain: usize) {
    /// NVTX_PAYLOAD_ENTRY_TYPE_UINT64 and _INT; NVTX_PAYLOAD_SCHEMA_TYPE_STATIC; the attributes that are set.
    const UINT64: u64 = 18;
    const INT: u64 = 5;
    const STATIC: u64 = 1;
    const SET: u64 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8;
    let Some(function) = slot(&PAYLOAD, SCHEMA_REGISTER) else {
        return;
    };
    type Register = extern "C" fn(usize, *const SchemaAttributes) -> u64;
    // SAFETY: the tool fills this slot with a function of this signature, as NVTX defines it.
    let register = unsafe { std::mem::transmute::<*mut c_void, Register>(function) };
    for call in CALLS.iter().filter(|call| call.schema != NO_SCHEMA) {
        let long = call.long.iter().map(|name| (UINT64, name));
        let short = call.short.iter().map(|name| (INT, name));
        let mut offset = 0;
        let entries: Vec<SchemaEntry> = long
            .chain(short)
            .map(|(kind, name)| {
                let entry = SchemaEntry {
                    flags: 0,
                    kind,
                    name: name.as_ptr(),
                    description: null(),
                    detail: 0,
                    offset,
                    semantics: null(),
                    reserved: null(),
                };
                offset += if kind == UINT64 { 8 } else { 4 };
                entry
            })
            .collect();
        let attributes = SchemaAttributes {
            mask: SET,
            name: call.name.as_ptr(),
            kind: STATIC,
            flags: 0,
            entries: entries.as_ptr(),
            entry_count: entries.len(),
            payload_bytes: payload_bytes(call),
            alignment: 0,
            id: FIRST_SCHEMA + call.schema,
            extension: null(),
        };
        register(domain, &raw const attributes);
    }
}

/// The payload of a call, as C lays it out.
fn encode(call: &Call, long: &[u64], short: &[c_int]) -> Vec<u64> {
    let mut bytes: Vec<u8> = long.iter().flat_map(|value| value.to_le_bytes()).collect();
    bytes.extend(short.iter().flat_map(|value| value.to_le_bytes()));
    bytes.resize(payload_bytes(call), 0);
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    bytes.as_chunks().0.iter().map(word).collect()
}

/// A range of this thread around a call; ends when dropped.
pub(super) struct Range {
    named: Named,
    open: bool,
    /// What is known at the end only.
    last: Vec<u64>,
}

/// The tool is loaded now, if there is one: NCCL does that in its first call.
pub(super) fn initialise() {
    tool();
}

impl Range {
    /// Begins a range; `values` gives the payload's fields, 64-bit ones and 32-bit ones, if a tool listens.
    pub(super) fn new(named: Named, values: impl FnOnce() -> (Vec<u64>, Vec<c_int>)) -> Self {
        let mut range = Self {
            named,
            open: false,
            last: Vec::new(),
        };
        let Some(tool) = tool() else { return range };
        let Some(function) = slot(&CORE2, DOMAIN_RANGE_PUSH_EX) else {
            return range;
        };
        let call = &CALLS[named as usize];
        let (long, short) = values();
        let payload = encode(call, &long, &short);
        let data = PayloadData {
            schema: FIRST_SCHEMA.wrapping_add(call.schema),
            bytes: 8 * payload.len(),
            payload: payload.as_ptr().cast(),
        };
        // A call whose payload comes at its end has none here.
        let known = !long.is_empty();
        let attributes = Attributes {
            version: 3,
            size: size_of::<Attributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: if known { PAYLOAD_TYPE_EXTENDED } else { 0 },
            payload_count: c_int::from(known),
            payload: if known { &raw const data as u64 } else { 0 },
            message_type: 3, // NVTX_MESSAGE_TYPE_REGISTERED
            message: tool.names[named as usize] as *const c_void,
        };
        type Push = extern "C" fn(usize, *const Attributes) -> c_int;
        // SAFETY: the tool fills this slot with a function of this signature, as NVTX defines it.
        let push = unsafe { std::mem::transmute::<*mut c_void, Push>(function) };
        push(tool.domain, &raw const attributes);
        range.open = true;
        range
    }

    /// Gives the payload's fields when they are known at the end only.
    pub(super) fn tell(&mut self, long: &[u64], short: &[c_int]) {
        if self.open {
            self.last = encode(&CALLS[self.named as usize], long, short);
        }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let Some(tool) = tool().filter(|_| self.open) else {
            return;
        };
        if !self.last.is_empty()
            && let Some(function) = slot(&PAYLOAD, RANGE_POP_PAYLOAD)
        {
            let data = PayloadData {
                schema: FIRST_SCHEMA + CALLS[self.named as usize].schema,
                bytes: 8 * self.last.len(),
                payload: self.last.as_ptr().cast(),
            };
            type Pop = extern "C" fn(usize, *const PayloadData, usize) -> c_int;
            // SAFETY: the tool fills this slot with a function of this signature, as NVTX defines it.
            let pop = unsafe { std::mem::transmute::<*mut c_void, Pop>(function) };
            pop(tool.domain, &raw const data, 1);
        } else if let Some(function) = slot(&CORE2, DOMAIN_RANGE_POP) {
            // SAFETY: as above.
            let pop = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(usize) -> c_int>(function) };
            pop(tool.domain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_the_layout_of_nccls_structs() {
        let sizes = |named: Named| payload_bytes(&CALLS[named as usize]);
        assert_eq!(sizes(Named::AllGather), 16);
        assert_eq!(sizes(Named::AllReduce), 24);
        assert_eq!(sizes(Named::Reduce), 24);
        assert_eq!(sizes(Named::InitRank), 24);
        assert_eq!(sizes(Named::Split), 40);
        let encoded = encode(&CALLS[Named::Reduce as usize], &[7, 8], &[1, -2]);
        assert_eq!(encoded, [7, 8, 0xffff_fffe_0000_0001]);
        assert_eq!(size_of::<Attributes>(), 48);
    }
}
