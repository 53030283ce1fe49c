//! What goes wrong with the stand-in's CUPTI when it is asked to.

use crate::client;
use crate::schedule;
use crate::stand_in;
use crate::test_again;

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use cudarc::cupti::sys::{
    self, CUpti_ActivityKind as Kind, CUpti_CallbackDomain as Domain, CUpti_CallbackIdState as State,
    CUptiResult,
};

use client::{BUFFERS, CALLS, RECORDS, SUCCESS, enable, eventually, flush, lock, records, subscribe};
use stand_in::{on_the_stand_in, open, scale};

const KERNEL: Kind = Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
const DRIVER: Kind = Kind::CUPTI_ACTIVITY_KIND_DRIVER;
const START: usize = 16;
const END: usize = 24;
const CORRELATION: usize = 92;

/// Runs a test's body with a fault.
fn with(fault: &str, name: &str, body: impl FnOnce()) {
    on_the_stand_in(name, &[("SIMGPU_FAULTS", fault)], body);
}

fn launch(count: usize) {
    let (context, stream) = open();
    let mut values = stream.clone_htod(&vec![1.0f32; 1 << 12]).expect("memory");
    for _ in 0..count {
        scale(&context, &stream, &mut values, &mut 1.0);
    }
    stream.synchronize().expect("ends");
}

#[test]
fn dropped_records_are_counted() {
    with("drop:4", "dropped_records_are_counted", || {
        enable(&[KERNEL]);
        launch(20);
        flush(1);
        assert_eq!(records(KERNEL).len(), 15);
        let mut dropped = 0;
        // SAFETY: a valid place.
        unsafe {
            sys::cuptiActivityGetNumDroppedRecords(null_mut(), 0, &raw mut dropped);
            assert_eq!(dropped, 5);
            sys::cuptiActivityGetNumDroppedRecords(null_mut(), 0, &raw mut dropped);
        }
        assert_eq!(dropped, 0, "since the last call");
    });
}

#[test]
fn some_kernels_have_no_end_and_some_no_times() {
    with(
        "incomplete:5,zero-timestamps:7",
        "some_kernels_have_no_end_and_some_no_times",
        || {
            enable(&[KERNEL]);
            launch(34);
            flush(1);
            let kernels = records(KERNEL);
            let count = |is: &dyn Fn(u64, u64) -> bool| {
                kernels
                    .iter()
                    .filter(|kernel| is(kernel.u64(START), kernel.u64(END)))
                    .count()
            };
            assert_eq!(count(&|start, end| start == 0 && end == 0), 4);
            assert_eq!(count(&|start, end| start > 0 && end == 0), 6);
            assert_eq!(count(&|start, end| start > 0 && end > start), 24);
        },
    );
}

#[test]
fn records_come_out_of_order() {
    with("out-of-order:4", "records_come_out_of_order", || {
        enable(&[KERNEL]);
        launch(10);
        flush(1);
        let ids: Vec<u32> = records(KERNEL)
            .iter()
            .map(|kernel| kernel.u32(CORRELATION))
            .collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert_eq!(ids.len(), 10);
        let expected = [3, 2, 1, 0, 7, 6, 5, 4, 9, 8].map(|place: usize| sorted[place]);
        assert_eq!(ids, expected);
    });
}

#[test]
fn kinds_and_bytes_that_no_header_names() {
    with(
        "unknown-kinds:3,longer-records:16",
        "kinds_and_bytes_that_no_header_names",
        || {
            enable(&[KERNEL]);
            launch(9);
            flush(1);
            let all = lock(&RECORDS).clone();
            let kinds: Vec<u32> = all.iter().map(client::Record::kind).collect();
            assert_eq!(kinds, [10, 10, 10, 77, 10, 10, 10, 77, 10, 10, 10, 77]);
            assert!(
                all.iter()
                    .all(|record| record.0.len() == if record.is(KERNEL) { 248 + 16 } else { 72 + 16 })
            );
        },
    );
}

