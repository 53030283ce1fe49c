//! CUDA's rules for several devices and for memory pools on the stand-in, tried by an ordinary CUDA program.

use crate::stand_in;

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaStream, LaunchConfig, PushKernelArg, result};
use cudarc::nvrtc::Ptx;

use stand_in::{PTX, code, on_the_stand_in, open_device, scale};

/// Plain device memory, which peers can be let into.
fn plain(context: &CudaContext, bytes: usize) -> sys::CUdeviceptr {
    context.bind_to_thread().expect("bound");
    // SAFETY: freed by nobody: the process ends with the test.
    unsafe { result::malloc_sync(bytes) }.expect("memory")
}

fn enable(from: &CudaContext, to: &CudaContext) -> CUresult {
    from.bind_to_thread().expect("bound");
    // SAFETY: a context's handle.
    unsafe { sys::cuCtxEnablePeerAccess(to.cu_ctx(), 0) }
}

fn can_access(device: i32, peer: i32) -> bool {
    let mut can = -1;
    // SAFETY: a place for the answer.
    unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, device, peer) }
        .result()
        .expect("an answer");
    can == 1
}

fn performance_rank(device: i32, peer: i32) -> i32 {
    let mut value = -1;
    let attribute = sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    // SAFETY: a place for the answer.
    unsafe { sys::cuDeviceGetP2PAttribute(&raw mut value, attribute, device, peer) }
        .result()
        .expect("an answer");
    value
}

/// A copy between plain memory of two devices, on a stream of the first, timed by events.
struct Copy {
    contexts: [Arc<CudaContext>; 2],
    source: sys::CUdeviceptr,
    destination: sys::CUdeviceptr,
    bytes: usize,
    stream: Arc<CudaStream>,
    events: [cudarc::driver::CudaEvent; 2],
}

impl Copy {
    /// Memory that was touched already: taking pages from the machine is slower than the modelled copy.
    fn prepare(from: &Arc<CudaContext>, to: &Arc<CudaContext>, bytes: usize) -> Self {
        let memory = [from, to].map(|context| {
            let address = plain(context, bytes);
            // SAFETY: the whole allocation, whose context is current.
            unsafe { sys::cuMemsetD8_v2(address, 5, bytes) }
                .result()
                .expect("set");
            address
        });
        from.bind_to_thread().expect("bound");
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        Self {
            contexts: [Arc::clone(from), Arc::clone(to)],
            source: memory[0],
            destination: memory[1],
            bytes,
            stream: from.new_stream().expect("a stream"),
            events: [0; 2].map(|_| from.new_event(timed).expect("an event")),
        }
    }

    fn begin(&self) {
        let [from, to] = &self.contexts;
        from.bind_to_thread().expect("bound");
        self.events[0].record(&self.stream).expect("recorded");
        // SAFETY: both ranges are whole allocations.
        unsafe {
            result::memcpy_peer_async(
                to.cu_ctx(),
                self.destination,
                from.cu_ctx(),
                self.source,
                self.bytes,
                self.stream.cu_stream(),
            )
        }
        .expect("copied");
        self.events[1].record(&self.stream).expect("recorded");
    }

    fn milliseconds(&self) -> f32 {
        self.stream.synchronize().expect("ends");
        self.events[0].elapsed_ms(&self.events[1]).expect("times")
    }

    /// Alone: the least of three, since a machine that is busy with other things stretches some.
    fn time(from: &Arc<CudaContext>, to: &Arc<CudaContext>, bytes: usize) -> f32 {
        let copy = Self::prepare(from, to, bytes);
        let times = [0; 3].map(|_| {
            copy.begin();
            copy.milliseconds()
        });
        times.into_iter().fold(f32::INFINITY, f32::min)
    }
}

/// Within what the jitter and the copy's own latency add.
fn assert_milliseconds(found: f32, expected: f32) {
    assert!(
        found >= expected * 0.99 && found <= expected * 1.3 + 2.0,
        "{found} ms, expected {expected} ms"
    );
}

