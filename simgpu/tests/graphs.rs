//! CUDA graphs on the stand-in: captured and built by hand, run again and again, and what CUPTI tells of them.

use crate::client;
use crate::stand_in;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use cudarc::cupti::sys::{
    self as cupti, CUpti_ActivityGraphTrace2 as Trace, CUpti_ActivityKernel13 as Kernel,
    CUpti_ActivityKind as Kind, CUpti_ActivityMemcpy7 as Memcpy, CUpti_ActivityMemset5 as Memset,
    CUpti_CallbackDomain as Domain, CUpti_CallbackIdResource as Resource, CUpti_GraphData,
    CUpti_ResourceData, CUpti_driver_api_trace_cbid_enum as Id,
};
use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use cudarc::nvrtc::Ptx;

use client::{SUCCESS, enable, flush, lock, records};
use stand_in::{PTX, on_the_stand_in, open, scale};

const KERNEL: Kind = Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
const DRIVER: Kind = Kind::CUPTI_ACTIVITY_KIND_DRIVER;
const MODE: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const LAUNCH: u32 = Id::CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch as u32;

fn no_flags() -> sys::CUgraphInstantiate_flags {
    sys::CUgraphInstantiate_flags(0)
}

fn address<T>(values: &CudaSlice<T>, stream: &Arc<CudaStream>) -> u64 {
    values.device_ptr(stream).0
}

/// The correlation ids of the calls that launched graphs.
fn launches() -> Vec<u32> {
    let calls = records(DRIVER);
    let of_graphs = calls.iter().filter(|call| call.u32(4) == LAUNCH);
    of_graphs.map(|call| call.u32(32)).collect()
}

#[test]
fn what_is_captured_runs_at_each_launch_and_not_before() {
    on_the_stand_in("what_is_captured_runs_at_each_launch_and_not_before", &[], || {
        enable(&[
            KERNEL,
            DRIVER,
            Kind::CUPTI_ACTIVITY_KIND_MEMCPY,
            Kind::CUPTI_ACTIVITY_KIND_MEMSET,
        ]);
        let (context, stream) = open();
        let mut values = stream.clone_htod(&vec![1.0f32; 4096]).expect("memory");
        let copied = stream.alloc_zeros::<f32>(4096).expect("memory");
        let cleared = stream.clone_htod(&vec![7u8; 64]).expect("memory");
        stream.synchronize().expect("ends");
        flush(1);
        lock(&client::RECORDS).clear();
        stream.begin_capture(MODE).expect("begins");
        scale(&context, &stream, &mut values, &mut 2.0);
        let (to, from, zeros) = (
            address(&copied, &stream),
            address(&values, &stream),
            address(&cleared, &stream),
        );
        // SAFETY: whole allocations of those sizes.
        unsafe {
            sys::cuMemcpyDtoDAsync_v2(to, from, 4 * 4096, stream.cu_stream())
                .result()
                .expect("captured");
            sys::cuMemsetD8Async(zeros, 0, 64, stream.cu_stream())
                .result()
                .expect("captured");
        }
        let graph = stream.end_capture(no_flags()).expect("ends").expect("a graph");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(
            stream
                .clone_dtoh(&values)
                .expect("copied")
                .iter()
                .all(|value| *value == 1.0),
            "nothing ran"
        );
        for _ in 0..3 {
            graph.launch().expect("launched");
        }
        let host = stream.clone_dtoh(&copied).expect("copied");
        assert!(host.iter().all(|value| *value == 8.0), "{}", host[0]);
        assert!(
            stream
                .clone_dtoh(&cleared)
                .expect("copied")
                .iter()
                .all(|value| *value == 0)
        );
        flush(1);
        let launches = launches();
        assert_eq!(launches.len(), 3);
        let of_graph = |kind: Kind, correlation: usize, node: usize, graph: usize| -> Vec<(u32, u64, u32)> {
            let records = records(kind);
            let captured = records.iter().filter(|record| record.u32(graph) != 0);
            captured
                .map(|record| (record.u32(correlation), record.u64(node), record.u32(graph)))
                .collect()
        };
        let parts = [
            of_graph(
                KERNEL,
                offset_of!(Kernel, correlationId),
                offset_of!(Kernel, graphNodeId),
                offset_of!(Kernel, graphId),
            ),
            of_graph(
                Kind::CUPTI_ACTIVITY_KIND_MEMCPY,
                offset_of!(Memcpy, correlationId),
                offset_of!(Memcpy, graphNodeId),
                offset_of!(Memcpy, graphId),
            ),
            of_graph(
                Kind::CUPTI_ACTIVITY_KIND_MEMSET,
                offset_of!(Memset, correlationId),
                offset_of!(Memset, graphNodeId),
                offset_of!(Memset, graphId),
            ),
        ];
        let graph_id = parts[0][0].2;
        let mut nodes = Vec::new();
        for part in &parts {
            let ids: Vec<u32> = part.iter().map(|(correlation, ..)| *correlation).collect();
            assert_eq!(ids, launches, "all nodes of a launch have its id");
            assert!(
                part.iter()
                    .all(|(_, node, graph)| *node == part[0].1 && *graph == graph_id)
            );
            nodes.push(part[0].1);
        }
        nodes.dedup();
        assert_eq!(nodes.len(), 3);
    });
}

