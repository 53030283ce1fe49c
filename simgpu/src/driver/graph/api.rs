//! The driver's functions for graphs and for capturing streams.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use super::run::{self, Executable};
use super::{books, capture, create};
use crate::cupti::{self, GraphData, event};
use crate::driver::entry::{driver_functions, put};
use crate::driver::{current_context, error, next_handle, stream_from_handle};

/// CUstreamCaptureStatus.
const NOT_CAPTURING: c_uint = 0;
const ACTIVE: c_uint = 1;
const INVALIDATED: c_uint = 2;
/// The handles of the legacy default stream, which cannot be captured.
const LEGACY: [u64; 2] = [0, 1];

fn instantiate(place: *mut u64, graph: u64) -> Result<(), u32> {
    let source = books().graphs.get(&graph).cloned().ok_or(error::INVALID_VALUE)?;
    let handle = next_handle();
    put(place, handle)?;
    let context = source.context.handle;
    let about = GraphData {
        graph,
        original_graph: graph,
        executable: handle,
        ..GraphData::default()
    };
    cupti::graph_event(event::GRAPHEXEC_CREATE_STARTING, context, &about);
    let executable = Arc::new(Executable::new(&source)?);
    books().executables.insert(handle, Arc::clone(&executable));
    for (original, node) in source.nodes.iter().zip(&executable.graph.nodes) {
        let data = GraphData {
            node: node.handle,
            original_node: original.handle,
            node_type: node.work.code(),
            ..about
        };
        cupti::graph_event(event::GRAPHNODE_CLONED, context, &data);
    }
    cupti::graph_event(event::GRAPHEXEC_CREATED, context, &about);
    Ok(())
}

/// What cuStreamGetCaptureInfo of all versions tells; null places are left out.
fn capture_info(
    stream: u64,
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut *const u64,
    count: *mut usize,
) -> Result<(), u32> {
    fn tell<T>(place: *mut T, value: T) -> Result<(), u32> {
        if place.is_null() {
            Ok(())
        } else {
            put(place, value)
        }
    }
    let stream = stream_from_handle(stream)?;
    let Some((is_spoilt, number, captured, tail)) = capture::info(&stream) else {
        return put(status, NOT_CAPTURING);
    };
    put(status, if is_spoilt { INVALIDATED } else { ACTIVE })?;
    tell(id, number)?;
    tell(graph, captured)?;
    if !dependencies.is_null() {
        let handles: Vec<u64> = {
            let books = books();
            let nodes = books.graphs.get(&captured).map(|graph| &graph.nodes);
            let handle = |place: &usize| Some(nodes?.get(*place)?.handle);
            tail.iter().filter_map(handle).collect()
        };
        // The driver's to free, at an unknown time: kept.
        put(dependencies, Box::leak(handles.into_boxed_slice()).as_ptr())?;
    }
    tell(count, tail.len())
}