#[test]
fn one_thread_drives_several_devices() {
    on_the_stand_in("one_thread_drives_several_devices", &[], || {
        let devices: Vec<_> = (0..3).map(open_device).collect();
        let mut all: Vec<_> = devices
            .iter()
            .map(|(_, stream)| stream.clone_htod(&vec![1.0f32; 1 << 16]).expect("memory"))
            .collect();
        for ((context, stream), values) in devices.iter().zip(&mut all) {
            scale(context, stream, values, &mut (context.ordinal() as f32 + 2.0));
        }
        for ((context, stream), values) in devices.iter().zip(&all) {
            let host = stream.clone_dtoh(values).expect("copied");
            let expected = context.ordinal() as f32 + 2.0;
            assert!(host.iter().all(|value| *value == expected));
        }
        let mut current = -1;
        devices[1].0.bind_to_thread().expect("bound");
        // SAFETY: a place for the answer.
        unsafe { sys::cuCtxGetDevice(&raw mut current) }
            .result()
            .expect("a device");
        assert_eq!(current, 1);
    });
}

#[test]
fn a_stream_waits_for_another_devices_event() {
    on_the_stand_in("a_stream_waits_for_another_devices_event", &[], || {
        let ((first, one), (_second, two)) = (open_device(0), open_device(1));
        let mut values = one.clone_htod(&vec![1.0f32; 1 << 20]).expect("memory");
        let mut copied = two.alloc_zeros::<f32>(1 << 20).expect("memory");
        two.synchronize().expect("ends");
        scale(&first, &one, &mut values, &mut 3.0);
        let event = first.new_event(None).expect("an event");
        event.record(&one).expect("recorded");
        two.wait(&event).expect("waits");
        two.memcpy_dtod(&values, &mut copied).expect("copied");
        let host = two.clone_dtoh(&copied).expect("copied");
        assert!(
            host.iter().all(|value| *value == 3.0),
            "the copy came after the other device's kernel"
        );
    });
}

#[test]
fn events_and_kernels_stay_in_their_context() {
    on_the_stand_in("events_and_kernels_stay_in_their_context", &[], || {
        let ((first, one), (_second, two)) = (open_device(0), open_device(1));
        let event = first.new_event(None).expect("an event");
        // SAFETY: handles of this program.
        let recorded = unsafe { sys::cuEventRecord(event.cu_event(), two.cu_stream()) };
        assert_eq!(recorded, CUresult::CUDA_ERROR_INVALID_HANDLE);
        event.record(&one).expect("its own stream");
        let module = first.load_module(Ptx::from_src(PTX)).expect("the PTX");
        let kernel = module.load_function("scale").expect("the kernel");
        let mut values = two.alloc_zeros::<f32>(32).expect("memory");
        let mut launch = two.launch_builder(&kernel);
        launch.arg(&mut values).arg(&2.0f32).arg(&32i32);
        // SAFETY: the arguments are the kernel's.
        let launched = unsafe { launch.launch(LaunchConfig::for_num_elems(32)) };
        assert_eq!(code(launched), Some(CUresult::CUDA_ERROR_INVALID_HANDLE));
    });
}

