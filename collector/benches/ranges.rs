//! What an NVTX push/pop pair costs the program's thread, as NVTX calls it: through the function pointers that the
//! collector fills in.
//!
//! `cargo bench -p gputrace-collector --bench ranges` prints nanoseconds a pair beside those of two clock reads, for a
//! plain text, a registered string, a new text each time, and PyTorch's operators, whose texts are new each time too. Instructions a pair, clock reads apart, are the difference
//! of two runs under callgrind; `--instructions` runs both and prints it.

use std::ffi::{CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Instant;

use gputrace_collector::InitializeInjectionNvtx2;

/// NVTX's function pointers: modules CORE (1) and CORE2 (5).
static CORE: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 16];
static CORE2: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 16];

unsafe extern "C" fn module_functions(
    module: u32,
    table: *mut *const *mut *const c_void,
    count: *mut u32,
) -> c_int {
    let slots = match module {
        1 => &CORE,
        5 => &CORE2,
        _ => return 0,
    };
    let places: Vec<*mut c_void> = slots.iter().map(|slot| slot.as_ptr().cast()).collect();
    // SAFETY: the tool passes places for both results; the addresses live for ever, as the slots do.
    unsafe {
        *table = Box::leak(places.into_boxed_slice()).as_ptr().cast();
        *count = 16;
    }
    1
}

#[repr(C)]
struct Callbacks {
    size: usize,
    get_module_functions: unsafe extern "C" fn(u32, *mut *const *mut *const c_void, *mut u32) -> c_int,
}

unsafe extern "C" fn export_table(id: u32) -> *const c_void {
    static TABLE: Callbacks = Callbacks {
        size: size_of::<Callbacks>(),
        get_module_functions: module_functions,
    };
    if id == 1 {
        (&raw const TABLE).cast()
    } else {
        std::ptr::null()
    }
}

fn slot<F: Copy>(slots: &[AtomicPtr<c_void>; 16], index: usize) -> F {
    let function = slots[index].load(Ordering::Relaxed);
    assert!(!function.is_null(), "slot {index} is filled");
    // SAFETY: F is the signature that NVTX gives the slot, a function pointer.
    unsafe { std::mem::transmute_copy(&function) }
}

/// nvtxEventAttributes_t with a message only.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    unused: [u32; 7],
    message_type: i32,
    message: *const c_void,
}

struct Nvtx {
    push: extern "C" fn(*const c_char) -> c_int,
    pop: extern "C" fn() -> c_int,
    domain_push: extern "C" fn(*const c_void, *const Attributes) -> c_int,
    domain_pop: extern "C" fn(*const c_void) -> c_int,
    domain: *const c_void,
    registered: *const c_void,
}

fn attach() -> Nvtx {
    // SAFETY: no other thread yet.
    unsafe { std::env::set_var("GPUTRACE_DIR", "/nowhere") };
    // SAFETY: the function above is NVTX's side of the contract.
    assert_eq!(unsafe { InitializeInjectionNvtx2(Some(export_table)) }, 1);
    let create: extern "C" fn(*const c_char) -> *const c_void = slot(&CORE2, 12);
    let register: extern "C" fn(*const c_void, *const c_char) -> *const c_void = slot(&CORE2, 10);
    let domain = create(c"bench".as_ptr());
    Nvtx {
        push: slot(&CORE, 9),
        pop: slot(&CORE, 11),
        domain_push: slot(&CORE2, 4),
        domain_pop: slot(&CORE2, 5),
        domain,
        registered: register(domain, c"forward pass of layer 12".as_ptr()),
    }
}

/// Pairs of one kind. The rings take what fits their budget before a recording begins, 4 MiB: some 80,000 ranges.
fn pairs(nvtx: &Nvtx, what: &str, count: usize, texts: &[CString]) {
    let attributes = Attributes {
        version: 3,
        size: 48,
        unused: [0; 7],
        message_type: 3,
        message: nvtx.registered,
    };
    match what {
        "plain" => {
            for _ in 0..count {
                black_box((nvtx.push)(black_box(c"forward pass of layer 12").as_ptr()));
                black_box((nvtx.pop)());
            }
        }
        "registered" => {
            for _ in 0..count {
                black_box((nvtx.domain_push)(nvtx.domain, black_box(&raw const attributes)));
                black_box((nvtx.domain_pop)(nvtx.domain));
            }
        }
        "new" | "operator" => {
            for text in texts {
                black_box((nvtx.push)(text.as_ptr()));
                black_box((nvtx.pop)());
            }
        }
        _ => {
            for _ in 0..count {
                black_box(gputrace_trace::now());
                black_box(gputrace_trace::now());
            }
        }
    }
}

/// A text of its own for each pair, where the kind has such.
fn texts(what: &str, count: usize) -> Vec<CString> {
    let text = |number: usize| match what {
        "new" => format!("step number {number}"),
        _ => format!(
            "aten::addmm, seq = {number}, op_id = {number}, sizes = [[1024], [512, 4096], [4096, 1024], [], []], \
             input_op_ids = [(0,-1), ({number},0), (7,0), (0,-1), (0,-1)]"
        ),
    };
    let count = if matches!(what, "new" | "operator") {
        count
    } else {
        0
    };
    let texts = (0..count).map(|number| CString::new(text(number)));
    texts.collect::<Result<_, _>>().expect("no zeros")
}

/// Instructions of a run of this program under callgrind.
fn instructions(what: &str, count: usize) -> Option<i64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["--pairs", what, &count.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.trim().parse().ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let nvtx = attach();
    if let Some(place) = arguments.iter().position(|argument| argument == "--pairs") {
        let count = arguments[place + 2].parse().expect("a number");
        pairs(&nvtx, &arguments[place + 1], count, &[]);
        return;
    }
    const COUNT: usize = 10_000;
    // The thread's ring is made, and each text is sent once.
    for what in ["plain", "registered"] {
        pairs(&nvtx, what, 100, &[]);
    }
    let clocks = (0..5)
        .map(|_| time(&nvtx, "clocks", COUNT))
        .fold(f64::MAX, f64::min);
    println!("two clock reads: {clocks:.0} ns");
    for what in ["plain", "registered", "new", "operator"] {
        let pair = (0..2).map(|_| time(&nvtx, what, COUNT)).fold(f64::MAX, f64::min);
        println!(
            "push/pop, {what} text: {pair:.0} ns a pair, {:.0} more than the clocks (50 wanted)",
            pair - clocks
        );
    }
    if arguments.iter().any(|argument| argument == "--instructions") {
        let each = |what| Some((instructions(what, 20_000)? - instructions(what, 10_000)?) as f64 / 10_000.0);
        match each("clocks") {
            Some(clocks) => {
                for what in ["plain", "registered"] {
                    let pair = each(what).unwrap_or(f64::NAN) - clocks;
                    println!(
                        "instructions, {what} text: {pair:.0} a pair beside the clock reads' {clocks:.0}"
                    );
                }
            }
            None => println!("instructions: SKIPPED, valgrind was not found"),
        }
    }
}

/// Nanoseconds a pair.
fn time(nvtx: &Nvtx, what: &str, count: usize) -> f64 {
    let texts = texts(what, count);
    let started = Instant::now();
    pairs(nvtx, what, count, &texts);
    started.elapsed().as_nanos() as f64 / count as f64
}
