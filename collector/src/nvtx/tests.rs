//! NVTX's side of the contract, and what becomes of what it is told.

use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::AtomicPtr;

use gputrace_trace::tables::Marker;
use gputrace_trace::{Interner, Table};

use super::attributes::Attributes;
use super::injection::{
    CallbackTable, EXPORT_CALLBACKS, InitializeInjectionNvtx2, MODULE_CORE, MODULE_CORE2,
};
use super::range::PUSH_POP;
use super::*;
use crate::host_events::testing;

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
    let turn = testing::turn();
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
        payload: 0xffff_fffe,
        message_type: 3,
        message: register(domain, c"registered".as_ptr()),
    };
    domain_mark(domain, &raw const attributes);
    std::thread::spawn(move || range_end(id)).join().expect("ends");

    let long = vec![b'n'; 100_000];
    let long = CString::new(long).expect("no zero in it");
    push(long.as_ptr());
    pop();
    push(c"not \xff UTF-8".as_ptr());
    pop();
    push(std::ptr::null());
    pop();
    domain_mark(domain, std::ptr::null());

    let (rows, names) = written(&turn);
    let found: Vec<(&str, u8, u16)> = rows
        .iter()
        .map(|row| (names.get(row.name), row.kind, row.depth))
        .collect();
    let long = long.to_str().expect("letters");
    assert_eq!(
        found,
        [
            ("inner", PUSH_POP, 1),
            ("outer", PUSH_POP, 0),
            ("registered", MARK, 0),
            (long, PUSH_POP, 0),
            ("not \u{fffd} UTF-8", PUSH_POP, 0),
            ("", PUSH_POP, 0),
            ("", MARK, 0),
            ("across threads", START_END, 0)
        ]
    );
    let mark = &rows[2];
    assert_eq!(
        (mark.duration_ns, mark.category, mark.color, mark.payload),
        (None, Some(7), Some(0xff00_ff00), Some(-2.0))
    );
    assert_eq!(
        (mark.payload_type, mark.payload_integer),
        (Some(5), Some((-2i64).cast_unsigned()))
    );
    assert_eq!((names.get(mark.domain), names.get(rows[0].domain)), ("data", ""));
    let (inner, outer) = (&rows[0], &rows[1]);
    let end = |row: &Marker| row.start_ns + row.duration_ns.expect("a range");
    assert!(
        outer.start_ns <= inner.start_ns && end(inner) <= end(outer),
        "one encloses the other"
    );
    assert_eq!(rows[7].thread, outer.thread, "the thread that began it");
}