#[test]
fn peer_access_has_its_errors() {
    on_the_stand_in(
        "peer_access_has_its_errors",
        &[("SIMGPU_TOPOLOGY", "pcie")],
        || {
            let contexts: Vec<_> = [0, 1, 4].map(|device| open_device(device).0).into();
            let [near, neighbour, far] = contexts.as_slice() else {
                panic!("three")
            };
            // Across sockets there is none; within one there is.
            assert!(can_access(0, 1) && can_access(0, 2) && !can_access(0, 4) && !can_access(3, 3));
            assert!(performance_rank(0, 1) < performance_rank(0, 2));
            assert!(performance_rank(0, 2) < performance_rank(0, 4));
            assert_eq!(enable(near, neighbour), CUresult::CUDA_SUCCESS);
            assert_eq!(
                enable(near, neighbour),
                CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
            );
            assert_eq!(enable(near, far), CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
            assert_eq!(enable(near, near), CUresult::CUDA_ERROR_INVALID_CONTEXT);
            // The other way is another access.
            assert_eq!(enable(neighbour, near), CUresult::CUDA_SUCCESS);
            near.bind_to_thread().expect("bound");
            // SAFETY: a context's handle.
            let disable = || unsafe { sys::cuCtxDisablePeerAccess(neighbour.cu_ctx()) };
            assert_eq!(disable(), CUresult::CUDA_SUCCESS);
            assert_eq!(disable(), CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        },
    );
}

#[test]
fn peer_copies_take_their_link() {
    on_the_stand_in(
        "peer_copies_take_their_link",
        &[("SIMGPU_TOPOLOGY", "pcie")],
        || {
            let contexts: Vec<_> = (0..8).map(|device| open_device(device).0).collect();
            let bytes = 1 << 20;
            let time = |to: usize| Copy::time(&contexts[0], &contexts[to], bytes);
            let expected = |gigabytes: f32| bytes as f32 / gigabytes / 1e3;
            // Through the host: 27.5 MB/s within the socket (55 GB/s twice, 1000 times slower), 15.7 across.
            assert_milliseconds(time(1), expected(27.5));
            assert_milliseconds(time(4), expected(15.71));
            // Directly: 52 below a switch, 40 through the root complex.
            for peer in [1, 2] {
                assert_eq!(enable(&contexts[0], &contexts[peer]), CUresult::CUDA_SUCCESS);
            }
            assert_milliseconds(time(1), expected(52.0));
            assert_milliseconds(time(2), expected(40.0));
        },
    );
}

#[test]
fn simultaneous_copies_share_a_port() {
    on_the_stand_in("simultaneous_copies_share_a_port", &[], || {
        let contexts: Vec<_> = (0..4).map(|device| open_device(device).0).collect();
        for from in [0, 3] {
            for to in (0..4).filter(|to| *to != from) {
                enable(&contexts[from], &contexts[to]);
            }
        }
        // 16 MiB at 370 MB/s: 45 ms alone.
        let bytes = 16 << 20;
        let expected = bytes as f32 / 370e3;
        assert_milliseconds(Copy::time(&contexts[0], &contexts[1], bytes), expected);
        // Two out of one GPU share its way out; the third is out of another.
        let copies =
            [(0, 1), (0, 2), (3, 0)].map(|(from, to)| Copy::prepare(&contexts[from], &contexts[to], bytes));
        let times: Vec<[f32; 3]> = (0..3)
            .map(|_| {
                copies.iter().for_each(Copy::begin);
                copies.each_ref().map(Copy::milliseconds)
            })
            .collect();
        // A machine that is busy with other things may begin one when the other is done, but not each time.
        let shared = times.iter().any(|times| times[0] + times[1] > 3.0 * expected);
        assert!(shared, "{times:?}: half each, {expected} alone");
        let apart = times.iter().map(|times| times[2]).fold(f32::INFINITY, f32::min);
        assert_milliseconds(apart, expected);
    });
}

#[test]
fn peer_copies_copy() {
    on_the_stand_in("peer_copies_copy", &[], || {
        let ((first, one), (second, two)) = (open_device(0), open_device(1));
        let source: Vec<u8> = (0..1000).map(|value| value as u8).collect();
        let there = one.clone_htod(&source).expect("memory");
        one.synchronize().expect("ends");
        let target = plain(&second, 1000);
        let from = {
            use cudarc::driver::DevicePtr;
            there.device_ptr(&one).0
        };
        // SAFETY: both ranges are whole allocations of the contexts that are named.
        unsafe {
            assert_eq!(
                sys::cuMemcpyPeer(target, second.cu_ctx(), from, first.cu_ctx(), 1000),
                CUresult::CUDA_SUCCESS
            );
            assert_eq!(
                sys::cuMemcpyPeer(target, first.cu_ctx(), from, second.cu_ctx(), 1000),
                CUresult::CUDA_ERROR_INVALID_VALUE,
                "the memory is of the other contexts"
            );
        }
        let mut back = vec![0u8; 1000];
        // SAFETY: as many bytes as there are.
        unsafe { sys::cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), target, 1000) }
            .result()
            .expect("copied");
        assert_eq!(back, source);
        let mut ordinal = -1i32;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        // SAFETY: the attribute is an int.
        unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, target + 5) }
            .result()
            .expect("an answer");
        assert_eq!(ordinal, 1);
        drop(two);
    });
}