#[test]
fn branches_run_side_by_side_and_join() {
    on_the_stand_in("branches_run_side_by_side_and_join", &[], || {
        enable(&[KERNEL]);
        let (context, stream) = open();
        let side = context.new_stream().expect("a stream");
        let mut values: Vec<CudaSlice<f32>> = (0..2)
            .map(|_| stream.clone_htod(&vec![1.0f32; 1 << 20]).expect("memory"))
            .collect();
        let (fork, join) = (
            context.new_event(None).expect("an event"),
            context.new_event(None).expect("an event"),
        );
        stream.synchronize().expect("ends");
        stream.begin_capture(MODE).expect("begins");
        scale(&context, &stream, &mut values[0], &mut 1.0);
        fork.record(&stream).expect("recorded");
        side.wait(&fork).expect("joins the capture");
        scale(&context, &stream, &mut values[0], &mut 3.0);
        scale(&context, &side, &mut values[1], &mut 5.0);
        join.record(&side).expect("recorded");
        stream.wait(&join).expect("waits");
        scale(&context, &stream, &mut values[1], &mut 2.0);
        let graph = stream.end_capture(no_flags()).expect("ends").expect("a graph");
        graph.launch().expect("launched");
        graph.launch().expect("launched");
        let ends = [
            stream.clone_dtoh(&values[0]).expect("copied")[9],
            stream.clone_dtoh(&values[1]).expect("copied")[9],
        ];
        assert_eq!(ends, [9.0, 100.0]);
        flush(1);
        let kernels = records(KERNEL);
        assert_eq!(kernels.len(), 8);
        let stream_ids: Vec<u32> = kernels
            .iter()
            .map(|kernel| kernel.u32(offset_of!(Kernel, streamId)))
            .collect();
        assert!(
            stream_ids.iter().all(|id| *id == stream_ids[0]),
            "that of the launch"
        );
        let mut by_node: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for kernel in &kernels {
            let node = kernel.u64(offset_of!(Kernel, graphNodeId));
            by_node
                .entry(node)
                .or_default()
                .push((kernel.u64(16), kernel.u64(24)));
        }
        let times: Vec<_> = by_node.values().collect();
        let run_of = |run: usize| [0, 1, 2, 3].map(|node: usize| times[node][run]);
        for [first, one, other, last] in [run_of(0), run_of(1)] {
            assert!(one.0 < other.1 && other.0 < one.1, "side by side");
            assert!(
                first.1 <= one.0 && first.1 <= other.0 && one.1.max(other.1) <= last.0,
                "in order"
            );
        }
    });
}

#[test]
fn what_cannot_be_captured_spoils_the_capture() {
    on_the_stand_in("what_cannot_be_captured_spoils_the_capture", &[], || {
        let (context, stream) = open();
        let side = context.new_stream().expect("a stream");
        let event = context.new_event(None).expect("an event");
        let mut values = stream.clone_htod(&vec![1.0f32; 64]).expect("memory");
        // The other stream does not wait for this one.
        stream.synchronize().expect("copied");
        // SAFETY: valid handles throughout; the results are what is tested.
        unsafe {
            let mut graph = null_mut();
            assert_eq!(
                sys::cuStreamBeginCapture_v2(null_mut(), MODE),
                CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            );
            assert_eq!(
                sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph),
                CUresult::CUDA_ERROR_ILLEGAL_STATE
            );
            stream.begin_capture(MODE).expect("begins");
            assert_eq!(
                sys::cuStreamSynchronize(stream.cu_stream()),
                CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            );
            graph = 1 as sys::CUgraph;
            assert_eq!(
                sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph),
                CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
            );
            assert!(graph.is_null());
            // A stream that joined and never came back.
            stream.begin_capture(MODE).expect("begins");
            event.record(&stream).expect("recorded");
            side.wait(&event).expect("joins");
            scale(&context, &side, &mut values, &mut 2.0);
            assert_eq!(
                sys::cuEventSynchronize(event.cu_event()),
                CUresult::CUDA_ERROR_CAPTURED_EVENT
            );
            assert_eq!(
                sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph),
                CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
            );
        }
        // Both are as before.
        let status = stream.capture_status().expect("an answer");
        assert_eq!(status, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
        scale(&context, &side, &mut values, &mut 2.0);
        assert_eq!(side.clone_dtoh(&values).expect("copied")[0], 2.0);
    });
}

