//! NVTX: the tool's side of the C interface (nvtx3/nvtxDetail/nvtxTypes.h, NVTX 3.1), called on the program's threads.
//!
//! A push reads the clock and keeps the text on the thread's own stack; a pop reads the clock and hands one finished
//! range to the writer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gputrace_trace::{TimeNs, now};

use crate::cost;
use crate::host_events::{self, HostEvent, Range, thread_id};
use crate::session;

/// NVTX_ETID_CALLBACKS; NVTX_CB_MODULE_CORE and _CORE2.
const EXPORT_CALLBACKS: u32 = 1;
const MODULE_CORE: u32 = 1;
const MODULE_CORE2: u32 = 5;
/// Range kinds of the markers table.
const PUSH_POP: u8 = 0;
const START_END: u8 = 1;
const MARK: u8 = 2;
/// Ranges that one thread may have pushed, and started ranges that may be open: against programs that never pop.
const MOST_OPEN: usize = 4096;
/// NVTX_NO_PUSH_POP_TRACKING.
const NOT_TRACKED: c_int = -2;

/// nvtxEventAttributes_t, version 2 and 3.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: [u8; 8],
    message_type: i32,
    message: *const c_void,
}

/// A registered string; programs get its address as a handle.
struct Registered(String);

/// Tables of ours that grow with the program's domains and open ranges.
struct Books {
    domains: Vec<String>,
    started: HashMap<u64, Open>,
}

struct Open {
    start: TimeNs,
    domain: u32,
    text: Text,
}

/// What a range or mark says of itself.
#[derive(Default)]
struct Text {
    name: String,
    category: Option<u32>,
    color: Option<u32>,
    payload: Option<f64>,
}

static BOOKS: Mutex<Option<Books>> = Mutex::new(None);
static OPEN_PUSHES: AtomicU64 = AtomicU64::new(0);
static NEXT_RANGE: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STACK: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

fn books() -> MutexGuard<'static, Option<Books>> {
    let mut books = BOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    books.get_or_insert_with(|| Books {
        domains: vec![String::new()],
        started: HashMap::new(),
    });
    books
}

/// The name of a domain's number; number 0 is the default domain, whose name is empty.
pub(crate) fn domain_name(domain: u32) -> String {
    books()
        .as_ref()
        .and_then(|books| books.domains.get(domain as usize).cloned())
        .unwrap_or_default()
}

/// How many ranges are begun and not ended.
pub(crate) fn open_ranges() -> u64 {
    OPEN_PUSHES.load(Ordering::Relaxed) + books().as_ref().map_or(0, |books| books.started.len() as u64)
}

fn c_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: NVTX's contract is a zero-terminated text.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// wchar_t is 32 bits on Linux.
fn wide_text(mut text: *const u32) -> String {
    let mut result = String::new();
    if text.is_null() {
        return result;
    }
    loop {
        // SAFETY: NVTX's contract is a text that ends in a zero, which was not passed yet.
        let character = unsafe { text.read_unaligned() };
        if character == 0 {
            return result;
        }
        result.push(char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER));
        text = text.wrapping_add(1);
    }
}

fn attributes_text(attributes: *const Attributes) -> Text {
    // SAFETY: null, or the program's attributes by NVTX's contract.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else {
        return Text::default();
    };
    let name = match attributes.message_type {
        1 => c_text(attributes.message.cast()),
        2 => wide_text(attributes.message.cast()),
        // SAFETY: a handle that we gave out in `register_string`; those are never freed.
        3 => unsafe { attributes.message.cast::<Registered>().as_ref() }
            .map_or_else(String::new, |text| text.0.clone()),
        _ => String::new(),
    };
    let bytes = attributes.payload;
    let low = [bytes[0], bytes[1], bytes[2], bytes[3]];
    let payload = match attributes.payload_type {
        1 => Some(u64::from_le_bytes(bytes) as f64),
        2 => Some(i64::from_le_bytes(bytes) as f64),
        3 => Some(f64::from_le_bytes(bytes)),
        4 => Some(f64::from(u32::from_le_bytes(low))),
        5 => Some(f64::from(i32::from_le_bytes(low))),
        6 => Some(f64::from(f32::from_le_bytes(low))),
        _ => None,
    };
    Text {
        name,
        category: (attributes.category != 0).then_some(attributes.category),
        color: (attributes.color_type == 1).then_some(attributes.color),
        payload,
    }
}

/// Domain handles are numbers plus one, as pointers; null is the default domain.
fn domain_number(handle: *const c_void) -> u32 {
    (handle as usize).saturating_sub(1) as u32
}

fn plain(name: String) -> Text {
    Text {
        name,
        ..Text::default()
    }
}