/// A pool's attribute of 64 bits.
fn level(pool: sys::CUmemoryPool, attribute: sys::CUmemPool_attribute) -> u64 {
    let mut value = u64::MAX;
    // SAFETY: a place of 64 bits, as these attributes are.
    unsafe { sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) }
        .result()
        .expect("an answer");
    value
}

fn default_pool(device: i32) -> sys::CUmemoryPool {
    let mut pool = std::ptr::null_mut();
    // SAFETY: a place for the handle.
    unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, device) }
        .result()
        .expect("a pool");
    pool
}

use sys::CUmemPool_attribute::{
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as RESERVED,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH as RESERVED_HIGH, CU_MEMPOOL_ATTR_USED_MEM_CURRENT as USED,
    CU_MEMPOOL_ATTR_USED_MEM_HIGH as USED_HIGH,
};

fn allocate(stream: &CudaStream, bytes: usize) -> sys::CUdeviceptr {
    // SAFETY: the tests free what they allocate, or end.
    unsafe { result::malloc_async(stream.cu_stream(), bytes) }.expect("memory")
}

fn free(stream: &CudaStream, address: sys::CUdeviceptr) {
    // SAFETY: from `allocate`, and not freed before.
    unsafe { result::free_async(address, stream.cu_stream()) }.expect("freed");
}

#[test]
fn a_pool_reuses_in_stream_order() {
    let slow = [("SIMGPU_SCALE", "20000")];
    on_the_stand_in("a_pool_reuses_in_stream_order", &slow, || {
        let (context, stream) = open_device(0);
        let other = context.new_stream().expect("a stream");
        let pool = default_pool(0);
        let first = allocate(&stream, 1 << 20);
        assert_eq!((level(pool, USED), level(pool, RESERVED)), (1 << 20, 1 << 20));
        // The stream is busy for half a second: 128 MB written at 4.8 TB/s, 20000 times slower.
        let busy = allocate(&stream, 128 << 20);
        // SAFETY: within the allocation.
        unsafe { sys::cuMemsetD8Async(busy, 1, 128 << 20, stream.cu_stream()) }
            .result()
            .expect("set");
        free(&stream, first);
        // Another stream cannot have it before that; the same one can at once.
        let elsewhere = allocate(&other, 1 << 20);
        assert_ne!(elsewhere, first);
        assert_eq!(allocate(&stream, (1 << 20) - 100), first);
        assert_eq!(level(pool, USED), (2 << 20) + (128 << 20));
        // Freed memory is not the program's any more.
        free(&other, elsewhere);
        // SAFETY: the stand-in checks addresses, which is what is tested.
        unsafe {
            assert_eq!(
                sys::cuMemFreeAsync(elsewhere, other.cu_stream()),
                CUresult::CUDA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                sys::cuMemsetD8Async(elsewhere, 0, 16, other.cu_stream()),
                CUresult::CUDA_ERROR_INVALID_VALUE
            );
        }
        free(&stream, first);
        free(&stream, busy);
        stream.synchronize().expect("ends");
        other.synchronize().expect("ends");
        // Nothing is kept by default, and the high marks stay until they are set back.
        assert_eq!((level(pool, USED), level(pool, RESERVED)), (0, 0));
        let most = (2 << 20) + (128 << 20);
        assert_eq!((level(pool, USED_HIGH), level(pool, RESERVED_HIGH)), (most, most));
        let mut zero = 0u64;
        // SAFETY: 64 bits, as the attribute is.
        unsafe { sys::cuMemPoolSetAttribute(pool, USED_HIGH, (&raw mut zero).cast()) }
            .result()
            .expect("set");
        assert_eq!(level(pool, USED_HIGH), 0);
    });
}