#[test]
fn some_buffers_never_come_back() {
    with("lost-buffers:2", "some_buffers_never_come_back", || {
        enable(&[KERNEL]);
        for _ in 0..4 {
            launch(3);
            flush(1);
        }
        assert_eq!((BUFFERS.load(Ordering::Relaxed), records(KERNEL).len()), (2, 6));
    });
}

#[test]
fn buffers_come_back_late() {
    with("late:250", "buffers_come_back_late", || {
        enable(&[KERNEL]);
        launch(3);
        let flushed = Instant::now();
        flush(1);
        assert_eq!(BUFFERS.load(Ordering::Relaxed), 0, "after the flush has returned");
        eventually("delivered", || BUFFERS.load(Ordering::Relaxed) == 1);
        assert!(flushed.elapsed() >= Duration::from_millis(250));
    });
}

#[test]
fn what_runs_holds_the_rest_back() {
    on_the_stand_in(
        "what_runs_holds_the_rest_back",
        &[("SIMGPU_FAULTS", "held-back"), ("SIMGPU_SCALE", "100000")],
        || {
            enable(&[KERNEL]);
            launch(3);
            let (context, stream) = open();
            let mut values = stream.alloc_zeros::<f32>(1 << 20).expect("memory");
            scale(&context, &stream, &mut values, &mut 1.0);
            flush(0);
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(records(KERNEL).len(), 0);
            stream.synchronize().expect("ends");
            flush(0);
            eventually("delivered", || records(KERNEL).len() == 4);
        },
    );
}

/// The threads on which buffers came back.
static THREADS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

unsafe extern "C" fn note_thread(
    _: cudarc::driver::sys::CUcontext,
    _: u32,
    buffer: *mut u8,
    _: usize,
    valid: usize,
) {
    // SAFETY: no preconditions.
    lock(&THREADS).insert(unsafe { libc::gettid() });
    let records = client::walk(buffer, valid);
    lock(&RECORDS).extend(records);
}

fn on_threads(fault: &str, name: &str) {
    with(fault, name, || {
        // SAFETY: functions that live on, plain values.
        unsafe {
            sys::cuptiActivityRegisterCallbacks(Some(client::requested), Some(note_thread));
            assert_eq!(sys::cuptiActivityEnable(KERNEL), SUCCESS);
        }
        for _ in 0..5 {
            launch(2);
            flush(1);
        }
        assert_eq!(records(KERNEL).len(), 10);
        assert_eq!(lock(&THREADS).len(), 5, "a thread a buffer");
    });
}

#[test]
fn buffers_come_back_on_many_threads() {
    on_threads("foreign-threads", "buffers_come_back_on_many_threads");
}

#[test]
fn buffers_come_back_on_threads_that_end() {
    on_threads("dying-threads", "buffers_come_back_on_threads_that_end");
}

/// Runs a body that must hang: in a child of its own, which is ended when it has said so.
fn hangs(name: &str, said: &str, body: impl FnOnce()) {
    if std::env::var_os("TEST_HANGS").is_some() {
        with("deadlocks", name, body);
        return;
    }
    schedule::waits();
    let child = test_again(name)
        .env("TEST_HANGS", "1")
        .output()
        .expect("the test starts again");
    let text = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success() && text.contains(said), "{text}");
}

/// Ends this process after a while, as if somebody had lost patience.
fn patience() {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(6));
        std::process::abort();
    });
}