/// Runs a callback's body; a panic stays here, and a forked child does nothing.
fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    let _measured = cost::enter(cost::Callback::Nvtx);
    if session::is_dead() {
        return otherwise;
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn push(domain: u32, text: Text) -> c_int {
    let depth = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        if stack.len() >= MOST_OPEN {
            return NOT_TRACKED;
        }
        OPEN_PUSHES.fetch_add(1, Ordering::Relaxed);
        let depth = stack.iter().filter(|open| open.domain == domain).count();
        stack.push(Open {
            start: now(),
            domain,
            text,
        });
        c_int::try_from(depth).unwrap_or(NOT_TRACKED)
    });
    depth.unwrap_or(NOT_TRACKED)
}

fn pop(domain: u32) -> c_int {
    let end = now();
    let popped = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        let place = stack.iter().rposition(|open| open.domain == domain)?;
        let open = stack.remove(place);
        let depth = stack.iter().filter(|other| other.domain == domain).count();
        Some((open, depth))
    });
    let Ok(Some((open, depth))) = popped else {
        return NOT_TRACKED;
    };
    OPEN_PUSHES.fetch_sub(1, Ordering::Relaxed);
    emit(
        open,
        Some(end),
        PUSH_POP,
        u16::try_from(depth).unwrap_or(u16::MAX),
    );
    c_int::try_from(depth).unwrap_or(NOT_TRACKED)
}

fn emit(open: Open, end: Option<TimeNs>, kind: u8, depth: u16) {
    host_events::push(HostEvent::Range(Range {
        start: open.start,
        end,
        name: open.text.name,
        domain: open.domain,
        thread: thread_id(),
        kind,
        depth,
        category: open.text.category,
        color: open.text.color,
        payload: open.text.payload,
    }));
}

fn mark(domain: u32, text: Text) {
    emit(
        Open {
            start: now(),
            domain,
            text,
        },
        None,
        MARK,
        0,
    );
}

fn start(domain: u32, text: Text) -> u64 {
    let id = NEXT_RANGE.fetch_add(1, Ordering::Relaxed);
    if let Some(books) = books().as_mut()
        && books.started.len() < MOST_OPEN
    {
        books.started.insert(
            id,
            Open {
                start: now(),
                domain,
                text,
            },
        );
    }
    id
}

fn end(id: u64) {
    let moment = now();
    let open = books().as_mut().and_then(|books| books.started.remove(&id));
    if let Some(open) = open {
        emit(open, Some(moment), START_END, 0);
    }
}

fn create_domain(name: String) -> *const c_void {
    let mut books = books();
    let Some(books) = books.as_mut() else {
        return std::ptr::null();
    };
    let number = books
        .domains
        .iter()
        .position(|known| *known == name && !name.is_empty())
        .unwrap_or_else(|| {
            books.domains.push(name);
            books.domains.len() - 1
        });
    (number + 1) as *const c_void
}

fn register_string(text: String) -> *const c_void {
    // Kept for ever: the program holds the handle.
    std::ptr::from_ref::<Registered>(Box::leak(Box::new(Registered(text)))).cast()
}

mod callbacks {
    //! One function a slot, with NVTX's signatures.

    use super::{
        Attributes, attributes_text, c_char, c_int, c_text, c_void, create_domain, domain_number, end,
        guarded, mark, plain, pop, push, register_string, start, wide_text,
    };

