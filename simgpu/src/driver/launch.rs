//! Launching kernels.

use std::ffi::{c_uint, c_void};

use super::entry::{Call, driver_functions};
use super::error;
use super::module::function;
use super::stream::{order_with_default, stream_from_handle};
use crate::device::{OpKind, Submission};
use crate::kernels::{self, Arguments};

/// CUlaunchConfig (cuda.h), without its attributes.
#[repr(C)]
pub struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: u64,
}

fn launch(call: &Call, handle: u64, config: &LaunchConfig, parameters: *mut *mut c_void) -> Result<(), u32> {
    let function = function(handle)?;
    let stream = stream_from_handle(config.stream)?;
    if stream.context != function.context {
        return Err(error::INVALID_HANDLE);
    }
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
    let prepared = (function.kernel.prepare)(&arguments)?;
    order_with_default(&stream)?;
    let kind = OpKind::Kernel {
        name: function.name,
        grid: config.grid,
        block: config.block,
        registers: kernels::REGISTERS,
        dynamic_shared_bytes: config.shared_bytes,
    };
    let work = Box::new(move |start_ns: i64| start_ns + prepared());
    stream.submit(Submission {
        correlation: call.correlation,
        kind,
        work,
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
        let config = LaunchConfig { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes, stream };
        launch(call, handle, &config, parameters)
    }

    /// cuLaunchKernelEx; launch attributes change nothing here.
    fn cuLaunchKernelEx = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx(config: *const LaunchConfig, handle: u64, parameters: *mut *mut c_void, _extra: *mut *mut c_void) |call| {
        if config.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller passes a CUlaunchConfig, whose first members these are.
        launch(call, handle, unsafe { &*config }, parameters)
    }
}