#[test]
fn graphs_are_recorded_as_wholes_where_asked() {
    on_the_stand_in("graphs_are_recorded_as_wholes_where_asked", &[], || {
        enable(&[KERNEL, DRIVER, Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE]);
        let (context, stream) = open();
        let mut values = stream.clone_htod(&vec![1.0f32; 4096]).expect("memory");
        stream.begin_capture(MODE).expect("begins");
        for _ in 0..5 {
            scale(&context, &stream, &mut values, &mut 1.0);
        }
        let graph = stream.end_capture(no_flags()).expect("ends").expect("a graph");
        for _ in 0..4 {
            graph.launch().expect("launched");
        }
        scale(&context, &stream, &mut values, &mut 1.0);
        stream.synchronize().expect("ends");
        flush(1);
        assert_eq!(records(KERNEL).len(), 1, "only the one outside of the graph");
        let traces = records(Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
        let ids: Vec<u32> = traces
            .iter()
            .map(|trace| trace.u32(offset_of!(Trace, correlationId)))
            .collect();
        assert_eq!(ids, launches());
        let mut executable_id = 0;
        // SAFETY: the graph's own handle, and a valid place.
        unsafe { cupti::cuptiGetGraphExecId(graph.cu_graph_exec(), &raw mut executable_id) };
        for trace in &traces {
            assert_eq!(trace.u32(offset_of!(Trace, graphId)), executable_id);
            let took = trace.u64(offset_of!(Trace, end)) - trace.u64(offset_of!(Trace, start));
            assert!(took >= 5 * 2200, "five kernels: {took}");
        }
    });
}

/// What was called back about graphs: id, node id, original node id, node type.
static EVENTS: Mutex<Vec<(u32, u64, u64, u32)>> = Mutex::new(Vec::new());

unsafe extern "C" fn look(_: *mut c_void, _: Domain, id: u32, data: *const c_void) {
    if id < Resource::CUPTI_CBID_RESOURCE_GRAPH_CREATED as u32 {
        return;
    }
    // SAFETY: the data of callbacks about graphs, by CUPTI's headers; the type is read as the number that it is.
    unsafe {
        let graph = (*data.cast::<CUpti_ResourceData>())
            .resourceDescriptor
            .cast::<CUpti_GraphData>();
        let (mut node, mut original) = (0, 0);
        cupti::cuptiGetGraphNodeId((*graph).node, &raw mut node);
        cupti::cuptiGetGraphNodeId((*graph).originalNode, &raw mut original);
        let node_type = (&raw const (*graph).nodeType).cast::<u32>().read();
        lock(&EVENTS).push((id, node, original, node_type));
    }
}

#[test]
fn graphs_made_by_hand_run_and_are_called_back() {
    on_the_stand_in("graphs_made_by_hand_run_and_are_called_back", &[], || {
        let mut subscriber = null_mut();
        // SAFETY: a function that lives on, valid places.
        unsafe {
            assert_eq!(
                cupti::cuptiSubscribe(&raw mut subscriber, Some(look), null_mut()),
                SUCCESS
            );
            assert_eq!(
                cupti::cuptiEnableDomain(1, subscriber, Domain::CUPTI_CB_DOMAIN_RESOURCE),
                SUCCESS
            );
        }
        enable(&[KERNEL]);
        let (context, stream) = open();
        let values = stream.clone_htod(&vec![3.0f32; 1024]).expect("memory");
        let result = stream.alloc_zeros::<f32>(1024).expect("memory");
        stream.synchronize().expect("ends");
        let (from, to) = (address(&values, &stream), address(&result, &stream));
        let mut executable = null_mut();
        let (mut graph, mut set, mut copy) = (null_mut(), null_mut(), null_mut());
        // SAFETY: handles and places of this function; structures without pointers are zero where unused.
        unsafe {
            sys::cuGraphCreate(&raw mut graph, 0).result().expect("a graph");
            let mut parameters: sys::CUDA_MEMSET_NODE_PARAMS = std::mem::zeroed();
            (parameters.dst, parameters.value, parameters.elementSize) = (from, 1.5f32.to_bits(), 4);
            (parameters.width, parameters.height) = (512, 1);
            let context = context.cu_ctx();
            sys::cuGraphAddMemsetNode(
                &raw mut set,
                graph,
                std::ptr::null(),
                0,
                &raw const parameters,
                context,
            )
            .result()
            .expect("a node");
            let mut parameters = std::mem::MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
            let place = parameters.as_mut_ptr();
            (&raw mut (*place).srcMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
            (&raw mut (*place).dstMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
            let mut parameters = parameters.assume_init();
            (parameters.srcDevice, parameters.dstDevice) = (from, to);
            (parameters.WidthInBytes, parameters.Height, parameters.Depth) = (4096, 1, 1);
            sys::cuGraphAddMemcpyNode(
                &raw mut copy,
                graph,
                &raw const set,
                1,
                &raw const parameters,
                context,
            )
            .result()
            .expect("a node");
            let mut count = 0;
            sys::cuGraphGetNodes(graph, null_mut(), &raw mut count)
                .result()
                .expect("a number");
            assert_eq!(count, 2);
            sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)
                .result()
                .expect("instantiated");
            sys::cuGraphDestroy(graph).result().expect("destroyed");
            sys::cuGraphLaunch(executable, stream.cu_stream())
                .result()
                .expect("launched");
        }
        let host = stream.clone_dtoh(&result).expect("copied");
        assert_eq!((host[0], host[511], host[512]), (1.5, 1.5, 3.0));
        // SAFETY: our own.
        unsafe { sys::cuGraphExecDestroy(executable) }
            .result()
            .expect("destroyed");
        let events = lock(&EVENTS).clone();
        let ids: Vec<u32> = events.iter().map(|(id, ..)| *id).collect();
        // Graph created; two nodes created, the second with a dependency; an executable with two clones; both destroyed.
        assert_eq!(ids, [9, 13, 13, 15, 17, 20, 20, 18, 10, 19]);
        let (created, cloned): (Vec<_>, Vec<_>) =
            (vec![&events[1], &events[2]], vec![&events[5], &events[6]]);
        for (created, cloned) in created.iter().zip(cloned) {
            assert_eq!(cloned.2, created.1, "of which node it is a copy");
            assert_ne!(cloned.1, created.1);
            assert_eq!(cloned.3, created.3);
        }
        assert_eq!((events[1].3, events[2].3), (2, 1), "a memset, a copy");
    });
}

#[test]
fn a_kernel_node_takes_its_arguments_at_once() {
    on_the_stand_in("a_kernel_node_takes_its_arguments_at_once", &[], || {
        let (context, stream) = open();
        let values = stream.clone_htod(&vec![1.0f32; 256]).expect("memory");
        let module = context.load_module(Ptx::from_src(PTX)).expect("the PTX");
        let kernel = module.load_function("scale").expect("the kernel");
        let (mut graph, mut node, mut executable) = (null_mut(), null_mut(), null_mut());
        {
            let (mut pointer, mut factor, mut count) = (address(&values, &stream), 2.0f32, 256i32);
            let mut arguments: [*mut c_void; 3] = [
                (&raw mut pointer).cast(),
                (&raw mut factor).cast(),
                (&raw mut count).cast(),
            ];
            // SAFETY: the kernel's arguments; places of this function; unused members are zero.
            unsafe {
                sys::cuGraphCreate(&raw mut graph, 0).result().expect("a graph");
                let mut parameters: sys::CUDA_KERNEL_NODE_PARAMS = std::mem::zeroed();
                parameters.func = kernel.cu_function();
                (parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ) = (1, 1, 1);
                (parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ) = (256, 1, 1);
                parameters.kernelParams = arguments.as_mut_ptr();
                sys::cuGraphAddKernelNode_v2(
                    &raw mut node,
                    graph,
                    std::ptr::null(),
                    0,
                    &raw const parameters,
                )
                .result()
                .expect("a node");
                (pointer, factor, count) = (0, -1.0, 0);
                assert!(pointer == 0 && factor < 0.0 && count == 0);
                sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)
                    .result()
                    .expect("instantiated");
            }
        }
        for _ in 0..3 {
            // SAFETY: our own.
            unsafe { sys::cuGraphLaunch(executable, stream.cu_stream()) }
                .result()
                .expect("launched");
        }
        assert_eq!(stream.clone_dtoh(&values).expect("copied")[255], 8.0);
    });
}
