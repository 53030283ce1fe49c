//! Nodes that are added one by one: kernels, copies and memsets in one dimension.

use std::ffi::{c_uint, c_void};

use super::{add, places};
use crate::driver::entry::{driver_functions, put};
use crate::driver::error;
use crate::driver::launch::{LaunchConfig, kernel_node};
use crate::driver::memory::{copy_node, memset_node};

/// CUDA_KERNEL_NODE_PARAMS, version 2.
#[repr(C)]
pub struct KernelParameters {
    function: u64,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: u64,
    context: u64,
}

/// One side of CUDA_MEMCPY3D.
#[repr(C)]
pub struct Side {
    x_bytes: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: c_uint,
    host: u64,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

impl Side {
    /// Where it begins, if it is plain memory.
    fn address(&self) -> Result<u64, u32> {
        let base = match self.kind {
            1 => self.host,
            2 | 4 => self.device,
            _ => return Err(error::NOT_SUPPORTED),
        };
        if self.y > 0 || self.z > 0 {
            return Err(error::NOT_SUPPORTED);
        }
        Ok(base + self.x_bytes as u64)
    }
}

/// CUDA_MEMCPY3D.
#[repr(C)]
pub struct CopyParameters {
    source: Side,
    destination: Side,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

/// CUDA_MEMSET_NODE_PARAMS.
#[repr(C)]
pub struct MemsetParameters {
    destination: u64,
    pitch: usize,
    value: c_uint,
    element_bytes: c_uint,
    width: usize,
    height: usize,
}

/// The caller's dependencies.
fn dependencies(graph: u64, handles: *const u64, count: usize) -> Result<Vec<usize>, u32> {
    if count == 0 {
        return places(graph, &[]);
    }
    if handles.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller passes that many handles.
    places(graph, unsafe { std::slice::from_raw_parts(handles, count) })
}

driver_functions! {
    /// cuGraphAddKernelNode_v2.
    fn cuGraphAddKernelNode_v2 = CUPTI_DRIVER_TRACE_CBID_cuGraphAddKernelNode_v2(
        node: *mut u64, graph: u64, before: *const u64, count: usize, parameters: *const KernelParameters,
    ) |_| {
        // SAFETY: null, or the caller's parameters.
        let parameters = unsafe { parameters.as_ref() }.ok_or(error::INVALID_VALUE)?;
        if !parameters.extra.is_null() || parameters.kernel != 0 {
            return Err(error::NOT_SUPPORTED);
        }
        let before = dependencies(graph, before, count)?;
        let config = LaunchConfig::new(parameters.grid, parameters.block, parameters.shared_bytes, 0);
        let work = kernel_node(parameters.function, &config, parameters.parameters)?;
        put(node, add(graph, work, before)?.1)
    }

    /// cuGraphAddMemcpyNode: one row.
    fn cuGraphAddMemcpyNode = CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemcpyNode(
        node: *mut u64, graph: u64, before: *const u64, count: usize, parameters: *const CopyParameters, _context: u64,
    ) |_| {
        // SAFETY: null, or the caller's parameters.
        let parameters = unsafe { parameters.as_ref() }.ok_or(error::INVALID_VALUE)?;
        if parameters.height > 1 || parameters.depth > 1 {
            return Err(error::NOT_SUPPORTED);
        }
        let before = dependencies(graph, before, count)?;
        let (to, from) = (parameters.destination.address()?, parameters.source.address()?);
        put(node, add(graph, copy_node(to, from, parameters.width_bytes)?, before)?.1)
    }

    /// cuGraphAddMemsetNode: one row.
    fn cuGraphAddMemsetNode = CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemsetNode(
        node: *mut u64, graph: u64, before: *const u64, count: usize, parameters: *const MemsetParameters, _context: u64,
    ) |_| {
        // SAFETY: null, or the caller's parameters.
        let parameters = unsafe { parameters.as_ref() }.ok_or(error::INVALID_VALUE)?;
        if parameters.height > 1 {
            return Err(error::NOT_SUPPORTED);
        }
        let before = dependencies(graph, before, count)?;
        let bytes = parameters.element_bytes as usize;
        let work = memset_node(parameters.destination, parameters.value, bytes, parameters.width)?;
        put(node, add(graph, work, before)?.1)
    }
}