    pub(super) extern "C" fn mark_ex(attributes: *const Attributes) {
        guarded((), || mark(0, attributes_text(attributes)));
    }
    pub(super) extern "C" fn mark_a(text: *const c_char) {
        guarded((), || mark(0, plain(c_text(text))));
    }
    pub(super) extern "C" fn mark_w(text: *const u32) {
        guarded((), || mark(0, plain(wide_text(text))));
    }
    pub(super) extern "C" fn range_start_ex(attributes: *const Attributes) -> u64 {
        guarded(0, || start(0, attributes_text(attributes)))
    }
    pub(super) extern "C" fn range_start_a(text: *const c_char) -> u64 {
        guarded(0, || start(0, plain(c_text(text))))
    }
    pub(super) extern "C" fn range_start_w(text: *const u32) -> u64 {
        guarded(0, || start(0, plain(wide_text(text))))
    }
    pub(super) extern "C" fn range_end(id: u64) {
        guarded((), || end(id));
    }
    pub(super) extern "C" fn push_ex(attributes: *const Attributes) -> c_int {
        guarded(-2, || push(0, attributes_text(attributes)))
    }
    pub(super) extern "C" fn push_a(text: *const c_char) -> c_int {
        guarded(-2, || push(0, plain(c_text(text))))
    }
    pub(super) extern "C" fn push_w(text: *const u32) -> c_int {
        guarded(-2, || push(0, plain(wide_text(text))))
    }
    pub(super) extern "C" fn pop_default() -> c_int {
        guarded(-2, || pop(0))
    }
    pub(super) extern "C" fn domain_mark_ex(domain: *const c_void, attributes: *const Attributes) {
        guarded((), || mark(domain_number(domain), attributes_text(attributes)));
    }
    pub(super) extern "C" fn domain_start_ex(domain: *const c_void, attributes: *const Attributes) -> u64 {
        guarded(0, || start(domain_number(domain), attributes_text(attributes)))
    }
    pub(super) extern "C" fn domain_end(_domain: *const c_void, id: u64) {
        guarded((), || end(id));
    }
    pub(super) extern "C" fn domain_push_ex(domain: *const c_void, attributes: *const Attributes) -> c_int {
        guarded(-2, || push(domain_number(domain), attributes_text(attributes)))
    }
    pub(super) extern "C" fn domain_pop(domain: *const c_void) -> c_int {
        guarded(-2, || pop(domain_number(domain)))
    }
    pub(super) extern "C" fn domain_register_a(_domain: *const c_void, text: *const c_char) -> *const c_void {
        guarded(std::ptr::null(), || register_string(c_text(text)))
    }
    pub(super) extern "C" fn domain_register_w(_domain: *const c_void, text: *const u32) -> *const c_void {
        guarded(std::ptr::null(), || register_string(wide_text(text)))
    }
    pub(super) extern "C" fn domain_create_a(name: *const c_char) -> *const c_void {
        guarded(std::ptr::null(), || create_domain(c_text(name)))
    }
    pub(super) extern "C" fn domain_create_w(name: *const u32) -> *const c_void {
        guarded(std::ptr::null(), || create_domain(wide_text(name)))
    }
}

/// The slots of NVTX_CBID_CORE_* that we fill.
fn core_functions() -> [(usize, *const c_void); 11] {
    [
        (1, callbacks::mark_ex as *const c_void),
        (2, callbacks::mark_a as *const c_void),
        (3, callbacks::mark_w as *const c_void),
        (4, callbacks::range_start_ex as *const c_void),
        (5, callbacks::range_start_a as *const c_void),
        (6, callbacks::range_start_w as *const c_void),
        (7, callbacks::range_end as *const c_void),
        (8, callbacks::push_ex as *const c_void),
        (9, callbacks::push_a as *const c_void),
        (10, callbacks::push_w as *const c_void),
        (11, callbacks::pop_default as *const c_void),
    ]
}

/// The slots of NVTX_CBID_CORE2_* that we fill.
fn core2_functions() -> [(usize, *const c_void); 9] {
    [
        (1, callbacks::domain_mark_ex as *const c_void),
        (2, callbacks::domain_start_ex as *const c_void),
        (3, callbacks::domain_end as *const c_void),
        (4, callbacks::domain_push_ex as *const c_void),
        (5, callbacks::domain_pop as *const c_void),
        (10, callbacks::domain_register_a as *const c_void),
        (11, callbacks::domain_register_w as *const c_void),
        (12, callbacks::domain_create_a as *const c_void),
        (13, callbacks::domain_create_w as *const c_void),
    ]
}

type GetModuleFunctions = unsafe extern "C" fn(u32, *mut *const *mut *const c_void, *mut u32) -> c_int;

/// nvtxExportTableCallbacks_t.
#[repr(C)]
struct CallbackTable {
    size: usize,
    get_module_functions: Option<GetModuleFunctions>,
}

