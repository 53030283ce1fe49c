//! The functions that others call, called as they never should: whatever comes in, nothing of it ends the program.
//!
//! One test: the recording of a process begins once.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

// Linked for its exported functions.
use gputrace_collector as _;

const SLOTS: usize = 16;

unsafe extern "C" {
    fn InitializeInjection() -> c_int;
    fn InitializeInjectionNvtx2(table: Option<unsafe extern "C" fn(u32) -> *const c_void>) -> c_int;
    fn InitializeInjectionNvtxExtension(information: *mut c_void) -> c_int;
    static ncclProfiler_v4: Plugin;
    static ncclProfiler_v5: Plugin;
    static ncclProfiler_v6: Plugin;
    static ncclProfiler_v7: Plugin;
}

/// ncclProfiler_vN_t; `init` is cast to what its version has.
#[repr(C)]
struct Plugin {
    name: *const c_char,
    init: *const c_void,
    start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    state: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: constants of the collector.
unsafe impl Sync for Plugin {}

type Init4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type Init = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;

/// NVTX's function pointers, for the core module and the one of domains.
static FUNCTIONS: [[AtomicPtr<c_void>; SLOTS]; 2] =
    [const { [const { AtomicPtr::new(null_mut()) }; SLOTS] }; 2];

unsafe extern "C" fn module(number: u32, table: *mut *const *mut c_void, count: *mut u32) -> c_int {
    let functions = match number {
        1 => &FUNCTIONS[0],
        5 => &FUNCTIONS[1],
        _ => return 0,
    };
    let places: Vec<*mut c_void> = functions.iter().map(|place| place.as_ptr().cast()).collect();
    // SAFETY: the tool passes places for both results. The table lives on, as NVTX's does.
    unsafe {
        *table = places.leak().as_ptr();
        *count = SLOTS as u32;
    }
    1
}

#[repr(C)]
struct CallbackTable {
    size: usize,
    module: unsafe extern "C" fn(u32, *mut *const *mut c_void, *mut u32) -> c_int,
}

unsafe extern "C" fn export(number: u32) -> *const c_void {
    static TABLE: CallbackTable = CallbackTable {
        size: size_of::<CallbackTable>(),
        module,
    };
    if number == 1 {
        (&raw const TABLE).cast()
    } else {
        null()
    }
}

unsafe extern "C" fn export_nothing(_: u32) -> *const c_void {
    null()
}

/// The function that the tool put into a slot.
fn nvtx<F: Copy>(module: usize, slot: usize) -> F {
    let function = FUNCTIONS[module][slot].load(Ordering::Acquire);
    assert!(!function.is_null(), "slot {slot} of module {module} is filled");
    // SAFETY: the caller names the slot's own signature.
    unsafe { std::mem::transmute_copy(&function) }
}

/// Pages of which the last may not be touched; gives the end of those that may.
fn end_of_memory() -> *mut u8 {
    // SAFETY: a fresh mapping of two pages, the second without access.
    unsafe {
        let pages = libc::mmap(
            null_mut(),
            8192,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(pages, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(pages.byte_add(4096), 4096, libc::PROT_NONE), 0);
        pages.byte_add(4096).cast()
    }
}

type OfAttributes<T> = unsafe extern "C" fn(*const c_void) -> T;
type OfDomainAndAttributes<T> = unsafe extern "C" fn(*const c_void, *const c_void) -> T;

fn nvtx_with_anything(worker: u64) {
    let end = end_of_memory();
    let garbage: [*const c_void; 4] = [
        null(),
        std::ptr::without_provenance(usize::MAX),
        std::ptr::without_provenance(0x1234_5678),
        std::ptr::without_provenance(1 << 47),
    ];
    // nvtxEventAttributes_t with sizes and versions that are none, at the end of what may be read.
    for size in [0u16, 4, 8, 16, 47, 48] {
        for version in [0u16, 1, 2, 3, 99, u16::MAX] {
            for kind in [0i32, 1, 2, 3, 4, 99, -1] {
                let bytes = usize::from(size).max(4);
                // SAFETY: so many bytes lie before the end.
                unsafe {
                    let place = end.sub(bytes);
                    place.write_bytes(0, bytes);
                    place.cast::<u16>().write_unaligned(version);
                    place.cast::<u16>().add(1).write_unaligned(size);
                    if bytes == 48 {
                        // The kind of a payload, and of a text that is null.
                        place.add(16).cast::<i32>().write_unaligned(kind);
                        place.add(32).cast::<i32>().write_unaligned(kind);
                        if kind == 3 {
                            // A registered string that was never registered.
                            place
                                .add(40)
                                .cast::<usize>()
                                .write_unaligned(0x5555_5555 + worker as usize);
                        }
                    }
                    let attributes = place.cast::<c_void>().cast_const();
                    nvtx::<OfAttributes<()>>(0, 1)(attributes);
                    nvtx::<OfAttributes<c_int>>(0, 8)(attributes);
                    nvtx::<OfAttributes<u64>>(0, 4)(attributes);
                    for domain in garbage {
                        nvtx::<OfDomainAndAttributes<()>>(1, 1)(domain, attributes);
                        nvtx::<OfDomainAndAttributes<c_int>>(1, 4)(domain, attributes);
                        nvtx::<OfDomainAndAttributes<u64>>(1, 2)(domain, attributes);
                    }
                }
            }
        }
    }
    // SAFETY: null texts, numbers that were never given out, and more pops than pushes: all of which NVTX allows.
    unsafe {
        for slot in [2, 3] {
            nvtx::<OfAttributes<()>>(0, slot)(null());
        }
        for slot in [5, 6] {
            nvtx::<OfAttributes<u64>>(0, slot)(null());
        }
        for slot in [9, 10] {
            nvtx::<OfAttributes<c_int>>(0, slot)(null());
        }
        for id in [0, 1, u64::MAX, 1 << 63, 0xdead_beef] {
            nvtx::<unsafe extern "C" fn(u64)>(0, 7)(id);
            for domain in garbage {
                nvtx::<unsafe extern "C" fn(*const c_void, u64)>(1, 3)(domain, id);
            }
        }
        for _ in 0..2_000 {
            nvtx::<unsafe extern "C" fn() -> c_int>(0, 11)();
            for domain in garbage {
                nvtx::<OfAttributes<c_int>>(1, 5)(domain);
            }
        }
        for slot in [10, 11] {
            for domain in garbage {
                nvtx::<OfDomainAndAttributes<*const c_void>>(1, slot)(domain, null());
            }
        }
        for slot in [12, 13] {
            nvtx::<OfAttributes<*const c_void>>(1, slot)(null());
        }
        // A text without end, as far as anybody would read it; names by the thousand.
        let long = vec![b'x'; 1 << 20];
        let mut long: Vec<c_char> = long.into_iter().map(|byte| byte as c_char).collect();
        long.push(0);
        nvtx::<OfAttributes<c_int>>(0, 9)(long.as_ptr().cast());
        for number in 0..2_000u64 {
            let name = format!("{worker}-{number}\0");
            nvtx::<OfAttributes<*const c_void>>(1, 12)(name.as_ptr().cast());
            nvtx::<OfDomainAndAttributes<*const c_void>>(1, 10)(null(), name.as_ptr().cast());
        }
    }
}

/// A descriptor of more than any version's size.
type Descriptor = [u64; 64];

fn nccl_with_anything(plugin: &Plugin, version: u32, worker: u64) {
    let (mut context, mut mask) = (null_mut(), 0);
    // SAFETY: NCCL's signatures of each version; names may be null, and the numbers be anything.
    unsafe {
        for (nodes, ranks, rank) in [
            (0, 0, 0),
            (-1, -1, -1),
            (1, 2, 1),
            (c_int::MAX, c_int::MAX, c_int::MIN),
        ] {
            let result = if version == 4 {
                std::mem::transmute::<*const c_void, Init4>(plugin.init)(
                    &raw mut context,
                    &raw mut mask,
                    null(),
                    worker,
                    nodes,
                    ranks,
                    rank,
                    null(),
                )
            } else {
                std::mem::transmute::<*const c_void, Init>(plugin.init)(
                    &raw mut context,
                    worker,
                    &raw mut mask,
                    null(),
                    nodes,
                    ranks,
                    rank,
                    null(),
                )
            };
            assert_eq!(result, 0);
        }
        let mut handles = Vec::new();
        for bit in 0..=64u32 {
            // Kinds one by one, those of later versions among them, and at last one that is all of them.
            let kind = 1u64.checked_shl(bit).unwrap_or(u64::MAX);
            // Zeroes: every name and pointer is null. Then numbers where versions have numbers or parents.
            let mut descriptor: Descriptor = [0; 64];
            descriptor[0] = kind;
            let mut handle = null_mut();
            assert_eq!(
                (plugin.start)(context, &raw mut handle, descriptor.as_mut_ptr().cast()),
                0
            );
            handles.push(handle);
            descriptor[2] = u64::MAX;
            assert_eq!(
                (plugin.start)(context, &raw mut handle, descriptor.as_mut_ptr().cast()),
                0
            );
            handles.push(handle);
            // A context that is none.
            assert_eq!(
                (plugin.start)(null_mut(), &raw mut handle, descriptor.as_mut_ptr().cast()),
                0
            );
            handles.push(handle);
        }
        let mut handle = null_mut();
        assert_eq!((plugin.start)(context, &raw mut handle, null_mut()), 0);
        for handle in handles.into_iter().chain([null_mut()]) {
            for state in [-1, 0, 9, 22, 31, 1_000, c_int::MAX] {
                assert_eq!((plugin.state)(handle, state, null_mut()), 0);
            }
            assert_eq!((plugin.stop)(handle), 0);
        }
        assert_eq!((plugin.finalize)(context), 0);
        assert_eq!((plugin.finalize)(null_mut()), 0);
    }
}

#[test]
fn whatever_is_called_with_whatever_ends_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    // SAFETY: before any thread of this test begins; the test harness reads no variable meanwhile.
    unsafe {
        std::env::set_var("GPUTRACE_DIR", folder.path());
        std::env::set_var("GPUTRACE_OPTIONS", "{\"kinds\": 17, nonsense");
        std::env::set_var("GPUTRACE_CONTROL", "/dev/null/nothing");
    }
    // SAFETY: the exported functions, with what no caller should give, twice over.
    unsafe {
        assert_eq!(InitializeInjectionNvtx2(None), 0);
        assert_eq!(InitializeInjectionNvtx2(Some(export_nothing)), 0);
        assert_eq!(InitializeInjectionNvtx2(Some(export)), 1);
        assert_eq!(InitializeInjectionNvtx2(Some(export)), 1);
        InitializeInjectionNvtxExtension(null_mut());
        let mut module = [0u64; 16];
        InitializeInjectionNvtxExtension(module.as_mut_ptr().cast());
        InitializeInjection();
        InitializeInjection();
    }
    std::thread::scope(|scope| {
        for worker in 0..8 {
            scope.spawn(move || {
                nvtx_with_anything(worker);
                // SAFETY: constants of the collector.
                let plugins = unsafe {
                    [
                        (&ncclProfiler_v4, 4),
                        (&ncclProfiler_v5, 5),
                        (&ncclProfiler_v6, 6),
                        (&ncclProfiler_v7, 7),
                    ]
                };
                for (plugin, version) in plugins {
                    for _ in 0..50 {
                        nccl_with_anything(plugin, version, worker);
                    }
                }
            });
        }
    });
    let recorded = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(recorded, 1, "the recording of this process");
}
