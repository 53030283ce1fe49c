//! Launching kernels.

use std::ffi::{CStr, c_uint, c_void};
use std::sync::Arc;

use cudarc::cupti::sys::CUpti_driver_api_trace_cbid_enum as Callback;

use super::entry::{self, Call, Entering, driver_functions};
use super::error;
use super::graph::{NodeWork, capture};
use super::module::{Function, function};
use super::stream::{order_with_default, stream_from_handle};
use crate::device::model::named_ns;
use crate::device::{KernelResources, OpKind, Submission, Work};
use crate::kernels::{self, Arguments};

/// CUlaunchConfig (cuda.h); attributes change nothing here.
#[repr(C)]
pub struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: u64,
    attributes: *const c_void,
    attribute_count: c_uint,
}

impl LaunchConfig {
    /// Without attributes.
    pub(crate) fn new(grid: [u32; 3], block: [u32; 3], shared_bytes: u32, stream: u64) -> Self {
        Self {
            grid,
            block,
            shared_bytes,
            stream,
            attributes: std::ptr::null(),
            attribute_count: 0,
        }
    }
}

/// Launches a kernel of one of the libraries here, as cuLaunchKernelEx seen by tools; the kernel is not a function of a
/// module, so that its handle is null.
pub(crate) fn launch_of_library(
    config: &LaunchConfig,
    symbol: &'static CStr,
    body: impl FnOnce(&Call) -> Result<(), u32>,
) -> u32 {
    /// cuLaunchKernelEx_params.
    #[repr(C)]
    struct Parameters {
        config: *const LaunchConfig,
        function: u64,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    }
    let parameters = Parameters {
        config,
        function: 0,
        parameters: std::ptr::null_mut(),
        extra: std::ptr::null_mut(),
    };
    let entering = Entering {
        callback: Callback::CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx as u32,
        name: c"cuLaunchKernelEx",
        parameters: (&raw const parameters).cast(),
        symbol: Some(symbol),
    };
    entry::enter(&entering, body)
}

/// The name of the kernel that a call launches, from its arguments as tools see them.
pub(crate) fn launched_symbol(callback: u32, parameters: *const c_void) -> Option<&'static CStr> {
    const LAUNCH: u32 = Callback::CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel as u32;
    const LAUNCH_EX: u32 = Callback::CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx as u32;
    // The function is the first argument of the one and the second of the other.
    let place = match callback {
        LAUNCH => 0,
        LAUNCH_EX => 1,
        _ => return None,
    };
    // SAFETY: the arguments of these calls, as `driver_functions` lays them out: words of 8 bytes up to the function.
    let handle = unsafe { parameters.cast::<u64>().add(place).read() };
    function(handle).ok().map(|function| function.name)
}

/// A kernel as the graph's nodes have it: what it is, and its arguments.
fn kernel(
    function: &Function,
    config: &LaunchConfig,
    parameters: *mut *mut c_void,
) -> Result<(OpKind, Arguments), u32> {
    let threads: u64 = config.block.iter().map(|&count| u64::from(count)).product();
    if threads == 0 || threads > 1024 || config.grid.contains(&0) {
        return Err(error::INVALID_VALUE);
    }
    if parameters.is_null() && !function.parameter_bytes.is_empty() {
        return Err(error::INVALID_VALUE);
    }
    // Arguments are copied now: the caller's variables may be gone when the kernel's turn comes.
    let mut arguments = Arguments::default();
    for (index, &bytes) in function.parameter_bytes.iter().enumerate() {
        // SAFETY: the C interface has the caller pass one pointer for each of the kernel's parameters.
        let place = unsafe { *parameters.add(index) };
        if place.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // SAFETY: each pointer leads to as many bytes as the PTX declares for that parameter.
        arguments.push(unsafe { std::slice::from_raw_parts(place.cast::<u8>(), bytes) });
    }
    let kind = OpKind::Kernel {
        name: function.name,
        grid: config.grid,
        block: config.block,
        resources: KernelResources {
            registers: kernels::REGISTERS,
            dynamic_shared_bytes: config.shared_bytes,
            ..function.resources
        },
    };
    Ok((kind, arguments))
}

/// A kernel as a graph's node.
pub(super) fn kernel_node(
    handle: u64,
    config: &LaunchConfig,
    parameters: *mut *mut c_void,
) -> Result<NodeWork, u32> {
    let function = function(handle)?;
    let (kind, arguments) = kernel(&function, config, parameters)?;
    let (name, prepare) = (function.name, function.kernel.prepare);
    // What is wrong is found now, not at the first launch.
    drop(prepare(&arguments)?);
    let make = move || -> Work {
        match prepare(&arguments) {
            Ok(prepared) => Box::new(move |start_ns: i64| start_ns + named_ns(name, prepared())),
            // Memory of a captured kernel was freed: it does nothing.
            Err(_) => Box::new(|start_ns| start_ns),
        }
    };
    Ok(NodeWork::operation(kind, Arc::new(make)))
}

fn launch(call: &Call, handle: u64, config: &LaunchConfig, parameters: *mut *mut c_void) -> Result<(), u32> {
    let function = function(handle)?;
    let stream = stream_from_handle(config.stream)?;
    if stream.context != function.context {
        return Err(error::INVALID_HANDLE);
    }
    if capture::is_capturing(&stream) {
        return capture::append(&stream, kernel_node(handle, config, parameters)?, &[]);
    }
    let (kind, arguments) = kernel(&function, config, parameters)?;
    let prepared = (function.kernel.prepare)(&arguments)?;
    order_with_default(&stream)?;
    stream.submit(Submission {
        correlation: call.correlation,
        kind,
        work: Box::new(move |start_ns: i64| start_ns + named_ns(function.name, prepared())),
        graph: None,
    });
    Ok(())
}

driver_functions! {
    /// cuLaunchKernel.
    fn cuLaunchKernel = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel(
        handle: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint, stream: u64, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    ) |call| {
        if !extra.is_null() {
            return Err(error::NOT_SUPPORTED);
        }
        let config = LaunchConfig::new([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared_bytes, stream);
        launch(call, handle, &config, parameters)
    }

    /// cuLaunchKernelEx; launch attributes change nothing here.
    fn cuLaunchKernelEx = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx(config: *const LaunchConfig, handle: u64, parameters: *mut *mut c_void, _extra: *mut *mut c_void) |call| {
        if config.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller passes a CUlaunchConfig.
        launch(call, handle, unsafe { &*config }, parameters)
    }
}