#[test]
fn pytorchs_operators_and_modules_are_rows_of_their_own() {
    let turn = testing::turn();
    let plain = |text: &'static str| Label {
        text: Text::new(text.as_bytes()),
        ..Label::default()
    };
    let texts = [
        "step 3, op_id = 1",
        "nn.Module: Linear_0",
        "aten::linear, op_id = 2, sizes = [[2, 3], [4, 3], []]",
        "aten::addmm, seq = 5, sizes = [[4], [2, 3], [3, 4]], types = [\"float\", \"float\", \"float\"]",
        "MmBackward0, seq = 5, op_id = 3, fwd_thread = 1",
        "MmBackward0, seq = 5, op_id = 4, fwd_thread = 20000000",
        "forward",
    ];
    for (depth, text) in (0..).zip(texts) {
        assert_eq!(push(0, plain(text)), depth);
    }
    for depth in (0..7).rev() {
        assert_eq!(pop(0), depth);
    }
    // What says more than a text, or in a domain, or begins and ends anywhere, is somebody else's.
    let colored = Label {
        color: Some(7),
        ..plain("aten::mm")
    };
    push(0, colored);
    pop(0);
    let domain = domains::domain_number(domains::create_domain("pytorch test"));
    push(domain, plain("aten::mm"));
    pop(domain);
    end(start(0, plain("aten::mm")));
    let (tables, names) = turn.written();
    let text = |name| names.get(name);
    let markers = &tables.markers;
    let own: Vec<_> = (0..markers.len())
        .map(|row| (text(markers.name[row]), markers.depth[row]))
        .collect();
    assert_eq!(
        own,
        [
            ("forward", 6),
            ("step 3", 0),
            ("aten::mm", 0),
            ("aten::mm", 0),
            ("aten::mm", 0)
        ]
    );
    let operators: Vec<_> = (0..tables.operators.len())
        .map(|row| tables.operators.row(row))
        .collect();
    let found: Vec<_> = operators
        .iter()
        .map(|row| {
            (
                text(row.name),
                row.input_dims.map(text),
                row.input_types.map(text),
                (row.sequence, row.forward_thread, row.number),
            )
        })
        .collect();
    let floats = Some("[\"float\", \"float\", \"float\"]");
    assert_eq!(
        found,
        [
            ("MmBackward0", None, None, (Some(5), Some(0), Some(4))),
            ("MmBackward0", None, None, (Some(5), Some(1), Some(3))),
            (
                "aten::addmm",
                Some("[[4], [2, 3], [3, 4]]"),
                floats,
                (Some(5), None, None)
            ),
            (
                "aten::linear",
                Some("[[2, 3], [4, 3], []]"),
                None,
                (None, None, Some(2))
            ),
        ]
    );
    let frames = &tables.python_frames;
    assert_eq!(
        (frames.len(), text(frames.name[0]), frames.thread[0]),
        (1, "nn.Module: Linear_0", operators[0].thread)
    );
    for inner in &operators {
        assert!(frames.start_ns[0] < inner.start_ns);
        let end = frames.start_ns[0] + frames.duration_ns[0];
        assert!(
            inner.start_ns + inner.duration_ns < end,
            "the module is around it"
        );
    }
}

#[test]
fn functions_of_python_are_frames_whatever_ranges_lie_across_them() {
    let turn = testing::turn();
    let python = domains::domain_number(domains::create_domain("gputrace.python"));
    let say = |domain, text: &str| {
        push(
            domain,
            Label {
                text: Text::new(text.as_bytes()),
                ..Label::default()
            },
        )
    };
    assert_eq!((say(python, "a.py(1): f"), say(0, "nn.Module: Linear_0")), (0, 0));
    assert_eq!(say(python, "a.py(5): g"), 1);
    // The module ends within the function that began in it, as a hook's does.
    assert_eq!((pop(0), pop(python), pop(python)), (0, 1, 0));
    let (tables, names) = turn.written();
    let frames = &tables.python_frames;
    let found: Vec<&str> = frames.name.iter().map(|name| names.get(*name)).collect();
    assert_eq!(found, ["nn.Module: Linear_0", "a.py(5): g", "a.py(1): f"]);
    assert_eq!(tables.markers.len(), 0);
    assert!(frames.start_ns[2] < frames.start_ns[1]);
}

#[test]
fn numbered_operators_take_no_room_for_names() {
    let turn = testing::turn();
    for number in 0..20_000 {
        let text = format!(
            "aten::relu_, seq = {number}, op_id = {number}, sizes = [[8, {}]], input_op_ids = [(7,0)]",
            number % 3
        );
        push(
            0,
            Label {
                text: Text::new(text.as_bytes()),
                ..Label::default()
            },
        );
        pop(0);
    }
    let (tables, names) = turn.written();
    assert_eq!(tables.operators.len(), 20_000);
    assert!(names.len() < 40, "{} names", names.len());
}

/// The rows in the order of this thread's events, with ranges whose two halves came from two threads at the end.
fn written(turn: &testing::Turn) -> (Vec<Marker>, Interner) {
    let (tables, names) = turn.written();
    let markers = &tables.markers;
    let mut found: Vec<Marker> = (0..markers.len()).map(|row| markers.row(row)).collect();
    found.sort_by_key(|row| row.kind == START_END);
    (found, names)
}
