//! CUPTI's rules on the stand-in, tried by an ordinary client.

use crate::client;
use crate::stand_in;

use std::ffi::{CStr, c_void};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cudarc::cupti::sys::{
    self, CUpti_ActivityKind as Kind, CUpti_CallbackDomain as Domain, CUpti_CallbackIdResource as Resource,
    CUpti_ResourceData, CUpti_driver_api_trace_cbid_enum as Id, CUptiResult,
};
use cudarc::driver;
use cudarc::nvrtc::Ptx;

use client::{
    BUFFERS, CALLS, Called, RECORDS, REQUESTED, SUCCESS, called, enable, eventually, flush, lock, records,
    subscribe,
};
use stand_in::{PTX, on_the_stand_in, open, scale};

const LAUNCH: u32 = Id::CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel as u32;
const KERNEL: Kind = Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
const DRIVER: Kind = Kind::CUPTI_ACTIVITY_KIND_DRIVER;
/// Where a kernel's record has its times and its correlation id, and a call's its id and correlation id.
const START: usize = 16;
const END: usize = 24;
const KERNEL_CORRELATION: usize = 92;
const CALL_ID: usize = 4;
const CALL_CORRELATION: usize = 32;

/// Launches so many kernels on a stream and waits for them.
fn launch(count: usize) {
    let (context, stream) = open();
    let mut values = stream.clone_htod(&vec![1.0f32; 1 << 12]).expect("memory");
    for _ in 0..count {
        scale(&context, &stream, &mut values, &mut 1.0);
    }
    stream.synchronize().expect("ends");
}

fn calls() -> Vec<Called> {
    lock(&CALLS).clone()
}