/// Called by NVTX at a program's first NVTX call, when NVTX_INJECTION64_PATH names this library.
///
/// # Safety
/// `get_export_table` is NVTX's own function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    get_export_table: Option<unsafe extern "C" fn(u32) -> *const c_void>,
) -> c_int {
    // Without a recording to write to, NVTX stays as cheap as it is without a tool.
    if std::env::var_os("GPUTRACE_DIR").is_none() {
        return 0;
    }
    let Some(get_export_table) = get_export_table else {
        return 0;
    };
    // SAFETY: NVTX's function, and a table that it defines.
    let table = unsafe {
        get_export_table(EXPORT_CALLBACKS)
            .cast::<CallbackTable>()
            .as_ref()
    };
    let Some(get_module_functions) = table.and_then(|table| table.get_module_functions) else {
        return 0;
    };
    let fill = |module: u32, functions: &[(usize, *const c_void)]| {
        let (mut slots, mut count) = (std::ptr::null(), 0);
        // SAFETY: valid places for both results.
        let known = unsafe { get_module_functions(module, &raw mut slots, &raw mut count) } != 0;
        if !known || slots.is_null() {
            return false;
        }
        for &(slot, function) in functions {
            if slot < count as usize {
                // SAFETY: `slots` has `count` entries, each null or the address of one of NVTX's function pointers.
                unsafe {
                    let place = *slots.add(slot);
                    if !place.is_null() {
                        *place = function;
                    }
                }
            }
        }
        true
    };
    let core = fill(MODULE_CORE, &core_functions());
    // Programs with a small NVTX client may have no domains.
    fill(MODULE_CORE2, &core2_functions());
    c_int::from(core)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicPtr;

    use super::*;

    /// NVTX's side: function pointers by slot, and the tables that hand out their addresses.
    static CORE: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 16];
    static CORE2: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 16];

    unsafe extern "C" fn module_functions(
        module: u32,
        table: *mut *const *mut *const c_void,
        count: *mut u32,
    ) -> c_int {
        let functions = match module {
            MODULE_CORE => &CORE,
            MODULE_CORE2 => &CORE2,
            _ => return 0,
        };
        let addresses: Vec<*mut *const c_void> = functions
            .iter()
            .map(|function| function.as_ptr().cast())
            .collect();
        // SAFETY: the tool passes places for both results; the addresses live for ever, as the functions do.
        unsafe {
            *table = Box::leak(addresses.into_boxed_slice()).as_ptr();
            *count = 16;
        }
        1
    }

    unsafe extern "C" fn export_table(id: u32) -> *const c_void {
        static TABLE: CallbackTable = CallbackTable {
            size: size_of::<CallbackTable>(),
            get_module_functions: Some(module_functions),
        };
        if id == EXPORT_CALLBACKS {
            (&raw const TABLE).cast()
        } else {
            std::ptr::null()
        }
    }

    fn slot<F: Copy>(functions: &[AtomicPtr<c_void>; 16], index: usize) -> F {
        let function = functions[index].load(Ordering::Relaxed);
        assert!(!function.is_null(), "slot {index} is filled");
        // SAFETY: F is the signature that NVTX gives the slot, a function pointer.
        unsafe { std::mem::transmute_copy(&function) }
    }

    #[test]
    fn ranges_marks_and_domains_arrive_as_nvtx_defines_them() {
        // SAFETY: no other thread of this test program reads the environment.
        unsafe { std::env::set_var("GPUTRACE_DIR", "/nowhere") };
        // SAFETY: the function above is NVTX's side of the contract.
        assert_eq!(unsafe { InitializeInjectionNvtx2(Some(export_table)) }, 1);
        let push: extern "C" fn(*const c_char) -> c_int = slot(&CORE, 9);
        let pop: extern "C" fn() -> c_int = slot(&CORE, 11);
        let range_start: extern "C" fn(*const c_char) -> u64 = slot(&CORE, 5);
        let range_end: extern "C" fn(u64) = slot(&CORE, 7);
        let domain_create: extern "C" fn(*const c_char) -> *const c_void = slot(&CORE2, 12);
        let register: extern "C" fn(*const c_void, *const c_char) -> *const c_void = slot(&CORE2, 10);
        let domain_mark: extern "C" fn(*const c_void, *const Attributes) = slot(&CORE2, 1);

        assert_eq!((push(c"outer".as_ptr()), push(c"inner".as_ptr())), (0, 1));
        assert_eq!((pop(), pop()), (1, 0));
        assert_eq!(pop(), NOT_TRACKED, "nothing is pushed any more");
        let id = range_start(c"across threads".as_ptr());
        let domain = domain_create(c"data".as_ptr());
        let attributes = Attributes {
            version: 3,
            size: 48,
            category: 7,
            color_type: 1,
            color: 0xff00_ff00,
            payload_type: 5,
            reserved: 0,
            payload: [0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0],
            message_type: 3,
            message: register(domain, c"registered".as_ptr()),
        };
        domain_mark(domain, &raw const attributes);
        std::thread::spawn(move || range_end(id)).join().expect("ends");

        let (events, lost) = host_events::take();
        assert_eq!(lost, 0);
        let ranges: Vec<&Range> = events
            .iter()
            .filter_map(|event| {
                if let HostEvent::Range(range) = event {
                    Some(range)
                } else {
                    None
                }
            })
            .collect();
        let found: Vec<(&str, u8, u16)> = ranges
            .iter()
            .map(|range| (range.name.as_str(), range.kind, range.depth))
            .collect();
        assert_eq!(
            found,
            [
                ("inner", PUSH_POP, 1),
                ("outer", PUSH_POP, 0),
                ("registered", MARK, 0),
                ("across threads", START_END, 0)
            ]
        );
        let mark = ranges[2];
        assert_eq!(
            (mark.end, mark.category, mark.color, mark.payload),
            (None, Some(7), Some(0xff00_ff00), Some(-2.0))
        );
        assert_eq!(
            (domain_name(mark.domain), domain_name(ranges[0].domain)),
            ("data".to_owned(), String::new())
        );
        assert!(
            ranges[1].start <= ranges[0].start && ranges[0].end <= ranges[1].end,
            "one encloses the other"
        );
    }
}
