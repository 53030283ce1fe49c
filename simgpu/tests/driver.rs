//! CUDA's rules on the stand-in, tried by an ordinary CUDA program.

use crate::{schedule, stand_in};

use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUresult;
use cudarc::nvrtc::Ptx;

use stand_in::{PTX, code, on_the_stand_in, open, scale};

#[test]
fn a_wait_is_for_the_recording_made_before_it() {
    on_the_stand_in("a_wait_is_for_the_recording_made_before_it", &[], || {
        let (context, first) = open();
        let second = context.new_stream().expect("a stream");
        let event = context.new_event(None).expect("an event");
        let mut values = first.clone_htod(&vec![1.0f32; 1 << 20]).expect("memory");
        scale(&context, &first, &mut values, &mut 3.0);
        event.record(&first).expect("recorded");
        second.wait(&event).expect("waits");
        // Recorded again behind its own wait: a stream that waited for the event instead of its recording would never end.
        event.record(&second).expect("recorded");
        let host = second.clone_dtoh(&values).expect("copied");
        second.synchronize().expect("ends");
        assert!(
            host.iter().all(|value| *value == 3.0),
            "the copy came after the kernel"
        );
    });
}

#[test]
fn an_upload_from_pageable_memory_is_taken_at_once() {
    on_the_stand_in("an_upload_from_pageable_memory_is_taken_at_once", &[], || {
        let (_context, stream) = open();
        let mut source = vec![7.0f32; 4096];
        let mut values = stream.alloc_zeros::<f32>(4096).expect("memory");
        stream.memcpy_htod(&source, &mut values).expect("copied");
        source.fill(-1.0);
        assert!(
            stream
                .clone_dtoh(&values)
                .expect("copied")
                .iter()
                .all(|value| *value == 7.0)
        );
    });
}

#[test]
fn arguments_are_copied_at_the_launch() {
    on_the_stand_in("arguments_are_copied_at_the_launch", &[], || {
        let (context, stream) = open();
        let mut values = stream.clone_htod(&vec![1.0f32; 1 << 20]).expect("memory");
        let mut factor = 2.0;
        // The first launch keeps the stream busy, so that the second is still to come when its argument changes.
        scale(&context, &stream, &mut values, &mut factor);
        scale(&context, &stream, &mut values, &mut factor);
        factor = 100.0;
        assert!(
            factor > 2.0
                && stream
                    .clone_dtoh(&values)
                    .expect("copied")
                    .iter()
                    .all(|value| *value == 4.0)
        );
    });
}

#[test]
fn operations_take_their_modelled_time() {
    schedule::alone();
    on_the_stand_in("operations_take_their_modelled_time", &[], || {
        let (context, stream) = open();
        let mut values = stream.alloc_zeros::<f32>(6 << 20).expect("memory");
        stream.synchronize().expect("ends");
        // 6 Mi values read and written are 50 MB: 10.5 ms at 4.8 GB/s (an H200's bandwidth, 1000 times slower).
        let started = Instant::now();
        scale(&context, &stream, &mut values, &mut 1.5);
        let launched = started.elapsed();
        stream.synchronize().expect("ends");
        let ended = started.elapsed();
        assert!(ended >= Duration::from_micros(10_400), "{ended:?}");
        assert!(
            launched < ended / 2,
            "the launch does not wait: {launched:?} of {ended:?}"
        );
    });
}

#[test]
fn memory_has_an_end() {
    on_the_stand_in("memory_has_an_end", &[("SIMGPU_FAULTS", "oom")], || {
        let (_context, stream) = open();
        let first = stream.alloc_zeros::<u8>(900 << 10).expect("fits into a mebibyte");
        assert_eq!(
            code(stream.alloc_zeros::<u8>(200 << 10)),
            Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        );
        drop(first);
        stream.synchronize().expect("ends");
        stream.alloc_zeros::<u8>(900 << 10).expect("fits again");
    });
}

#[test]
fn wrong_names_and_handles_are_errors() {
    on_the_stand_in("wrong_names_and_handles_are_errors", &[], || {
        let (context, _stream) = open();
        let module = context.load_module(Ptx::from_src(PTX)).expect("the PTX");
        assert_eq!(
            code(module.load_function("no_such_kernel")),
            Some(CUresult::CUDA_ERROR_NOT_FOUND)
        );
        let unknown = ".version 8.1\n.target sm_80\n.visible .entry mystery()\n{ ret; }";
        let module = context.load_module(Ptx::from_src(unknown)).expect("the PTX");
        assert_eq!(
            code(module.load_function("mystery")),
            Some(CUresult::CUDA_ERROR_NOT_FOUND)
        );
        assert_eq!(
            code(context.load_module(Ptx::from_src("no PTX"))),
            Some(CUresult::CUDA_ERROR_INVALID_IMAGE)
        );
        // SAFETY: the stand-in checks handles and addresses, which is what is tested.
        unsafe {
            use cudarc::driver::sys;
            assert_eq!(
                sys::cuStreamSynchronize(0x1234 as sys::CUstream),
                CUresult::CUDA_ERROR_INVALID_HANDLE
            );
            assert_eq!(sys::cuMemFree_v2(0xdead_0000), CUresult::CUDA_ERROR_INVALID_VALUE);
            assert_eq!(
                sys::cuMemsetD8_v2(0xdead_0000, 0, 16),
                CUresult::CUDA_ERROR_INVALID_VALUE
            );
        }
        assert_eq!(
            code(CudaContext::new(99)),
            Some(CUresult::CUDA_ERROR_INVALID_DEVICE)
        );
    });
}