#[test]
fn calls_are_called_back_at_both_ends() {
    on_the_stand_in("calls_are_called_back_at_both_ends", &[], || {
        let subscriber = subscribe();
        enable(&[KERNEL, DRIVER]);
        // SAFETY: plain values and a valid place.
        unsafe {
            let domain = Domain::CUPTI_CB_DOMAIN_DRIVER_API;
            assert_eq!(sys::cuptiEnableCallback(1, subscriber, domain, LAUNCH), SUCCESS);
            let mut state = 9;
            assert_eq!(
                sys::cuptiGetCallbackState(&raw mut state, subscriber, domain, LAUNCH),
                SUCCESS
            );
            assert_eq!(state, 1);
            assert_eq!(
                sys::cuptiGetCallbackState(&raw mut state, subscriber, domain, 1),
                SUCCESS
            );
            assert_eq!(state, 0);
            assert_ne!(sys::cuptiEnableCallback(1, subscriber, domain, 100_000), SUCCESS);
        }
        launch(2);
        let calls = calls();
        assert_eq!(calls.len(), 4, "only what was enabled: {calls:?}");
        for pair in calls.chunks(2) {
            let (enter, exit) = (&pair[0], &pair[1]);
            assert_eq!((enter.site, exit.site), (0, 1));
            assert_eq!(
                (enter.name.as_str(), enter.symbol.as_str()),
                ("cuLaunchKernel", "scale")
            );
            assert_eq!(enter.correlation, exit.correlation);
            assert_eq!(
                exit.kept,
                u64::from(enter.correlation) * 3,
                "kept from enter to exit"
            );
            assert_eq!((enter.context, exit.result), (1, Some(0)));
        }
        flush(1);
        // The ids are those of the records.
        let of_kernels: Vec<u32> = records(KERNEL)
            .iter()
            .map(|record| record.u32(KERNEL_CORRELATION))
            .collect();
        assert_eq!(of_kernels, [calls[0].correlation, calls[2].correlation]);
        let of_calls: Vec<u32> = records(DRIVER)
            .iter()
            .filter(|record| record.u32(CALL_ID) == LAUNCH)
            .map(|record| record.u32(CALL_CORRELATION))
            .collect();
        assert_eq!(of_calls, of_kernels);
        // No more after the end of the subscription; a second one is possible then, and never before.
        let mut second = std::ptr::null_mut();
        // SAFETY: a valid place, a function that lives on, a handle of cuptiSubscribe.
        unsafe {
            let again = sys::cuptiSubscribe(&raw mut second, Some(called), std::ptr::null_mut());
            assert_eq!(again, CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
            assert_eq!(sys::cuptiUnsubscribe(subscriber), SUCCESS);
        }
        launch(1);
        assert_eq!(lock(&CALLS).len(), 4);
        subscribe();
    });
}

#[test]
fn arguments_are_those_of_the_call() {
    static SEEN: Mutex<Vec<(u32, u64, u32)>> = Mutex::new(Vec::new());
    unsafe extern "C" fn look(_: *mut c_void, domain: Domain, id: u32, data: *const c_void) {
        if domain as u32 != 1 || id != LAUNCH {
            return;
        }
        // SAFETY: the data and the arguments of this call, by CUPTI's headers.
        unsafe {
            let data = &*data.cast::<sys::CUpti_CallbackData>();
            let launch = &*data.functionParams.cast::<sys::cuLaunchKernel_params>();
            let stream = launch.hStream as u64;
            lock(&SEEN).push((launch.gridDimX, stream, launch.blockDimX));
        }
    }
    on_the_stand_in("arguments_are_those_of_the_call", &[], || {
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: valid places and a function that lives on.
        unsafe {
            assert_eq!(
                sys::cuptiSubscribe(&raw mut subscriber, Some(look), std::ptr::null_mut()),
                SUCCESS
            );
            assert_eq!(
                sys::cuptiEnableDomain(1, subscriber, Domain::CUPTI_CB_DOMAIN_DRIVER_API),
                SUCCESS
            );
        }
        let (context, stream) = open();
        let mut values = stream.clone_htod(&vec![1.0f32; 4096]).expect("memory");
        scale(&context, &stream, &mut values, &mut 2.0);
        stream.synchronize().expect("ends");
        let handle = stream.cu_stream() as u64;
        assert_eq!(*lock(&SEEN), [(4, handle, 1024), (4, handle, 1024)]);
    });
}

#[test]
fn resources_and_waits_are_called_back() {
    static STREAMS: Mutex<Vec<(u32, u64)>> = Mutex::new(Vec::new());
    static MODULES: Mutex<Vec<(u32, bool)>> = Mutex::new(Vec::new());
    static WAITS: Mutex<Vec<(u32, u64)>> = Mutex::new(Vec::new());
    static OTHERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    unsafe extern "C" fn look(_: *mut c_void, domain: Domain, id: u32, data: *const c_void) {
        // SAFETY: each domain's data, by CUPTI's headers.
        unsafe {
            if domain == Domain::CUPTI_CB_DOMAIN_SYNCHRONIZE {
                let data = &*data.cast::<sys::CUpti_SynchronizeData>();
                lock(&WAITS).push((id, data.stream as u64));
                return;
            }
            let data = &*data.cast::<CUpti_ResourceData>();
            const MODULE: u32 = Resource::CUPTI_CBID_RESOURCE_MODULE_LOADED as u32;
            const UNLOAD: u32 = Resource::CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING as u32;
            const CREATED: u32 = Resource::CUPTI_CBID_RESOURCE_STREAM_CREATED as u32;
            const DESTROYED: u32 = Resource::CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING as u32;
            match id {
                CREATED | DESTROYED => {
                    let stream = *data.resourceHandle.stream.as_ref() as u64;
                    lock(&STREAMS).push((id, stream));
                }
                MODULE | UNLOAD => {
                    let module = &*data.resourceDescriptor.cast::<sys::CUpti_ModuleResourceData>();
                    let text = std::slice::from_raw_parts(module.pCubin.cast::<u8>(), module.cubinSize);
                    lock(&MODULES).push((id, text == PTX.as_bytes()));
                }
                _ => lock(&OTHERS).push(id),
            }
        }
    }
    on_the_stand_in("resources_and_waits_are_called_back", &[], || {
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: valid places and a function that lives on.
        unsafe {
            assert_eq!(
                sys::cuptiSubscribe(&raw mut subscriber, Some(look), std::ptr::null_mut()),
                SUCCESS
            );
            for domain in [
                Domain::CUPTI_CB_DOMAIN_RESOURCE,
                Domain::CUPTI_CB_DOMAIN_SYNCHRONIZE,
            ] {
                assert_eq!(sys::cuptiEnableDomain(1, subscriber, domain), SUCCESS);
            }
        }
        let (context, stream) = open();
        let handle = stream.cu_stream() as u64;
        let module = context.load_module(Ptx::from_src(PTX)).expect("the PTX");
        drop(module);
        stream.synchronize().expect("ends");
        context.synchronize().expect("ends");
        drop(stream);
        drop(context);
        assert_eq!(*lock(&MODULES), [(6, true), (7, true)]);
        let streams = lock(&STREAMS).clone();
        // The context's own default stream comes first.
        assert_eq!(streams[1..], [(3, handle), (4, handle)]);
        assert_eq!(streams[0].0, 3);
        let waits = lock(&WAITS).clone();
        assert!(
            waits.contains(&(1, handle)) && waits.contains(&(2, 0)),
            "{waits:?}"
        );
        // cuInit has ended, a context was made, and its last user has gone.
        assert_eq!(*lock(&OTHERS), [5, 1, 2]);
    });
}

#[test]
fn the_profilers_range_is_called_back() {
    on_the_stand_in("the_profilers_range_is_called_back", &[], || {
        let subscriber = subscribe();
        for id in [
            Id::CUPTI_DRIVER_TRACE_CBID_cuProfilerStart,
            Id::CUPTI_DRIVER_TRACE_CBID_cuProfilerStop,
        ] {
            // SAFETY: plain values.
            let result = unsafe {
                sys::cuptiEnableCallback(1, subscriber, Domain::CUPTI_CB_DOMAIN_DRIVER_API, id as u32)
            };
            assert_eq!(result, SUCCESS);
        }
        let (_context, _stream) = open();
        // SAFETY: no arguments.
        unsafe {
            driver::sys::cuProfilerStart().result().expect("started");
            driver::sys::cuProfilerStop().result().expect("stopped");
        }
        let names: Vec<(u32, String)> = calls().into_iter().map(|call| (call.id, call.name)).collect();
        let pair = |id, name: &str| [(id, name.to_owned()), (id, name.to_owned())];
        assert_eq!(
            names,
            [pair(308, "cuProfilerStart"), pair(309, "cuProfilerStop")].concat()
        );
        let mut name = std::ptr::null();
        // SAFETY: a valid place; the text lives on.
        unsafe {
            sys::cuptiGetCallbackName(Domain::CUPTI_CB_DOMAIN_DRIVER_API, 308, &raw mut name);
            assert_eq!(CStr::from_ptr(name), c"cuProfilerStart");
        }
    });
}

#[test]
fn single_calls_are_recorded_without_their_kind() {
    on_the_stand_in("single_calls_are_recorded_without_their_kind", &[], || {
        enable(&[]);
        // SAFETY: a plain value.
        assert_eq!(unsafe { sys::cuptiActivityEnableDriverApi(LAUNCH, 1) }, SUCCESS);
        launch(3);
        flush(1);
        let ids: Vec<u32> = lock(&RECORDS).iter().map(|record| record.u32(CALL_ID)).collect();
        assert_eq!(ids, [LAUNCH; 3]);
        // The kind overrides what was said before it, and a call can be taken out of it.
        lock(&RECORDS).clear();
        // SAFETY: plain values.
        unsafe {
            assert_eq!(sys::cuptiActivityEnable(DRIVER), SUCCESS);
            assert_eq!(sys::cuptiActivityEnableDriverApi(LAUNCH, 0), SUCCESS);
        }
        launch(3);
        flush(1);
        let calls = records(DRIVER);
        assert!(calls.len() > 5 && calls.iter().all(|call| call.u32(CALL_ID) != LAUNCH));
    });
}

#[test]
fn each_thread_has_a_buffer() {
    on_the_stand_in("each_thread_has_a_buffer", &[], || {
        enable(&[DRIVER]);
        launch(0);
        let first = REQUESTED.load(Ordering::Relaxed);
        for _ in 0..3 {
            std::thread::spawn(|| launch(0)).join().expect("ends");
        }
        assert_eq!(REQUESTED.load(Ordering::Relaxed) - first, 3);
    });
}

#[test]
fn before_12_3_threads_share_a_buffer() {
    on_the_stand_in(
        "before_12_3_threads_share_a_buffer",
        &[("SIMGPU_CUPTI", "12.0")],
        || {
            enable(&[DRIVER, KERNEL]);
            launch(1);
            for _ in 0..3 {
                std::thread::spawn(|| launch(1)).join().expect("ends");
            }
            assert_eq!(REQUESTED.load(Ordering::Relaxed), 1);
            let mut value = 0u8;
            let mut size = 1usize;
            let attribute = sys::CUpti_ActivityAttribute::CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER;
            // SAFETY: valid places.
            let result =
                unsafe { sys::cuptiActivityGetAttribute(attribute, &raw mut size, (&raw mut value).cast()) };
            assert_eq!(result, CUptiResult::CUPTI_ERROR_INVALID_PARAMETER);
        },
    );
}

#[test]
fn a_second_registration_takes_the_buffers_over() {
    static OF_OTHERS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    unsafe extern "C" fn other_requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
        // SAFETY: as CUPTI calls it.
        unsafe { client::requested(buffer, size, most) };
    }
    unsafe extern "C" fn other_completed(
        _: driver::sys::CUcontext,
        _: u32,
        buffer: *mut u8,
        _: usize,
        valid: usize,
    ) {
        lock(&OF_OTHERS).push(client::walk(buffer, valid).len());
    }
    on_the_stand_in("a_second_registration_takes_the_buffers_over", &[], || {
        subscribe();
        enable(&[KERNEL, DRIVER]);
        launch(2);
        // SAFETY: functions that live on.
        let result =
            unsafe { sys::cuptiActivityRegisterCallbacks(Some(other_requested), Some(other_completed)) };
        assert_eq!(result, SUCCESS, "accepted, whoever has subscribed");
        flush(1);
        assert_eq!(
            BUFFERS.load(Ordering::Relaxed),
            0,
            "nothing comes to the first client"
        );
        let delivered: usize = lock(&OF_OTHERS).iter().sum();
        assert!(
            delivered > 4,
            "the first client's buffers are completed at the second's: {delivered}"
        );
        enable(&[]);
        launch(1);
        flush(1);
        assert!(BUFFERS.load(Ordering::Relaxed) > 0, "taken back");
    });
}