#[test]
fn a_threshold_keeps_memory() {
    on_the_stand_in("a_threshold_keeps_memory", &[], || {
        let (_context, stream) = open_device(0);
        let pool = default_pool(0);
        let mut threshold = 3u64 << 20;
        // SAFETY: 64 bits, as the attribute is.
        unsafe { sys::cuMemPoolSetAttribute(pool, THRESHOLD, (&raw mut threshold).cast()) }
            .result()
            .expect("set");
        assert_eq!(level(pool, THRESHOLD), 3 << 20);
        let blocks = [1, 2, 4].map(|mebibytes| allocate(&stream, mebibytes << 20));
        for block in blocks {
            free(&stream, block);
        }
        assert_eq!((level(pool, USED), level(pool, RESERVED)), (0, 7 << 20));
        stream.synchronize().expect("ends");
        assert!(level(pool, RESERVED) <= 4 << 20, "{}", level(pool, RESERVED));
        // SAFETY: a pool's handle.
        unsafe { sys::cuMemPoolTrimTo(pool, 0) }
            .result()
            .expect("trimmed");
        assert_eq!(level(pool, RESERVED), 0);
    });
}

#[test]
fn pools_are_made_and_destroyed() {
    on_the_stand_in("pools_are_made_and_destroyed", &[], || {
        let (_context, stream) = open_device(1);
        let mut pool = std::ptr::null_mut();
        // SAFETY: zeros are valid for all of its members.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.__bindgen_anon_1.id = 1;
        properties.maxSize = 4 << 20;
        // SAFETY: properties of a pool, and handles of this program.
        unsafe {
            sys::cuMemPoolCreate(&raw mut pool, &raw const properties)
                .result()
                .expect("a pool");
            let mut address = 0;
            sys::cuMemAllocFromPoolAsync(&raw mut address, 3 << 20, pool, stream.cu_stream())
                .result()
                .expect("memory");
            assert_eq!((level(pool, USED), level(default_pool(1), USED)), (3 << 20, 0));
            let mut more = 0;
            assert_eq!(
                sys::cuMemAllocFromPoolAsync(&raw mut more, 2 << 20, pool, stream.cu_stream()),
                CUresult::CUDA_ERROR_OUT_OF_MEMORY,
                "at its most"
            );
            sys::cuDeviceSetMemPool(1, pool).result().expect("set");
            let small = allocate(&stream, 1 << 10);
            assert_eq!(level(pool, USED), (3 << 20) + (1 << 10));
            assert_eq!(
                sys::cuMemPoolDestroy(default_pool(1)),
                CUresult::CUDA_ERROR_INVALID_VALUE
            );
            sys::cuMemPoolDestroy(pool).result().expect("destroyed");
            let mut current = std::ptr::null_mut();
            sys::cuDeviceGetMemPool(&raw mut current, 1)
                .result()
                .expect("a pool");
            assert_eq!(current, default_pool(1), "the default again");
            // Its memory is good until it is freed.
            sys::cuMemsetD8Async(address, 7, 3 << 20, stream.cu_stream())
                .result()
                .expect("set");
            free(&stream, address);
            free(&stream, small);
            stream.synchronize().expect("ends");
            let mut value = 0u64;
            let asked = sys::cuMemPoolGetAttribute(pool, USED, (&raw mut value).cast::<c_void>());
            assert_eq!(asked, CUresult::CUDA_ERROR_INVALID_VALUE, "it is gone");
        }
    });
}

#[test]
fn a_device_is_as_large_as_it_is() {
    on_the_stand_in(
        "a_device_is_as_large_as_it_is",
        &[("SIMGPU_MEMORY", "0.01")],
        || {
            let (context, stream) = open_device(0);
            context.bind_to_thread().expect("bound");
            assert_eq!(context.total_mem().expect("a size"), 10_000_000);
            let first = allocate(&stream, 6_000_128);
            assert_eq!(result::mem_get_info().expect("sizes").0, 10_000_000 - 6_000_128);
            // SAFETY: freed below, or not allocated.
            let second = unsafe { result::malloc_async(stream.cu_stream(), 6_000_128) };
            assert_eq!(code(second), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
            free(&stream, first);
            // What the pool keeps is given up when another size needs the room.
            let larger = allocate(&stream, 9_000_000);
            free(&stream, larger);
            // Another device has memory of its own.
            let (_, elsewhere) = open_device(1);
            allocate(&elsewhere, 9_000_000);
        },
    );
}