driver_functions! {
    /// cuStreamBeginCapture_v2.
    fn cuStreamBeginCapture_v2 = CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2(stream: u64, mode: c_uint) |_| {
        if mode > 2 {
            return Err(error::INVALID_VALUE);
        }
        if LEGACY.contains(&stream) {
            return Err(error::STREAM_CAPTURE_UNSUPPORTED);
        }
        capture::begin(&*stream_from_handle(stream)?)
    }

    /// cuStreamEndCapture.
    fn cuStreamEndCapture = CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture(stream: u64, graph: *mut u64) |_| {
        match capture::end(&*stream_from_handle(stream)?) {
            Ok(captured) => put(graph, captured),
            Err(code) => {
                put(graph, 0)?;
                Err(code)
            }
        }
    }

    /// cuStreamIsCapturing.
    fn cuStreamIsCapturing = CUPTI_DRIVER_TRACE_CBID_cuStreamIsCapturing(stream: u64, status: *mut c_uint) |_| {
        let captured = capture::info(&*stream_from_handle(stream)?);
        put(status, captured.map_or(NOT_CAPTURING, |(is_spoilt, ..)| if is_spoilt { INVALIDATED } else { ACTIVE }))
    }

    /// cuStreamGetCaptureInfo_v2.
    fn cuStreamGetCaptureInfo_v2 = CUPTI_DRIVER_TRACE_CBID_cuStreamGetCaptureInfo_v2(
        stream: u64, status: *mut c_uint, id: *mut u64, graph: *mut u64, dependencies: *mut *const u64, count: *mut usize,
    ) |_| {
        capture_info(stream, status, id, graph, dependencies, count)
    }

    /// cuStreamGetCaptureInfo_v3: edges have no data.
    fn cuStreamGetCaptureInfo_v3 = CUPTI_DRIVER_TRACE_CBID_cuStreamGetCaptureInfo_v3(
        stream: u64, status: *mut c_uint, id: *mut u64, graph: *mut u64, dependencies: *mut *const u64,
        edges: *mut *const c_void, count: *mut usize,
    ) |_| {
        if !edges.is_null() {
            put(edges, std::ptr::null())?;
        }
        capture_info(stream, status, id, graph, dependencies, count)
    }

    /// cuThreadExchangeStreamCaptureMode: all modes are the same here.
    fn cuThreadExchangeStreamCaptureMode = CUPTI_DRIVER_TRACE_CBID_cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) |_| {
        // SAFETY: null, or the caller's place for a mode.
        match unsafe { mode.as_ref() } {
            Some(0..=2) => Ok(()),
            _ => Err(error::INVALID_VALUE),
        }
    }

    /// cuGraphCreate.
    fn cuGraphCreate = CUPTI_DRIVER_TRACE_CBID_cuGraphCreate(graph: *mut u64, flags: c_uint) |_| {
        if flags != 0 || graph.is_null() {
            return Err(error::INVALID_VALUE);
        }
        put(graph, create(current_context()?)?)
    }

    /// cuGraphDestroy.
    fn cuGraphDestroy = CUPTI_DRIVER_TRACE_CBID_cuGraphDestroy(graph: u64) |_| {
        let context = books().graphs.get(&graph).ok_or(error::INVALID_VALUE)?.context;
        let data = GraphData { graph, ..GraphData::default() };
        cupti::graph_event(event::GRAPH_DESTROY_STARTING, context.handle, &data);
        books().graphs.remove(&graph);
        Ok(())
    }

    /// cuGraphGetNodes: how many there are, or so many of their handles.
    fn cuGraphGetNodes = CUPTI_DRIVER_TRACE_CBID_cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) |_| {
        if count.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let books = books();
        let known = &books.graphs.get(&graph).ok_or(error::INVALID_VALUE)?.nodes;
        if nodes.is_null() {
            return put(count, known.len());
        }
        // SAFETY: not null, and a number by CUDA's contract.
        let room = unsafe { count.read_unaligned() };
        for (index, node) in known.iter().take(room).enumerate() {
            // SAFETY: the caller has as many places as `count` says.
            unsafe { nodes.add(index).write_unaligned(node.handle) };
        }
        put(count, known.len().min(room))
    }

    /// cuGraphNodeGetType.
    fn cuGraphNodeGetType = CUPTI_DRIVER_TRACE_CBID_cuGraphNodeGetType(node: u64, kind: *mut c_uint) |_| {
        let books = books();
        let mut nodes = books.graphs.values().flat_map(|graph| &graph.nodes);
        let known = nodes.find(|known| known.handle == node).ok_or(error::INVALID_VALUE)?;
        put(kind, known.work.code())
    }

    /// cuGraphInstantiateWithFlags: no flag changes anything here.
    fn cuGraphInstantiateWithFlags = CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, _flags: u64) |_| {
        instantiate(executable, graph)
    }

    /// cuGraphUpload: nothing is to be brought anywhere.
    fn cuGraphUpload = CUPTI_DRIVER_TRACE_CBID_cuGraphUpload(executable: u64, stream: u64) |_| {
        stream_from_handle(stream)?;
        if books().executables.contains_key(&executable) { Ok(()) } else { Err(error::INVALID_VALUE) }
    }

    /// cuGraphLaunch.
    fn cuGraphLaunch = CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch(executable: u64, stream: u64) |call| {
        let stream = stream_from_handle(stream)?;
        capture::forbid(&stream)?;
        crate::driver::order_with_default(&stream)?;
        run::launch(executable, &stream, call.correlation)
    }

    /// cuGraphExecDestroy: what was launched goes on to its end.
    fn cuGraphExecDestroy = CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy(executable: u64) |_| {
        let known = books().executables.get(&executable).cloned().ok_or(error::INVALID_VALUE)?;
        let data = GraphData { executable, ..GraphData::default() };
        cupti::graph_event(event::GRAPHEXEC_DESTROY_STARTING, known.graph.context.handle, &data);
        books().executables.remove(&executable);
        Ok(())
    }
}