#[test]
fn a_forced_flush_delivers_what_runs_once_and_without_an_end() {
    on_the_stand_in(
        "a_forced_flush_delivers_what_runs_once_and_without_an_end",
        &[("SIMGPU_SCALE", "100000")],
        || {
            enable(&[KERNEL]);
            let (context, stream) = open();
            let mut values = stream.alloc_zeros::<f32>(1 << 20).expect("memory");
            stream.synchronize().expect("ends");
            // Some 170 ms each.
            for _ in 0..3 {
                scale(&context, &stream, &mut values, &mut 1.0);
            }
            std::thread::sleep(Duration::from_millis(30));
            flush(0);
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(records(KERNEL).len(), 0, "none is done");
            flush(1);
            let running = records(KERNEL);
            assert_eq!(running.len(), 3);
            assert!(running.iter().all(|record| record.u64(END) == 0));
            assert!(running[0].u64(START) > 0, "the first runs");
            assert_eq!(running[2].u64(START), 0, "the last waits");
            stream.synchronize().expect("ends");
            flush(1);
            assert_eq!(records(KERNEL).len(), 3, "not again");
        },
    );
}

#[test]
fn a_wrong_flush_and_kind_are_errors() {
    on_the_stand_in(
        "a_wrong_flush_and_kind_are_errors",
        &[("SIMGPU_CUPTI", "12.3")],
        || {
            // SAFETY: plain values and a valid place.
            unsafe {
                assert_eq!(
                    sys::cuptiActivityFlushAll(0),
                    CUptiResult::CUPTI_ERROR_INVALID_OPERATION
                );
                let kind = Kind::CUPTI_ACTIVITY_KIND_PC_SAMPLING;
                assert_eq!(
                    sys::cuptiActivityEnable(kind),
                    CUptiResult::CUPTI_ERROR_INVALID_KIND
                );
                let mut version = 0;
                assert_eq!(sys::cuptiGetVersion(&raw mut version), SUCCESS);
                assert_eq!(version, 21);
            }
            let started = Instant::now();
            enable(&[DRIVER]);
            launch(1);
            eventually("a record", || {
                flush(0);
                !records(DRIVER).is_empty()
            });
            assert!(started.elapsed() < Duration::from_secs(20));
        },
    );
}
