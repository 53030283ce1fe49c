//! One rank's GPU: context, memory, kernels and cuBLAS, with thin calls that name what they do.

mod blas;
mod data_type;
mod launch;
mod modules;
mod peers;
mod staging;
mod transfer;

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, DevicePtr};

pub(crate) use blas::Matrix;
pub(crate) use data_type::DataType;
pub(crate) use launch::Queue;
pub(crate) use peers::enable_peer_access;
pub(crate) use staging::Staging;
pub(crate) use transfer::{clear, copy};

use crate::comm;
use crate::error::Error;
use blas::Blas;
use modules::Kernels;

/// One GPU with the stream that computes.
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) compute: Arc<CudaStream>,
    pub(crate) name: String,
    kernels: Kernels,
    blas: Blas,
}

impl Gpu {
    /// Opens device `device_index`, modulo how many there are, and makes its context current on this thread.
    pub(crate) fn open(device_index: u32) -> Result<Self, Error> {
        if !comm::can_load("libcuda.so.1") && !comm::can_load("libcuda.so") {
            return Err(Error::new(
                "no GPU can be used here: libcuda.so.1 (NVIDIA's driver) was not found",
            ));
        }
        let count = CudaContext::device_count().or_else(|_| {
            cudarc::driver::result::init()?;
            CudaContext::device_count()
        })?;
        if count <= 0 {
            return Err(Error::new("no GPU can be used here: the driver knows none"));
        }
        let context = CudaContext::new((device_index % count.cast_unsigned()) as usize)?;
        // SAFETY: streams are ordered by events of our own, where they meet.
        unsafe { context.disable_event_tracking() };
        let kernels = Kernels::load(&context)?;
        let compute = context.new_stream()?;
        let blas = Blas::new(&compute)?;
        let name = context.name()?;
        Ok(Self {
            context,
            compute,
            name,
            kernels,
            blas,
        })
    }

    /// Makes this GPU's context the calling thread's current one.
    pub(crate) fn bind(&self) -> Result<(), Error> {
        Ok(self.context.bind_to_thread()?)
    }

    /// Zeroed device memory of so many bytes.
    pub(crate) fn buffer(&self, bytes: usize) -> Result<Buffer, Error> {
        // The driver allocates nothing that is empty.
        let slice = self.compute.alloc_zeros(bytes.max(1))?;
        Ok(Buffer { slice, bytes })
    }

    /// An event that other streams and the host can wait for.
    pub(crate) fn event(&self) -> Result<CudaEvent, Error> {
        Ok(self
            .context
            .new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING))?)
    }

    /// Launches on the compute stream.
    pub(crate) fn work(&self) -> Queue<'_> {
        self.work_on(&self.compute)
    }

    /// Launches on a stream.
    pub(crate) fn work_on<'a>(&'a self, stream: &'a CudaStream) -> Queue<'a> {
        Queue { gpu: self, stream }
    }

    /// Makes this GPU a straggler, on real devices as well: on average `factor` times as many matrix products are
    /// computed as are asked for. Results don't change.
    pub(crate) fn slow_down(&mut self, factor: f64) {
        self.blas.slow_down(factor);
    }
}

/// Device memory, freed when the compute stream has done what it was given before the drop.
pub(crate) struct Buffer {
    slice: CudaSlice<u8>,
    bytes: usize,
}

impl Buffer {
    /// Where it begins.
    pub(crate) fn address(&self) -> u64 {
        self.slice.device_ptr(self.slice.stream()).0
    }

    /// How many bytes were asked for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