#[test]
fn two_flushes_at_the_same_time_block() {
    hangs(
        "two_flushes_at_the_same_time_block",
        "while another thread is in it",
        || {
            /// Takes its time, so that the second flush comes while the first one waits.
            unsafe extern "C" fn slow(
                _: cudarc::driver::sys::CUcontext,
                _: u32,
                _: *mut u8,
                _: usize,
                _: usize,
            ) {
                std::thread::sleep(Duration::from_millis(20));
            }
            patience();
            // SAFETY: functions that live on, plain values.
            unsafe {
                sys::cuptiActivityRegisterCallbacks(Some(client::requested), Some(slow));
                sys::cuptiActivityEnable(DRIVER);
            }
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    std::thread::spawn(|| {
                        for _ in 0..10_000 {
                            // So that there is a buffer to hand over.
                            launch(1);
                            flush(0);
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().expect("never");
            }
        },
    );
}

#[test]
fn a_flush_in_a_buffer_callback_blocks() {
    hangs(
        "a_flush_in_a_buffer_callback_blocks",
        "in a callback that may not flush",
        || {
            unsafe extern "C" fn flushes(
                _: cudarc::driver::sys::CUcontext,
                _: u32,
                _: *mut u8,
                _: usize,
                _: usize,
            ) {
                flush(0);
            }
            patience();
            // SAFETY: functions that live on, plain values.
            unsafe {
                sys::cuptiActivityRegisterCallbacks(Some(client::requested), Some(flushes));
                sys::cuptiActivityEnable(DRIVER);
            }
            launch(1);
            flush(1);
            std::thread::sleep(Duration::from_secs(10));
        },
    );
}

#[test]
fn a_lock_that_is_held_over_calls_and_requests_blocks() {
    // The client's fault, not one of the stand-in's: it holds its own lock while it calls CUPTI, which asks for a
    // buffer under its own. Real programs hang there, too.
    static POOL: Mutex<()> = Mutex::new(());
    static BOTH: Barrier = Barrier::new(2);
    unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
        BOTH.wait();
        let _pool = lock(&POOL);
        // SAFETY: as CUPTI calls it.
        unsafe { client::requested(buffer, size, most) };
    }
    let name = "a_lock_that_is_held_over_calls_and_requests_blocks";
    if std::env::var_os("TEST_HANGS").is_none() {
        schedule::waits();
        let child = test_again(name)
            .env("TEST_HANGS", "1")
            .output()
            .expect("the test starts again");
        assert!(!child.status.success(), "it never ends by itself");
        return;
    }
    on_the_stand_in(name, &[], || {
        patience();
        // SAFETY: functions that live on, plain values.
        unsafe {
            sys::cuptiActivityRegisterCallbacks(Some(request), Some(client::completed));
            sys::cuptiActivityEnable(DRIVER);
        }
        let calls = std::thread::spawn(|| launch(1));
        let pool = lock(&POOL);
        BOTH.wait();
        let mut dropped = 0;
        // SAFETY: a valid place.
        unsafe { sys::cuptiActivityGetNumDroppedRecords(null_mut(), 0, &raw mut dropped) };
        drop(pool);
        calls.join().expect("never");
    });
}

#[test]
fn a_fatal_error_is_told_and_ends_cupti() {
    static TOLD: Mutex<Vec<(u32, u32, String)>> = Mutex::new(Vec::new());
    unsafe extern "C" fn look(_: *mut c_void, domain: Domain, id: u32, data: *const c_void) {
        // SAFETY: the state domain's data: a result and a text.
        let (result, text) = unsafe {
            let text = data.cast::<*const std::ffi::c_char>().add(1).read();
            (
                data.cast::<u32>().read(),
                CStr::from_ptr(text).to_string_lossy().into_owned(),
            )
        };
        assert_eq!(domain as u32, Domain::CUPTI_CB_DOMAIN_STATE as u32);
        lock(&TOLD).push((id, result, text));
    }
    with("fatal-error:30", "a_fatal_error_is_told_and_ends_cupti", || {
        let mut subscriber = null_mut();
        // SAFETY: a function that lives on, valid places.
        unsafe {
            assert_eq!(
                sys::cuptiSubscribe(&raw mut subscriber, Some(look), null_mut()),
                SUCCESS
            );
            assert_eq!(
                sys::cuptiEnableDomain(1, subscriber, Domain::CUPTI_CB_DOMAIN_STATE),
                SUCCESS
            );
        }
        enable(&[DRIVER]);
        launch(50);
        let told = lock(&TOLD).clone();
        let fatal = State::CUPTI_CBID_STATE_FATAL_ERROR as u32;
        assert_eq!(
            told.iter()
                .map(|(id, result, _)| (*id, *result))
                .collect::<Vec<_>>(),
            [(fatal, 999)]
        );
        assert!(told[0].2.contains("simulated"));
        // SAFETY: plain values.
        unsafe {
            assert_eq!(
                sys::cuptiActivityFlushAll(1),
                CUptiResult::CUPTI_ERROR_NOT_INITIALIZED
            );
            assert_eq!(
                sys::cuptiActivityEnable(KERNEL),
                CUptiResult::CUPTI_ERROR_NOT_INITIALIZED
            );
        }
        // The program itself goes on.
        launch(1);
        assert_eq!(BUFFERS.load(Ordering::Relaxed), 0);
    });
}

/// Whether dlsym finds a function of CUPTI.
fn has(name: &CStr) -> bool {
    // SAFETY: opens what is loaded already, and only asks.
    unsafe {
        let library = libc::dlopen(c"libcupti.so".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        !libc::dlsym(library, name.as_ptr()).is_null()
    }
}

#[test]
fn functions_are_missing() {
    with("missing-symbols", "functions_are_missing", || {
        let (_context, _stream) = open();
        for name in [
            c"cuptiSubscribe",
            c"cuptiActivityEnable",
            c"cuptiActivityFlushAll",
            c"cuptiEnableCallback",
        ] {
            assert!(has(name), "{name:?}");
        }
        for name in [
            c"cuptiActivitySetAttribute",
            c"cuptiGetCallbackName",
            c"cuptiActivityPushExternalCorrelationId",
        ] {
            assert!(!has(name), "{name:?}");
        }
        subscribe();
        enable(&[KERNEL]);
        launch(2);
        flush(1);
        assert_eq!(records(KERNEL).len(), 2, "what is there works");
        assert!(lock(&CALLS).is_empty());
    });
}

#[test]
fn older_versions_lack_newer_functions() {
    let name = "older_versions_lack_newer_functions";
    on_the_stand_in(name, &[("SIMGPU_CUPTI", "12.4")], || {
        let (_context, _stream) = open();
        assert!(has(c"cuptiActivityEnable") && has(c"cuptiActivitySetAttribute"));
        assert!(!has(c"cuptiActivityEnableDriverApi") && !has(c"cuptiActivityGetStructSize"));
    });
}

#[test]
fn a_null_buffer_ends_an_old_cupti() {
    unsafe extern "C" fn refuse(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
        // SAFETY: CUPTI's places for the answer.
        unsafe {
            *buffer = null_mut();
            *size = 0;
            *most = 0;
        }
    }
    let name = "a_null_buffer_ends_an_old_cupti";
    let version = |version: &str| {
        test_again(name)
            .env("TEST_VERSION", version)
            .output()
            .expect("the test starts again")
            .status
            .success()
    };
    match std::env::var("TEST_VERSION") {
        Err(_) => assert_eq!(["12.8", "12.9"].map(version), [false, true]),
        Ok(version) => on_the_stand_in(name, &[("SIMGPU_CUPTI", &version)], || {
            // SAFETY: functions that live on, plain values.
            unsafe {
                sys::cuptiActivityRegisterCallbacks(Some(refuse), Some(client::completed));
                sys::cuptiActivityEnable(DRIVER);
            }
            launch(1);
            let mut dropped = 0;
            // SAFETY: a valid place.
            unsafe { sys::cuptiActivityGetNumDroppedRecords(null_mut(), 0, &raw mut dropped) };
            assert!(dropped > 5);
        }),
    }
}

#[test]
fn the_clock_steps() {
    with("clock-step:7000000000@150", "the_clock_steps", || {
        let stamp = || {
            let mut stamp = 0;
            // SAFETY: a valid place.
            unsafe { sys::cuptiGetTimestamp(&raw mut stamp) };
            stamp
        };
        enable(&[KERNEL, DRIVER]);
        let before = stamp();
        launch(1);
        std::thread::sleep(Duration::from_millis(200));
        launch(1);
        assert!(stamp() > before + 7_000_000_000);
        flush(1);
        let kernels = records(KERNEL);
        let apart = kernels[1].u64(START) - kernels[0].u64(END);
        assert!((7_100_000_000..30_000_000_000).contains(&apart), "{apart}");
        let calls = records(DRIVER);
        assert!(calls.last().expect("calls").u64(8) - calls[0].u64(8) > 7_000_000_000);
    });
}
