//! What the stand-in's CUPTI records of memory, modules, waits and kernels, read by the headers' own layouts.

use crate::client;
use crate::stand_in;

use std::mem::offset_of;

use cudarc::cupti::sys::{
    self, CUpti_ActivityAPI as Api, CUpti_ActivityCudaEvent2 as EventRecorded, CUpti_ActivityJit2 as Jit,
    CUpti_ActivityKernel13 as Kernel, CUpti_ActivityKind as Kind, CUpti_ActivityMemory4 as Memory,
    CUpti_ActivityMemory4__bindgen_ty_1 as PoolConfig, CUpti_ActivityMemoryPool3 as Pool,
    CUpti_ActivityModule as Module, CUpti_ActivityStream as Stream, CUpti_ActivitySynchronization2 as Wait,
};
use cudarc::driver::sys as driver;
use cudarc::driver::{LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use client::{Record, SUCCESS, enable, flush, lock, records};
use stand_in::{PTX, on_the_stand_in, open, scale};

/// The call that a record belongs to.
fn name_of_call(correlation: u32) -> String {
    let calls = records(Kind::CUPTI_ACTIVITY_KIND_DRIVER);
    let of = |call: &&Record| call.u32(offset_of!(Api, correlationId)) == correlation;
    let call = calls.iter().find(of).expect("its call is recorded");
    let mut name = std::ptr::null();
    let domain = sys::CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API;
    // SAFETY: a valid place; the text lives on.
    unsafe {
        assert_eq!(
            sys::cuptiGetCallbackName(domain, call.u32(offset_of!(Api, cbid)), &raw mut name),
            SUCCESS
        );
        std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

#[test]
fn allocations_and_pools_are_recorded() {
    on_the_stand_in("allocations_and_pools_are_recorded", &[], || {
        enable(&[
            Kind::CUPTI_ACTIVITY_KIND_DRIVER,
            Kind::CUPTI_ACTIVITY_KIND_MEMORY2,
            Kind::CUPTI_ACTIVITY_KIND_MEMORY_POOL,
        ]);
        let (_context, stream) = open();
        let (mut plain, mut pinned, mut pooled) = (0, std::ptr::null_mut(), 0);
        let mut pool = std::ptr::null_mut();
        // SAFETY: places of this function, and what CUDA gave.
        unsafe {
            driver::cuMemAlloc_v2(&raw mut plain, 1000)
                .result()
                .expect("memory");
            driver::cuMemHostAlloc(&raw mut pinned, 500, 0)
                .result()
                .expect("memory");
            driver::cuMemFree_v2(plain).result().expect("freed");
            driver::cuMemFreeHost(pinned).result().expect("freed");
            let mut properties: driver::CUmemPoolProps = std::mem::zeroed();
            properties.allocType = driver::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
            properties.location.type_ = driver::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
            driver::cuMemPoolCreate(&raw mut pool, &raw const properties)
                .result()
                .expect("a pool");
            driver::cuMemAllocFromPoolAsync(&raw mut pooled, 2000, pool, stream.cu_stream())
                .result()
                .expect("memory");
            driver::cuMemFreeAsync(pooled, stream.cu_stream())
                .result()
                .expect("freed");
            stream.synchronize().expect("ends");
            driver::cuMemPoolTrimTo(pool, 64).result().expect("trimmed");
            driver::cuMemPoolDestroy(pool).result().expect("destroyed");
        }
        flush(1);
        let seen: Vec<(u32, u32, u64, u32, bool, String)> = records(Kind::CUPTI_ACTIVITY_KIND_MEMORY2)
            .iter()
            .map(|record| {
                (
                    record.u32(offset_of!(Memory, memoryOperationType)),
                    record.u32(offset_of!(Memory, memoryKind)),
                    record.u64(offset_of!(Memory, bytes)),
                    record.u32(offset_of!(Memory, isAsync)),
                    record.u32(offset_of!(Memory, streamId)) != u32::MAX,
                    name_of_call(record.u32(offset_of!(Memory, correlationId))),
                )
            })
            .collect();
        let row = |operation, kind, bytes, asynchronous: bool, call: &str| {
            (
                operation,
                kind,
                bytes,
                u32::from(asynchronous),
                asynchronous,
                call.to_owned(),
            )
        };
        assert_eq!(
            seen,
            [
                row(1, 3, 1000, false, "cuMemAlloc_v2"),
                row(1, 2, 500, false, "cuMemHostAlloc"),
                row(2, 3, 1000, false, "cuMemFree_v2"),
                row(2, 2, 500, false, "cuMemFreeHost"),
                row(1, 3, 2000, true, "cuMemAllocFromPoolAsync"),
                row(2, 3, 2000, true, "cuMemFreeAsync"),
            ]
        );
        let memory = records(Kind::CUPTI_ACTIVITY_KIND_MEMORY2);
        let addresses: Vec<u64> = memory
            .iter()
            .map(|record| record.u64(offset_of!(Memory, address)))
            .collect();
        assert_eq!(
            addresses,
            [plain, pinned as u64, plain, pinned as u64, pooled, pooled]
        );
        let config = offset_of!(Memory, memoryPoolConfig);
        let used = |record: &Record| record.u64(config + offset_of!(PoolConfig, utilizedSize));
        assert_eq!(used(&memory[4]), 2048, "in multiples of 512");
        assert_eq!(
            memory[4].u64(config + offset_of!(PoolConfig, address)),
            pool as u64
        );
        assert_eq!(
            memory[0].u64(config + offset_of!(PoolConfig, address)),
            0,
            "of no pool"
        );
        let pools: Vec<(u32, u64, u64)> = records(Kind::CUPTI_ACTIVITY_KIND_MEMORY_POOL)
            .iter()
            .map(|record| {
                (
                    record.u32(offset_of!(Pool, memoryPoolOperationType)),
                    record.u64(offset_of!(Pool, address)),
                    record.u64(offset_of!(Pool, minBytesToKeep)),
                )
            })
            .collect();
        let pool = pool as u64;
        assert_eq!(pools, [(1, pool, 0), (3, pool, 64), (2, pool, 0)]);
    });
}

#[test]
fn loading_is_recorded() {
    on_the_stand_in("loading_is_recorded", &[], || {
        enable(&[
            Kind::CUPTI_ACTIVITY_KIND_DRIVER,
            Kind::CUPTI_ACTIVITY_KIND_MODULE,
            Kind::CUPTI_ACTIVITY_KIND_JIT,
            Kind::CUPTI_ACTIVITY_KIND_OVERHEAD,
        ]);
        let (context, _stream) = open();
        let module = context.load_module(Ptx::from_src(PTX)).expect("the PTX");
        module.load_function("scale").expect("the kernel");
        flush(1);
        let modules = records(Kind::CUPTI_ACTIVITY_KIND_MODULE);
        assert_eq!(modules.len(), 1);
        assert_eq!(modules[0].u32(offset_of!(Module, cubinSize)) as usize, PTX.len());
        let jit = records(Kind::CUPTI_ACTIVITY_KIND_JIT);
        assert_eq!(jit.len(), 1);
        assert_eq!(
            name_of_call(jit[0].u32(offset_of!(Jit, correlationId))),
            "cuModuleLoadData"
        );
        assert!(jit[0].u64(offset_of!(Jit, end)) >= jit[0].u64(offset_of!(Jit, start)));
        let overheads: Vec<u32> = records(Kind::CUPTI_ACTIVITY_KIND_OVERHEAD)
            .iter()
            .map(|record| record.u32(4))
            .collect();
        // The compiler, then the function's loading.
        assert_eq!(overheads, [1, 5 << 16]);
    });
}

#[test]
fn waits_name_what_they_waited_for() {
    on_the_stand_in("waits_name_what_they_waited_for", &[], || {
        enable(&[
            Kind::CUPTI_ACTIVITY_KIND_DRIVER,
            Kind::CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
            Kind::CUPTI_ACTIVITY_KIND_CUDA_EVENT,
            Kind::CUPTI_ACTIVITY_KIND_STREAM,
        ]);
        let (context, stream) = open();
        let urgent = {
            let mut urgent = std::ptr::null_mut();
            // SAFETY: a place of this function.
            unsafe { driver::cuStreamCreateWithPriority(&raw mut urgent, 1, -3) }
                .result()
                .expect("a stream");
            urgent
        };
        let other = context.new_stream().expect("a stream");
        let event = context.new_event(None).expect("an event");
        flush(1);
        lock(&client::RECORDS).clear();
        enable(&[Kind::CUPTI_ACTIVITY_KIND_STREAM]);
        event.record(&stream).expect("recorded");
        other.wait(&event).expect("waits");
        event.record(&other).expect("recorded");
        event.synchronize().expect("ends");
        other.synchronize().expect("ends");
        context.synchronize().expect("ends");
        // SAFETY: our own.
        unsafe { driver::cuStreamDestroy_v2(urgent) }
            .result()
            .expect("destroyed");
        flush(1);
        // Streams that are known already are told of again: the default one, ours, the urgent one, the other.
        let streams = records(Kind::CUPTI_ACTIVITY_KIND_STREAM);
        let told: Vec<(i32, u32)> = streams
            .iter()
            .map(|record| {
                (
                    record.u32(offset_of!(Stream, priority)).cast_signed(),
                    record.u32(offset_of!(Stream, flag)),
                )
            })
            .collect();
        assert_eq!(told, [(0, 3), (0, 2), (-3, 2), (0, 2)]);
        let id = |place: usize| streams[place].u32(offset_of!(Stream, streamId));
        let (first, second) = (id(1), id(3));
        let recorded: Vec<(u32, u32, u64)> = records(Kind::CUPTI_ACTIVITY_KIND_CUDA_EVENT)
            .iter()
            .map(|record| {
                (
                    record.u32(offset_of!(EventRecorded, eventId)),
                    record.u32(offset_of!(EventRecorded, streamId)),
                    record.u64(offset_of!(EventRecorded, cudaEventSyncId)),
                )
            })
            .collect();
        let event = recorded[0].0;
        assert_eq!(
            recorded
                .iter()
                .map(|(event, stream, _)| (*event, *stream))
                .collect::<Vec<_>>(),
            [(event, first), (event, second)]
        );
        assert_ne!(
            recorded[0].2, recorded[1].2,
            "recordings have numbers of their own"
        );
        let waits: Vec<(u32, u32, u32, u64, String)> = records(Kind::CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)
            .iter()
            .map(|record| {
                (
                    record.u32(offset_of!(Wait, type_)),
                    record.u32(offset_of!(Wait, streamId)),
                    record.u32(offset_of!(Wait, cudaEventId)),
                    record.u64(offset_of!(Wait, cudaEventSyncId)),
                    name_of_call(record.u32(offset_of!(Wait, correlationId))),
                )
            })
            .collect();
        const NONE: u32 = u32::MAX;
        let expected = [
            (2, second, event, recorded[0].2, "cuStreamWaitEvent"),
            (1, NONE, event, recorded[1].2, "cuEventSynchronize"),
            (3, second, NONE, 0, "cuStreamSynchronize"),
            (4, NONE, NONE, 0, "cuCtxSynchronize"),
        ];
        assert_eq!(
            waits,
            expected.map(|(wait, stream, event, recording, call)| {
                (wait, stream, event, recording, call.to_owned())
            })
        );
    });
}

/// How many recordings of an event are told of, with synchronisations alone; and whether they can be asked for.
fn recordings_unasked() -> (usize, bool) {
    enable(&[Kind::CUPTI_ACTIVITY_KIND_SYNCHRONIZATION]);
    let (context, stream) = open();
    let event = context.new_event(None).expect("an event");
    event.record(&stream).expect("recorded");
    event.synchronize().expect("ends");
    flush(1);
    let told = records(Kind::CUPTI_ACTIVITY_KIND_CUDA_EVENT).len();
    // SAFETY: a plain value.
    let asked = unsafe { sys::cuptiActivityEnable(Kind::CUPTI_ACTIVITY_KIND_CUDA_EVENT) };
    (told, asked == SUCCESS)
}

#[test]
fn recordings_of_events_come_with_waits_before_12_9() {
    let version = [("SIMGPU_CUPTI", "12.8")];
    on_the_stand_in(
        "recordings_of_events_come_with_waits_before_12_9",
        &version,
        || {
            assert_eq!(recordings_unasked(), (1, false));
        },
    );
}

#[test]
fn recordings_of_events_are_asked_for_from_12_9_on() {
    let version = [("SIMGPU_CUPTI", "12.9")];
    on_the_stand_in(
        "recordings_of_events_are_asked_for_from_12_9_on",
        &version,
        || {
            assert_eq!(recordings_unasked(), (0, true));
        },
    );
}

#[test]
fn kernels_take_the_memory_that_their_ptx_says() {
    on_the_stand_in("kernels_take_the_memory_that_their_ptx_says", &[], || {
        enable(&[Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]);
        let (context, stream) = open();
        let mut values = stream.clone_htod(&vec![1.0f32; 1024]).expect("memory");
        scale(&context, &stream, &mut values, &mut 1.0);
        let module = context.load_module(Ptx::from_src(PTX)).expect("the PTX");
        let kernel = module.load_function("bias_gradient").expect("the kernel");
        let gradients = stream.alloc_zeros::<f32>(32).expect("memory");
        let (rows, columns) = (32i32, 32i32);
        let config = LaunchConfig {
            grid_dim: (1, 1, 1),
            block_dim: (32, 32, 1),
            shared_mem_bytes: 3000,
        };
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&gradients).arg(&values).arg(&rows).arg(&columns);
        // SAFETY: the kernel's arguments.
        unsafe { launch.launch(config) }.expect("launched");
        stream.synchronize().expect("ends");
        flush(1);
        let kernels = records(Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        let taken: Vec<[u32; 4]> = kernels
            .iter()
            .map(|kernel| {
                [
                    kernel.u32(offset_of!(Kernel, staticSharedMemory)),
                    kernel.u32(offset_of!(Kernel, dynamicSharedMemory)),
                    kernel.u32(offset_of!(Kernel, sharedMemoryExecuted)),
                    kernel.u32(offset_of!(Kernel, localMemoryPerThread)),
                ]
            })
            .collect();
        // 4224 and 3000 bytes with 1 KiB of CUDA's fit into 16 KiB.
        assert_eq!(taken, [[0, 0, 0, 0], [4224, 3000, 16 << 10, 0]]);
    });
}

#[test]
fn records_are_as_long_as_their_version_has_them() {
    let lengths = |version: &'static str, expected: &'static [(Kind, usize)]| {
        let name = "records_are_as_long_as_their_version_has_them";
        on_the_stand_in(
            name,
            &[("SIMGPU_CUPTI", version), ("TEST_VERSION", version)],
            || {
                if std::env::var("TEST_VERSION").as_deref() != Ok(version) {
                    return;
                }
                let kinds: Vec<Kind> = expected.iter().map(|(kind, _)| *kind).collect();
                enable(&kinds);
                let (context, stream) = open();
                let mut values = stream.clone_htod(&vec![1.0f32; 1024]).expect("memory");
                scale(&context, &stream, &mut values, &mut 1.0);
                stream.synchronize().expect("ends");
                let mut memory: driver::CUdeviceptr = 0;
                // SAFETY: a place of this function.
                unsafe { driver::cuMemAlloc_v2(&raw mut memory, 64) }
                    .result()
                    .expect("memory");
                flush(1);
                for (kind, bytes) in expected {
                    let records = records(*kind);
                    assert!(!records.is_empty(), "{version}: {kind:?}");
                    assert!(
                        records.iter().all(|record| record.0.len() == *bytes),
                        "{version}: {kind:?}"
                    );
                }
            },
        );
    };
    use Kind::{
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL as KERNEL, CUPTI_ACTIVITY_KIND_CONTEXT as CONTEXT,
        CUPTI_ACTIVITY_KIND_DEVICE as DEVICE, CUPTI_ACTIVITY_KIND_JIT as JIT,
        CUPTI_ACTIVITY_KIND_MEMCPY as MEMCPY, CUPTI_ACTIVITY_KIND_MEMORY2 as MEMORY2,
        CUPTI_ACTIVITY_KIND_OVERHEAD as OVERHEAD, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION as SYNCHRONIZATION,
    };
    lengths(
        "12.0",
        &[
            (KERNEL, 208),
            (CONTEXT, 16),
            (DEVICE, 176),
            (JIT, 64),
            (MEMCPY, 88),
            (MEMORY2, 120),
            (SYNCHRONIZATION, 40),
        ],
    );
    lengths(
        "12.4",
        &[
            (KERNEL, 208),
            (CONTEXT, 24),
            (DEVICE, 184),
            (JIT, 72),
            (OVERHEAD, 56),
        ],
    );
    lengths("12.6", &[(CONTEXT, 32), (MEMORY2, 128), (SYNCHRONIZATION, 40)]);
    lengths(
        "13.1",
        &[
            (KERNEL, 224),
            (CONTEXT, 40),
            (DEVICE, 184),
            (MEMCPY, 96),
            (SYNCHRONIZATION, 56),
        ],
    );
    lengths("13.3", &[(KERNEL, 232), (DEVICE, 192)]);
    lengths("13.5", &[(KERNEL, 248), (MEMCPY, 112)]);
}
